"""Forms: what a person is asked to fill in, read from the flat JSON schemas of MCP's elicitation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...events import FormField, FormOption

MOST_FIELDS = 30
MOST_OPTIONS = 200
MOST_TEXT = 20_000
"""Maximum length of a text that a person fills in, in characters."""
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:\S+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d.*")
_FORMATS = {"email": _EMAIL, "uri": _URI, "date": _DATE, "date-time": _TIME}


class NotAForm(ValueError):
    """A schema asks for more than the fields of a form."""


class _Titled(msgspec.Struct, frozen=True):
    const: str
    title: str = ""


class _Choices(msgspec.Struct, frozen=True, rename="camel"):
    """The choices of a property, in one of the ways of JSON schema."""

    enum: list[str] | None = None
    enum_names: list[str] | None = None
    one_of: list[_Titled] = []
    any_of: list[_Titled] = []

    def options(self) -> tuple[FormOption, ...]:
        titled = [FormOption(each.const, each.title or each.const) for each in (*self.one_of, *self.any_of)]
        values = self.enum or []
        names = self.enum_names if self.enum_names and len(self.enum_names) == len(values) else values
        return (*titled, *(FormOption(value, name) for value, name in zip(values, names, strict=True)))


class _Property(_Choices, frozen=True, rename="camel", kw_only=True):
    """One property of a schema, as far as it is read here."""

    type: str
    title: str = ""
    description: str = ""
    default: bool | int | float | str | list[str] | None = None
    format: str = ""
    items: _Choices = _Choices()
    min_length: int | None = None
    max_length: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_items: int | None = None
    max_items: int | None = None


class _Schema(msgspec.Struct, frozen=True):
    properties: dict[str, _Property] = {}
    required: list[str] = []


def fields_of(schema: Mapping[str, Any]) -> tuple[FormField, ...]:
    """Return the fields of a schema, or raise `NotAForm`."""
    try:
        read = msgspec.convert(schema, _Schema)
    except msgspec.ValidationError as error:
        raise NotAForm(str(error)) from error
    if len(read.properties) > MOST_FIELDS:
        raise NotAForm(f"it has more than {MOST_FIELDS} fields")
    return tuple(_field(name, each, name in read.required) for name, each in read.properties.items())


def _field(name: str, described: _Property, required: bool) -> FormField:
    kind = described.type
    options = (described.items if kind == "array" else described).options()
    if kind not in ("string", "number", "integer", "boolean", "array") or (kind == "array" and not options):
        raise NotAForm(f"{name} is neither text, a number, yes or no, nor a choice")
    if len(options) > MOST_OPTIONS:
        raise NotAForm(f"{name} has more than {MOST_OPTIONS} choices")
    lowest, highest = {
        "string": (described.min_length, described.max_length),
        "array": (described.min_items, described.max_items),
    }.get(kind, (described.minimum, described.maximum))
    return FormField(
        name,
        kind,  # type: ignore[arg-type]
        title=described.title or name,
        description=described.description,
        required=required,
        options=options,
        default=described.default,
        format=described.format,
        lowest=lowest,
        highest=highest,
    )


def misfit_of(fields: Sequence[FormField], content: Mapping[str, Any]) -> str:
    """Return what is wrong with what a person has filled in; empty if nothing is."""
    known = {each.name for each in fields}
    if unknown := [name for name in content if name not in known]:
        return f"The form has no field {unknown[0]!r}."
    for each in fields:
        if each.name not in content:
            if each.required:
                return f"{each.title} is missing."
        elif wrong := _wrong(each, content[each.name]):
            return f"{each.title} {wrong}."
    return ""


def _wrong(field: FormField, value: Any) -> str:
    if field.kind == "boolean":
        return "" if isinstance(value, bool) else "is true or false"
    if field.kind in ("number", "integer"):
        return _wrong_number(field, value)
    known = {option.value for option in field.options}
    if field.kind == "array":
        is_list = isinstance(value, list) and all(isinstance(each, str) and each in known for each in value)
        return _outside(field, len(value), "choices") if is_list else "takes some of its choices"
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        return f"is a text of at most {MOST_TEXT} characters"
    if known and value not in known:
        return "is one of its choices"
    if (form := _FORMATS.get(field.format)) and not form.fullmatch(value):
        return f"is no {field.format}"
    return _outside(field, len(value), "characters")


def _wrong_number(field: FormField, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "is a number"
    if field.kind == "integer" and value != int(value):
        return "is a whole number"
    return _outside(field, value, "")


def _outside(field: FormField, size: float, of: str) -> str:
    if field.lowest is not None and size < field.lowest:
        return f"is at least {field.lowest:g} {of}".rstrip()
    if field.highest is not None and size > field.highest:
        return f"is at most {field.highest:g} {of}".rstrip()
    return ""
