"""The settings of a running server: their values, their sources, and changes from the UI.

A flag beats the environment, which beats the file, which beats the UI. The settings of the UI are saved in a file of
the data folder (saved_settings.py); several servers on one store keep them there (shared_settings.py). Keys leave this
module only to their providers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec.structs import replace

from ...errors import BadRequest, HoldfastError, ModelNotFound
from ...upstreams import Provider, Providers, ProviderState, judged_state
from ...upstreams.kinds import KindError, Notes, kind_names, kind_of
from ...upstreams.profiles import ProfileName
from ..config.settings import (
    AGENT,
    DISCOVERED,
    PREFIX,
    AgentSettings,
    McpSettings,
    ProviderSettings,
    Settings,
    SettingsError,
    source_name,
)
from ..config.settings_errors import suggestion
from .discovery import PLACES, Around, around
from .provider_factory import NEAR, Provided, proxy_name
from .saved_settings import Saved, SavedFile, SavedSettings, saved_file

logger = logging.getLogger(__name__)

SettingSource = Literal["flag", "env", "file", "ui", "found", "default"]

BUILT_IN = ("local", "scripted")
MOST_PROVIDERS = 100

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class SettingPinned(HoldfastError):
    """A value is set in a place that the UI cannot change."""

    code = "setting_pinned"
    status = 409
    type = "invalid_request_error"

    def __init__(self, what: str, where: str, param: str, advice: str = "Change it there.") -> None:
        super().__init__(f"{what} is set by {where}. {advice}")
        self.param = param


class ProviderChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider as the UI describes it."""

    name: str
    dialect: str = "openai"
    """A dialect other than the built-in ones."""
    profile: ProfileName | None = None
    base_url: str = ""
    api_key: str | msgspec.UnsetType | None = msgspec.UNSET
    """If left out, the stored key stays, unless the address changes. Null removes the key."""
    models: tuple[str, ...] | None = None
    max_runs: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    options: dict[str, Any] = {}
    """Options of its dialect."""


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the UI. A field that is left out stays; a given one replaces all that the UI had set there."""

    default_model: str | msgspec.UnsetType | None = msgspec.UNSET
    title_model: str | msgspec.UnsetType | None = msgspec.UNSET
    providers: tuple[ProviderChange, ...] | msgspec.UnsetType = msgspec.UNSET
    fallbacks: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class Configured:
    """The settings as they are now, and the providers that follow from them.

    `sources` has the source of each given setting, as from `load_with_sources`. `look_every` is how many
    seconds the result of a discovery is valid.
    """

    def __init__(
        self,
        settings: Settings,
        sources: Mapping[str, str],
        environ: Mapping[str, str],
        file: SavedSettings,
        *,
        look_every: float = NEAR,
        has_keys: Callable[[], bool] = lambda: False,
        notes: Notes | None = None,
    ) -> None:
        self.look_every = look_every
        self.has_keys = has_keys
        """Returns whether the server needs a key now: then it has users besides the one that started it."""
        self.version = 0
        """A number that grows with each change of the settings."""
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change of the settings."""
        self._given = settings
        self._sources = sources
        self._environ = environ
        self._file = file
        self._changing = asyncio.Lock()
        self._saved = file.read()
        self._found: tuple[ProviderSettings, ...] = ()
        self._provided = Provided(settings, environ, look_every, notes)
        self._strangers: dict[str, int] = {}
        self._names_none = sources.get("providers") == DISCOVERED  # the settings name no providers
        self.providers = Providers(self._provided.keep(self._provided.made(self.provider_settings())))
        check_fallbacks(settings.fallbacks, self._names())
        check_aliases(settings.aliases)
        check_models_named(settings, self._names())
        self.providers.aliases = settings.aliases

    # current values

    @property
    def looks(self) -> bool:
        """Whether model servers on this machine are discovered and used."""
        if self._given.discover == "auto":
            return self._names_none and not self.has_keys()
        return self._given.discover

    @property
    def default_model(self) -> str:
        """The model of a session that names none; empty if none is set."""
        return self._given.default_model or self._saved.default_model

    @property
    def title_model(self) -> str:
        """The model that titles chats; empty for the beginning of the first message."""
        return self._given.title_model or self._saved.title_model

    @property
    def fallbacks(self) -> Mapping[str, str]:
        """The fallback of each model."""
        return self._given.fallbacks or self._saved.fallbacks

    @property
    def given(self) -> Settings:
        """The settings of file and environment."""
        return self._given

    @property
    def with_equipment(self) -> Settings:
        """The settings of file and environment, with the agents and MCP servers of the UI after their own."""
        given, saved = self._given, self._saved
        agents, servers = _without(saved.agents, given.agents), _without(saved.mcp, given.mcp)
        return replace(given, agents=(*given.agents, *agents), mcp=(*given.mcp, *servers))

    def source_of(self, described: AgentSettings | McpSettings) -> SettingSource:
        """Return the source of an agent or an MCP server."""
        name = "agents" if isinstance(described, AgentSettings) else "mcp"
        return _kind(self._sources.get(name, "settings")) if described in getattr(self._given, name) else "ui"

    def provider_settings(self, saved: Saved | None = None) -> tuple[ProviderSettings, ...]:
        """Return every provider; those of the settings come first."""
        given, found = self._given.providers, self._found if self.looks else ()
        set_here = _without((saved or self._saved).providers, given)
        built_in = tuple(each for each in given if self._is_added(each) and each.dialect in BUILT_IN)
        named = _without(given, built_in)
        return (*named, *set_here, *_without(_without(found, given), set_here), *built_in)

    def found_names(self) -> frozenset[str]:
        """Return the names of the providers that come from discovery alone."""
        return frozenset(each.name for each in self.provider_settings() if self._source_of(each) == "found")

    def described(self, provider: str) -> ProviderSettings | None:
        """Return a provider as it is set up; None for one that is not there."""
        return next((each for each in self.provider_settings() if each.name == provider), None)

    def dialect(self, provider: str) -> str | None:
        """Return the dialect of a provider's upstream."""
        described = self.described(provider)
        return None if described is None else described.dialect

    def limit_of_tokens(self, provider: str) -> str:
        """Return an upstream's name of the token limit: OpenAI's newer models refuse the older one."""
        described = self.described(provider)
        return "max_completion_tokens" if described is not None and described.profile == "openai" else "max_tokens"

    def _names(self) -> set[str]:
        """Return the names of all providers, including those that may yet be discovered."""
        names = {described.name for described in self.provider_settings()}
        return names | {place.name for place in PLACES} if self.looks else names

    def shown(self, *, to_admin: bool) -> dict[str, Any]:
        """Return the settings as JSON: never a key, and the addresses of upstreams for admins only."""
        return {
            "default_model": self.default_model or None,
            "title_model": (self.title_model or None) if to_admin else None,
            "fallbacks": dict(self.fallbacks),
            "providers": [self._shown(described, to_admin) for described in self.provider_settings()],
            "sources": {name: self.source(name) for name in ("default_model", "title_model", "fallbacks")},
            "editable": to_admin,
        }

    def _shown(self, described: ProviderSettings, to_admin: bool) -> dict[str, Any]:
        source = self._source_of(described)
        return {
            "name": described.name,
            "dialect": described.dialect,
            "profile": described.profile,
            "base_url": without_secrets(described.address()) if to_admin else None,
            "proxy": proxy_name(described, self._environ) if to_admin else None,
            "models": described.models,
            "max_runs": described.max_runs,
            "options": described.options if to_admin and source == "ui" else {},
            "key_set": described.key(self._environ) is not None,
            "source": source,
            "editable": to_admin and source == "ui",
        }

    def source(self, name: str) -> SettingSource:
        """Return the source of a setting."""
        if getattr(self._given, name):
            return _kind(self._sources.get(name, "settings"))
        return "ui" if getattr(self._saved, name) else "default"

    def _source_of(self, described: ProviderSettings) -> SettingSource:
        if described in self._given.providers:
            return _discovered(described) if self._is_added(described) else self._kind_of_providers()
        return "ui" if described in self._saved.providers else "found"

    def _is_added(self, described: ProviderSettings) -> bool:
        """Return whether a provider is not named in the settings: it is built in, or an API key for it exists."""
        return self._sources.get(source_name(described)) == DISCOVERED

    def _kind_of_providers(self) -> SettingSource:
        return _kind(self._sources.get("providers", "settings"))

    # discovery

    async def look(self) -> None:
        """Run the discovery. A server that has disappeared stays a provider, and is unavailable until it returns.

        One whose port another user of the machine has taken is dropped.
        """
        if not self.looks and not self._found:
            return
        nothing = Around((), {})
        found, strangers = await asyncio.to_thread(around, self._environ, self._found) if self.looks else nothing
        known = {each.name: each for each in (*self._found, *found) if self.looks and each.name not in strangers}
        async with self._changing:
            self._found = tuple(known[place.name] for place in PLACES if place.name in known)
            self.providers.change(self._provided.keep(self._provided.made(self.provider_settings())))
        self._warn_of(strangers)
        for provider in self.providers.all:
            if provider.name in known:
                await provider.list_models()  # asks again when that is due

    def _warn_of(self, strangers: dict[str, int]) -> None:
        for name, uid in strangers.items() - self._strangers.items():
            logger.warning(
                "The server on the port of %s belongs to the user %d and is not used: only servers of root, of the "
                "user ollama and of this user are used. Set it up as a provider if you trust it.",
                name,
                uid,
            )
        self._strangers = strangers

    # changing

    async def change(self, requested: Change) -> None:
        """Change the settings: check them as a whole, save them, and use them for every new run."""
        await asyncio.to_thread(_check_dialects, requested)
        async with self._changing:
            await self._apply_news()
            saved = self._changed(requested)
            async with self._made_for(self.provider_settings(saved)) as made:
                await self._check(saved, Providers([provider for _, provider in made]))
                await self._file.save(saved)
            self._use(saved, made)

    async def change_saved(self, change: Callable[[Saved], Saved]) -> None:
        """Change what the UI has saved. `change` gets the newest, and raises what is wrong."""
        async with self._changing:
            await self._apply_news()
            saved = change(self._saved)
            await self._file.save(saved)
            self._use(saved, self._provided.made(self.provider_settings(saved)))

    async def seal(self) -> None:
        """Seal settings that were saved in clear, or with an old key, before the server starts."""
        async with self._changing:
            await self._file.seal()

    async def catch_up(self) -> None:
        """Apply changes that were made through another server."""
        async with self._changing:
            await self._apply_news()

    async def _apply_news(self) -> None:
        saved = await self._file.news()
        if saved is None:
            return
        if saved != self._saved:
            self._use(saved, self._provided.made(self.provider_settings(saved)))
        self._file.used()

    def _use(self, saved: Saved, made: list[tuple[ProviderSettings, Provider]]) -> None:
        self._saved = saved
        self.version += 1
        self.providers.change(self._provided.keep(made))
        self.on_change()

    async def reload(self, settings: Settings, sources: Mapping[str, str]) -> None:
        """Apply new settings of file and environment: all, or none if one of them is invalid."""
        async with self._changing:
            before = self._given, self._sources, self._names_none
            self._given, self._sources = settings, sources
            self._names_none = sources.get("providers") == DISCOVERED
            try:
                async with self._made_for(self.provider_settings()) as made:
                    check_fallbacks(settings.fallbacks, self._names())
                    check_aliases(settings.aliases)
                    check_models_named(settings, self._names())
            except BaseException:
                self._given, self._sources, self._names_none = before
                raise
            self.version += 1
            self.providers.aliases = settings.aliases
            self.providers.change(self._provided.keep(made))
            self.on_change()

    async def test(self, requested: ProviderChange) -> ProviderState:
        """Request the models of a provider without saving it. Models that are listed by hand are requested too."""
        await asyncio.to_thread(_check_dialects, Change(providers=(requested,)))
        (described,) = self._changed_providers((msgspec.structs.replace(requested, models=None),))
        with _bad_providers():
            provider = self._provided.anew(described)
        try:
            return await judged_state(provider)
        finally:
            await provider.close()

    def _changed(self, requested: Change) -> Saved:
        saved = self._saved
        given = {name: getattr(requested, name) for name in ("default_model", "title_model", "fallbacks")}
        for name, value in given.items():
            if value is not msgspec.UNSET:
                self._refuse_pinned(name)
                saved = replace(saved, **{name: value or type(getattr(saved, name))()})
        if not isinstance(requested.providers, msgspec.UnsetType):
            saved = replace(saved, providers=self._changed_providers(requested.providers))
        return saved

    def _changed_providers(self, requested: Sequence[ProviderChange]) -> tuple[ProviderSettings, ...]:
        names = [each.name for each in requested]
        if len(set(names)) < len(names):
            raise BadRequest("Two providers have the same name.", param="providers")
        if len(names) > MOST_PROVIDERS:
            raise BadRequest(f"At most {MOST_PROVIDERS} providers can be set up.", param="providers")
        pinned = {described.name: described for described in self._given.providers}
        for name in names:
            if not _NAME.fullmatch(name):
                raise BadRequest(
                    "A provider name must have 1 to 64 letters, digits, dots, dashes and underscores.",
                    param="providers",
                )
            if name in pinned:
                where = self._where_is(pinned[name])
                raise SettingPinned(f"The provider {name!r}", where, "providers", "Choose another name.")
        return tuple(self._changed_provider(each) for each in requested)

    def _changed_provider(self, requested: ProviderChange) -> ProviderSettings:
        described = ProviderSettings(
            requested.name,
            dialect=requested.dialect,
            profile=requested.profile if requested.dialect == "openai" else None,
            base_url=requested.base_url.strip(),
            models=requested.models,
            max_runs=requested.max_runs,
            options=requested.options,
        )
        if not isinstance(requested.api_key, msgspec.UnsetType):
            return replace(described, api_key=(requested.api_key or "").strip())
        before = next((each for each in self._saved.providers if each.name == requested.name), None)
        if before is None or not before.api_key:
            return described
        if _address(before) != _address(described):
            raise BadRequest(
                f"Give the api_key of {requested.name!r} again, or null for none: the stored key belongs to another "
                "address.",
                param="providers",
            )
        return replace(described, api_key=before.api_key)

    @asynccontextmanager
    async def _made_for(
        self, described: Sequence[ProviderSettings]
    ) -> AsyncGenerator[list[tuple[ProviderSettings, Provider]]]:
        """Create the providers of a change that is checked within the block. If it fails, the new ones are closed."""
        made: list[tuple[ProviderSettings, Provider]] = []
        try:
            for each in described:
                made += self._made_of((each,))
            yield made
        except BaseException:
            await self._forget(provider for _, provider in made)
            raise

    def _made_of(self, described: Sequence[ProviderSettings]) -> list[tuple[ProviderSettings, Provider]]:
        with _bad_providers():
            return self._provided.made(described)

    async def _check(self, saved: Saved, providers: Providers) -> None:
        names = {provider.name for provider in providers.all} | (self._names() if self.looks else set())
        try:
            check_fallbacks(saved.fallbacks, names)
        except SettingsError as error:
            raise BadRequest(str(error), param="fallbacks") from None
        if saved.default_model and saved.default_model != self._saved.default_model:
            await self._check_model(saved.default_model, providers.with_added(self.providers.added))
        if saved.title_model and saved.title_model != self._saved.title_model:
            await self._check_model(saved.title_model, providers)

    async def _check_model(self, name: str, providers: Providers) -> None:
        """Refuse a model that does not exist. An upstream without a list of models may have any."""
        provider, model, _ = await providers.find(name)
        if provider.demo or model in await provider.list_models():
            return
        if not (state := await judged_state(provider)).ok:
            raise ModelNotFound(
                f"{model!r} cannot be checked: {state.why or f'{provider.name} cannot be used.'} Try again when it "
                "answers, or list its models in the provider's settings."
            )

    async def _forget(self, made: Any) -> None:
        """Close the providers that were made for a change that failed."""
        for provider in made:
            if provider not in self.providers.all:
                await provider.close()

    def _refuse_pinned(self, name: str) -> None:
        if getattr(self._given, name):
            raise SettingPinned(name, _where(name, self._sources.get(name, "settings")), name)

    def _where_is(self, described: ProviderSettings) -> str:
        if self._is_added(described):
            return f"the variable {described.key_env()}" if described.key_env() else "Holdfast (built in)"
        return _where("providers", self._sources.get("providers", "settings"))


@contextmanager
def _bad_providers() -> Iterator[None]:
    """Refuse a request whose providers cannot be made."""
    try:
        yield
    except SettingsError as error:
        raise BadRequest(str(error), param="providers") from None


def with_saved(settings: Settings, sources: Mapping[str, str]) -> tuple[Settings, dict[str, str]]:
    """Return the settings that a server would use, those of the UI included, and their sources.

    The settings of the UI that are in a shared store are left out.
    """
    saved_here = SavedFile(None) if settings.store else saved_file(settings, os.environ)
    configured = Configured(settings, sources, os.environ, saved_here)
    changed = {name: getattr(configured, name) for name in ("default_model", "title_model")}
    changed |= {"fallbacks": dict(configured.fallbacks)}
    saved = {name: "ui" for name in changed if configured.source(name) == "ui"}
    described = configured.provider_settings()
    saved |= {"providers": f"{sources['providers']}, ui"} if described != settings.providers else {}
    return replace(settings, providers=described, **changed), {**sources, **saved}


def check_fallbacks(fallbacks: Mapping[str, str], names: set[str]) -> None:
    """Refuse a name of a model that has no provider."""
    for pair in fallbacks.items():
        for model in pair:
            provider, slash, rest = model.partition("/")
            if not slash or not rest:
                raise SettingsError(f"In fallbacks: {model!r} is not PROVIDER/MODEL.")
            if provider not in names:
                raise SettingsError(f"In fallbacks: no provider named {provider!r}.{suggestion(provider, names)}")


def check_aliases(aliases: Mapping[str, str]) -> None:
    """Refuse an alias of another alias, or of a model without a provider."""
    for alias, model in aliases.items():
        if not alias or not model or model in aliases:
            raise SettingsError(f"In aliases: {alias!r} = {model!r} must name a model, not another alias.")


def check_models_named(settings: Settings, names: set[str]) -> None:
    """Refuse a model of a provider that does not exist. A bare name is looked up at each request."""
    for setting, known in (("default_model", names | {AGENT}), ("title_model", names)):
        model = getattr(settings, setting)
        provider, slash, _ = model.partition("/")
        if slash and model not in settings.aliases and provider not in known:
            raise SettingsError(f"In {setting}: no provider named {provider!r}.{suggestion(provider, known)}")


def _check_dialects(requested: Change) -> None:
    """Refuse a dialect that is not installed, has no upstream, or does not have an option. Blocks on the disk."""
    for each in requested.providers or ():
        offered = [name for name in kind_names() if name not in BUILT_IN]
        if each.dialect not in offered:
            raise BadRequest(f"The dialect of a provider must be one of {', '.join(offered)}.", param="providers")
        try:
            kind_of(each.dialect).options_from(each.options)
        except KindError as error:
            raise BadRequest(f"A provider cannot be added: {error}.", param="providers") from None


Named = TypeVar("Named", ProviderSettings, AgentSettings, McpSettings)


def _without(described: Sequence[Named], others: Sequence[Named]) -> tuple[Named, ...]:
    names = {other.name for other in others}
    return tuple(each for each in described if each.name not in names)


def _address(described: ProviderSettings) -> tuple[str, str]:
    return described.dialect, described.address()


def _kind(source: str) -> SettingSource:
    return "env" if source == "environment" else "flag" if source == "flag" else "file"


def _where(name: str, source: str) -> str:
    if source == "environment":
        return f"the variable {PREFIX}{name.upper()}"
    return "a flag of the command line" if source == "flag" else f"the settings file {source}".removesuffix(" settings")


def _discovered(described: ProviderSettings) -> SettingSource:
    return "default" if described.dialect in BUILT_IN else "env"


def without_secrets(base_url: str) -> str:
    """Return a URL without its query and user, either of which may be a key."""
    parts = urlsplit(base_url)
    hidden = urlencode([(name, "hidden") for name, _ in parse_qsl(parts.query, keep_blank_values=True)])
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, hidden, parts.fragment))
