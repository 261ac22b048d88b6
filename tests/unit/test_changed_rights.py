"""Changes of people's rights that reach a node late: after an outage of its store, or in the middle of a request."""

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.access import Access
from holdfast.errors import StoreUnavailable
from holdfast.server.accounts.people.accounts import Account
from holdfast.server.accounts.people.callers import Callers
from holdfast.server.accounts.people.changes import KEPT, LOOK_BACK
from holdfast.server.accounts.people.people import LastAdmin, People
from holdfast.server.sharing.shares import Share, Shares
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

    async def get_document(self, kind, id):
        if kind == self.away:
            raise StoreUnavailable("the network is gone")
        self.asked.set()
        await self.may_answer.wait()
        return await super().get_document(kind, id)


class TwoNodes:
    """Two nodes with one store, and a clock."""

    def __init__(self):
        self.now = 1000.0
        self.store = Away()
        self.here = Callers(self.store, now=lambda: self.now)
        self.other = Callers(self.store, now=lambda: self.now)

    async def person(self, name="ada"):
        return (await self.other.accounts.add(Account(name=name, owner=""))).id

    async def sign_in(self, account):
        token = await self.other.sign_ins.begin(account, idle=1e6, stay=False, address="", agent="")
        return await self.here.find(token.encode())

    async def disable(self, account):
        async def disabled(body):
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


async def _signed_in(nodes):
    await nodes.here.refresh()
    access = await nodes.sign_in(await nodes.person())
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


async def _demoted(account):
    return replace(account, role="member")


async def _disabled(account):
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
