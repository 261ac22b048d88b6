"""A deterministic simulation of the engine: seeded schedules, injected faults, and a checker of what everybody saw.

`python -m tests.simulation --schedules 20000` looks for violations, `--seed N` replays one schedule and prints it.

loop.py         an event loop whose every choice comes from a seed, and processes that can be killed or paused in it
scenario.py     what a seed draws: sessions, sources, clients, faults
sources.py      generators and iterators that yield, break, hang, and take a cancel well or badly
store.py        the connection of a process to a store that is slow, away, loses hints, or errs after its work is done
world.py        plays a scenario: one to five servers that crash and come back, clients that stop, leave and resume
history.py      what was asked, told, shown and really done: the facts, without judgement
checker.py      the promises, judged from those facts after the last task has gone quiet
bad_designs.py  engines and stores with a known mistake, each of which the checker must catch
"""
