"""The report of a batch as one HTML page: no script, nothing loaded from anywhere, light and dark, and it prints."""

from __future__ import annotations

import html
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ..batches import OUTCOMES, quantile, wilson
from .client import Object

MOST_SHOWN = 200
"""Prompts whose answers the page holds: more would make it slow to open. All of them are in `--answers`."""
LONGEST = 4000
"""Characters of an answer that the page holds."""

LEFT, RIGHT, ROW, WIDTH = 190, 84, 38, 760
"""The room for names, the room for numbers, the height of a row, and the width of a plot."""


def page(told: Object, cells: Sequence[Object]) -> str:
    """Return the page."""
    batch, models = told["batch"], told["models"]
    title = html.escape(batch["name"] or batch["id"])
    sections = [
        _header(batch),
        _table(models),
        *_plots(models, cells),
        _by_kind(batch["models"], cells),
        _answers(batch, cells),
        _notes(batch),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n{_POLICY}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body><main>\n" + "\n".join(sections) + "\n</main></body></html>\n"
    )


def _header(batch: Object) -> str:
    progress = batch["progress"]
    state = batch["status"]
    told = f"{progress['done']:,} of {progress['total']:,} answers"
    facts = [
        f"{batch['prompts']:,} prompts",
        f"{len(batch['models'])} models",
        told if state == "finished" else f"<strong>{state}</strong>, {told}",
        f"{progress['failed']:,} failed" if progress["failed"] else "",
        html.escape(str(batch["created_at"])[:16].replace("T", " ")) + " UTC",
    ]
    about = "".join(f"<li>{fact}</li>" for fact in facts if fact)
    system = f"<p class=system>System prompt: {_clipped(batch['system'])}</p>" if batch["system"] else ""
    return f"<header><h1>{html.escape(batch['name'] or batch['id'])}</h1><ul class=facts>{about}</ul>{system}</header>"


# The table.


def _table(models: Sequence[Object]) -> str:
    has_expected = any(model["agreement"]["asked"] for model in models)
    has_cost = any(model["cost"] is not None for model in models)
    names = ["Model", *(["Right"] if has_expected else []), "Completed", "Not completed", "First word", "p95"]
    names += ["Tokens/s", "Tokens out", *(["Cost"] if has_cost else [])]
    head = "".join(f"<th scope=col>{name}</th>" for name in names)
    rows = "".join(_table_row(model, has_expected=has_expected, has_cost=has_cost) for model in models)
    return f"<section><table class=summary><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></section>"


def _table_row(model: Object, *, has_expected: bool, has_cost: bool) -> str:
    agreement, outcomes = model["agreement"], model["outcomes"]
    failed = model["answered"] - outcomes["completed"]
    cells = [_share(agreement["rate"]) if agreement["asked"] else "–"] if has_expected else []
    cells += [f"{outcomes['completed']:,}", f"<span class=bad>{failed:,}</span>" if failed else "0"]
    cells += [_milliseconds(model["ttft_ms_p50"]), _milliseconds(model["ttft_ms_p95"])]
    estimated = "≈ " if model["estimated"] else ""
    cells += [_plain(model["tokens_per_second_p50"]), f"{estimated}{model['output_tokens']:,}"]
    cells += ["–" if model["cost"] is None else f"{model['cost']:.4f}"] if has_cost else []
    name = f"<th scope=row>{html.escape(model['model'])}</th>"
    return f"<tr>{name}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


# The plots.


def _plots(models: Sequence[Object], cells: Sequence[Object]) -> list[str]:
    completed: dict[str, list[Object]] = defaultdict(list)
    for cell in cells:
        if cell["outcome"] == "completed":
            completed[cell["model"]].append(cell)
    plots = []
    if any(model["agreement"]["asked"] for model in models):
        plots.append(_section("Agreement with the expected answers", _AGREEMENT, _agreement(models)))
    plots.append(_section("How the answers ended", _legend(models), _outcomes(models)))
    for field, title, unit in (
        ("ttft_ms", "Time to the first word", "ms"),
        ("tokens_per_second", "Speed, in tokens a second", ""),
    ):
        values = [[cell[field] for cell in completed[model["model"]] if cell[field] is not None] for model in models]
        if any(values):
            plots.append(_section(title, _SPREAD, _spreads([model["model"] for model in models], values, unit)))
    return plots


_AGREEMENT = "The dot is the share of right answers, the line its 95% interval. No answer counts as not right."
_SPREAD = "The mark is the median, the box the middle half, the line the middle 90%. Completed answers only."


def _section(title: str, told: str, plot: str) -> str:
    return f"<section><h2>{title}</h2><p class=told>{told}</p>{plot}</section>"


def _agreement(models: Sequence[Object]) -> str:
    def draw(number: int, x: Callable[[float], float], y: float) -> str:
        told = models[number]["agreement"]
        if not told["asked"]:
            return _said(y, "–")
        low, high, dot = x(told["low"]), x(told["high"]), x(told["rate"])
        return (
            f'<line class=whisker x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>'
            f'<circle class=dot cx="{dot:.1f}" cy="{y}" r="6"/>{_said(y, _share(told["rate"]))}'
        )

    ticks = [(share, _share(share)) for share in (0, 0.25, 0.5, 0.75, 1)]
    return _chart([model["model"] for model in models], 1.0, ticks, draw, "Share of right answers for each model")


def _outcomes(models: Sequence[Object]) -> str:
    most = max((model["answered"] for model in models), default=0) or 1

    def draw(number: int, x: Callable[[float], float], y: float) -> str:
        at, drawn = 0, ""
        for outcome in OUTCOMES:
            count = models[number]["outcomes"][outcome]
            if count:
                drawn += (
                    f'<rect class="{outcome}" x="{x(at):.1f}" y="{y - 10}" width="{x(at + count) - x(at):.1f}"'
                    f' height="20"><title>{count:,} {outcome}</title></rect>'
                )
                at += count
        return drawn + _said(y, f"{models[number]['outcomes']['completed']:,} / {models[number]['answered']:,}")

    ticks = [(value, f"{value:,.0f}") for value in _round_steps(most)]
    return _chart([model["model"] for model in models], most, ticks, draw, "Outcomes for each model")


def _legend(models: Sequence[Object]) -> str:
    there = [outcome for outcome in OUTCOMES if any(model["outcomes"][outcome] for model in models)]
    return " ".join(f'<span class="key"><i class="{outcome}"></i>{outcome}</span>' for outcome in there)


def _spreads(names: Sequence[str], values: Sequence[Sequence[float]], unit: str) -> str:
    most = max(quantile(each, 0.95) or 0.0 for each in values) * 1.02 or 1.0

    def draw(number: int, x: Callable[[float], float], y: float) -> str:
        if not values[number]:
            return _said(y, "–")
        p5, p25, p50, p75, p95 = (x(quantile(values[number], share) or 0) for share in (0.05, 0.25, 0.5, 0.75, 0.95))
        median = quantile(values[number], 0.5) or 0.0
        return (
            f'<line class=whisker x1="{p5:.1f}" x2="{p95:.1f}" y1="{y}" y2="{y}"/>'
            f'<rect class=box x="{p25:.1f}" y="{y - 9}" width="{max(p75 - p25, 1):.1f}" height="18" rx="2"/>'
            f'<line class=median x1="{p50:.1f}" x2="{p50:.1f}" y1="{y - 11}" y2="{y + 11}"/>'
            f"{_said(y, _milliseconds(median) if unit else _plain(median))}"
        )

    ticks = [(value, _milliseconds(value) if unit else f"{value:,g}") for value in _round_steps(most)]
    return _chart(names, most, ticks, draw, "Spread for each model")


def _chart(
    names: Sequence[str],
    most: float,
    ticks: Sequence[tuple[float, str]],
    draw: Callable[[int, Callable[[float], float], float], str],
    told: str,
) -> str:
    """Return a plot with a row for each name, drawn by `draw(number, x, y)`, over an axis from 0 to `most`."""

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(value / most, 0.0), 1.0)

    bottom = ROW * len(names) + 8
    grid = "".join(
        f'<line class=grid x1="{x(value):.1f}" x2="{x(value):.1f}" y1="4" y2="{bottom}"/>'
        f'<text class=tick x="{x(value):.1f}" y="{bottom + 16}">{label}</text>'
        for value, label in ticks
    )
    rows = ""
    for number, name in enumerate(names):
        y = ROW * number + ROW // 2 + 4
        rows += (
            f'<text class=name x="{LEFT - 12}" y="{y + 4}">{html.escape(_short(name))}'
            f"<title>{html.escape(name)}</title></text>{draw(number, x, y)}"
        )
    size = f'viewBox="0 0 {WIDTH} {bottom + 24}"'
    return f'<svg {size} role="img" aria-label="{html.escape(told)}">{grid}{rows}</svg>'


def _said(y: float, text: str) -> str:
    return f'<text class=value x="{WIDTH - RIGHT + 12}" y="{y + 4}">{text}</text>'


def _round_steps(most: float) -> list[float]:
    """Return about five round numbers from 0 up to a value."""
    rough = most / 5
    size = 10 ** math.floor(math.log10(rough)) if rough > 0 else 1
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return [step * count for count in range(int(most / step + 1e-9) + 1)]


# Kinds.


def _by_kind(models: Sequence[str], cells: Sequence[Object]) -> str:
    """Return a table of agreement by kind, where there is more than one."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for cell in cells:
        if cell["expected"] is not None:
            count = counts[cell["kind"], cell["model"]]
            count[0] += cell["right"] is True
            count[1] += 1
    kinds = sorted({kind for kind, _ in counts})
    if len(kinds) < 2:
        return ""
    head = "".join(f"<th scope=col>{html.escape(_short(model))}</th>" for model in models)
    rows = "".join(
        f"<tr><th scope=row>{html.escape(kind) or '(none)'}</th>"
        + "".join(_kind_cell(*counts[kind, model]) for model in models)
        + "</tr>"
        for kind in kinds
    )
    table = f"<table class=kinds><thead><tr><th scope=col>Kind</th>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<section><h2>Agreement by kind</h2>{table}</section>"


def _kind_cell(right: int, asked: int) -> str:
    if not asked:
        return "<td>–</td>"
    low, high = wilson(right, asked)
    told = f"{right} of {asked}; 95% interval {_share(low)} to {_share(high)}"
    share = right / asked
    said = f"{_share(share)} <small>{right}/{asked}</small>"
    return f'<td style="--share: {share:.3f}" title="{told}">{said}</td>'


# Answers.


def _answers(batch: Object, cells: Sequence[Object]) -> str:
    """Return the answers, prompt by prompt, those first on which something went wrong or models disagree."""
    prompts: dict[int, list[Object]] = defaultdict(list)
    for cell in cells:
        prompts[cell["number"]].append(cell)
    ordered = sorted(prompts.values(), key=lambda answers: (_interest(answers), answers[0]["number"]))
    shown = "".join(_prompt(answers) for answers in ordered[:MOST_SHOWN])
    left = len(ordered) - MOST_SHOWN
    more = (
        f"<p class=told>{left:,} more prompts are not on this page. <code>--answers</code> writes all.</p>"
        if left > 0
        else ""
    )
    return f"<section><h2>Answers</h2><p class=told>Those on which models differ come first.</p>{shown}{more}</section>"


def _interest(answers: Sequence[Object]) -> int:
    verdicts = {(answer["outcome"] == "completed", answer["right"]) for answer in answers}
    return 0 if len(verdicts) > 1 else 1 if verdicts != {(True, True)} and verdicts != {(True, None)} else 2


def _prompt(answers: Sequence[Object]) -> str:
    first = answers[0]
    marks = "".join(_mark(answer) for answer in answers)
    asked = _text_of(first["prompt"])
    expected = (
        f"<p class=expected>Expected: <b>{_clipped(str(first['expected']))}</b></p>"
        if first["expected"] is not None
        else ""
    )
    said = "".join(_answer(answer) for answer in answers)
    name = f"<b>{html.escape(first['prompt_id'])}</b> {html.escape(_short(asked, 110))}"
    summary = f"<summary><span class=marks>{marks}</span>{name}</summary>"
    body = f"<pre class=asked>{_clipped(asked)}</pre>{expected}<div class=answers>{said}</div>"
    return f"<details>{summary}{body}</details>"


def _mark(answer: Object) -> str:
    state, sign = _state(answer)
    told = f"{answer['model']}: {state}"
    return f'<i class="mark {state.replace(" ", "-")}" title="{html.escape(told)}">{sign}</i>'


def _state(answer: Object) -> tuple[str, str]:
    if answer["outcome"] != "completed":
        return str(answer["outcome"]), "!"
    return {True: ("right", "✓"), False: ("wrong", "✗"), None: ("completed", "·")}[answer["right"]]


def _answer(answer: Object) -> str:
    state, _ = _state(answer)
    numbers = [state, _milliseconds(answer["ttft_ms"]), f"{answer['output_tokens']:,} tokens"]
    error = f"<p class=bad>{_clipped(answer['error']['message'])}</p>" if answer["error"] else ""
    text = f"<pre>{_clipped(answer['text'])}</pre>" if answer["text"] else ""
    told = " · ".join(number for number in numbers if number != "–")
    return f"<article><h3>{html.escape(answer['model'])} <small>{told}</small></h3>{text}{error}</article>"


def _notes(batch: Object) -> str:
    how = {
        "contains": "it contains the expected one, whatever the case and the spacing",
        "exact": "it is the expected one, but for space around it",
        "number": "its last number is the expected one",
        "regex": "the expected pattern is found in it",
    }[batch["match"]]
    return (
        f"<footer><p>An answer is right where {how}. Only completed answers are judged, and only they count for speed. "
        "Times are from the moment a model was asked; ≈ marks tokens of which some are estimated. Intervals of shares "
        f"are Wilson's, at 95%.</p><p>{html.escape(batch['id'])}, made with Holdfast.</p></footer>"
    )


# Words.


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


def _clipped(text: Any) -> str:
    said = str(text)
    more = len(said) - LONGEST
    return html.escape(said[:LONGEST]) + (f"<em> … and {more:,} more characters</em>" if more > 0 else "")


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(str(part.get("text") or f"({part.get('type', 'part')})") for part in content)


_POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"

# One hue for measurements; outcomes are told apart by lightness too, and by their words.
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
