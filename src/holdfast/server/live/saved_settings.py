"""The saved settings of the UI. Providers, agents and MCP servers are sealed: they have keys, and may run programs."""

from __future__ import annotations

import asyncio
import os
import pathlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Protocol

import msgspec

from ...errors import HoldfastError
from ...store.folder import open_file
from ..config.settings import AgentSettings, McpSettings, ProviderSettings, Settings, SettingsError, data_folder
from ..secrets.key_sources import SecretKeys
from ..secrets.sealer import CannotUnseal, Sealer

SEALED_AS = "The file settings.json"
"""The name under which the file is sealed."""


class SettingsNotSaved(HoldfastError):
    """The settings of the UI could not be saved."""

    code = "settings_not_saved"
    status = 503


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the UI."""

    default_model: str = ""
    title_model: str = ""
    providers: tuple[ProviderSettings, ...] = ()
    fallbacks: dict[str, str] = {}
    agents: tuple[AgentSettings, ...] = ()
    mcp: tuple[McpSettings, ...] = ()


class KeptSettings(Saved, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of the UI in a file or a store: sealed as a whole if there is more than names of models."""

    sealed: str = ""
    names: tuple[str, ...] = ()
    """The names of the sealed providers, only to report what is lost without the key: they are not authenticated."""


def to_keep(saved: Saved, sealer: Sealer, name: str) -> KeptSettings:
    """Return settings in the form in which they are stored under a name. Blocks on the disk."""
    if not (saved.providers or saved.agents or saved.mcp):
        return msgspec.convert(saved, KeptSettings, from_attributes=True)
    sealed = sealer.seal(name, msgspec.json.encode(saved))
    return KeptSettings(sealed=b64encode(sealed).decode(), names=tuple(each.name for each in saved.providers))


def opened(kept: KeptSettings, sealer: Sealer, name: str) -> Saved:
    """Return the settings that were stored under a name. Blocks on the disk.

    Agents and MCP servers may start programs: those that no server has sealed are left out.
    """
    if not kept.sealed:
        return msgspec.structs.replace(msgspec.convert(kept, Saved, from_attributes=True), agents=(), mcp=())
    try:
        return msgspec.json.decode(sealer.open(name, b64decode(kept.sealed)), type=Saved)
    except CannotUnseal as error:
        raise SettingsError(f"{error} It has {what_is_sealed(kept)}.") from None
    except ValueError as error:
        raise SettingsError(f"{name} is damaged: {error}.") from None


def what_is_sealed(kept: KeptSettings) -> str:
    """Return what is lost with the key, as a phrase."""
    named = f"the providers {', '.join(kept.names)}" if kept.names else "providers"
    return f"the settings made in the browser, with {named} and their keys, agents and MCP servers"


class SavedSettings(Protocol):
    """The storage of the settings of the UI."""

    def read(self) -> Saved:
        """Return the settings with which a server starts."""
        ...

    async def seal(self) -> None:
        """Seal settings that were saved in clear, or with an old key, if one server alone can do that."""
        ...

    async def news(self) -> Saved | None:
        """Return the settings if another server has changed them since they were used or saved here."""
        ...

    def used(self) -> None:
        """Record that the settings from `news` are in use."""
        ...

    async def save(self, saved: Saved) -> None:
        """Save the settings."""
        ...


def saved_file(settings: Settings, environ: Mapping[str, str]) -> SavedFile:
    """Return the file of a data folder, with the keys of the settings."""
    folder = data_folder(settings, environ).absolute()
    return SavedFile(folder, Sealer(SecretKeys(settings, folder)))


class SavedFile:
    """The file for the settings of the UI. Without a folder they last as long as the process."""

    def __init__(self, folder: pathlib.Path | None, sealer: Sealer | None = None) -> None:
        self.path = None if folder is None else folder / "settings.json"
        self._sealer = sealer or Sealer(SecretKeys(Settings(), folder))

    def read(self) -> Saved:
        """Return the saved settings. Blocks on the disk."""
        kept = self.kept()
        return Saved() if kept is None else opened(kept, self._sealer, SEALED_AS)

    def kept(self) -> KeptSettings | None:
        """Return the content of the file; None if there is none. Blocks on the disk."""
        if self.path is None:
            return None
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=KeptSettings)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise SettingsError(
                f"{self.path} cannot be read: {error}. Delete it to start with empty settings."
            ) from None

    async def seal(self) -> None:
        """Seal settings that are in clear, or sealed with another key than the first."""
        await asyncio.to_thread(self.reseal)

    def reseal(self) -> bool:
        """Seal the file with the first key; False if there is nothing to do. Blocks on the disk."""
        kept = self.kept()
        if kept is None or not (kept.providers or kept.sealed) or self._is_current(kept):
            return False
        self.write(opened(kept, self._sealer, SEALED_AS))
        return True

    def _is_current(self, kept: KeptSettings) -> bool:
        return bool(kept.sealed) and self._sealer.is_current(b64decode(kept.sealed))

    async def news(self) -> Saved | None:
        """Return None: no other server changes the file."""
        return None

    def used(self) -> None:
        """Do nothing: `news` returns nothing."""

    async def save(self, saved: Saved) -> None:
        """Write the file."""
        await asyncio.to_thread(self.write, saved)

    def write(self, saved: Saved) -> None:
        """Replace the file atomically; only its owner can read it. Blocks on the disk.

        If the key was rotated meanwhile, it is written again: the old key is about to be deleted.
        """
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            kept = to_keep(saved, self._sealer, SEALED_AS)
            self._replace(self.path, kept)
            while kept.sealed and not self._is_current(kept):
                kept = to_keep(saved, self._sealer, SEALED_AS)
                self._replace(self.path, kept)
        except OSError as error:
            raise SettingsNotSaved(f"The settings could not be saved: {error.strerror}.") from None

    def _replace(self, path: pathlib.Path, kept: KeptSettings) -> None:
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)  # a leftover file may be readable by others
        with os.fdopen(open_file(new, os.O_WRONLY | os.O_EXCL), "wb") as file:
            file.write(msgspec.json.encode(kept))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    def put_away(self) -> pathlib.Path | None:
        """Rename a sealed file, so that the server starts without it; None if there is none. Blocks on the disk."""
        kept = self.kept()
        if self.path is None or kept is None or not kept.sealed:
            return None
        return self.path.replace(self.path.with_suffix(".json.sealed"))
