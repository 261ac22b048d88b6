"""Kinds of providers: ours, and those that a package adds by an entry point."""

import asyncio
import importlib
import re
import sys
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings, SettingsError, load
from holdfast.server.live.provider_factory import make_provider
from holdfast.store.memory import MemoryStore
from holdfast.upstreams import ChatRequest, Provider
from holdfast.upstreams.kinds import KindError, ProviderKind, kind_names, kind_of
from tests.requirements import requirement
from tests.support.served import NO_HOME, Served

PAGE = (Path(__file__).parents[2] / "docs" / "extending" / "upstream.md").read_text(encoding="utf-8")
EXAMPLE, CHECK = re.findall(r"```python\n# \w+\.py\n(.*?)```", PAGE, re.DOTALL)

OURS = ["openai", "openai-responses", "anthropic", "gemini", "ollama", "bedrock", "local", "scripted"]


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package with one module and entry points, as pip would."""
    names = []

    def install(name, code, entries):
        (tmp_path / f"{name}.py").write_text(code)
        told = tmp_path / f"{name}-1.0.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{entry} = {value}" for entry, value in entries.items()]
        (told / "entry_points.txt").write_text("\n".join(["[holdfast.upstreams]", *lines, ""]))
        names.append(name)
        importlib.invalidate_caches()

    monkeypatch.syspath_prepend(str(tmp_path))
    kind_of.cache_clear()
    yield install
    kind_of.cache_clear()
    for name in names:
        sys.modules.pop(name, None)


def made(**fields) -> Provider:
    return make_provider(ProviderSettings("mine", **fields), Settings(), {})


@requirement("upstream.kinds")
async def test_the_example_of_the_documentation_keeps_the_contract(install):
    """What the page shows is what a reader copies."""
    install("acme_holdfast", EXAMPLE, {"acme": "acme_holdfast:KIND"})
    example = {}
    exec(compile(CHECK, "test_acme.py", "exec"), example)

    await example["test_acme_keeps_the_contract"]()


@requirement("upstream.kinds")
async def test_a_package_adds_a_kind_that_the_settings_name(install, tmp_path):
    """Its own options are checked, and its models answer on every wire like any other's."""
    install(
        "plugged",
        "import msgspec\n"
        "from holdfast.events import Finish, Text\n"
        "from holdfast.upstreams.kinds import ProviderKind\n"
        "class Options(msgspec.Struct):\n"
        "    greeting: str\n"
        "class Plugged:\n"
        "    prefills = think = demo = False\n"
        "    models = ('m',)\n"
        "    def __init__(self, setup): self.name, self.greeting = setup.name, setup.options.greeting\n"
        "    async def answer(self, request, out): out.emit([Text(self.greeting), Finish('stop')])\n"
        "    async def list_models(self): return ['m']\n"
        "    async def close(self): pass\n"
        "KIND = ProviderKind(make=Plugged, options=Options, by_http=False)\n",
        {"plug": "plugged:KIND"},
    )
    file = tmp_path / "holdfast.toml"
    file.write_text('[[providers]]\nname = "p"\ndialect = "plug"\noptions = { greeting = "Ahoy" }\n')
    settings = await asyncio.to_thread(load, {}, {}, file)
    await asyncio.to_thread(kind_of, "plug")

    async with Served(create_app(settings, MemoryStore(), NO_HOME)) as served, served.client() as client:
        body = {"model": "p/m", "messages": [{"role": "user", "content": "Hello"}]}
        answered = await client.post("/v1/chat/completions", body)

    assert "Ahoy" == (await answered.json())["choices"][0]["message"]["content"]
    assert [*OURS, "plug"] == await asyncio.to_thread(kind_names)


@requirement("upstream.kinds")
@pytest.mark.parametrize("name", OURS)
def test_our_own_kinds_are_loaded_as_any_other(name):
    """There is one way to make a provider."""
    assert isinstance(kind_of(name), ProviderKind)


@requirement("upstream.kinds")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dialect": "klingon"}, "there is no dialect 'klingon'; there are openai, openai-responses, anthropic"),
        ({"dialect": "ollama", "options": {"kep_alive": 5}}, "no option 'kep_alive'; there are keep_alive, think"),
        ({"dialect": "ollama", "options": {"keep_alive": []}}, "in options: Expected `int | str | null`"),
        ({"dialect": "scripted", "options": {"a": 1}}, "there is no option 'a'; it has none"),
        ({"dialect": "ollama", "base_url": "http://h/v1"}, "base_url must end before /v1 and /api"),
        ({"dialect": "gemini", "base_url": "ftp://h"}, "base_url must begin with http:// or https://"),
    ],
)
def test_what_a_kind_does_not_take_is_refused_by_name(fields, message):
    """At the start, and not when the first question comes."""
    with pytest.raises(SettingsError, match=r"^Provider 'mine': ") as raised:
        made(**fields)

    assert message in str(raised.value)


@requirement("upstream.kinds")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise OSError('no licence')", "cannot be loaded: OSError('no licence')"),
        ("KIND = 7", "is no ProviderKind"),
        ("", "cannot be loaded: AttributeError"),
    ],
)
def test_a_package_that_cannot_be_loaded_is_named(install, code, message):
    """Whoever installed it has to know which of many packages it is."""
    install("broken_kind", code, {"broken": "broken_kind:KIND"})

    with pytest.raises(KindError, match="the dialect 'broken' \\(broken_kind:KIND\\)") as raised:
        kind_of("broken")

    assert message in str(raised.value)


@requirement("upstream.kinds")
def test_a_package_cannot_take_over_a_kind_of_ours(install):
    """The key of a service would go to whoever wrote the package."""
    install("taker", "KIND = 7", {"openai": "taker:KIND"})

    assert isinstance(kind_of("openai"), ProviderKind)
    assert OURS == kind_names()


@requirement("upstream.kinds")
def test_a_dialect_that_is_not_installed_is_refused_when_the_settings_are_read(tmp_path):
    """With the file, so that it can be mended."""
    file = tmp_path / "holdfast.toml"
    file.write_text('[[providers]]\nname = "p"\ndialect = "klingon"\n')

    with pytest.raises(HoldfastError, match=r"Provider 'p' in .*: unknown dialect 'klingon'.*install the package"):
        load({}, {}, file)


async def test_the_key_of_a_service_goes_to_its_own_address_only():
    """`GEMINI_API_KEY` is Google's, and not for a gateway that the settings name."""
    keys = {"GEMINI_API_KEY": "g", "ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"}
    for dialect, key in (("gemini", "g"), ("anthropic", "a"), ("openai-responses", "o"), ("ollama", None)):
        assert key == ProviderSettings("p", dialect=dialect).key(keys)
        assert ProviderSettings("p", dialect=dialect, base_url="http://elsewhere.example").key(keys) is None


def test_a_request_has_what_a_provider_is_promised():
    """The page names these."""
    assert {"model", "messages", "params"} <= set(ChatRequest.__struct_fields__)
