"""What the lab found, as data, as lines and as one HTML page: no script, nothing loaded from anywhere."""

from __future__ import annotations

import html
from collections.abc import Sequence

import msgspec

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
    title = html.escape(f"{report.server} {report.version}".strip())
    sections = "\n".join(_wire(report, wire) for wire in report.wires)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n{_POLICY}'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Fault lab: {title}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body><main>\n<h1>{title}</h1>\n{_summary(report)}\n{sections}\n"
        "</main></body></html>\n"
    )


def _summary(report: Report) -> str:
    counts = [f"{report.count(verdict)} {verdict}" for verdict in ("pass", "fail", "not promised", "not judged")]
    when = html.escape(report.made_at[:16].replace("T", " "))
    return f"<p>{', '.join(counts)}. Judged by Holdfast's lab {html.escape(report.lab)}, {when} UTC.</p>"


def _wire(report: Report, wire: str) -> str:
    inside = groups([finding for finding in report.findings if finding.wire == wire])
    tables = "\n".join(_table(GROUPS[group], findings) for group, findings in inside.items())
    return f"<section><h2>{html.escape(wire)}</h2>\n{tables}\n</section>"


def _table(title: str, findings: Sequence[Finding]) -> str:
    head = "".join(f"<th scope=col>{name}</th>" for name in ("Check", "What is promised", "Verdict", "What was seen"))
    rows = "\n".join(_row(finding) for finding in findings)
    return f"<h3>{html.escape(title)}</h3>\n<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"


def _row(finding: Finding) -> str:
    seen = "; ".join(part for part in (finding.seen, finding.why) if part)
    mark = finding.verdict.replace(" ", "-")
    return (
        f"<tr><th scope=row><code>{finding.id}</code></th><td>{html.escape(finding.promise)}</td>"
        f"<td class={mark}>{finding.verdict}</td><td>{html.escape(seen)}</td></tr>"
    )


_POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 0; } main { max-width: 72rem; margin: 0 auto; padding: 1.5rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; vertical-align: top; }
tbody tr { border-top: 1px solid color-mix(in srgb, currentColor 20%, transparent); } tbody th { white-space: nowrap; }
.pass { color: light-dark(#0a6b2d, #6fd08c); } .fail { color: light-dark(#b00020, #ff8a8a); font-weight: 600; }
.not-promised, .not-judged { opacity: .75; }
"""
