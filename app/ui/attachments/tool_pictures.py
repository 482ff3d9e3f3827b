"""Pictures that tools return, prepared on a lane before they are kept, shown or sent."""

from collections.abc import Callable, Sequence
from functools import partial

from app.tasks import Lane
from app.tool_results import Made
from app.ui.attachments.prepare import Refused, prepare_tool_picture


class ToolPictures:
    """Home thread: main. What a tool sends is a stranger's file: checked by its header before it is decoded."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def make(self, pictures: Sequence[bytes], max_pixels: int, done: Callable[[list[Made]], None]) -> None:
        """Prepare them; one that cannot be is answered by a sentence."""
        n_pictures = len(pictures)
        self._lane.submit(
            partial(_made, tuple(pictures), max_pixels),
            done,
            lambda error: done([f"{n_pictures} pictures were left out: {error}"]),
        )


def _made(pictures: tuple[bytes, ...], max_pixels: int) -> list[Made]:
    made: list[Made] = []
    for raw in pictures:
        try:
            prepared = prepare_tool_picture(raw, max_pixels)
        except Refused as error:
            made.append(str(error))
        else:
            made.append((prepared.attachment, prepared.data))
    return made
