"""What is set, where it was set, and how it is changed while the server runs.

A flag beats the environment, which beats the file, which beats what was set in the UI: that is kept in a file of the
data folder which only its owner can read, since it holds keys. No key ever leaves this module but to its provider.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec.structs import replace

from ..errors import BadRequest, HoldfastError
from ..providers import Provider, Providers
from ..providers.profiles import ProfileName
from .discovery import PLACES, listening
from .provided import NEAR, Provided
from .settings import PREFIX, ProviderSettings, Settings, SettingsError, data_folder

logger = logging.getLogger("holdfast")

Source = Literal["flag", "env", "file", "ui", "found", "default"]

BUILT_IN = ("local", "scripted")
MOST_PROVIDERS = 100

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class SettingPinned(HoldfastError):
    """A value is set where the UI cannot change it."""

    code = "setting_pinned"
    status = 409
    type = "invalid_request_error"

    def __init__(self, what: str, where: str, param: str) -> None:
        super().__init__(f"{what} is set by {where}. Change it there.")
        self.param = param


class SettingsNotSaved(HoldfastError):
    """The file of the UI's settings could not be written."""

    code = "settings_not_saved"
    status = 503


class ProviderChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider as the UI describes it."""

    name: str
    dialect: Literal["openai", "anthropic"] = "openai"
    profile: ProfileName | None = None
    base_url: str = ""
    api_key: str | msgspec.UnsetType | None = msgspec.UNSET
    """Left out, the key that is there stays, as long as it goes to the same address. Null for none."""
    models: tuple[str, ...] | None = None
    max_runs: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the UI sets. What is left out stays; what is given takes the place of all that the UI had set there."""

    default_model: str | msgspec.UnsetType | None = msgspec.UNSET
    providers: tuple[ProviderChange, ...] | msgspec.UnsetType = msgspec.UNSET
    fallbacks: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What was set in the UI."""

    default_model: str = ""
    providers: tuple[ProviderSettings, ...] = ()
    fallbacks: dict[str, str] = {}


class SavedFile:
    """The file for what was set in the UI."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder / "settings.json"

    def read(self) -> Saved:
        """Return what was saved. This waits for the disk."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Saved)
        except FileNotFoundError:
            return Saved()
        except (OSError, msgspec.DecodeError) as error:
            raise SettingsError(f"{self.path} cannot be read: {error}. Delete it to begin anew.") from None

    def write(self, saved: Saved) -> None:
        """Replace the file in one step, readable by nobody else. This waits for the disk."""
        new = self.path.with_suffix(".new")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.unlink(missing_ok=True)  # one that is left over may be readable by others
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(msgspec.json.encode(saved))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            raise SettingsNotSaved(f"The settings could not be saved: {error.strerror}.") from None


class Configured:
    """The settings as they are now, and the providers that follow from them.

    `sources` says where each of the given settings comes from, as `load_with_sources` does. `look_every` is how many
    seconds what is on this machine counts as seen.
    """

    def __init__(
        self,
        settings: Settings,
        sources: Mapping[str, str],
        environ: Mapping[str, str],
        file: SavedFile,
        *,
        look_every: float = NEAR,
    ) -> None:
        self.look_every = look_every
        self.on_change: Callable[[], None] = lambda: None
        """Called when a change is in force."""
        self._given = settings
        self._sources = sources
        self._environ = environ
        self._file = file
        self._changing = asyncio.Lock()
        self._saved = file.read()
        self._found: tuple[ProviderSettings, ...] = ()
        self._provided = Provided(settings, environ, look_every)
        self.looks = sources.get("providers") == "discovered"
        """Whether what listens on this machine is taken in: it is, where no settings name providers."""
        self.providers = Providers(self._provided.keep(self._provided.made(self._described())))
        check_fallbacks(settings.fallbacks, self._names())

    # what is set

    @property
    def default_model(self) -> str:
        """The model of a session that names none; nothing where none is set."""
        return self._given.default_model or self._saved.default_model

    @property
    def fallbacks(self) -> Mapping[str, str]:
        """Who answers for whom."""
        return self._given.fallbacks or self._saved.fallbacks

    def _described(self, saved: Saved | None = None) -> tuple[ProviderSettings, ...]:
        """Return every provider, those first that were set up by hand."""
        given, found = self._given.providers, self._found if self.looks else ()
        set_here = _without((saved or self._saved).providers, given)
        built_in = tuple(each for each in given if self.looks and each.dialect in BUILT_IN)
        named = _without(given, built_in)
        return (*named, *set_here, *_without(_without(found, given), set_here), *built_in)

    def profile(self, provider: str) -> str | None:
        """Return what kind of upstream a provider is."""
        return next((described.profile for described in self._described() if described.name == provider), None)

    def dialect(self, provider: str) -> str | None:
        """Return what a provider's upstream speaks."""
        return next((told.dialect for told in self._described() if told.name == provider), None)

    def _names(self) -> set[str]:
        """Return the names that a provider may have, be it that it is not there yet."""
        names = {described.name for described in self._described()}
        return names | {place.name for place in PLACES} if self.looks else names

    def shown(self, *, to_admin: bool) -> dict[str, Any]:
        """Return the settings as JSON. Nobody is shown a key, and only an admin where the upstreams are."""
        return {
            "default_model": self.default_model or None,
            "fallbacks": dict(self.fallbacks),
            "providers": [self._shown(described, to_admin) for described in self._described()],
            "sources": {name: self._source(name) for name in ("default_model", "fallbacks")},
            "editable": to_admin,
        }

    def _shown(self, described: ProviderSettings, to_admin: bool) -> dict[str, Any]:
        source = self._source_of(described)
        return {
            "name": described.name,
            "dialect": described.dialect,
            "profile": described.profile,
            "base_url": _without_secrets(described.behaviour().base_url) if to_admin else None,
            "models": described.models,
            "max_runs": described.max_runs,
            "key_set": described.key(self._environ) is not None,
            "source": source,
            "editable": to_admin and source == "ui",
        }

    def _source(self, name: str) -> Source:
        if getattr(self._given, name):
            return _kind(self._sources.get(name, "settings"))
        return "ui" if getattr(self._saved, name) else "default"

    def _source_of(self, described: ProviderSettings) -> Source:
        if described in self._given.providers:
            return _kind(self._sources.get("providers", "settings")) if not self.looks else _discovered(described)
        return "ui" if described in self._saved.providers else "found"

    # what listens on this machine

    async def look(self) -> None:
        """Take in the servers that listen now. One that has gone stays, and is told as away until it comes back."""
        if not self.looks:
            return
        found = await asyncio.to_thread(listening, self._environ)
        known = {each.name: each for each in (*self._found, *found)}
        async with self._changing:
            self._found = tuple(known[place.name] for place in PLACES if place.name in known)
            self.providers.change(self._provided.keep(self._provided.made(self._described())))
        for provider in self.providers.all:
            if provider.name in known:
                await provider.list_models()  # asks again when that is due

    # changing

    async def change(self, wanted: Change) -> None:
        """Set what the UI may set: checked as a whole, saved, and then in force for every new run."""
        async with self._changing:
            saved = self._changed(wanted)
            made = self._made(saved)
            try:
                await self._check(saved, Providers([provider for _, provider in made]))
                await asyncio.to_thread(self._file.write, saved)
            except BaseException:
                await self._forget(provider for _, provider in made)
                raise
            self._saved = saved
            self.providers.change(self._provided.keep(made))
            self.on_change()

    def read_again(self) -> None:
        """Take in what another process of this server has changed. This waits for the disk."""
        self._saved = self._file.read()
        self.providers.change(self._provided.keep(self._provided.made(self._described())))

    def _changed(self, wanted: Change) -> Saved:
        saved = self._saved
        if not isinstance(wanted.default_model, msgspec.UnsetType):
            self._refuse_pinned("default_model")
            saved = replace(saved, default_model=wanted.default_model or "")
        if not isinstance(wanted.fallbacks, msgspec.UnsetType):
            self._refuse_pinned("fallbacks")
            saved = replace(saved, fallbacks=wanted.fallbacks)
        if not isinstance(wanted.providers, msgspec.UnsetType):
            saved = replace(saved, providers=self._changed_providers(wanted.providers))
        return saved

    def _changed_providers(self, wanted: Sequence[ProviderChange]) -> tuple[ProviderSettings, ...]:
        names = [each.name for each in wanted]
        if len(set(names)) < len(names):
            raise BadRequest("Two providers have the same name.", param="providers")
        if len(names) > MOST_PROVIDERS:
            raise BadRequest(f"There may be {MOST_PROVIDERS} providers.", param="providers")
        pinned = {described.name: described for described in self._given.providers}
        for name in names:
            if not _NAME.fullmatch(name):
                raise BadRequest(
                    "A provider's name has 1 to 64 letters, digits, dots, dashes and underscores, and no slash.",
                    param="providers",
                )
            if name in pinned:
                raise SettingPinned(f"The provider {name!r}", self._where_is(pinned[name]), "providers")
        return tuple(self._changed_provider(each) for each in wanted)

    def _changed_provider(self, wanted: ProviderChange) -> ProviderSettings:
        described = ProviderSettings(
            wanted.name,
            dialect=wanted.dialect,
            profile=wanted.profile if wanted.dialect == "openai" else None,
            base_url=wanted.base_url.strip(),
            models=wanted.models,
            max_runs=wanted.max_runs,
        )
        if not isinstance(wanted.api_key, msgspec.UnsetType):
            return replace(described, api_key=(wanted.api_key or "").strip())
        before = next((each for each in self._saved.providers if each.name == wanted.name), None)
        if before is None or not before.api_key:
            return described
        if _address(before) != _address(described):
            raise BadRequest(
                f"Give the api_key of {wanted.name!r} again, or null for none: the key that is kept belongs to another "
                "address.",
                param="providers",
            )
        return replace(described, api_key=before.api_key)

    def _made(self, saved: Saved) -> list[tuple[ProviderSettings, Provider]]:
        try:
            return self._provided.made(self._described(saved))
        except SettingsError as error:
            raise BadRequest(str(error), param="providers") from None

    async def _check(self, saved: Saved, providers: Providers) -> None:
        names = {provider.name for provider in providers.all} | (self._names() if self.looks else set())
        try:
            check_fallbacks(saved.fallbacks, names)
        except SettingsError as error:
            raise BadRequest(str(error), param="fallbacks") from None
        if saved.default_model and saved.default_model != self._saved.default_model:
            await providers.find(saved.default_model)

    async def _forget(self, made: Any) -> None:
        """Close what was made for a change that does not come."""
        for provider in made:
            if provider not in self.providers.all:
                await provider.close()

    def _refuse_pinned(self, name: str) -> None:
        if getattr(self._given, name):
            raise SettingPinned(name, _where(name, self._sources.get(name, "settings")), name)

    def _where_is(self, described: ProviderSettings) -> str:
        if self.looks:
            return f"the variable {described.key_env()}" if described.key_env() else "Holdfast itself: it is built in"
        return _where("providers", self._sources.get("providers", "settings"))


def with_saved(settings: Settings, sources: Mapping[str, str]) -> tuple[Settings, dict[str, str]]:
    """Return settings as a server with them would have them, with what was set while it ran, and their sources."""
    configured = Configured(settings, sources, os.environ, SavedFile(data_folder(settings)))
    changed = {"default_model": configured.default_model, "fallbacks": dict(configured.fallbacks)}
    saved = {name: "ui" for name in changed if configured._source(name) == "ui"}
    described = configured._described()
    saved |= {"providers": f"{sources['providers']}, ui"} if described != settings.providers else {}
    return replace(settings, providers=described, **changed), {**sources, **saved}


def check_fallbacks(fallbacks: Mapping[str, str], names: set[str]) -> None:
    """Refuse a name that could never answer."""
    for pair in fallbacks.items():
        for model in pair:
            provider, slash, rest = model.partition("/")
            if not slash or not rest or provider not in names:
                raise SettingsError(f"In fallbacks: {model!r} is not the name of a provider, a slash and a model.")


def _without(described: Sequence[ProviderSettings], others: Sequence[ProviderSettings]) -> tuple[ProviderSettings, ...]:
    names = {other.name for other in others}
    return tuple(each for each in described if each.name not in names)


def _address(described: ProviderSettings) -> tuple[str, str]:
    return described.dialect, described.behaviour().base_url


def _kind(source: str) -> Source:
    return "env" if source == "environment" else "flag" if source == "flag" else "file"


def _where(name: str, source: str) -> str:
    if source == "environment":
        return f"the variable {PREFIX}{name.upper()}"
    return "a flag of the command line" if source == "flag" else f"the settings file {source}".removesuffix(" settings")


def _discovered(described: ProviderSettings) -> Source:
    return "default" if described.dialect in BUILT_IN else "env"


def _without_secrets(base_url: str) -> str:
    """Return an address for people: what stands in its query may be a key."""
    parts = urlsplit(base_url)
    hidden = urlencode([(name, "hidden") for name, _ in parse_qsl(parts.query, keep_blank_values=True)])
    return urlunsplit(parts._replace(query=hidden))
