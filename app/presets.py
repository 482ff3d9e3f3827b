"""Named presets: a system prompt and generate options. Kept in the store; the default is a window setting."""

from PySide6.QtCore import QCoreApplication, QObject, Signal, Slot

from app.settings import Settings, WindowSettings
from app.store import StoreLane, new_id
from app.store.records import Preset
from runtime.messages.shared import AnswerShape
from runtime.options import GenerateOptions

__all__ = ["Preset", "Presets"]


class Presets(QObject):
    """Home thread: main."""

    changed = Signal(object)
    """`tuple[Preset, ...]` by name: the presets were read, or one was saved or deleted."""

    default_changed = Signal(str)
    """Id of the preset new conversations get; empty for none."""

    def __init__(self, store: StoreLane, settings: Settings, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._settings = settings
        self._presets: dict[str, Preset] = {}
        self._deleted: dict[str, Preset] = {}
        self._default_id = settings.values.default_preset
        settings.changed.connect(self._settings_changed)

    def load(self) -> None:
        """Read the presets; `changed` follows."""
        self._store.submit(lambda store: store.presets(), self._take)

    @property
    def all(self) -> tuple[Preset, ...]:
        """All presets by name."""
        return tuple(sorted(self._presets.values(), key=lambda preset: preset.name.casefold()))

    @property
    def default(self) -> Preset:
        """The preset of new conversations; a plain one (empty id) if none is chosen."""
        return self._presets.get(self._default_id, NO_PRESET)

    def get(self, preset_id: str) -> Preset | None:
        """A preset by id."""
        return self._presets.get(preset_id)

    def save_new(
        self, name: str, system_prompt: str, options: GenerateOptions, shape: AnswerShape | None = None
    ) -> Preset:
        """Keep these as a new preset; a name already taken gets a number."""
        preset = Preset(new_id(), self._free_name(name), system_prompt, options, shape or AnswerShape())
        self.save(preset)
        return preset

    def save(self, preset: Preset) -> None:
        """Change a preset; conversations that use it without overrides follow."""
        self._presets[preset.id] = preset
        self._store.submit(lambda store: store.put_preset(preset))
        self.changed.emit(self.all)

    def delete(self, preset_id: str) -> None:
        """Delete a preset; its conversations keep its values as their own. `undo_delete` brings it back."""
        preset = self._presets.pop(preset_id, None)
        if preset is None:
            return
        self._deleted = {preset_id: preset}  # only the last one can be brought back
        self._store.submit(lambda store: store.delete_preset(preset))
        if self._default_id == preset_id:
            self.set_default("")
        self.changed.emit(self.all)

    def undo_delete(self, preset_id: str) -> None:
        """Bring a deleted preset back."""
        preset = self._deleted.pop(preset_id, None)
        if preset is not None:
            self.save(preset)

    def set_default(self, preset_id: str) -> None:
        """Choose the preset of new conversations; empty for none."""
        self._settings.update(default_preset=preset_id)

    def _take(self, presets: tuple[Preset, ...]) -> None:
        self._presets = {preset.id: preset for preset in presets} | self._presets
        self.changed.emit(self.all)

    @Slot(object)
    def _settings_changed(self, values: WindowSettings) -> None:
        if values.default_preset != self._default_id:
            self._default_id = values.default_preset
            self.default_changed.emit(self._default_id)

    def _free_name(self, name: str) -> str:
        wanted = " ".join(name.split()) or QCoreApplication.translate("Presets", "Preset")
        taken = {preset.name for preset in self._presets.values()}
        found, number = wanted, 2
        while found in taken:
            found, number = f"{wanted} {number}", number + 1
        return found


NO_PRESET = Preset("", "")
"""The plain one."""
