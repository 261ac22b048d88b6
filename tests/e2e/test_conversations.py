"""`/v1/conversations` with OpenAI's own client: items, responses in a conversation, owners, limits, a crash."""

import asyncio
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.conversations import Conversation, ConversationItem
from pydantic import TypeAdapter

from holdfast.server.app import create_app
from holdfast.server.config.settings import ProviderSettings, Settings
from holdfast.server.features.accounts.made_keys import new_key
from holdfast.store.memory import MemoryStore
from holdfast.store.sqlite.beside import SqliteBeside
from tests.e2e.clients import BEGIN, KEY, setting
from tests.requirements import requirement
from tests.support.served import NO_HOME, Served
from tests.support.upstream import TEXT, Cut, Hang, Status
from tests.support.waiting import LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")

ITEM = TypeAdapter(ConversationItem)
HELLO: Any = {"type": "message", "role": "user", "content": "Hello."}
ITEMS: list[Any] = [
    {"role": "user", "content": [{"type": "input_text", "text": "Add."}]},
    {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "3"},
    {"role": "assistant", "content": "Three."},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory):
    async with setting(tmp_path_factory.mktemp("conversations")) as here:
        here.up.models |= {"away": [Status(503)], "cut": [*BEGIN, Cut()], "hangs": [*BEGIN, Hang()]}
        yield here


@pytest_asyncio.fixture(loop_scope="module")
async def client(here):
    async with AsyncOpenAI(base_url=here.base_url, api_key=KEY, max_retries=0, timeout=LONG) as client:
        yield client


async def texts(client: AsyncOpenAI, conversation_id: str) -> list[str]:
    """What was said in a conversation, in order; of a call its name, of its result the output."""
    found = []
    async for item in client.conversations.items.list(conversation_id, order="asc", limit=2):
        shown = item.to_dict()
        ITEM.validate_python(shown)
        found.append(
            shown["content"][0]["text"] if shown["type"] == "message" else shown.get("name") or shown["output"]
        )
    return found


async def ended(client: AsyncOpenAI, response_id: str) -> None:
    """Wait until a response is over: a server that starts settles what the last one left a moment later."""
    async with asyncio.timeout(LONG):
        while (await client.responses.retrieve(response_id)).status == "in_progress":  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.02)


@requirement("resp.conversations")
async def test_a_conversation_is_created_changed_and_deleted(client):
    """With the SDK's own calls, and its types."""
    made = await client.conversations.create(metadata={"topic": "sea"}, items=[HELLO])
    changed = await client.conversations.update(made.id, metadata={"topic": "land"})
    found = await client.conversations.retrieve(made.id)
    deleted = await client.conversations.delete(made.id)
    with pytest.raises(openai.NotFoundError) as gone:
        await client.conversations.retrieve(made.id)

    assert Conversation.model_validate(made.to_dict()).id.startswith("conv_")
    assert ({"topic": "sea"}, {"topic": "land"}) == (made.metadata, changed.metadata)
    assert changed == found
    assert (True, "conversation_not_found") == (deleted.deleted, gone.value.code)


@requirement("resp.conversations", "safe.owner-404")
async def test_an_owner_lists_all_conversations_page_by_page(here):
    """OpenAI has no such call: without it, a conversation whose id was lost could never be exported or deleted."""
    other_key = await key_of_another(here, "lister")
    async with AsyncOpenAI(base_url=here.base_url, api_key=other_key, max_retries=0) as other:
        made = [await other.conversations.create(metadata={"number": f"{number}"}) for number in range(3)]
    async with here.server.client(authorization=f"Bearer {other_key}") as http:
        first = await (await http.get("/v1/conversations?limit=2")).json()
        rest = await (await http.get(f"/v1/conversations?limit=2&after={first['last_id']}")).json()

    assert [each.to_dict() for each in made[::-1]] == first["data"] + rest["data"]
    assert ("list", True, False) == (first["object"], first["has_more"], rest["has_more"])


@requirement("resp.conversations")
async def test_a_response_that_would_not_fit_is_refused_before_it_starts(client, here):
    """The limit held for items that are added, and not for those of a response."""
    made = await client.conversations.create()
    long = {"model": "up/echo:Hi", "conversation": made.id, "input": "y" * 5_000_000}
    await client.responses.create(**long)
    asked = len(here.up.requests)
    with pytest.raises(openai.APIStatusError) as full:
        await client.responses.create(**long)

    assert (413, "conversation_full") == (full.value.status_code, full.value.code)
    assert asked == len(here.up.requests)


@requirement("resp.conversations")
async def test_items_are_added_listed_fetched_and_deleted(client):
    """In their order, page by page, each with every field of the SDK's types."""
    made = await client.conversations.create()
    added = await client.conversations.items.create(made.id, items=ITEMS)
    second = await client.conversations.items.retrieve(added.data[1].id, conversation_id=made.id)
    await client.conversations.items.delete(added.data[3].id, conversation_id=made.id)

    assert ["Add.", "add", "3"] == await texts(client, made.id)
    assert ("function_call", "completed") == (second.type, second.status)
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.retrieve(added.data[3].id, conversation_id=made.id)


@requirement("resp.conversations")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_is_shown_the_conversation_and_becomes_a_part_of_it(here, client, stream):
    """The client sends what is new, and nothing else."""
    made = await client.conversations.create(items=ITEMS)
    asked: dict[str, Any] = {"model": "up/echo:Four.", "input": "One more?", "conversation": made.id}
    if stream:
        async with client.responses.stream(**asked) as events:
            response = await events.get_final_response()
    else:
        response = await client.responses.create(**asked)
    shown = here.up.requests[-1].body["messages"]
    await client.responses.create(model="up/echo:Five.", input="And?", conversation={"id": made.id}, store=False)

    assert ["Add.", "", "3", "Three.", "One more?"] == [message["content"] or "" for message in shown]
    assert made.id == response.conversation.id
    assert ["Add.", "add", "3", "Three.", "One more?", "Four.", "And?", "Five."] == await texts(client, made.id)


@requirement("resp.conversations")
async def test_a_conversation_takes_one_response_at_a_time(client):
    """Two at once would not know of each other. What a stopped one has said stays."""
    made = await client.conversations.create()
    going_on = await client.responses.create(model="up/hangs", input="Hi", conversation=made.id, background=True)
    codes = []
    for refused in (
        client.responses.create(model="up/echo:no", input="Hi", conversation=made.id),
        client.conversations.items.create(made.id, items=[HELLO]),
    ):
        with pytest.raises(openai.ConflictError) as error:
            await refused
        codes.append(error.value.code)
    async with asyncio.timeout(LONG):
        while TEXT != (await client.responses.retrieve(going_on.id)).output_text:  # noqa: ASYNC110 - it polls
            await asyncio.sleep(0.05)
    await client.responses.cancel(going_on.id)
    await client.responses.create(model="up/echo:yes", input="Now?", conversation=made.id)

    assert ["conversation_locked"] * 2 == codes
    assert ["Hi", TEXT, "Now?", "yes"] == await texts(client, made.id)


class SlowToRead(MemoryStore):
    """A store that lets others go on before it returns a conversation or a list of runs."""

    then: Any = None

    async def get_document(self, kind: str, id: str) -> Any:
        found = await super().get_document(kind, id)
        if kind == "openai_conversation":
            await self._meanwhile()
        return found

    async def list_runs(self, **of: Any) -> Any:
        listed = await super().list_runs(**of)
        await self._meanwhile()
        return listed

    async def _meanwhile(self) -> None:
        then, self.then = self.then, None
        if then is not None:
            await then()
        for _ in range(20):
            await asyncio.sleep(0)


@requirement("resp.conversations")
async def test_a_response_that_is_deleted_while_it_is_written_leaves_its_words_in_the_conversation(here):
    """As a stopped one does. They were added a moment after its end, when it may have been gone already."""
    settings = Settings(providers=(ProviderSettings("up", base_url=here.up.base_url, models=("hangs",)),))
    async with Served(create_app(settings, SlowToRead(), NO_HOME)) as served:
        async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
            made = await client.conversations.create()
            asked: Any = {"model": "up/hangs", "input": "Hi", "conversation": made.id, "background": True}
            response = await client.responses.create(**asked)
            async with asyncio.timeout(LONG):
                while TEXT != (await client.responses.retrieve(response.id)).output_text:  # noqa: ASYNC110 - it polls
                    await asyncio.sleep(0.05)
            await client.responses.delete(response.id)

            assert ["Hi", TEXT] == await texts(client, made.id)


@requirement("resp.conversations", "resp.stored")
async def test_items_and_lists_bear_what_happens_in_the_middle_of_a_request(here):
    """A response that begins locks the conversation for items, too. One that is deleted is left out of a list."""
    settings = Settings(providers=(ProviderSettings("up", base_url=here.up.base_url, models=("hangs", "echo:yes")),))
    store = SlowToRead()
    async with Served(create_app(settings, store, NO_HOME)) as served, served.client() as http:
        async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
            made = await client.conversations.create()
            asked: Any = {"model": "up/hangs", "input": "Hi", "conversation": made.id, "background": True}
            store.then = lambda: client.responses.create(**asked)
            with pytest.raises(openai.ConflictError) as locked:
                await client.conversations.items.create(made.id, items=[HELLO])
            kept, gone = [await client.responses.create(model="up/echo:yes", input="Hi") for _ in range(2)]
            store.then = lambda: client.responses.delete(gone.id)
            listed = await http.get("/v1/responses")

    assert "conversation_locked" == locked.value.code
    assert 200 == listed.status
    assert kept.id in [each["id"] for each in (await listed.json())["data"]]


@requirement("resp.conversations", "truth.clients-see-failure")
async def test_a_failure_leaves_what_was_said_and_nothing_else(client):
    """A client that tries again after an early failure would else have asked twice."""
    made = await client.conversations.create()
    for model in ("up/away", "up/cut"):
        with pytest.raises(openai.APIStatusError):
            await client.responses.create(model=model, input=f"Hi {model}", conversation=made.id)

    assert ["Hi up/cut", TEXT] == await texts(client, made.id)


@requirement("resp.conversations")
async def test_a_repeated_request_is_added_once(client):
    """With an Idempotency-Key."""
    made = await client.conversations.create()
    key = {"Idempotency-Key": "conversation-1"}
    asked: dict[str, Any] = {"model": "up/echo:yes", "input": "Hi", "conversation": made.id, "extra_headers": key}
    first = await client.responses.create(**asked)
    again = await client.responses.create(**asked)

    assert first.id == again.id
    assert ["Hi", "yes"] == await texts(client, made.id)


@requirement("resp.conversations", "wire.no-silent-drop")
async def test_what_is_wrong_is_refused_and_names_itself(here, client):
    """And leaves nothing behind."""
    made = await client.conversations.create()
    first = await client.responses.create(model="up/echo:yes", input="Hi")
    wrong: dict[str, Any] = {
        "items": client.conversations.items.create(made.id, items=[HELLO] * 21),
        "items[0].role": client.conversations.items.create(made.id, items=[{**HELLO, "role": "nobody"}]),
        "items[0].content[0].type": client.conversations.create(items=[{**HELLO, "content": [{"type": "x"}]}]),
        "metadata": client.conversations.create(metadata={"k": "v" * 513}),
        "color": client.conversations.create(extra_body={"color": "red"}),
        "conversation": client.responses.create(
            model="up/echo:no", input="Hi", conversation=made.id, previous_response_id=first.id
        ),
    }
    for param, call in wrong.items():
        with pytest.raises(openai.BadRequestError) as refused:
            await call
        assert param == refused.value.param
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="up/echo:no", input="Hi", conversation="conv_none")
    assert ([], 0) == (await texts(client, made.id), here.calls("echo:no"))


@requirement("resp.conversations", "safe.owner-404")
async def test_another_owner_has_no_way_to_a_conversation(here, client):
    """Not to read it, not to change it, not to have a model read it."""
    made = await client.conversations.create(items=[HELLO])
    item = (await client.conversations.items.list(made.id)).data[0].id
    other_key = await key_of_another(here)
    async with AsyncOpenAI(base_url=here.base_url, api_key=other_key, max_retries=0) as other:
        for call in (
            other.conversations.retrieve(made.id),
            other.conversations.update(made.id, metadata={}),
            other.conversations.delete(made.id),
            other.conversations.items.create(made.id, items=[HELLO]),
            other.conversations.items.retrieve(item, conversation_id=made.id),
            other.conversations.items.delete(item, conversation_id=made.id),
            other.responses.create(model="up/echo:no", input="Hi", conversation=made.id),
        ):
            with pytest.raises(openai.NotFoundError):
                await call
        with pytest.raises(openai.NotFoundError):
            await other.conversations.items.list(made.id)

    assert ["Hello."] == await texts(client, made.id)


async def key_of_another(here: Any, name: str = "another") -> str:
    """Make the key of another owner, and wait until the server knows it."""
    made = new_key(name)
    await asyncio.to_thread(lambda: SqliteBeside(here.server.data).add(made.record))
    async with here.server.client(authorization=f"Bearer {made.key}") as client:
        async with asyncio.timeout(LONG):
            while (await client.get("/api/me")).status != 200:  # noqa: ASYNC110 - it polls
                await asyncio.sleep(0.1)
    return made.key


@requirement("resp.conversations")
async def test_an_answer_survives_a_crash_as_a_part_of_its_conversation(tmp_path):
    """The server is killed in the middle of an answer: what was shown is in the conversation."""
    async with setting(tmp_path) as here:
        here.up.models["hangs"] = [*BEGIN, Hang()]
        async with AsyncOpenAI(base_url=here.base_url, api_key=KEY, max_retries=0, timeout=LONG) as client:
            made = await client.conversations.create()
            asked = await client.responses.create(
                model="up/hangs", input="Hi", conversation=made.id, stream=True, store=True
            )
            async for event in asked:
                if event.type == "response.created":
                    response_id = event.response.id
                if event.type == "response.output_text.delta" and event.delta.endswith("🌊"):
                    break
            await here.server.kill9()
            await here.server.restart()
            await ended(client, response_id)
            response = await client.responses.create(model="up/echo:on", input="And?", conversation=made.id)

            assert "completed" == response.status
            assert ["Hi", TEXT, "And?", "on"] == await texts(client, made.id)
