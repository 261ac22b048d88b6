"""Python functions as tools, and the processes that a tool starts."""

import asyncio
import functools
import os
import shutil
import signal
import threading
from typing import Annotated, Literal

import msgspec
import pytest

from holdfast.agents import Tool, ToolContext, ToolOutput, tool
from holdfast.agents.processes import MARK, Processes, ProcessTable
from holdfast.agents.shell import Shell
from tests.support.waiting import LONG


@tool(approval="ask", timeout=5)
async def weather(
    city: str,
    days: Annotated[int, msgspec.Meta(ge=1, le=7)] = 1,
    unit: Literal["C", "F"] = "C",
    context: ToolContext | None = None,
) -> str:
    """Look up the weather.

    It is right most of the time.

    Args:
        city: the city's name,
            as people write it
        days (int): how many days ahead

    Returns:
        words: in English
    """
    return f"{city} {days} {unit}"


def test_the_schema_comes_from_types_and_docstring():
    """What the model is told is written once, where the function is."""
    assert isinstance(weather, Tool)
    assert ("weather", "ask", 5) == (weather.name, weather.approval, weather.timeout)
    assert "Look up the weather.\n\nIt is right most of the time." == weather.description
    properties = weather.parameters["properties"]
    assert {"type": "string", "description": "the city's name, as people write it"} == properties["city"]
    assert (1, 7, "how many days ahead") == tuple(
        properties["days"][name] for name in ("minimum", "maximum", "description")
    )
    assert ["C", "F"] == properties["unit"]["enum"]
    assert ["city"] == weather.parameters["required"]


@pytest.mark.parametrize(
    ("arguments", "output", "is_error"),
    [
        ({"city": "Kyiv"}, "Kyiv 1 C", False),
        ({"city": "Kyiv", "days": "3"}, "Kyiv 3 C", False),
        ({}, "city", True),
        ({"city": "Kyiv", "days": 9}, "days", True),
        ({"city": "Kyiv", "mood": "good"}, "mood", True),
    ],
)
async def test_arguments_are_checked_before_the_function_sees_them(arguments, output, is_error):
    """A model that errs reads what was wrong, and can try again; numbers in quotes are what models write."""
    given = await weather.call(arguments, ToolContext())

    assert is_error == given.is_error
    assert output in given.text


@pytest.mark.parametrize(
    ("returned", "text"),
    [("as it is", "as it is"), (None, ""), ({"a": [1]}, '{"a":[1]}'), (ToolOutput("own", True), "own")],
)
async def test_what_a_function_returns_becomes_text(returned, text):
    """Strings are not quoted again; everything else is JSON."""

    @tool
    def give() -> object:
        return returned

    assert text == (await give.call({}, ToolContext())).text


async def test_a_function_that_is_not_async_runs_in_a_thread():
    """It must not hold the loop, and a stop is told that it cannot be ended."""
    here, loop = threading.get_ident(), asyncio.get_running_loop()
    has_begun, go_on = asyncio.Event(), threading.Event()

    @tool
    def block() -> bool:
        loop.call_soon_threadsafe(has_begun.set)
        go_on.wait(10)
        return threading.get_ident() != here

    context = ToolContext()
    call = asyncio.create_task(block.call({}, context))
    await has_begun.wait()
    told = context.lingers
    go_on.set()

    assert "true" == (await call).text
    assert ("block runs in a thread", "") == (told[:22], context.lingers)


async def test_a_thread_that_raised_is_not_said_to_go_on():
    """A receipt that names what has ended is a false one."""

    @tool
    def breaks() -> str:
        raise ValueError("broken")

    context = ToolContext()
    with pytest.raises(ValueError, match="broken"):
        await breaks.call({}, context)

    assert "" == context.lingers


async def test_a_thread_that_returns_after_all_is_not_said_to_go_on():
    """A call may take too long, and its run go on for hours: what is true then counts."""
    loop, has_begun, go_on, returned = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), asyncio.Event()

    @tool
    def block() -> None:
        loop.call_soon_threadsafe(has_begun.set)
        go_on.wait(30)

    context = ToolContext()
    call = asyncio.create_task(block.call({}, context))
    await has_begun.wait()
    call.cancel()
    await asyncio.wait({call})
    told = context.lingers
    context.on_return = returned.set
    go_on.set()
    async with asyncio.timeout(LONG):
        await returned.wait()

    assert ("block runs in a thread", "") == (told[:22], context.lingers)


async def test_what_a_plain_function_returns_to_be_awaited_is_awaited():
    """A wrapper around an async function need not be async itself; "<coroutine object>" is no result."""

    async def look_up() -> str:
        return "found"

    @tool
    @functools.wraps(look_up)
    def wrapped() -> object:
        return look_up()

    assert ToolOutput("found") == await wrapped.call({}, ToolContext())


async def test_calls_do_not_share_a_default():
    """What one call adds to its list is not what the next one begins with."""

    @tool
    async def collect(names: list[str] = ["first"]) -> list[str]:  # noqa: B006 - this is what people write
        names.append("more")
        return names

    twice = [(await collect.call({}, ToolContext())).text for _ in range(2)]

    assert ['["first","more"]'] * 2 == twice


async def test_a_letter_in_the_middle_of_a_long_output_is_kept(tmp_path):
    """Where nothing is left out nothing is changed: a letter of three bytes may stand anywhere."""
    shell = Shell(tmp_path)
    command = "head -c 499999 /dev/zero | tr '\\0' a; printf '\\342\\202\\254'; head -c 1000 /dev/zero | tr '\\0' z"

    context = ToolContext()
    output = await shell.call({"command": command}, context)
    await context.processes.end()

    assert "a" * 499_999 + "€" + "z" * 1000 == output.text


@pytest.mark.parametrize("bad", [lambda *names: None, lambda **names: None, lambda name, /: None])
def test_a_function_whose_parameters_have_no_names_is_refused(bad):
    """A model gives arguments by name."""
    with pytest.raises(TypeError, match="names"):
        tool(name="bad")(bad)


def test_a_name_that_no_upstream_takes_is_refused():
    """Otherwise the first request would fail, with an error of the upstream."""
    with pytest.raises(TypeError, match="not a valid tool name"):
        tool(name="what time?")(lambda: None)


STUBBORN = """
trap '' TERM
(setsid bash -c "trap '' TERM; while true; do sleep 0.05; done" &)
(setsid sleep 60 &)
setsid sleep 60 &
echo ready
while true; do sleep 0.05; done
"""


async def test_all_processes_of_a_call_end_wherever_they_have_moved():
    """Grandchildren with a session of their own and those that ignore the signal end too, and the report names them."""
    processes = Processes("call_1")
    ready = asyncio.Event()
    await processes.start("bash", "-c", STUBBORN, on_output=lambda said: ready.set())
    await ready.wait()
    before = await processes.find()

    refused = await processes.end()

    assert len(before) >= 4
    assert {} == await processes.find()
    assert {"bash"} <= {survivor.name for survivor in refused}
    assert all(survivor.is_gone for survivor in refused)


async def test_a_process_is_found_that_was_seen_before_it_had_its_mark():
    """A child has the mark only when its program has begun, and the machine may be looked at before."""
    table = ProcessTable()
    processes = Processes("call_1", table)
    begin = f'read go; exec env {MARK}="$0" sleep 60'
    child = await asyncio.create_subprocess_exec(
        "sh", "-c", begin, processes.environment()[MARK], stdin=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        unmarked = await processes.find()
        child.stdin.write(b"\n")
        async with asyncio.timeout(LONG):
            while child.pid not in await processes.find():  # noqa: ASYNC110 - nobody tells when a program begins
                await asyncio.sleep(0.01)
        await processes.end()
        code = await child.wait()
    finally:
        if child.returncode is None:
            child.kill()

    assert {} == unmarked
    assert code in (-signal.SIGTERM, -signal.SIGKILL), "it was asked to end, and on a busy machine told to"


async def test_a_process_ends_whatever_it_is_called(tmp_path):
    """A name is for people: no name makes anything of a process that it is not."""
    shutil.copy(shutil.which("sleep"), tmp_path / "group")
    processes, lines = Processes("call_1"), asyncio.Queue()
    await processes.start("sh", "-c", "./group 60 & echo $!; wait", cwd=str(tmp_path), on_output=lines.put_nowait)
    pid = int(await lines.get())
    async with asyncio.timeout(LONG):
        while (await processes.find()).get(pid) != "group":  # noqa: ASYNC110 - nobody tells when a program begins
            await asyncio.sleep(0.01)

    await processes.end()

    assert {} == await processes.find()


async def test_a_child_whose_start_was_cancelled_ends_by_its_group(monkeypatch):
    """Where there is no /proc the group is all that is known, also of a child that nobody has waited for."""
    monkeypatch.setattr("holdfast.agents.processes._HAS_PROC", False)
    table = ProcessTable()
    processes = Processes("call_1", table)
    async with table.starting:
        starting = asyncio.create_task(processes.start("sleep", "60"))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})

    await processes.end()
    async with asyncio.timeout(LONG):
        while any(map(_lives, processes.groups)):  # noqa: ASYNC110 - what has ended is yet to be taken note of
            await asyncio.sleep(0.01)

    assert processes.groups


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


async def test_processes_that_end_when_asked_are_not_reported():
    """The report is for what refused, and only for that."""
    processes = Processes()
    await processes.start("sleep", "60")

    assert [] == await processes.end()
    assert {} == await processes.find()


async def test_ending_nothing_costs_nothing():
    """Most calls start no process."""
    assert [] == await Processes().end()
