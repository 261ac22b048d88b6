"""The report of a batch as one HTML page: no scripts, no external files, light and dark, printable."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ... import markup
from ...evals.model import OUTCOMES, quantile, wilson
from ...markup import Child, Markup, tag
from ..client import Object

MOST_SHOWN = 200
"""Maximum number of prompts with responses on the page: more would be slow to open. `--responses` has all of them."""
LONGEST = 4000
"""Maximum length of a response on the page, in characters."""

LEFT, RIGHT, ROW, WIDTH = 190, 84, 38, 760
"""Pixels: width of names, width of numbers, height of a row, width of a plot."""


def report_page(report: Object, cells: Sequence[Object]) -> str:
    """Return the page."""
    batch, models = report["batch"], report["models"]
    sections = [
        _header(batch),
        _table(models),
        *_plots(models, cells),
        _by_kind(batch["models"], cells),
        _answers(cells),
        _notes(batch),
    ]
    return str(markup.page(batch["name"] or batch["id"], _STYLE, *sections))


def _header(batch: Object) -> Markup:
    progress = batch["progress"]
    state = batch["status"]
    answered = f"{progress['done']:,} of {progress['total']:,} responses"
    facts: list[Child] = [
        f"{batch['prompts']:,} prompts",
        f"{len(batch['models'])} models",
        answered if state == "finished" else [tag("strong", state), f", {answered}"],
        f"{progress['failed']:,} failed" if progress["failed"] else None,
        str(batch["created_at"])[:16].replace("T", " ") + " UTC",
    ]
    about = tag("ul", [tag("li", fact) for fact in facts if fact], class_="facts")
    system = tag("p", "System prompt: ", _clipped(batch["system"]), class_="system") if batch["system"] else None
    return tag("header", tag("h1", batch["name"] or batch["id"]), about, system)


# The table.


def _table(models: Sequence[Object]) -> Markup:
    has_expected = any(model["agreement"]["asked"] for model in models)
    has_cost = any(model["cost"] is not None for model in models)
    names = ["Model", *(["Right"] if has_expected else []), "Completed", "Not completed", "First token", "p95"]
    names += ["Tokens/s", "Tokens out", *(["Cost"] if has_cost else [])]
    rows = [_table_row(model, has_expected=has_expected, has_cost=has_cost) for model in models]
    return tag("section", tag("table", _head(names), tag("tbody", rows), class_="summary"))


def _head(names: Sequence[str]) -> Markup:
    return tag("thead", tag("tr", [tag("th", name, scope="col") for name in names]))


def _table_row(model: Object, *, has_expected: bool, has_cost: bool) -> Markup:
    agreement, outcomes = model["agreement"], model["outcomes"]
    failed = model["answered"] - outcomes["completed"]
    cells: list[Child] = [_share(agreement["rate"]) if agreement["asked"] else "–"] if has_expected else []
    cells += [f"{outcomes['completed']:,}", tag("span", f"{failed:,}", class_="bad") if failed else "0"]
    cells += [_milliseconds(model["ttft_ms_p50"]), _milliseconds(model["ttft_ms_p95"])]
    estimated = "≈ " if model["estimated"] else ""
    cells += [_plain(model["tokens_per_second_p50"]), f"{estimated}{model['output_tokens']:,}"]
    cells += ["–" if model["cost"] is None else f"{model['cost']:.4f}"] if has_cost else []
    return tag("tr", tag("th", model["model"], scope="row"), [tag("td", cell) for cell in cells])


# The plots.

Scale = Callable[[float], float]
"""Maps a value to its position on the horizontal axis."""
PlotRow = Callable[[int, Scale, float], list[Markup]]
"""Draws row n at a height."""


def _plots(models: Sequence[Object], cells: Sequence[Object]) -> list[Markup]:
    completed: dict[str, list[Object]] = defaultdict(list)
    for cell in cells:
        if cell["outcome"] == "completed":
            completed[cell["model"]].append(cell)
    plots = []
    if any(model["agreement"]["asked"] for model in models):
        plots.append(_section("Agreement with the expected responses", _AGREEMENT, _agreement(models)))
    plots.append(_section("How the responses ended", _legend(models), _outcomes(models)))
    for field, title, unit in (
        ("ttft_ms", "Time to the first word", "ms"),
        ("tokens_per_second", "Speed, in tokens a second", ""),
    ):
        values = [[cell[field] for cell in completed[model["model"]] if cell[field] is not None] for model in models]
        if any(values):
            plots.append(_section(title, _SPREAD, _spreads([model["model"] for model in models], values, unit)))
    return plots


_AGREEMENT = "The dot is the share of right responses, the line its 95% interval. No response counts as not right."
_SPREAD = "The mark is the median, the box the middle half, the line the middle 90%. Completed responses only."


def _section(title: str, note: Child, plot: Markup) -> Markup:
    return tag("section", tag("h2", title), tag("p", note, class_="told"), plot)


def _agreement(models: Sequence[Object]) -> Markup:
    def draw(number: int, x: Scale, y: float) -> list[Markup]:
        agreement = models[number]["agreement"]
        if not agreement["asked"]:
            return [_value(y, "–")]
        return [
            tag("line", class_="whisker", x1=x(agreement["low"]), x2=x(agreement["high"]), y1=y, y2=y),
            tag("circle", class_="dot", cx=x(agreement["rate"]), cy=y, r=6),
            _value(y, _share(agreement["rate"])),
        ]

    ticks = [(share, _share(share)) for share in (0, 0.25, 0.5, 0.75, 1)]
    return _chart([model["model"] for model in models], 1.0, ticks, draw, "Share of right responses for each model")


def _outcomes(models: Sequence[Object]) -> Markup:
    most = max((model["answered"] for model in models), default=0) or 1

    def draw(number: int, x: Scale, y: float) -> list[Markup]:
        at, drawn = 0, []
        for outcome in OUTCOMES:
            count = models[number]["outcomes"][outcome]
            if count:
                width, title = x(at + count) - x(at), tag("title", f"{count:,} {outcome}")
                drawn.append(tag("rect", title, class_=outcome, x=x(at), y=y - 10, width=width, height=20))
                at += count
        completed, answered = models[number]["outcomes"]["completed"], models[number]["answered"]
        return [*drawn, _value(y, f"{completed:,} / {answered:,}")]

    ticks = [(value, f"{value:,.0f}") for value in _round_steps(most)]
    return _chart([model["model"] for model in models], most, ticks, draw, "Outcomes for each model")


def _legend(models: Sequence[Object]) -> Child:
    there = [outcome for outcome in OUTCOMES if any(model["outcomes"][outcome] for model in models)]
    return [[tag("span", tag("i", class_=outcome), outcome, class_="key"), " "] for outcome in there]


def _spreads(names: Sequence[str], values: Sequence[Sequence[float]], unit: str) -> Markup:
    most = max(quantile(each, 0.95) or 0.0 for each in values) * 1.02 or 1.0

    def draw(number: int, x: Scale, y: float) -> list[Markup]:
        if not values[number]:
            return [_value(y, "–")]
        p5, p25, p50, p75, p95 = (x(quantile(values[number], share) or 0) for share in (0.05, 0.25, 0.5, 0.75, 0.95))
        median = quantile(values[number], 0.5) or 0.0
        return [
            tag("line", class_="whisker", x1=p5, x2=p95, y1=y, y2=y),
            tag("rect", class_="box", x=p25, y=y - 9, width=max(p75 - p25, 1.0), height=18, rx=2),
            tag("line", class_="median", x1=p50, x2=p50, y1=y - 11, y2=y + 11),
            _value(y, _milliseconds(median) if unit else _plain(median)),
        ]

    ticks = [(value, _milliseconds(value) if unit else f"{value:,g}") for value in _round_steps(most)]
    return _chart(names, most, ticks, draw, "Spread for each model")


def _chart(names: Sequence[str], most: float, ticks: Sequence[tuple[float, str]], draw: PlotRow, title: str) -> Markup:
    """Return a plot with a row for each name over an axis from 0 to `most`."""

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(value / most, 0.0), 1.0)

    bottom = ROW * len(names) + 8
    grid = [
        [
            tag("line", class_="grid", x1=x(value), x2=x(value), y1=4, y2=bottom),
            tag("text", label, class_="tick", x=x(value), y=bottom + 16),
        ]
        for value, label in ticks
    ]
    rows = []
    for number, name in enumerate(names):
        y = ROW * number + ROW // 2 + 4
        label = tag("text", _short(name), tag("title", name), class_="name", x=LEFT - 12, y=y + 4)
        rows.append([label, *draw(number, x, y)])
    return tag("svg", grid, rows, viewBox=f"0 0 {WIDTH} {bottom + 24}", role="img", aria_label=title)


def _value(y: float, text: str) -> Markup:
    return tag("text", text, class_="value", x=WIDTH - RIGHT + 12, y=y + 4)


def _round_steps(most: float) -> list[float]:
    """Return about five round numbers from 0 up to a value."""
    rough = most / 5
    size = 10 ** math.floor(math.log10(rough)) if rough > 0 else 1
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return [step * count for count in range(int(most / step + 1e-9) + 1)]


# Kinds.


def _by_kind(models: Sequence[str], cells: Sequence[Object]) -> Markup | None:
    """Return a table of agreement by kind, if there is more than one kind."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for cell in cells:
        if cell["expected"] is not None and not cell.get("not_judged"):
            count = counts[cell["kind"], cell["model"]]
            count[0] += cell["right"] is True
            count[1] += 1
    kinds = sorted({kind for kind, _ in counts})
    if len(kinds) < 2:
        return None
    rows = [
        tag("tr", tag("th", kind or "(none)", scope="row"), [_kind_cell(*counts[kind, model]) for model in models])
        for kind in kinds
    ]
    head = _head(["Kind", *map(_short, models)])
    return tag("section", tag("h2", "Agreement by kind"), tag("table", head, tag("tbody", rows), class_="kinds"))


def _kind_cell(right: int, total: int) -> Markup:
    if not total:
        return tag("td", "–")
    low, high = wilson(right, total)
    interval = f"{right} of {total}; 95% interval {_share(low)} to {_share(high)}"
    share = right / total
    count = tag("small", f"{right}/{total}")
    return tag("td", _share(share), " ", count, style=f"--share: {share:.3f}", title=interval)


# Answers.


def _answers(cells: Sequence[Object]) -> Markup:
    """Return the answers by prompt. Prompts with errors or differing answers come first."""
    by_prompt: dict[int, list[Object]] = defaultdict(list)
    for cell in cells:
        by_prompt[cell["number"]].append(cell)
    ordered = sorted(by_prompt.values(), key=lambda answers: (_interest(answers), answers[0]["number"]))
    note = tag("p", "Those on which models differ come first.", class_="told")
    details = [_prompt(answers) for answers in ordered[:MOST_SHOWN]]
    return tag("section", tag("h2", "Responses"), note, details, _left_out(len(ordered) - MOST_SHOWN))


def _left_out(prompts: int) -> Markup | None:
    if prompts <= 0:
        return None
    option = tag("code", "--responses")
    return tag("p", f"{prompts:,} more prompts are not on this page. ", option, " writes all.", class_="told")


def _interest(answers: Sequence[Object]) -> int:
    verdicts = {(answer["outcome"] == "completed", answer["right"]) for answer in answers}
    return 0 if len(verdicts) > 1 else 1 if verdicts != {(True, True)} and verdicts != {(True, None)} else 2


def _prompt(answers: Sequence[Object]) -> Markup:
    first = answers[0]
    prompt = _text_of(first["prompt"])
    marks = tag("span", [_mark(answer) for answer in answers], class_="marks")
    summary = tag("summary", marks, tag("b", first["prompt_id"]), " ", _short(prompt, 110))
    listed = tag("div", [_answer(answer) for answer in answers], class_="answers")
    return tag("details", summary, tag("pre", _clipped(prompt), class_="asked"), _expected(first["expected"]), listed)


def _expected(value: Any) -> Markup | None:
    return None if value is None else tag("p", "Expected: ", tag("b", _clipped(value)), class_="expected")


def _mark(answer: Object) -> Markup:
    state, sign = _state(answer)
    return tag("i", sign, class_=f"mark {state.replace(' ', '-')}", title=f"{answer['model']}: {state}")


def _state(answer: Object) -> tuple[str, str]:
    if answer["outcome"] != "completed":
        return str(answer["outcome"]), "!"
    return {True: ("right", "✓"), False: ("wrong", "✗"), None: ("completed", "·")}[answer["right"]]


def _answer(answer: Object) -> Markup:
    state, _ = _state(answer)
    numbers = [state, _milliseconds(answer["ttft_ms"]), f"{answer['output_tokens']:,} tokens"]
    figures = tag("small", " · ".join(number for number in numbers if number != "–"))
    text = tag("pre", _clipped(answer["text"])) if answer["text"] else None
    trouble = answer["error"]["message"] if answer["error"] else answer.get("not_judged")
    error = tag("p", _clipped(trouble), class_="bad") if trouble else None
    return tag("article", tag("h3", answer["model"], " ", figures), text, error)


def _notes(batch: Object) -> Markup:
    how = {
        "contains": "it contains the expected one, whatever the case and the spacing",
        "exact": "it is the expected one, but for space around it",
        "number": "its last number is the expected one",
        "regex": "the expected pattern is found in it",
    }[batch["match"]]
    judged = (
        f"A response is right if {how}. Only completed responses are judged, and only they count for speed. "
        "Times are from the moment a model was asked; ≈ marks tokens of which some are estimated. Intervals of shares "
        "are Wilson's, at 95%."
    )
    return tag("footer", tag("p", judged), tag("p", f"{batch['id']}, made with Holdfast."))


# Text and numbers.


def _share(value: float) -> str:
    return f"{value:.0%}"


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1000:,.3g} s" if value >= 1000 else f"{value:,.0f} ms" if value >= 10 else f"{value:.2g} ms"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _short(text: str, longest: int = 26) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"


def _clipped(text: Any) -> Child:
    whole = str(text)
    more = len(whole) - LONGEST
    return [whole[:LONGEST], tag("em", f" … and {more:,} more characters") if more > 0 else None]


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(str(part.get("text") or f"({part.get('type', 'part')})") for part in content)


# One hue for measurements. Outcomes also differ in lightness, and have labels.
_STYLE = """
:root { color-scheme: light dark; --ground: #fbfbfa; --card: #fff; --ink: #1c2024; --soft: #5f6b76; --line: #e3e6e8;
  --mark: #0b6fa4; --wash: #cfe4f0; --completed: #2b8a6e; --truncated: #d9a521; --stopped: #9aa5ae; --failed: #c8442f;
  --interrupted: #7d2a5e; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171a; --card: #1b1f23; --ink: #e6e9eb; --soft: #9aa6b0;
  --line: #2c3238; --mark: #5cb6e4; --wash: #24465a; --completed: #47b394; --truncated: #e3bb4d; --stopped: #76828c;
  --failed: #ea7059; --interrupted: #c07aa5; } }
* { box-sizing: border-box }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
main { max-width: 940px; margin: 0 auto; padding: 40px 20px 60px }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 8px; overflow-wrap: anywhere }
h2 { font-size: 1.1rem; margin: 0 0 2px }
h3 { font-size: .9rem; margin: 0 0 6px; overflow-wrap: anywhere }
small { color: var(--soft); font-weight: 400 }
.facts { list-style: none; margin: 0; padding: 0; display: flex; flex-wrap: wrap; gap: 2px 18px; color: var(--soft) }
.system, .told, footer { color: var(--soft); font-size: .9rem; margin: 0 0 12px }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 20px 22px;
  margin: 22px 0; overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem }
th, td { text-align: right; padding: 7px 10px; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child { text-align: left; padding-left: 0 } td:last-child, th:last-child { padding-right: 0 }
.summary tbody th { white-space: normal; overflow-wrap: anywhere; min-width: 130px }
.summary thead th { white-space: normal; vertical-align: bottom }
thead th { color: var(--soft); font-weight: 500 } tbody tr:last-child > * { border-bottom: 0 }
.kinds td { background: color-mix(in srgb, var(--wash) calc(var(--share, 0) * 100%), transparent) }
.kinds td:last-child { padding-right: 10px }
svg { display: block; width: 100%; height: auto; min-width: 560px; font: 13px system-ui, sans-serif }
svg text { fill: var(--ink) } .name { text-anchor: end } .tick { text-anchor: middle; fill: var(--soft) }
.value { font-variant-numeric: tabular-nums } .grid { stroke: var(--line) }
.whisker { stroke: var(--mark); stroke-width: 2; stroke-linecap: round } .dot { fill: var(--mark) }
svg .box { fill: var(--wash); stroke: var(--mark) } .median { stroke: var(--mark); stroke-width: 3 }
.completed { --hue: var(--completed) } .truncated { --hue: var(--truncated) } .stopped { --hue: var(--stopped) }
.failed { --hue: var(--failed) } .interrupted { --hue: var(--interrupted) } svg rect { fill: var(--hue) }
.key { margin-right: 14px }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 6px;
  background: var(--hue) }
.bad { color: var(--failed) }
details { border-top: 1px solid var(--line); padding: 8px 0 } summary { cursor: pointer; overflow-wrap: anywhere }
summary:focus-visible { outline: 2px solid var(--mark); outline-offset: 3px }
.marks { float: right; margin-left: 12px }
.mark { font-style: normal; display: inline-block; width: 1.4em; height: 1.4em; line-height: 1.4em; text-align: center;
  border-radius: 4px; margin-left: 3px; font-size: .85rem; border: 1px solid currentColor; color: var(--soft) }
.mark.right { color: var(--completed) } .mark.wrong, .mark.failed, .mark.interrupted { color: var(--failed) }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font: 13px/1.5 ui-monospace, monospace }
.asked { padding: 10px 0 4px; color: var(--soft) } .expected { margin: 4px 0 10px; font-size: .9rem }
.answers { display: grid; grid-template-columns: repeat(auto-fit, minmax(250px, 1fr)); gap: 12px; margin: 8px 0 }
article { border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; min-width: 0 }
article p { margin: 6px 0 0; font-size: .9rem }
footer { margin-top: 30px; overflow-wrap: anywhere }
@media print { body { background: #fff } section { break-inside: avoid; border: 0; padding: 0 } }
"""
