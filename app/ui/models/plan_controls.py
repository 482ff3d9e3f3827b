"""The sliders of a load plan. Automatic stays automatic: a slider then stands where the plan put it."""

from itertools import pairwise

import msgspec
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.ui.appearance import Appearance
from app.ui.chat.option_rows import OptionRow
from app.ui.chat.option_specs import option_specs
from app.ui.controls.fields import ChoiceField, IntField, SliderField
from app.ui.controls.fold import Fold
from app.ui.controls.labels import ElidedLabel, label
from app.ui.controls.switch import Switch
from app.ui.models.words import context_words, tr
from app.ui.pages.base import SettingRow
from app.ui.theme import Size, Space
from runtime.messages.fit import MemoryPlan
from runtime.options import LoadOptions

FEWEST_TOKENS = 1024
"""Where the context slider begins; the number field goes lower."""

MANY_SLOTS = 16
"""Where the slider of parallel slots ends; the number field goes on."""

MAX_SLOTS = 256
MOST_TOKENS = 2**31 - 1

OWN_CONTROLS = ("n_ctx", "n_parallel", "n_gpu_layers")
"""Options with a slider of their own; all others that are declared stand under "For experts"."""


def context_stops(n_ctx_train: int) -> tuple[int, ...]:
    """Powers of two and the middles between them, up to what the model was trained for (which is the last)."""
    stops = [1 << power for power in range(8, 31)]
    fine = sorted({*stops, *(low + (high - low) // 2 for low, high in pairwise(stops))})
    return (*(stop for stop in fine if min(FEWEST_TOKENS, n_ctx_train) <= stop < n_ctx_train), n_ctx_train)


class NumberRow(QWidget):
    """A title with a sentence, a slider over given stops, the number itself, and "Automatic"."""

    edited = Signal(object)
    """The new value; `None` is automatic."""

    def __init__(
        self, title: str, text: str, stops: tuple[int, ...], high: int, *, low: int = 0, brief: bool = False
    ) -> None:
        """`brief` leaves the sentence to the tooltip."""
        super().__init__()
        self._stops = stops
        self._is_showing = False
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Size.FOCUS)
        top = QHBoxLayout()
        top.setSpacing(Space.XS)
        name = label(title, "strong")
        top.addWidget(name)
        self._note = ElidedLabel("", "muted")
        top.addWidget(self._note, 1)
        self.automatic = QCheckBox(tr("Automatic"))
        self.automatic.setAccessibleName(tr("{name}: automatic").format(name=title))
        self.automatic.toggled.connect(self._on_automatic)
        top.addWidget(self.automatic)
        self.number = IntField()
        self.number.setRange(low, high)
        self.number.setGroupSeparatorShown(True)
        self.number.setKeyboardTracking(False)
        self.number.setFixedWidth(Size.NUMBER_W)
        self.number.setAccessibleName(title)
        self.number.setAccessibleDescription(text)
        self.number.valueChanged.connect(self._on_number)
        name.setBuddy(self.number)
        top.addWidget(self.number)
        column.addLayout(top)
        self.slider = SliderField()
        self.slider.setAccessibleName(tr("{name}, slider").format(name=title))
        self.slider.setPageStep(1)
        self.slider.valueChanged.connect(self._on_slider)
        column.addWidget(self.slider)
        if brief:
            self.setToolTip(text)
        else:
            column.addWidget(label(text, "small", wrap=True))
        self.set_stops(stops)
        self.show_value(None, low)

    def set_stops(self, stops: tuple[int, ...]) -> None:
        """Where the slider can stand."""
        self._is_showing = True
        self._stops = stops
        self.slider.setRange(0, len(stops) - 1)
        self._is_showing = False

    def show_value(self, value: int | None, resolved: int, note: str = "") -> None:
        """Show a value, or what automatic came to, without telling it."""
        self._is_showing = True
        shown = resolved if value is None else value
        self.automatic.setChecked(value is None)
        if not self.number.hasFocus() or value is None:
            self.number.setValue(shown)
        if not self.slider.isSliderDown():
            self.slider.setValue(min(range(len(self._stops)), key=lambda at: abs(self._stops[at] - shown)))
        self._note.setText(note)
        self._is_showing = False

    def _on_automatic(self, on: bool) -> None:
        if not self._is_showing:
            self.edited.emit(None if on else self.number.value())

    def _on_number(self, value: int) -> None:
        if not self._is_showing:
            self.edited.emit(value)

    def _on_slider(self, at: int) -> None:
        if not self._is_showing:
            self.edited.emit(self._stops[at])


class PlanControls(QWidget):
    """Edits load options; `full` shows all, else context and KV type only."""

    changed = Signal(object)
    """The new `LoadOptions`."""

    def __init__(
        self, appearance: Appearance, n_ctx_train: int | None, *, full: bool, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._options = LoadOptions()
        self._plan: MemoryPlan | None = None
        self._is_showing = False
        self._n_layer = 0
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(Space.M)
        self.context = NumberRow(
            tr("Conversation length"),
            tr("How much of a conversation and its documents the model sees at once. Longer takes more memory."),
            context_stops(n_ctx_train or 131_072),
            MOST_TOKENS,
            low=256,
            brief=not full,
        )
        self.context.edited.connect(lambda value: self._set(n_ctx=value))
        self.cache = ChoiceField()
        self._fill_cache()
        self.cache.activated.connect(self._on_cache)
        column.addLayout(self._build_beside() if not full else self._build_below())
        self.layers = NumberRow(
            tr("Layers on GPU"),
            tr("The more of the model is on the graphics processor, the faster it answers."),
            (0,),
            10_000,
        )
        self.layers.edited.connect(lambda value: self._set(n_gpu_layers=value))
        self.slots = NumberRow(
            tr("Answers at the same time"),
            tr("For programs that ask several things at once; each takes its own memory of a conversation."),
            tuple(range(1, MANY_SLOTS + 1)),
            MAX_SLOTS,
            low=1,
        )
        self.slots.edited.connect(lambda value: self._set(n_parallel=value))
        column.addWidget(self.layers)
        column.addWidget(self.slots)
        self.layers.setVisible(False)
        self.slots.setVisible(full)
        self._full = full
        self._rows: dict[str, OptionRow] = {}
        if full:
            self._fold = self._build_expert()
            column.addWidget(self._fold)

    def _build_below(self) -> QVBoxLayout:
        column = QVBoxLayout()
        column.setSpacing(Space.M)
        column.addWidget(self.context)
        self.cache.setFixedWidth(Size.CHOICE_W)
        column.addWidget(SettingRow(tr("Memory of the conversation"), self._cache_text(), self.cache, tone="strong"))
        return column

    def _build_beside(self) -> QHBoxLayout:
        """Both in one line, so that the rows they judge stay in sight."""
        row = QHBoxLayout()
        row.setSpacing(Space.L)
        row.addWidget(self.context, 3)
        right = QVBoxLayout()
        right.setSpacing(Size.FOCUS)
        title = ElidedLabel(tr("Memory of the conversation"), "strong")
        title.setBuddy(self.cache)
        right.addWidget(title)
        self.cache.setAccessibleName(title.text())
        self.cache.setAccessibleDescription(self._cache_text())
        self.cache.setToolTip(self._cache_text())
        self.cache.setMinimumWidth(Size.FIELD_SMALL_W)
        self.cache.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        right.addWidget(self.cache)
        row.addLayout(right, 2)
        return row

    @staticmethod
    def _cache_text() -> str:
        return tr("In a smaller number format twice or four times as much fits (KV cache type).")

    def _fill_cache(self) -> None:
        for text, value in (
            (tr("Full precision (f16)"), "f16"),
            (tr("Half the memory, hardly a difference (q8_0)"), "q8_0"),
            (tr("A quarter, worse in long texts (q4_0)"), "q4_0"),
        ):
            self.cache.addItem(text, value)

    def _build_expert(self) -> Fold:
        fold = Fold(self._appearance, tr("For experts"), opened=False)
        for spec in option_specs(LoadOptions):
            if spec.name in OWN_CONTROLS:
                continue
            row = OptionRow(spec, self._appearance)
            row.changed.connect(lambda option, value: self._set(**{option: value}))
            fold.content.addWidget(row)
            self._rows[spec.name] = row
        self._mmap = Switch(self._appearance, tr("Map the file"))
        self._mmap.clicked.connect(lambda on: self._set(use_mmap=on))
        fold.content.addWidget(
            SettingRow(
                tr("Map the file"), tr("Weights in system memory are read from the file when needed."), self._mmap
            )
        )
        self._draft = ChoiceField()
        self._draft.setFixedWidth(Size.CHOICE_W)
        self._draft.activated.connect(lambda at: self._set(draft_model=str(self._draft.itemData(at) or "")))
        fold.content.addWidget(
            SettingRow(
                tr("Draft model"), tr("A small model of the same family that guesses ahead of this one."), self._draft
            )
        )
        return fold

    def offer_drafts(self, drafts: list[tuple[str, str]]) -> None:
        """Names and ids of models that may guess ahead."""
        self._draft.clear()
        self._draft.addItem(tr("None"), "")
        for name, model_id in drafts:
            self._draft.addItem(name, model_id)
        self._show()

    # --- values

    @property
    def options(self) -> LoadOptions:
        """What is set; automatic is `None`."""
        return self._options

    def set_options(self, options: LoadOptions) -> None:
        """Show other options without telling them."""
        self._options = options
        self._show()

    def show_plan(self, plan: MemoryPlan) -> None:
        """Put the automatic ones where the plan put them."""
        self._plan = plan
        if plan.n_layer != self._n_layer:
            self._n_layer = plan.n_layer
            self.layers.set_stops(tuple(range(plan.n_layer + 1)))
        self._show()

    def _set(self, **changes: object) -> None:
        if not self._is_showing:
            self._options = msgspec.structs.replace(self._options, **changes)
            self._show()
            self.changed.emit(self._options)

    def _on_cache(self, at: int) -> None:
        value = self.cache.itemData(at)
        if value:
            self._set(type_k=value, type_v=value)

    def _show(self) -> None:
        self._is_showing = True
        options, plan = self._options, self._plan
        resolved = plan.resolved if plan is not None else None
        n_ctx = options.n_ctx or (resolved.n_ctx if resolved is not None else 0)
        self.context.show_value(options.n_ctx, n_ctx, context_words(n_ctx) if n_ctx else "")
        self._show_cache()
        if self._full and plan is not None and resolved is not None:
            self.layers.setVisible(any(budget.device.kind != "cpu" for budget in plan.budgets))
            layers = options.n_gpu_layers if options.n_gpu_layers is not None else plan.n_layer_gpu
            note = tr("{n} of {total}").format(n=min(layers, plan.n_layer), total=plan.n_layer)
            self.layers.show_value(options.n_gpu_layers, plan.n_layer_gpu, note)
            self.slots.show_value(options.n_parallel, resolved.n_parallel)
        for name, row in self._rows.items():
            row.set_value(getattr(options, name), getattr(resolved, name, None) if row.spec.optional else None)
        if self._full:
            self._mmap.setChecked(options.use_mmap)
            self._draft.setCurrentIndex(max(0, self._draft.findData(options.draft_model)))
        self._is_showing = False

    def _show_cache(self) -> None:
        key, value = self._options.type_k, self._options.type_v
        mixed = self.cache.findData("")
        at = self.cache.findData(key) if key == value else -1
        if at < 0:
            text = tr("Own choice ({k} and {v})").format(k=key, v=value)
            if mixed < 0:
                self.cache.addItem(text, "")
                mixed = self.cache.count() - 1
            self.cache.setItemText(mixed, text)
            at = mixed
        elif mixed >= 0:
            self.cache.removeItem(mixed)
        self.cache.setCurrentIndex(at)
