"""The configuration: YAML, checked strictly before anything is touched.

Every problem is a `ConfigError` that names the file, the line, the key and what was expected there; an
unknown key also names the nearest right one.
"""

from __future__ import annotations

import difflib
import os
import re
import typing
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from wal2delta.errors import ConfigError
from wal2delta.names import RESERVED_COLUMNS
from wal2delta.task_settings import Origins, TaskSettings
from wal2delta.types.names import type_named
from wal2delta.types.options import BinaryMode, DecimalMode, TypeOptions
from wal2delta.types.text import codec_of

FramingName = Literal[
    "auto",
    "raw",
    "recvlogical",
    "copydata",
    "pgcopy",
    "walsender",
    "length",
    "length_le",
    "length_self",
    "length_self_le",
]
OrderName = Literal["natural", "path", "modified"]
TypeChangePolicy = Literal["rewrite", "stop"]
RecreatePolicy = Literal["replace", "keep", "stop"]
DropColumnPolicy = Literal["keep", "drop"]
MissingRowPolicy = Literal["warn", "stop"]
Operation = Literal["c", "u", "d", "t"]
"""Debezium's letters: inserts, updates, deletes, truncates."""

DEFAULT_BUCKET_BYTES: Final = 64 << 20

_MOST_TEXT: Final = 16 << 20
_MOST_VALUES: Final = 300_000
_MOST_NESTED: Final = 50

_EVERY_ORIGIN: Final = "any"

_NO_OPERATION: Final = "none"

_Place = tuple[int | str, ...]

_SECRET: Final = "column_mask_salt"

# pydantic speaks of Python's types; who writes YAML does not.
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


def _split_expressions(value: Any) -> Any:
    """Take Debezium's form too: one text, parted by commas; a comma of an expression has a backslash in front."""
    if not isinstance(value, str):
        return value
    return [part.replace("\\,", ",") for item in re.split(r"(?<!\\),", value) if (part := item.strip())]


def _check_expressions(expressions: tuple[str, ...]) -> tuple[str, ...]:
    for text in expressions:
        try:
            _expression(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return expressions


@cache
def _expression(text: str) -> re.Pattern[str]:
    # As in Debezium, case does not matter, so that no table slips through a list for being quoted at its source; nor
    # does one whose name has more than one line.
    return re.compile(text, re.IGNORECASE | re.DOTALL)


def _check_operations(value: Any) -> Any:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if isinstance(names, (list, tuple)) and _NO_OPERATION in names:
        if len(names) > 1:
            raise ValueError("none stands alone: it skips nothing")
        return []
    return names


def _each_operation_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("must name each operation once")
    return names


def _check_table_name(name: str) -> str:
    if "." in name:
        raise ValueError("is the table's name alone; its schema is destination_schema")
    return name


def _check_history(value: Any) -> Any:
    """Take Lakeflow's names of the types as well."""
    known = {"SCD_TYPE_1": 1, "SCD_TYPE_2": 2}.get(value, value) if isinstance(value, str) else value
    if isinstance(known, bool):  # true is 1 to Python
        raise ValueError("must be 1")
    if known == 2:
        raise ValueError("history tables (type 2) are not there yet: leave scd_type out, or set it to 1")
    return known


def _check_renames(names: dict[str, str]) -> dict[str, str]:
    for old, new in names.items():
        if old == new:
            raise ValueError(f"{old!r} is renamed to itself")
    if len(set(names.values())) != len(names):
        raise ValueError("two columns cannot be renamed to one")
    return names


def _check_type(name: str) -> str:
    with _as_problem_of_this_key():
        type_named(name)
    return name


def _check_encoding(name: str) -> str:
    with _as_problem_of_this_key():
        codec_of(name)
    return name


@contextmanager
def _as_problem_of_this_key() -> Iterator[None]:
    # pydantic knows the place of a ValueError, and of no other.
    try:
        yield
    except ConfigError as error:
        raise ValueError(str(error)) from None


def same_columns(name: str, renames: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Give all names that a column has had, or will have, by its renames, its own among them."""
    found = {name}
    pairs = [set(pair) for pair in renames]
    while True:
        more = found.union(*(pair for pair in pairs if pair & found))
        if more == found:
            return frozenset(found)
        found = more


def _none_is_empty(value: Any) -> Any:
    """Take a section whose lines are all commented out, which YAML reads as null, for an empty one."""
    return {} if value is None else value


Name = Annotated[str, Field(min_length=1)]
# YAML has lists, never tuples: the sequence itself is taken leniently, its items are not.
ColumnNames = Annotated[tuple[Name, ...], Field(strict=False, min_length=1), AfterValidator(_each_once)]
OriginNames = Annotated[tuple[Name, ...], Field(strict=False, min_length=1), AfterValidator(_check_origins)]
Expressions = Annotated[
    tuple[Name, ...],
    Field(strict=False, min_length=1),
    AfterValidator(_check_expressions),
    BeforeValidator(_split_expressions),
]
Operations = Annotated[
    tuple[Operation, ...],
    Field(strict=False),
    AfterValidator(_each_operation_once),
    BeforeValidator(_check_operations),
]


TypeOverrides = Annotated[dict[Name, Annotated[Name, AfterValidator(_check_type)]], Field(min_length=1)]


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

    @property
    def plain(self) -> Origins:
        """The same without pydantic."""
        return Origins(self.include, self.exclude)


class MetadataSettings(_Model):
    """What the columns are called that a mirror table has beside its source's; None leaves a column out."""

    commit_lsn: Name | None = "__commit_lsn"
    commit_ts: Name | None = "__commit_ts"
    rescued_data: Name | None = "_rescued_data"
    """Left out, a value that its column's type cannot hold stops the run: it has nowhere to go."""
    deleted: Name | None = "__deleted"
    """Only in tables with soft deletes."""

    @model_validator(mode="after")
    def _distinct(self) -> MetadataSettings:
        names = self.names
        for name in names:
            # Delta does not tell upper case from lower.
            if name.lower() in RESERVED_COLUMNS:
                raise ValueError(f"{name} is a name that Delta keeps for itself")
            if sum(name.lower() == other.lower() for other in names) > 1:
                raise ValueError(f"two of the columns are called {name}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of those that are not left out."""
        given = (self.commit_lsn, self.commit_ts, self.rescued_data, self.deleted)
        return tuple(name for name in given if name is not None)


class TableSettings(_Model):
    """What is wanted of one source table; None takes what holds for all tables."""

    source_schema: Name
    source_table: Name
    destination_schema: Name | None = None
    destination_table: Annotated[Name, AfterValidator(_check_table_name)] | None = None
    keys: ColumnNames | None = None
    """The columns that name a row, where the replica identity's are not the right ones."""
    include_columns: ColumnNames | None = None
    """The only columns that are wanted, now and later."""
    exclude_columns: ColumnNames | None = None
    rename_columns: Annotated[dict[Name, Name], Field(min_length=1), AfterValidator(_check_renames)] | None = None
    """Columns that were renamed at the source: the old name to the new one."""
    column_mask_hash: ColumnNames | None = None
    """Columns whose values become salted hashes: see `wal2delta.masking`."""
    type_overrides: TypeOverrides | None = None
    """Columns that are read as another type than their own, by that type's name: see `wal2delta.types.names`."""
    scd_type: Annotated[Literal[1], BeforeValidator(_check_history)] = 1
    soft_deletes: bool | None = None
    on_type_change: TypeChangePolicy | None = None
    on_recreate: RecreatePolicy | None = None
    on_drop_column: DropColumnPolicy | None = None
    on_missing_row: MissingRowPolicy | None = None

    @property
    def renames(self) -> tuple[tuple[str, str], ...]:
        """The columns' renames, (old name, new name) each."""
        return tuple((self.rename_columns or {}).items())

    @property
    def destination(self) -> tuple[str, str]:
        """The schema and the name that the mirror table has."""
        return self.destination_schema or self.source_schema, self.destination_table or self.source_table

    def type_options(self, modes: TypeOptions) -> TypeOptions:
        """Give the options of this table, an overridden column under whichever of its names."""
        given = self.type_overrides or {}
        known = {name: kind for listed, kind in given.items() for name in sorted(same_columns(listed, self.renames))}
        return replace(modes, overrides=tuple({**known, **given}.items()))

    def wants_column(self, name: str) -> bool:
        """Tell whether a column is wanted, under whichever of its names it is listed."""
        listed = self.include_columns or self.exclude_columns
        if listed is None:
            return True
        return same_columns(name, self.renames).isdisjoint(listed) == (self.include_columns is None)

    def masks_column(self, name: str) -> bool:
        """Tell whether a column is masked, under whichever of its names it is listed."""
        return not same_columns(name, self.renames).isdisjoint(self.column_mask_hash or ())

    @model_validator(mode="after")
    def _agree(self) -> TableSettings:
        if self.include_columns is not None and self.exclude_columns is not None:
            raise ValueError("may have include_columns or exclude_columns, not both")
        for key, names in (
            ("keys", self.keys),
            ("column_mask_hash", self.column_mask_hash),
            ("type_overrides", self.type_overrides),
        ):
            for name in names or ():
                if not self.wants_column(name):
                    what = "not in include_columns" if self.include_columns else "in exclude_columns as well"
                    raise ValueError(f"{name!r} is in {key}, but {what}")
        return self


class ObjectSettings(_Model):
    """One entry of ``objects``."""

    table: TableSettings


def _each_table_once(objects: tuple[ObjectSettings, ...]) -> tuple[ObjectSettings, ...]:
    names = [(item.table.source_schema, item.table.source_table) for item in objects]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"must name each table once, and {'.'.join(name)} stands there twice")
    places = [item.table.destination for item in objects]
    for place in places:
        if places.count(place) > 1:
            raise ValueError(f"two of the tables have the destination {'.'.join(place)}")
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
    table_include_list: Expressions | None = None
    """Regular expressions over the whole of ``schema.table``; None wants every table."""
    table_exclude_list: Expressions | None = None
    skipped_operations: Operations = ()
    """Changes of these kinds are left out."""
    decimal_handling_mode: DecimalMode = "precise"
    """What becomes of numeric, in all columns without an override."""
    binary_handling_mode: BinaryMode = "bytes"
    """What becomes of bytea, likewise."""
    source_encoding: Annotated[Name, AfterValidator(_check_encoding)] = "UTF8"
    """The client_encoding that the captures were recorded with, by PostgreSQL's name."""
    metadata_columns: Annotated[MetadataSettings, BeforeValidator(_none_is_empty)] = MetadataSettings()
    column_mask_salt: Annotated[SecretStr, Field(min_length=1)] | None = None
    """What goes into every masked column's hashes; it is shown nowhere."""
    soft_deletes: bool = False
    """A deleted row stays, marked."""
    on_type_change: TypeChangePolicy = "rewrite"
    on_recreate: RecreatePolicy = "replace"
    on_drop_column: DropColumnPolicy = "keep"
    on_missing_row: MissingRowPolicy = "warn"
    """An update or a delete does not find its row."""
    infer_renames: bool = True
    """A column that stands under another name where one of its type was, between others, was renamed."""
    accept_changed_tables: bool = False
    """Go on from tables that somebody else has changed since the last run, as they are."""
    tables_at_once: Annotated[int, Field(ge=1, le=64)] = 4
    """So many tables are written to concurrently."""
    bucket_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 30)] = DEFAULT_BUCKET_BYTES
    """Bytes of changes that one task folds."""

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        if self.table_include_list is not None and self.table_exclude_list is not None:
            raise ValueError("may have table_include_list or table_exclude_list, not both")
        for item in self.objects:
            table = item.table
            name = f"{table.source_schema}.{table.source_table}"
            if not self.wants_table(table.source_schema, table.source_table):
                key = "table_include_list" if self.table_include_list else "table_exclude_list"
                raise ValueError(f"{name} stands under objects, but {key} leaves it out")
            if table.column_mask_hash and self.column_mask_salt is None:
                raise ValueError(f"{name} has a column_mask_hash, which needs a column_mask_salt")
            if table.soft_deletes and self.metadata_columns.deleted is None:
                raise ValueError(f"{name} has soft_deletes, which need metadata_columns.deleted")
        if self.soft_deletes and self.metadata_columns.deleted is None:
            raise ValueError("soft_deletes need metadata_columns.deleted")
        return self

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Settings:
        """Check values that came as a mapping.

        Raises:
            ConfigError: naming the key and what was expected.
        """
        return _validate(values, path=None, document=None)

    def accepting_changed_tables(self) -> Settings:
        """Give the same settings with ``accept_changed_tables`` set."""
        return self.model_copy(update={"accept_changed_tables": True})

    def allowing_gaps(self) -> Settings:
        """Give the same settings with ``captures: allow_gaps`` set."""
        return self.model_copy(update={"captures": self.captures.model_copy(update={"allow_gaps": True})})

    def wants_origin(self, origin: str | None) -> bool:
        """Tell whether the changes of a replication origin are wanted; None: made on the server itself."""
        return self.origins.plain.wants(origin)

    @property
    def of_tasks(self) -> TaskSettings:
        """What tasks have to know."""
        return TaskSettings(self.origins.plain, frozenset(self.skipped_operations), self.source_codec, self.mask_salt)

    def keys_of(self, schema: str, table: str) -> tuple[str, ...] | None:
        """Give the configured key columns of a source table; None where there are none."""
        found = self.table(schema, table)
        return found.keys if found is not None else None

    def table(self, schema: str, table: str) -> TableSettings | None:
        """Give what is said of a source table; None where nothing is."""
        for item in self.objects:
            if (item.table.source_schema, item.table.source_table) == (schema, table):
                return item.table
        return None

    def type_options(self, schema: str, table: str) -> TypeOptions:
        """Say how the values of a source table are read."""
        modes = TypeOptions(self.decimal_handling_mode, self.binary_handling_mode)
        found = self.table(schema, table)
        return modes if found is None else found.type_options(modes)

    @property
    def source_codec(self) -> str:
        """Python's name of the source's encoding."""
        return codec_of(self.source_encoding)

    def wants_table(self, schema: str, table: str) -> bool:
        """Tell whether a source table is wanted."""
        expressions = self.table_include_list or self.table_exclude_list
        if expressions is None:
            return True
        listed = any(_expression(text).fullmatch(f"{schema}.{table}") for text in expressions)
        return listed == (self.table_include_list is not None)

    def skips(self, operation: Operation) -> bool:
        """Tell whether changes of a kind are left out."""
        return operation in self.skipped_operations

    @property
    def leaves_rows_out(self) -> bool:
        """Whether rows may be left out that later changes are for."""
        return self.skips("c") or self.skips("u") or self.origins != OriginSettings() or self.captures.allow_gaps

    @property
    def mask_salt(self) -> bytes:
        """What is hashed in front of every masked value."""
        return b"" if self.column_mask_salt is None else self.column_mask_salt.get_secret_value().encode()


def load_settings(path: str | os.PathLike[str] | None) -> Settings:
    """Read a YAML file; None gives the defaults.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or holds what is not allowed.
    """
    if path is None:
        return Settings()
    name = os.fspath(path)
    try:
        with Path(name).open(encoding="utf-8") as file:
            text = file.read(_MOST_TEXT + 1)
    except UnicodeDecodeError:
        raise ConfigError("the file is not UTF-8 text", path=name) from None
    except OSError as error:
        problem = (error.strerror or "it cannot be read").lower()
        raise ConfigError(f"cannot read the configuration: {problem}", path=name) from None
    if len(text) > _MOST_TEXT:
        raise ConfigError(f"the file has more than {_MOST_TEXT:,} characters, as no configuration has", path=name)
    try:
        _refuse_deep(text, name)
        document = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_many(document, name)
        _refuse_repeated_keys(document, name)
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError(f"{line}not YAML: {error.problem or error.context}", path=name) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {' '.join(str(error).split())}", path=name) from None
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
    where = _write(place) or "configuration"
    if kind == "extra_forbidden":
        return f"{where}: unknown key", _nearest(place)
    if kind == "missing":
        return f"{where}: is missing", None
    expected = _EXPECTED.get(kind) or str(detail["msg"]).removeprefix("Value error, ")
    expected = expected.replace("Input should be", "must be", 1)
    if isinstance(value, (str, int, float)) and kind != "value_error" and place[:1] != (_SECRET,):
        expected = f"{expected}, not {value!r}"
    # YAML 1.1 reads no, on, 010 and 2024-01-01 as something else than text.
    remedy = "Put the name in quotes" if kind == "string_type" and isinstance(value, (bool, int, float)) else None
    return f"{where}: {expected}", remedy


def _nearest(place: _Place) -> str | None:
    *outer, key = place
    here = _model_at(tuple(outer))
    known = list(here.model_fields) if here else []
    elsewhere = [_write(path) for path in _all_places(Settings) if path[-1] == key]
    # A key that is right, but elsewhere, is nearer than one that is only somewhat like it.
    close = difflib.get_close_matches(str(key), known, n=1, cutoff=0.8 if elsewhere else 0.6)
    if close:
        return f"The nearest key is {close[0]!r}"
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


def _refuse_deep(text: str, path: str) -> None:
    """Refuse what is nested deeper than any configuration: PyYAML would run out of stack."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MOST_NESTED:
                line = event.start_mark.line + 1 if event.start_mark else 0
                raise ConfigError(f"line {line}: values are nested more than {_MOST_NESTED} deep", path=path)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _refuse_many(document: yaml.Node | None, path: str) -> None:
    """Refuse aliases that come to more values, or deeper ones, than any configuration has; and endless ones."""
    known: dict[int, tuple[int, int]] = {}
    inside: set[int] = set()

    def measure(node: yaml.Node) -> tuple[int, int]:
        """Count the values that a node comes to, and how deep they are nested."""
        if id(node) in inside:
            raise ConfigError("an alias stands inside what it names", path=path)
        if id(node) not in known:
            inside.add(id(node))
            parts = node.value if isinstance(node, yaml.CollectionNode) else ()
            found = [measure(part) for item in parts for part in (item if isinstance(item, tuple) else (item,))]
            known[id(node)] = 1 + sum(size for size, _ in found), 1 + max((deep for _, deep in found), default=0)
            inside.discard(id(node))
        size, deep = known[id(node)]
        if size > _MOST_VALUES or deep > _MOST_NESTED + 1:
            line = node.start_mark.line + 1
            raise ConfigError(
                f"line {line}: its aliases come to more values than a configuration has ({_MOST_VALUES:,}), or are "
                f"nested more than {_MOST_NESTED} deep",
                path=path,
                remedy="Write the values out in place of the aliases",
            )
        return known[id(node)]

    if document is not None:
        measure(document)


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
