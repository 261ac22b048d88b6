"""`holdfast compare` as a person and a script use it: side by side on a terminal, in a pipe, and over a set."""

import asyncio
import csv
import io
import json
import re
import signal
from html.parser import HTMLParser

import pytest
import pytest_asyncio

from tests.e2e.test_cli import Shell, Terminal, ended
from tests.support.native import Native
from tests.support.server import Server, free_port, provider
from tests.support.upstream import Delta, Done, Finish, Gate, Headers, Role, Status, Upstream, UsageChunk, answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPTED = '[[providers]]\nname = "scripted"\ndialect = "scripted"\n'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up():
    end = [Finish(), UsageChunk(), Done()]
    async with Upstream(answer("It is 42.")) as up:
        up.models |= {
            "a": answer("It is 42."),
            "b": answer("I think it is 41."),
            "gated": [Headers(), Role(), Delta("one "), Gate("pane"), Delta("two"), *end],
            "held": [Gate("held"), *answer("It is 42.")],
            "refusing": [Status(400)],
            "rude": answer("<script>alert(1)</script>\x1b[31m & \"'"),
        }
        yield up


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(up, tmp_path_factory):
    async with Server(tmp_path_factory.mktemp("server"), [provider(up.base_url, models=None)]) as server:
        yield server


@pytest.fixture
def shell(server, tmp_path):
    """A shell for which the server is the one on this machine."""
    return Shell(tmp_path, {"HOLDFAST_PORT": str(server.port)})


@pytest.fixture
def alone(tmp_path):
    """A shell on a machine without a server."""
    (tmp_path / "holdfast.toml").write_text(SCRIPTED)
    return Shell(tmp_path, {"HOLDFAST_PORT": str(free_port()), "HOLDFAST_CONFIG": str(tmp_path / "holdfast.toml")})


@pytest_asyncio.fixture(loop_scope="module")
async def api(server):
    async with server.client() as client:
        yield Native(client)


def write_set(shell, prompts, name="prompts.jsonl"):
    lines = [prompt if isinstance(prompt, str) else json.dumps(prompt) for prompt in prompts]
    (shell.home / name).write_text("\n".join(lines) + "\n")
    return name


def questions(count):
    return [{"prompt": f"Question {number}?", "expected": "42", "id": f"q{number}"} for number in range(count)]


# a set


async def test_a_set_is_asked_and_reported(shell):
    """The table of a script: one line for each model, and a page, and every answer."""
    file = write_set(shell, questions(5))
    command = ["compare", "--set", file, "-m", "up/a", "-m", "up/b", "--report", "r.html", "--answers", "a.jsonl"]
    told = await shell(*command)

    assert 0 == told.code, told.err
    rows = [line.split("\t") for line in told.out.splitlines()]
    assert [["up/a", "5", "0", "0", "5/5"], ["up/b", "5", "0", "0", "0/5"]] == [row[:5] for row in rows]
    assert "10 of 10 answered" in told.err
    answers = [json.loads(line) for line in (shell.home / "a.jsonl").read_text().splitlines()]
    assert [(1, "up/a", True), (1, "up/b", False)] == [(a["number"], a["model"], a["right"]) for a in answers[:2]]
    assert 10 == len(answers)
    assert "80%" not in (page := (shell.home / "r.html").read_text())
    assert "100%" in page


async def test_a_set_is_told_as_json_and_as_csv(shell):
    """For a program, and for a spreadsheet: the same numbers, and nothing else on the standard output."""
    file = write_set(shell, questions(3))
    as_json = json.loads((await shell("compare", "--set", file, "-m", "up/a", "--json")).out)
    as_csv = list(csv.DictReader(io.StringIO((await shell("compare", "--set", file, "-m", "up/a", "--csv")).out)))

    assert [3] == [model["agreement"]["right"] for model in as_json["models"]]
    assert [("up/a", "3")] == [(row["model"], row["agreement_right"]) for row in as_csv]


async def test_a_set_with_failures_is_no_success(shell):
    """A script that only looks at the exit code must learn of it."""
    file = write_set(shell, questions(2))
    told = await shell("compare", "--set", file, "-m", "up/a", "-m", "up/refusing")

    assert 1 == told.code
    assert "up/refusing\t0\t2" in told.out


async def test_ctrl_c_stops_a_set_and_the_same_command_goes_on_with_it(shell, up, api):
    """What was answered is not asked again, and the report of what there is is written all the same."""
    up.shut("held")
    file = write_set(shell, questions(4))
    command = ["compare", "--set", file, "-m", "up/held", "-m", "up/a", "--concurrency", "8", "--report", "r.html"]
    async with shell.start(*command) as process:
        await up.reached("held")
        async with asyncio.timeout(30):
            while not (listed := (await api.get("/api/batches"))["data"]) or listed[0]["progress"]["done"] < 4:  # noqa: ASYNC110 - in another process
                await asyncio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stopped = await ended(process)
    batch_id = listed[0]["id"]

    assert 4 == stopped.code
    assert f"holdfast compare --resume {batch_id}" in stopped.err
    assert (shell.home / "r.html").exists()
    asked = len([request for request in up.requests if request.model == "a"])
    up.open("held")

    again = await shell(*command)

    assert 0 == again.code, again.err
    assert f"Going on with {batch_id}: 4 answers are there." in again.err
    assert "up/held\t4\t0\t0\t4/4" in again.out
    assert asked == len([request for request in up.requests if request.model == "a"])
    resumed = await shell("compare", "--resume", batch_id)
    assert again.out == resumed.out


async def test_a_killed_command_with_a_server_of_its_own_goes_on_where_it_was(alone):
    """`kill -9` of the only process there is: the data folder has what was answered."""
    file = write_set(alone, [f'{{"prompt": "{"word " * 40}{number}"}}' for number in range(40)])
    command = ["compare", "--set", file, "-m", "scripted/echo", "-m", "scripted/lorem:20:100", "--json"]
    async with alone.start(*command) as process:
        assert process.stderr is not None
        async with asyncio.timeout(40):
            while b" of 80 answered" not in (line := await process.stderr.readline()) or line.startswith(b"0 of"):
                assert line
        process.kill()
        await process.wait()

    told = await alone(*command)

    assert 0 == told.code, told.err
    report = json.loads(told.out)
    assert [40, 40] == [model["outcomes"]["completed"] for model in report["models"]]
    assert int(re.search(r": (\d+) answers are there", told.err)[1]) > 0


async def test_a_person_sees_a_bar(shell):
    """On a terminal a bar, and the numbers as a table."""
    file = write_set(shell, questions(3))
    async with Terminal(shell, "compare", "--set", file, "-m", "up/a") as terminal:
        await terminal.shows("3/3")
        assert 0 == await terminal.ended()
    assert "model" in terminal.screen


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["{"], "line 1"),
        (['{"prompt": "a"}', '{"question": "b"}'], "line 2"),
        (['{"prompt": 1}'], "line 1"),
        ([""], "0 prompts"),
    ],
)
async def test_a_bad_set_is_refused_with_its_line(shell, lines, says):
    """Before anything is asked."""
    told = await shell("compare", "--set", write_set(shell, lines), "-m", "up/a")

    assert 1 == told.code
    assert says in told.err
    assert "" == told.out


async def test_a_set_may_be_plain_lines(shell):
    """A list of questions in a text file is a set, too; strings in JSON lines are."""
    plain = await shell("compare", "--set", write_set(shell, ["One?", "", "Two?"], "p.txt"), "-m", "up/a")
    strings = await shell("compare", "--set", write_set(shell, ['"One?"', '"Two?"'], "p.jsonl"), "-m", "up/a")

    assert "up/a\t2\t0" in plain.out
    assert "up/a\t2\t0" in strings.out


@pytest.mark.parametrize(
    "wrong",
    [
        ["compare"],
        ["compare", "Hello"],
        ["compare", "--set", "prompts.jsonl"],
        ["compare", "Hello", "--set", "prompts.jsonl", "-m", "up/a"],
        ["compare", "--set", "prompts.jsonl", "-m", "up/a", "--blind"],
        ["compare", "--set", "nowhere.jsonl", "-m", "up/a"],
        ["compare", "Hello", "-m", "up/a", "--report", "r.html"],
    ],
)
async def test_a_wrong_command_line_is_2(shell, wrong):
    """As everywhere, with a line that says what is wrong."""
    write_set(shell, questions(1))
    told = await shell(*wrong)

    assert 2 == told.code
    assert "Error: " in told.err


# the page


class Page(HTMLParser):
    """What a page would load, and whether its elements are closed."""

    def __init__(self, text):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert tag == self.open.pop(), f"</{tag}> closes something else"


async def test_the_page_is_whole_loads_nothing_and_runs_nothing(shell):
    """Whatever a model or a prompt says: it is text there."""
    prompts = [{"prompt": "<img src=x onerror=alert(1)>", "expected": "</style>", "kind": "<b>", "id": "<i>"}]
    prompts += [{"prompt": "Plain", "expected": "42", "kind": "plain"}]
    file = write_set(shell, prompts)
    await shell("compare", "--set", file, "-m", "up/rude", "-m", "up/a", "-m", "up/refusing", "--report", "r.html")

    text = (shell.home / "r.html").read_text()
    page = Page(text)

    assert [] == page.open
    assert set() == set(page.tags) & {"script", "img", "link", "iframe", "object", "form"}
    assert 0 == text.count("<script") == text.count("onerror=alert(1)>")
    assert [] == [name for name, _ in page.attributes if name in ("src", "href", "srcset") or name.startswith("on")]
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert page.tags.count("svg") >= 3
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
