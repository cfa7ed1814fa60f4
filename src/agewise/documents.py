"""Documents from outside: one model for each, and what it refuses said as everywhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_json

from agewise.errors import InvalidInput
from agewise.wording import did_you_mean

Read = TypeVar("Read")


class Entry(BaseModel):
    """A table of a document: known keys only, and no value is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


def as_json(document: Any) -> str:
    """Write plain data as JSON for people and programs; infinities and NaN are refused."""
    text = to_json(document, indent=2).decode()
    if "Infinity" in text or "NaN" in text:  # in a name perhaps
        return json.dumps(document, indent=2, allow_nan=False)
    return text


def with_rows(document: dict[str, Any], rows: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """The text of a document, in pieces: tables that are empty in it, with a row on each line.

    `rows` has the JSON of each row, by the empty table as `as_json` writes it (`"steps": []`), in
    the order in which these stand.
    """
    text = as_json(document)
    for gap, lines in rows.items():
        # Quotes within texts are escaped, so a gap stands where it means itself.
        before, found, text = text.partition(gap)
        if not found or gap in text:
            raise ValueError(f"{gap} is not once in the document")
        yield before + gap[:-1]
        yield from _between(lines)
        yield gap[-1]
    yield text


def _between(lines: Iterable[str]) -> Iterator[str]:
    comma = "\n    "
    for line in lines:
        yield comma + line
        comma = ",\n    "


def read_document(model: type[Read], document: Any, source: str) -> Read:
    """Return what a parsed document says, or refuse it: its first fault, and how many more."""
    try:
        return TypeAdapter(model).validate_json(json.dumps(document, default=str))
    except ValidationError as error:
        first, *others = faults(error, model)
        more = f"{len(others)} more problem{'s' * (len(others) > 1)} in this file."
        remedy = f"{first.remedy} {more if others else ''}".strip()
        raise InvalidInput(f"{source}: {first.field}", first.value, first.allowed, remedy) from None


def faults(error: ValidationError, model: type) -> list[InvalidInput]:
    """Everything that pydantic refuses, in our words: unknown keys first."""
    ordered = sorted(error.errors(), key=lambda one: one["type"] not in _UNKNOWN_KEY)
    return [_fault(one, model) for one in ordered]


_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")


def _fault(error: ErrorDetails, model: type) -> InvalidInput:
    path, holder, models = _place(error["loc"], model)
    value: Any = error.get("input")
    value = repr(value) if isinstance(value, str) else value
    key = str(error["loc"][-1]) if error["loc"] else ""
    allowed, remedy = error["msg"].removeprefix("Input should be "), ""
    allowed = allowed[0].lower() + allowed[1:]
    reason = error.get("ctx", {}).get("error")
    if isinstance(reason, InvalidInput):  # by a class of ours, which says it itself
        path, value = f"{path}.{reason.field}".lstrip("."), reason.value
        allowed, remedy = reason.allowed, reason.remedy
    elif error["type"] in _UNKNOWN_KEY:
        known = _keys(holder)
        meant = did_you_mean(key, known)
        value = f"not a known key ({meant[0].lower()}{meant[1:]})" if meant else "not a known key"
        allowed = ", ".join(known)  # there may be many: what is likely stands before them
    elif error["type"].startswith("union_tag"):
        path, tags = f"{path}.kind", sorted(_tag(one) for one in models)
        allowed = f"{', '.join(map(repr, tags[:-1]))} or {tags[-1]!r}"
        kind = value.get("kind") if isinstance(value, dict) else value
        value, remedy = "missing" if kind is None else repr(kind), did_you_mean(str(kind), tags)
    elif error["type"] == "literal_error":
        remedy = did_you_mean(str(error["input"]), re.findall(r"'([^']*)'", allowed))
    if error["type"] == "missing":
        value, allowed = "missing", "a value" if allowed == "field required" else allowed
    return InvalidInput(path or "document", value, allowed, remedy)


def _place(loc: tuple[int | str, ...], model: type) -> tuple[str, type, list[type]]:
    """Where a fault is: its path, the model that has the last key, and the models of its value."""
    path, holder, models = "", model, [model]
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif len(models) > 1:  # the tag of a union, not a key of the document
            models = [one for one in models if _tag(one) == part]
        else:
            holder = models[0] if models else holder
            path += f".{part}" if path else part
            models = list(_models(_keys(holder).get(part)))
    return path, holder, models


def _keys(model: type) -> dict[str, Any]:
    if issubclass(model, BaseModel):
        return {name: field.annotation for name, field in model.model_fields.items()}
    return get_type_hints(model)


def _models(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or is_dataclass(annotation)
    ):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _tag(model: type) -> str:
    return str(get_args(_keys(model)["kind"])[0])
