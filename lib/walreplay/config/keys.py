"""The configuration's keys: checks of single values, their types, shared models, and errors that name the place.

Checks beyond a key's type raise a ValueError, to which pydantic adds the place.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from walreplay.errors import ConfigError
from walreplay.names import Output
from walreplay.protocol.framing import Framing
from walreplay.types.names import type_named

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

_MOST_CLUSTERING: Final = 4


def each_once(what: str) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """Return the check that refuses a name that is given twice, such as a column."""

    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) != len(names):
            raise ValueError(f"must name each {what} once")
        return names

    return check


def check_origins(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse ``any``, which is no origin's name."""
    if any(name.lower() == "any" for name in names):
        raise ValueError("any is no origin's name: leave the list out to have the changes of all of them")
    return names


def split_expressions(value: Any) -> Any:
    """Accept Debezium's form too: one text, separated by commas; a backslash escapes a comma of an expression."""
    if not isinstance(value, str):
        return value
    return [part.replace("\\,", ",") for item in re.split(r"(?<!\\),", value) if (part := item.strip())]


def check_expressions(expressions: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what is no regular expression."""
    for text in expressions:
        try:
            expression(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return expressions


@cache
def expression(text: str) -> re.Pattern[str]:
    """Compile a regular expression over whole names."""
    # As in Debezium, case does not matter, so that no table slips through a list for being quoted at its source; nor
    # does one whose name has more than one line.
    return re.compile(text, re.IGNORECASE | re.DOTALL)


def check_operations(value: Any) -> Any:
    """Accept Debezium's form too: one text, separated by commas, and ``none``."""
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if isinstance(names, (list, tuple)) and "none" in names:
        if len(names) > 1:
            raise ValueError("none stands alone: it skips nothing")  # as Debezium's skipped.operations
        return []
    return names


def check_outputs(value: Any) -> Any:
    """Accept one output, or several separated by commas."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def check_table_name(name: str) -> str:
    """Refuse a name with a schema in front."""
    if "." in name:
        raise ValueError("is the table's name alone; its schema is destination_schema")
    return name


def check_schema_template(name: str) -> str:
    """Refuse braces that stand for nothing."""
    if any(brace in name.replace("{schema}", "") for brace in "{}"):
        raise ValueError("knows {schema}, which stands for the source's schema, and no other braces")
    return name


def check_scd_type(value: Any) -> Any:
    """Accept Lakeflow's names of the SCD types as well."""
    number = {"SCD_TYPE_1": 1, "SCD_TYPE_2": 2}.get(value, value) if isinstance(value, str) else value
    if isinstance(number, bool):  # true is 1 to Python
        raise ValueError("must be 1 or 2")
    return number


def check_clustering(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse more columns than Delta clusters by."""
    if len(names) > _MOST_CLUSTERING:
        raise ValueError(f"takes {_MOST_CLUSTERING} columns at most")
    return names


def check_renames(names: dict[str, str]) -> dict[str, str]:
    """Refuse renames that contradict each other."""
    for old, new in names.items():
        if old == new:
            raise ValueError(f"{old!r} is renamed to itself")
    if len(set(names.values())) != len(names):
        raise ValueError("two columns cannot be renamed to one")
    return names


def defaults_of(value: Any) -> Any:
    """Return PostgreSQL's text for defaults that YAML reads as a boolean or a whole number."""
    if not isinstance(value, Mapping):
        return value
    texts = {name: _text(scalar, "t", "f") for name, scalar in value.items()}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise ValueError(f"{name!r} has a value that is no text: write it in quotes, as PostgreSQL shows it")
    return texts


def check_folder(place: str) -> str:
    """Refuse a path that each machine would look for somewhere else."""
    if _SCHEME.match(place) is None and not place.startswith("/"):
        raise ValueError("give an absolute path, or a URI")
    return place


def named_as(read: Callable[[str], object]) -> Callable[[str], str]:
    """Return the check that refuses a name that ``read`` raises a ConfigError for."""

    def check(name: str) -> str:
        try:
            read(name)
        except ConfigError as error:
            raise ValueError(str(error)) from None  # pydantic knows the place of a ValueError, and of no other
        return name

    return check


def same_columns(name: str, renames: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return all names that a column has had, or will have, by its renames, its own among them."""
    names = {name}
    pairs = [set(pair) for pair in renames]
    while True:
        grown = names.union(*(pair for pair in pairs if pair & names))
        if grown == names:
            return frozenset(names)
        names = grown  # renames may be chained: a to b, b to c


_DELTA: Final = "delta."

_SWITCH: Final = re.compile(r"true|false", re.IGNORECASE)
_INTERVAL: Final = re.compile(
    r"(?:interval\s+)?(?:\d+\s+(?:week|day|hour|minute|second|millisecond|microsecond)s?\s*)+", re.IGNORECASE
)
_POSITIVE: Final = re.compile(r"0*[1-9]\d*")
_COUNT: Final = re.compile(r"-1|\d+")

_FORMS: Final[Mapping[re.Pattern[str], str]] = {
    _SWITCH: "true or false",
    _INTERVAL: "an interval: 30 days",
    _POSITIVE: "a whole number above 0",
    _COUNT: "a whole number, or -1",
}

KNOWN: Final[Mapping[str, re.Pattern[str]]] = {
    "delta.autoOptimize.autoCompact": re.compile(r"true|false|auto|legacy", re.IGNORECASE),
    "delta.autoOptimize.optimizeWrite": _SWITCH,
    "delta.checkpoint.writeStatsAsJson": _SWITCH,
    "delta.checkpoint.writeStatsAsStruct": _SWITCH,
    "delta.checkpointInterval": _POSITIVE,
    "delta.checkpointPolicy": re.compile("classic|v2"),
    "delta.columnMapping.mode": re.compile("name"),
    "delta.compatibility.symlinkFormatManifest.enabled": _SWITCH,
    "delta.dataSkippingNumIndexedCols": _COUNT,
    "delta.deletedFileRetentionDuration": _INTERVAL,
    "delta.enableChangeDataFeed": _SWITCH,
    "delta.enableDeletionVectors": _SWITCH,
    "delta.enableExpiredLogCleanup": _SWITCH,
    "delta.enableRowTracking": _SWITCH,
    "delta.enableTypeWidening": re.compile("true", re.IGNORECASE),
    "delta.logRetentionDuration": _INTERVAL,
    "delta.randomizeFilePrefixes": _SWITCH,
    "delta.randomPrefixLength": _POSITIVE,
}
"""Delta's own, as far as all versions of it know them, and the values that they take here."""

_NEEDED: Final = {
    "delta.columnMapping.mode": "must be name, which renamed and dropped columns need",
    "delta.enableTypeWidening": "must be true, which columns need that get a wider type",
}
_OURS: Final = ("delta.appendOnly", "delta.columnMapping.", "delta.feature.", "delta.min", "delta.setTransactionRet")
"""What a mirror could not be kept by, or walreplay sets by itself, begins so."""


_RESERVED: Final = {
    "owner": "who creates a table owns it; for another owner take a name of your own, such as data_owner",
    **dict.fromkeys(("location", "path"), "destination_schema and destination_table decide where a table lies"),
    **dict.fromkeys(("provider", "table_type"), "tables are Delta's"),
    **dict.fromkeys(("external", "is_managed_location"), "a catalog decides it by where the schema lies"),
    "comment": "a table's comment follows the source's own, if that is announced",
    "collation": "texts are compared by their bytes, as in PostgreSQL's C",
}
"""What Spark keeps for itself (``CatalogV2Util.TABLE_RESERVED_PROPERTIES``) or loses, and what there is instead."""


def texts_of(value: Any) -> Any:
    """Return a property's text for values that YAML reads as a boolean or a number, such as true and 10."""
    if not isinstance(value, Mapping):
        return value
    return {name: _text(scalar, "true", "false") for name, scalar in value.items()}


def _text(value: Any, true: str, false: str) -> Any:
    if isinstance(value, bool):
        return true if value else false
    return str(value) if isinstance(value, int) else value


def check_properties(properties: dict[str, str]) -> dict[str, str]:
    """Refuse properties that Delta does not know, or that conflict with what walreplay does.

    Names without ``delta.`` in front are the user's own, and mean nothing to Delta.
    """
    for name, value in properties.items():
        if name.lower() in _RESERVED or name.lower().startswith("spark.sql."):
            instead = _RESERVED.get(name.lower(), "take a name without spark.sql")
            raise ValueError(f"{name} may not be given: Spark keeps it for itself; {instead}")
        if not name.startswith(_DELTA):
            continue
        form = KNOWN.get(name)
        if form is None and name.startswith(_OURS):
            raise ValueError(f"{name} may not be given: walreplay sets it where it is needed, or could not go on")
        if form is None:
            close = difflib.get_close_matches(name, KNOWN, n=1)
            nearest = f"; the nearest is {close[0]}" if close else f"; known are {', '.join(KNOWN)}"
            raise ValueError(f"{name} is no property of Delta's that is known here{nearest}")
        if form.fullmatch(value.strip()) is None:
            expected = _FORMS.get(form) or form.pattern.replace("|", " or ")
            raise ValueError(f"{name} {_NEEDED.get(name) or f'must be {expected}'}")
    return properties


OrderName = Literal["natural", "path", "modified"]
TypeChangePolicy = Literal["rewrite", "stop"]
RecreatePolicy = Literal["replace", "keep", "stop"]
DropColumnPolicy = Literal["keep", "drop"]
TableErrorPolicy = Literal["stop", "hold"]
Operation = Literal["c", "u", "d", "t"]
"""Debezium's letters: inserts, updates, deletes, truncates."""

COMMIT_LSN: Final = "__commit_lsn"
COMMIT_TS: Final = "__commit_ts"

_FRAMINGS: Final = ("auto", *(framing.value for framing in Framing))
_OUTPUTS: Final = tuple(output.value for output in Output)
if TYPE_CHECKING:
    FramingName: TypeAlias = str  # mypy takes no Literal that is made of a tuple
    OutputName: TypeAlias = str
else:
    FramingName, OutputName = Literal[_FRAMINGS], Literal[_OUTPUTS]

LEFT_OUT_BY_NULL: Final = frozenset({"commit_lsn_column", "commit_ts_column", "rescued_data_column"})
"""Keys that have null for a column that is left out; null says nothing elsewhere."""

DELETED: Final = "__deleted"
SOURCE: Final = "__source"
LOG_COLUMNS: Final = {
    name: f"__{name}" for name in ("op", "ordinal", "unchanged", "xid", "origin", "file", "offset", "before")
}
HISTORY_COLUMNS: Final = {
    "start_at": "__START_AT",
    "end_at": "__END_AT",
    **{name: f"__{name}" for name in ("start_lsn", "end_lsn", "ordinal", "op")},
}
"""Metadata columns of a mirror with soft deletes, and of shared tables; then what only change logs, and only histories
have, by the folded rows' names."""

Name = Annotated[str, Field(min_length=1)]
# YAML has lists, never tuples: the sequence itself is taken leniently, its items are not.
ColumnNames = Annotated[tuple[Name, ...], Field(strict=False, min_length=1), AfterValidator(each_once("column"))]
TrackedColumns = Annotated[tuple[Name, ...], Field(strict=False), AfterValidator(each_once("column"))]
OriginNames = Annotated[
    tuple[Name, ...],
    Field(strict=False, min_length=1),
    AfterValidator(each_once("origin")),
    AfterValidator(check_origins),
]
Expressions = Annotated[
    tuple[Name, ...],
    Field(strict=False, min_length=1),
    AfterValidator(check_expressions),
    BeforeValidator(split_expressions),
]
Operations = Annotated[
    tuple[Operation, ...],
    Field(strict=False),
    AfterValidator(each_once("operation")),
    BeforeValidator(check_operations),
]

Outputs = Annotated[
    tuple[OutputName, ...],
    Field(strict=False, min_length=1),
    AfterValidator(each_once("output")),
    BeforeValidator(check_outputs),
]

AddedDefaults = Annotated[dict[Name, str], Field(min_length=1), BeforeValidator(defaults_of)]

TypeOverrides = Annotated[dict[Name, Annotated[Name, AfterValidator(named_as(type_named))]], Field(min_length=1)]


TableProperties = Annotated[dict[Name, str], AfterValidator(check_properties), BeforeValidator(texts_of)]
ClusterColumns = Annotated[
    tuple[Name, ...], Field(strict=False), AfterValidator(each_once("column")), AfterValidator(check_clustering)
]


class StrictModel(BaseModel):
    """Keys and values: nothing is converted, and no key is unknown.  A key without a value says nothing."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        keys_without_null = cls.model_fields.keys() - LEFT_OUT_BY_NULL
        return {key: value for key, value in values.items() if value is not None or key not in keys_without_null}

    @property
    def explicit(self) -> dict[str, Any]:
        """What is said, by key; other keys have their defaults."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


_Place = tuple[int | str, ...]

M = TypeVar("M", bound=BaseModel)

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
    # No message shows the salt.
    if isinstance(value, (str, int, float)) and kind != "value_error" and place[:1] != ("column_mask_salt",):
        expected = f"{expected}, not {value!r}"
    # YAML 1.1 reads no, on, 010 and 2024-01-01 as something else than text.
    remedy = "Put the name in quotes" if kind == "string_type" and isinstance(value, (bool, int, float)) else None
    return f"{where}: {expected}", remedy


def _nearest(place: _Place, model: type[BaseModel]) -> str | None:
    *outer, key = place
    here = _model_at(model, tuple(outer))
    keys = list(here.model_fields) if here else []
    elsewhere = [_write(path) for path in _all_places(model) if path[-1] == key]
    # A key that is right elsewhere is nearer than one that is only similar.
    close = difflib.get_close_matches(str(key), keys, n=1, cutoff=0.8 if elsewhere else 0.6)
    if close:
        return f"The nearest key is {close[0]!r}"
    if elsewhere:
        return f"There is a key {elsewhere[0]!r}"
    return f"The keys here are {', '.join(keys)}" if keys else None


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
    return next((model for item in typing.get_args(annotation) if (model := _model_in(item))), None)


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
            pair = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if pair is None:
                break
            key, node = pair
            line = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            break
    return line
