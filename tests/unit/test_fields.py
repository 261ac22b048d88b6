"""The tables of fields: what becomes of each, as data that documents and SDKs are held against."""

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import ag_ui.core
import pydantic
import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsBase
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from openai.types.completion_create_params import CompletionCreateParamsBase as TextParams
from openai.types.conversations.conversation_create_params import ConversationCreateParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from openai.types.responses.responses_client_event_param import ResponseCreate as ResponseCreateEvent
from typing_extensions import get_type_hints, is_typeddict

from holdfast.fields import PASSED_ON, USED, Kinds, Shape, Table, harmless, passed_on, refusal, refused, used
from holdfast.server.sources import agents
from holdfast.upstreams.anthropic import fields as anthropic_upstream
from holdfast.upstreams.bedrock import request as bedrock_request
from holdfast.upstreams.gemini import request as gemini_request
from holdfast.upstreams.ollama import request as ollama_request
from holdfast.upstreams.responses import request as responses_request
from holdfast.wires import ui_fields
from holdfast.wires.anthropic import fields as anthropic_fields
from holdfast.wires.openai import completions as openai_completions
from holdfast.wires.openai import fields as openai_fields
from scripts import docs_fields
from tests.requirements import requirement

TABLE: Table = {"a": USED, "b": PASSED_ON, "c": harmless("Why."), "d": refused("Why not.", 0, []), "e": refused("No.")}


def test_a_refusal_names_the_field_and_says_why():
    """The first one counts; null and what asks for nothing do not."""
    values = {"a": 1, "b": 1, "c": 1, "d": 0, "e": None}

    assert refusal(values, TABLE, PASSED_ON) is None
    assert ("d", "d is not supported here. Why not.", "unsupported") == refusal(values | {"d": [1]}, TABLE, PASSED_ON)
    assert "f" == (refusal({"f": 1}, TABLE, refused("Unknown.")) or [""])[0]


def test_only_what_is_passed_on_is_passed_on():
    """What is not known follows the rule for that."""
    values = {"a": 1, "b": 2, "c": 3, "d": 0, "f": 4, "g": None}

    assert {"b": 2, "f": 4} == passed_on(values, TABLE, PASSED_ON)
    assert {"b": 2} == passed_on(values, TABLE, refused("Unknown."))


@requirement("wire.no-silent-drop")
@pytest.mark.parametrize(
    "table",
    [
        anthropic_fields.FOR_ANTHROPIC,
        anthropic_fields.FOR_OTHERS,
        openai_fields.CHAT_FIELDS,
        anthropic_upstream.PARAMS,
        bedrock_request.PARAMS,
        gemini_request.PARAMS,
        ollama_request.PARAMS,
        responses_request.PARAMS,
        openai_fields.RESPONSES,
        openai_fields.OVER_WEBSOCKET,
        agents.PARAMS,
    ],
)
def test_a_field_that_is_left_out_or_refused_has_a_reason(table):
    """A caller who is refused has to know what to do, and whoever changes a rule why it was one."""
    without = [name for name, rule in table.items() if rule.kind in ("harmless", "refused") and not rule.why]

    assert [] == without


# What the SDKs can send.

HEADERS = {"betas", "user_profile_id", "workspace_id"}
"""Parameters of Anthropic's SDK that it sends as headers."""
CHAT_TO_ANTHROPIC = {**openai_fields.CHAT_FIELDS, **anthropic_upstream.PARAMS, **anthropic_upstream.MESSAGE_RULES}


def chat_to(dialect: Any) -> Table:
    return {**openai_fields.CHAT_FIELDS, **dialect.PARAMS, **dialect.MESSAGE_RULES}


def objects(kind: Any) -> Iterator[Any]:
    """The typed dicts and models that a type is made of."""
    if is_typeddict(kind) or (isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)):
        yield kind
    elif get_origin(kind) not in (Literal, dict):
        for part in get_args(kind):
            yield from objects(part)


def fields_of(kind: Any) -> dict[str, Any]:
    """The fields of an object by the names that are sent, and their types."""
    if is_typeddict(kind):
        return get_type_hints(kind, include_extras=True)
    return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}


def words_of(kind: Any) -> list[str]:
    """The texts that a literal type allows."""
    if get_origin(kind) is Literal:
        return [word for word in get_args(kind) if isinstance(word, str)]
    return [word for part in get_args(kind) for word in words_of(part)]


def without_rule(kind: Any, rules: Shape | Kinds, place: str) -> Iterator[str]:
    """The fields of a published type that have no rule, at any depth."""
    fields = fields_of(kind)
    if isinstance(rules, Kinds):
        for word in words_of(fields.get(rules.by)):
            found = rules.of({rules.by: word})
            if isinstance(found, Shape):
                yield from without_rule(kind, found, f"{place}[{word}]")
        return
    for name, inner in fields.items():
        where = f"{place}.{name}".lstrip(".")
        rule = rules.fields.get(name)
        if rule is None:
            yield where
        elif rule.inside is not None:
            for each in objects(inner):
                yield from without_rule(each, rule.inside, where)
        elif rule.kind == "used" and list(objects(inner)):
            yield f"{where} has objects without rules"


PUBLISHED = {
    "messages to Anthropic": (MessageCreateParamsBase, anthropic_fields.FOR_ANTHROPIC),
    "messages to others": (MessageCreateParamsBase, anthropic_fields.FOR_OTHERS),
    "chat completions": (CompletionCreateParamsBase, openai_fields.CHAT_FIELDS),
    "chat completions to Anthropic": (CompletionCreateParamsBase, CHAT_TO_ANTHROPIC),
    "chat completions to Bedrock": (CompletionCreateParamsBase, chat_to(bedrock_request)),
    "chat completions to Gemini": (CompletionCreateParamsBase, chat_to(gemini_request)),
    "chat completions to Ollama": (CompletionCreateParamsBase, chat_to(ollama_request)),
    "chat completions to Responses": (CompletionCreateParamsBase, chat_to(responses_request)),
    "completions": (TextParams, openai_completions.COMPLETION),
    "responses": (ResponseCreateParamsBase, openai_fields.RESPONSES),
    "responses over a WebSocket": (ResponseCreateEvent, {**openai_fields.RESPONSES, **openai_fields.OVER_WEBSOCKET}),
    "conversations": (ConversationCreateParams, openai_fields.CONVERSATIONS),
    "AG-UI": (ag_ui.core.RunAgentInput, ui_fields.AG_UI),
}
AS_A_WHOLE = {
    "messages to Anthropic": "sent as it came",
    "chat completions": "sent as it came",
    "metadata": "text by names of the caller's",
    "thread": "a table of its own",
    "tool_choice": "read by a match that refuses all else",
    "response_format": "read by a match that refuses all else",
    "output_format": "read by a match that refuses all else",
    "input_schema": "a JSON schema",
    "stop_sequences": "texts",
}
"""Fields, and dialects, whose objects are taken as they are, and why that drops nothing."""


@requirement("wire.no-silent-drop")
@pytest.mark.parametrize("dialect", PUBLISHED)
def test_every_field_that_an_sdk_can_send_has_a_rule(dialect):
    """A new version of an SDK brings new fields: each is looked at before it is dropped, or passed on, by accident."""
    kind, table = PUBLISHED[dialect]
    missing = set(without_rule(kind, Shape(table, PASSED_ON), "")) - HEADERS
    named = {place for place in missing if place.endswith("has objects without rules")}
    whole = {place for place in named if place.split()[0].rpartition(".")[2].rpartition("]")[2] in AS_A_WHOLE}

    assert set() == missing - whole - (named if dialect in AS_A_WHOLE else set())


def test_a_field_without_a_rule_is_found_at_any_depth():
    """The walk itself: it would say the same of nothing at all."""
    table = {**openai_fields.RESPONSES, "text": used(Shape({"verbosity": USED}, PASSED_ON))}
    del table["user"]

    assert {"user", "text.format"} == {
        place for place in without_rule(ResponseCreateParamsBase, Shape(table, PASSED_ON), "") if "objects" not in place
    }


@requirement("wire.no-silent-drop")
def test_the_page_of_fields_is_what_the_tables_say():
    """Run `make reference` after a change."""
    assert docs_fields.page() == docs_fields.PAGE.read_text(encoding="utf-8")
