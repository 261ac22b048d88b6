"""The conformance lab over us and over the peers, and the table of docs/lab.md.

python -m bench.lab                       # all that can be started here; results to bench/results/lab-<date>.json
python -m bench.lab litellm holdfast      # only these; what was found of the others stays
python -m bench.lab --draw                # only the table, from the newest results
"""

import argparse
import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import holdfast
from bench import machine
from bench.instruments import Failed
from bench.peers import PEERS, LiteLLM, SglangRouter, VllmRouter
from bench.targets import TARGETS, Target
from holdfast_lab import SERVERS, WIRES, Finding, Http, Lab, Upstream, judge, trouble
from holdfast_lab.process import NotStarted
from holdfast_lab.report import Report

RESULTS = Path(__file__).parent / "results"
PAGE = machine.ROOT / "docs" / "lab.md"
BEGIN, END = "<!-- the lab's findings, by `python -m bench.lab --draw` -->\n", "<!-- end of the lab's findings -->"

NAMES = ["holdfast", *PEERS]
CHAT_AND_RESPONSES = ["openai-chat", "responses"]
JUDGED_ON = {"holdfast": list(WIRES), "hermes-agent": CHAT_AND_RESPONSES}
"""LiteLLM passes responses on to an upstream's own, which the lab's has not: there it is judged on chat alone."""
MODEL = "lab"


class Machine(msgspec.Struct):
    """What the times depend on."""

    cpu: str
    cores: int
    kernel: str
    python: str
    load_before: float


class Results(msgspec.Struct):
    """What was found of each server, and what could not be judged at all."""

    machine: Machine
    reports: dict[str, Report] = {}
    missing: dict[str, str] = {}


# Judging.


class Patient(Target):
    """A router that keeps asking an upstream that fails, as the lab's does all the time."""

    def command(self) -> list[str]:
        return [*super().command(), "--disable-circuit-breaker"]


class PatientVllmRouter(Patient, VllmRouter): ...


class PatientSglangRouter(Patient, SglangRouter): ...


class PatientLiteLLM(LiteLLM):
    """Without the pause in which it asks no upstream that has failed."""

    def command(self) -> list[str]:
        command = super().command()
        config = self.folder / "litellm.yaml"
        settings = json.loads(config.read_text()) | {"router_settings": {"disable_cooldowns": True}}
        config.write_text(json.dumps(settings))
        return command


KINDS = TARGETS | PEERS | {kind.name: kind for kind in (PatientVllmRouter, PatientSglangRouter, PatientLiteLLM)}


class Process:
    """A target as the lab sees a server that it may kill."""

    def __init__(self, target: Target) -> None:
        self._target = target

    async def kill(self) -> None:
        await asyncio.to_thread(self._target.kill)

    async def start(self) -> None:
        try:
            await asyncio.to_thread(self._target.restart)
        except Failed as failed:
            raise NotStarted(str(failed).splitlines()[0]) from failed

    async def memory(self) -> float:
        assert self._target.pid
        return (await asyncio.to_thread(machine.memory, self._target.pid)).rss_kb * 1024.0


async def report_of(name: str) -> Report:
    """Start a server with the lab's upstream behind it, and judge it on its wires."""
    kind = KINDS[name]
    if why := kind.missing():
        raise Failed(why)
    version = getattr(kind, "version", holdfast.__version__)
    report = Report(name, version, datetime.now(UTC).isoformat(timespec="seconds"), holdfast.__version__)
    async with Upstream(models=(MODEL,)) as upstream:
        target = await asyncio.to_thread(kind, upstream.port, [MODEL])
        try:
            for wire in JUDGED_ON.get(name, ["openai-chat"]):
                try:
                    report.findings += await _findings(target, wire, upstream)
                except Failed as failed:
                    print(f"  {wire}: {failed}")
            if not report.findings:
                raise Failed("it gave no answer from the lab's upstream")
        finally:
            await asyncio.to_thread(target.stop)
    return report


async def _findings(target: Target, wire: str, upstream: Upstream) -> list[Finding]:
    facts = SERVERS[target.name]
    it = WIRES[wire](Http(target.base_url, headers=target.headers), target.model, facts.session)
    lab = Lab(it, upstream, patience=30.0, silence=4.0, open=5.0, samples=6, at_once=8, judged=Process(target))
    if why := await trouble(msgspec.structs.replace(lab, patience=120.0)):  # the first answer may take its time
        raise Failed(why)
    found = []
    async for finding in judge(lab, facts):
        found.append(finding)
        print(f"  {wire:12} {finding.id:26} {finding.verdict:13} {finding.seen} {finding.why}", flush=True)
    return found


async def run(names: list[str], results: Results) -> None:
    """Judge each, and write what was found after each: the next may take its time."""
    for name in names:
        print(name, flush=True)
        try:
            results.reports[name] = await report_of(name)
            results.missing.pop(name, None)
        except Failed as failed:
            print(f"  {failed}")
            if name not in results.reports:
                results.missing[name] = str(failed).splitlines()[0]
        write(results)


# The file.


def newest() -> Path | None:
    return max(RESULTS.glob("lab-*.json"), default=None)


def read(path: Path | None) -> Results:
    if path is None:
        return Results(Machine(**machine.facts()))
    return msgspec.json.decode(path.read_bytes(), type=Results)


def write(results: Results) -> None:
    path = RESULTS / f"lab-{datetime.now(UTC):%Y-%m-%d}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")


# The table.

COLUMNS = ["server", "API", "truth", "false success", "silent end", "other text"]
COLUMNS += ["leaves mid-stream", "in silence", "before the first word", "without streaming"]
COLUMNS += ["stop", "kept", "resumed", "slow readers", "kill -9"]
BUSY = " Other work went on there at the same time: times are longer than on a quiet machine."


def table(results: Results) -> str:
    """One row for each server and wire, as Markdown."""
    lines = [_line(COLUMNS), _line(["---"] * len(COLUMNS))]
    for name in NAMES:
        if report := results.reports.get(name):
            lines += [_line(_row(report, wire)) for wire in report.wires]
    notes = [f"{name} could not be judged here: {why}." for name, why in results.missing.items()]
    when = sorted({report.made_at[:10] for report in results.reports.values()})
    busy = "" if results.machine.load_before < results.machine.cores else BUSY
    about = f"Judged on {' and '.join(when)}, on {results.machine.cpu} with {results.machine.cores} cores.{busy}"
    return "\n".join([*lines, "", " ".join([about, *notes]), ""])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(report: Report, wire: str) -> list[str]:
    found = {finding.id: finding for finding in report.findings if finding.wire == wire}
    truth = [finding for id, finding in found.items() if id.startswith("truth/")]
    failed = [finding for finding in truth if finding.verdict == "fail"]
    lies = [f"`{_short(finding.id)}`" for finding in failed if _is_lie(finding)]
    unsaid = [f"`{_short(finding.id)}`" for finding in failed if "nothing was said" in finding.seen]
    other = sum("another text" in finding.seen or "no model said" in finding.seen for finding in failed)
    leaves = [_time(found[f"leave/{how}"]) for how in ("mid-stream", "silence", "mute", "json")]
    groups = [_group(found, group) for group in ("stop", "keep", "resume", "slow", "crash")]
    told = [_share(truth), _list(lies), _list(unsaid), str(other or "none")]
    return [f"{report.server} {report.version}", wire, *told, *leaves, *groups]


def _is_lie(finding: Finding) -> bool:
    return finding.seen.startswith("told as success") and "another text" not in finding.seen


def _list(names: list[str]) -> str:
    """Some of them by name: all of them stand in the results."""
    return " ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") if names else "none"


def _short(id: str) -> str:
    return id.partition("/")[2]


def _share(found: list[Finding]) -> str:
    held = sum(finding.verdict == "pass" for finding in found)
    return f"{held} of {held + sum(finding.verdict == 'fail' for finding in found)}"


def _time(finding: Finding) -> str:
    """The worst time, and a mark where nothing was promised."""
    if not finding.seen:
        return "–"
    if finding.verdict == "not judged":
        return finding.verdict
    seen = f"{finding.figures['max_ms']:.0f} ms" if "max_ms" in finding.figures else "stays open"
    return f"({seen})" if finding.verdict == "not promised" else seen


def _group(found: dict[str, Finding], group: str) -> str:
    inside = [finding for id, finding in found.items() if id.startswith(f"{group}/") and finding.seen]
    failed = [f"`{_short(finding.id)}`" for finding in inside if finding.verdict == "fail"]
    return "–" if not inside else f"fails: {' '.join(failed)}" if failed else "holds"


def with_table(page: str, results: Results) -> str:
    before, rest = page.split(BEGIN)
    return before + BEGIN + table(results) + END + rest.split(END)[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--draw", action="store_true", help="only draw the table")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    results = read(newest())
    if not options.draw:
        machine.share_cores()  # speed is not judged here
        results.machine = Machine(**machine.facts())
        asyncio.run(run(options.names or NAMES, results))
    PAGE.write_text(with_table(PAGE.read_text(), results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
