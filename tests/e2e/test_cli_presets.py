"""Presets and prompts on the command line: kept, used by `run` and `chat`, moved as a file, completed."""

import json

import pytest
import pytest_asyncio

from tests.e2e.test_cli import Shell, here
from tests.e2e.test_cli_tables import completed
from tests.requirements import requirement
from tests.support.native import Native
from tests.support.server import Server, provider
from tests.support.upstream import Upstream, answer

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    async with Upstream() as up:
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory, up):
    async with Server(tmp_path_factory.mktemp("presets"), [provider(up.base_url, models=["m", "other"])]) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def shell(server, tmp_path):
    yield Shell(tmp_path, here(server))
    async with server.client() as client:
        for kind in ("presets", "prompts"):
            for each in (await Native(client).get(f"/api/{kind}"))[kind]:
                await client.request("DELETE", f"/api/{kind}/{each['id']}")


async def done(shell: Shell, *args: str, stdin: str = "") -> str:
    """The output of a command that succeeds."""
    ended = await shell(*args, stdin=stdin)
    assert 0 == ended.code, ended.err
    return ended.out


@requirement("cli.presets")
async def test_a_preset_is_added_listed_shown_and_removed(shell):
    """A list can be read by a person and by a program; what is wrong is said in a line, and adds nothing."""
    added = ["presets", "add", "Writer", "-m", "up/m", "--system", "Write plainly.", "--param", "temperature=0.2"]
    assert "Added Writer.\n" == await done(shell, *added, "--param", "user=ann", "--default")
    assert "Added /sum.\n" == await done(shell, "presets", "add", "/sum", stdin="Sum up {{text}}.\n")
    listed = json.loads(await done(shell, "presets", "ls", "--json"))
    [writer], [prompt] = listed["presets"], listed["prompts"]
    assert ({"temperature": 0.2, "user": "ann"}, writer["id"]) == (writer["params"], listed["default"])
    assert ("Sum up {{text}}.", ["text"]) == (prompt["text"], prompt["variables"])
    lines = (await done(shell, "presets", "ls")).splitlines()
    assert ["Writer", "up/m", "default", "", "", "Write plainly."] == lines[1].split("\t")
    assert ["/sum", "", "", "", "", "Sum up {{text}}."] == lines[2].split("\t")
    assert "Write plainly." == json.loads(await done(shell, "presets", "show", "writer"))["system"]
    assert "Sum up {{text}}." == json.loads(await done(shell, "presets", "show", "/sum"))["text"]
    wrong = {
        ("add", "writer"): "already",
        ("add", "B", "-m", "nowhere/m"): "nowhere/m",
        ("add", "B", "--param", "x"): "NAME=VALUE",
        ("add", "B", "--group", "team"): "no group",
        ("add", "/b", "--system", "x", "--text", "y"): "--text",
        ("add", "/b"): "No text given",
        ("show", "nobody"): "presets ls",
        ("rm", "/nobody"): "presets ls",
    }
    for args, word in wrong.items():
        ended = await shell("presets", *args)
        assert (True, True) == (ended.code in (1, 2), word in ended.err), (args, ended)
    assert "Removed Writer.\nRemoved /sum.\n" == await done(shell, "presets", "rm", "Writer", "/sum")
    assert ["name\tmodel\tdefault\tgroup\tfrom\ttext"] == (await done(shell, "presets", "ls")).splitlines()


@requirement("cli.presets")
async def test_run_and_chat_use_a_preset(shell, up):
    """Its model, words and numbers reach the upstream, with a session and without; options go before it."""
    params = ["--param", "temperature=0.2"]
    await done(shell, "presets", "add", "writer", "-m", "up/other", "--system", "Write plainly.", *params)
    for args, model, system in (
        (["run", "Hi", "-p", "Writer"], "other", "Write plainly."),
        (["run", "Hi", "-p", "writer", "--keep"], "other", "Write plainly."),
        (["run", "Hi", "-p", "writer", "-m", "up/m", "--system", "Short."], "m", "Short."),
        (["chat", "-p", "writer"], "other", "Write plainly."),
        (["run", "Hi", "-c", "-p", "writer", "--system", "Long."], "other", "Long."),
    ):
        up.enqueue(answer("Fine."))
        assert "Fine." in await done(shell, *args, stdin="Hi\n" if args[0] == "chat" else "")
        sent = up.requests[-1].body
        assert (model, system, 0.2) == (sent["model"], sent["messages"][0]["content"], sent["temperature"]), args
    ended = await shell("run", "Hi", "-p", "nobody")
    assert (1, True) == (ended.code, "No preset 'nobody'" in ended.err)


@requirement("cli.presets")
async def test_a_prompt_is_sent_by_its_name_in_a_chat(shell, up):
    """What follows the name is its first variable, or follows its text; what is missing is asked."""
    await done(shell, "presets", "add", "/sum", "--text", "Sum up {{text}} in {{style}}.")
    await done(shell, "presets", "add", "/greet", "--text", "Say hello.")
    up.enqueue(answer("One."), answer("Two."))
    ended = await shell("chat", stdin="/prompts\n/SUM all of it\none {{line}}\n/greet To Ann.\n/nothing\n")
    assert (0, True) == (ended.code, "Unknown command or prompt /nothing." in ended.err)
    assert "/sum  Sum up {{text}} in {{style}}." in ended.err
    said = [request.body["messages"][-1]["content"] for request in up.requests[-2:]]
    assert ["Sum up all of it in one {{line}}.", "Say hello.\n\nTo Ann."] == said


@requirement("cli.presets")
async def test_a_file_moves_presets_and_says_what_became_of_each(shell):
    """What is there already is not replaced; an entry that was refused is told by the exit code."""
    await done(shell, "presets", "add", "a", "--system", "A.")
    file = shell.home / "kept.json"
    await done(shell, "presets", "export", str(file))
    exported = json.loads(file.read_text())
    assert exported == json.loads(await done(shell, "presets", "export"))
    exported["prompts"] = [{"name": "two words", "text": "x"}, {"name": "ok", "text": "x"}]
    ended = await shell("presets", "import", "-", stdin=json.dumps(exported))
    rows = [line.split("\t") for line in ended.out.splitlines()[1:]]
    assert (1, ["known", "refused", "added"]) == (ended.code, [row[2] for row in rows])
    assert ["a", "/two words", "/ok"] == [row[1] for row in rows]
    assert 1 == (await shell("presets", "import", "-", stdin="{")).code


@requirement("cli.presets")
async def test_names_are_completed(shell):
    """`-p` completes presets; the commands about them complete prompts too."""
    await done(shell, "presets", "add", "Writer")
    await done(shell, "presets", "add", "/write", "--text", "x")

    assert ["Writer"] == await completed(shell, "holdfast run -p wri")
    assert ["/write"] == await completed(shell, "holdfast presets rm /")
