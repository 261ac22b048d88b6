"""The page docs/wires/fields.md, written from the tables of fields themselves by `make reference`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.fields import PASSED_ON, Kinds, Rule, Shape, Table
from holdfast.server.sources import agents
from holdfast.upstreams.anthropic import fields as anthropic_upstream
from holdfast.upstreams.bedrock import request as bedrock_request
from holdfast.upstreams.gemini import request as gemini_request
from holdfast.upstreams.ollama import request as ollama_request
from holdfast.upstreams.openai import provider as openai_upstream
from holdfast.upstreams.responses import request as responses_request
from holdfast.wires import ollama, ui_fields
from holdfast.wires.anthropic import fields as anthropic_fields
from holdfast.wires.openai import completions as openai_completions
from holdfast.wires.openai import fields as openai_fields

PAGE = Path(__file__).parents[1] / "docs" / "wires" / "fields.md"
HEAD = """# Field support

No field of a request is silently dropped. A field is

- *used*: read by the server, and translated to the API of the model's upstream if that is another;
- *passed on* to the model's upstream unchanged;
- *left out*, if the answer is the same without it;
- *refused*: the request is 400 `unsupported`, and `param` names the field. Values without effect are accepted.

The text in brackets is the kind of an object, and `…` is every other field or kind. The native API refuses unknown
fields. This page is written by `scripts/docs_fields.py` from the tables that the server uses.
The tests send the fields to each kind of upstream, and compare the tables with the types of OpenAI's, Anthropic's and
AG-UI's own packages: a field without a rule fails them.
"""
AS_ABOVE = Rule("used", "As above.")
DIALECTS: list[tuple[str, Table, Rule]] = [
    ("Chat completions", openai_fields.CHAT_FIELDS, PASSED_ON),
    ("Chat completions, to an upstream of that dialect", openai_upstream.PARAMS, PASSED_ON),
    (
        "Chat completions, to Anthropic's models",
        {**anthropic_upstream.PARAMS, **anthropic_upstream.MESSAGE_RULES},
        PASSED_ON,
    ),
    ("Chat completions, to Gemini's models", {**gemini_request.PARAMS, **gemini_request.MESSAGE_RULES}, PASSED_ON),
    (
        "Chat completions, to Ollama's own API",
        {**ollama_request.PARAMS, **ollama_request.MESSAGE_RULES},
        ollama_request.UNKNOWN_PARAM,
    ),
    (
        "Chat completions, to OpenAI's Responses",
        {**responses_request.PARAMS, **responses_request.MESSAGE_RULES},
        PASSED_ON,
    ),
    (
        "Chat completions, to Bedrock",
        {**bedrock_request.PARAMS, **bedrock_request.MESSAGE_RULES},
        bedrock_request.UNKNOWN,
    ),
    ("Chat completions, to an agent", agents.PARAMS, PASSED_ON),
    ("Completions", openai_completions.COMPLETION, PASSED_ON),
    ("Completions, to a model that can only chat", openai_completions.COMPLETION_AS_CHAT, PASSED_ON),
    ("Responses", openai_fields.RESPONSES, PASSED_ON),
    ("Conversations", openai_fields.CONVERSATIONS, openai_fields.NOT_OF_A_CONVERSATION),
    ("Responses, over a WebSocket", openai_fields.OVER_WEBSOCKET, openai_fields.AS_OVER_HTTP),
    ("Anthropic's messages, to its own models", anthropic_fields.FOR_ANTHROPIC, PASSED_ON),
    ("Anthropic's messages, to all other models", anthropic_fields.FOR_OTHERS, anthropic_fields.UNKNOWN),
    ("The AI SDK", ui_fields.AI_SDK, ui_fields.THE_PAGE),
    ("AG-UI", ui_fields.AG_UI, ui_fields.NOT_KNOWN),
    ("Ollama's /api/chat", ollama.OLLAMA_CHAT, ollama.UNKNOWN_OF_OLLAMA),
    ("Ollama's /api/generate", ollama.OLLAMA_GENERATE, ollama.UNKNOWN_OF_OLLAMA),
    ("Ollama's /api/embed and /api/embeddings", ollama.OLLAMA_EMBED, ollama.UNKNOWN_OF_OLLAMA),
    ("Ollama's API, to an upstream that is an Ollama: the fields with another rule", ollama.OWN_FIELDS, AS_ABOVE),
]
"""Each dialect, or pair of a dialect and an upstream, with its table and the rule of all other fields."""
WORDS = {"harmless": "left out"}


def page() -> str:
    """Return the page as it should be."""
    return HEAD + "".join(section(*dialect) for dialect in DIALECTS)


def section(title: str, table: Table, unknown: Rule) -> str:
    """Return the rules of one dialect."""
    rows = list(rules("", Shape(table, unknown), {}))
    lines = ["", f"## {title}", "", "| field | what becomes of it | why |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(row(*each) for each in grouped(rows)), ""])


Seen = dict[int, str]


def rules(place: str, shape: Shape, seen: Seen) -> Iterator[tuple[str, Rule]]:
    """Yield each field with its rule, those inside it after it, and last the rule of all others."""
    for name, rule in shape.fields.items():
        yield f"{place}{name}", rule
        if rule.inside is not None:
            yield from inside(f"{place}{name}", rule.inside, seen)
    yield f"{place}…", shape.unknown


def inside(place: str, kinds: Shape | Kinds, seen: Seen) -> Iterator[tuple[str, Rule]]:
    """Yield the rules of the objects in a field."""
    if id(kinds) in seen:
        yield f"{place}.…", Rule("used", f"As in `{seen[id(kinds)]}`.")
        return
    seen[id(kinds)] = place
    if isinstance(kinds, Shape):
        yield from rules(f"{place}.", kinds, seen)
        return
    for kind, shape in kinds.shapes.items():
        yield from of_kind(f"{place}[{kind}]", shape, seen)
    yield f"{place}[…]", kinds.unknown


def of_kind(place: str, shape: Shape | Rule, seen: Seen) -> Iterator[tuple[str, Rule]]:
    """Yield the rules of one kind of object."""
    if not isinstance(shape, Shape):
        yield place, shape
    elif id(shape) in seen:
        yield f"{place}.…", Rule("used", f"As in `{seen[id(shape)]}`.")
    else:
        seen[id(shape)] = place
        yield from rules(f"{place}.", shape, seen)


def grouped(rows: list[tuple[str, Rule]]) -> Iterator[tuple[list[str], Rule]]:
    """Yield neighbours with one rule together."""
    names: list[str] = []
    last: Rule | None = None
    for name, rule in rows:
        said = Rule(rule.kind, rule.why, rule.neutral, rule.code)
        if last is not None and said != last:
            yield names, last
            names = []
        names.append(name)
        last = said
    if last is not None:
        yield names, last


def row(names: list[str], rule: Rule) -> str:
    """Return a row of the table."""
    taken = f" Taken: {', '.join(f'`{value!r}`' for value in rule.neutral)}." if rule.neutral else ""
    return f"| {', '.join(f'`{name}`' for name in names)} | {WORDS.get(rule.kind, rule.kind)} | {rule.why}{taken} |"
