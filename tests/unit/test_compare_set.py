"""What a set of prompts may look like, what a command line may not, and the page that a report is."""

from html.parser import HTMLParser

import click
import msgspec
import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.cli.evals.html_report import report_page
from holdfast.cli.evals.prompt_set import read_set
from holdfast.evals.model import BatchPrompt, BatchReport, Cell, agrees, last_number, quantile, wilson
from holdfast.wires.csv_rows import as_csv


def written(folder, text, name="prompts.jsonl"):
    (folder / name).write_text(text)
    return folder / name


def test_a_set_is_json_lines_of_objects_and_strings(tmp_path):
    """A byte order mark, empty lines and a line separator inside a string are no trouble."""
    text = '\ufeff{"prompt": "a\u2028b", "expected": 42, "kind": "k", "id": "i"}\n\n"Say hi"\r\n'

    assert [BatchPrompt("a\u2028b", 42, "k", "i"), BatchPrompt("Say hi")] == read_set(written(tmp_path, text))


def test_a_text_file_is_a_set_of_lines(tmp_path):
    """Anything may stand in them."""
    assert [BatchPrompt("One?"), BatchPrompt("{Two")] == read_set(written(tmp_path, "One?\n\n{Two\n", "p.txt"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 1"),
        ('{"prompt": "a"}\n{"question": "b"}', "line 2"),
        ('\n\n{"prompt": 1}', "line 3"),
        ("[1]", "line 1"),
        ("", "0 prompts"),
        ('"a"\n' * 10_001, "10001 prompts"),
    ],
)
def test_a_bad_set_is_refused_with_its_line(tmp_path, text, says):
    """Before anything is asked."""
    with pytest.raises(click.ClickException, match=says):
        read_set(written(tmp_path, text))


WRONG = [
    ["compare"],
    ["compare", "Hello"],
    ["compare", "--set", "prompts.jsonl"],
    ["compare", "Hello", "--set", "prompts.jsonl", "-m", "up/a"],
    ["compare", "--set", "prompts.jsonl", "-m", "up/a", "--blind"],
    ["compare", "--set", "nowhere.jsonl", "-m", "up/a"],
    ["compare", "Hello", "-m", "up/a", "--report", "r.html"],
    ["compare", "--set", "prompts.jsonl", "-m", "up/a", "--concurrency", "33"],
    ["compare", "--set", "prompts.jsonl", "-m", "up/a", "--report", "nowhere/r.html"],
    ["compare", "--set", "prompts.jsonl", "-m", "up/a", "--responses", "nowhere/a.jsonl"],
]


@pytest.mark.parametrize("wrong", WRONG, ids=" ".join)
def test_a_wrong_command_line_is_2(tmp_path, monkeypatch, wrong):
    """As everywhere, with a line that says what is wrong."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path, '"Hello"\n')
    told = CliRunner().invoke(main, wrong, input="")

    assert 2 == told.exit_code
    assert "Error: " in told.output


# numbers


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It is 1,234.5.", 1234.5),
        ("2 3", 3),
        ("10-12", 12),
        ("minus -5", -5),
        ("x = .5", 0.5),
        ("1e3", 1000),
        ("1, 2 and 3.", 3),
        ("12,345,678 people", 12345678),
        ("none", None),
    ],
)
def test_the_last_number_of_a_text(text, number):
    """What people mean by it."""
    assert number == last_number(text)


def test_agreement_ignores_what_does_not_matter():
    """Case and spacing for `contains`, the space around for `exact`, and nothing else."""
    assert agrees("contains", "new YORK", "In  New\nYork.")
    assert not agrees("contains", "New York", "NewYork")
    assert agrees("exact", " 42", "42\n")
    assert not agrees("exact", "a", "A")
    assert agrees("regex", "^b", "b")


def test_quantiles_and_shares():
    """Wilson's interval as published: 10 of 10 is 72% to 100%, and 81 of 263 (Newcombe 1998) 25.5% to 36.6%."""
    assert [None, 5, 2.5] == [quantile([], 0.5), quantile([5], 0.95), quantile([4, 1, 2, 3], 0.5)]
    assert [0.7225, 1.0] == [round(each, 4) for each in wilson(10, 10)]
    assert [0.2553, 0.3662] == [round(each, 4) for each in wilson(81, 263)]


def test_csv_is_no_spreadsheets_program():
    """A model's name or text that begins like a formula stays text."""
    assert "a,b_c\n'=1+1,-1\n" == as_csv([{"a": "=1+1", "b": {"c": -1}}])


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


RUDE = "<script>alert(1)</script> & \"'<img src=x onerror=alert(2)>"


def told(prompts, models, cells, status="finished"):
    """A report and its cells, as the server tells them."""
    report = BatchReport(models, prompts)
    rows = []
    for cell in cells:
        report.add(cell)
        asked = prompts[cell.prompt]
        named = {"prompt": asked.prompt, "expected": asked.expected, "kind": asked.kind, "prompt_id": asked.id}
        numbered = {"id": "c", "number": cell.prompt + 1, "model": models[cell.model]}
        rows.append({**msgspec.structs.asdict(cell), **numbered, **named})
    progress = {"total": len(prompts) * len(models), "done": len(rows), "failed": 0, "running": 0}
    batch = {"id": "bat_1", "name": RUDE, "status": status, "models": models, "prompts": len(prompts), "system": RUDE}
    batch |= {"match": "contains", "created_at": "2026-11-16T03:00:00.000Z", "progress": progress}
    return report_page({"batch": batch, "models": report.models()}, rows)


def answered(prompt, model, outcome="completed", **more):
    speed = {"ttft_ms": 5.0, "tokens_per_second": 10.0} if outcome == "completed" else {}
    return Cell(prompt=prompt, model=model, outcome=outcome, **{**speed, **more})


def test_the_page_is_whole_loads_nothing_and_runs_nothing():
    """Whatever a model or a prompt says: it is text there."""
    prompts = [BatchPrompt(RUDE, RUDE, RUDE, RUDE), BatchPrompt([{"type": "text", "text": RUDE}], "b", "other")]
    cells = [
        answered(0, 0, text=RUDE, right=True),
        answered(1, 0, text="b", right=False),
        answered(0, 1, "failed", error={"code": "x", "message": RUDE}),
    ]
    text = told(prompts, [RUDE, "up/b"], cells)
    read = Page(text)

    assert [] == read.open
    assert set() == set(read.tags) & {"script", "img", "link", "iframe", "object", "form"}
    assert [] == [name for name, _ in read.attributes if name in ("src", "href", "srcset") or name.startswith("on")]
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert 4 == read.tags.count("svg")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_a_batch_without_answers_has_a_page_too():
    """Who stops a batch at once still gets a report, and it says so."""
    text = told([BatchPrompt("?", "42")], ["up/a", "up/b"], [], status="stopped")

    assert [] == Page(text).open
    assert "<strong>stopped</strong>, 0 of 2 responses" in text


def test_the_page_stays_small_and_says_what_it_left_out():
    """Two thousand long answers would not open in a browser."""
    prompts = [BatchPrompt(f"Question {number}") for number in range(2000)]
    text = told(prompts, ["up/a"], [answered(number, 0, text="x" * 50_000) for number in range(2000)])

    assert len(text) < 2_000_000
    assert "1,800 more prompts are not on this page" in text
    assert "46,000 more characters" in text
