"""The figures in docs/performance.md are those of the results that are committed, and of nothing else."""

import re
from xml.etree import ElementTree

import pytest

from bench import aims, draw, plot, report
from bench.nodes import table as nodes_table
from bench.scale import CURVES
from bench.scenarios import SCENARIOS


def test_the_document_says_what_the_results_say():
    """`python -m bench.draw` was run after the last measurement, and nobody has changed a figure by hand."""
    for path in draw.DOCUMENTS:
        document = path.read_text(encoding="utf-8")
        assert document == draw.written(document, draw.newest(report.RESULTS), path.parent)


def test_the_page_of_several_nodes_says_what_its_results_say():
    """`python -m bench.nodes` writes both."""
    document = (draw.DOCUMENTS[0].parent / "scale.md").read_text(encoding="utf-8")

    assert document == nodes_table.written(document, nodes_table.newest())
    assert all(aim.part in nodes_table.newest()["parts"] for aim in nodes_table.AIMS)


def test_the_pictures_show_what_the_results_say():
    """A plot is as much a claim as a number."""
    drawn = draw.images(draw.newest(report.RESULTS))

    assert drawn == {file.name: file.read_text(encoding="utf-8") for file in sorted(draw.IMAGES.glob("*.svg"))}


def test_every_scenario_and_every_curve_has_its_place_in_the_document():
    """What is measured and not shown is easily what does not look good."""
    texts = [path.read_text(encoding="utf-8") for path in draw.DOCUMENTS]
    places = {part["name"] for text in texts for part in draw.PART.finditer(text)}

    assert places == {
        "machine",
        "aims",
        "scale-machine",
        "peers-machine",
        "peers",
        *SCENARIOS,
        *(f"curve-{name}" for name in CURVES),
    }


def test_a_document_is_written_from_results_alone():
    """Figures, failures and doubts come from the file; what stands between the markers before is replaced."""
    figures = {"chunks_per_second": 1234567.0, "others_busy": 0.4, "errors": 0}
    measured = {"title": "t", "median": {"holdfast": figures}, "failures": {"nginx": "it fell over\nlong story"}}
    document = "before\n<!-- bench: flat -->\nstale\n<!-- end -->\n<!-- bench: ttft -->\n<!-- end -->\nafter\n"

    text = draw.written(document, {"bench": {"scenarios": {"flat": measured}}})

    assert text.startswith("before\n<!-- bench: flat -->\n![16 streams flat out")
    assert "|  | holdfast | nginx |\n" in text
    assert "| chunks/s | 1,234,567 | - |\n" in text
    assert "nginx failed: it fell over\n" in text
    assert "disturbed, other processes used 40% of a core" in text
    assert "stale" not in text
    assert "<!-- bench: ttft -->\nNot measured yet.\n<!-- end -->\nafter\n" in text


@pytest.mark.parametrize("draw_it", ["bars", "curves"])
def test_a_picture_is_sound_svg_with_words_for_those_who_do_not_see_it(draw_it):
    """A title and a description, all of the figures in them, and colours for light and dark."""
    if draw_it == "bars":
        text = plot.bars("A & B", [plot.Group("chunks/s", [("nginx", 2e6), ("holdfast", 5e5)])], report.short)
    else:
        text = plot.curves("A & B", "events", [plot.Line("ms", [(1e3, 2e6), (1e6, 5e5)])], report.short)
    svg = ElementTree.fromstring(text)
    title, says = svg[0].text, svg[1].text

    assert "A & B" == title
    assert all(figure in says for figure in ("2M", "500k"))
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"nan|inf", "".join(svg.itertext()))


def test_an_aim_that_was_missed_is_told_so():
    """The table is there to refute as much as to prove."""
    median = {
        "nginx": {"chunks_per_second": 1_000.0},
        "holdfast": {"chunks_per_second": 299.0},
        "vllm-router": {"chunks_per_second": 50.0},
    }
    results = {kind: {"scenarios": {"flat": {"median": median}}} for kind in ("bench", "peers")}

    lines = aims.table(results).splitlines()

    assert "| flat out: chunks/s, of nginx's | at least 0.3x | 0.30x | **no** |" in lines
    assert "| flat out: chunks/s, of the best peer's | at least 4x | 5.98x | yes |" in lines
    assert "| idle streams held | at least 5,000 | - | - |" in lines
