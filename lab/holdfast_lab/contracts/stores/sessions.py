"""Sessions and their messages."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.errors import (
    Conflict,
    MessageNotFound,
    SessionBusy,
    SessionNotFound,
    StaleView,
)
from holdfast.events import (
    Text,
)
from holdfast.history import Session

from .case import Case, Checks, raised, types

CHECKS = Checks()


@CHECKS.add
async def a_session_is_kept_as_it_was_given(case: Case) -> None:
    """Adding it again changes nothing, even if it was changed since."""
    given = Session(
        id=case.id("s"),
        owner=case.owner,
        title="t",
        model="m",
        system="be brief",
        params={"temperature": 0.5, "stop": ["a"]},
        pinned=True,
        folder="Work",
        tags=("a", "b"),
        archived=True,
        created_at=1.5,
        updated_at=2.5,
    )
    assert given == await case.store.create_session(given)
    assert given == await case.store.get_session(given.id)
    changed = await case.store.update_session(given.id, {"title": "other"}, 3.0)

    assert changed == await case.store.create_session(given)
    assert changed == await case.store.get_session(given.id)
    assert await case.store.get_session(case.id("unknown")) is None


@CHECKS.add
async def the_id_of_a_session_is_no_key_to_it(case: Case) -> None:
    """For another owner an existing session looks like a missing one."""
    await case.session()
    foreign = Session(id=case.id("s"), owner=case.id("stranger"))

    await raised(SessionNotFound, case.store.create_session(foreign))
    await raised(SessionNotFound, case.store.copy_session(foreign, [case.user("a")]))
    assert [] == await case.store.messages(case.id("s"))


@CHECKS.add
async def an_opened_session_is_of_one_moment(case: Case) -> None:
    """Changes that are not in it are in the feed after `feed_end`: while a run runs, and after its end."""
    await case.session()
    run = await case.start("r1", case.user("a"))
    queued = await case.start("r2", case.user("b"), if_busy="queue")
    running = await case.store.open_session(case.id("s"))
    await case.settle(run, message=case.answer(run))
    ended = await case.store.open_session(case.id("s"))

    assert running is not None
    assert ended is not None
    assert (run.id, [case.id("a")]) == (running.running, [message.id for message in running.messages])
    assert (None, [case.id("a"), case.id("answer-r1")]) == (ended.running, [message.id for message in ended.messages])
    assert case.id("answer-r1") == ended.session.head_id
    assert [queued] == running.queued == ended.queued
    assert ["message.added", "run.settled"] == types(await case.feed(after=running.feed_end))
    assert [] == await case.feed(after=ended.feed_end)
    assert (ended.session, ended.messages) == await case.store.conversation(case.id("s"))
    assert await case.store.open_session(case.id("unknown")) is None
    assert await case.store.conversation(case.id("unknown")) is None


@CHECKS.add
async def a_session_can_be_changed(case: Case) -> None:
    """Field by field; an equal value is no change."""
    await case.session(updated_at=1.0)
    run = await case.start("r", case.user("a"))
    await case.settle(run, message=case.answer(run))
    changes: dict[str, Any] = {"title": "t", "model": "m", "system": "s", "params": {"a": 1}, "pinned": True}
    changes["head_id"] = case.id("a")
    changed = await case.store.update_session(case.id("s"), changes, 20.0)
    before = await case.everything()

    assert changed is not None
    assert changes == {name: getattr(changed, name) for name in changes}
    assert 20.0 == changed.updated_at
    assert changed == await case.store.update_session(case.id("s"), changes, 21.0)
    assert before == await case.everything()
    cleared = await case.store.update_session(case.id("s"), {"model": None, "head_id": None}, 22.0)
    assert cleared == replace(changed, model=None, head_id=None, updated_at=22.0)
    assert await case.store.update_session(case.id("gone"), {"title": "t"}, 23.0) is None


@CHECKS.add
async def a_change_that_makes_no_sense_is_refused(case: Case) -> None:
    """A head that is not a message of the session, and fields that callers cannot change."""
    await case.session()
    before = await case.everything()

    await raised(MessageNotFound, case.store.update_session(case.id("s"), {"head_id": case.id("no")}, 2.0))
    for changes in ({"owner": "me"}, {"id": "x"}, {"created_at": 0.0}, {"colour": "red"}, {"pinned": "perhaps"}):
        await raised(ValueError, case.store.update_session(case.id("s"), changes, 2.0))
    assert before == await case.everything()


@CHECKS.add
async def a_copied_session_has_its_messages(case: Case) -> None:
    """Unchanged; the last is the head. Copying again changes nothing."""
    messages = [case.user("a"), replace(case.user("b"), parent_id=case.id("a"))]
    given = Session(id=case.id("s"), owner=case.owner, title="copy", updated_at=3.0)
    copied = await case.store.copy_session(given, messages)

    assert replace(given, head_id=case.id("b")) == copied
    assert messages == await case.store.messages(case.id("s"))
    assert copied == await case.store.copy_session(given, [case.user("c")])
    assert messages == await case.store.messages(case.id("s"))
    await case.start("r", case.user("c"))
    assert (case.id("c"), case.id("b")) == (await case.transcript())[-1]


@CHECKS.add
async def a_branch_is_added_to_a_session_and_shown(case: Case) -> None:
    """After any message or at the beginning. Adding it again changes nothing."""
    await case.session()
    run = await case.start("r", case.user("a"))
    await case.settle(run, message=case.answer(run))
    head = await case.head()
    place: Any = {"parent": case.id("a"), "expect_head": head, "now": 5.0}
    added = await case.store.add_branch(case.id("s"), [case.user("b"), case.user("c")], **place)

    assert case.id("c") == added.head_id
    assert added == await case.store.add_branch(case.id("s"), [case.user("b"), case.user("c")], **place)
    parents = {message.id: message.parent_id for message in await case.store.messages(case.id("s"))}
    assert (case.id("a"), case.id("b")) == (parents[case.id("b")], parents[case.id("c")])
    assert ["message.added", "message.added", "session.changed"] == types(await case.feed())[-3:]
    back: Any = {"parent": None, "expect_head": case.id("c"), "now": 6.0}
    assert (await case.store.add_branch(case.id("s"), [], **back)).head_id is None


@CHECKS.add
async def a_branch_that_has_no_place_is_refused(case: Case) -> None:
    """While a run is going on, after a change, after an unknown message, and with an id that is taken."""
    await case.session()
    run = await case.start("r", case.user("a"))
    place: Any = {"parent": None, "expect_head": case.id("a"), "now": 5.0}
    await raised(SessionBusy, case.store.add_branch(case.id("s"), [case.user("b")], **place))
    await case.settle(run, message=case.answer(run))
    head = await case.head()
    before = await case.everything()

    await raised(StaleView, case.store.add_branch(case.id("s"), [case.user("b")], **place | {"expect_head": "no"}))
    known = place | {"expect_head": head}
    await raised(MessageNotFound, case.store.add_branch(case.id("s"), [case.user("b")], **known | {"parent": "no"}))
    await raised(Conflict, case.store.add_branch(case.id("s"), [case.user("a"), case.user("b")], **known))
    await raised(SessionNotFound, case.store.add_branch(case.id("none"), [case.user("b")], **known))
    assert before == await case.everything()


@CHECKS.add
async def a_long_session_is_copied_and_answered(case: Case) -> None:
    """Thousands of messages at once, as in an import or a request."""
    messages = [case.user(f"m{n}", f"It speaks of thing{n}.") for n in range(6000)]
    await case.store.copy_session(Session(id=case.id("s"), owner=case.owner), messages)
    await case.start("r", *(case.user(f"q{n}", f"And of word{n}.") for n in range(3000)))
    found = [
        [session.id for session in await case.store.list_sessions(case.owner, query=word)]
        for word in ("thing5999", "word2999")
    ]

    ids = [message.id for message in await case.store.messages(case.id("s"))]
    assert [*(message.id for message in messages), *(case.id(f"q{n}") for n in range(3000))] == ids
    assert [[case.id("s")], [case.id("s")]] == found


@CHECKS.add
async def sessions_can_share_message_ids(case: Case) -> None:
    """A fork may keep the ids of the copied messages."""
    await case.session()
    await case.start("r", case.user("a", "original"))
    await case.store.copy_session(Session(id=case.id("fork"), owner=case.owner), [case.user("a", "fork")])

    assert ["original"] == [message.content for message in await case.store.messages(case.id("s"))]
    assert ["fork"] == [message.content for message in await case.store.messages(case.id("fork"))]


@CHECKS.add
async def a_deleted_session_leaves_nothing(case: Case) -> None:
    """No message, run, log, feed, key or word of it; and a running run of it can no longer write."""
    await case.session()
    run = await case.start("r1", case.user("a", "findable"), idempotency=case.key("k1"))
    queued = await case.start("r2", case.user("b"), if_busy="queue", idempotency=case.key("k2"))
    await case.append(run, 1, Text("x"))

    assert await case.store.delete_session(case.id("s"))
    assert not await case.store.delete_session(case.id("s"))
    assert (None, [], [], [], [], []) == await case.everything()
    for record in (run, queued):
        assert await case.store.get_run(record.id) is None
        assert [] == await case.store.read_log(record.id, 0)
    assert [None, None] == [await case.store.find_repeated(case.key(name)) for name in ("k1", "k2")]
    assert [] == await case.store.list_runs(owner=case.owner)
    assert [] == await case.store.list_sessions(case.owner, query="findable")
    assert not await case.append(run, 2, Text("y"))
    assert await case.settle(run, seq=2, message=case.answer(run)) is None
    assert await case.store.start_queued(case.id("s"), node_id="k", now=9.0) is None
    await case.store.release(run.node_id)
    await case.alive("other")
    assert {} == await case.claimed("other")


@CHECKS.add
async def a_deleted_run_leaves_nothing(case: Case) -> None:
    """No record, log or key of it. Unsettled runs, and runs of sessions, stay."""
    await case.session()
    alone = await case.start("alone", session=None, idempotency=case.key("k"))
    other = await case.start("other", session=None)
    inside = await case.start("inside", case.user("a"))
    await case.append(alone, 1, Text("x"))

    assert not await case.store.delete_run(alone.id)
    await case.settle(alone, seq=2)
    await case.settle(inside, message=case.answer(inside))
    assert await case.store.delete_run(alone.id)
    assert [False] * 3 == [await case.store.delete_run(run.id) for run in (alone, other, inside)]
    await case.reopen()
    assert [None, []] == [await case.store.get_run(alone.id), await case.store.read_log(alone.id, 0)]
    assert await case.store.find_repeated(case.key("k")) is None
    assert await case.settle(alone, seq=2) is None
    assert {other.id, inside.id} == {run.id for run in await case.store.list_runs(owner=case.owner)}
    assert alone.id == (await case.start("alone", session=None, idempotency=case.key("k"))).id


@CHECKS.add
async def a_session_can_come_again_after_it_was_deleted(case: Case) -> None:
    """It is a new one, with numbers that begin at 1."""
    for _ in range(2):
        await case.session()
        await case.start("r1", case.user("a"), idempotency=case.key("k"))
        queued = await case.start("r2", case.user("b"), if_busy="queue")
        assert 1 == queued.queue_number
        assert [1, 2, 3] == [entry.n for entry in await case.feed()]
        await case.store.delete_session(case.id("s"))


@CHECKS.add
async def deleting_one_session_leaves_the_others(case: Case) -> None:
    """Runs without a session too."""
    for name in ("s", "other"):
        await case.session(name)
        await case.start(f"r-{name}", case.user("a", "findable"), session=name, idempotency=case.key(name))
    alone = await case.start("alone", session=None)
    before = await case.everything("other")
    await case.store.delete_session(case.id("s"))

    assert before == await case.everything("other")
    assert alone == await case.store.get_run(alone.id)
    assert [case.id("other")] == [session.id for session in await case.store.list_sessions(case.owner, query="find")]
    assert await case.store.find_repeated(case.key("other")) is not None


@CHECKS.add
async def sessions_are_listed_pinned_first_then_changed_last(case: Case) -> None:
    """Those of their owner only."""
    for name, pinned, at in (("a", False, 1.0), ("b", True, 2.0), ("c", False, 3.0), ("d", True, 1.0)):
        await case.session(name, pinned=pinned, updated_at=at)
    await case.session("foreign", owner=case.id("stranger"))

    async def names() -> list[str]:
        return [session.id.partition(".")[0] for session in await case.store.list_sessions(case.owner)]

    assert ["b", "d", "c", "a"] == await names()
    await case.store.update_session(case.id("a"), {"model": "m"}, 4.0)
    assert ["b", "d", "a", "c"] == await names()
    await case.store.update_session(case.id("c"), {"pinned": True}, 5.0)
    assert ["c", "b", "d", "a"] == await names()


@CHECKS.add
async def what_happens_in_a_session_moves_it_up(case: Case) -> None:
    """A run that starts, queues or settles; but its time never goes back."""

    async def changed_at() -> float:
        session = await case.store.get_session(case.id("s"))
        assert session is not None
        return session.updated_at

    await case.session(updated_at=1.0)
    run = await case.store.create_run(case.record("r1", created_at=2.0), [case.user("a")])
    assert 2.0 == await changed_at()
    await case.store.create_run(case.record("r2", created_at=3.0), [case.user("b")], if_busy="queue")
    assert 3.0 == await changed_at()
    await case.settle(run, now=4.0)
    assert 4.0 == await changed_at()
    await case.store.start_queued(case.id("s"), node_id="k", now=5.0)
    assert 5.0 == await changed_at()
    await case.store.update_session(case.id("s"), {"title": "t"}, 4.5)
    assert 5.0 == await changed_at()


@CHECKS.add
async def pages_of_sessions_show_each_once(case: Case) -> None:
    """Even if many were changed at the same time, with a query and without."""
    for n in range(23):
        await case.session(f"{n:02}", title="same words", updated_at=float(n % 2), pinned=n % 5 == 0)
    whole = await case.store.list_sessions(case.owner, limit=100)
    assert 23 == len(whole)

    for query in ("", "word"):
        paged: list[Session] = []
        while page := await case.store.list_sessions(
            case.owner, query=query, limit=4, before=paged[-1].id if paged else None
        ):
            paged += page
        assert whole == paged
    assert whole == await case.store.list_sessions(case.owner, prefix="", limit=100)
    assert [case.id("07")] == [found.id for found in await case.store.list_sessions(case.owner, prefix="07")]
    assert 10 == len(await case.store.list_sessions(case.owner, prefix="1", limit=100))
    assert [] == await case.store.list_sessions(case.owner, prefix="%")
    assert [] == await case.store.list_sessions(case.owner, before=case.id("unknown"))
    assert [] == await case.store.list_sessions(case.owner, limit=0)


@CHECKS.add
async def a_search_finds_beginnings_of_words_in_titles_and_messages(case: Case) -> None:
    """Independent of case and accents, and of the place of each word in the session."""
    await case.session("s", title="Über die Brücke")
    run = await case.start("r", case.user("a", "Tell me about snake_case and C++"))
    await case.settle(run, message=case.answer(run, "Programming, 东京 and straße"))
    await case.session("other", title="nothing of it")

    async def found(query: str) -> bool:
        return [case.id("s")] == [one.id for one in await case.store.list_sessions(case.owner, query=query)]

    for query in ("über", "UBER", "bruck", "tell ab", "prog", "brücke program", "case", "c++", "东", "京东", "STRASSE"):
        assert await found(query), query
    for query in ("ogramming", "tellx", "brücke missing", "大"):
        assert not await found(query), query


@CHECKS.add
async def a_search_finds_parts_and_new_titles_only(case: Case) -> None:
    """A changed title is no longer found by its old words."""
    await case.session("s", title="before")
    await case.start("r", case.user("a", [{"type": "text", "text": "inparts"}, {"type": "image_url", "text": None}]))
    await case.store.update_session(case.id("s"), {"title": "after"}, 2.0)
    await case.session("foreign", owner=case.id("stranger"), title="after")

    async def count(query: str) -> int:
        return len(await case.store.list_sessions(case.owner, query=query))

    assert [1, 1, 0] == [await count(query) for query in ("after", "inparts", "before")]


@CHECKS.add
async def a_search_finds_whatever_was_stored_before_it(case: Case) -> None:
    """A store may add words to its index later than messages. No search shows that, nor does a restart lose words."""

    async def found(query: str) -> list[str]:
        return sorted(one.id for one in await case.store.list_sessions(case.owner, query=query))

    every = [case.id(f"s{n}") for n in range(3)]
    for n, session in enumerate(every):
        await case.session(f"s{n}")
        run = await case.start(f"r{n}", case.user(f"a{n}", f"question{n} alike"), session=f"s{n}")
        assert [session] == await found(f"question{n}")
        await case.settle(run, message=case.answer(run, f"answer{n} in half"))
        assert [session] == await found(f"answer{n} half")
        more = replace(case.record(f"more{n}", f"s{n}"), message_id=run.message_id)
        more = await case.store.create_run(more)
        await case.settle(more, message=case.answer(run, f"answer{n} in half and whole{n}"))
        assert [session] == await found(f"answer{n} whole{n} question{n}")
    last = await case.start("last", case.user("b", "laterthanall"), session="s0")
    await case.reopen()

    assert every == await found("alike")
    assert every[:1] == await found("laterthanall")
    await case.settle(last, message=case.answer(last, "verylast"))
    await case.store.update_session(every[1], {"title": "renamed"}, 20.0)
    await case.store.delete_session(every[0])
    assert [[], every[1:], every[1:2]] == [await found(query) for query in ("verylast", "alike", "renamed")]


@CHECKS.add
async def no_query_is_an_error(case: Case) -> None:
    """A search box accepts any text. A query of punctuation only has no words, and so finds all."""
    await case.session("s", title="plain")
    signs = list("\"'*()[]{}<>^-+|&:%_\\\x00\ud800🙂")
    syntax = ["a AND", "OR", "a* OR b", "NEAR(", "NEAR(a, b)", "title:x", '"a', '""a"', "((a", "-a", "^a", "{a}:b"]
    for query in [*signs, *syntax, "é" * 500, "x " * 1000, "SELECT * FROM sessions; --"]:
        assert await case.store.list_sessions(case.owner, query=query) in ([], [await case.session()])
    for query in ("", " ", "*", '"'):
        assert 1 == len(await case.store.list_sessions(case.owner, query=query))


@CHECKS.add
async def only_chats_are_listed_and_found(case: Case) -> None:
    """A session of another kind belongs to a feature, which has its id. Otherwise it works like a chat."""
    await case.session("chat", title="words")
    pane = await case.session("pane", title="words", kind="pane")
    run = await case.start("r", case.user("a", "words"), session="pane")
    await case.settle(run, message=case.answer(run, "words"))

    for query in ("", "words"):
        assert [case.id("chat")] == [found.id for found in await case.store.list_sessions(case.owner, query=query)]
    kept = await case.store.get_session(pane.id)
    assert kept is not None
    assert ("pane", case.id("answer-r")) == (kept.kind, kept.head_id)
    copy = await case.store.copy_session(replace(pane, id=case.id("copy")), await case.store.messages(pane.id))
    assert "pane" == copy.kind
    assert await case.store.delete_session(pane.id)


@CHECKS.add
async def a_search_names_the_message_and_the_sentence(case: Case) -> None:
    """A chat may have a thousand messages: the search returns the one that matches."""
    await case.session()
    run = await case.start(
        "r", case.user("a", "Tides. The moon pulls at the sea. And the sun?"), case.user("b", "moonlight")
    )
    await case.settle(run, message=case.answer(run, "The SEA answers the móon twice a day."))
    found = case.store.find_messages
    s, other = case.id("s"), case.id("unknown")

    hit = (await found([s, other], "moon"))[s]
    assert (case.id("a"), "The moon pulls at the sea.") == (
        hit.message_id,
        "".join(text for text, _ in hit.excerpt).strip(),
    )
    assert ["moon"] == [text for text, is_match in hit.excerpt if is_match]
    hit = (await found([s], "moonl"))[s]
    assert (case.id("b"), (("moonlight", True),)) == (hit.message_id, hit.excerpt)
    hit = (await found([s], "moon twice sea"))[s]
    assert (run.message_id, ["SEA", "móon", "twice"]) == (
        hit.message_id,
        [text for text, is_match in hit.excerpt if is_match],
    )


@CHECKS.add
async def one_message_of_a_session_is_read(case: Case) -> None:
    """A list of runs shows the question of each, and not whole sessions."""
    await case.session()
    await case.session("other")
    await case.start("r", case.user("a", "Why?"), case.user("b", "And then?"))

    found = await case.store.get_message(case.id("s"), case.id("b"))
    assert found is not None
    assert "And then?" == found.content
    for session, message in (("s", "unknown"), ("other", "b"), ("unknown", "b")):
        assert await case.store.get_message(case.id(session), case.id(message)) is None


@CHECKS.add
async def a_search_covers_the_whole_of_a_long_message(case: Case) -> None:
    """A word at the end of a long answer is found, with its place, also if another word of the query is everywhere."""
    sections = [f"Section {n}. Ebbe, flóod and tide {n}.\n\n" for n in range(12_000)]
    await case.session()
    await case.start("r", case.user("a", "".join(sections)))

    for number in (0, 6_000, 11_999):
        query = f"Section {number}"
        assert [case.id("s")] == [one.id for one in await case.store.list_sessions(case.owner, query=query)]
        hit = (await case.store.find_messages([case.id("s")], query))[case.id("s")]
        assert f"Section {number}." == "".join(text for text, _ in hit.excerpt).strip()
        assert hit.offset == len("".join(sections[:number]))


@CHECKS.add
async def a_message_of_many_different_words_is_stored_and_found_by_the_first(case: Case) -> None:
    """An index has limits. What exceeds them is not found, and costs nobody a message."""
    letters = [chr(0x12000 + n) for n in range(300)]  # of four bytes each
    different = [f"{one}{other}{one}" for one in letters for other in letters]
    await case.session()
    await case.start("r", case.user("a", " ".join(different)))

    assert " ".join(different) == (await case.store.messages(case.id("s")))[0].content
    assert [case.id("s")] == [one.id for one in await case.store.list_sessions(case.owner, query=different[1000])]


@CHECKS.add
async def a_search_that_finds_no_message_names_none(case: Case) -> None:
    """Only the title has the word, or the query has no word."""
    await case.session(title="harbour")
    await case.start("r", case.user("a", "The tide."))

    for query in ("harbour", "", "?!", "nothing"):
        assert {} == await case.store.find_messages([case.id("s")], query)
    assert {} == await case.store.find_messages([], "tide")
