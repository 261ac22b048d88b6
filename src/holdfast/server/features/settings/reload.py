"""Reloads a changed settings file while the server runs: all of it, or nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from ....errors import HoldfastError
from ...config.loopback import is_loopback
from ...config.settings import Settings, SettingsError
from ...live.live_settings import Configured
from ..accounts.keys import Keys, short_keys

logger = logging.getLogger(__name__)

LIVE = (
    *("default_model", "title_model", "default_providers", "discover", "providers", "fallbacks", "aliases"),
    *("api_key", "keys"),
    *("log_level", "log_levels", "log_format"),
    *("body_limit", "drain", "heartbeat", "send_timeout", "event_days", "retention_days"),
)
"""Settings that a running server can change. All others need a restart."""

ReadSettings = Callable[[], tuple[Settings, dict[str, str]]]
"""Reads file and environment, and returns the settings with their sources. Blocks on the disk."""


class CannotReload(HoldfastError):
    """The settings of this server do not come from a file."""

    code = "cannot_reload"
    status = 409
    type = "invalid_request_error"
    message = "This server was not started by `holdfast serve`: the program that embeds it has its settings."


class NotReloaded(HoldfastError):
    """The settings are invalid, so nothing was changed."""

    code = "settings_not_reloaded"
    status = 409
    type = "invalid_request_error"

    def __init__(self, why: str) -> None:
        super().__init__(f"Nothing was changed: {why} `holdfast config check` lists every problem.")


class Reloaded(msgspec.Struct, frozen=True):
    """The result of a reload."""

    changed: list[str]
    """The settings that have changed."""
    needs_restart: list[str]
    """Settings that differ from those in use and cannot be changed while the server runs."""

    def __str__(self) -> str:
        changed = f"changed {', '.join(self.changed)}" if self.changed else "nothing has changed"
        return f"{changed}; needs a restart: {', '.join(self.needs_restart)}" if self.needs_restart else changed


class Reloading:
    """Reads the settings again, checks them as a whole, and then applies those that a running server can change."""

    def __init__(
        self,
        read: ReadSettings,
        configured: Configured,
        keys: Keys,
        environ: Mapping[str, str],
        use: Callable[[Settings], None],
    ) -> None:
        """`use` is called with the new settings. It must not fail."""
        self._read = read
        self._configured = configured
        self._keys = keys
        self._environ = environ
        self._use = use
        self._one = asyncio.Lock()

    async def __call__(self, current: Settings) -> Reloaded:
        """Apply the settings of file and environment. `NotReloaded` if they are invalid."""
        async with self._one:
            try:
                new, sources = await asyncio.to_thread(self._read)
                result, settings = compared(current, new)
                fixed = self._keys.fixed_by(settings)
                self._check_keys(settings)
                await self._configured.reload(settings, sources)
            except (HoldfastError, OSError) as error:
                logger.error("the settings were not reloaded, and nothing has changed: %s", error)
                raise NotReloaded(str(error)) from None
            self._keys.change_fixed(fixed)
            self._use(settings)
            logger.info("the settings were reloaded: %s", result)
            return result

    def _check_keys(self, settings: Settings) -> None:
        """Refuse the same keys as a start: a key that can be guessed, on a public address."""
        if not is_loopback(settings.host) and (short := short_keys(settings, self._environ)):
            raise SettingsError(f"The key of {', '.join(short)} is too short for {settings.host}.")


def compared(current: Settings, new: Settings) -> tuple[Reloaded, Settings]:
    """Return the differences, and the current settings with the changes that can be applied."""
    names = [field.name for field in msgspec.structs.fields(Settings)]
    differ = [name for name in names if getattr(current, name) != getattr(new, name)]
    changed = [name for name in differ if name in LIVE]
    settings = msgspec.structs.replace(current, **{name: getattr(new, name) for name in changed})
    return Reloaded(changed, [name for name in differ if name not in LIVE]), settings
