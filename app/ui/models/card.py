"""One installed model in the list: what it is, whether it fits, and what can be done with it."""

from functools import partial

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QMenu, QProgressBar, QVBoxLayout, QWidget

from app.ui.appearance import Appearance
from app.ui.controls.buttons import IconButton, push_button
from app.ui.controls.labels import ElidedLabel, label, set_tone
from app.ui.models.words import ago_words, can_load, kind_words, origin_words, speed_line, tr, verdict_look
from app.ui.theme import Size, Space
from runtime.messages.api import InstalledModel, LoadedModel
from runtime.messages.fit import MemoryPlan
from runtime.messages.library import Job
from runtime.units import format_bytes, format_count, format_duration

OURS = ("deskside", "folder")
"""Only these files are ever moved or deleted by us."""

FULL_PRECISION = ("F32", "F16", "BF16")
"""What a smaller file can be made of."""


def used_words(used_s: float) -> str:
    """When a model was last loaded."""
    if used_s <= 0:
        return tr("never used")
    return tr("used {time}").format(time=ago_words(used_s))


def facts_line(model: InstalledModel) -> str:
    """The facts below the name."""
    bits = tr("{bits} bits").format(bits=f"{model.bits_per_weight:.1f}") if model.bits_per_weight else ""
    parts = [
        model.publisher,
        tr("{n} parameters").format(n=format_count(model.n_params)) if model.n_params else "",
        f"{model.quantization} ({bits})" if model.quantization and bits else model.quantization,
        format_bytes(model.size_bytes),
        tr("{n} tokens context").format(n=f"{model.n_ctx_train:,}") if model.n_ctx_train else "",
        model.architecture,
        model.licence,
        used_words(model.used_s) if not model.problem else "",
    ]
    return "  ·  ".join(part for part in parts if part)


class ModelCard(QFrame):
    """Told anew what the model is, whether it is loaded, and what the plan says."""

    wanted = Signal(str, str)
    """Model id and action: load, beside, unload, chat, plan, quantize, verify, remove, folder."""

    def __init__(self, model: InstalledModel, appearance: Appearance) -> None:
        super().__init__()
        self.model = model
        self._appearance = appearance
        self._state = ""
        self.others_loaded = False
        self._plan: MemoryPlan | None = None
        self._look_name = ""
        self.setProperty("role", "card")
        self.setAccessibleName(model.name)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(Space.M, Space.S, Space.S, Space.S)
        outer.setSpacing(Space.XS)
        row = QHBoxLayout()
        row.setSpacing(Space.XS)
        words = QVBoxLayout()
        words.setSpacing(Space.HAIR)
        words.addLayout(self._build_top())
        words.addWidget(ElidedLabel(facts_line(model), "small"))
        words.addLayout(self._build_verdict())
        row.addLayout(words, 1)
        self._build_buttons(row)
        outer.addLayout(row)
        self._bar = QProgressBar()
        self._bar.setTextVisible(False)
        self._bar.setAccessibleName(tr("Load progress of {name}").format(name=model.name))
        outer.addWidget(self._bar)
        self._work = label("", "small", wrap=True)
        outer.addWidget(self._work)
        self._problem = label("", "bad", wrap=True)
        outer.addWidget(self._problem)
        appearance.changed.connect(self._tint)
        self.show_plan(None)
        self.show_job(None)
        self.show_loaded(None)

    def _build_top(self) -> QHBoxLayout:
        model = self.model
        top = QHBoxLayout()
        top.setSpacing(Space.XS)
        top.addWidget(ElidedLabel(model.name, "strong"))
        if model.starter:
            top.addWidget(label(tr("Starter"), "tag-accent"))
        elif model.origin not in OURS:
            tag = label(origin_words(model.origin), "tag")
            tag.setToolTip(tr("This file belongs to {program}; it is used where it is.").format(program=tag.text()))
            top.addWidget(tag)
        if model.kind != "chat" or model.is_vision:
            top.addWidget(label(kind_words(model.kind, is_vision=model.is_vision), "tag"))
        if model.verified == "ok":
            ok = label(tr("Verified"), "tag")
            ok.setToolTip(tr("Every byte is as it was published."))
            top.addWidget(ok)
        elif model.verified == "bad":
            top.addWidget(label(tr("Damaged"), "tag-amber"))
        self._tag = label("", "tag")
        top.addWidget(self._tag)
        top.addStretch(1)
        return top

    def _build_verdict(self) -> QHBoxLayout:
        line = QHBoxLayout()
        line.setSpacing(Space.HAIR)
        self._icon = QLabel()
        self._icon.setFixedSize(Size.ICON, Size.ICON)
        line.addWidget(self._icon)
        self._verdict = ElidedLabel("")
        line.addWidget(self._verdict, 1)
        return line

    def _build_buttons(self, row: QHBoxLayout) -> None:
        model = self.model
        self._buttons: dict[str, QWidget] = {}
        for action, text, kind in (
            ("unload", tr("Unload"), "quiet"),
            ("load", tr("Load"), "quiet"),
            ("chat", tr("Chat"), ""),
        ):
            button = push_button(text, partial(self.wanted.emit, model.id, action), kind=kind)
            button.setAccessibleName(f"{text}: {model.name}")
            row.addWidget(button, 0, Qt.AlignmentFlag.AlignVCenter)
            self._buttons[action] = button
        plan = IconButton(self._appearance, "sliders", tr("Load plan and settings of {name}").format(name=model.name))
        plan.clicked.connect(lambda _checked=False: self.wanted.emit(model.id, "plan"))
        row.addWidget(plan, 0, Qt.AlignmentFlag.AlignVCenter)
        self._buttons["plan"] = plan
        self.more = IconButton(self._appearance, "more", tr("More about {name}").format(name=model.name))
        self.more.clicked.connect(lambda _checked=False: self.open_menu())
        row.addWidget(self.more, 0, Qt.AlignmentFlag.AlignVCenter)

    # --- the menu

    def menu_actions(self) -> list[tuple[str, str, str, str]]:
        """Action, icon, text, and why it cannot be done now (empty when it can)."""
        model = self.model
        foreign = (
            ""
            if model.origin in OURS
            else tr("It came with Deskside.")
            if model.starter or model.origin == "starter"
            else tr("The file belongs to {program}; remove it there.").format(program=origin_words(model.origin))
        )
        small = (
            ""
            if model.quantization in FULL_PRECISION and not model.problem
            else tr("A smaller file can only be made of the original (F32, F16 or BF16).")
        )
        busy_now = tr("It is loaded.") if self._state in ("ready", "loading", "restarting") else ""
        busy = tr("Unload it first.") if self._state in ("ready", "loading", "restarting") else ""
        alone = "" if self.others_loaded else tr("No other model is loaded.")
        usable = self.model.kind != "projector" and not self.model.problem
        beside = alone if usable else tr("This file cannot be loaded.")
        return [
            ("beside", "plus", tr("Load beside the others"), busy_now or beside),
            ("folder", "folder", tr("Show in folder"), ""),
            ("verify", "shield", tr("Check the file"), ""),
            ("quantize", "shrink", tr("Make a smaller file…"), small),
            ("remove", "trash", tr("Remove"), foreign or busy),
        ]

    def make_menu(self) -> QMenu:
        """The menu of the rarer actions."""
        menu = QMenu(self)
        menu.setToolTipsVisible(True)
        for action, icon, text, refusal in self.menu_actions():
            if action == "remove":
                menu.addSeparator()
            entry = QAction(self._appearance.icon(icon), text, menu)
            entry.setEnabled(not refusal)
            entry.setToolTip(refusal)
            entry.triggered.connect(lambda _checked=False, one=action: self.wanted.emit(self.model.id, one))
            menu.addAction(entry)
        return menu

    def open_menu(self) -> None:
        """Show the menu below its button."""
        menu = self.make_menu()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        corner = self.more.mapToGlobal(QPoint(self.more.width(), self.more.height() + Space.HAIR))
        menu.popup(corner - QPoint(menu.sizeHint().width(), 0))

    # --- what changes

    def show_plan(self, plan: MemoryPlan | None) -> None:
        """Show the verdict."""
        self._plan = plan
        judged = not self.model.problem and self.model.kind in ("chat", "embedding")
        if not judged:
            self._icon.hide()
            self._verdict.hide()
        if plan is None:  # its place is kept, so that nothing jumps when the verdict comes
            self._verdict.setText(tr("Working out whether it fits…"))
            set_tone(self._verdict, "muted")
            return
        look = verdict_look(plan.verdict)
        parts = [plan.sentence, speed_line(plan.speed) if can_load(plan) else ""]
        self._verdict.setText("  ·  ".join(part for part in parts if part))
        self._verdict.setAccessibleDescription(plan.reason)
        set_tone(self._verdict, look.tone if not can_load(plan) else "")
        self._verdict.setToolTip(plan.problem or plan.reason)
        self._tint()

    def _tint(self) -> None:
        if self._plan is not None:
            look = verdict_look(self._plan.verdict)
            self._icon.setPixmap(self._appearance.icon(look.icon, look.ink).pixmap(Size.ICON, Size.ICON))

    def show_job(self, job: Job | None) -> None:
        """Show work on the model's files."""
        self._work.setVisible(job is not None)
        if job is not None:
            left = tr(", {time} left").format(time=format_duration(job.left_s)) if job.left_s is not None else ""
            self._work.setText(f"{job.title}: {job.fraction:.0%}{left}")

    def show_loaded(self, loaded: LoadedModel | None) -> None:
        """Show whether it is loaded, and how far."""
        self._state = state = loaded.state if loaded is not None else ""
        texts = {
            "ready": tr("Loaded"),
            "loading": tr("Loading, {percent} %"),
            "restarting": tr("Restarting"),
            "unloading": tr("Unloading"),
            "failed": tr("Failed"),
        }
        percent = round(loaded.fraction * 100) if loaded is not None else 0
        self._tag.setText(texts.get(state, "").format(percent=percent))
        self._tag.setVisible(bool(state))
        set_tone(self._tag, {"ready": "tag-accent", "failed": "tag-amber"}.get(state, "tag"))
        busy = state in ("loading", "restarting")
        self._bar.setVisible(busy)
        self._bar.setValue(percent)
        usable = not self.model.problem and self.model.kind == "chat"
        loadable = not self.model.problem and self.model.kind != "projector"
        chat = self._buttons["chat"]
        chat.setVisible(usable and state in ("", "ready"))
        if chat.property("kind") != (kind := "primary" if state == "ready" else ""):
            chat.setProperty("kind", kind)
            chat.style().unpolish(chat)
            chat.style().polish(chat)
        self._buttons["load"].setVisible(loadable and state in ("", "failed"))
        self._buttons["unload"].setVisible(state in ("ready", "failed", "loading", "restarting"))
        self._buttons["plan"].setVisible(loadable)
        failure = loaded.failure if loaded is not None else None
        problem = self.model.problem or (f"{failure.message} {failure.hint}".strip() if failure is not None else "")
        self._problem.setText(problem)
        self._problem.setVisible(bool(problem))
