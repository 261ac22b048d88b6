"""Writes the browser UI's types of the native API from the server's own: `python scripts/web_types.py`.

With `--check` it writes nothing, and fails if the file is not current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgspec
from msgspec import inspect

from holdfast import events
from holdfast.compare import shapes as comparisons
from holdfast.wires import shapes

FILE = Path(__file__).parents[1] / "web" / "src" / "protocol.generated.ts"
HEADER = """\
/**
 * The JSON of the native API. Written by scripts/web_types.py from the server's types, which say what each field means:
 * do not edit.
 */
"""
SENT_AS: dict[type, type] = {events.Usage: shapes.UsageEventJson, events.Settled: shapes.SettledEventJson}
"""Events whose JSON is not that of their struct."""
PARTS: tuple[type, ...] = (events.FormOption, events.FormField)
"""What events consist of."""
UNIONS = {"FeedEntry": shapes.FeedEntryJson}
TYPES = {
    inspect.StrType: "string",
    inspect.IntType: "number",
    inspect.FloatType: "number",
    inspect.BoolType: "boolean",
    inspect.NoneType: "null",
    inspect.AnyType: "unknown",
}


def main() -> None:
    """Write the file, or check it."""
    right = generated()
    if "--check" not in sys.argv:
        FILE.write_text(right, encoding="utf-8")
    elif FILE.read_text(encoding="utf-8") != right:
        sys.exit(f"{FILE.name} is not what the server sends. Run: python scripts/web_types.py")


def generated() -> str:
    """Return the whole file."""
    return "\n".join([HEADER, *aliases(), *interfaces(), *unions()])


def aliases() -> Iterator[str]:
    """Yield the types that are no objects: strings with a few values, and the content of a message."""
    yield f"export type Outcome = {type_of(inspect.type_info(shapes.OutcomeJson))};\n"
    yield f"export type Content = {type_of(inspect.type_info(shapes.ContentJson))};\n"


def interfaces() -> Iterator[str]:
    """Yield every object: those of the shapes, then the events of a run."""
    for shape in [*typed_dicts(shapes), *typed_dicts(comparisons)]:
        yield interface(inspect.type_info(shape))
    for event in (*PARTS, *run_events()):
        if event in SENT_AS.values():
            continue
        yield interface(inspect.type_info(event))


def unions() -> Iterator[str]:
    """Yield the unions that a `type` field tells apart."""
    yield union("RunEvent", run_events())
    for name, members in UNIONS.items():
        yield union(name, get_args(members))


def union(name: str, members: Any) -> str:
    """Return a union of objects."""
    return f"export type {name} =\n" + "\n".join(f"  | {name_of(member)}" for member in members) + ";\n"


def run_events() -> list[type]:
    """Return the types of a run's events as they are sent."""
    return [SENT_AS.get(event, event) for event in get_args(events.Event)]


def typed_dicts(module: ModuleType) -> list[type]:
    """Return a module's own TypedDicts, in the order of its text."""
    return [it for it in vars(module).values() if hasattr(it, "__total__") and it.__module__ == module.__name__]


def interface(info: Any) -> str:
    """Return one object type."""
    lines = [f"export interface {name_of(info.cls)} {{"]
    if isinstance(info, inspect.StructType) and info.tag:
        lines.append(f'  {info.tag_field}: "{info.tag}";')
    lines += [
        f"  {field.encode_name}{'' if is_always_sent(info, field) else '?'}: {type_of(field.type)};"
        for field in info.fields
    ]
    return "\n".join([*lines, "}", ""])


def is_always_sent(info: Any, field: inspect.Field) -> bool:
    """Whether a field is in every object: a struct may leave out defaults, and what is unset."""
    if field.required:
        return True
    is_struct = isinstance(info, inspect.StructType)
    return is_struct and not info.cls.__struct_config__.omit_defaults and field.default is not msgspec.NODEFAULT


def type_of(info: inspect.Type) -> str:
    """Return a type in TypeScript's words."""
    match info:
        case inspect.LiteralType(values):
            return " | ".join(f'"{value}"' for value in values)
        case inspect.UnionType(types):
            return " | ".join(map(type_of, types))
        case inspect.ListType(item_type) | inspect.VarTupleType(item_type):
            item = type_of(item_type)
            return f"({item})[]" if " | " in item else f"{item}[]"
        case inspect.DictType(_, value_type):
            return f"Record<string, {type_of(value_type)}>"
        case inspect.TypedDictType(cls) | inspect.StructType(cls):
            return name_of(cls)
        case _:
            return TYPES[type(info)]


def name_of(cls: type) -> str:
    """Return what a type is called on the page: a shape without its `Json`, an event as an event."""
    if cls in PARTS:
        return cls.__name__
    is_shape = cls.__module__ in (shapes.__name__, comparisons.__name__)
    return cls.__name__.removesuffix("Json") if is_shape else f"{cls.__name__}Event"


if __name__ == "__main__":
    main()
