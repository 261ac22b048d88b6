"""The documents are true: what they list exists, what exists is listed, and what they show runs."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import msgspec
import pytest

import holdfast
from holdfast.error_help import ERRORS
from holdfast.errors import BadRequest, HoldfastError
from holdfast.events import Event
from holdfast.runs.run import Limits
from holdfast.server.config.settings import AgentSettings, KeySettings, ProviderSettings, WebhookSettings
from scripts import docs_reference, docs_settings
from tests.requirements import LATER, REQUIREMENTS
from tests.support.routes import ENDPOINTS
from tests.support.waiting import LONG

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "holdfast"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKED = re.compile(
    r"^<!-- (from (?P<file>\S+)|runs) -->\n```(?:python|html)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
CONTRACTS = re.compile(r"\[([a-z]+\.[a-z0-9.-]+(?:,\s+[a-z]+\.[a-z0-9.-]+)*)\](?!\()")
CLAUSE = re.compile(r"^(\d+)\.(\d+) ", re.MULTILINE)


@pytest.fixture(autouse=True)
def _in_a_checkout():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: a source distribution has only some of the documents")


# reading documents


@cache
def documents() -> list[Path]:
    """Every document that is committed, or would be by `git add --all`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return [path for name in names if name and (path := ROOT / name).is_file()]


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(name: str, title: str) -> str:
    """What stands under a heading, up to the next one of its level or above."""
    level, _, rest = text_of(name).partition(f" {title}\n")
    marks = level.rpartition("\n")[2]
    assert marks.strip("#") == "", f"{name} has no heading {title!r}"
    assert rest, f"{name} has no heading {title!r}"
    return re.split(rf"^#{{1,{len(marks)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def tables(text: str, first_column: str) -> list[list[str]]:
    """The rows of every table whose first column has that name, without the backticks around its cells."""
    found: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == first_column:
            inside = True
        elif inside and not cells[0].startswith("---"):
            found.append([cells[0].strip("`"), *cells[1:]])
    return found


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return kept.replace(" ", "-")


def anchors(path: Path) -> set[str]:
    plain = FENCE.sub("", path.read_text(encoding="utf-8"))
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", plain, re.MULTILINE)}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# reading code


def trees() -> Iterator[ast.Module]:
    """Our source."""
    return (ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SRC.rglob("*.py")))


def text_constant(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def codes_of_class(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        is_code = any(isinstance(target, ast.Name) and target.id == "code" for target in targets)
        if is_code and (code := text_constant(getattr(statement, "value", None))):
            yield code


def codes_of_call(node: ast.Call) -> Iterator[str]:
    """A code is given by name, or first where an error is described without being raised."""
    called = getattr(node.func, "id", getattr(node.func, "attr", ""))
    given = [keyword.value for keyword in node.keywords if keyword.arg == "code" and called != "Notice"]
    given += node.args[:1] if called in ("ErrorInfo", "_refusal") else []
    yield from filter(None, map(text_constant, given))


def codes_of_tuple(node: ast.Tuple) -> Iterator[str]:
    """A provider's table gives a status and a code."""
    match node.elts:
        case [ast.Constant(value=int(status)), ast.Constant(value=str(code))] if 400 <= status < 600:
            yield code


@cache
def error_codes() -> set[str]:
    found: set[str] = set()
    readers = {ast.ClassDef: codes_of_class, ast.Call: codes_of_call, ast.Tuple: codes_of_tuple}
    for tree in trees():
        for node in ast.walk(tree):
            if reader := readers.get(type(node)):
                found.update(reader(node))
    return found


def error_classes(base: type[HoldfastError] = HoldfastError) -> Iterator[type[HoldfastError]]:
    yield base
    for derived in base.__subclasses__():
        yield from error_classes(derived)


# the protocol


def protocol() -> str:
    """The index and every chapter, in order."""
    chapters = sorted((ROOT / "docs" / "protocol").glob("[0-9]*.md"))
    return "\n".join(text_of(name_of(path)) for path in (ROOT / "docs" / "protocol" / "index.md", *chapters))


def test_every_chapter_has_the_number_of_its_clauses():
    """Whoever has the number of a clause finds its page by the name of the file."""
    chapters = sorted((ROOT / "docs" / "protocol").glob("[0-9]*.md"))
    numbers = {path.name: {int(one) for one, _ in CLAUSE.findall(text_of(name_of(path)))} for path in chapters}

    assert len(numbers) > 30
    assert {name: {int(name[:2])} for name in numbers} == numbers


def test_every_error_code_is_in_the_protocol_and_every_code_of_the_protocol_exists():
    """A code never changes once published, so it must be published, and nothing else."""
    listed = [code for code, *_ in tables(text_of("docs/protocol/03-errors.md"), "code")]

    assert sorted(set(listed)) == sorted(listed)
    assert error_codes() == set(listed)


def test_every_error_code_has_help_and_every_help_a_code():
    """Whoever gets an error looks up its code, and must find the cause and what to do."""
    assert error_codes() == set(ERRORS)


def test_the_help_for_errors_names_commands_and_documents_that_exist():
    """Advice that cannot be followed is worse than none."""
    advice = " ".join(f"{entry.cause} {entry.remedy}" for entry in ERRORS.values())
    commands = {re.sub(r" [A-Z-].*", "", command) for command in re.findall(r"`holdfast ([^`]+)`", advice)}
    documents = set(re.findall(r"docs/[\w./-]+\.md", advice))
    listed = text_of("docs/reference/commands.md")

    assert len(commands) > 8
    assert [] == [command for command in commands if f"`holdfast {command}`" not in listed]
    assert [] == [document for document in documents if not (ROOT / document).exists()]


def test_the_protocol_gives_every_code_the_status_that_its_error_has():
    """Clients decide by the status whether to try again."""
    listed = {code: status for code, status, *_ in tables(text_of("docs/protocol/03-errors.md"), "code")}
    wrong = {
        error.code: (error.status, listed[error.code])
        for error in error_classes()
        if error.__module__.startswith("holdfast.") and error.code in listed
        if not issubclass(error, BadRequest)  # each of them has its own
        if str(error.status) not in listed[error.code] and listed[error.code] != "*start*"
    }

    assert {} == wrong


def test_the_protocol_lists_every_call_and_no_other():
    """An endpoint that nobody can find does not exist, and one that does not exist must not be found."""
    calls = {f"{endpoint.method} {endpoint.path.replace(':path', '')}" for endpoint in ENDPOINTS}
    listed = [call for call, *_ in tables(section("docs/protocol/index.md", "All calls"), "call")]

    assert calls | {"GET /openapi.json"} == set(listed)


def test_the_protocol_lists_every_event_type_and_no_other():
    """A client switches on the type."""
    types = {str(kind.__struct_config__.tag) for kind in get_args(Event)}

    assert types == {kind for kind, *_ in tables(text_of("docs/protocol/06-events.md"), "type")}


def test_the_protocol_lists_every_entry_of_the_feed_and_no_other():
    """The stores write them, so they are found there."""
    words = {
        str(text_constant(node))
        for name in ("semantics.py", "rows/session_writing.py", "rows/transactions.py")
        for node in ast.walk(ast.parse((SRC / "store" / name).read_text(encoding="utf-8")))
        if re.fullmatch(r"(message|run|queue|session)\.[a-z]+", text_constant(node) or "")
    }

    assert words == {kind for kind, *_ in tables(text_of("docs/protocol/14-the-session-feed.md"), "type")}


def named_contracts() -> set[str]:
    return {id for group in CONTRACTS.findall(protocol()) for id in re.split(r",\s+", group)}


def test_every_contract_that_the_protocol_names_is_one_that_tests_prove():
    """A clause that names a contract which is unknown, or put off, promises what nothing shows."""
    assert set() == named_contracts() - (REQUIREMENTS.keys() - LATER)


def test_every_contract_of_this_release_stands_in_the_protocol():
    """What is tested and not promised cannot be relied on."""
    assert set() == REQUIREMENTS.keys() - LATER - named_contracts()


def test_every_line_of_what_is_protected_names_the_contracts_that_show_it():
    """A promise about safety that no test shows is a guess, and one that is not told helps nobody to decide."""
    lines = section("SECURITY.md", "What is protected, and how").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| what | how", "| ---"))]
    shown = {row: re.findall(r"`([a-z]+\.[a-z0-9-]+)`", row.rstrip(" |").rpartition("|")[2]) for row in rows}
    named = {contract for contracts in shown.values() for contract in contracts}

    assert len(rows) > 40
    assert [] == [row for row, contracts in shown.items() if not contracts]
    assert set() == named - REQUIREMENTS.keys()
    assert {contract for contract in REQUIREMENTS if contract.startswith("safe.")} <= named


def test_clauses_are_numbered_without_holes():
    """People cite clauses by their numbers."""
    numbers = [(int(one), int(two)) for one, two in CLAUSE.findall(protocol())]
    sections = sorted({one for one, _ in numbers})

    assert list(range(1, len(sections) + 1)) == sections
    for number in sections:
        clauses = [two for one, two in numbers if one == number]
        assert list(range(1, len(clauses) + 1)) == clauses


def test_every_clause_that_is_referred_to_exists():
    """A reference to a clause that was moved sends its reader away."""
    text = protocol()
    clauses = {f"{one}.{two}" for one, two in CLAUSE.findall(text)}
    listed = " ".join(where for *_, where in tables(section("docs/protocol/index.md", "All calls"), "call"))
    referred = re.findall(r"\d+\.\d+", listed) + re.findall(r"[(,] ?(\d+\.\d+)(?=[,)])", text)

    assert set() == set(referred) - clauses


# what is written from the code


def test_every_page_and_table_that_is_written_from_the_code_is_current():
    """Settings, commands, errors, events, fields, metrics: run `make reference` after a change."""
    assert [] == [name_of(path) for path in docs_reference.outdated()]


# settings, limits, modules, versions


def test_every_setting_says_what_it_is():
    """The table has nothing else to show."""
    assert [] == [
        field.name for field in docs_settings.SCALARS if not docs_settings.descriptions("Settings")[field.name]
    ]


@pytest.mark.parametrize(
    ("title", "struct"),
    [
        ("Providers", ProviderSettings),
        ("Keys", KeySettings),
        ("Webhooks", WebhookSettings),
        ("Agents", AgentSettings),
    ],
)
def test_every_field_of_a_table_of_settings_is_documented_and_no_other(title, struct):
    """A misspelt field is refused at the start, so its right name must be found."""
    fields = {field.name for field in msgspec.structs.fields(struct)}

    assert fields == {name for name, *_ in tables(section("docs/settings.md", title), "field")}


def test_every_limit_of_the_engine_is_documented_and_no_other():
    """An embedder has no settings file: `Limits` is all there is."""
    fields = {field.name for field in msgspec.structs.fields(Limits)}

    assert fields == {name for name, *_ in tables(section("docs/embedding.md", "Limits"), "field")}


def test_every_module_opens_with_a_sentence_that_says_what_it_is():
    """The tree explains itself only if each file does: docs/ARCHITECTURE.md has no list of files."""
    files = [path for path in SRC.rglob("*.py") if path.read_text(encoding="utf-8").strip()]
    first = {
        path: (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0] for path in files
    }

    assert len(first) > 300
    assert [] == [name_of(path) for path, said in first.items() if not re.search(r"[.?!]$", said.strip())]


def defined_in(path: Path) -> set[str]:
    """The functions and classes of a module, and the methods as `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if hasattr(part, "name")}
    return names


def test_every_hop_that_the_architecture_draws_exists():
    """`Class.method` (file.py): whoever follows a stop or a recovery by it must not end in a file of last year."""
    text = text_of("docs/ARCHITECTURE.md")
    hops = re.findall(r"`([\w.]+)`\s\(([\w/]+\.py)\)", text)
    package = ROOT / "src" / "holdfast"

    assert len(hops) > 20
    assert [] == [path for path in re.findall(r"\(([\w/]+\.py)\)", text) if not (package / path).exists()]
    assert [] == [f"{name} ({path})" for name, path in hops if name not in defined_in(package / path)]


def test_the_newest_version_of_the_changelog_is_the_one_of_the_package():
    """Three places name the version: the package, its metadata and the changelog."""
    newest = re.search(r"^## \[([^\]]+)\]", text_of("CHANGELOG.md"), re.MULTILINE)

    assert newest is not None
    assert holdfast.__version__ == newest[1]
    assert holdfast.__version__ == tomllib.loads(text_of("pyproject.toml"))["project"]["version"]


# every document


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_every_relative_link_leads_somewhere(path):
    """A link that was right once is the first thing to break when a file moves."""
    broken = []
    for target in LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)

    assert [] == broken


def test_the_index_names_every_document():
    """A page that the index leaves out is found by nobody."""
    listed = {(ROOT / "docs" / target).resolve() for target in LINK.findall(text_of("docs/README.md"))}

    assert set() == {*(ROOT / "docs").rglob("*.md")} - listed - {ROOT / "docs" / "README.md"}


def test_a_page_is_called_what_the_index_calls_it():
    """Whoever clicks on words looks for them on the page."""
    places = re.findall(r"\[([^\]]+)\]\(([^)\s#]+\.md)\)", text_of("docs/README.md").partition("## Use")[2])
    titles = {target: (ROOT / "docs" / target).read_text(encoding="utf-8").partition("\n")[0] for _, target in places}

    assert len(titles) > 90
    assert [] == [(text, titles[at]) for text, at in places if text != re.sub(r"^# (\d+\. )?", "", titles[at])]


MOST_WORDS = 68_000
"""In docs/, without the protocol and what is generated. Who adds a page takes words from others."""
GENERATED = ("docs/protocol/", "docs/reference/", "docs/wires/fields.md")
WRITTEN = re.compile(
    r"<!-- (?:bench: \w|the table is written|the lab's findings|the matrix).*?<!-- end.*?-->", re.DOTALL
)
"""Tables that programs write within a page."""


def test_the_documents_grow_no_longer():
    """Nobody reads a book to start a server."""
    words = {
        name: len(WRITTEN.sub("", text_of(name)).split())
        for name in map(name_of, documents())
        if name.startswith("docs/") and not name.startswith(GENERATED)
    }

    assert len(words) > 50
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda item: -item[1])[:10]


HISTORY = re.compile(
    r"\bcommit [0-9a-f]{7,}\b|\bthe redesign\b|\bearlier version stored\b|\bused to be\b|\bno longer (?:has|is|meets)\b"
)


def test_pages_for_users_tell_no_history():
    """What was before matters to git, and to nobody who reads how it is."""
    pages = [path for path in documents() if name_of(path).startswith("docs/")]
    texts = {name_of(path): WRITTEN.sub("", text_of(name_of(path))) for path in pages}

    assert {} == {name: found for name, text in texts.items() if (found := HISTORY.findall(text))}


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_every_contract_that_a_document_names_exists(path):
    """Not only the protocol cites them."""
    groups = "|".join(sorted({id.partition(".")[0] for id in REQUIREMENTS}))
    cited = re.findall(rf"`((?:{groups})\.[a-z0-9][a-z0-9.-]*)`", path.read_text(encoding="utf-8"))

    assert set() == set(cited) - REQUIREMENTS.keys()


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_every_make_target_that_a_document_names_exists(path):
    """`make` is all that a newcomer is told to type."""
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    named = re.findall(r"(?:^|`)make ([a-z-]+)", path.read_text(encoding="utf-8"), re.MULTILINE)

    assert set() == set(named) - targets


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_every_python_snippet_is_python(path):
    """What does not even parse was never tried."""
    for language, code in FENCE.findall(path.read_text(encoding="utf-8")):
        if language == "python":
            ast.parse(code)


def marked(kind: str) -> list[tuple[str, re.Match[str]]]:
    """The snippets that say where they come from, or that they run."""
    return [
        (name_of(path), found)
        for path in documents()
        for found in MARKED.finditer(path.read_text(encoding="utf-8"))
        if kind == ("from" if found["file"] else "runs")
    ]


@pytest.mark.parametrize(("document", "snippet"), marked("from"))
def test_a_snippet_that_is_taken_from_a_file_is_in_it(document, snippet):
    """The file is run by tests; the snippet must not become another program."""
    assert snippet["code"] in text_of(snippet["file"])


@pytest.mark.parametrize(("document", "snippet"), marked("runs"))
def test_a_snippet_that_runs_does_run(document, snippet, tmp_path):
    """A reader copies it, and it works: its assertions hold, without a warning."""
    command = [sys.executable, "-W", "error", "-c", snippet["code"]]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LONG)

    assert (0, "") == (ran.returncode, ran.stderr)


UNMARKED = {
    "docs/agents-bring-your-own.md": 2,
    "docs/agents.md": 1,
    "docs/clients/README.md": 1,
    "docs/extending/dialect.md": 2,
    "docs/extending/limit.md": 1,
    "docs/extending/upstream.md": 2,
    "docs/testing.md": 1,
    "lab/README.md": 1,
}
"""Python that no mark makes a test run, by document: other tests run what it shows."""


def test_no_python_is_left_out_silently():
    """A snippet without a mark is not run. docs/embedding.md has none, so that all of it works as pasted."""
    unmarked = {
        name_of(path): sum(language in ("python", "html") for language, _ in FENCE.findall(text))
        - sum(1 for _ in MARKED.finditer(text))
        for path in documents()
        for text in [path.read_text(encoding="utf-8")]
    }

    assert UNMARKED == {name: count for name, count in unmarked.items() if count}


@pytest.mark.parametrize("name", ["fastapi_app.py", "starlette_app.py", "page_app.py", "page.html"])
def test_the_examples_of_the_embedding_page_stand_there_as_a_whole(name):
    """A reader pastes a block and runs it: a part of a file has no imports."""
    whole = text_of(f"examples/{name}")

    assert whole in {found["code"] for document, found in marked("from") if document == "docs/embedding.md"}


def test_the_embedding_page_imports_events_and_errors_from_the_package():
    """What an embedding program needs is exported, and so promised."""
    page = text_of("docs/embedding.md")

    assert "from holdfast import" in page
    assert [] == re.findall(r"^from holdfast\.(?:events|errors) .*", page, re.MULTILINE)


def test_snippets_are_taken_from_examples_and_do_run():
    """A mark that was misspelt would check nothing."""
    assert "docs/embedding.md" in {document for document, _ in marked("from")}
    assert "docs/embedding.md" in {document for document, _ in marked("runs")}
