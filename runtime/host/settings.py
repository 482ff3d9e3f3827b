"""Settings of the host that outlive a run: one TOML file, versioned, written atomically, never lost.

A file that cannot be read is moved aside, one with a wrong section is copied aside, and a sentence says so. Keys
this version does not know are kept as they stand, so an older Deskside does not destroy a newer one's.
"""

import copy
import filecmp
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli_w

from runtime.atomic_files import write_atomically
from runtime.errors import BadRequest, StorageFault
from runtime.messages.tools import ToolServerConfig
from runtime.options import ApiOptions, KeyLimits, LoadOptions, ModelsOptions
from runtime.toml_text import read_toml
from runtime.units import now_local

SETTINGS_VERSION = 1
MAX_REMEMBERED_MODELS = 500
"""Models whose load options are kept; past it the one remembered first goes."""

MAX_ALIASES = 200
"""Further names of models that programs may give."""

_MAX_FILE_BYTES = 4 * 1024 * 1024

Raw = dict[str, Any]
"""A TOML table as `tomllib` reads it; it does not leave this module."""

T = TypeVar("T")


class StoredKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """An API key by name, with the SHA-256 of it."""

    name: str
    sha256: str
    created_s: float
    limits: KeyLimits = KeyLimits()


class Settings(msgspec.Struct, frozen=True):
    """All of it. Replaced as a whole, never changed in place."""

    api: ApiOptions = ApiOptions()
    keys: tuple[StoredKey, ...] = ()
    load_options: Mapping[str, LoadOptions] = {}
    last_model: str = ""
    models_options: ModelsOptions = ModelsOptions()
    aliases: Mapping[str, str] = {}
    """Further names of models, each with the id it stands for."""
    tool_servers: tuple[ToolServerConfig, ...] = ()
    """Without the values of their secrets."""


def migrate_0_to_1(raw: Raw) -> Raw:
    """A file that a person wrote by hand has no version; its keys are those of version 1."""
    return {**raw, "version": 1}


MIGRATIONS: Mapping[int, Callable[[Raw], Raw]] = {0: migrate_0_to_1}
"""From version n to n + 1. Each has a test of its name."""


class SettingsFile:
    """The file and its present contents. Home: the event loop (files are small)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._raw: Raw = {}
        self.current = Settings()
        self.problems: list[str] = []
        """Sentences for a person about what was wrong with the file; empty when nothing was."""
        self._read()

    def change(self, **changes: object) -> Settings:
        """Replace fields of `Settings` and write the file.

        Raises:
            StorageFault: if it cannot be written; the present contents are changed for this run all the same.
        """
        self.current = msgspec.structs.replace(self.current, **changes)
        self._write()
        return self.current

    def change_if_saved(self, **changes: object) -> Settings:
        """As `change`, but what cannot be saved does not hold for this run either.

        Raises:
            StorageFault: if the file cannot be written; nothing is changed.
        """
        before = self.current
        try:
            return self.change(**changes)
        except StorageFault:
            self.current = before
            raise

    def remember_load(self, model_id: str, options: LoadOptions | None) -> None:
        """Keep what was loaded last, and with `options` how.

        Raises:
            StorageFault: if the file cannot be written.
        """
        kept = dict(self.current.load_options)
        if options is not None:
            kept.pop(model_id, None)
            kept[model_id] = options
            while len(kept) > MAX_REMEMBERED_MODELS:
                del kept[next(iter(kept))]
        if kept != self.current.load_options or model_id != self.current.last_model:
            self.change(load_options=kept, last_model=model_id)

    def remember_options(self, model_id: str, options: LoadOptions) -> None:
        """Keep how a model is to be loaded; automatic values stay automatic.

        Raises:
            StorageFault: if the file cannot be written.
        """
        kept = {known: how for known, how in self.current.load_options.items() if known != model_id}
        kept[model_id] = options
        while len(kept) > MAX_REMEMBERED_MODELS:
            del kept[next(iter(kept))]
        if kept != self.current.load_options:
            self.change(load_options=kept)

    def set_alias(self, name: str, model_id: str) -> None:
        """Give a model one more name; an empty id takes the name away.

        Raises:
            BadRequest: there are too many.
            StorageFault: if the file cannot be written.
        """
        kept = {known: meant for known, meant in self.current.aliases.items() if known != name}
        if model_id:
            kept[name] = model_id
        if len(kept) > MAX_ALIASES:
            raise BadRequest(f"There are {MAX_ALIASES} further names already.", hint="Delete one.", param="destination")
        if kept != self.current.aliases:
            self.change(aliases=kept)

    def meant_by(self, name: str) -> str:
        """The id a further name stands for; any other name as it is."""
        return self.current.aliases.get(name, name)

    def load_options(self, model_id: str) -> LoadOptions:
        """The options remembered for a model, or automatic ones."""
        return self.current.load_options.get(model_id, LoadOptions())

    # --- reading ------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            if not self._path.exists():
                return
            raw, version = _parse(self._path)
        except (OSError, ValueError) as error:  # TOML and UTF-8 errors are ValueErrors
            kept = self._set_aside(move=True)
            self.problems.append(f"The settings could not be read ({error}). They start anew; the old file is {kept}.")
            return
        while version in MIGRATIONS:
            raw = MIGRATIONS[version](raw)
            version += 1
        self._raw = raw
        self._take_sections(raw)

    def _take_sections(self, raw: Raw) -> None:
        wrong: list[str] = []
        api = _api(raw, wrong)
        keys = _section(raw, "keys", tuple[StoredKey, ...], (), wrong)
        last_model = _section(raw, "last_model", str, "", wrong)
        models_options = _section(raw, "models_options", ModelsOptions, ModelsOptions(), wrong)
        aliases = _section(raw, "aliases", dict[str, str], {}, wrong)
        tool_servers = _tool_servers(raw, wrong)
        load_options: dict[str, LoadOptions] = {}
        models = raw.get("models", {})
        for model_id in models if isinstance(models, dict) else ():
            load_options[model_id] = _section(models, model_id, LoadOptions, LoadOptions(), wrong)
        if any(problem.startswith("keys") for problem in wrong) and api.enabled:
            # Without its keys an open API would let everyone in.
            api = msgspec.structs.replace(api, enabled=False)
            wrong.append("the API stays off until it is switched on again, since its keys are not known")
        self.current = Settings(api, keys, load_options, last_model, models_options, aliases, tool_servers)
        if wrong:
            kept = self._set_aside(move=False)
            self.problems.append(
                f"Some settings are not valid and were left out: {'; '.join(wrong)}. A copy is {kept}."
            )

    def _set_aside(self, *, move: bool) -> str:
        """Keep the file as it is now under another name; what is kept already is not kept twice."""
        stamp = now_local().strftime("%Y%m%d-%H%M%S")
        try:
            kept = next((one for one in self._kept_aside() if filecmp.cmp(one, self._path, shallow=False)), None)
            aside = kept or self._path.with_name(f"{self._path.stem}.broken-{stamp}{self._path.suffix}")
            if move:
                self._path.replace(aside)
            elif kept is None:
                write_atomically(aside, self._path.read_bytes(), private=True)
        except OSError as error:
            return f"still {self._path.name} ({error})"
        return aside.name

    def _kept_aside(self) -> list[Path]:
        return sorted(self._path.parent.glob(f"{self._path.stem}.broken-*{self._path.suffix}"))

    # --- writing ------------------------------------------------------------------------------------------

    def _write(self) -> None:
        raw = copy.deepcopy(self._raw)
        raw.setdefault("version", SETTINGS_VERSION)
        _put(raw, "api", msgspec.to_builtins(self.current.api), ApiOptions)
        _put(raw, "models_options", msgspec.to_builtins(self.current.models_options), ModelsOptions)
        raw["keys"] = msgspec.to_builtins(self.current.keys)
        raw["last_model"] = self.current.last_model
        raw["aliases"] = dict(self.current.aliases)
        raw["tool_servers"] = msgspec.to_builtins(self.current.tool_servers)
        old_models = raw.get("models")
        kept = old_models if isinstance(old_models, dict) else {}
        models: Raw = {}
        for model_id, options in self.current.load_options.items():
            models[model_id] = kept.get(model_id, {})
            _put(models, model_id, msgspec.to_builtins(options), LoadOptions)
        raw["models"] = models
        try:
            write_atomically(self._path, tomli_w.dumps(raw).encode())
        except OSError as error:
            raise StorageFault(
                f"The settings could not be saved: {error.strerror or error}.",
                hint="Check the free space and the permissions of the data folder.",
                path=str(self._path),
            ) from error
        self._raw = raw


def _parse(path: Path) -> tuple[Raw, int]:
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise ValueError("it is far too large")
    raw = read_toml(path.read_text("utf-8"))
    version = raw.get("version", 0)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise ValueError(f"its version is {version!r}")
    return raw, version


def saved_models_options(path: Path) -> ModelsOptions:
    """Only look: what the file says about all models; declared defaults where it cannot be read or says nothing."""
    try:
        raw, _ = _parse(path)
    except (OSError, ValueError):
        return ModelsOptions()
    return _section(raw, "models_options", ModelsOptions, ModelsOptions(), [])


def _section(raw: Raw, name: str, kind: type[T], default: T, wrong: list[str]) -> T:
    """Read one section; what this version does not know in it is left to the file."""
    if name not in raw:
        return default
    value = raw[name]
    known: tuple[str, ...] = getattr(kind, "__struct_fields__", ())
    if isinstance(value, dict) and known:
        value = {key: entry for key, entry in value.items() if key in known}
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        wrong.append(f"{name} ({error})")
        return default


def _api(raw: Raw, wrong: list[str]) -> ApiOptions:
    """One option that is not valid costs only itself: without encryption others would read what a typo let out."""
    section = raw.get("api", {})
    if not isinstance(section, dict):
        return _section(raw, "api", ApiOptions, ApiOptions(), wrong)
    valid: Raw = {}
    for key, entry in section.items():
        before = len(wrong)
        _section({"api": {key: entry}}, "api", ApiOptions, ApiOptions(), wrong)
        if len(wrong) == before:
            valid[key] = entry
        elif key == "tls":
            valid[key] = "own"
    return _section({"api": valid}, "api", ApiOptions, ApiOptions(), wrong)


def _tool_servers(raw: Raw, wrong: list[str]) -> tuple[ToolServerConfig, ...]:
    """One entry that is not valid costs only itself."""
    found: dict[str, ToolServerConfig] = {}
    for entry in _section(raw, "tool_servers", list[Any], [], wrong):
        known = entry
        if isinstance(entry, dict):
            known = {key: value for key, value in entry.items() if key in ToolServerConfig.__struct_fields__}
        try:
            config = msgspec.convert(known, ToolServerConfig)
        except msgspec.ValidationError as error:
            wrong.append(f"tool_servers ({error})")
        else:
            found[config.name] = config
    return tuple(found.values())


def _put(raw: Raw, name: str, value: Raw, kind: type[msgspec.Struct]) -> None:
    """Write a section, keeping the keys of it that this version does not know."""
    old = raw.get(name)
    unknown = (
        {key: entry for key, entry in old.items() if key not in kind.__struct_fields__} if isinstance(old, dict) else {}
    )
    raw[name] = {**unknown, **value}
