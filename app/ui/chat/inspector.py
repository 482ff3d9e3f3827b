"""The inspector: system prompt, preset, sampling, output and context policy of the open conversation."""

from functools import partial

import msgspec
from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QInputDialog, QMenu, QScrollArea, QVBoxLayout, QWidget

from app.presets import Presets
from app.session import ChatSession
from app.tasks import Lane
from app.ui.appearance import Appearance
from app.ui.chat.form_editor import FormEditor, ReasoningEditor
from app.ui.chat.option_rows import LinesRow, OptionRow
from app.ui.chat.option_specs import option_specs
from app.ui.controls.buttons import IconButton
from app.ui.controls.fold import Fold
from app.ui.controls.labels import label
from app.ui.theme import Size, Space
from runtime.messages.shared import AnswerShape
from runtime.options import MAX_STOPS, GenerateOptions, SamplingOptions

MAIN = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty", "seed")
"""Sampling options shown at once; the others stand under "More sampling"."""

SAVE_PAUSE_MS = 300


class Inspector(QWidget):
    """Edits what belongs to the open conversation; changes count from the next question on."""

    def __init__(
        self,
        session: ChatSession,
        presets: Presets,
        appearance: Appearance,
        lane: Lane | None = None,
        parent: QWidget | None = None,
    ) -> None:
        """Schemas and grammars are checked on the lane if there is one."""
        super().__init__(parent)
        self._session = session
        self._presets = presets
        self._appearance = appearance
        self._lane = lane
        self._options = GenerateOptions()
        self._rows: dict[str, OptionRow] = {}
        self._reasons: bool | None = None
        self.setProperty("role", "inspector")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setMinimumWidth(Size.INSPECTOR_MIN_W)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        area = QScrollArea()
        area.setWidgetResizable(True)
        area.setFrameShape(QScrollArea.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        inside = QWidget()
        inside.setProperty("role", "scrolled")
        self._column = QVBoxLayout(inside)
        self._column.setContentsMargins(Space.S, Space.S, Space.S, Space.M)
        self._column.setSpacing(Space.HAIR)
        area.setWidget(inside)
        outer.addWidget(area)
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(SAVE_PAUSE_MS)
        self._pause.timeout.connect(self._save_options)
        self._prompt_pause = QTimer(self)
        self._prompt_pause.setSingleShot(True)
        self._prompt_pause.setInterval(SAVE_PAUSE_MS)
        self._prompt_pause.timeout.connect(self._save_prompt)
        self._build()
        session.setup.changed.connect(self._show_setup)
        session.reset.connect(self._show_setup)
        session.opened.connect(self._save_now)
        session.context_used.connect(lambda _used, _limit: self._show_whether_it_reasons())
        presets.changed.connect(self._show_presets)
        self._show_presets()
        self._show_setup()

    def _fold(self, title: str, *, opened: bool = True) -> Fold:
        fold = Fold(self._appearance, title, opened=opened)
        self._column.addWidget(fold)
        return fold

    def _build(self) -> None:
        preset = self._fold(self.tr("Preset"))
        row = QHBoxLayout()
        row.setSpacing(Space.HAIR)
        self._preset = QComboBox()
        self._preset.setAccessibleName(self.tr("Preset"))
        self._preset.activated.connect(self._on_preset)
        more = IconButton(self._appearance, "more", self.tr("Preset actions"))
        more.clicked.connect(lambda _checked=False: self._preset_menu(more))
        row.addWidget(self._preset, 1)
        row.addWidget(more)
        preset.content.addLayout(row)
        self._custom = label(self.tr("Changed for this chat"), "small")
        preset.content.addWidget(self._custom)

        prompt = self._fold(self.tr("System prompt"))
        self._prompt = LinesRow(
            "", self.tr("Said to the model before the chat"), self.tr("You are a helpful assistant."), lines=6
        )
        self._prompt.field.setAccessibleName(self.tr("System prompt"))
        self._prompt.edited.connect(lambda _text: self._prompt_pause.start())
        prompt.content.addWidget(self._prompt)

        form = self._fold(self.tr("Form of answers"))
        self.form = FormEditor(self._appearance, self._lane)
        self.form.changed.connect(self._set_form)
        form.content.addWidget(self.form)
        reasoning = self._fold(self.tr("Reasoning"), opened=False)
        self.reasoning = ReasoningEditor()
        self.reasoning.changed.connect(self._session.setup.set_shape)
        reasoning.content.addWidget(self.reasoning)

        sampling = self._fold(self.tr("Sampling"))
        more_sampling = self._fold(self.tr("More sampling"), opened=False)
        specs = {spec.name: spec for spec in option_specs(SamplingOptions)}
        for name in (*MAIN, *(each for each in specs if each not in MAIN)):
            place = sampling if name in MAIN else more_sampling
            place.content.addWidget(self._option(OptionRow(specs[name], self._appearance)))
        self._breakers = self._lines(
            more_sampling, self.tr("DRY breakers"), self.tr("One a line; \\n is a line break"), self._set_breakers
        )
        self._bias = self._lines(
            more_sampling,
            self.tr("Logit bias"),
            self.tr("One a line: token id, a colon, a number from -100 to 100"),
            self._set_bias,
        )

        output = self._fold(self.tr("Output"), opened=False)
        general = {spec.name: spec for spec in option_specs(GenerateOptions)}
        output.content.addWidget(self._option(OptionRow(general["max_tokens"], self._appearance)))
        self._stops = self._lines(
            output, self.tr("Stop strings"), self.tr("One a line; the answer ends before any of them"), self._set_stops
        )
        context = self._fold(self.tr("Context"), opened=False)
        context.content.addWidget(self._option(OptionRow(general["context_policy"], self._appearance)))
        context.content.addWidget(label(general["context_policy"].description, "small", wrap=True))
        self._column.addStretch(1)

    def _option(self, row: OptionRow) -> OptionRow:
        self._rows[row.spec.name] = row
        row.changed.connect(self._on_option)
        return row

    def _lines(self, fold: Fold, title: str, tip: str, on_edit: object) -> LinesRow:
        row = LinesRow(title, tip, tip)
        row.edited.connect(on_edit)
        fold.content.addWidget(row)
        return row

    # --- from the session

    def _show_setup(self) -> None:
        if self._pause.isActive():
            return  # the person is at it; what is typed wins
        self._options = self._session.setup.options
        for name, row in self._rows.items():
            holder = self._options.sampling if name in SamplingOptions.__struct_fields__ else self._options
            row.set_value(getattr(holder, name))
        sampling = self._options.sampling
        self._breakers.set_text("\n".join(text.replace("\n", "\\n") for text in sampling.dry_sequence_breakers))
        self._bias.set_text("\n".join(f"{token}: {bias:g}" for token, bias in sampling.logit_bias.items()))
        self._stops.set_text("\n".join(text.replace("\n", "\\n") for text in self._options.stop))
        self._show_form()
        self._prompt.set_text(self._session.setup.system_prompt)
        self._custom.setVisible(self._session.setup.is_customized)
        at = self._preset.findData(self._session.setup.preset_id)
        self._preset.setCurrentIndex(max(0, at))

    def _show_form(self) -> None:
        shape = self._session.setup.shape
        self.form.show_setup(shape, self._options)
        self._reasons = self._whether_it_reasons()
        self.reasoning.show_setup(shape, reasons=self._reasons)

    def _show_whether_it_reasons(self) -> None:
        """Another model may be loaded now; told with each count, so only a change is shown."""
        if self._whether_it_reasons() != self._reasons:
            self._show_form()

    def _whether_it_reasons(self) -> bool | None:
        """Of the model that would answer; `None` while none is ready."""
        model = self._session.model
        return model.facts.reasoning if model is not None and model.facts is not None else None

    def _show_presets(self) -> None:
        self._preset.clear()
        self._preset.addItem(self.tr("None"), "")
        for preset in self._presets.all:
            self._preset.addItem(preset.name, preset.id)
        self._preset.setCurrentIndex(max(0, self._preset.findData(self._session.setup.preset_id)))

    # --- to the session

    def _on_option(self, name: str, value: object) -> None:
        if name in SamplingOptions.__struct_fields__:
            self._set_sampling(**{name: value})
        else:
            self._options = msgspec.structs.replace(self._options, **{name: value})
            self._pause.start()

    def _set_sampling(self, **changes: object) -> None:
        sampling = msgspec.structs.replace(self._options.sampling, **changes)
        self._options = msgspec.structs.replace(self._options, sampling=sampling)
        self._pause.start()

    def _set_breakers(self, text: str) -> None:
        self._set_sampling(dry_sequence_breakers=tuple(line.replace("\\n", "\n") for line in text.split("\n") if line))

    def _set_stops(self, text: str) -> None:
        stops = tuple(line.replace("\\n", "\n") for line in text.split("\n") if line)
        too_many = len(stops) > MAX_STOPS
        self._stops.show_problem(self.tr("At most {n} are taken").format(n=MAX_STOPS) if too_many else "")
        self._options = msgspec.structs.replace(self._options, stop=stops[:MAX_STOPS])
        self._pause.start()

    def _set_form(self, shape: AnswerShape, options: GenerateOptions) -> None:
        # Sampling may have been changed since the form was shown; only the grammar comes from there.
        sampling = msgspec.structs.replace(self._options.sampling, grammar=options.sampling.grammar)
        self._options = msgspec.structs.replace(self._options, sampling=sampling)
        self._session.setup.set_form(shape, self._options)

    def _set_bias(self, text: str) -> None:
        bias: dict[int, float] = {}
        for line in (each for each in text.split("\n") if each.strip()):
            token, _, number = line.partition(":")
            try:
                bias[int(token)] = float(number)
            except ValueError:
                self._bias.show_problem(self.tr("“{line}” is not of the form 123: 1.5").format(line=line.strip()))
                return
            if not -100 <= bias[int(token)] <= 100:  # noqa: PLR2004 - the declared range
                self._bias.show_problem(self.tr("The number must lie between -100 and 100"))
                return
        self._bias.show_problem("")
        self._set_sampling(logit_bias=bias)

    def _save_options(self) -> None:
        self._session.setup.set_options(self._options)

    def _save_prompt(self) -> None:
        self._session.setup.set_system_prompt(self._prompt.field.toPlainText())

    def _save_now(self) -> None:
        """Another conversation is open: what was not handed over yet belonged to the last one."""
        self._pause.stop()
        self._prompt_pause.stop()
        self.form.stop()

    # --- presets

    def _on_preset(self, at: int) -> None:
        self._session.setup.use_preset(str(self._preset.itemData(at) or ""))

    def _preset_menu(self, under: QWidget) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        chosen = self._presets.get(self._session.setup.preset_id)
        menu.addAction(self.tr("Save as new preset…")).triggered.connect(lambda _checked=False: self._save_as())
        if chosen is not None:
            update = menu.addAction(self.tr("Update “{name}”").format(name=chosen.name))
            update.triggered.connect(lambda _checked=False: self._update_preset())
            default = menu.addAction(self.tr("Use for new chats"))
            default.setCheckable(True)
            default.setChecked(self._presets.default.id == chosen.id)
            default.triggered.connect(lambda checked=False: self._presets.set_default(chosen.id if checked else ""))
            menu.addSeparator()
            delete = menu.addAction(self.tr("Delete “{name}”").format(name=chosen.name))
            delete.triggered.connect(partial(self._presets.delete, chosen.id))
        menu.popup(under.mapToGlobal(under.rect().bottomLeft()))

    def _save_as(self) -> None:
        dialog = QInputDialog(self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setWindowTitle(self.tr("Save preset"))
        dialog.setLabelText(self.tr("Name of the preset"))
        dialog.textValueSelected.connect(self._save_named)
        dialog.open()

    def _save_named(self, name: str) -> None:
        if name.strip():
            made = self._presets.save_new(
                name.strip(), self._session.setup.system_prompt, self._options, self._session.setup.shape
            )
            self._session.setup.use_preset(made.id)

    def _update_preset(self) -> None:
        chosen = self._presets.get(self._session.setup.preset_id)
        if chosen is None:
            return
        from dataclasses import replace

        self._presets.save(
            replace(
                chosen,
                system_prompt=self._session.setup.system_prompt,
                options=self._options,
                shape=self._session.setup.shape,
            )
        )
        self._session.setup.use_preset(chosen.id)
