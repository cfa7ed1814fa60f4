"""Records: one declaration of a kind of data; Python, files, editors and messages follow from it.

A record is a frozen dataclass. The type of a field says what it may hold, the words below it what
it is for. What is refused is refused as everywhere, everything at once; `schema` tells editors the
same, and `read_tagged` and `plain` are the ways from a table of a file and back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields, is_dataclass
from functools import cache, partial, wraps
from types import SimpleNamespace
from typing import Annotated, Any, TypeVar, dataclass_transform, get_type_hints

import numpy as np
from numpy.typing import ArrayLike
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import dataclass
from pydantic_core import core_schema

from agewise.checks import instance
from agewise.errors import InvalidInput, InvalidInputs, quoted
from agewise.wording import did_you_mean

Made = TypeVar("Made")
Told = dict[str, Any]
"""What an editor is told: a JSON schema."""

CONFIG = ConfigDict(
    extra="forbid",
    strict=True,
    arbitrary_types_allowed=True,
    use_attribute_docstrings=True,
)


class Read:
    """How a field is read: by a function that refuses in our words; and what editors are told."""

    def __init__(self, how: Callable[[Any], Any], told: Callable[[], Told]) -> None:
        self.how, self.told = how, told

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_plain_validator_function(self.how)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Told:
        return self.told()


def list_of(depth: int, item: Told | None = None) -> Told:
    """The schema of lists nested so deep: of numbers, if nothing else is said."""
    inner = {"type": "number"} if item is None else item
    return {"type": "array", "items": list_of(depth - 1, item) if depth > 1 else inner}


def _plain_number(value: Any) -> Any:
    """NumPy's numbers as Python's; anything else as it is, for the type to refuse."""
    return value.item() if isinstance(value, np.generic) else value


def _plain_whole(value: Any) -> Any:
    value = _plain_number(value)
    return int(value) if type(value) is float and value.is_integer() else value


def _one_line(text: str) -> str:
    if len(text.splitlines()) > 1:
        raise InvalidInput("", quoted(text), "one line of text")
    return text


WHOLE, NUMBER = BeforeValidator(_plain_whole), BeforeValidator(_plain_number)
"""NumPy's numbers, and 5.0 for 5, are welcome; texts and truths are none."""

Count = Annotated[int, Field(ge=1, le=2**53), WHOLE]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), NUMBER]
Share = Annotated[float, Field(ge=0, le=1), NUMBER]
Failure = Annotated[float, Field(ge=0, lt=1), NUMBER]
"""A δ of (ε, δ)."""
OneLine = Annotated[
    str, AfterValidator(_one_line), Field(json_schema_extra={"pattern": r"^[^\r\n]*$"})
]
Numbers = Annotated[ArrayLike, Read(lambda given: given, lambda: list_of(1))]
Rows = Annotated[ArrayLike, Read(lambda given: given, lambda: list_of(2))]
Tables = Annotated[ArrayLike, Read(lambda given: given, lambda: list_of(3))]
"""Lists of numbers, nested; whoever takes them checks what is in them."""
Words = Annotated[Sequence[str], Read(lambda given: given, lambda: list_of(1, {"type": "string"}))]


@dataclass_transform(frozen_default=True, field_specifiers=(Field, field))
def record(cls: type[Any] | None = None, *, slots: bool = False) -> Any:
    """A frozen dataclass that checks its fields, and refuses all that is wrong with them at once.

    A class may say how messages call a field (`called(name, given)`), and what is wrong with fields
    that are right by themselves (`excluded(given)`, of which some may be absent). `slots`: smaller,
    for what there are very many of.
    """
    if cls is None:
        return partial(record, slots=slots)
    made: Any = dataclass(frozen=True, config=CONFIG, slots=slots)(cls)
    names, validate = [one.name for one in fields(made)], made.__init__
    excluded = getattr(made, "excluded", None)

    @wraps(validate)
    def init(self: Any, *values: Any, **named: Any) -> None:
        try:
            validate(self, *values, **named)
        except ValidationError as error:
            if len(values) > len(names) or named.keys() & set(names[: len(values)]):
                raise TypeError(f"{made.__name__} takes each of {names} once at most") from None
            given = dict(zip(names, values, strict=False)) | named
            refuse(faults(made, given) or every(error.errors()[0]["ctx"]["error"]))
        if excluded is not None:
            refuse(excluded(self))

    made.__init__ = init
    return made


def refuse(found: Sequence[InvalidInput]) -> None:
    """Raise what was found, if anything was: one fault, or several as one."""
    if found:
        raise (found[0] if len(found) == 1 else InvalidInputs(found)) from None


def every(bad: InvalidInput) -> list[InvalidInput]:
    """The faults that were raised as one."""
    return list(getattr(bad, "problems", (bad,)))


def faults(model: Any, given: Mapping[str, Any]) -> list[InvalidInput]:
    """Everything that is wrong with what a record is to be made of."""
    right, found = parts(model, given)
    if hasattr(model, "excluded"):
        found += model.excluded(SimpleNamespace(**right))
    return found


def parts(model: Any, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[InvalidInput]]:
    """Each field by itself: those that are right, as the record would hold them, and the faults."""
    known, right = _adapters(model), {}
    found = _misshapen(model, given)
    for name, (adapter, info) in known.items():
        if name not in given:
            if not info.is_required():
                right[name] = info.get_default(call_default_factory=True)
            continue
        try:
            right[name] = adapter.validate_python(given[name])
        except ValidationError as error:
            say = getattr(model, "called", None)
            called = name if say is None else say(name, given)
            found += _told(error, called, name, given[name], model)
    return right, found


def _told(
    error: ValidationError, called: str, name: str, value: Any, model: Any
) -> list[InvalidInput]:
    reason = error.errors()[0].get("ctx", {}).get("error")
    if isinstance(reason, InvalidInput):
        return inside(called, reason, name)
    told = arguments(model)[name]
    meant = did_you_mean(value, told.get("enum", ())) if isinstance(value, str) else ""
    return [InvalidInput(called, quoted(value), in_limits(told), meant)]


def inside(where: str, bad: InvalidInput, own: str = "") -> list[InvalidInput]:
    """The faults of a part, by where it is; `own` is what the part calls itself."""
    found = []
    for one in every(bad):
        joined = one.field.removeprefix(own)
        if joined and not joined.startswith(("[", ".")):
            joined = f": {joined}" if " " in joined else f".{joined}"
        found.append(InvalidInput(where + joined, one.value, one.allowed, one.remedy))
    return found


def _misshapen(make: Any, given: Mapping[str, Any], where: str = "") -> list[InvalidInput]:
    """Unknown and missing keys of a table, or arguments of a call."""
    known = dict(inspect.signature(make).parameters)
    found = [unknown(f"{where}{name}", name, known) for name in given if name not in known]
    for name, one in known.items():
        if one.default is one.empty and name not in given:
            found.append(missing(f"{where}{name}", arguments(make)[name]))
    return found


def missing(field: str, told: Told) -> InvalidInput:
    """The fault of what has to be given and is not."""
    return InvalidInput(field, "missing", in_limits(told))


UNKNOWN = "not a known key"


def unknown(field: str, name: str, known: Iterable[str], remedy: str = "") -> InvalidInput:
    """The fault of a key that nothing knows: what was meant perhaps stands before what there is."""
    meant = did_you_mean(name, known)
    value = f"{UNKNOWN} ({meant[0].lower()}{meant[1:]})" if meant else UNKNOWN
    return InvalidInput(field, value, ", ".join(known) or "no other key", "" if meant else remedy)


@cache
def _adapters(model: Any) -> dict[str, tuple[TypeAdapter[Any], Any]]:
    """What checks each field of a record by itself."""
    infos = model.__pydantic_fields__
    hints = get_type_hints(model, include_extras=True)
    return {name: (_adapter(hints[name]), info) for name, info in infos.items()}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    own = hasattr(kind, "__pydantic_config__")
    return TypeAdapter(kind, config=None if own else CONFIG)


@cache
def arguments(make: Any) -> dict[str, Told]:
    """What editors are told of each field of a record, or argument of another class or function."""
    if hasattr(make, "__pydantic_fields__"):
        made = TypeAdapter(make).json_schema()
        inner = made.get("$defs", {})
        return {name: _tidied(one, inner) for name, one in made.get("properties", {}).items()}
    hints = get_type_hints(make.__init__ if inspect.isclass(make) else make, include_extras=True)
    made = {
        name: _adapter(hints[name]).json_schema() for name in inspect.signature(make).parameters
    }
    return {name: _tidied(one, one.pop("$defs", {})) for name, one in made.items()}


def schema(make: Any, **constants: Any) -> Told:
    """The JSON schema of a table that is read as a record, or as the arguments of a call."""
    given = inspect.signature(make).parameters
    needed = [name for name, one in given.items() if one.default is one.empty]
    told = {name: {"const": value} for name, value in constants.items()}
    return {
        "type": "object",
        "properties": {**told, **arguments(make)},
        "required": [*constants, *needed],
        "additionalProperties": False,
    }


def tagged_schema(kinds: Mapping[str, Any], words: Mapping[str, str]) -> Told:
    """The schema of a table that says by its `kind` what it is."""
    some = [schema(make, kind=kind) for kind, make in kinds.items()]
    for one in some:
        kind = one["properties"]["kind"]
        kind["description"] = words[kind["const"]]
    return {"type": "object", "oneOf": some}


def read_tagged(where: str, table: Any, kinds: Mapping[str, Any]) -> Any:
    """Return what a table describes: its `kind` says which of the classes or functions to call."""
    given = dict(
        instance(where, table, dict, f'a table such as {{ kind = "{next(iter(kinds))}" }}')
    )
    kind = given.pop("kind", None)
    if not isinstance(kind, str) or kind not in kinds:
        value = "missing" if kind is None else quoted(kind)
        allowed = "one of " + ", ".join(kinds)
        raise InvalidInput(f"{where}.kind", value, allowed, did_you_mean(str(kind), kinds))
    return call(kinds[kind], given, f"{where}.")


def call(make: Callable[..., Made], given: Mapping[str, Any], where: str) -> Made:
    """Call with what a table says, whose keys are refused by where they are."""
    if not hasattr(make, "__pydantic_fields__"):  # which refuses them itself
        refuse(_misshapen(make, given, where))
    try:
        return make(**given)
    except InvalidInput as bad:
        found = inside(where.removesuffix("."), bad, where)
        raise (found[0] if len(found) == 1 else InvalidInputs(found)) from None


def read_text(model: Any, name: str, text: str) -> Any:
    """Return what the text of an option, or of a page, says of a field: a number, or a word."""
    value: Any = text
    for number in (float, int):
        with suppress(ValueError):
            value = number(text)
    right, found = parts(model, {name: value})
    refuse([one for one in found if one.field == name])
    return right[name]


def plain(one: Any) -> Any:
    """A record as plain data, without what is absent; arrays and tuples as lists."""
    if is_dataclass(one):
        values = {own.name: getattr(one, own.name) for own in fields(one)}
        return {name: plain(value) for name, value in values.items() if value is not None}
    if isinstance(one, np.ndarray):
        return one.tolist()
    return [plain(part) for part in one] if isinstance(one, tuple | list) else one


def in_limits(told: Told) -> str:
    """What a schema allows, in words.

    >>> in_limits({"type": "integer", "minimum": 1, "maximum": 10})
    'a whole number from 1 to 10'
    >>> in_limits({"type": "number", "exclusiveMinimum": 0})
    'a finite number above 0'
    """
    some = [_limits(one) for one in told.get("anyOf", [told]) if one.get("type") != "null"]
    return " or ".join(some)


def _limits(told: Told) -> str:
    if "const" in told:
        return str(told["const"])
    if "enum" in told:
        return "one of " + ", ".join(map(str, told["enum"]))
    if told.get("type") in ("integer", "number"):
        return _of_numbers(told)
    if told.get("type") == "array":
        inner = told.get("items", {}).get("type", "")
        return {"number": "a list of numbers", "array": "lists of numbers"}.get(inner, "a list")
    words = {"string": "text", "boolean": "True or False", "object": "a table"}
    return "one line of text" if "pattern" in told else words.get(told.get("type", ""), "a value")


def _of_numbers(told: Told) -> str:
    low, high = told.get("minimum"), told.get("maximum", 2**53)
    if told["type"] == "integer":
        upto = f"from {low} to {high}" if high < 2**53 else f"of {low} or more"
        return "a whole number" if low is None else f"a whole number {upto}"
    if "exclusiveMaximum" in told:
        return f"{'above' if low is None else 'from'} 0 and below {told['exclusiveMaximum']}"
    if low is not None:
        return f"from {low} to {high}" if high < 2**53 else f"a finite number, {low} or more"
    return "a finite number above 0" if "exclusiveMinimum" in told else "a finite number"


def _tidied(told: Any, inner: Told) -> Any:
    """A schema without titles and references, without null, which TOML does not have."""
    if isinstance(told, list):
        return [_tidied(one, inner) for one in told]
    if not isinstance(told, dict):
        return told
    if "$ref" in told:
        told = {**inner[told["$ref"].rpartition("/")[2]], **told}
        del told["$ref"]
    kept: Told = {
        key: " ".join(one.split()) if key == "description" else _tidied(one, inner)
        for key, one in told.items()
        if not (key == "title" and isinstance(one, str)) and not (key == "default" and one is None)
    }
    if kept.get("maximum") == 2**53:
        del kept["maximum"]
    some: list[Told] = [one for one in kept.get("anyOf", ()) if one != {"type": "null"}]
    if len(some) == 1:
        del kept["anyOf"]
        (only,) = some
        return {**only, **kept}
    return kept | ({"anyOf": some} if some else {})
