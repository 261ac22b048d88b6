"""`python -m bench [scenario ...]`: measures the targets in turn and prints a table for each scenario."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import machine, report
from bench.instruments import Failed, Upstream
from bench.measure import Figures
from bench.peers import PEERS, VllmRouter
from bench.plays import MODELS
from bench.scenarios import SCENARIOS, Scenario
from bench.targets import DEFAULT, TARGETS, Target

MEASURABLE = TARGETS | PEERS


def main() -> None:
    asked = _arguments()
    machine.allow_many_files()
    machine.pin_load()
    os.nice(asked.nice)
    targets = _present(asked.targets.split(","))
    upstream = Upstream()
    results: dict[str, Any] = {
        "kind": "bench",
        "seconds": asked.seconds,
        "rounds": asked.rounds,
        "peers": {peer.name: peer.facts() for peer in PEERS.values() if peer in targets},
        "scenarios": {},
    }
    try:
        for name in asked.scenarios or SCENARIOS:
            scenario = SCENARIOS[name]
            rounds = min(asked.rounds, scenario.most_rounds)
            results["scenarios"][name] = measure(scenario, targets, upstream, asked.seconds, rounds)
    finally:
        upstream.stop()
        if results["scenarios"]:
            print(f"results: {report.save(results, asked.json)}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="scenario", help=f"one or more of {', '.join(SCENARIOS)}")
    parser.add_argument(
        "--targets",
        default=",".join([*DEFAULT, VllmRouter.name]),
        help=f"of {', '.join(MEASURABLE)} (default: %(default)s)",
    )
    parser.add_argument("--seconds", type=float, default=4, help="measured time of each load (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="times each is measured, for medians (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="one round of one second each: does it all work?")
    parser.add_argument("--json", type=Path, metavar="OUT", help="where the results go (default: bench/results/)")
    parser.add_argument(
        "--nice", type=int, default=0, help="priority of targets and load, -10 beats a busy machine (root)"
    )
    asked = parser.parse_args()
    if asked.quick:
        asked.seconds, asked.rounds = 1, 1
    unknown = [name for name in asked.scenarios if name not in SCENARIOS]
    unknown += [name for name in asked.targets.split(",") if name not in MEASURABLE]
    if unknown:
        parser.error(f"no such scenario or target: {', '.join(unknown)}")
    return asked


def _present(names: list[str]) -> list[type[Target]]:
    for name in names:
        if reason := MEASURABLE[name].missing():
            print(f"{name}: skipped, {reason}")
    return [MEASURABLE[name] for name in names if not MEASURABLE[name].missing()]


Once = Callable[[Scenario, type[Target], Upstream, float], Figures]


def measure(
    scenario: Scenario,
    targets: list[type[Target]],
    upstream: Upstream,
    seconds: float,
    rounds: int,
    once: Once | None = None,
) -> dict[str, Any]:
    """Interleaves the targets, so that what disturbs the machine for a while disturbs all of them."""
    fitting = [target for target in targets if _fits(scenario, target)]
    figures: dict[str, list[Figures]] = {target.name: [] for target in fitting}
    failures: dict[str, str] = {}
    for turn in range(rounds):
        for target in fitting:
            if target.name in failures:
                continue
            _say(f"{scenario.name}: round {turn + 1} of {rounds}, {target.name} ...")
            try:
                figures[target.name].append((once or _in_fresh_process)(scenario, target, upstream, seconds))
            except (Failed, OSError) as failure:
                failures[target.name] = str(failure)
    _say("")
    summary = report.summarize(scenario, figures)
    print(report.table(scenario, summary, failures) + "\n", flush=True)
    return {"title": scenario.title, "median": summary, "rounds": figures, "failures": failures}


def _say(text: str) -> None:
    """One line of progress, overwritten by the next, for people only."""
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


def _fits(scenario: Scenario, target: type[Target]) -> bool:
    return (target.native or not scenario.needs_native) and (target.name != "direct" or not scenario.needs_process)


def _in_fresh_process(scenario: Scenario, kind: type[Target], upstream: Upstream, seconds: float) -> Figures:
    target = warm(kind, upstream)
    try:
        figures = scenario.measure(target, upstream, seconds)
    finally:
        target.stop()
    return {"started_in_s": target.started_in, **figures}


def warm(kind: type[Target], upstream: Upstream) -> Target:
    """A fresh process, warmed up with streams that are not counted."""
    target = kind(upstream.port, MODELS)
    try:
        target.load(**target.warm_up, model="flat:100")
        if leaked := upstream.still_active():
            raise Failed(f"{leaked} upstream streams are open after the warm-up")
    except BaseException:
        target.stop()
        raise
    return target


if __name__ == "__main__":
    main()
