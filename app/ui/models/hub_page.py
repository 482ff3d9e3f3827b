"""A model of the hub: which version suits this computer, all versions with their verdicts, and the download."""

from collections.abc import Iterator

from PySide6.QtCore import QTimer, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QCheckBox, QVBoxLayout

from app.call import Call
from app.context import AppContext
from app.ui.appearance import Appearance
from app.ui.controls.buttons import TintedButton
from app.ui.controls.gradual import Gradual
from app.ui.controls.labels import label
from app.ui.controls.states import EmptyState, Message, Waiting
from app.ui.models.entry_card import entry_facts
from app.ui.models.plan_controls import PlanControls
from app.ui.models.quant_row import QuantRow
from app.ui.models.recommended import RecommendedCard
from app.ui.models.sub_page import SubPage
from app.ui.models.words import kind_words, tr
from app.ui.pages.base import Card
from app.ui.theme import Space
from runtime.errors import Failure
from runtime.messages.fit import MemoryPlan
from runtime.messages.library import (
    Download,
    DownloadRequest,
    HubAccount,
    HubFile,
    HubModel,
    QuantVerdict,
    VerdictRequest,
    Verdicts,
)
from runtime.options import LoadOptions
from runtime.units import format_bytes

JUDGE_AFTER_MS = 120
"""While a slider moves, all rows are judged at most so often."""


class HubPage(SubPage):
    """Rows come at once, verdicts follow when the headers of the files were read."""

    chat_wanted = Signal(str)
    downloads_wanted = Signal()
    settings_wanted = Signal()

    def __init__(self, context: AppContext, appearance: Appearance, repo: str) -> None:
        super().__init__(context, appearance, repo.rsplit("/", maxsplit=1)[-1])
        self._repo = repo
        self._model: HubModel | None = None
        self._account: HubAccount | None = None
        self._verdicts: Verdicts | None = None
        self._call: Call | None = None
        self._judging: Call | None = None
        self._is_stale = False
        self.rows: dict[str, QuantRow] = {}
        self._build = Gradual(self)
        self._fill_in = Gradual(self)
        self._site = TintedButton(appearance, "globe", tr("Open on the hub"), kind="quiet")
        self._site.clicked.connect(lambda _checked=False: self._open_site())
        self._site.hide()
        self.head.addWidget(self._site)
        self.message = Message()
        self.column.addWidget(self.message)
        self._gate = Message()
        self.column.addWidget(self._gate)
        self._waiting = Waiting()
        self.column.addWidget(self._waiting)
        self._facts = label("", "muted", wrap=True)
        self.column.addWidget(self._facts)
        self._description = label("", wrap=True)
        self.column.addWidget(self._description)
        self.recommended = RecommendedCard(appearance)
        self.recommended.download_wanted.connect(self.download)
        self.recommended.chat_wanted.connect(self.chat_wanted)
        self.recommended.downloads_wanted.connect(self.downloads_wanted)
        self.column.addWidget(self.recommended)
        self._nothing_fits = Message()
        self.column.addWidget(self._nothing_fits)
        self._card = self._build_rows()
        self.column.addWidget(self._card)
        self.controls: PlanControls | None = None
        self._empty = EmptyState(appearance, "models")
        self.column.addWidget(self._empty)
        self.column.addStretch(1)
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(JUDGE_AFTER_MS)
        self._pause.timeout.connect(self._judge)
        self.link.downloads_changed.connect(self._show_states)
        self.link.installed_changed.connect(self._show_states)
        self.link.connected.connect(self._reconnected)
        self.begin()

    def _build_rows(self) -> Card:
        card = Card(tr("All versions"))
        card.column.addWidget(
            label(
                tr(
                    "The same model, stored with more or fewer bits for each number (quantization). "
                    "A larger file stays closer to the original; a smaller one needs less memory and answers faster."
                ),
                "small",
                wrap=True,
            )
        )
        self._judging_text = label("", "small")
        card.head.addWidget(self._judging_text)
        self._options_place = QVBoxLayout()
        self._options_place.setContentsMargins(0, Space.XS, 0, Space.S)
        card.column.addLayout(self._options_place)
        self._rows_column = QVBoxLayout()
        self._rows_column.setSpacing(0)
        card.column.addLayout(self._rows_column)
        self._pictures = QCheckBox(tr("Fetch the part that reads pictures as well"))
        self._pictures.setChecked(True)
        self._pictures.hide()
        card.column.addWidget(self._pictures)
        card.hide()
        return card

    def begin(self) -> None:
        """Ask for the page; also again after a failure."""
        self.message.hide()
        self._waiting.start(tr("Asking the hub for the files…"))
        self._call = self.models.hub_model(self._repo, self._show_model, failed=self._show_failure)
        self.models.account(self._show_account, failed=lambda _failure: None)

    def leave(self) -> None:
        self._pause.stop()
        self._build.stop()
        self._fill_in.stop()
        for call in (self._call, self._judging):
            if call is not None:
                call.drop()
        self._call = self._judging = None

    def _reconnected(self) -> None:
        if self._model is None:
            self.begin()

    # --- the model

    def _show_failure(self, failure: Failure) -> None:
        self._call = None
        self._waiting.stop()
        if failure.kind == "HubRefused":
            self.message.say_failure(failure, tr("Sign in…"), self.settings_wanted.emit)
        else:
            self.message.say_failure(failure, tr("Try again"), self.begin)

    def _show_model(self, model: HubModel) -> None:
        self._call = None
        self._waiting.stop()
        self._model = model
        entry = model.entry
        self.title.setText(entry.name)
        kind = "" if entry.kind == "chat" else kind_words(entry.kind)
        facts = [entry.publisher, kind, entry_facts(entry)]
        self._facts.setText("  ·  ".join(part for part in facts if part))
        self._description.setText(model.description)
        self._description.setVisible(bool(model.description))
        if model.offline:
            self.message.say("warning", model.offline, tr("Try again"), self.begin)
        self._show_gate()
        if not model.files:
            self._empty.say(
                tr("No file for Deskside here"),
                tr("This repository has no GGUF file. Look for one with GGUF in its name; publishers offer both."),
                tr("Back to the search"),
                self.back_wanted.emit,
            )
            return
        self._fill(model)
        self._judge()

    def _rows(self, model: HubModel) -> Iterator[None]:
        for file in model.files:
            row = QuantRow(file, self.appearance)
            row.download_wanted.connect(self.download)
            row.chat_wanted.connect(self.chat_wanted)
            row.downloads_wanted.connect(self.downloads_wanted)
            self.rows[file.name] = row
            self._rows_column.addWidget(row)
            yield

    def _fill(self, model: HubModel) -> None:
        if model.projectors:
            size = format_bytes(model.projectors[-1].size_bytes)
            self._pictures.setText(tr("Fetch the part that reads pictures as well ({size})").format(size=size))
            self._pictures.show()
        self.controls = PlanControls(self.appearance, model.entry.n_ctx_train, full=False)
        self.controls.changed.connect(self._on_options)
        self._options_place.addWidget(self.controls)
        self._card.show()
        self._build.run(self._rows(model), self._filled)

    def _filled(self) -> None:
        self._show_states()
        if self._verdicts is not None:
            self._show_verdicts(self._verdicts)

    def _show_account(self, account: HubAccount) -> None:
        self._account = account
        self._site.setVisible(bool(account.endpoint))
        self._show_gate()

    def _show_gate(self) -> None:
        model, account = self._model, self._account
        if model is None or account is None or not model.entry.is_gated:
            self._gate.hide()
            return
        if not account.signed_in:
            self._gate.say(
                "warning",
                tr("The publisher wants its terms accepted first: accept them on the model's page, then sign in here."),
                tr("Sign in…"),
                self.settings_wanted.emit,
            )
        else:
            self._gate.say(
                "note",
                tr(
                    "The publisher wants its terms accepted, once, on the model's page; you are signed in as {name}."
                ).format(name=account.name),
                tr("Open the page"),
                self._open_site,
            )

    def _open_site(self) -> None:
        if self._account is not None:
            QDesktopServices.openUrl(QUrl(f"{self._account.endpoint.rstrip('/')}/{self._repo}"))

    # --- verdicts

    @property
    def is_judged(self) -> bool:
        """Whether every row shows its verdict."""
        return self._verdicts is not None and not (self._build.is_running or self._fill_in.is_running)

    @property
    def options(self) -> LoadOptions:
        """What the verdicts are for."""
        return self.controls.options if self.controls is not None else LoadOptions()

    def _on_options(self, _options: LoadOptions) -> None:
        if not self._pause.isActive():
            self._pause.start()

    def _judge(self) -> None:
        """Judge all rows; while an answer is on its way, only the newest options wait."""
        if self._judging is not None:
            self._is_stale = True
            return
        self._is_stale = False
        self._judging_text.setText(tr("Working out what fits…"))
        request = VerdictRequest(self._repo, options=self.options)
        self._judging = self.models.verdicts(request, self._show_verdicts, failed=self._judging_failed)

    def _judging_failed(self, failure: Failure) -> None:
        self._judging = None
        self._judging_text.setText("")
        self.message.say_failure(failure, tr("Try again"), self._judge_again)

    def _judge_again(self) -> None:
        self.message.hide()
        self._judge()

    def _show_verdicts(self, verdicts: Verdicts) -> None:
        self._judging = None
        self._verdicts = verdicts
        self._judging_text.setText("")
        best = next((one for one in verdicts.rows if one.recommended), None)
        self._show_best(best, verdicts)
        plan = self._plan_shown(best, verdicts)
        if plan is not None and self.controls is not None:
            self.controls.show_plan(plan)
        self._fill_in.run(self._show_rows(verdicts), self._judge_stale)

    def _show_rows(self, verdicts: Verdicts) -> Iterator[None]:
        for verdict in verdicts.rows:
            row = self.rows.get(verdict.name)
            if row is not None:
                row.show_verdict(verdict)
                yield

    def _judge_stale(self) -> None:
        if self._is_stale and self._judging is None:
            self._judge()

    def _show_best(self, best: QuantVerdict | None, verdicts: Verdicts) -> None:
        file = self._file(best.name) if best is not None else None
        if best is not None and file is not None:
            self.recommended.show_choice(file, best, verdicts.rule)
            self._nothing_fits.hide()
        else:
            self.recommended.hide()
            if verdicts.rows:
                text = tr("None of these versions suits this computer. Looked for: {rule}").format(rule=verdicts.rule)
                self._nothing_fits.say("warning", text, tr("Other models"), self.back_wanted.emit)
        self._show_states()

    @staticmethod
    def _plan_shown(best: QuantVerdict | None, verdicts: Verdicts) -> MemoryPlan | None:
        if best is not None:
            return best.plan
        return verdicts.rows[-1].plan if verdicts.rows else None

    def _file(self, name: str) -> HubFile | None:
        files = self._model.files if self._model is not None else ()
        return next((one for one in files if one.name == name), None)

    # --- downloads

    def download(self, name: str) -> None:
        """Fetch a version."""
        self.message.hide()
        request = DownloadRequest(
            self._repo, name, with_projector=self._pictures.isChecked() or self._pictures.isHidden()
        )
        self.models.download(request, self._started, failed=self._not_started)

    def _started(self, download: Download) -> None:
        row = self.rows.get(download.name)
        if row is not None:
            row.show_download(download)
        self._show_states()

    def _not_started(self, failure: Failure) -> None:
        if failure.kind in ("HubRefused", "NotAuthorized"):
            self.message.say_failure(failure, tr("Sign in…"), self.settings_wanted.emit)
        else:
            self.message.say_failure(failure)
        self.area.ensureWidgetVisible(self.message, 0, Space.XL)

    def _show_states(self) -> None:
        mine = {one.name: one for one in self.link.downloads if one.repo == self._repo}
        there = {one.id for one in self.link.installed}
        for name, row in self.rows.items():
            download = mine.get(name)
            row.show_download(download)
            file = self._file(name)
            installed = file.installed_id if file is not None and file.installed_id in there else ""
            if not installed and download is not None and download.state == "done" and download.model_id in there:
                installed = download.model_id
            row.show_installed(installed)
        best = next((one for one in self._verdicts.rows if one.recommended), None) if self._verdicts else None
        if best is not None and best.name in self.rows:
            download = mine.get(best.name)
            coming = download is not None and download.state in ("running", "queued", "paused", "verifying")
            self.recommended.show_state(self.rows[best.name].file.installed_id, is_coming=coming)
