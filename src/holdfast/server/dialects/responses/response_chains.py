"""The chain of stored responses before a response, and its messages for the model."""

from __future__ import annotations

from typing import Any

from ....errors import BadRequest, Conflict, NotFound, ResumeGap
from ....history import Message, alternating, for_model, left_of
from ....store import RunRecord, Store
from ....wires.openai import responses as openai_responses
from ....wires.openai.responses_request import Item, listed, messages_of
from .stored_conversations import conversation_items

RESPONSE = "response"
"""The field of a run's request with the fields of a response's request."""
CONVERSATION = "conversation"
"""The field of these with the conversation that the response is added to, as `{"id"}`."""
BEFORE = "before"
"""The field of these with the items before the input, if the response that it follows is not stored."""


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


async def conversation(store: Store, record: RunRecord) -> list[dict[str, Any]]:
    """Return the messages for a response: those of the chain before it, and the new ones.

    How an earlier response ended is not included: a stopped or failed one leaves its text. Instructions are those of
    this request alone.
    """
    requested = record.request[RESPONSE]
    messages = messages_of(requested.get(BEFORE, ()))
    if CONVERSATION in requested:
        messages = messages_of(await conversation_items(store, record.owner, requested[CONVERSATION]["id"]))
    for before in await _chain(store, record):
        earlier = before.request[RESPONSE]
        messages += messages_of([*earlier.get(BEFORE, ()), *earlier["input"], *await output_of(store, before)])
    new = messages_of(requested["input"])
    sent = for_model([*messages, *new], requested.get("instructions"))
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


async def _chain(store: Store, record: RunRecord) -> list[RunRecord]:
    """Return the responses before this one, the first of them first."""
    chain: list[RunRecord] = []
    seen = {record.id}
    following = record
    while (named := _followed(following)) is not None:
        found = await stored(store, record.owner, named, "previous_response_id")
        if found.settlement is None:
            raise ResponseNotSettled(named)
        if found.id in seen:
            raise PreviousResponseNotFound(named, "previous_response_id")
        seen.add(found.id)
        chain.append(found)
        following = found
    chain.reverse()
    return chain


def _followed(record: RunRecord) -> str | None:
    """Return the stored response that a response follows; None if there is none, or it has the items itself."""
    requested = record.request[RESPONSE]
    return None if BEFORE in requested else requested.get("previous_response_id")


async def stored(store: Store, owner: str, response_id: str, param: str) -> RunRecord:
    """Return the run of a stored response. One of another owner is not found."""
    found = await store.get_run(openai_responses.run_id_of_response(response_id))
    if found is None or found.owner != owner or not is_stored(found):
        raise (PreviousResponseNotFound if param == "previous_response_id" else ResponseNotFound)(response_id, param)
    return found


def is_stored(record: RunRecord) -> bool:
    """Return whether a run is a stored response. One may be stored only for repeated requests."""
    return bool(record.request.get(RESPONSE, {}).get("store"))


async def output_of(store: Store, record: RunRecord) -> list[Item]:
    """Return the output items of a stored response; of one whose log was trimmed, its text."""
    requested = record.request[RESPONSE]
    response = openai_responses.Response(record.id, record.echo, record.created_at, requested)
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
    record = await stored(store, owner, response_id, param)
    suffix = run_id.removeprefix("run_")
    for item in [*await output_of(store, record), *listed(record.request[RESPONSE]["input"], suffix)]:
        if item["id"] == item_id:
            return item
    raise ResponseNotFound(item_id, param)
