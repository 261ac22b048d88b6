"""Try schedules of the engine under faults: `python -m tests.simulation --schedules 20000`."""

from __future__ import annotations

import argparse
import gc
import logging
import re
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

from .bad_services import BANK
from .world import HOLDFAST, Design, Outcome, simulate

OWN_FAULT = re.compile(r"\b(?:Assertion|Attribute|Index|Key|Name|Recursion|Type|UnboundLocal|Value)Error\b")
"""What code raises that does not fit the engine any more. Being caught for it says nothing of the mistake."""
SLICE = 200
"""Schedules between two collections of garbage. Within one there is none: its moment would not be the seed's choice."""


def main() -> int:
    """Do what the arguments say; 1 where anything was violated."""
    arguments = _arguments()
    keep_the_heap()
    logging.getLogger("holdfast").disabled = arguments.seed is None
    design = next((bad for bad in BANK if bad.name == arguments.design), HOLDFAST)
    if arguments.seed is not None:
        return _replay(arguments.seed, design, arguments.nodes)
    if arguments.bank:
        return _try_bank(arguments.schedules)
    seeds = range(arguments.seed_from, arguments.seed_from + arguments.schedules)
    return _twice(seeds, design) if arguments.twice else _search(seeds, design.name, arguments.jobs, arguments.nodes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=20_000, help="how many (with --bank: at most for each design)")
    parser.add_argument("--seed-from", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this one and print what happens in it")
    parser.add_argument("--twice", action="store_true", help="run each seed twice: both must be the same")
    parser.add_argument("--design", default="holdfast", choices=["holdfast", *(bad.name for bad in BANK)])
    parser.add_argument("--bank", action="store_true", help="see that every known-bad design is caught")
    parser.add_argument("--nodes", type=int, help="servers on the store; as drawn without it")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser.parse_args()


def keep_the_heap() -> None:
    """Exempt everything that exists now from garbage collection: with a large heap each collection takes half a second.

    `gc.unfreeze()` is the opposite.
    """
    gc.collect()
    gc.freeze()


def schedules(
    seeds: Iterable[int], design: Design = HOLDFAST, *, nodes: int | None = None, digest: bool = False
) -> Iterator[Outcome]:
    """Play one schedule for each seed."""
    gc.collect()
    gc.disable()
    try:
        for number, seed in enumerate(seeds, 1):
            yield simulate(seed, design, nodes=nodes, digest=digest)
            if number % SLICE == 0:
                gc.collect()
    finally:
        gc.enable()


class BrokenDesign(Exception):
    """A known-bad design does not make its mistake: it makes another one, in its own code."""


def first_caught(design: Design, most: int, seed_from: int = 0) -> Outcome | None:
    """Return the first schedule in which a design breaks the promise that it must be caught for."""
    for outcome in schedules(range(seed_from, seed_from + most), design):
        for violation in outcome.violations:
            if OWN_FAULT.search(violation):
                raise BrokenDesign(f"{design.name}, seed {outcome.seed}: {violation}")
        if any(re.search(design.expects, violation) for violation in outcome.violations):
            return outcome
    return None


def _replay(seed: int, design: Design, nodes: int | None) -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="                           %(message)s")
    outcome = simulate(seed, design, nodes=nodes, verbose=True)
    print("\n".join(outcome.lines))
    print(f"\nseed {seed}: {outcome.steps} steps, digest {outcome.digest:08x}")
    return _report(outcome)


def _report(outcome: Outcome) -> int:
    for violation in outcome.violations:
        print(f"  seed {outcome.seed}: {violation}")
    return bool(outcome.violations)


def _twice(seeds: range, design: Design) -> int:
    first = [outcome.digest for outcome in schedules(seeds, design, digest=True)]
    second = [outcome.digest for outcome in schedules(seeds, design, digest=True)]
    differing = [seed for seed, one, two in zip(seeds, first, second, strict=True) if one != two]
    print(f"{len(seeds)} seeds run twice, {len(differing)} differ {differing[:20]}")
    return bool(differing)


def _try_bank(most: int) -> int:
    missed = 0
    for design in BANK:
        began = time.perf_counter()
        outcome = first_caught(design, most)
        took = time.perf_counter() - began
        if outcome is None:
            missed += 1
            print(f"{design.name:40} NOT CAUGHT in {most} schedules ({took:.1f} s)", flush=True)
        else:
            found = next(each for each in outcome.violations if re.search(design.expects, each))
            print(f"{design.name:40} seed {outcome.seed:5}  {took:5.1f} s  {found}", flush=True)
    return bool(missed)


def _search(seeds: range, name: str, jobs: int, nodes: int | None) -> int:
    began = time.perf_counter()
    done = bad = 0
    for played, outcomes in _slices(seeds, name, jobs, nodes):
        done += played
        bad += len(outcomes)
        for outcome in outcomes:
            _report(outcome)
        took = time.perf_counter() - began
        if done % (SLICE * 25) == 0 or done == len(seeds) or outcomes:
            print(f"{done} of {len(seeds)} schedules, {bad} violated, {done / took:.0f}/s", flush=True)
    return bool(bad)


def _slices(seeds: range, name: str, jobs: int, nodes: int | None) -> Iterator[tuple[int, list[Outcome]]]:
    work = [(name, seeds[at : at + SLICE], nodes) for at in range(0, len(seeds), SLICE)]
    if jobs == 1:
        yield from map(_play_slice, work)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_play_slice, work)


def _play_slice(work: tuple[str, range, int | None]) -> tuple[int, list[Outcome]]:
    name, seeds, nodes = work
    logging.getLogger("holdfast").disabled = True
    design = next((bad for bad in BANK if bad.name == name), HOLDFAST)
    return len(seeds), [outcome for outcome in schedules(seeds, design, nodes=nodes) if outcome.violations]


if __name__ == "__main__":
    sys.exit(main())
