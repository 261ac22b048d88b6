"""Makes the providers that settings describe, and keeps those that stay as they were."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from ..providers import Provider
from ..providers.anthropic import BASE_URL, Anthropic
from ..providers.local import Local
from ..providers.openai_compatible import OpenAICompatible
from ..providers.scripted import Scripted
from ..providers.turns import InTurns
from .auth import is_loopback
from .settings import ProviderSettings, Settings, SettingsError, data_folder

LINGER = 30.0
"""Seconds for which the embedded model goes on when the server was killed: the next one takes its answers up."""

LOCAL_RUNS = 2
"""Answers that the embedded model works on at once where the settings do not say."""

NEAR, FAR = 5.0, 60.0
"""Seconds after which an upstream on this machine, which comes and goes, or another is asked for its models again."""


class Provided:
    """The providers that were made, each with what it was made from."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], near: float = NEAR) -> None:
        self._near = near
        self._settings = settings
        self._environ = environ
        self._made: list[tuple[ProviderSettings, Provider]] = []

    def made(self, described: Sequence[ProviderSettings]) -> list[tuple[ProviderSettings, Provider]]:
        """Return a provider for each description: the one that is there, where nothing has changed, or a new one."""
        return [
            (each, self._known(each) or make_provider(each, self._settings, self._environ, near=self._near))
            for each in described
        ]

    def keep(self, made: list[tuple[ProviderSettings, Provider]]) -> list[Provider]:
        """Remember what is used from now on."""
        self._made = made
        return [provider for _, provider in made]

    def _known(self, described: ProviderSettings) -> Provider | None:
        return next((provider for known, provider in self._made if known == described), None)


def make_provider(
    described: ProviderSettings, settings: Settings, environ: Mapping[str, str], *, near: float = NEAR
) -> Provider:
    """Return the provider that a table of the settings describes."""
    if described.dialect == "local":
        model = pathlib.Path(settings.model).expanduser() if settings.model else None
        return Local(
            described.name,
            data=data_folder(settings, environ),
            model_path=model,
            offline=settings.offline,
            linger=LINGER,
            slots=described.max_runs or LOCAL_RUNS,
        )
    provider = _upstream(described, environ, near)
    return InTurns(provider, described.max_runs) if described.max_runs else provider


def _upstream(described: ProviderSettings, environ: Mapping[str, str], near: float) -> Provider:
    match described.dialect:
        case "scripted":
            return Scripted(described.name)
        case "anthropic":
            return _anthropic(described, environ)
        case _:
            return _openai_compatible(described, environ, near)


def _openai_compatible(described: ProviderSettings, environ: Mapping[str, str], near: float) -> Provider:
    known = described.behaviour()
    try:
        return OpenAICompatible(
            described.name,
            known.base_url,
            api_key=described.key(environ),
            models=described.models,
            headers=described.headers,
            alternate=known.alternate,
            prefills=known.prefills,
            prefill_params=known.prefill_params,
            prefill_mark=known.prefill_mark,
            wants_reasoning=known.wants_reasoning,
            think=known.think,
            usage=known.usage,
            attaches=known.attaches,
            tools=known.tools,
            models_fresh=near if _is_near(known.base_url) else FAR,
        )
    except ValueError as error:
        raise SettingsError(f"Provider {described.name!r}: {error}.") from None


def _anthropic(described: ProviderSettings, environ: Mapping[str, str]) -> Provider:
    try:
        return Anthropic(
            described.name,
            described.base_url or BASE_URL,
            api_key=described.key(environ),
            models=described.models,
            headers=described.headers,
            prefills=bool(described.prefills),
        )
    except ValueError as error:
        raise SettingsError(f"Provider {described.name!r}: {error}.") from None


def _is_near(base_url: str) -> bool:
    """Tell whether an upstream is on this machine."""
    return is_loopback(urlsplit(base_url).hostname or "")
