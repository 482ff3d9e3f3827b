"""The tab of downloads and of other work on files: how far, how fast, how long still, and what went wrong."""

from collections.abc import Iterable
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QProgressBar, QVBoxLayout, QWidget

from app.context import AppContext
from app.models_link import ModelsLink
from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, push_button
from app.ui.controls.labels import ElidedLabel, breakable, label, set_tone
from app.ui.controls.states import EmptyState, failure_text
from app.ui.models.words import download_words, pair_bytes, tr
from app.ui.pages.base import ScrolledColumn
from app.ui.theme import Space
from runtime.messages.library import Download, Job
from runtime.units import format_bytes, format_duration

STALLED_S = 5.0
"""Without a byte for so long it is said that nothing comes."""

BAR_STEPS = 1000

ORDER = {"running": 0, "verifying": 0, "failed": 1, "paused": 2, "queued": 3, "done": 4}
"""What moves stands on top, what needs a hand comes next; the newest first within each."""


def download_line(download: Download) -> str:
    """`1.2 of 5.0 GB  ·  24.6 MB a second  ·  2 min 31 s left`."""
    parts = [pair_bytes(download.done_bytes, download.size_bytes)]
    if download.state == "done":
        parts = [format_bytes(download.size_bytes)]
    if download.state == "running":
        if download.stalled_s >= STALLED_S:
            parts.append(tr("nothing has come for {time}").format(time=format_duration(download.stalled_s)))
        elif download.speed_bps > 0:
            parts.append(tr("{speed} a second").format(speed=format_bytes(download.speed_bps)))
            if download.left_s is not None:
                parts.append(tr("{time} left").format(time=format_duration(download.left_s)))
    return "  ·  ".join(parts)


def job_line(job: Job) -> str:
    """How far a job is."""
    texts = {"done": tr("Done"), "failed": tr("Failed"), "cancelled": tr("Cancelled")}
    parts = [texts.get(job.state, f"{job.fraction:.0%}")]
    if job.state == "running":
        parts += [job.stage, tr("{speed} a second").format(speed=format_bytes(job.speed_bps)) if job.speed_bps else ""]
        if job.left_s is not None:
            parts.append(tr("{time} left").format(time=format_duration(job.left_s)))
    return "  ·  ".join(part for part in parts if part)


class _Row(QFrame):
    """What a download and a job have in common."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__()
        self._appearance = appearance
        self.setProperty("role", "card")
        self.content = outer = QVBoxLayout(self)
        outer.setContentsMargins(Space.M, Space.S, Space.S, Space.S)
        outer.setSpacing(Space.XS)
        row = QHBoxLayout()
        row.setSpacing(Space.XS)
        words = QVBoxLayout()
        words.setSpacing(Space.HAIR)
        top = QHBoxLayout()
        top.setSpacing(Space.XS)
        self.name = ElidedLabel("", "strong", mode=Qt.TextElideMode.ElideMiddle)
        top.addWidget(self.name)
        self.tag = label("", "tag")
        top.addWidget(self.tag)
        top.addStretch(1)
        words.addLayout(top)
        self.line = ElidedLabel("", "small")
        words.addWidget(self.line)
        row.addLayout(words, 1)
        self.buttons = QHBoxLayout()
        self.buttons.setSpacing(Space.HAIR)
        row.addLayout(self.buttons)
        outer.addLayout(row)
        self.bar = QProgressBar()
        self.bar.setRange(0, BAR_STEPS)
        self.bar.setTextVisible(False)
        outer.addWidget(self.bar)
        self.problem = label("", "bad", wrap=True)
        self.problem.hide()
        outer.addWidget(self.problem)

    def add_icon(self, icon: str, text: str) -> IconButton:
        """A button at the right."""
        button = IconButton(self._appearance, icon, text)
        self.buttons.addWidget(button, 0, Qt.AlignmentFlag.AlignVCenter)
        return button

    def say_problem(self, text: str) -> None:
        """Why it failed; empty for nothing."""
        self.problem.setText(text)
        self.problem.setVisible(bool(text))


class DownloadRow(_Row):
    """One download."""

    wanted = Signal(str, str)
    """Download id and action: pause, resume, cancel, clear."""

    chat_wanted = Signal(str)

    def __init__(self, appearance: Appearance) -> None:
        super().__init__(appearance)
        self._id = ""
        self._model_id = ""
        self.retry = push_button(tr("Try again"), partial(self._want, "resume"))
        self.buttons.addWidget(self.retry, 0, Qt.AlignmentFlag.AlignVCenter)
        self.chat = push_button(tr("Chat"), lambda: self.chat_wanted.emit(self._model_id), kind="primary")
        self.buttons.addWidget(self.chat, 0, Qt.AlignmentFlag.AlignVCenter)
        self.pause = self.add_icon("pause", tr("Pause"))
        self.resume = self.add_icon("play", tr("Go on"))
        self.cancel = self.add_icon("close", tr("Cancel and delete what was fetched"))
        self.clear = self.add_icon("close", tr("Take off the list"))
        for action in ("pause", "resume", "cancel", "clear"):
            getattr(self, action).clicked.connect(lambda _checked=False, one=action: self._want(one))

    def _want(self, action: str) -> None:
        self.wanted.emit(self._id, action)

    def show_download(self, download: Download) -> None:
        """Show how far it is."""
        self._id, self._model_id = download.id, download.model_id
        name = download.name.rsplit("/", 1)[-1].removesuffix(".gguf")
        self.name.setText(name)
        self.setAccessibleName(name)
        stalled = download.state == "running" and download.stalled_s >= STALLED_S
        self.tag.setText(tr("Stalled") if stalled else download_words(download.state))
        tones = {"done": "tag-accent", "running": "tag-accent", "failed": "tag-amber"}
        set_tone(self.tag, "tag-amber" if stalled else tones.get(download.state, "tag"))
        self.line.setText(f"{download_line(download)}  ·  {download.repo}")
        share = download.done_bytes / download.size_bytes if download.size_bytes else 0.0
        self.bar.setValue(round(share * BAR_STEPS))
        self.bar.setAccessibleName(tr("Progress of {name}").format(name=name))
        self.bar.setVisible(download.state != "done")
        self.say_problem(failure_text(download.failure) if download.failure is not None else "")
        state = download.state
        shown = {
            self.retry: state == "failed",
            self.chat: state == "done" and bool(download.model_id),
            self.pause: state in ("running", "queued"),
            self.resume: state == "paused",
            self.cancel: state in ("running", "queued", "paused", "verifying", "failed"),
            self.clear: state == "done",
        }
        for button, visible in shown.items():
            button.setVisible(visible)
            text = button.text() or button.toolTip()
            button.setAccessibleName(f"{text}: {name}")


class JobRow(_Row):
    """One piece of other work."""

    cancelled = Signal(str)

    def __init__(self, appearance: Appearance) -> None:
        super().__init__(appearance)
        self._id = ""
        self.result = label("", "", wrap=True)
        self.result.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.content.addWidget(self.result)
        self._cancel = self.add_icon("close", tr("Cancel"))
        self._cancel.clicked.connect(lambda _checked=False: self.cancelled.emit(self._id))

    def show_job(self, job: Job) -> None:
        """Show how far it is."""
        self._id = job.id
        self.name.setText(job.title)
        self.setAccessibleName(job.title)
        self.line.setText(job_line(job))
        self.result.setText(breakable(job.result))
        self.result.setVisible(bool(job.result))
        kinds = {
            "verify": tr("Check"),
            "import": tr("Import"),
            "move": tr("Move"),
            "quantize": tr("Make smaller"),
        }
        self.tag.setText(kinds[job.kind])
        self.bar.setValue(round(job.fraction * BAR_STEPS))
        self.bar.setAccessibleName(tr("Progress of {name}").format(name=job.title))
        running = job.state == "running"
        self.bar.setVisible(running)
        self._cancel.setVisible(running)
        self._cancel.setAccessibleName(tr("Cancel: {name}").format(name=job.title))
        self.say_problem(failure_text(job.failure) if job.failure is not None else "")


class TransfersView(QWidget):
    """Downloads on top, newest first; other work below."""

    discover_wanted = Signal()
    chat_wanted = Signal(str)

    def __init__(self, context: AppContext, appearance: Appearance) -> None:
        super().__init__()
        self._link = context.link
        self._models = ModelsLink(context.link, self)
        self._appearance = appearance
        self._downloads: dict[str, DownloadRow] = {}
        self._jobs: dict[str, JobRow] = {}
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        area = ScrolledColumn()
        outer.addWidget(area)
        head = QHBoxLayout()
        self._summary = label("", "muted")
        head.addWidget(self._summary, 1)
        self._clear = push_button(tr("Take finished ones off the list"), self._clear_done)
        head.addWidget(self._clear)
        area.column.addLayout(head)
        self._download_list = QVBoxLayout()
        self._download_list.setSpacing(Space.XS)
        area.column.addLayout(self._download_list)
        self._jobs_title = label(tr("Other work on files"), "heading")
        area.column.addWidget(self._jobs_title)
        self._job_list = QVBoxLayout()
        self._job_list.setSpacing(Space.XS)
        area.column.addLayout(self._job_list)
        self._empty = EmptyState(appearance, "download")
        area.column.addWidget(self._empty)
        area.column.addStretch(1)
        self._link.downloads_changed.connect(self._show)
        self._link.jobs_changed.connect(self._show)
        self._link.connected.connect(self._show)
        self._show()

    def _show(self) -> None:
        downloads = list(self._link.downloads[::-1])
        downloads.sort(key=lambda one: ORDER[one.state])
        jobs = self._link.jobs[::-1]
        if [one.id for one in downloads] != list(self._downloads):
            self._rebuild_downloads(downloads)
        if [one.id for one in jobs] != list(self._jobs):
            self._rebuild_jobs(jobs)
        for download in downloads:
            self._downloads[download.id].show_download(download)
        for job in jobs:
            self._jobs[job.id].show_job(job)
        self._jobs_title.setVisible(bool(jobs))
        self._show_summary(downloads)
        if downloads or jobs:
            self._empty.hide()
        else:
            self._empty.say(
                tr("Nothing is on its way"),
                tr("Downloads go on by themselves after a cut connection, and after Deskside was closed."),
                tr("Discover models"),
                self.discover_wanted.emit,
            )

    def _show_summary(self, downloads: list[Download]) -> None:
        running = [one for one in downloads if one.state == "running"]
        speed = sum(one.speed_bps for one in running)
        text = tr("{n} running, {speed} a second together").format(n=len(running), speed=format_bytes(speed))
        self._summary.setText(text if len(running) > 1 else "")
        self._clear.setVisible(any(one.state == "done" for one in downloads))

    def _rebuild_downloads(self, downloads: list[Download]) -> None:
        """Rows are kept, so that the focus stays on the button a person just used."""
        rows, before = {}, self._downloads
        for at, one in enumerate(downloads):
            row = before.pop(one.id, None)
            if row is None:
                row = DownloadRow(self._appearance)
                row.wanted.connect(self._act)
                row.chat_wanted.connect(self.chat_wanted)
            self._download_list.insertWidget(at, row)
            rows[one.id] = row
        _drop(before.values())
        self._downloads = rows

    def _rebuild_jobs(self, jobs: tuple[Job, ...]) -> None:
        rows, before = {}, self._jobs
        for at, one in enumerate(jobs):
            row = before.pop(one.id, None)
            if row is None:
                row = JobRow(self._appearance)
                row.cancelled.connect(self._cancel_job)
            self._job_list.insertWidget(at, row)
            rows[one.id] = row
        _drop(before.values())
        self._jobs = rows

    def _act(self, download_id: str, action: str) -> None:
        actions = {
            "pause": self._models.pause,
            "resume": self._models.resume,
            "cancel": self._models.cancel,
            "clear": self._models.clear,
        }
        actions[action](download_id)

    def _cancel_job(self, job_id: str) -> None:
        self._models.cancel_job(job_id)

    def _clear_done(self) -> None:
        for one in self._link.downloads:
            if one.state == "done":
                self._models.clear(one.id)


def _drop(rows: Iterable[QWidget]) -> None:
    for row in rows:
        row.hide()
        row.deleteLater()
