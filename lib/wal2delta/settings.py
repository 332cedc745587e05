"""The configuration: YAML, checked strictly before anything is touched.

Every problem is a `ConfigError` that names the file, the line, the key and what was expected there; an
unknown key also names the nearest right one.
"""

from __future__ import annotations

import difflib
import os
import typing
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from wal2delta.errors import ConfigError

FramingName = Literal["auto", "raw", "recvlogical", "copydata", "pgcopy"]
OrderName = Literal["natural", "path", "modified"]

DEFAULT_BUCKET_BYTES: Final = 64 << 20

NO_ORIGIN: Final = "none"
"""Stands for changes without an origin, as in PostgreSQL's own ``origin = none``.

From version 16 on PostgreSQL lets no origin be called ``none`` or ``any``, in whatever case.
"""

_EVERY_ORIGIN: Final = "any"

_Place = tuple[int | str, ...]

# pydantic speaks of Python's types; who writes YAML does not.
_EXPECTED: Final = {
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "invalid_key": "a key must be text",
    "model_type": "must be a mapping of keys to values",
    "string_too_short": "must not be empty",
    "string_type": "must be text",
    "too_short": "must not be empty",
    "tuple_type": "must be a list",
}


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("must name each column once")
    return names


def _check_origins(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("must name each origin once")
    if any(name.lower() == _EVERY_ORIGIN for name in names):
        raise ValueError("any is no origin's name: leave origins out to have the changes of all of them")
    return names


def _none_is_empty(value: Any) -> Any:
    """Take a section whose lines are all commented out, which YAML reads as null, for an empty one."""
    return {} if value is None else value


Name = Annotated[str, Field(min_length=1)]
# YAML has lists, never tuples: the sequence itself is taken leniently, its items are not.
ColumnNames = Annotated[tuple[Name, ...], Field(strict=False, min_length=1), AfterValidator(_each_once)]
OriginNames = Annotated[tuple[Name, ...], Field(strict=False, min_length=1), AfterValidator(_check_origins)]


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)


class CaptureSettings(_Model):
    """Which files are captures, and how messages lie in them."""

    framing: FramingName = "auto"
    pattern: Name | None = None
    """Glob of the files' names; None takes every file."""
    recursive: bool = True
    order: OrderName = "natural"
    """What puts the files in the stream's order: see `wal2delta.listing.sort_key`."""
    allow_gaps: bool = False
    """Go on where the bytes prove, or the files' numbers suggest, that something is missing."""


class OriginSettings(_Model):
    """Whose changes are wanted, by the replication origin that the server tells with them."""

    include: OriginNames | None = None
    exclude: OriginNames | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> OriginSettings:
        if self.include is not None and self.exclude is not None:
            raise ValueError("may have include or exclude, not both")
        return self

    def wants(self, origin: str | None) -> bool:
        """Tell whether the changes of an origin are wanted; None is for changes that were made on the server itself.

        The word `NO_ORIGIN` in a list never means an origin that is really called so.
        """
        names = self.include or self.exclude
        if names is None:
            return True
        if origin is None:
            listed = any(name.lower() == NO_ORIGIN for name in names)
        else:
            listed = origin in names and origin.lower() != NO_ORIGIN
        return listed == (self.include is not None)


class TableSettings(_Model):
    """What is wanted of one source table."""

    source_schema: Name
    source_table: Name
    keys: ColumnNames | None = None
    """The columns that name a row, where the replica identity's are not the right ones."""


class ObjectSettings(_Model):
    """One entry of ``objects``."""

    table: TableSettings


def _each_table_once(objects: tuple[ObjectSettings, ...]) -> tuple[ObjectSettings, ...]:
    names = [(item.table.source_schema, item.table.source_table) for item in objects]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"must name each table once, and {'.'.join(name)} stands there twice")
    return objects


class Settings(_Model):
    """Everything that can be configured; the defaults are what most want."""

    source: Name | None = None
    """What makes one stream of transactions; None takes the captures' root for its name."""
    captures: Annotated[CaptureSettings, BeforeValidator(_none_is_empty)] = CaptureSettings()
    origins: Annotated[OriginSettings, BeforeValidator(_none_is_empty)] = OriginSettings()
    objects: Annotated[
        tuple[ObjectSettings, ...],
        Field(strict=False),
        BeforeValidator(lambda value: () if value is None else value),
        AfterValidator(_each_table_once),
    ] = ()
    tables_at_once: Annotated[int, Field(ge=1, le=64)] = 4
    """So many tables are written to concurrently."""
    bucket_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 30)] = DEFAULT_BUCKET_BYTES
    """Bytes of changes that one task folds."""

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Settings:
        """Check values that came as a mapping.

        Raises:
            ConfigError: naming the key and what was expected.
        """
        return _validate(values, path=None, document=None)

    def allowing_gaps(self) -> Settings:
        """Give the same settings with ``captures: allow_gaps`` set."""
        return self.model_copy(update={"captures": self.captures.model_copy(update={"allow_gaps": True})})

    def wants_origin(self, origin: str | None) -> bool:
        """Tell whether the changes of a replication origin are wanted; None: made on the server itself."""
        return self.origins.wants(origin)

    def keys_of(self, schema: str, table: str) -> tuple[str, ...] | None:
        """Give the configured key columns of a source table; None where there are none."""
        for item in self.objects:
            if (item.table.source_schema, item.table.source_table) == (schema, table):
                return item.table.keys
        return None


def load_settings(path: str | os.PathLike[str] | None) -> Settings:
    """Read a YAML file; None gives the defaults.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or holds what is not allowed.
    """
    if path is None:
        return Settings()
    name = os.fspath(path)
    try:
        text = Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError("the file is not UTF-8 text", path=name) from None
    except OSError as error:
        problem = (error.strerror or "it cannot be read").lower()
        raise ConfigError(f"cannot read the configuration: {problem}", path=name) from None
    try:
        document = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_repeated_keys(document, name)
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError(f"{line}not YAML: {error.problem or error.context}", path=name) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}", path=name) from None
    except ValueError as error:  # a date that does not exist
        raise ConfigError(f"not YAML: {error}", path=name) from None
    return _validate({} if values is None else values, path=name, document=document)


def make_settings(config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None) -> Settings:
    """Give the settings that a caller means: none, a file, a mapping, or settings already."""
    if isinstance(config, Settings):
        return config
    if isinstance(config, Mapping):
        return Settings.from_mapping(config)
    return load_settings(config)


def _validate(values: Any, *, path: str | None, document: yaml.Node | None) -> Settings:
    if not isinstance(values, Mapping):
        raise ConfigError("the configuration is not a mapping of keys to values", path=path)
    try:
        return Settings.model_validate(dict(values))
    except ValidationError as error:
        problems, remedies = [], []
        for detail in error.errors():
            problem, remedy = _explain(detail)
            line = _line_of(document, detail["loc"])
            problems.append(f"line {line}, {problem}" if line else problem)
            if remedy and remedy not in remedies:
                remedies.append(remedy)
        raise ConfigError("; ".join(problems), path=path, remedy=". ".join(remedies) or None) from None


def _explain(detail: Mapping[str, Any]) -> tuple[str, str | None]:
    place, kind, value = tuple(detail["loc"]), detail["type"], detail["input"]
    where = _write(place)
    if kind == "extra_forbidden":
        return f"{where}: unknown key", _nearest(place)
    if kind == "missing":
        return f"{where}: is missing", None
    expected = _EXPECTED.get(kind) or str(detail["msg"]).removeprefix("Value error, ")
    expected = expected.replace("Input should be", "must be", 1)
    if isinstance(value, (str, int, float)) and kind != "value_error":
        expected = f"{expected}, not {value!r}"
    # YAML 1.1 reads no, on, 010 and 2024-01-01 as something else than text.
    remedy = "Put the name in quotes" if kind == "string_type" and isinstance(value, (bool, int, float)) else None
    return f"{where}: {expected}", remedy


def _nearest(place: _Place) -> str | None:
    *outer, key = place
    here = _model_at(tuple(outer))
    known = list(here.model_fields) if here else []
    close = difflib.get_close_matches(str(key), known, n=1, cutoff=0.6)
    if close:
        return f"The nearest key is {close[0]!r}"
    elsewhere = [_write(path) for path in _all_places(Settings) if path[-1] == key]
    if elsewhere:
        return f"There is a key {elsewhere[0]!r}"
    return f"The keys here are {', '.join(known)}" if known else None


def _model_at(place: _Place) -> type[_Model] | None:
    model: type[_Model] | None = Settings
    for part in place:
        if isinstance(part, str) and model is not None:
            model = _model_in(model.model_fields[part].annotation) if part in model.model_fields else None
    return model


def _model_in(annotation: Any) -> type[_Model] | None:
    if isinstance(annotation, type) and issubclass(annotation, _Model):
        return annotation
    return next((found for item in typing.get_args(annotation) if (found := _model_in(item))), None)


def _all_places(model: type[_Model], outer: _Place = ()) -> Iterator[_Place]:
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


def _refuse_repeated_keys(node: yaml.Node | None, path: str, above: tuple[yaml.Node, ...] = ()) -> None:
    """Refuse equal keys, which YAML forbids and PyYAML lets pass (the last would win), and endless loops."""
    if any(node is outer for outer in above):
        raise ConfigError("an alias stands inside what it names", path=path)
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, path, (*above, node))
    elif isinstance(node, yaml.MappingNode):
        seen: set[Hashable] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise ConfigError(
                        f"line {line}, {key.value}: the key stands there twice",
                        path=path,
                        remedy="Keep one of them",
                    )
                seen.add(key.value)
            _refuse_repeated_keys(value, path, (*above, node))
