"""A prompt with its pictures and sounds put in: one list of tokens and placeholders, and the spans of the latter."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.errors import BugFault
from runtime.scheduler.media import MediaSpan
from runtime.worker.media_rows import Chunk, ReadMedia


@dataclass(frozen=True, slots=True)
class MixedPrompt:
    """What an `EngineRequest` is made of, once all media have their rows.

    Attributes:
        tokens: with placeholders.
        save_points: as in `Prompt`, counted in these tokens.
        media: those of the prompt, in order; some may come twice.
        places: of each chunk its start in the tokens, its medium's place in `media` and its own in that.
    """

    tokens: tuple[int, ...]
    save_points: tuple[int, ...]
    media: tuple[ReadMedia, ...]
    places: tuple[tuple[int, int, int], ...]

    def spans(self) -> tuple[MediaSpan, ...]:
        """The spans; all media must be encoded."""
        found: list[MediaSpan] = []
        for start, at, number in self.places:
            medium = self.media[at]
            if medium.rows is None:
                raise BugFault("a prompt was asked for before its pictures were encoded")
            chunk: Chunk = medium.chunks[number]
            n_pictures = sum(1 for other in self.media[:at] if other.kind == "image")
            rows = chunk.numbered(medium.rows[number], n_pictures)
            found.append(MediaSpan(start, len(chunk.tokens), chunk.n_pos, chunk.is_causal, rows))
        return tuple(found)


def mix(tokens: Sequence[int], placed: Sequence[tuple[int, ReadMedia]], save_points: Sequence[int]) -> MixedPrompt:
    """Put media into a prompt.

    Args:
        tokens: the text.
        placed: each medium with the number of tokens before it, ascending.
        save_points: lengths of the text; one that stands at a medium stays before it.
    """
    mixed: list[int] = []
    places: list[tuple[int, int, int]] = []
    points = list(save_points)
    done = 0
    for at, (before, medium) in enumerate(placed):
        mixed += tokens[done:before]
        done = before
        number = 0
        for piece in medium.pieces:
            if isinstance(piece, Chunk):
                places.append((len(mixed), at, number))
                number += 1
                mixed += piece.tokens
            else:
                mixed += piece
        for index, point in enumerate(save_points):
            if point > before:
                points[index] += medium.n_tokens
    mixed += tokens[done:]
    return MixedPrompt(tuple(mixed), tuple(points), tuple(medium for _before, medium in placed), tuple(places))
