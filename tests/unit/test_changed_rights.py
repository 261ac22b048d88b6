"""Changes of people's rights that reach a node late: after an outage of its store, or in the middle of a request."""

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.access import Access
from holdfast.errors import StaleDocument, StoreUnavailable
from holdfast.server.features.accounts.people.accounts import Account, Accounts, NameTaken
from holdfast.server.features.accounts.people.callers import Callers
from holdfast.server.features.accounts.people.changes import KEPT, LOOK_BACK
from holdfast.server.features.accounts.people.people import LastAdmin, People
from holdfast.server.features.sharing.shares import MOST_SHARES, Share, Shares, TooManyShares
from holdfast.store.memory import MemoryStore
from tests.requirements import requirement


class Away(MemoryStore):
    """A store that can fail to read documents of one kind, and that can stop before it answers."""

    away = ""

    def __init__(self):
        super().__init__()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = asyncio.Event()
        self.hidden: set[str] = set()
        """Documents whose transactions have not ended."""

    async def list_documents(self, kind, owner=None, *, before=None, limit=50):
        listed = await super().list_documents(kind, owner, before=before, limit=limit)
        return [document for document in listed if document.id not in self.hidden]

    async def get_document(self, kind, id):
        if kind == self.away:
            raise StoreUnavailable("the network is gone")
        self.asked.set()
        await self.may_answer.wait()
        return await super().get_document(kind, id)


class TwoNodes:
    """Two nodes with one store, and a clock. That of the other node may be ahead or behind, by `skew`."""

    def __init__(self):
        self.now = 1_000_000.0
        self.skew = 0.0
        self.store = Away()
        self.here = Callers(self.store, now=lambda: self.now)
        self.other = Callers(self.store, now=lambda: self.now + self.skew)

    async def person(self, name="ada"):
        return (await self.other.accounts.add(Account(name=name, owner=""))).id

    async def sign_in(self, account):
        token = await self.other.sign_ins.begin(account, idle=1e6, stay=False, address="", agent="")
        return await self.here.find(token.encode())

    async def disable(self, account):
        def disabled(body):
            return replace(body, is_disabled=True)

        await self.other.accounts.change(account, disabled)


@pytest.fixture
def nodes():
    return TwoNodes()


@requirement("people.rights-change")
async def test_a_node_without_its_store_for_a_minute_learns_who_was_disabled(nodes):
    """It looks back to what it has read last, however long ago that was."""
    access = await _signed_in(nodes)
    await nodes.disable(access.account)

    nodes.now += 2 * LOOK_BACK
    await nodes.here.refresh()

    assert access.is_revoked


SKEWS = {"behind": -3 * LOOK_BACK, "hours behind": -9 * KEPT, "ahead": 3 * LOOK_BACK, "hours ahead": 9 * KEPT}


@requirement("people.rights-change")
@pytest.mark.parametrize("skew", SKEWS.values(), ids=SKEWS)
async def test_a_change_by_a_node_whose_clock_is_wrong_reaches_every_node(nodes, skew):
    """Who was disabled through it would stay in on all others. The store decides what is new, no writer's clock."""
    ada, bob = [await _signed_in(nodes, name) for name in ("ada", "bob")]
    nodes.skew = skew
    await nodes.disable(ada.account)
    nodes.skew = 0.0
    await nodes.disable(bob.account)
    nodes.now += 1.0
    await nodes.here.refresh()

    assert (True, True) == (ada.is_revoked, bob.is_revoked)


@requirement("people.rights-change")
@pytest.mark.parametrize("skew", SKEWS.values(), ids=SKEWS)
async def test_a_node_whose_clock_is_wrong_deletes_no_change_that_others_have_not_read(nodes, skew):
    """It deletes what it has known for an hour, by its own clock."""
    access = await _signed_in(nodes)
    await nodes.other.changes.forget()
    await nodes.disable(access.account)
    nodes.skew = skew
    await nodes.other.changes.forget()
    await nodes.here.refresh()

    assert access.is_revoked


@requirement("people.rights-change")
async def test_a_log_of_changes_that_all_have_read_is_deleted(nodes):
    """It does not grow for ever, and a node that reads it again finds nothing new."""
    access = await _signed_in(nodes)
    await nodes.disable(access.account)
    await nodes.here.refresh()
    for _ in range(2):
        await nodes.other.changes.forget()
        nodes.now += KEPT
        await nodes.here.refresh()
    await nodes.other.changes.forget()

    assert [] == await nodes.store.list_documents("access_change")
    assert [] == [change async for change in nodes.here.changes.read()]


@requirement("people.rights-change")
async def test_a_change_that_becomes_visible_after_a_later_one_is_taken_in(nodes):
    """PostgreSQL numbers rows when they are written, and shows them when their transaction ends."""
    ada, bob = [await _signed_in(nodes, name) for name in ("ada", "bob")]
    await nodes.disable(ada.account)
    [hidden, *_] = await nodes.store.list_documents("access_change")
    await nodes.disable(bob.account)
    nodes.store.hidden.add(hidden.id)
    await nodes.here.refresh()
    seen_first = ada.is_revoked, bob.is_revoked
    nodes.store.hidden.clear()
    nodes.now += 1.0
    await nodes.here.refresh()

    assert ((False, True), (True, True)) == (seen_first, (ada.is_revoked, bob.is_revoked))


@requirement("people.rights-change")
async def test_a_change_that_could_not_be_taken_in_is_taken_in_later(nodes):
    """The log could be read, and then the account could not: the change is not over."""
    access = await _signed_in(nodes)
    await nodes.disable(access.account)
    nodes.store.away = "account"
    with pytest.raises(StoreUnavailable):
        await nodes.here.refresh()

    nodes.store.away = ""
    await nodes.here.refresh()

    assert access.is_revoked


@requirement("people.rights-change")
@pytest.mark.parametrize("is_ended", [False, True], ids=["disabled", "signed out"])
async def test_a_node_that_has_lost_changes_reads_all_rights_again(nodes, is_ended):
    """Changes are deleted after an hour. Keys, and sign-ins with open streams, are checked too."""
    access = await _signed_in(nodes)
    access.watch(lambda: None)
    key = Access(access.owner, role=None, account=access.account, credential="key_1")
    assert await nodes.here.load(key)
    if is_ended:
        await nodes.other.sign_ins.end_all(access.account)
    else:
        await nodes.disable(access.account)

    nodes.now += KEPT + 1
    await nodes.other.changes.forget()
    await nodes.here.refresh()

    assert access.is_revoked
    assert key.is_revoked is not is_ended


@requirement("people.keys")
async def test_a_key_that_is_revoked_while_its_rights_are_read_stays_revoked(nodes):
    """What it opens would never end: the key is known no more."""
    account = await nodes.person()
    key = Access("ada", role=None, account=account, credential="key_1")
    nodes.store.may_answer.clear()
    nodes.store.asked.clear()
    loading = asyncio.create_task(nodes.here.load(key))
    await nodes.store.asked.wait()
    key.revoke()
    nodes.store.may_answer.set()

    assert not await loading
    assert key.is_revoked


@requirement("share.ends")
async def test_a_node_without_its_store_for_a_minute_ends_the_streams_of_a_revoked_link(nodes):
    """It looks back to what it has read last, however long ago that was."""
    here, other = (Shares(nodes.store, now=lambda: nodes.now) for _ in range(2))
    _, share = await other.add_link("ada", Share(session_id="ses_1"))
    loan = here.lend(Access("bob"), share)
    loan.watch(lambda: None)
    await here.refresh()
    await other.revoke(share.id)

    nodes.now += 2 * LOOK_BACK
    await here.refresh()

    assert loan.is_revoked


@requirement("share.ends")
async def test_a_node_without_its_store_for_hours_ends_the_streams_of_a_revoked_link(nodes):
    """The change that says so was deleted meanwhile. The stream of a link that is still there goes on."""
    here, other = (Shares(nodes.store, now=lambda: nodes.now) for _ in range(2))
    made = [(await other.add_link("ada", Share(session_id="ses_1")))[1] for _ in range(2)]
    loans = [here.lend(Access("bob"), share) for share in made]
    for loan in loans:
        loan.watch(lambda: None)
    await here.refresh()
    await other.revoke(made[0].id)

    nodes.now += 5 * KEPT
    await nodes.other.changes.forget()
    await here.refresh()

    assert [True, False] == [loan.is_revoked for loan in loans]


@requirement("share.ends")
async def test_a_revoked_share_that_could_not_be_looked_up_ends_its_streams_later(nodes):
    """The log of changes could be read, and then the share could not: the stream stays in doubt."""
    here, other = (Shares(nodes.store, now=lambda: nodes.now) for _ in range(2))
    _, share = await other.add_link("ada", Share(session_id="ses_1"))
    loan = here.lend(Access("bob"), share)
    loan.watch(lambda: None)
    await here.refresh()
    await other.revoke(share.id)
    nodes.store.away = "share"
    with pytest.raises(StoreUnavailable):
        await here.refresh()

    nodes.store.away = ""
    await here.refresh()

    assert loan.is_revoked


async def _signed_in(nodes, name="ada"):
    await nodes.here.refresh()
    access = await nodes.sign_in(await nodes.person(name))
    await nodes.here.refresh()
    assert access is not None
    assert not access.is_revoked
    return access


class BothLook(MemoryStore):
    """A store whose first two readers of the accounts both have their answer before either goes on."""

    def __init__(self):
        super().__init__()
        self.readers = 0
        self.both = asyncio.Event()

    async def list_documents(self, kind, owner=None, **page):
        found = await super().list_documents(kind, owner, **page)
        if kind == "account" and not self.both.is_set():
            self.readers += 1
            if self.readers == 2:
                self.both.set()
            await self.both.wait()
        return found


def _demoted(account):
    return replace(account, role="member")


def _disabled(account):
    return replace(account, is_disabled=True)


_ENDS = {
    "demote": lambda people, id: people.change(id, _demoted),
    "disable": lambda people, id: people.change(id, _disabled),
    "delete": lambda people, id: people.delete(id),
}


@requirement("people.last-admin")
@pytest.mark.parametrize("pair", ["demote disable", "disable delete", "delete demote"])
async def test_two_admins_who_end_each_other_at_once_leave_one(pair):
    """On two nodes each sees the other one as the admin that is left. A server without an admin cannot be mended."""
    store = BothLook()
    here, there = People(store), People(store)
    store.both.set()
    ada, bob = [await here.add(Account(name=name, owner="", role="admin")) for name in ("ada", "bob")]
    store.both.clear()
    one, other = pair.split()
    ends = _ENDS[one](here, bob.id), _ENDS[other](there, ada.id)
    results = await asyncio.gather(*ends, return_exceptions=True)

    accounts = await here.accounts.page()
    assert 1 == sum(it.body.role == "admin" and not it.body.is_disabled for it in accounts)
    assert [LastAdmin] == [type(result) for result in results if isinstance(result, Exception)]


class Interleaved(MemoryStore):
    """A store that lets others go on before it answers, as one on a disk does."""

    async def list_documents(self, kind, owner=None, *, before=None, limit=50):
        listed = await super().list_documents(kind, owner, before=before, limit=limit)
        await asyncio.sleep(0)
        return listed


@requirement("share.limits")
async def test_a_limit_of_shares_holds_for_links_and_groups_that_are_made_at_once():
    """Each of them would count the others too late."""
    shares = Shares(Interleaved())
    for _ in range(MOST_SHARES - 3):
        await shares.add_link("ada", Share(session_id="ses_1"))
    links = [shares.add_link("ada", Share(session_id="ses_1")) for _ in range(4)]
    groups = [shares.add_group("ada", Share(session_id="ses_1", group=f"grp_{n}")) for n in range(4)]
    results = await asyncio.gather(*links, *groups, return_exceptions=True)

    assert 5 == sum(isinstance(result, TooManyShares) for result in results)
    assert MOST_SHARES == len(await shares.of_owner("ada"))


class AnswersLate(MemoryStore):
    """A store whose first answer about a share is late: it arrives while a later question is answered."""

    def __init__(self):
        super().__init__()
        self.is_read, self.may_answer, self.is_noted = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def get_document(self, kind, id):
        found = await super().get_document(kind, id)
        if kind == "share" and not self.is_read.is_set():
            self.is_read.set()
            await self.may_answer.wait()
        elif kind == "share" and found is None:
            self.may_answer.set()
            await asyncio.sleep(0)
        return found

    async def put_document(self, document, expected_version=None):
        if document.kind == "access_change":
            self.is_noted.set()
        return await super().put_document(document, expected_version)


@requirement("share.ends")
async def test_a_share_that_is_revoked_while_its_readers_are_checked_ends_for_them():
    """What was read before the end says nothing about it, however late it arrives."""
    shares = Shares(store := AnswersLate())
    _, share = await shares.add_link("ada", Share(session_id="ses_1"))
    reader = shares.lend(Access("bob"), share)
    reader.watch(lambda: None)
    checking = asyncio.create_task(shares.refresh())
    await store.is_read.wait()
    revoking = asyncio.create_task(shares.revoke(share.id))
    await store.is_noted.wait()
    store.may_answer.set()
    await asyncio.gather(checking, revoking)

    assert reader.is_revoked


class RevokedMeanwhile(MemoryStore):
    """A store in which a share is revoked just before the index of its group is written."""

    shares: Shares

    async def put_document(self, document, expected_version=None):
        if document.kind == "group_share":
            await self.shares.revoke(document.id)
        return await super().put_document(document, expected_version)


@requirement("share.group-ends")
async def test_sharing_with_a_group_what_is_revoked_meanwhile_is_a_conflict():
    """Of two tabs of one person one shares, and the other one revokes: no share is left, and nobody is told of one."""
    store = RevokedMeanwhile()
    shares = store.shares = Shares(store)

    with pytest.raises(StaleDocument):
        await shares.add_group("ada", Share(session_id="ses_1", group="grp_1"))
    assert [] == await shares.of_owner("ada")


class HoldsTheEnd(MemoryStore):
    """A store that stops before the index of accounts loses an entry."""

    def __init__(self):
        super().__init__()
        self.asked, self.may_end = asyncio.Event(), asyncio.Event()

    async def delete_document(self, kind, id, version=None):
        if kind == "account_index":
            self.asked.set()
            await self.may_end.wait()
        return await super().delete_document(kind, id, version)


@requirement("people.sign-in")
async def test_a_name_that_is_given_again_while_its_account_is_deleted_belongs_to_the_new_one():
    """Its person could not sign in: the end of the old account would take the name away from the new one."""
    now = 1_000_000.0
    accounts = Accounts(store := HoldsTheEnd(), now=lambda: now)
    old = await accounts.add(Account(name="ada", owner=""))
    now += 3600
    deleting = asyncio.create_task(accounts.delete(old.id))
    await store.asked.wait()
    new = await accounts.add(Account(name="ada", owner=""))
    store.may_end.set()
    await deleting

    assert new.id == (await accounts.find("ada")).id


@requirement("people.sign-in")
async def test_a_change_that_is_refused_for_one_name_claims_no_other():
    """A name and an e-mail address change together: whoever wants the free one later gets it."""
    accounts = Accounts(MemoryStore())
    ada, bob = [await accounts.add(Account(name=name, owner="", email=f"{name}@x.org")) for name in ("ada", "bob")]
    for taken in ({"name": "eve", "email": "bob@x.org"}, {"name": "bob", "email": "eve@x.org"}):
        with pytest.raises(NameTaken):
            await accounts.change(ada.id, lambda account, taken=taken: replace(account, **taken))
    eve = await accounts.add(Account(name="eve", owner="", email="eve@x.org"))

    assert [ada.id, bob.id, eve.id] == [(await accounts.find(name)).id for name in ("ada", "bob@x.org", "eve@x.org")]
