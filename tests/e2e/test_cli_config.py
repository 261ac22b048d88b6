"""`holdfast config`, the key of a client, and names that were misspelt."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from holdfast.server.config.settings import SCALARS, TABLES
from tests.e2e.test_cli import Shell, here
from tests.requirements import requirement
from tests.support.ports import free_port
from tests.support.server import Server

SCRIPTED = {"name": "scripted", "dialect": "scripted"}
KEY = "a-key-of-sixteen-and-more"
OIDC = 'public_url = "https://c.example"\n[oidc]\nissuer = "https://id.example"\nclient_id = "c"\n'


@pytest.fixture
def alone(tmp_path):
    return Shell(tmp_path, {"HOLDFAST_PORT": str(free_port())})


# check: what a start refuses


@requirement("ops.config-check")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f'{OIDC}client_secret_env = "OIDC_SECRET"', "OIDC_SECRET is not set"),
        ('[[webhooks]]\nurl = "https://example.com/hooks"\nsecret_env = "HOOK_SECRET"', "HOOK_SECRET is not set"),
        ('local_model = "no/such.gguf"', "no/such.gguf"),
        ('default_model = "openai/gpt-5"', "no provider named 'openai'"),
        ('secret_key_file = "no-such-file"', "no-such-file"),
        ('tls_cert = "no-such.pem"', "no-such.pem"),
        ('[[providers]]\nname = "x"', "Provider 'x': base_url is not set."),
        ('[agent_users]\nghost = ["ann"]', "ghost"),
    ],
)
async def test_what_a_start_refuses_the_check_refuses_in_the_same_words(alone, text, told):
    """The check said "valid" of a file with which the next start ended."""
    alone.settings(text)
    checked = await alone("config", "check")
    served = await alone("serve", "--port", "0")

    assert (1, 1) == (checked.code, served.code), checked.out + served.out
    refused = re.sub(r" \(holdfast explain \w+\)$", "", served.err.splitlines()[-1].removeprefix("Error: "))
    assert told in refused
    assert refused in checked.err.splitlines()


@requirement("ops.config-check")
async def test_a_misspelt_name_hides_no_other_problem_and_the_file_is_named(alone):
    """Two unknown names hid a provider without an address, and the file."""
    file = alone.settings('prot = 1\n[[providers]]\nname = "x"\nmodles = ["m"]\n')
    shown = await alone("config", "check")

    lines = shown.err.splitlines()
    assert [
        f"Unknown setting 'prot' in {file}. Did you mean 'port'?",
        f"Unknown setting 'modles' in [[providers]] number 1 in {file}. Did you mean 'models'?",
        "Provider 'x': base_url is not set.",
        f"3 problems. Settings file: {file}",
    ] == lines


IN_EACH_TABLE = """
grace = "long"
default_model = "nobody/m"
[[providers]]
name = "x"
[[providers]]
name = "y"
dialect = "scripted"
max_runs = "many"
[[keys]]
name = "bad name!"
[[keys]]
name = "ann"
[oidc]
client_id = "c"
[[webhooks]]
url = "ftp://x"
secret_env = "S"
[[agents]]
name = "a"
model = "y/m"
tools = ["fly"]
[[agents]]
name = "b"
model = "y/m"
tools = ["mcp:late", "mcp:nowhere"]
[[mcp]]
name = "both"
command = "x"
url = "https://x.example"
[[mcp]]
name = "late"
timeout = "long"
[fallbacks]
"y/a" = "nobody/b"
[aliases]
m = "bare"
[prices]
"y/m" = { input = "much" }
"y/4.1" = 3
[on_break]
"y/m" = "explode"
[log_levels]
"holdfast.nix" = "debug"
"""


@requirement("ops.config-check")
async def test_every_problem_of_every_table_is_told_at_once(alone):
    """One value of the wrong type hid what was wrong with every other table, and one key or agent hid the next."""
    file = alone.settings(IN_EACH_TABLE)
    *told, count = (await alone("config", "check")).err.replace(f" in {file}", "").splitlines()

    assert [
        "grace must be a number without a unit, such as 1.",
        "max_runs of [[providers]] number 2 must be a number without a unit, such as 0.",
        "[oidc] has no 'issuer', which it needs.",
        "timeout of [[mcp]] number 2 must be a number without a unit, such as 60.",
        'input of [prices."y/m"] must be a number without a unit, such as 0.',
        '"y/4.1" of [prices] must be a table.',
        '"y/m" of [on_break] must be continue or settle.',
        "The table `oidc` needs the setting `public_url`, the address to which the provider sends people back.",
        "The setting `aliases.m` names the model 'bare' without its provider. Write `provider/bare`.",
        "Provider 'x': base_url is not set.",
        "In webhooks: a url must be an http or https address without a user name.",
        "In keys: 'bad name!' is not a valid name. It must have 1 to 64 letters, digits or any of . _ @ -.",
        "Key 'ann': neither sha256 nor key_env is set.",
        "MCP server 'both' needs either a command or a url.",
        "Agent 'a': unknown tool 'fly'. Use files, shell, ask_user, mcp:SERVER or MODULE:NAME.",
        "Agent 'b': no [[mcp]] server named 'nowhere'.",
        "In fallbacks: no provider named 'nobody'.",
        "log_levels: there is no module 'holdfast.nix'. Did you mean 'holdfast.ids'?",
        "In default_model: no provider named 'nobody'.",
    ] == told
    assert count.startswith("19 problems.")


# init


@requirement("ops.config-init")
async def test_a_written_file_has_every_setting_and_changes_none(alone, tmp_path):
    """Whoever writes the first file should not have to collect it from six pages."""
    before = json.loads((await alone("config", "show", "--json")).out)
    made = await alone("config", "init")
    file = tmp_path / "config" / "holdfast" / "holdfast.toml"
    text = file.read_text()
    again = await alone("config", "init")
    checked = await alone("config", "check")

    assert (0, f"Wrote {file}.\n") == (made.code, made.out)
    assert 0o600 == file.stat().st_mode & 0o777
    assert (1, True) == (again.code, "already exists" in again.err)
    assert 0 == checked.code
    assert before == json.loads((await alone("config", "show", "--json")).out)
    for name in [field.name for field in SCALARS]:
        assert re.search(rf"^# {name} = ", text, re.MULTILINE), name
    for name in TABLES:
        assert re.search(rf"^# (\[{name}\]|\[\[{name}\]\])$", text, re.MULTILINE), name


@requirement("ops.config-init")
async def test_every_line_of_the_written_file_can_be_used(alone, tmp_path):
    """An example in a comment is what people take the sign away from."""
    text = (await alone("config", "init", "-")).out
    used = re.sub(r"^# (?=\[|[\w\".*/-]+ = )", "", text, flags=re.MULTILINE)
    file = alone.settings(used)
    named = dict.fromkeys(re.findall(r'(?:_env|env_from) = \[?"(\w+)"', used), "x" * 40)
    shown = await alone("config", "show", "--json", HOLDFAST_PUBLIC_URL="https://chat.example.com", **named)

    assert 0 == shown.code, shown.err
    assert {*TABLES} <= tomllib.loads(file.read_text()).keys()


# show


@requirement("ops.config-show")
async def test_what_is_shown_is_a_settings_file(alone, tmp_path):
    """It was a table of Python's own texts, which nothing could read."""
    alone.settings(
        'grace = 2\nallowed_hosts = ["a.example"]\nretention_days = inf\n[budget]\ntokens_per_day = 5\n[aliases]\n'
        'fast = "up/m"\n[[providers]]\nname = "up"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["m"]\n'
        f'[prices]\n"up/m" = {{ input = 0.5, output = 2 }}\n{OIDC.replace("public_url", "#")}'
        '[proxy]\naddresses = ["10.0.0.5"]\n'
    )
    public = {"HOLDFAST_PUBLIC_URL": "https://c.example"}
    shown = await alone("config", "show", **public)
    values = tomllib.loads(shown.out)
    alone.settings(shown.out)
    again = await alone("config", "show")

    assert (2.0, ["a.example"], float("inf")) == (values["grace"], values["allowed_hosts"], values["retention_days"])
    assert {"tokens_per_day": 5} == values["budget"]
    assert [("up", ["m"])] == [(each["name"], each["models"]) for each in values["providers"]]
    assert ("https://id.example", ["10.0.0.5"]) == (values["oidc"]["issuer"], values["proxy"]["addresses"])
    assert 0.5 == values["prices"]["up/m"]["input"]
    assert "https://c.example" == values["public_url"]
    assert values == tomllib.loads(again.out)


@requirement("ops.config-show")
async def test_json_has_values_of_their_types(alone):
    """A port is a number."""
    rows = json.loads((await alone("config", "show", "--json")).out)
    values = {row["setting"]: row["value"] for row in rows}

    assert (int(alone.env["HOLDFAST_PORT"]), False, []) == (values["port"], values["offline"] is None, values["keys"])


# the key of a client


@requirement("cli.client-key")
async def test_the_key_of_a_client_is_not_that_of_a_server(tmp_path):
    """One variable for both made every server that was started in the shell of a client demand that client's key."""
    async with Server(tmp_path / "data", [SCRIPTED], env={"HOLDFAST_API_KEY": KEY}) as server:
        shell = Shell(tmp_path, {})
        hello = ("run", "hello", "-m", "scripted/echo")
        with_it = await shell(*hello, "--url", server.url, HOLDFAST_CLIENT_KEY=KEY)
        with_that_of_a_server = await shell(*hello, "--url", server.url, HOLDFAST_API_KEY=KEY)
        at_home = await shell(*hello, **here(server), HOLDFAST_API_KEY=KEY)
    async with (
        Server(tmp_path / "other", [SCRIPTED], env={"HOLDFAST_CLIENT_KEY": KEY}) as server,
        server.client() as ann,
    ):
        open_to_all = await ann.get("/api/me")

    assert (0, "hello\n") == (with_it.code, with_it.out)
    assert (1, True) == (with_that_of_a_server.code, "Set HOLDFAST_CLIENT_KEY" in with_that_of_a_server.err)
    assert (0, "hello\n") == (at_home.code, at_home.out)
    assert 200 == open_to_all.status


# misspelt commands


@requirement("cli.misspelt")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("serv",), "serve"),
        (("version",), "--version"),
        (("help",), "--help"),
        (("runs", "lst"), "ls"),
        (("config", "chek"), "check"),
    ],
)
async def test_a_misspelt_command_is_answered_with_the_one_that_was_meant(alone, typed, meant):
    """Those below a command had help, those above it none."""
    shown = await alone(*typed)

    assert (2, True) == (shown.code, f"Did you mean '{meant}'?" in shown.err)


@requirement("cli.misspelt")
@pytest.mark.parametrize(
    ("typed", "told", "usage"),
    [
        ("runs show", "Missing argument 'RUN'.", "runs show [OPTIONS] RUN (more: holdfast runs show --help)"),
        ("key add", "No such command 'add'.", "key [OPTIONS] COMMAND [ARGS]... (commands: budget, ls, new, revoke)"),
        (
            "serve --nodes many",
            "Invalid value for '--nodes': 'many' is not a valid whole number.",
            "serve [OPTIONS] (more: holdfast serve --help)",
        ),
    ],
)
async def test_a_wrong_command_line_is_answered_with_what_is_wrong_and_what_to_type(alone, typed, told, usage):
    """In two lines; and a command that does not exist with those that do."""
    shown = await alone(*typed.split())
    lines = shown.err.replace("python -m holdfast", "holdfast").splitlines()

    assert (2, [f"Usage: holdfast {usage}", f"Error: {told}"]) == (shown.code, lines)


@requirement("ops.config-check")
async def test_a_settings_file_that_is_not_there_is_not_announced(alone, tmp_path):
    """It was named as the one in use, and then as not found."""
    shown = await alone("serve", "--config", str(Path(tmp_path / "nofile.toml")))

    assert (1, False) == (shown.code, "Settings file: " in shown.err)
    assert "Settings file not found" in shown.err
