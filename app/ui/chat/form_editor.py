"""The form of answers in the inspector: free text, JSON, a schema, a grammar; and how much the model thinks."""

from collections.abc import Callable
from functools import partial

import msgspec
from PySide6.QtCore import QCoreApplication, QTimer, Signal
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QMenu, QPlainTextEdit, QVBoxLayout, QWidget

from app.answer_form import GRAMMAR_EXAMPLES, SCHEMA_EXAMPLES, Form, form_of, with_form
from app.form_check import problem_of
from app.tasks import Lane
from app.ui.appearance import Appearance
from app.ui.controls.buttons import push_button
from app.ui.controls.fields import ChoiceField, IntField
from app.ui.controls.labels import label, set_tone
from app.ui.theme import Size, Space
from runtime.messages.shared import AnswerShape
from runtime.options import GenerateOptions

CHECK_MS = 300
"""Pause after typing before a text is checked."""

EDITOR_LINES = 10
MAX_BUDGET = 1_000_000
USUAL_BUDGET = 1_024


def tr(text: str) -> str:
    """Translate in this module's context."""
    return QCoreApplication.translate("FormEditor", text)


class FormEditor(QWidget):
    """Tells a form once it is right; until then the last right one holds, and what is wrong is said."""

    changed = Signal(object, object)
    """`AnswerShape` and `GenerateOptions` that ask for the form."""

    def __init__(self, appearance: Appearance, lane: Lane | None, parent: QWidget | None = None) -> None:
        """Texts are checked on the lane if there is one."""
        super().__init__(parent)
        self._lane = lane
        self._shape = AnswerShape()
        self._options = GenerateOptions()
        self._texts: dict[Form, str] = {}
        self._right = {text for _key, text in (*SCHEMA_EXAMPLES, *GRAMMAR_EXAMPLES)}
        self._is_checking = False
        self._is_showing = False
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(CHECK_MS)
        self._pause.timeout.connect(self._check)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Space.HAIR)
        self.choice = ChoiceField()
        self.choice.setAccessibleName(tr("Form of answers"))
        for text, form in (
            (tr("Free text"), "text"),
            (tr("JSON"), "json"),
            (tr("JSON that fits a schema"), "schema"),
            (tr("A grammar (GBNF)"), "grammar"),
        ):
            self.choice.addItem(text, form)
        self.choice.activated.connect(self._on_choice)
        column.addWidget(self.choice)
        self._hint = label("", "small", wrap=True)
        column.addWidget(self._hint)
        self.field = QPlainTextEdit()
        self.field.setProperty("kind", "field")
        self.field.setFont(appearance.font(code=True))
        self.field.setTabChangesFocus(True)
        self.field.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.field.setFixedHeight(self.field.fontMetrics().lineSpacing() * EDITOR_LINES + 2 * Space.XS)
        self.field.textChanged.connect(self._on_text)
        column.addWidget(self.field)
        self.verdict = label("", "small", wrap=True)
        column.addWidget(self.verdict)
        row = QHBoxLayout()
        row.addStretch(1)
        self._examples = push_button(tr("Examples"), self._open_examples)
        row.addWidget(self._examples)
        column.addLayout(row)
        self._show_form()

    @property
    def form(self) -> Form:
        """The form chosen."""
        chosen: Form = self.choice.currentData()
        return chosen

    def show_setup(self, shape: AnswerShape, options: GenerateOptions) -> None:
        """Show what a conversation asks for; what is being typed, or is not right yet, stays."""
        if self._is_checking or self.verdict.property("tone") == "bad":
            self._shape, self._options = shape, options
            return
        self._shape, self._options = shape, options
        form = form_of(shape, options)
        self._is_showing = True
        self.choice.setCurrentIndex(self.choice.findData(form))
        if form in ("schema", "grammar"):
            self._texts[form] = shape.json_schema if form == "schema" else options.sampling.grammar
            self._right.add(self._texts[form])
        self._show_form()
        self._is_showing = False

    def stop(self) -> None:
        """Another conversation is open: what was not handed over belonged to the last one."""
        self._pause.stop()
        self._is_checking = False
        self._texts = {}
        self._right = {text for _key, text in (*SCHEMA_EXAMPLES, *GRAMMAR_EXAMPLES)}
        set_tone(self.verdict, "small")
        self._say("")

    def _show_form(self) -> None:
        form = self.form
        has_text = form in ("schema", "grammar")
        for widget in (self.field, self._examples):
            widget.setVisible(has_text)
        hints = {
            "text": "",
            "json": tr("Every answer is one JSON value. Say in the question what it should hold."),
            "schema": tr("Every answer is JSON that fits this schema. Say in the question what is asked for, too."),
            "grammar": tr("Every answer follows this grammar, in llama.cpp's notation; it begins at the rule root."),
        }
        self._hint.setText(hints[form])
        self._hint.setVisible(bool(hints[form]))
        self.field.setAccessibleName(tr("Grammar") if form == "grammar" else tr("JSON schema"))
        text = self._texts.get(form, "")
        if has_text and text != self.field.toPlainText():
            before, self._is_showing = self._is_showing, True
            self.field.setPlainText(text)
            self._is_showing = before
        set_tone(self.verdict, "small")
        self._say("")

    def _say(self, text: str) -> None:
        """What stands below the field; nothing takes no room."""
        self.verdict.setText(text)
        self.verdict.setVisible(bool(text))

    def _on_choice(self, _at: int) -> None:
        form = self.form
        if form in ("schema", "grammar") and not self._texts.get(form):
            examples = SCHEMA_EXAMPLES if form == "schema" else GRAMMAR_EXAMPLES
            self._texts[form] = examples[0][1]
        self._show_form()
        if form in ("schema", "grammar") and self.field.toPlainText() not in self._right:
            self._check()
        else:
            self._pause.stop()
            self._is_checking = False
            self._tell()

    def _on_text(self) -> None:
        if not self._is_showing:
            self._texts[self.form] = self.field.toPlainText()
            set_tone(self.verdict, "small")
            self._say(tr("Checking…"))
            self._is_checking = True
            self._pause.start()

    def _check(self) -> None:
        form, text = self.form, self.field.toPlainText()
        self._is_checking = True
        if self._lane is None:
            self._checked(form, text, problem_of(form, text))
        else:
            self._lane.submit(partial(problem_of, form, text), partial(self._checked, form, text))

    def _checked(self, form: Form, text: str, problem: str) -> None:
        if (form, text) != (self.form, self.field.toPlainText()):
            return  # typed on meanwhile: the next check tells
        self._is_checking = False
        set_tone(self.verdict, "bad" if problem else "ok")
        if problem:
            self._say(tr("{why} It is not used until it is right.").format(why=problem))
        else:
            self._right.add(text)
            self._say(tr("Right. It holds from the next question on."))
            self._tell()

    def _tell(self) -> None:
        shape, options = with_form(self._shape, self._options, self.form, self.field.toPlainText())
        if (shape, options) != (self._shape, self._options):
            self._shape, self._options = shape, options
            self.changed.emit(shape, options)

    def _open_examples(self) -> None:
        titles = {
            "person": tr("A person"),
            "list": tr("A list of texts"),
            "choice": tr("A choice with a reason"),
            "yes_no": tr("Yes or no"),
            "numbered": tr("A list with bullets"),
            "date": tr("A date"),
        }
        menu = QMenu(self)
        for key, text in SCHEMA_EXAMPLES if self.form == "schema" else GRAMMAR_EXAMPLES:
            menu.addAction(titles[key]).triggered.connect(partial(self.use_example, text))
        menu.aboutToHide.connect(menu.deleteLater)
        menu.popup(self._examples.mapToGlobal(self._examples.rect().bottomLeft()))

    def use_example(self, text: str, _checked: bool = False) -> None:
        """Put an example in the place of what is there; undo brings that back."""
        cursor = self.field.textCursor()
        cursor.select(cursor.SelectionType.Document)
        cursor.insertText(text)


class ReasoningEditor(QWidget):
    """Whether, how hard and how long the model thinks first."""

    changed = Signal(object)
    """`AnswerShape`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shape = AnswerShape()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Space.XS)
        self.note = label("", "small", wrap=True)
        column.addWidget(self.note)
        self.mode = self._choice(
            column,
            tr("Think first"),
            ((tr("As the model does"), "auto"), (tr("No"), "off"), (tr("Yes"), "on")),
            lambda value: {"reasoning": value},
        )
        self.effort = self._choice(
            column,
            tr("Effort"),
            (
                (tr("As the model does"), ""),
                (tr("Minimal"), "minimal"),
                (tr("Low"), "low"),
                (tr("Medium"), "medium"),
                (tr("High"), "high"),
            ),
            lambda value: {"reasoning_effort": value},
        )
        row = QHBoxLayout()
        name = label(tr("Longest thought"))
        row.addWidget(name, 1)
        self.unbounded = QCheckBox(tr("Any"))
        self.unbounded.setAccessibleName(tr("Longest thought: no bound"))
        self.unbounded.clicked.connect(self._on_unbounded)
        row.addWidget(self.unbounded)
        self.budget = IntField()
        self.budget.setRange(0, MAX_BUDGET)
        self.budget.setKeyboardTracking(False)
        self.budget.setFixedWidth(Size.FIELD_SMALL_W)
        self.budget.setAccessibleName(tr("Longest thought, in tokens"))
        self.budget.setToolTip(tr("Tokens after which the thought is closed and the answer begins."))
        self.budget.valueChanged.connect(lambda value: self._set(reasoning_budget=value))
        name.setBuddy(self.budget)
        row.addWidget(self.budget)
        column.addLayout(row)

    def _choice(
        self,
        column: QVBoxLayout,
        title: str,
        choices: tuple[tuple[str, str], ...],
        change: Callable[[str], dict[str, object]],
    ) -> ChoiceField:
        row = QHBoxLayout()
        name = label(title)
        row.addWidget(name, 1)
        made = ChoiceField()
        made.setAccessibleName(title)
        for text, value in choices:
            made.addItem(text, value)
        made.activated.connect(lambda at: self._set(**change(str(made.itemData(at)))))
        name.setBuddy(made)
        row.addWidget(made)
        column.addLayout(row)
        return made

    def show_setup(self, shape: AnswerShape, *, reasons: bool | None) -> None:
        """Show a conversation's settings; `reasons` tells whether the loaded model thinks, `None` without one."""
        self._shape = shape
        self.mode.setCurrentIndex(max(0, self.mode.findData(shape.reasoning)))
        self.effort.setCurrentIndex(max(0, self.effort.findData(shape.reasoning_effort)))
        bounded = shape.reasoning_budget is not None
        self.budget.blockSignals(True)
        self.budget.setValue(shape.reasoning_budget if shape.reasoning_budget is not None else USUAL_BUDGET)
        self.budget.blockSignals(False)
        self.unbounded.setChecked(not bounded)
        usable = reasons is not False
        for widget in (self.mode, self.effort, self.unbounded):
            widget.setEnabled(usable)
        self.budget.setEnabled(usable and bounded)
        self.note.setText(tr("The loaded model does not think before it answers."))
        self.note.setVisible(not usable)

    def _on_unbounded(self, unbounded: bool) -> None:
        self._set(reasoning_budget=None if unbounded else self.budget.value())

    def _set(self, **changes: object) -> None:
        shape = msgspec.structs.replace(self._shape, **changes)
        if shape != self._shape:
            self._shape = shape
            self.budget.setEnabled(shape.reasoning_budget is not None)
            self.changed.emit(shape)
