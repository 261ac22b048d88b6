"""What the lab found, as data, as lines and as one HTML page: no script, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import markup
from holdfast.markup import Markup, tag

from .checks import Finding

__all__ = ["GROUPS", "Report", "groups", "page"]

GROUPS = {
    "truth": "Is a failure told as a failure?",
    "leave": "Does the upstream stop when the client leaves?",
    "stop": "Does a stop stop?",
    "keep": "Is what was said kept?",
    "resume": "Can a reader come back?",
    "slow": "Do slow readers harm others?",
    "crash": "What does kill -9 leave?",
}


class Report(msgspec.Struct):
    """All findings about one server. `made_at` is in UTC."""

    server: str
    version: str
    made_at: str
    lab: str
    """The version of the lab."""
    findings: list[Finding] = []

    def count(self, verdict: str) -> int:
        """Return how many findings have a verdict."""
        return sum(finding.verdict == verdict for finding in self.findings)

    @property
    def wires(self) -> list[str]:
        """The wires that were judged, in order."""
        return list(dict.fromkeys(finding.wire for finding in self.findings))


def groups(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Return findings by what they are about."""
    found: dict[str, list[Finding]] = {group: [] for group in GROUPS}
    for finding in findings:
        found[finding.id.partition("/")[0]].append(finding)
    return {group: inside for group, inside in found.items() if inside}


def page(report: Report) -> str:
    """Return the report as a page."""
    title = f"{report.server} {report.version}".strip()
    sections = [_wire(report, wire) for wire in report.wires]
    return str(markup.page(f"Conformance lab: {title}", _STYLE, tag("h1", title), _summary(report), *sections))


def _summary(report: Report) -> Markup:
    counts = [f"{report.count(verdict)} {verdict}" for verdict in ("pass", "fail", "not promised", "not judged")]
    when = report.made_at[:16].replace("T", " ")
    return tag("p", f"{', '.join(counts)}. Judged by Holdfast's lab {report.lab}, {when} UTC.")


def _wire(report: Report, wire: str) -> Markup:
    inside = groups([finding for finding in report.findings if finding.wire == wire])
    return tag("section", tag("h2", wire), [_table(GROUPS[group], findings) for group, findings in inside.items()])


def _table(title: str, findings: Sequence[Finding]) -> list[Markup]:
    names = ("Check", "What is promised", "Verdict", "What was seen")
    head = tag("thead", tag("tr", [tag("th", name, scope="col") for name in names]))
    return [tag("h3", title), tag("table", head, tag("tbody", [_row(finding) for finding in findings]))]


def _row(finding: Finding) -> Markup:
    seen = "; ".join(part for part in (finding.seen, finding.why) if part)
    verdict = tag("td", finding.verdict, class_=finding.verdict.replace(" ", "-"))
    return tag(
        "tr", tag("th", tag("code", finding.id), scope="row"), tag("td", finding.promise), verdict, tag("td", seen)
    )


_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 0; } main { max-width: 72rem; margin: 0 auto; padding: 1.5rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; vertical-align: top; }
tbody tr { border-top: 1px solid color-mix(in srgb, currentColor 20%, transparent); } tbody th { white-space: nowrap; }
.pass { color: light-dark(#0a6b2d, #6fd08c); } .fail { color: light-dark(#b00020, #ff8a8a); font-weight: 600; }
.not-promised, .not-judged { opacity: .75; }
"""
