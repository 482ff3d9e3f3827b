"""Named presets: a system prompt and generate options. Kept in the store; the default is a window setting."""

from dataclasses import dataclass, field

from PySide6.QtCore import QObject, Signal

from app.settings import Settings
from app.store import StoreLane
from runtime.options import GenerateOptions


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset. `id` is empty only for "no preset"."""

    id: str
    name: str
    system_prompt: str = ""
    options: GenerateOptions = field(default_factory=GenerateOptions)


class Presets(QObject):
    """Home thread: main."""

    changed = Signal(object)
    """`tuple[Preset, ...]` by name: the presets were read, or one was saved or deleted."""

    default_changed = Signal(str)
    """Id of the preset new conversations get; empty for none."""

    def __init__(self, store: StoreLane, settings: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        raise NotImplementedError

    @property
    def all(self) -> tuple[Preset, ...]:
        """All presets by name."""
        raise NotImplementedError

    @property
    def default(self) -> Preset:
        """The preset of new conversations; a plain one (empty id) if none is chosen."""
        raise NotImplementedError

    def get(self, preset_id: str) -> Preset | None:
        """A preset by id."""
        raise NotImplementedError

    def save_new(self, name: str, system_prompt: str, options: GenerateOptions) -> Preset:
        """Keep these as a new preset; a name already taken gets a number."""
        raise NotImplementedError

    def save(self, preset: Preset) -> None:
        """Change a preset; conversations that use it without overrides follow."""
        raise NotImplementedError

    def delete(self, preset_id: str) -> None:
        """Delete a preset; its conversations keep its values as their own. `undo_delete` brings it back."""
        raise NotImplementedError

    def undo_delete(self, preset_id: str) -> None:
        """Bring a deleted preset back."""
        raise NotImplementedError

    def set_default(self, preset_id: str) -> None:
        """Choose the preset of new conversations; empty for none."""
        raise NotImplementedError
