"""The types of OpenAI's SDK, taken strictly: which fields of an object they do not know."""

import functools
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pydantic


@functools.cache
def validator(kind: Any) -> pydantic.TypeAdapter[Any]:
    """Return what checks values of a type. To make one takes a tenth of a second for the large unions."""
    return pydantic.TypeAdapter(kind)


def models_in(kind: Any) -> Iterator[type[pydantic.BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        yield kind
    elif get_origin(kind) is not Literal:
        for part in get_args(kind):
            yield from models_in(part)


def unknown_fields(value: Any, kind: Any, place: str = "") -> Iterator[str]:
    """The fields of an object that no model of its type has, at any depth."""
    if isinstance(value, list):
        for each in value:
            yield from unknown_fields(each, kind, place)
    models = [model for model in models_in(kind) if isinstance(value, dict) and is_this(value, model)]
    if not models:
        return
    known = {field.alias or name: field for model in models for name, field in model.model_fields.items()}
    for name, inner in value.items():
        where = f"{place}.{name}".strip(".")
        if name not in known:
            yield where
        else:
            yield from unknown_fields(inner, known[name].annotation, where)


def is_this(value: dict[str, Any], model: type[pydantic.BaseModel]) -> bool:
    """Whether an object is of a model's type, by the text in `type`."""
    field = model.model_fields.get("type")
    words = list(get_args(field.annotation)) if field is not None else []
    return not words or value.get("type") in words
