"""Benchmark: measures the loaded model by real requests, and says how fast it reads and writes."""

from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication, Signal
from PySide6.QtWidgets import QComboBox, QGridLayout, QHBoxLayout, QProgressBar, QWidget

from app.context import AppContext
from app.link import ChatStream
from app.model_choice import current_model
from app.ui.appearance import Appearance
from app.ui.controls.buttons import TintedButton, push_button
from app.ui.controls.labels import label
from app.ui.pages.base import Card, Page, SettingRow
from app.ui.theme import Size, Space
from runtime.messages.api import ChatEvent, ChatFailed, ChatFinished, ChatRequest, LoadedModel
from runtime.messages.shared import Message
from runtime.options import GenerateOptions, SamplingOptions
from runtime.units import format_duration, format_speed

MAX_RESULTS = 20
"""Rows kept on the page; the oldest goes first."""

RUNS = 3
"""Requests of one measurement; the first warms up and does not count."""

N_TOKENS = 64
PROMPT_WORDS = (32, 128, 512)


def tr(text: str) -> str:
    """Translate in this page's context."""
    return QCoreApplication.translate("BenchmarkPage", text)


@dataclass(frozen=True, slots=True)
class Result:
    """Middle values of the counted requests."""

    model: str
    prompt_tokens: int
    prompt_tps: float
    generation_tps: float
    first_token_s: float


def prompt_of(words: int, run: int) -> str:
    """A prompt of about so many words; each run begins differently, so that no cache answers it."""
    begin = f"Run {run}. "
    return begin + " ".join(f"word{(at * 7919 + run) % 997}" for at in range(words)) + "\nContinue this list."


def middle(finished: list[ChatFinished], model: str) -> Result:
    """The median of each figure."""

    def median(values: list[float]) -> float:
        ordered = sorted(values)
        return ordered[len(ordered) // 2]

    return Result(
        model,
        finished[-1].usage.prompt_tokens,
        median([each.timings.prompt_tps for each in finished]),
        median([each.timings.generation_tps for each in finished]),
        median([each.timings.time_to_first_token_s for each in finished]),
    )


class BenchmarkPage(Page):
    """One button, one table."""

    copied = Signal(str)

    def __init__(self, context: AppContext, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(
            tr("Benchmark"),
            tr("Sends a few real requests to the loaded model: how fast it reads, and how fast it writes."),
            parent,
        )
        self._link = context.link
        self._stream: ChatStream | None = None
        self._finished: list[ChatFinished] = []
        self._results: list[Result] = []
        self._model: LoadedModel | None = None
        card = Card(tr("Measure"))
        self._length = QComboBox()
        self._length.setFixedWidth(Size.FIELD_W)
        for words in PROMPT_WORDS:
            self._length.addItem(tr("about {n} words").format(n=words), words)
        self._length.setCurrentIndex(1)
        card.column.addWidget(
            SettingRow(
                tr("Prompt length"),
                tr("Each request then writes {n} tokens, always taking the likeliest one.").format(n=N_TOKENS),
                self._length,
            )
        )
        row = QHBoxLayout()
        row.setSpacing(Space.S)
        self._start = TintedButton(appearance, "play", tr("Start"), kind="primary", ink="on_accent")
        self._start.clicked.connect(lambda _checked=False: self.start())
        self._cancel = push_button(tr("Cancel"), self.cancel)
        self._state = label("", "muted", wrap=True)
        row.addWidget(self._start)
        row.addWidget(self._cancel)
        row.addWidget(self._state, 1)
        card.column.addLayout(row)
        self._bar = QProgressBar()
        self._bar.setTextVisible(False)
        self._bar.setRange(0, RUNS * N_TOKENS)
        self._bar.setAccessibleName(tr("Progress of the measurement"))
        card.column.addWidget(self._bar)
        self.column.addWidget(card)
        results = Card(tr("Results"))
        self._copy = push_button(tr("Copy as Markdown"), lambda: self.copied.emit(self.markdown()))
        results.head.addWidget(self._copy)
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(Space.L)
        self._grid.setVerticalSpacing(Space.XS)
        results.column.addLayout(self._grid)
        self._none = label(tr("No measurement yet. It takes a few seconds."), "muted", wrap=True)
        results.column.addWidget(self._none)
        self.column.addWidget(results)
        self.column.addStretch(1)
        self._link.models_changed.connect(self._show)
        self._link.connected.connect(self._show)
        self._link.disconnected.connect(self._show)
        self._show_results()
        self._show()

    @property
    def results(self) -> tuple[Result, ...]:
        """What was measured, newest last."""
        return tuple(self._results)

    def start(self) -> None:
        """Begin a measurement of the loaded model."""
        model = current_model(self._link)
        if model is None or model.state != "ready" or self._stream is not None:
            return
        self._model = model
        self._finished = []
        self._bar.setValue(0)
        self._next()

    def cancel(self) -> None:
        """Stop the measurement; nothing is kept of it."""
        self._model = None
        if self._stream is not None:
            self._stream.cancel()

    def _next(self) -> None:
        if self._model is None:
            self._show()
            return
        run = len(self._finished) + 1
        options = GenerateOptions(max_tokens=N_TOKENS, ignore_eos=True, sampling=SamplingOptions(temperature=0.0))
        text = prompt_of(int(self._length.currentData()), run)
        self._stream = self._link.chat(ChatRequest(self._model.id, (Message("user", text),), options))
        self._stream.events.connect(self._on_events)
        self._stream.ended.connect(self._on_ended)
        self._show()

    def _on_events(self, events: list[ChatEvent]) -> None:
        for event in events:
            if isinstance(event, ChatFinished):
                if self._model is not None:
                    self._finished.append(event)
            elif isinstance(event, ChatFailed):
                self._model = None
                self._show()
                self._state.setText(f"{event.failure.message} {event.failure.hint}".strip())
        self._bar.setValue(len(self._finished) * N_TOKENS)

    def _on_ended(self) -> None:
        self._stream = None
        model = self._model
        if model is not None and len(self._finished) == RUNS:
            self._model = None
            self._results.append(middle(self._finished[1:], model.name))
            del self._results[:-MAX_RESULTS]
            self._show_results()
            self._show()
        elif model is not None:
            self._next()
        else:
            text = self._state.text()
            self._show()
            self._state.setText(self._state.text() or text)

    def _show(self) -> None:
        running = self._stream is not None
        model = current_model(self._link)
        ready = self._link.is_connected and model is not None and model.state == "ready"
        self._start.setEnabled(ready and not running)
        self._start.setVisible(not running)
        self._cancel.setVisible(running)
        self._bar.setVisible(running)
        self._length.setEnabled(not running)
        if running:
            text = tr("Request {n} of {count}").format(n=len(self._finished) + 1, count=RUNS)
        elif ready and model is not None:
            text = tr("Ready to measure {name}.").format(name=model.name)
        else:
            text = tr("Load a model first: Models in the rail, or the picker above a chat.")
        self._state.setText(text)

    def _show_results(self) -> None:
        while self._grid.count():
            item = self._grid.takeAt(0)
            widget = item.widget() if item is not None else None
            if widget is not None:
                widget.deleteLater()
        self._none.setVisible(not self._results)
        self._copy.setVisible(bool(self._results))
        if not self._results:
            return
        heads = (tr("Model"), tr("Prompt"), tr("Reading"), tr("Writing"), tr("First token"))
        for at, head in enumerate(heads):
            self._grid.addWidget(label(head, "group"), 0, at)
        for number, result in enumerate(reversed(self._results), 1):
            for at, text in enumerate(self._cells(result)):
                self._grid.addWidget(label(text, "strong" if at == 3 else ""), number, at)  # noqa: PLR2004 - the speed
        self._grid.setColumnStretch(0, 1)

    @staticmethod
    def _cells(result: Result) -> tuple[str, ...]:
        return (
            result.model,
            tr("{n} tokens").format(n=result.prompt_tokens),
            format_speed(result.prompt_tps),
            format_speed(result.generation_tps),
            format_duration(result.first_token_s),
        )

    def markdown(self) -> str:
        """The results as a table."""
        rows = ["| Model | Prompt | Reading | Writing | First token |", "|---|--:|--:|--:|--:|"]
        rows += ["| " + " | ".join(self._cells(result)) + " |" for result in self._results]
        return "\n".join(rows)
