"""The page docs/reference/events.md, written from the structs of events by `make reference`."""

from __future__ import annotations

import ast
import inspect
import json
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NotRequired, get_args, get_origin, get_type_hints

import msgspec

from holdfast import events
from holdfast.ids import ModelName
from holdfast.wires import shapes

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "events.md"
HEAD = """# Events

The events of a run, as the native API sends them. [Chapter 6 of the protocol](../protocol/06-events.md) has the
promises about them, and [chapter 7](../protocol/07-reading-and-resuming.md) how a reader resumes. Each event is a
frame of a server-sent event stream:

```
id: 2
event: text.delta
data: {"run":"run_…","seq":2,"type":"text.delta","text":"Hello "}
```

Besides the fields below, each has `run`, `seq` and `type`. A field with its default value may be left out. Clients must
ignore unknown types and fields. In Python the events are the classes of `holdfast.events`, whose names are in brackets.
This page is written by `scripts/docs_events.py`.
"""
SENT_AS: dict[type, type] = {events.Usage: shapes.UsageJson, events.Settled: shapes.SettledEventJson}
"""Events whose JSON is not that of their struct."""
PARTS = {
    "Settlement": shapes.SettlementJson,
    "Error": shapes.ErrorInfoJson,
    "Receipt": shapes.ReceiptJson,
    "Field": events.FormField,
    "Option": events.FormOption,
}
"""The objects inside of events, by their titles."""
SIMPLE: dict[Any, str] = {
    str: "string",
    ModelName: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    Any: "anything",
    msgspec.UnsetType: "left out",
    shapes.UsageJson: "[usage](#usage)",
}


def page() -> str:
    """Return the page of all events."""
    kinds = "".join(_event(kind) for kind in get_args(events.Event))
    parts = "".join(f"\n### {title}\n\n{_about(part)}\n\n{_table(part)}" for title, part in PARTS.items())
    return f"{HEAD}\n## Types\n{kinds}\n## Objects inside of events\n{parts}"


def _event(kind: Any) -> str:
    tag = kind.__struct_config__.tag
    return f"\n### `{tag}`\n\n{_about(kind)} (`{kind.__name__}`)\n\n{_table(SENT_AS.get(kind, kind))}"


def _about(kind: type) -> str:
    """Return the docstring of a type in one paragraph."""
    return " ".join(inspect.cleandoc(kind.__doc__ or "").split())


def _table(kind: type) -> str:
    texts, defaults = _described(kind), _defaults(kind)
    rows = [("field", "type", "default", "what it is"), ("---",) * 4]
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is not ClassVar and (name, get_origin(hint)) != ("type", Literal):
            rows.append((f"`{name}`", _words(hint), defaults.get(name, ""), texts.get(name, "")))
    kept = [column for column in zip(*rows, strict=True) if any(column[2:])]
    return "".join(f"| {' | '.join(row)} |\n" for row in zip(*kept, strict=True))


def _words(kind: Any) -> str:
    """Return a type as JSON has it."""
    if kind in SIMPLE:
        return SIMPLE[kind]
    if kind in PARTS.values():
        title = next(title for title, part in PARTS.items() if part is kind)
        return f"[{title}](#{title.lower()})"
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inside)
    if origin is NotRequired:
        return f"{_words(inside[0])} or left out"
    if origin in (list, tuple):
        return f"array of {_words(inside[0])}"
    return "object" if origin is dict else " or ".join(map(_words, inside))


def _defaults(kind: type) -> dict[str, str]:
    """Return the defaults of a struct's fields as JSON. An object that is always whole has none."""
    if not issubclass(kind, msgspec.Struct):
        return {}
    given = {field.name: field.default for field in msgspec.structs.fields(kind)}
    left_out = (msgspec.NODEFAULT, msgspec.UNSET)
    return {name: f"`{json.dumps(default)}`" for name, default in given.items() if default not in left_out}


def _described(kind: type) -> dict[str, str]:
    """Return the string below each field of a struct or of the types that it is made of."""
    tree = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }
