"""Whether a chat is the same after it was read as a prompt and written again."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.prompt import AnyTurn
from holdfast.prompt.openai_shape import openai_messages, openai_params, prompt_of


def lost(body: Any, write: Callable[[Iterable[AnyTurn]], Any] = openai_messages) -> list[str]:
    """What of a chat is lost: its messages, its parameters. Nothing, if the body is no chat."""
    match body:
        case {"messages": list(messages)} if all(isinstance(each, dict) for each in messages):
            params = {name: value for name, value in body.items() if name != "messages"}
            prompt = prompt_of(messages, params)
            pairs = {
                "messages": (lasting(messages), lasting(write(prompt.turns))),
                "parameters": (sent(params), openai_params(prompt)),
            }
            return [f"{what}: {before} became {after}" for what, (before, after) in pairs.items() if before != after]
    return []


def lasting(value: Any) -> Any:
    """A value without null arguments of calls and null contents of messages: they mean that there are none."""
    return json.loads(json.dumps(value), object_hook=_without_nulls)


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if not (name in ("arguments", "content") and each is None)}


def sent(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters without what means the same as leaving it out."""
    return {name: value for name, value in params.items() if value is not None and (name, value) != ("tools", [])}
