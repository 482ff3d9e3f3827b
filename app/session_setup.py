"""How the open conversation is answered: system prompt, options, shape, preset, model."""

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from app.opened import Opened
from app.presets import NO_PRESET, Presets
from app.saver import Saver
from app.store.records import ConversationChange
from app.turns import Turns
from runtime.messages.shared import AnswerShape
from runtime.options import GenerateOptions


class SessionSetup(QObject):
    """Of whichever conversation is open. Home thread: main. What is set holds from the next question on."""

    changed = Signal()
    """System prompt, options, shape, preset or model of the open conversation changed."""

    def __init__(
        self,
        presets: Presets,
        saver: Saver,
        turns: Turns,
        opened: Callable[[], Opened],
        parent: QObject | None = None,
    ) -> None:
        """`opened` tells which conversation is open."""
        super().__init__(parent)
        self._presets = presets
        self._saver = saver
        self._turns = turns
        self._opened = opened
        presets.changed.connect(self.changed)
        presets.default_changed.connect(self.changed)

    @property
    def system_prompt(self) -> str:
        """The system prompt in force (own, or the preset's)."""
        return self._opened().system_prompt(self._opened().preset(self._presets))

    @property
    def options(self) -> GenerateOptions:
        """The options in force (own, or the preset's)."""
        return self._opened().options(self._opened().preset(self._presets))

    @property
    def shape(self) -> AnswerShape:
        """The shape of answers in force (own, or the preset's), without tools."""
        return self._opened().shape(self._opened().preset(self._presets))

    @property
    def preset_id(self) -> str:
        """The preset in force; empty for none. A new conversation has the default one."""
        return self._opened().preset(self._presets).id

    @property
    def is_customized(self) -> bool:
        """Whether system prompt, options or shape differ from the preset's."""
        opened = self._opened()
        return any(own is not None for own in (opened.own_system_prompt, opened.own_options, opened.own_shape))

    @property
    def model_id(self) -> str:
        """The loaded model chosen here; empty means whichever is ready."""
        return self._opened().model

    def set_system_prompt(self, text: str) -> None:
        """This conversation's own system prompt."""
        if text != self.system_prompt:
            self._adopted().own_system_prompt = text
            self._change(ConversationChange(system_prompt=text))

    def set_options(self, options: GenerateOptions) -> None:
        """This conversation's own options."""
        if options != self.options:
            self._adopted().own_options = options
            self._change(ConversationChange(options=options))

    def set_shape(self, shape: AnswerShape) -> None:
        """This conversation's own shape of answers."""
        if shape != self.shape:
            self._adopted().own_shape = shape
            self._change(ConversationChange(shape=shape))

    def set_form(self, shape: AnswerShape, options: GenerateOptions) -> None:
        """Both at once: a form of answers is a schema in the one or a grammar in the other."""
        if (shape, options) == (self.shape, self.options):
            return
        opened = self._adopted()
        opened.own_shape, opened.own_options = shape, options
        self._change(ConversationChange(shape=shape, options=options))

    def use_preset(self, preset_id: str) -> None:
        """Take a preset (empty: none) and drop this conversation's own changes."""
        opened = self._adopted()
        opened.preset_id = preset_id
        # "No preset" although a default exists: the plain values become this conversation's own.
        plain = NO_PRESET if not preset_id and self._presets.default.id else None
        opened.own_system_prompt = plain.system_prompt if plain else None
        opened.own_options = plain.options if plain else None
        opened.own_shape = plain.shape if plain else None
        self._change(
            ConversationChange(
                preset_id=preset_id,
                system_prompt=opened.own_system_prompt,
                options=opened.own_options,
                shape=opened.own_shape,
            )
        )

    def set_model(self, model_id: str) -> None:
        """Which loaded model answers here; empty means whichever is ready."""
        if model_id != self._opened().model:
            self._adopted().model = model_id
            self._change(ConversationChange(model=model_id))

    def _adopted(self) -> Opened:
        opened = self._opened()
        self._turns.adopt_preset(opened)
        return opened

    def _change(self, change: ConversationChange) -> None:
        self._saver.change(self._opened().id, change)
        self.changed.emit()
