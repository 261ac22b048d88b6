"""`python -m bench.beside`: installs the peers and measures them beside the direct line, nginx and Holdfast.

Every target gets the same load in the same run, one that agents can hold too: closes are measured under 20 live
streams of five tokens a second, memory with 1,000. A peer that cannot be installed, started or measured in time is
named with the reason.
"""

import argparse
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import installs, machine, report
from bench.__main__ import measure, warm
from bench.closes import figures_of
from bench.instruments import Failed, Upstream
from bench.measure import Figures
from bench.peers import PEERS, PINNED, Peer
from bench.plays import ENDLESS, HEARTBEAT, LIVELY
from bench.scenarios import CLOSE, HEALTH, LATENCY, SCENARIOS, Scenario, streams
from bench.targets import DEFAULT, TARGETS, Target

IDLE_STREAMS = 1000
LEAVERS, LEAVES = 10, 40
SLOWEST = 1500
"""Milliseconds after which clients leave an upstream that says nothing: time for the server to have asked it."""

FRESH = {"idle"}
"""Memory is measured in a process that has done nothing else."""

serial = itertools.count(1)


def main() -> None:
    asked = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # what has been measured by then is kept
    machine.allow_many_files()
    peers = [PEERS[name] for name in asked.peers.split(",") if name]
    missing = _install(peers)
    if asked.install_only:
        return
    machine.pin_load()
    os.nice(asked.nice)
    begun = time.monotonic()
    targets = [TARGETS[name] for name in asked.targets.split(",")] + [
        peer for peer in peers if peer.name not in missing
    ]
    missing |= {each.name: reason for each in targets if (reason := each.missing())}
    results: dict[str, Any] = {
        "kind": "peers",
        "seconds": asked.seconds,
        "rounds": asked.rounds,
        "peers": {peer.name: peer.facts() for peer in peers},
        "pinned": PINNED,
        "missing": missing,
        "scenarios": {},
    }
    present = [each for each in targets if each.name not in missing]
    try:
        _measure_all(asked, present, results)
    finally:
        if results["scenarios"]:
            results["ratios"] = ratios(results["scenarios"])
            print(_closing(results))
            print(f"took {(time.monotonic() - begun) / 60:.0f} minutes; results: {_save(results, asked.json)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.beside", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=f"one or more of {', '.join(BESIDE)}")
    parser.add_argument("--peers", default=",".join(PEERS), help="(default: %(default)s)")
    parser.add_argument("--targets", default=",".join(DEFAULT), help=f"of {', '.join(TARGETS)} (default: %(default)s)")
    parser.add_argument("--install-only", action="store_true", help="install them, and measure nothing")
    parser.add_argument("--seconds", type=float, default=3, help="measured time of each load (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="times each is measured (default: %(default)s)")
    parser.add_argument(
        "--minutes", type=float, default=16, help="no scenario is begun after this time (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="where the results go (default: bench/results/)")
    parser.add_argument("--nice", type=int, default=0, help="priority of targets and load (root)")
    asked = parser.parse_args()
    unknown = [name for name in asked.scenarios if name not in BESIDE]
    unknown += [name for name in asked.peers.split(",") if name and name not in PEERS]
    unknown += [name for name in asked.targets.split(",") if name not in TARGETS]
    if unknown:
        parser.error(f"no such scenario, peer or target: {', '.join(unknown)}")
    return asked


def _install(peers: list[type[Peer]]) -> dict[str, str]:
    """The reason for each peer that could not be installed."""
    reasons = {}
    for peer in peers:
        if not installs.installed(peer.name, peer.source):
            print(f"{peer.name} {peer.version}: installing ...", flush=True)
        begun = time.monotonic()
        if reason := installs.install(peer.name, peer.source):
            reasons[peer.name] = f"could not be installed: {reason}"
            print(f"{peer.name}: {reasons[peer.name]}", flush=True)
        elif time.monotonic() - begun > 1:
            print(f"{peer.name} {peer.version}: installed in {time.monotonic() - begun:.0f} s", flush=True)
    return reasons


def _measure_all(asked: argparse.Namespace, targets: list[type[Target]], results: dict[str, Any]) -> None:
    """`start` comes first whatever is asked for: who does not start there is not waited for again."""
    upstream, standing = Upstream(), Standing()
    until = time.monotonic() + asked.minutes * 60
    try:
        for name in dict.fromkeys(["start", *(asked.scenarios or BESIDE)]):
            if time.monotonic() > until:
                print(f"{name}: not measured, {asked.minutes:g} minutes are over")
                continue
            rounds = 1 if name == "start" else asked.rounds
            seen = measure(BESIDE[name], targets, upstream, asked.seconds, rounds, standing.measured)
            results["scenarios"][name] = seen
            if name == "start":
                results["missing"] |= seen["failures"]
                targets = [target for target in targets if target.name not in seen["failures"]]
    finally:
        standing.end_all()
        upstream.stop()


class Standing:
    """Servers that are started once, as some need half a minute for it, and stand still while others are measured."""

    def __init__(self) -> None:
        self._targets: dict[str, Target] = {}

    def measured(self, scenario: Scenario, kind: type[Target], upstream: Upstream, seconds: float) -> Figures:
        """One measurement. A target that fails, or still asks the upstream after it, is started again for the next."""
        if scenario.name in FRESH:
            self._end(kind)
        target = self._awake(kind, upstream)
        try:
            figures = scenario.measure(target, upstream, seconds * kind.longer)
            is_quiet = not upstream.still_active()
        except BaseException:
            self._end(kind)
            raise
        target.pause() if is_quiet else self._end(kind)
        return {"started_in_s": target.started_in, **figures}

    def _awake(self, kind: type[Target], upstream: Upstream) -> Target:
        if kind.name in self._targets:
            self._targets[kind.name].wake()
        else:
            self._targets[kind.name] = warm(kind, upstream)
        return self._targets[kind.name]

    def _end(self, kind: type[Target]) -> None:
        if target := self._targets.pop(kind.name, None):
            target.stop()

    def end_all(self) -> None:
        for target in self._targets.values():
            target.stop()


def ratios(scenarios: dict[str, Any]) -> dict[str, Any]:
    """Holdfast's rate over the best peer's, for the two figures that are promised."""
    found = {}
    for name, figure, among, promised in (
        ("flat", "chunks_per_second", set(PEERS), 4.0),
        ("json", "requests_per_second", {name for name, peer in PEERS.items() if peer.language == "Rust"}, 1.0),
    ):
        median = scenarios.get(name, {}).get("median", {})
        rates = {peer: figures[figure] for peer, figures in median.items() if peer in among}
        if rates and "holdfast" in median:
            best = max(rates, key=lambda peer: rates[peer])
            ratio = median["holdfast"][figure] / rates[best]
            found[name] = {"best": best, "of_best_peer": ratio, "promised": promised}
    return found


def _closing(results: dict[str, Any]) -> str:
    lines = [
        f"{name}: {each['of_best_peer']:.2f} times the best peer ({each['best']}); promised: {each['promised']:g} times"
        for name, each in results["ratios"].items()
    ]
    lines += [f"{name}: not measured, {reason}" for name, reason in results["missing"].items()]
    return "\n".join(lines)


def _save(results: dict[str, Any], to: Path | None) -> Path:
    commit = machine.commit().replace("+", "-dirty")
    named = report.RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-peers-{commit}.json"
    return report.save(results, to or named)


# ---- scenarios ----


def start(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """How long it took to answer, and what it holds after its warm-up."""
    return {"rss_mb": machine.memory(target.pid).rss_kb / 1024} if target.pid else {}


def paced_20(target: Target, upstream: Upstream, seconds: float) -> Figures:
    return streams(target, upstream, streams=20, model=ENDLESS, ramp=1, warmup=1, for_=seconds)


def idle(target: Target, upstream: Upstream, seconds: float) -> Figures:
    """Memory before and with many open streams that say one token in five seconds."""
    assert target.pid
    before = machine.memory(target.pid)
    with target.background(streams=IDLE_STREAMS, model=HEARTBEAT, ramp=5, timeout=60, for_=120):
        upstream.wait_active(IDLE_STREAMS, 25)
        time.sleep(6)  # each stream has sent something
        return machine.memory(target.pid).figures(before, IDLE_STREAMS)


How = Callable[[Target], dict[str, Any]]


def mid_stream(target: Target) -> dict[str, Any]:
    return {"model": LIVELY, "leave_after": 5}


def waiting_for(model: str) -> How:
    """For an upstream that says nothing; the slow are given longer to ask it."""
    return lambda target: {"model": model, "leave_ms": int(SLOWEST * target.longer)}


def leaving(marker: str, how: How) -> Callable[[Target, Upstream, float], Figures]:
    """Clients that go, each at its moment, while others stream."""

    def measured(target: Target, upstream: Upstream, seconds: float) -> Figures:
        named, leaves = f"{marker}-{next(serial)}", max(LEAVERS, int(LEAVES / target.longer))
        upstream.reset()
        with target.background(streams=target.live_streams, model=LIVELY, ramp=1, marker="live", timeout=60, for_=120):
            upstream.wait_active(target.live_streams, 20)
            before = upstream.stats()["requests"]
            seen = target.load(
                streams=LEAVERS, requests=leaves, ramp=0.2, think=37, marker=named, timeout=30, **how(target)
            )
            reached = min(leaves, upstream.stats()["requests"] - before)
            if not reached:
                raise Failed("no request had reached the upstream when its client left")
            return figures_of(upstream, {left["marker"]: left["at"] for left in seen["leaves"]}, reached)

    return measured


BESIDE: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "start",
            "from the command to the first answer, and the memory after a few streams",
            ("started_in_s", "rss_mb"),
            start,
            needs_process=True,
        ),
        SCENARIOS["flat"],
        SCENARIOS["flat-short"],
        SCENARIOS["json"],
        SCENARIOS["ttft"],
        Scenario(
            "leave",
            f"the client leaves mid-stream, under {Target.live_streams} live streams: upstream closed after",
            CLOSE,
            leaving("streaming", mid_stream),
        ),
        Scenario(
            "leave-silent",
            f"the client leaves a silent upstream, under {Target.live_streams} live streams: upstream closed after",
            CLOSE,
            leaving("silent", waiting_for("silent")),
        ),
        Scenario(
            "leave-mute",
            f"the client leaves before any answer, under {Target.live_streams} live streams: upstream closed after",
            CLOSE,
            leaving("mute", waiting_for("mute")),
        ),
        Scenario(
            "paced-20",
            "20 streams x 50 chunks/s",
            ("chunks_per_second", *LATENCY, "ttft_p50_us", "cpu_s_per_1m_chunks", *HEALTH),
            paced_20,
        ),
        SCENARIOS["paced"],
        SCENARIOS["paced-short"],
        Scenario(
            "idle",
            f"{IDLE_STREAMS:,} open streams, one chunk in 5 s each: memory",
            ("rss_before_mb", "rss_mb", "kb_per_stream"),
            idle,
            needs_process=True,
        ),
    )
}
"""In the order of what is promised, should the time not suffice for all of them."""


if __name__ == "__main__":
    main()
