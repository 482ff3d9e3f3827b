"""The live requests as a table: rows change in place, so that sorting, selection and scrolling stay."""

from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from app.ui.server.words import tr
from runtime import units
from runtime.messages.api import RequestInfo
from runtime.units import format_duration

MAX_ROWS = 200
"""Requests shown: all running ones first, then the last finished ones. The host keeps no more."""

RUNNING = ("loading", "queued", "prompt", "generating")
SORT_ROLE = int(Qt.ItemDataRole.UserRole)
ID_ROLE = SORT_ROLE + 1
IS_RUNNING_ROLE = SORT_ROLE + 2

_Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title, and whether it holds numbers."""

    name: str
    title: str
    is_number: bool = False


def columns() -> tuple[Column, ...]:
    """From left to right."""
    return (
        Column("client", tr("Client")),
        Column("key", tr("Key")),
        Column("model", tr("Model")),
        Column("state", tr("State")),
        Column("prompt", tr("Prompt"), is_number=True),
        Column("output", tr("Output"), is_number=True),
        Column("first", tr("First token"), is_number=True),
        Column("speed", tr("Tokens/s"), is_number=True),
        Column("age", tr("Age"), is_number=True),
        Column("cancel", ""),
    )


def state_words(request: RequestInfo) -> str:
    """A request's state for people."""
    return {
        "loading": tr("Model loads"),
        "queued": tr("Waits"),
        "prompt": tr("Reads"),
        "generating": tr("Writes"),
        "finished": tr("Done"),
        "cancelled": tr("Cancelled"),
        "failed": tr("Failed"),
    }[request.state]


class RequestModel(QAbstractTableModel):
    """Holds what `show_requests` was last told."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._columns = columns()
        self._rows: list[RequestInfo] = []
        self._names: dict[str, str] = {}
        self._now_s = units.now()

    @property
    def requests(self) -> tuple[RequestInfo, ...]:
        """All rows, unsorted."""
        return tuple(self._rows)

    def show_requests(self, requests: tuple[RequestInfo, ...], names: dict[str, str]) -> None:
        """Take the newest state of all; `names` are models' names by id."""
        running = [one for one in requests if one.state in RUNNING]
        ended = [one for one in requests if one.state not in RUNNING]
        kept = running[-MAX_ROWS:]
        room = MAX_ROWS - len(kept)
        kept = [*ended[-room:], *kept] if room else kept
        wanted = {one.request_id: one for one in kept}
        self._names = names
        self._now_s = units.now()
        for at in range(len(self._rows) - 1, -1, -1):
            if self._rows[at].request_id not in wanted:
                self.beginRemoveRows(_ROOT, at, at)
                del self._rows[at]
                self.endRemoveRows()
        for at, row in enumerate(self._rows):
            newer = wanted.pop(row.request_id)
            if newer != row or newer.state in RUNNING:
                self._rows[at] = newer
                self.dataChanged.emit(self.index(at, 0), self.index(at, len(self._columns) - 1))
        if wanted:
            first = len(self._rows)
            self.beginInsertRows(_ROOT, first, first + len(wanted) - 1)
            self._rows += wanted.values()
            self.endInsertRows()

    def rowCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: _Index = _ROOT) -> int:
        return 0 if parent.isValid() else len(self._columns)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:  # noqa: ANN401 - as Qt declares it
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return self._columns[section].title
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self._alignment(section)
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:  # noqa: ANN401 - as Qt declares it
        request = self._rows[index.row()]
        name = self._columns[index.column()].name
        if role == Qt.ItemDataRole.DisplayRole:
            return self._text(request, name)
        if role == SORT_ROLE:
            return self._sort_value(request, name)
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return self._alignment(index.column())
        if role == Qt.ItemDataRole.ToolTipRole:
            return f"{request.route}\n{request.problem}".strip()
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return self._text(request, name)
        if role == ID_ROLE:
            return request.request_id
        if role == IS_RUNNING_ROLE:
            return request.state in RUNNING
        return None

    def _alignment(self, column: int) -> Qt.AlignmentFlag:
        side = Qt.AlignmentFlag.AlignRight if self._columns[column].is_number else Qt.AlignmentFlag.AlignLeft
        return side | Qt.AlignmentFlag.AlignVCenter

    def _text(self, request: RequestInfo, name: str) -> str:
        texts = {
            "client": tr("This window") if request.client == "window" else request.client,
            "key": request.key,
            "model": self._names.get(request.model, request.model),
            "state": state_words(request),
            "prompt": f"{request.prompt_tokens:,}" if request.prompt_tokens else "",
            "output": f"{request.generated_tokens:,}" if request.generated_tokens else "",
            "first": format_duration(request.time_to_first_token_s) if request.time_to_first_token_s else "",
            "speed": f"{request.generation_tps:.1f}" if request.generation_tps else "",
            "age": format_duration(max(0.0, self._now_s - request.started_s)),
        }
        return texts.get(name, "")

    def _sort_value(self, request: RequestInfo, name: str) -> str | float:
        match name:
            case "prompt":
                return request.prompt_tokens
            case "output":
                return request.generated_tokens
            case "first":
                return request.time_to_first_token_s
            case "speed":
                return request.generation_tps
            case "age":
                return self._now_s - request.started_s
            case "state":
                return float([*RUNNING[::-1], "finished", "cancelled", "failed"].index(request.state))
            case _:
                return self._text(request, name).casefold()
