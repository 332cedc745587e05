"""Check values against the model, and say where the first problems are and what was expected there."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import yaml
from pydantic import (
    BaseModel,
    ValidationError,
)

from walreplay.errors import ConfigError

_Place = tuple[int | str, ...]

M = TypeVar("M", bound=BaseModel)

_SECRET: Final = "column_mask_salt"

# pydantic names Python's types; the user writes YAML.
_EXPECTED: Final = {
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping of names to names",
    "int_type": "must be a whole number",
    "invalid_key": "a key must be text",
    "model_type": "must be a mapping of keys to values",
    "string_too_short": "must not be empty",
    "string_type": "must be text",
    "too_short": "must not be empty",
    "tuple_type": "must be a list",
}


def validated(model: type[M], values: Any, *, path: str | None, document: yaml.Node | None) -> M:
    """Make a model of values.

    Args:
        path, document: the file and the YAML that the values come from, for errors.

    Raises:
        ConfigError: naming each key that is wrong, its line, and what was expected there.
    """
    if not isinstance(values, Mapping):
        raise ConfigError("the configuration is not a mapping of keys to values", path=path)
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        problems, remedies = [], []
        for detail in error.errors():
            problem, remedy = _explain(detail, model)
            line = _line_of(document, detail["loc"])
            problems.append(f"line {line}, {problem}" if line else problem)
            if remedy and remedy not in remedies:
                remedies.append(remedy)
        raise ConfigError("; ".join(problems), path=path, remedy=". ".join(remedies) or None) from None


def _explain(detail: Mapping[str, Any], model: type[BaseModel]) -> tuple[str, str | None]:
    place, kind, value = tuple(detail["loc"]), detail["type"], detail["input"]
    where = _write(place) or "configuration"
    if kind == "extra_forbidden":
        return f"{where}: unknown key", _nearest(place, model)
    if kind == "missing":
        return f"{where}: is missing", None
    expected = _EXPECTED.get(kind) or str(detail["msg"]).removeprefix("Value error, ")
    expected = expected.replace("Input should be", "must be", 1)
    if isinstance(value, (str, int, float)) and kind != "value_error" and place[:1] != (_SECRET,):
        expected = f"{expected}, not {value!r}"
    # YAML 1.1 reads no, on, 010 and 2024-01-01 as something else than text.
    remedy = "Put the name in quotes" if kind == "string_type" and isinstance(value, (bool, int, float)) else None
    return f"{where}: {expected}", remedy


def _nearest(place: _Place, model: type[BaseModel]) -> str | None:
    *outer, key = place
    here = _model_at(model, tuple(outer))
    known = list(here.model_fields) if here else []
    elsewhere = [_write(path) for path in _all_places(model) if path[-1] == key]
    # A key that is right elsewhere is nearer than one that is only similar.
    close = difflib.get_close_matches(str(key), known, n=1, cutoff=0.8 if elsewhere else 0.6)
    if close:
        return f"The nearest key is {close[0]!r}"
    if elsewhere:
        return f"There is a key {elsewhere[0]!r}"
    return f"The keys here are {', '.join(known)}" if known else None


def _model_at(outermost: type[BaseModel], place: _Place) -> type[BaseModel] | None:
    model: type[BaseModel] | None = outermost
    is_name = False
    for part in place:
        if isinstance(part, str) and model is not None and not is_name:
            annotation = model.model_fields[part].annotation if part in model.model_fields else None
            # What is behind it is a name that the user has given, and not a key.
            is_name = typing.get_origin(annotation) is dict
            model = _model_in(annotation)
        else:
            is_name = False
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for item in typing.get_args(annotation) if (found := _model_in(item))), None)


def _all_places(model: type[BaseModel], outer: _Place = ()) -> Iterator[_Place]:
    for name, field in model.model_fields.items():
        yield (*outer, name)
        inner = _model_in(field.annotation)
        if inner is not None:
            yield from _all_places(inner, (*outer, name))


def _write(place: Sequence[int | str]) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _line_of(node: yaml.Node | None, place: Sequence[int | str]) -> int | None:
    """Find the line of the deepest part of a place that the document has."""
    line = None
    for part in place:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if found is None:
                break
            key, node = found
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line
