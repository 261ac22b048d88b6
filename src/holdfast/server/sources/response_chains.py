"""The chain of stored responses before a response, and its messages for the model."""

from __future__ import annotations

from typing import Any

from ...asks import ResponseAsk
from ...errors import BadRequest, Conflict, NotFound, ResumeGap
from ...history import Message, alternating, for_model, left_of
from ...store import RunRecord, Store
from ...wires.openai import responses as openai_responses
from ...wires.openai.response_items import Item, listed, messages_of
from .stored_conversations import conversation_items


class ResponseNotFound(NotFound):
    """No such response, or it is not yours, or it is not stored."""

    code = "response_not_found"

    def __init__(self, response_id: str, param: str | None = None) -> None:
        super().__init__(f"Response with id {response_id!r} not found.")
        self.param = param


class PreviousResponseNotFound(ResponseNotFound):
    """The previous response does not exist. At this code clients send the whole conversation again."""

    code = "previous_response_not_found"


class ResponseNotSettled(Conflict):
    """A response that has not ended cannot be followed."""

    code = "response_not_settled"
    param = "previous_response_id"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response {response_id} has not ended. Wait for it or cancel it, then follow it.")


async def conversation(store: Store, owner: str, ask: ResponseAsk) -> list[dict[str, Any]]:
    """Return the messages for a response: those of the chain before it, and the new ones.

    How an earlier response ended is not included: a stopped or failed one leaves its text. Instructions are those of
    this request alone.
    """
    messages = messages_of(ask.before or ())
    if ask.conversation_id is not None:
        messages = messages_of(await conversation_items(store, owner, ask.conversation_id))
    for record, earlier in await _chain(store, owner, ask):
        messages += messages_of([*(earlier.before or ()), *earlier.input, *await output_of(store, record, earlier)])
    new = messages_of(ask.input)
    sent = for_model([*messages, *new], ask.instructions)
    _check_results(new, sent)
    if all(message["role"] == "system" for message in sent):
        raise BadRequest("Nothing in the input can be shown to a model.", param="input")
    return alternating(sent, ("assistant",))  # the items of one answer are several messages


def _check_results(new: list[Message], sent: list[dict[str, Any]]) -> None:
    """Refuse tool results without an open call. A repeated result is accepted."""
    results = [(message["tool_call_id"], message["content"]) for message in sent if message["role"] == "tool"]
    for message in new:
        if message.role == "tool" and (message.tool_call_id, message.content) not in results:
            raise BadRequest(f"No tool call waits for the output with call_id {message.tool_call_id!r}.", param="input")


async def _chain(store: Store, owner: str, ask: ResponseAsk) -> list[tuple[RunRecord, ResponseAsk]]:
    """Return the responses before a request, the first of them first. It begins at one with items before it."""
    chain: list[tuple[RunRecord, ResponseAsk]] = []
    seen: set[str] = set()
    while ask.before is None and (named := ask.previous_response_id) is not None:
        found, ask = await stored(store, owner, named, "previous_response_id")
        if found.settlement is None:
            raise ResponseNotSettled(named)
        if found.id in seen:
            raise PreviousResponseNotFound(named, "previous_response_id")
        seen.add(found.id)
        chain.append((found, ask))
    chain.reverse()
    return chain


async def stored(store: Store, owner: str, response_id: str, param: str) -> tuple[RunRecord, ResponseAsk]:
    """Return the run of a stored response, and its request. One of another owner is not found."""
    found = await store.get_run(openai_responses.run_id_of_response(response_id))
    ask = None if found is None else stored_ask(found)
    if found is None or found.owner != owner or ask is None:
        raise (PreviousResponseNotFound if param == "previous_response_id" else ResponseNotFound)(response_id, param)
    return found, ask


def stored_ask(record: RunRecord) -> ResponseAsk | None:
    """Return the request of a stored response; None for other runs. One may be stored only for repeated requests."""
    return record.ask if isinstance(record.ask, ResponseAsk) and record.ask.store else None


async def output_of(store: Store, record: RunRecord, ask: ResponseAsk) -> list[Item]:
    """Return the output items of a stored response; of one whose log was trimmed, its text."""
    response = openai_responses.Response(record.id, record.echo, record.created_at, ask)
    after = 0
    try:
        while events := await store.read_log(record.id, after):
            response.add(events)
            after += len(events)
    except ResumeGap:
        text = record.settlement.text if record.settlement is not None else ""
        response.add(left_of(record.settlement, text))
    return response.output.items()


async def resolved(store: Store, owner: str, items: list[Item]) -> list[Item]:
    """Return the items with each reference replaced by the item of a stored response."""
    return [
        await _referred(store, owner, item["id"], f"input[{place}].id") if item["type"] == "item_reference" else item
        for place, item in enumerate(items)
    ]


async def _referred(store: Store, owner: str, item_id: str, param: str) -> Item:
    response_id, run_id = openai_responses.run_of_item(item_id)
    record, ask = await stored(store, owner, response_id, param)
    suffix = run_id.removeprefix("run_")
    for item in [*await output_of(store, record, ask), *listed(ask.input, suffix)]:
        if item["id"] == item_id:
            return item
    raise ResponseNotFound(item_id, param)
