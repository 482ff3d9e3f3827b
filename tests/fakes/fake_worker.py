"""A worker process without a model: answers by script, and fails in every way a real one can.

`python fake_worker.py --connect HOST:PORT`, token on the first line of standard input. What it does is written in the
model's file name (loading) and in the last user message or prompt (answering):

==================  =======================================================================
file name holds     loading
==================  =======================================================================
refuse              says `LoadFailed` (NotEnoughMemory)
crash-loading       prints a reason and ends with code 7 while loading
slow-loading        reports progress until a file named `<path>.go` appears
never-calls         ends with code 9 before it connects
==================  =======================================================================

==================  =======================================================================
message             answer
==================  =======================================================================
say N               N words "w0 w1 ..."; each word a step
slowly N            the same, 20 ms apart
think               reasoning, then content
die                 two words, then SIGKILL to itself
exit                two words, a line on standard error, then exit code 3
hang                one word, then health that says the engine is stuck
freeze              stops its own process (SIGSTOP)
silence             nothing at all, until cancelled
garbage             a frame that is no message
busy                `Failed` with Busy, retry after 7 s
too long            `Failed` with ContextExceeded
fail late           two words, then `Failed`
logprobs            two tokens with alternatives, one of them half a character
active              the number of open requests
flood               5,000 words as fast as it can
describe            the request itself, as JSON
exactly TEXT        that text
call                a thought, a word, then two calls with arguments in pieces
anything else       "echo: " and the message
==================  =======================================================================
"""

import argparse
import os
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import msgspec

from runtime.errors import Busy, ContextExceeded, GenerationFailed, NotEnoughMemory, to_failure
from runtime.messages.frames import FrameSocket
from runtime.messages.ipc import (
    ApplyTemplate,
    Cancel,
    Count,
    Counted,
    Delta,
    Detokenize,
    Embed,
    Embedded,
    Failed,
    Finished,
    Generate,
    Health,
    Hello,
    InfillPrompt,
    Load,
    LoadFailed,
    LoadProgress,
    PromptProgress,
    Queued,
    Ready,
    Rendered,
    Rerank,
    Reranked,
    Shutdown,
    Step,
    Tokenize,
    Tokenized,
)
from runtime.messages.shared import (
    FinishReason,
    ModelFacts,
    PositionLogprobs,
    Timings,
    TokenLogprob,
    ToolCallHead,
    Usage,
)

N_EMBD = 4
N_CTX = 4096
PROMPT_TOKENS = 12


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class FakeWorker:
    """One connection; each request runs in a thread of its own."""

    def __init__(self, sock: socket.socket) -> None:
        self._raw = sock
        self._frames = FrameSocket(sock)
        self._open: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        self._stuck = False
        self._generated = 0
        self._ending = threading.Event()

    def run(self, token: str) -> int:  # noqa: C901 - one case for each message
        self._frames.send(Hello(token, os.getpid()))
        load = self._frames.receive()
        if not isinstance(load, Load):
            return 1
        code = self._load(load)
        if code is not None:
            return code
        threading.Thread(target=self._beat, daemon=True).start()
        while (message := self._frames.receive()) is not None:
            match message:
                case Cancel(request_id):
                    event = self._open.get(request_id)
                    if event is not None:
                        event.set()
                case Shutdown():
                    break
                case Generate():
                    self._open[message.request_id] = threading.Event()
                    threading.Thread(target=self._generate, args=(message,), daemon=True).start()
                case Embed(request_id, inputs, truncate):
                    if any(len(text) > N_CTX for text in inputs) and not truncate:
                        error = ContextExceeded("The text is too long.", prompt_tokens=2 * N_CTX, n_ctx=N_CTX)
                        self._frames.send(Failed(request_id, to_failure(error)))
                        continue
                    inputs = tuple(text[:N_CTX] for text in inputs)
                    vectors = tuple(struct.pack("<4f", len(text), index, 0.5, -1) for index, text in enumerate(inputs))
                    self._frames.send(Embedded(request_id, vectors, Usage(prompt_tokens=len(inputs))))
                case Count(request_id, messages):
                    self._frames.send(Counted(request_id, sum(len(m.content.split()) for m in messages), N_CTX))
                case Rerank(request_id, query, documents):
                    scores = tuple(float(document.count(query)) for document in documents)
                    self._frames.send(Reranked(request_id, scores, Usage(prompt_tokens=len(documents))))
                case Tokenize(request_id, text) | InfillPrompt(request_id, text):
                    pieces = tuple(bytes([byte]) for byte in text.encode())
                    self._frames.send(Tokenized(request_id, tuple(text.encode()), pieces))
                case Detokenize(request_id, token_ids):
                    self._frames.send(Rendered(request_id, bytes(token_ids).decode("utf-8", "replace")))
                case ApplyTemplate(request_id, messages):
                    self._frames.send(Rendered(request_id, "".join(f"[{m.role}]{m.content}" for m in messages)))
                case Load():
                    return 1
        self._ending.set()
        return 0

    def _load(self, load: Load) -> int | None:
        name = Path(load.path).name
        self._frames.send(LoadProgress("reading", 0.25))
        if "refuse" in name:
            error = NotEnoughMemory(
                "The model needs 9.0 GB and 2.0 GB are free.",
                hint="Choose a smaller one.",
                needed_bytes=9,
                free_bytes=2,
            )
            self._frames.send(LoadFailed(to_failure(error)))
            return 0
        if "crash-loading" in name:
            say("GGML_ASSERT(fake) failed")
            return 7
        while "slow-loading" in name and not Path(f"{load.path}.go").exists():
            time.sleep(0.01)
        facts = ModelFacts(
            name=name,
            architecture="fake",
            quantization="Q4_1",
            n_params=1000,
            size_bytes=1000,
            n_layer=2,
            n_vocab=100,
            n_ctx=load.options.n_ctx or N_CTX,
            n_ctx_train=N_CTX,
            n_parallel=load.options.n_parallel or 4,
            has_chat_template=True,
            can_embed=True,
            reasoning=True,
            device_names=("CPU",),
            n_gpu_layers=0,
            kv_bytes=1,
            compute_bytes=1,
            load_s=0.1,
            engine="fake",
            resolved={"draft": Path(load.draft_path).name} if load.draft_path else {},
        )
        self._frames.send(Ready(facts))
        return None

    def _beat(self) -> None:
        while not self._ending.wait(0.1):
            self._frames.send(
                Health(
                    step_age_s=99.0 if self._stuck else 0.01,
                    step_limit_s=30.0,
                    active=len(self._open),
                    waiting=0,
                    kv_used=len(self._open),
                    kv_total=N_CTX,
                    resident_bytes=1000,
                    host_cache_bytes=0,
                    decode_share=0.98,
                    generated_tokens=self._generated,
                    prompt_tokens=PROMPT_TOKENS,
                )
            )

    # --- answering ----------------------------------------------------------------------------------------

    def _generate(self, request: Generate) -> None:
        if request.messages is not None:
            text = request.messages[-1].content
        else:
            text = request.prompt if request.prompt is not None else f"tokens {request.prompt_tokens}"
        self._frames.send(Queued(request.request_id, 1))
        self._frames.send(PromptProgress(request.request_id, PROMPT_TOKENS, PROMPT_TOKENS, 4))
        try:
            self._answer(request, text, self._open[request.request_id])
        except OSError:
            return  # the host is gone

    def _answer(self, request: Generate, text: str, cancelled: threading.Event) -> None:  # noqa: C901, PLR0912
        words = text.split()
        match words:
            case ["say", count]:
                self._say(request, [f"w{index} " for index in range(int(count))], cancelled)
            case ["slowly", count]:
                self._say(request, [f"w{index} " for index in range(int(count))], cancelled, pause_s=0.02)
            case ["flood"]:
                self._say(request, ["word "] * 5_000, cancelled)
            case ["think"]:
                self._delta(request, "Hmm. ", kind="reasoning")
                self._say(request, ["Yes."], cancelled)
            case ["die"]:
                self._words(request, 2)
                os.kill(os.getpid(), signal.SIGKILL)
            case ["exit"]:
                self._words(request, 2)
                say("the last words of the fake, about /home/somebody/private.gguf")
                os._exit(3)
            case ["hang"]:
                self._words(request, 1)
                self._stuck = True
            case ["freeze"]:
                os.kill(os.getpid(), signal.SIGSTOP)
            case ["silence"]:
                cancelled.wait()
                self._finish(request, 0, ("cancelled",))
            case ["garbage"]:
                self._raw.sendall(struct.pack("<I", 3) + b"\xc1\xc1\xc1")
            case ["busy"]:
                busy = Busy("32 requests wait already.", hint="Come back later.", retry_after_s=7, waiting=32)
                self._end(request, Failed(request.request_id, to_failure(busy)))
            case ["too", "long"]:
                too_long = ContextExceeded(
                    "The prompt has 9000 tokens, the context 4096.", prompt_tokens=9000, n_ctx=4096
                )
                self._end(request, Failed(request.request_id, to_failure(too_long)))
            case ["fail", "late"]:
                self._words(request, 2)
                self._end(request, Failed(request.request_id, to_failure(GenerationFailed("The batch was refused."))))
            case ["logprobs"]:
                self._logprobs(request)
            case [*_, "describe"]:
                self._say(request, [msgspec.json.encode(request).decode()], cancelled)
            case ["exactly", *_]:
                self._say(request, [text.partition(" ")[2]], cancelled)
            case ["call"]:
                self._call(request)
            case ["active"]:
                self._say(request, [str(len(self._open) - 1)], cancelled)
            case _:
                self._say(request, [f"echo: {text}"], cancelled)

    def _say(self, request: Generate, words: list[str], cancelled: threading.Event, pause_s: float = 0.0) -> None:
        n_choices = request.options.n
        most = request.options.max_tokens
        done = 0
        reason: FinishReason = "stop"
        for word in words:
            if cancelled.wait(pause_s) if pause_s else cancelled.is_set():
                reason = "cancelled"
                break
            if most is not None and done >= most:
                reason = "length"
                break
            deltas = tuple(Delta(request.request_id, choice, "content", word, 1) for choice in range(n_choices))
            self._frames.send(Step(deltas))
            done += 1
            self._generated += n_choices
        self._finish(request, done * n_choices, (reason,) * n_choices)

    def _words(self, request: Generate, count: int) -> None:
        for index in range(count):
            self._delta(request, f"w{index} ")

    def _delta(self, request: Generate, text: str, kind: str = "content") -> None:
        self._frames.send(
            Step((Delta(request.request_id, 0, "reasoning" if kind == "reasoning" else "content", text, 1),))
        )

    def _logprobs(self, request: Generate) -> None:
        whole = TokenLogprob(5, b"Hi", -0.25)
        half = TokenLogprob(6, b"\xf0\x9f", -1.5)
        self._frames.send(
            Step((Delta(request.request_id, 0, "content", "Hi", 1, (PositionLogprobs(whole, (whole, half)),)),))
        )
        self._frames.send(Step((Delta(request.request_id, 0, "content", "!", 1, (PositionLogprobs(half, (half,)),)),)))
        self._finish(request, 2, ("stop",))

    def _call(self, request: Generate) -> None:
        self._delta(request, "Which?", kind="reasoning")
        self._delta(request, "Let me see.")
        for index, (name, pieces) in enumerate((("weather", ('{"city":', '"Oslo"}')), ("clock", ("{}",)))):
            head = ToolCallHead(index, f"call_{index}", name)
            for piece in pieces:
                self._frames.send(Step((Delta(request.request_id, 0, "tool_call", piece, 1, (), head),)))
        self._finish(request, 5, ("tool_calls",))

    def _finish(self, request: Generate, generated: int, reasons: tuple[FinishReason, ...]) -> None:
        usage = Usage(PROMPT_TOKENS, 4, generated, 0)
        timings = Timings(0.001, 0.01, 0.02, 0.1, 800.0, 100.0)
        self._end(request, Finished(request.request_id, reasons, usage, timings, ("",) * len(reasons)))

    def _end(self, request: Generate, message: Finished | Failed) -> None:
        self._open.pop(request.request_id, None)
        self._frames.send(message)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--connect", required=True)
    parser.add_argument("--never-calls", action="store_true")
    given = parser.parse_args()
    token = sys.stdin.readline().strip()
    if given.never_calls:
        say("no way")
        return 9
    host, _, port = given.connect.rpartition(":")
    with socket.create_connection((host, int(port))) as sock:
        return FakeWorker(sock).run(token)


if __name__ == "__main__":
    sys.exit(main())
