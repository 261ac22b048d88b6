"""Rules for the fields of requests, as data.

A request is answered with all of its fields, or refused with an error that names one. A silently dropped field
would change the answer. So a dialect has a table with a rule for each field that it knows, and one
rule for all others. A rule may have the rules of the objects
inside its field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from .errors import BadRequest


class Rule(msgspec.Struct, frozen=True):
    """The rule of a field."""

    kind: Literal["used", "passed on", "harmless", "refused"]
    """`used` is read by us, `passed on` is sent to the upstream unchanged, `harmless` is left out."""
    why: str = ""
    """The reason why it can be left out, the message of the refusal, or which values are used."""
    neutral: tuple[Any, ...] = ()
    """Values that mean the same as leaving the field out. They are never refused."""
    code: str = "unsupported"
    """The code of the refusal."""
    inside: Shape | Kinds | None = None
    """The rules of the object in the field, or of each object in its list."""


Table: TypeAlias = Mapping[str, Rule]


class Shape(NamedTuple):
    """The rules of one kind of object: those of its fields, and the one of all other fields."""

    fields: Table
    unknown: Rule


class Kinds(NamedTuple):
    """The kinds of objects in one place, distinguished by the text of a field.

    A name that ends in `*` is a prefix. A rule in place of a shape applies to the whole object.
    """

    by: str
    shapes: Mapping[str, Shape | Rule]
    unknown: Rule
    default: str = ""
    """The kind of an object without that field."""

    def of(self, value: Mapping[str, Any]) -> Shape | Rule:
        """Return the rules of an object. An object without a kind has none: its decoder raises the error."""
        kind = value.get(self.by) or self.default
        if not isinstance(kind, str) or not kind:
            return USED
        families = (shape for name, shape in self.shapes.items() if name.endswith("*") and kind.startswith(name[:-1]))
        return self.shapes.get(kind) or next(families, self.unknown)


USED = Rule("used")
PASSED_ON = Rule("passed on")


def used(inside: Shape | Kinds) -> Rule:
    """Return the rule of a field that is read by us, with the rules of the objects in it."""
    return Rule("used", inside=inside)


def harmless(why: str) -> Rule:
    """Return the rule of a field that does not change the answer."""
    return Rule("harmless", why)


def refused(why: str, *neutral: Any, code: str = "unsupported") -> Rule:
    """Return the rule of a field that cannot be honoured."""
    return Rule("refused", why, neutral, code)


class Refusal(NamedTuple):
    """The first field of a request that cannot be honoured."""

    field: str
    """Its path, as `messages[0].content[1].citations`."""
    message: str
    code: str


def refusal(values: Mapping[str, Any], table: Table, unknown: Rule, place: str = "") -> Refusal | None:
    """Return the first field that is refused, at any depth. A field whose value is null was not sent."""
    for name, value in values.items():
        rule = table.get(name, unknown)
        if value is None:
            continue
        if rule.kind == "refused" and value not in rule.neutral:
            return _refusal(rule, f"{place}{name}", name)
        if rule.inside is not None and (found := _refusal_inside(value, rule.inside, f"{place}{name}")):
            return found
    return None


def check_fields(values: Mapping[str, Any], table: Table, unknown: Rule, place: str = "") -> None:
    """Refuse a request with a field that cannot be honoured."""
    if found := refusal(values, table, unknown, place):
        raise BadRequest(found.message, param=found.field, code=found.code)


def _refusal(rule: Rule, place: str, what: str) -> Refusal:
    return Refusal(place, f"{what} is not supported here. {rule.why}", rule.code)


def _refusal_inside(value: Any, inside: Shape | Kinds, place: str) -> Refusal | None:
    if isinstance(value, list):
        found = (_refusal_inside(each, inside, f"{place}[{n}]") for n, each in enumerate(value))
        return next((each for each in found if each is not None), None)
    if not isinstance(value, dict):
        return None
    rules = inside.of(value) if isinstance(inside, Kinds) else inside
    if isinstance(rules, Shape):
        return refusal(value, rules.fields, rules.unknown, f"{place}.")
    by = inside.by if isinstance(inside, Kinds) else ""
    return _refusal(rules, f"{place}.{by}", f"{by} {value.get(by)!r}") if rules.kind == "refused" else None


def passed_on(values: Mapping[str, Any], table: Table, unknown: Rule) -> dict[str, Any]:
    """Return the fields that are sent to the upstream unchanged."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and table.get(name, unknown).kind == "passed on"
    }


_MISSING = re.compile(r"missing required field `(\w+)`")


def wrong_field(error: msgspec.ValidationError) -> str:
    """Return the name of the field of an object that a decoder complains about."""
    missing = _MISSING.search(str(error))
    place = str(error).partition("`$.")[2].strip("`")
    return re.split(r"[.\[]", place)[0] or (missing[1] if missing else "")
