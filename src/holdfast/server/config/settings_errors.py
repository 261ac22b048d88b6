"""Errors of the settings: the name of the setting, its source, and its valid values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a string",
    "array": "a list",
    "object": "a table",
    "null": "null",
}
BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
CUTOFF = 0.7
"""Similarity from which one name counts as a misspelling of another, from 0 to 1."""

_AT = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected `([^`]+)`(?: (>=|<=|>|<) ([\d.e+-]+))?(?:, got `([^`]+)`)?")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")
_MISSING = re.compile(r"Object missing required field `(.+)`")
_ENUM = re.compile(r"Invalid enum value (.+)")


def suggestion(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return `Did you mean …?` if a known name is nearly the same, else nothing. A prefix is shown, not compared."""
    near = difflib.get_close_matches(name, list(known), 1, CUTOFF)
    return f" Did you mean {prefix + near[0]!r}?" if near else ""


def not_in_full(models: Mapping[str, str], aliases: Mapping[str, str], priced: Iterable[str]) -> Iterator[str]:
    """Yield the models that lack their provider: so they would have no price, and other rights.

    `models` are those of the agents, by the names of the agents.
    """
    named = [(f"agents.{agent}.model", aliases.get(model, model)) for agent, model in models.items()]
    named += [(f"aliases.{alias}", model) for alias, model in aliases.items()]
    for place, model in (*named, *(("prices", model) for model in priced)):
        if "/" not in model:
            yield f"The setting `{place}` names the model {model!r} without its provider. Write `provider/{model}`."


def explain(error: msgspec.ValidationError, settings: type[Any], sources: Mapping[str, str], prefix: str) -> str:
    """Return the error as text. `sources` has the source of each setting; `prefix` is that of the variables."""
    match = _AT.fullmatch(str(error))
    message, path = (match[1], match[2] or "") if match else (str(error), "")
    top = re.split(r"[.\[]", path)[0]
    where = sources.get(top, "") if top else next((each for each in sources.values() if "/" in each), "")
    name = _name(path, top, where, prefix)
    if found := _UNKNOWN.fullmatch(message):
        place = f" in {_table(path)}" if path else ""
        known = (field.name for field in msgspec.structs.fields(_struct(settings, path)))
        return f"Unknown setting {found[1]!r}{place}{_of(where)}.{suggestion(found[1], known)}"
    if found := _MISSING.fullmatch(message):
        return f"{_table(path)}{_of(where)} has no {found[1]!r}, which it needs."
    return f"{name} must be {_wanted(message, settings, path)}."


def _name(path: str, top: str, where: str, prefix: str) -> str:
    if where == "environment":
        return f"{prefix}{top.upper()}"
    if where == "flag":
        return f"--{top.replace('_', '-')}"
    return f"{_place(path)}{_of(where)}"


def _of(where: str) -> str:
    return f" in {where}" if "/" in where else ""


def _place(path: str) -> str:
    """Return a path as people write it: `agents[0].model` is `model` of the first `[[agents]]`."""
    if path.endswith("[...]"):
        return f"Each value of {_table(path)}"
    table, dot, field = path.replace("[...]", "").rpartition(".")
    return f"{field} of {_table(table)}" if dot else field


def _table(path: str) -> str:
    found = re.fullmatch(r"(\w+)\[(\d+)\]", path)
    return f"[[{found[1]}]] number {int(found[2]) + 1}" if found else f"[{path.replace('[...]', '')}]"


def _wanted(message: str, settings: type[Any], path: str) -> str:
    if _ENUM.fullmatch(message):
        return _choices(settings, path)
    found = _EXPECTED.fullmatch(message)
    if found is None:
        return f"valid ({message})"
    if found[2]:
        return f"{BOUNDS[found[2]]} {float(found[3]):g}"
    expected = " or ".join(TYPES.get(kind.strip(), kind.strip()) for kind in found[1].split("|"))
    if found[1] not in ("int", "float") or found[4] != "str":
        return expected
    field = _field(settings, path)
    example = field.default if field is not None and isinstance(field.default, int | float) else None
    return "a number" + ("" if example is None else f" without a unit, such as {example:g}")


def _choices(settings: type[Any], path: str) -> str:
    """Return the values that a setting, or each entry of a table, can have."""
    field = _field(settings, path.removesuffix("[...]"))
    kind = msgspec.inspect.type_info(field.type) if field is not None else None
    kind = kind.value_type if isinstance(kind, msgspec.inspect.DictType) else kind
    kinds = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    values = [str(value) for each in kinds if isinstance(each, msgspec.inspect.LiteralType) for value in each.values]
    if any(isinstance(each, msgspec.inspect.BoolType) for each in kinds):
        values = ["true", "false", *values]
    return f"{', '.join(values[:-1])} or {values[-1]}" if len(values) > 1 else "another value"


def _field(settings: type[Any], path: str) -> msgspec.structs.FieldInfo | None:
    table, _, name = path.rpartition(".")
    return next((each for each in msgspec.structs.fields(_struct(settings, table)) if each.name == name), None)


def _struct(settings: type[Any], path: str) -> type[Any]:
    """Return the type of a table of the settings."""
    top = re.split(r"[.\[]", path)[0]
    for field in msgspec.structs.fields(settings):
        if path and field.name == top:
            return _of_items(msgspec.inspect.type_info(field.type)) or settings
    return settings


def _of_items(info: Any) -> type[Any] | None:
    if isinstance(info, msgspec.inspect.VarTupleType):
        return _of_items(info.item_type)
    if isinstance(info, msgspec.inspect.DictType):
        return _of_items(info.value_type)
    return info.cls if isinstance(info, msgspec.inspect.StructType) else None
