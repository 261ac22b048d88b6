"""`holdfast explain`: what an error code means, where no server runs."""

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.error_help import NOTICES
from tests.e2e.test_cli import Shell
from tests.requirements import requirement
from tests.support.ports import free_port

SOURCE = Path(holdfast.__file__).parent

pytestmark = requirement("ops.error-help")


@pytest.fixture
def alone(tmp_path):
    return Shell(tmp_path, {"HOLDFAST_PORT": str(free_port())})


async def test_a_code_is_explained_without_a_server(alone):
    """The server that refuses to start cannot serve a page about it."""
    shown = await alone("explain", "store_in_use")

    assert (0, "") == (shown.code, shown.err)
    assert shown.out.startswith("store_in_use\n")
    assert "What to do: " in shown.out


async def test_without_a_code_all_are_listed(alone):
    """Somebody looks for the code of a problem."""
    shown = await alone("explain")

    assert 0 == shown.code
    assert "  upstream_auth " in shown.out


async def test_the_code_of_a_notice_is_explained_too(alone):
    """It stands in the events of a run, beside those of errors."""
    shown = await alone("explain", "fallback")

    assert (0, "fallback (a notice, no error)") == (shown.code, shown.out.splitlines()[0])


def test_every_notice_of_the_code_is_explained():
    """A new one has its line, and a line without a notice is taken out."""
    sources = (path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    used = {code for text in sources for code in re.findall(r'\bNotice\(\s*"(\w+)"', text)}

    assert used == set(NOTICES)


async def test_a_misspelt_code_names_the_nearest(alone):
    """It was typed from a screenshot."""
    shown = await alone("explain", "upstream_aut")

    assert (1, "Error: There is no error code 'upstream_aut'. Did you mean upstream_auth?\n") == (shown.code, shown.err)


async def test_an_error_ends_with_the_command_that_explains_it(alone, tmp_path):
    """Who reads the error is at a terminal anyway."""
    file = tmp_path / "wrong.toml"
    file.write_text("prot = 8787\n")

    shown = await alone("serve", "--config", str(file))

    assert 1 == shown.code
    assert shown.err.endswith(" (holdfast explain bad_settings)\n")
