"""Usage: budgets that are shared out, and charges that count once."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from msgspec.structs import replace

from holdfast.asks import ProgramAsk
from holdfast.events import Completed, Text, Usage
from holdfast.ids import ModelName
from holdfast.store import Cap, Charge, Document, Draw, Payer

from .case import Case, Checks

CHECKS = Checks()

NOW = 20_000 * 86400.0 + 3600.0
DAY = 20_000


def _cap(case: Case, **limits: float) -> Cap:
    return Cap(of="owner", id=case.owner, since=DAY, ends_at=NOW + 86400, **limits)  # type: ignore[arg-type]


def _charge(case: Case, name: str) -> Charge:
    node_id = case.id("node_id")
    return Charge(id=case.id(name), owner=case.owner, model=ModelName("up/m"), started_at=NOW, node_id=node_id)


@CHECKS.add
async def all_that_runs_hold_is_never_more_than_their_budget(case: Case) -> None:
    """Many draw at once: together they get at most the budget, and all of it can be used."""
    await case.alive("node_id")
    cap, held = _cap(case, tokens=1000), 0
    for _ in range(40):
        draws = [Draw(charge=_charge(case, f"run{n}"), caps=(cap,), tokens=100) for n in range(20)]
        results = await asyncio.gather(*(case.store.draw([draw], NOW) for draw in draws))
        held = sum(result.tokens or 0 for [result] in results)
        assert held <= 1000
        if any(result.refused for [result] in results):
            break

    assert held > 500


@CHECKS.add
async def what_a_settled_run_has_used_counts_once(case: Case) -> None:
    """The settlement replaces the amount that the run held. Neither a repeated one nor folding adds anything."""
    await case.alive("node_id")
    run = await case.store.create_run(case.record("counted", None, created_at=NOW))
    cap = _cap(case, tokens=1000)
    [held] = await case.store.draw([Draw(charge=_charge(case, "counted"), caps=(cap,), tokens=500)], NOW)
    settled = Completed(text="t", usage=Usage(30, 12, cost=0.5))
    for _ in range(2):
        await case.store.settle(run.id, run.epoch, seq=1, settlement=settled, message=None, now=NOW)
    [left] = await case.store.draw([Draw(charge=_charge(case, "next"), caps=(cap,), opens=True)], NOW)
    before = await case.store.usage(DAY, DAY, owner=case.owner)
    await case.store.drop_charge(case.id("next"))
    await case.store.fold_charges(NOW + 1, NOW + 1)
    rows = await case.store.usage(DAY, DAY, owner=case.owner)

    assert (held.tokens or 0) > 42
    assert 1000 - 42 == left.left_tokens
    assert [(1, 30, 12, 0.5)] == [(row.runs, row.input_tokens, row.output_tokens, row.cost) for row in rows]
    assert 2 == sum(row.runs for row in before)


@CHECKS.add
async def a_settlement_counts_no_less_than_was_measured(case: Case) -> None:
    """A run that was stopped has used what it had drawn for; one that is whole costs what its provider counts."""
    await case.alive("node_id")
    run = await case.store.create_run(case.record("measured", None, created_at=NOW))
    measured = replace(_charge(case, "measured"), input_tokens=20, output_tokens=70, cost=0.5)
    await case.store.draw([Draw(charge=measured, caps=(_cap(case, tokens=1000),), tokens=500)], NOW)
    settled = Completed(text="t", usage=Usage(30, 12, cost=0.25))
    await case.store.settle(run.id, run.epoch, seq=1, settlement=settled, message=None, now=NOW)
    [row] = await case.store.usage(DAY, DAY, owner=case.owner)

    assert (30, 70, 0.5) == (row.input_tokens, row.output_tokens, row.cost)


@CHECKS.add
async def a_request_holds_what_it_opens_with(case: Case) -> None:
    """Others that hold something wait for it; what it has used replaces what it held."""
    await case.alive("node_id")
    cap = _cap(case, tokens=1000, cost=10.0)
    names = ("first", "second", "third")
    opened = [Draw(charge=_charge(case, name), caps=(cap,), opens=True, tokens=500, cost=5.0) for name in names]
    results = [(await case.store.draw([draw], NOW))[0] for draw in opened]
    await case.store.charge([replace(_charge(case, "first"), input_tokens=100, cost=1.0)], NOW)
    [after] = await case.store.draw([opened[2]], NOW)

    assert [None, None, "tokens"] == [result.refused for result in results]
    assert (False, 1000) == (results[2].is_spent, results[2].left_tokens)
    assert (None, 900) == (after.refused, after.left_tokens)


@CHECKS.add
async def a_budget_is_that_of_the_owner_the_key_or_the_group(case: Case) -> None:
    """Each counts the runs that are charged to it, before and after they are folded."""
    payer = Payer("", case.id("key"), (case.id("g1"), case.id("g2")))
    charge = Charge(
        id=case.id("r"),
        owner=case.owner,
        model=ModelName("up/m"),
        started_at=NOW,
        payer=payer,
        output_tokens=70,
        cost=0.25,
    )
    await case.store.charge([charge, charge], NOW)
    caps = [
        Cap(of="owner", id=case.owner, since=DAY, ends_at=0, tokens=100),
        Cap(of="key", id=case.id("key"), since=DAY, ends_at=0, tokens=100),
        Cap(of="group", id=case.id("g2"), since=DAY, ends_at=0, tokens=100, cost=1.0),
        Cap(of="group", id=case.id("g3"), since=DAY, ends_at=0, tokens=100),
        Cap(of="owner", id=case.owner, since=DAY + 1, ends_at=0, tokens=100),
    ]
    lefts = []
    for _ in range(2):
        draws = [Draw(charge=_charge(case, "other"), caps=(cap,), opens=True) for cap in caps]
        lefts.append([result.left_tokens for result in await case.store.draw(draws, NOW)])
        await case.store.drop_charge(case.id("other"))
        await case.store.fold_charges(NOW + 1, NOW + 1)

    assert [[30, 30, 30, 100, 100]] * 2 == lefts


@CHECKS.add
async def a_run_is_refused_when_too_many_run_or_have_begun(case: Case) -> None:
    """Concurrent runs, and requests per minute; a dropped charge counts for neither."""
    await case.alive("node_id")
    cap = _cap(case, runs=2, requests=3)

    async def opened(name: str, at: float) -> str | None:
        charge = replace(_charge(case, name), started_at=at)
        [result] = await case.store.draw([Draw(charge=charge, caps=(cap,), opens=True)], at)
        return result.refused

    first = [await opened(name, NOW) for name in ("a", "b", "c")]
    await case.store.drop_charge(case.id("a"))
    second = [await opened("d", NOW)]
    for name in ("b", "d"):
        await case.store.charge([_charge(case, name)], NOW)
    third = [await opened("e", NOW), await opened("f", NOW), await opened("f", NOW + 61)]

    assert [None, None, "runs"] == first
    assert [None] == second
    assert [None, "requests", None] == third


@CHECKS.add
async def a_run_of_the_day_before_still_counts_as_running(case: Case) -> None:
    """Concurrent runs and requests per minute do not depend on the day; tokens count for the day of the start."""
    await case.alive("node_id")
    midnight = (DAY + 1) * 86400.0
    payer = Payer("", case.id("key"), (case.id("group"),))
    before = replace(_charge(case, "before"), started_at=midnight - 10.0, payer=payer, output_tokens=70)
    await case.store.draw([Draw(charge=before, caps=())], midnight - 10.0)
    payers = (("owner", case.owner), ("key", case.id("key")), ("group", case.id("group")))

    async def looks(at: float, **limits: int) -> list[tuple[str | None, int | None]]:
        charge = replace(_charge(case, "after"), started_at=at)
        caps = [Cap(of=of, id=id, since=DAY + 1, ends_at=0, tokens=100, **limits) for of, id in payers]  # type: ignore[arg-type]
        draws = [Draw(charge=charge, caps=(cap,), opens=True, looks=True) for cap in caps]
        return [(result.refused, result.left_tokens) for result in await case.store.draw(draws, at)]

    while_it_runs = await looks(midnight + 5.0, runs=1), await looks(midnight + 5.0, requests=1)
    await case.store.charge([before], midnight + 6.0)
    when_it_has_ended = await looks(midnight + 7.0, runs=1), await looks(midnight + 7.0, requests=1)
    a_minute_later = await looks(midnight + 51.0, requests=1)

    assert ([("runs", 100)] * 3, [("requests", 100)] * 3) == while_it_runs
    assert ([(None, 100)] * 3, [("requests", 100)] * 3) == when_it_has_ended
    assert [(None, 100)] * 3 == a_minute_later


@CHECKS.add
async def a_charge_of_several_runs_counts_as_so_many(case: Case) -> None:
    """Runs that are not stored are charged together; a repeated charge adds nothing; neither does folding."""
    await case.alive("node_id")
    together = replace(_charge(case, "sum"), runs=3, input_tokens=30, output_tokens=12)
    for _ in range(2):
        await case.store.charge([together], NOW)
    looks = Draw(charge=_charge(case, "next"), caps=(_cap(case, requests=3),), opens=True, looks=True)
    [full] = await case.store.draw([looks], NOW)
    before = await case.store.usage(DAY, DAY, owner=case.owner)
    await case.store.fold_charges(NOW + 1, NOW + 1)
    after = await case.store.usage(DAY, DAY, owner=case.owner)

    assert full.refused == "requests"
    assert [(3, 30, 12)] == [(row.runs, row.input_tokens, row.output_tokens) for row in before]
    assert before == after


@CHECKS.add
async def usage_without_its_owner_stays_in_the_sums(case: Case) -> None:
    """What was used was paid for, whoever it was. Two people who are gone are one row, folded or not."""
    await case.alive("node_id")
    model = case.id("model")
    charges = [
        replace(_charge(case, f"{owner} {n}"), owner=case.id(owner), model=model, input_tokens=n, cost=0.5)
        for owner in ("ada", "bob")
        for n in (10, 20)
    ]
    before = sum(row.cost for row in await case.store.usage(DAY, DAY, owner=""))
    await case.store.charge(charges[:3], NOW)
    await case.store.fold_charges(NOW + 1, NOW + 1)
    await case.store.charge(charges[3:], NOW + 2)
    counts = [await case.store.disown_usage(case.id(owner)) for owner in ("ada", "bob", "ada")]
    await case.store.fold_charges(NOW + 3, NOW + 3)
    after = [row for row in await case.store.usage(DAY, DAY, owner="") if row.model == model]

    assert counts[0] > 0 < counts[1]
    assert 0 == counts[2]
    assert [("", 4, 60, 2.0)] == [(row.key, row.runs, row.input_tokens, row.cost) for row in after]
    assert 2.0 == round(sum(row.cost for row in await case.store.usage(DAY, DAY, owner="")) - before, 6)
    for owner in ("ada", "bob"):
        assert [] == await case.store.usage(DAY, DAY, owner=case.id(owner))


@CHECKS.add
async def a_look_at_what_is_left_counts_for_nothing(case: Case) -> None:
    """Otherwise a page that shows the budget could keep a run from starting."""
    await case.alive("node_id")
    cap = _cap(case, runs=1, requests=1, tokens=100)
    looks = Draw(charge=_charge(case, "looks"), caps=(cap,), opens=True, looks=True)
    results = [(await case.store.draw([looks], NOW))[0] for _ in range(2)]
    [opened] = await case.store.draw([Draw(charge=_charge(case, "run"), caps=(cap,), opens=True)], NOW)

    assert [(None, 100)] * 2 == [(result.refused, result.left_tokens) for result in results]
    assert opened.refused is None


@CHECKS.add
async def the_size_of_what_an_owner_has_is_known(case: Case) -> None:
    """All of it counts: messages, requests of runs, their logs once they settle, documents. It is 0 without any."""
    await case.alive("node_id")
    sizes, words = [await case.store.stored_bytes(case.owner)], "w" * 1000
    await case.store.put_document(Document(kind="a", id=case.id("d"), owner=case.owner, body={"x": words}))
    sizes.append(await case.store.stored_bytes(case.owner))
    run = await case.store.create_run(case.record("r", None, ask=ProgramAsk(data=words)))
    sizes.append(await case.store.stored_bytes(case.owner))
    await case.append(run, 1, Text(words))
    settled = Completed(text=words)
    await case.store.settle(run.id, run.epoch, seq=2, settlement=settled, message=None, now=NOW)
    sizes.append(await case.store.stored_bytes(case.owner))
    await case.store.delete_run(run.id)
    await case.store.delete_document("a", case.id("d"))

    assert [] == [sizes for one, two in pairwise(sizes) if not 1000 <= two - one < 4000]
    assert sizes[0] == await case.store.stored_bytes(case.owner)
    assert 0 == await case.store.stored_bytes(case.id("nobody"))
