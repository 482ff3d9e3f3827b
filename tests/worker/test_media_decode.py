"""Pictures and sounds through our engine against llama.cpp's own way, on tiny models of each kind."""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from runtime.messages.shared import MediaPart, PositionLogprobs
from runtime.options import GenerateOptions, LoadOptions, SamplingOptions
from runtime.scheduler.plan import BatchPlan
from runtime.scheduler.types import EngineRequest, Text
from runtime.worker import mtmd, native, parameters
from runtime.worker.batch import BatchArrays
from runtime.worker.load import LOG, LlamaModel, load_model
from runtime.worker.media import MediaReader, Source
from runtime.worker.media_cache import MediaCache
from runtime.worker.media_prompt import MixedPrompt, mix
from tests.fakes.engine_rig import EngineRig, running
from tests.fakes.tiny_vision import KINDS, Kind, write_seeing_model
from tests.support.pictures import png, wav

pytestmark = pytest.mark.e2e

TOLERANCE = 2e-3
"""Nats. Other batch shapes give other last bits; another position or mask gives tenths."""


@dataclass
class Seeing:
    """A loaded model with all it needs."""

    kind: Kind
    model: LlamaModel
    reader: MediaReader
    rig: EngineRig

    def media(self, number: int = 0, size: tuple[int, int] = (120, 90)) -> MediaPart:
        if self.kind == "ultravox":
            return MediaPart("audio", wav(1.5, tone_hz=300.0 + 100 * number), "audio/wav")
        return MediaPart("image", png(*size, seed=number), "image/png")

    def mixed(self, before: Sequence[int], parts: Sequence[MediaPart], after: Sequence[int]) -> MixedPrompt:
        """All the media in a row, encoded, with text around and a token between."""
        placed = []
        text = list(before)
        for number, part in enumerate(parts):
            if number:
                text.append(9)
            read = self.reader.read(part)
            self.reader.encode(read)
            placed.append((len(text), read))
        return mix([*text, *after], placed, ())

    def ask(self, mixed: MixedPrompt, name: str, **options: object) -> tuple[list[PositionLogprobs], int]:
        chosen = {"max_tokens": 4, "logprobs": True, "top_logprobs": 20, "ignore_eos": True, **options}
        request = EngineRequest(
            name,
            mixed.tokens,
            GenerateOptions(**chosen, sampling=SamplingOptions(temperature=0)),  # type: ignore[arg-type]
            media=mixed.spans(),
        )
        self.rig.engine.submit(request)
        done = self.rig.wait(name)
        assert done.usage.prompt_tokens == len(mixed.tokens)
        found = [o.logprobs[0] for o in self.rig.outputs if isinstance(o, Text) and o.request_id == name and o.logprobs]
        return found, done.usage.cached_tokens


@pytest.fixture(scope="module", params=KINDS)
def seeing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeing]:
    kind: Kind = request.param
    path, projector = write_seeing_model(tmp_path_factory.mktemp(kind), kind)
    options = LoadOptions(n_ctx=2048, n_parallel=4, n_threads=1, n_ubatch=256)
    model = load_model(path, options, lambda _stage, _fraction: None, projector=projector)
    assert model.projector is not None
    reader = MediaReader(
        model.projector,
        n_vocab=model.vocab.n_tokens,
        n_ubatch=model.resolved.n_ubatch,
        cache=MediaCache(),
        log=LOG,
    )
    with running(model) as rig:
        yield Seeing(kind, model, reader, rig)
    model.close()


class Reference:
    """A bare context fed as `mtmd_helper_eval_chunks` does, one sequence."""

    def __init__(self, seeing: Seeing) -> None:
        self._seeing = seeing
        self._context: int = native.init_from_model(
            seeing.model.model, parameters.context_params(seeing.model.resolved)
        )
        self._position = 0
        self._eval = mtmd.library["mtmd_helper_eval_chunk_single"]
        self._eval.restype = ctypes.c_int32
        self._eval.argtypes = (
            *(ctypes.c_void_p,) * 3,
            *(ctypes.c_int32,) * 3,
            ctypes.c_bool,
            ctypes.POINTER(ctypes.c_int32),
        )

    def text(self, tokens: Sequence[int]) -> None:
        arrays = BatchArrays(len(tokens))
        positions = list(range(self._position, self._position + len(tokens)))
        arrays.fill(
            BatchPlan(
                tokens=list(tokens), positions=positions, seq_ids=[0] * len(tokens), output_rows=[len(tokens) - 1]
            )
        )
        assert native.decode(self._context, arrays.batch) == 0
        self._position += len(tokens)

    def media(self, part: MediaPart) -> None:
        projector = self._seeing.model.projector
        assert projector is not None
        fresh = MediaReader(
            projector,
            n_vocab=self._seeing.model.vocab.n_tokens,
            n_ubatch=self._seeing.model.resolved.n_ubatch,
            cache=MediaCache(0),
            log=LOG,
        )
        source = fresh.read(part).source
        assert isinstance(source, Source)
        for chunk in source.all():
            after = ctypes.c_int32(self._position)
            code = self._eval(
                projector.context,
                self._context,
                chunk,
                self._position,
                0,
                self._seeing.model.resolved.n_batch,
                True,
                ctypes.byref(after),
            )
            assert code == 0
            self._position = after.value

    def logprobs(self) -> np.ndarray:
        n = self._seeing.model.vocab.n_tokens
        raw = ctypes.cast(native.get_logits(self._context), ctypes.POINTER(ctypes.c_float))
        values = np.array(np.ctypeslib.as_array(raw, shape=(n,)), dtype=np.float64)
        values -= values.max()
        found: np.ndarray = values - np.log(np.exp(values).sum())
        return found

    def close(self) -> None:
        native.free(self._context)


def assert_same(position: PositionLogprobs, expected: np.ndarray) -> None:
    assert position.chosen.token_id == int(expected.argmax())
    for entry in position.top:
        assert abs(entry.logprob - expected[entry.token_id]) < TOLERANCE


def check(
    seeing: Seeing,
    found: list[PositionLogprobs],
    before: Sequence[int],
    parts: Sequence[MediaPart],
    after: Sequence[int],
) -> None:
    reference = Reference(seeing)
    try:
        reference.text(before)
        for number, part in enumerate(parts):
            if number:
                reference.text([9])
            reference.media(part)
        reference.text(after)
        for position in found:
            assert_same(position, reference.logprobs())
            reference.text([position.chosen.token_id])
    finally:
        reference.close()


BEFORE, AFTER = (1, 40, 41, 42, 60), (70, 71, 72, 100, 101)


def test_when_a_prompt_has_a_picture_then_logits_are_llama_cpps_own(seeing: Seeing) -> None:
    parts = [seeing.media(1)]
    found, _cached = seeing.ask(seeing.mixed(BEFORE, parts, AFTER), "one")
    assert len(found) == 4
    check(seeing, found, BEFORE, parts, AFTER)


def test_when_a_prompt_has_two_pictures_then_both_are_seen_in_their_places(seeing: Seeing) -> None:
    parts = [seeing.media(2), seeing.media(3, (200, 60))]
    found, _cached = seeing.ask(seeing.mixed(BEFORE, parts, AFTER), "two")
    check(seeing, found, BEFORE, parts, AFTER)


def test_when_the_next_turn_comes_then_only_its_new_tokens_are_decoded_and_logits_stay_right(seeing: Seeing) -> None:
    parts = [seeing.media(4)]
    first = seeing.mixed(BEFORE, parts, AFTER)
    found, _cached = seeing.ask(first, "first")
    after = (*AFTER, *(position.chosen.token_id for position in found), 90, 91)
    second = seeing.mixed(BEFORE, parts, after)
    found, cached = seeing.ask(second, "second")
    if seeing.kind != "gemma3":  # its window keeps it from going back
        assert cached >= len(first.tokens)
    check(seeing, found, BEFORE, parts, after)


def test_when_two_pictures_differ_then_answers_do(seeing: Seeing) -> None:
    one, _cached = seeing.ask(seeing.mixed(BEFORE, [seeing.media(5)], AFTER), "five")
    second = seeing.mixed(BEFORE, [seeing.media(6)], AFTER)
    other, cached = seeing.ask(second, "six")
    assert cached <= second.places[0][0]  # the marks before the picture are the same
    assert one[0].top != other[0].top


def test_when_requests_run_at_once_then_each_gets_the_logits_it_gets_alone(seeing: Seeing) -> None:
    prompts = {
        "a": seeing.mixed(BEFORE, [seeing.media(7)], AFTER),
        "b": seeing.mixed((1, 50, 51), [seeing.media(8)], AFTER),
        "c": mix(tuple(range(10, 90)), (), ()),
    }
    options = GenerateOptions(
        max_tokens=12, logprobs=True, top_logprobs=5, ignore_eos=True, sampling=SamplingOptions(temperature=0)
    )
    for name, prompt in prompts.items():
        seeing.rig.engine.submit(EngineRequest(f"with {name}", prompt.tokens, options, media=prompt.spans()))
    together = {}
    for name in prompts:
        seeing.rig.wait(f"with {name}")
        together[name] = [
            o.logprobs[0]
            for o in seeing.rig.outputs
            if isinstance(o, Text) and o.request_id == f"with {name}" and o.logprobs
        ]
    for name, prompt in prompts.items():
        alone, _cached = seeing.ask(prompt, f"alone {name}", max_tokens=12, top_logprobs=5)
        for one, other in zip(together[name], alone, strict=True):
            assert one.chosen.token_id == other.chosen.token_id
            assert abs(one.chosen.logprob - other.chosen.logprob) < TOLERANCE
