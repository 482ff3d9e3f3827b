"""Says when a download or other work on files ended, whatever page is open."""

from PySide6.QtCore import QCoreApplication, QObject, Signal

from app.link import HostLink
from app.notices import Notices
from runtime.messages.library import Download, Job


def tr(text: str) -> str:
    """Translate in this module's context."""
    return QCoreApplication.translate("Arrivals", text)


class Arrivals(QObject):
    """Compares what runs with what ran. Home thread: main."""

    chat_wanted = Signal(str)
    """Id of a model that the person wants to chat with."""

    shown_wanted = Signal()
    """The person wants to see the downloads."""

    def __init__(self, link: HostLink, notices: Notices, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._link = link
        self._notices = notices
        self._is_watched = False
        self._downloads: dict[str, str] = {}
        self._jobs: dict[str, str] = {}
        link.connected.connect(self._remember)
        link.downloads_changed.connect(self._look_at_downloads)
        link.jobs_changed.connect(self._look_at_jobs)

    def set_watched(self, watched: bool) -> None:
        """Whether the list of downloads is seen: then what it shows is not said as well."""
        self._is_watched = watched

    def _remember(self) -> None:
        self._downloads = {one.id: one.state for one in self._link.downloads}
        self._jobs = {one.id: one.state for one in self._link.jobs}

    def _look_at_downloads(self) -> None:
        before, self._downloads = self._downloads, {one.id: one.state for one in self._link.downloads}
        for one in self._link.downloads:
            if before.get(one.id) != one.state:
                self._tell_download(one)

    def _tell_download(self, download: Download) -> None:
        if self._is_watched:
            return
        name = download.name.removesuffix(".gguf")
        if download.state == "done":
            text = tr("{name} was downloaded and checked.").format(name=name)
            model_id = download.model_id
            if model_id:
                self._notices.say(
                    "info", text, action_label=tr("Chat"), on_action=lambda: self.chat_wanted.emit(model_id)
                )
            else:
                self._notices.say("info", text)
        elif download.state == "failed" and download.failure is not None:
            why = f"{download.failure.message} {download.failure.hint}".strip()
            self._notices.say(
                "error",
                tr("{name} was not downloaded. {why}").format(name=name, why=why),
                action_label=tr("Downloads"),
                on_action=self.shown_wanted.emit,
            )

    def _look_at_jobs(self) -> None:
        before, self._jobs = self._jobs, {one.id: one.state for one in self._link.jobs}
        for one in self._link.jobs:
            if before.get(one.id) != one.state:  # a short one is over before it was seen running
                self._tell_job(one)

    def _tell_job(self, job: Job) -> None:
        if job.state == "done":
            self._notices.say("info", job.result or tr("{title}: done.").format(title=job.title))
        elif job.state == "failed" and job.failure is not None:
            why = f"{job.failure.message} {job.failure.hint}".strip()
            self._notices.say("error", f"{job.title}: {why}")
