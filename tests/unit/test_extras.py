"""What an installation without extras has, and what it says of the rest: `pip install holdfast` alone."""

import subprocess
import sys

import pytest

import holdfast
from holdfast.errors import how_to_install
from tests.requirements import requirement
from tests.support.waiting import LONG

ONLY = """
import sys
from importlib.metadata import packages_distributions

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

MISSING = packages_distributions().keys() - {{"holdfast", {installed}}}
sys.meta_path.insert(0, Missing())
"""


def ran(code: str, *arguments: str, installed: str = "'msgspec'", cwd=None) -> subprocess.CompletedProcess[str]:
    """Run code where, besides the standard library, only the named packages can be imported."""
    command = [sys.executable, "-W", "error", "-c", ONLY.format(installed=installed) + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG, cwd=cwd)


COMMAND = "import runpy; runpy.run_module('holdfast', run_name='__main__', alter_sys=True)"


@requirement("embed.extras")
def test_help_shows_everything_without_an_extra():
    """It is the first thing that a Python developer types."""
    shown = ran("import pydoc, holdfast; print(pydoc.plain(pydoc.render_doc(holdfast)))")

    assert (0, "") == (shown.returncode, shown.stderr)
    assert "Durable, resumable runs for async generators" in shown.stdout
    assert "class Engine(" in shown.stdout
    assert "async start(self, source" in shown.stdout


@requirement("embed.extras")
def test_a_star_import_works_without_an_extra():
    """`__all__` names nothing that cannot be had."""
    imported = ran("from holdfast import *; print(Engine.__name__, open_store.__name__, Usage.__name__)")

    assert (0, "", "Engine open_store Usage\n") == (imported.returncode, imported.stderr, imported.stdout)


@requirement("embed.extras")
def test_an_engine_keeps_runs_without_an_extra(tmp_path):
    """SQLite comes with Python."""
    code = """
import asyncio
from holdfast import Engine

async def story():
    yield "Once."

async def main():
    async with Engine("sqlite:./data") as engine:
        print((await (await engine.start(story(), owner="ann")).settled()).text)
        print(len(await engine.list(owner="ann")))

asyncio.run(main())
"""
    told = ran(code, cwd=tmp_path)

    assert (0, "", "Once.\n1\n") == (told.returncode, told.stderr, told.stdout)


WITH_UVICORN = "'msgspec', 'click', 'rich', 'markdown_it', 'mdurl', 'pygments'"
"""Some of what the command line needs: other packages of an app bring it too."""


@requirement("embed.extras")
@pytest.mark.parametrize(
    ("installed", "arguments", "missing"),
    [
        ("'msgspec'", [], "click"),
        ("'msgspec'", ["serve"], "click"),
        (WITH_UVICORN, ["serve"], "starlette"),
        (WITH_UVICORN, ["models"], "httptools"),
    ],
)
def test_the_command_line_says_which_extra_it_needs(installed, arguments, missing, tmp_path):
    """The command is installed with the engine: whoever types it must not get a traceback."""
    told = ran(COMMAND, *arguments, installed=installed, cwd=tmp_path)

    needs = f"The command line needs {missing}, which is not installed: {how_to_install('server')}\n"
    assert (1, "", needs) == (told.returncode, told.stdout, told.stderr)


@requirement("embed.extras")
def test_the_server_says_which_extra_it_needs():
    """The name exists: only what it is made of is missing."""
    told = ran("from holdfast.server import create_app")

    needs = f"ImportError: holdfast.server needs starlette, which is not installed: {how_to_install('server')}"
    assert needs == told.stderr.splitlines()[-1]


def test_the_package_shows_its_names_and_no_others():
    """What an editor completes is what we promise to keep."""
    assert {*holdfast.__all__} == {name for name in dir(holdfast) if not name.startswith("__")}
    assert not hasattr(holdfast, "create_app"), "what belongs to the server is imported from holdfast.server"
