"""What a mirror table has to hold: the source's rows as CSV, read into the types that the documents promise.

The readers of values here share nothing with walreplay's own.  They are slow and plain on purpose: exact
integer arithmetic on text, one cell at a time.

CSV means PostgreSQL's, written with every value quoted: an unquoted ``\\N`` is NULL, ``""`` is empty text.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from support import readers
from support.captures import Case

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from support.reference import Replay

COMMIT_LSN = "__commit_lsn"
COMMIT_TS = "__commit_ts"
RESCUED = "_rescued_data"

ADDED_COLUMNS = {COMMIT_LSN: "bigint", COMMIT_TS: "timestamp", RESCUED: "string"}
"""The columns behind the source's own, with their Spark types."""

LEDGER = "_walreplay"

Row = list[str | None]


# The source's tables.


@dataclass(frozen=True)
class SourceColumn:
    """A column as the source's catalog has it.

    Attributes:
        type: as ``format_type`` writes it; for a domain its own name.
        base: a domain's base type.
        user_array: an array whose elements are of a user-defined type.
    """

    name: str
    type: str
    base: str | None = None
    user_array: bool = False


@dataclass(frozen=True)
class SourceTable:
    """A table of the source with its rows, each value as the server's text.

    Attributes:
        key: the columns of the replica identity; empty where there are none, or where the whole row is it.
    """

    schema: str
    name: str
    columns: tuple[SourceColumn, ...]
    rows: list[Row] = field(repr=False)
    key: tuple[str, ...] = ()

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.name}"


def source_tables(case: Case) -> list[SourceTable]:
    """Read all of a case's tables with their rows."""
    return [_source_table(case, entry) for entry in case.info["tables"]]


def source_table(case: Case, table: str) -> SourceTable:
    """Read one of a case's tables, ``schema.table``."""
    (entry,) = [entry for entry in case.info["tables"] if entry["table"] == table]
    return _source_table(case, entry)


def _source_table(case: Case, entry: Mapping[str, Any]) -> SourceTable:
    types = entry["column_types"]
    columns = tuple(
        SourceColumn(name, types[name]["type"], types[name].get("base"), bool(types[name].get("user_array", False)))
        for name in entry["columns"]
    )
    rows = rows_of_csv(case.truth[entry["table"]].read_bytes().decode(), [c.name for c in columns])
    if len(rows) != entry["rows"]:
        raise AssertionError(f"{entry['table']}: {len(rows)} rows in the CSV, {entry['rows']} are announced")
    return SourceTable(
        entry["schema"],
        entry["name"],
        columns,
        rows,
        key=tuple(entry["identity_key"]),
    )


# CSV.

_CSV_FIELD = re.compile(r'"([^"]*(?:""[^"]*)*)"|([^",\r\n]*)')


def read_csv(text: str) -> Iterator[Row]:
    """Read PostgreSQL's CSV; an unquoted ``\\N`` is None, a quoted one is text."""
    at, row = 0, []
    while at < len(text):
        match = _CSV_FIELD.match(text, at)
        assert match is not None
        quoted, bare = match.groups()
        row.append(quoted.replace('""', '"') if quoted is not None else None if bare == r"\N" else bare)
        at = match.end()
        delimiter = text[at : at + 1]
        at += 1
        if delimiter == "\n":
            yield row
            row = []
        elif delimiter != ",":
            raise ValueError(f"not CSV at character {at - 1}")
    if row:
        raise ValueError("the CSV does not end with a newline")


def rows_of_csv(text: str, columns: Sequence[str]) -> list[Row]:
    """Read the rows below a header that has to name these columns in this order."""
    if not columns:
        return [[] for _ in range(text.count("\n") - 1)]
    rows = list(read_csv(text))
    if not rows or rows[0] != list(columns):
        raise ValueError(f"the CSV's header is {rows[:1]}, not {list(columns)}")
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"a row has {len(row)} values, not {len(columns)}")
    return rows[1:]


# Values: PostgreSQL's text -> a Python value, by the type's name.


class UnrepresentableError(Exception):
    """The value is sound, but its column's type cannot hold it."""


@dataclass(frozen=True)
class ValueType:
    """A Delta type and how PostgreSQL's text becomes a value of it.

    Attributes:
        parse: gives what `storage` holds; raises `UnrepresentableError`.
        storage: a plain Arrow type that is cast to `arrow` without a change of bits.
    """

    spark: str
    arrow: pa.DataType
    parse: Callable[[str], Any]
    storage: pa.DataType


def _boolean(text: str) -> bool:
    return {"t": True, "f": False}[text]


def _double(text: str) -> float:
    value = float(text)  # correctly rounded, knows NaN, Infinity and -0
    if math.isinf(value) and "Infinity" not in text:
        # The largest numbers, written with 15 digits, may be above all that there are.
        raise UnrepresentableError
    return value


def _real(text: str) -> float:
    """Round once, from decimal to 24 bits; by way of a double it would be twice."""
    double = float(text)
    if math.isnan(double) or math.isinf(double) or double == 0:
        return double
    exact = Fraction(text)
    nearest = _single(double)
    if math.isinf(nearest):
        raise ValueError("out of real's range")
    bits = _single_bits(nearest)
    around = [_single_of_bits(b) for b in (bits - 1, bits, bits + 1) if b & 0x7FFFFFFF not in (0x7FFFFFFF,)]
    candidates = [c for c in around if math.isfinite(c) and (c < 0) == (double < 0)] or [nearest]
    return min(candidates, key=lambda c: (abs(Fraction(c) - exact), _single_bits(c) & 1))


def _single(value: float) -> float:
    try:
        (single,) = struct.unpack("!f", struct.pack("!f", value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(single)


def _single_bits(value: float) -> int:
    return int.from_bytes(struct.pack("!f", value), "big")


def _single_of_bits(bits: int) -> float:
    (value,) = struct.unpack("!f", bits.to_bytes(4, "big"))
    return float(value)


def _bytea(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("bytea is not in hex form")
    return bytes.fromhex(text[2:])


_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)( BC)?")
_TIMESTAMP = re.compile(
    r"(\d{4,}-\d\d-\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
    r"(?:([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?)?( BC)?"
)
_UNIX_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROS_A_DAY = 86_400_000_000


def _date(text: str) -> int:
    """Return days since 1970-01-01."""
    if text in ("infinity", "-infinity"):
        raise UnrepresentableError
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError("not an ISO date")
    year, month, day, era = match.groups()
    if era is not None or int(year) > 9999:
        raise UnrepresentableError
    return date(int(year), int(month), int(day)).toordinal() - _UNIX_EPOCH_DAY


def _timestamp(text: str) -> int:
    """Return microseconds since 1970-01-01, UTC where there is an offset."""
    if text in ("infinity", "-infinity"):
        raise UnrepresentableError
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError("not an ISO timestamp")
    day, hour, minute, second, fraction, sign, *offset, era = match.groups()
    seconds = (int(hour) * 60 + int(minute)) * 60 + int(second)
    if sign is not None:
        east = sum(int(part or 0) * unit for part, unit in zip(offset, (3600, 60, 1), strict=True))
        seconds += east if sign == "-" else -east
    micros = _date(day + (era or "")) * _MICROS_A_DAY + seconds * 1_000_000
    micros += int((fraction or "").ljust(6, "0"))
    if not _date("0001-01-01") * _MICROS_A_DAY <= micros < (_date("9999-12-31") + 1) * _MICROS_A_DAY:
        raise UnrepresentableError
    return micros


def _decimal(text: str) -> Decimal:
    if text in ("NaN", "Infinity", "-Infinity"):
        raise UnrepresentableError
    return Decimal(text)


_STRING = ValueType("string", pa.string(), str, pa.string())
_PLAIN: Mapping[str, ValueType] = {
    "boolean": ValueType("boolean", pa.bool_(), _boolean, pa.bool_()),
    "smallint": ValueType("smallint", pa.int16(), int, pa.int16()),
    "integer": ValueType("int", pa.int32(), int, pa.int32()),
    "bigint": ValueType("bigint", pa.int64(), int, pa.int64()),
    "oid": ValueType("bigint", pa.int64(), int, pa.int64()),
    "xid": ValueType("bigint", pa.int64(), int, pa.int64()),
    "real": ValueType("float", pa.float32(), _real, pa.float32()),
    "double precision": ValueType("double", pa.float64(), _double, pa.float64()),
    "bytea": ValueType("binary", pa.binary(), _bytea, pa.binary()),
    "date": ValueType("date", pa.date32(), _date, pa.int32()),
    "timestamp without time zone": ValueType("timestamp_ntz", pa.timestamp("us"), _timestamp, pa.int64()),
    "timestamp with time zone": ValueType("timestamp", pa.timestamp("us", "UTC"), _timestamp, pa.int64()),
}
_TYPMOD = re.compile(r"\(([-\d, ]+)\)")


def value_type(column: SourceColumn) -> ValueType:
    """Return what a column of the source is in Delta."""
    if column.base is not None:
        # A Type message names a domain's base type, but nothing carries the domain's typmod.
        return _named_type(_TYPMOD.sub("", column.base))
    if column.user_array:
        return _STRING
    return _named_type(column.type)


def _named_type(name: str) -> ValueType:
    if name.endswith("[]"):
        # A box's array alone is delimited by semicolons: its text is full of commas.
        return _array_of(_named_type(name[:-2]), ";" if name == "box[]" else ",")
    typmod = _TYPMOD.search(name)
    bare = _TYPMOD.sub("", name)
    if bare == "numeric" and typmod is not None:
        precision, scale = (int(n) for n in typmod[1].split(","))
        if precision <= 38 and 0 <= scale <= precision:
            arrow = pa.decimal128(precision, scale)
            return ValueType(f"decimal({precision},{scale})", arrow, _decimal, arrow)
    return _PLAIN.get(bare, _STRING)


def _array_of(element: ValueType, delimiter: str) -> ValueType:
    def parse(text: str) -> list[Any]:
        return [None if item is None else element.parse(item) for item in read_array(text, delimiter)]

    return ValueType(f"array<{element.spark}>", pa.list_(element.arrow), parse, pa.list_(element.storage))


def read_array(text: str, delimiter: str = ",") -> list[str | None]:
    """Split the text of an array of one dimension with usual bounds; others are unrepresentable."""
    if text.startswith("["):
        raise UnrepresentableError
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("not an array")
    body = text[1:-1]
    if body == "":
        return []
    if body.startswith("{"):
        raise UnrepresentableError
    items: list[str | None] = []
    at = 0
    while True:
        if body[at] == '"':
            characters = []
            at += 1
            while body[at] != '"':
                at += body[at] == "\\"
                characters.append(body[at])
                at += 1
            at += 1
            items.append("".join(characters))
        else:
            end = body.find(delimiter, at)
            bare = body[at : end if end >= 0 else len(body)]
            items.append(None if bare.upper() == "NULL" else bare.replace("\\", ""))
            at += len(bare)
        if at == len(body):
            return items
        if body[at] != delimiter:
            raise ValueError("not an array")
        at += 1


# Tables.


def arrow_table(source: SourceTable, rows: Iterable[Row] | None = None) -> pa.Table:
    """Convert a table's rows (or others of the same columns) by the types of its columns."""
    rows = source.rows if rows is None else list(rows)
    rescued: list[dict[str, str]] = [{} for _ in rows]
    arrays: dict[str, pa.Array] = {}
    for number, column in enumerate(source.columns):
        kind = value_type(column)
        values: list[Any] = []
        for row, text in enumerate(row[number] for row in rows):
            try:
                values.append(None if text is None else kind.parse(text))
            except UnrepresentableError:
                assert text is not None
                values.append(None)
                rescued[row][column.name] = text
            except (ValueError, KeyError) as error:
                raise AssertionError(
                    f"{source.qualified_name}.{column.name}: {text!r} is not of type {column.type}"
                ) from error
        arrays[column.name] = pa.array(values, kind.storage).cast(kind.arrow)
    arrays[RESCUED] = pa.array([json.dumps(r, ensure_ascii=False) if r else None for r in rescued], pa.string())
    return pa.table(arrays)


def read_mirror(spark: SparkSession, location: str | Path) -> DataFrame:
    """Open a Delta table by its path, at its newest version."""
    return spark.read.format("delta").load(str(location))


@dataclass(frozen=True)
class Actual:
    """A mirror table as it was read.

    Attributes:
        fields: its columns, in order, with their Spark types.
    """

    fields: list[tuple[str, str]]
    rows: pa.Table


def read_tables_by_spark(spark: SparkSession, locations: Mapping[str, Path]) -> dict[str, Actual]:
    """Read whole Delta tables by Spark, two at a time: most of it is planning, which takes one core."""

    def read_one(location: Path) -> Actual:
        frame = read_mirror(spark, location)
        return Actual(_fields(frame), frame.toArrow())

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(locations, pool.map(read_one, locations.values()), strict=True))


def read_tables(spark: SparkSession, locations: Mapping[str, Path]) -> dict[str, Actual]:
    """Read whole Delta tables: their columns by Spark, their rows by DuckDB, which takes a hundredth of the time."""
    return {name: read_table(spark, location) for name, location in locations.items()}


def read_table(spark: SparkSession, location: Path) -> Actual:
    """Read a whole Delta table, its columns by Spark and its rows by DuckDB."""
    return Actual(_fields(read_mirror(spark, location)), readers.read(location))


def _fields(frame: DataFrame) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]


# Comparison.

Image = tuple[Any, ...]
"""A row as a hashable value: equal exactly when all its values are the same."""


def images(table: pa.Table, columns: Sequence[str]) -> list[Image]:
    """Return every row's image; floats by their bits, but all NaN are one, times as integers.

    PostgreSQL 11 and older write floats with 15 digits, into the stream and into the truth alike: what is
    read from either has the same bits, though not those of the source.
    """
    parts = [_column_images(table.column(name)) for name in columns]
    return list(zip(*parts, strict=True)) if parts else [() for _ in range(table.num_rows)]


def _column_images(column: pa.ChunkedArray) -> list[Any]:
    storage = _storage(column.type)
    if storage != column.type:
        column = column.cast(storage)
    return [_image(value) for value in column.to_pylist()]


def _storage(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_storage(kind.value_type))
    return kind


def _image(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)  # the shortest text of these bits alone; nan and -0.0 are told
    if isinstance(value, list):
        return tuple(_image(item) for item in value)
    if isinstance(value, Decimal):
        return str(value)
    return value


def _rescued_images(column: pa.ChunkedArray) -> list[Any]:
    """Compare the objects, not how they are written; but an empty object is not NULL."""
    return [None if text is None else tuple(sorted(json.loads(text).items())) for text in column.to_pylist()]


def row_images(source: SourceTable, table: pa.Table) -> list[Image]:
    """Return the rows' images of a table with the source's columns and ``_rescued_data``."""
    names = [column.name for column in source.columns]
    rescued = _rescued_images(table.column(RESCUED))
    return [(*image, r) for image, r in zip(images(table, names), rescued, strict=True)]


def row_difference(source: SourceTable, actual: Sequence[Image], expected: Sequence[Image]) -> str | None:
    """Describe how two multisets of rows differ; None when they do not."""
    names = [*(column.name for column in source.columns), RESCUED]
    missing, surplus = Counter(expected), Counter(actual)
    missing.subtract(Counter(actual))
    surplus.subtract(Counter(expected))
    lacking, extra = list((+missing).elements()), list((+surplus).elements())
    if not lacking and not extra:
        return None
    lines = [
        f"{source.qualified_name}: {len(actual)} rows, the source has {len(expected)}; "
        f"{len(lacking)} are missing, {len(extra)} should not be there"
    ]
    if source.key:
        at = [names.index(name) for name in source.key]
        by_key = {tuple(row[i] for i in at): row for row in extra}
        wrong = Counter[str]()
        examples: list[str] = []
        for row in lacking:
            other: Image | None = by_key.get(tuple(row[i] for i in at))
            if other is None:
                continue
            columns = [n for n, a, e in zip(names, other, row, strict=True) if a != e]
            wrong.update(columns)
            if len(examples) < 5:
                key = ", ".join(f"{names[i]}={row[i]!r}" for i in at)
                values = "; ".join(
                    f"{n}: {_short(other[names.index(n)])}, the source has {_short(row[names.index(n)])}"
                    for n in columns
                )
                examples.append(f"  at {key}: {values}")
        if wrong:
            lines.append(f"  same key, other values in: {dict(wrong)}")
            lines += examples
    for title, rows in (("missing", lacking), ("should not be there", extra)):
        for row in rows[:5]:
            values = ", ".join(f"{n}={_short(v)}" for n, v in zip(names, row, strict=True))
            lines.append(f"  {title}: {values}")
    return "\n".join(lines)


def content_difference(source: SourceTable, actual: pa.Table) -> str | None:
    """Describe how a table with the source's columns and ``_rescued_data`` differs from the source's."""
    return row_difference(source, row_images(source, actual), row_images(source, arrow_table(source)))


def replay_difference(sources: Sequence[SourceTable], replayed: Replay) -> str | None:
    """Describe how a replay differs from the source's tables; one that no transaction has changed is empty."""
    held = {table.qualified_name: table.rows for table in replayed.sources(sources)}
    for source in sources:
        found = content_difference(source, arrow_table(source, held.get(source.qualified_name, [])))
        if found is not None:
            return found
    return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:100]}… ({len(text)} characters)"


def mirror_tables(target: str | Path) -> dict[str, Path]:
    """List the tables at a target, as folders: ``{"schema.table": location}``."""
    found: dict[str, Path] = {}
    for schema in sorted(Path(target).iterdir()) if Path(target).is_dir() else ():
        if not schema.is_dir() or schema.name == LEDGER:
            continue
        for table in sorted(schema.iterdir()):
            if (table / "_delta_log").is_dir():
                found[f"{unquote(schema.name)}.{unquote(table.name)}"] = table
    return found


def table_versions(target: str | Path) -> dict[str, int]:
    """Return the newest Delta version of every table at a target."""
    return {
        name: max(int(commit.stem) for commit in (location / "_delta_log").glob("*.json"))
        for name, location in mirror_tables(target).items()
    }


def table_features(location: Path) -> set[str]:
    """Return the features that a reader of a Delta table has to know, by its log's newest word on them."""
    log = location / "_delta_log"
    actions = [json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()]
    protocol = [action["protocol"] for action in actions if "protocol" in action][-1]
    assert protocol["minReaderVersion"] != 2, "a mapping that delta-rs does not see"
    return {*protocol.get("readerFeatures", ())}


def expected_fields(source: SourceTable) -> list[tuple[str, str]]:
    """Return the columns of a mirror table, in order, with their Spark types."""
    return [
        *((column.name, value_type(column).spark) for column in source.columns),
        *ADDED_COLUMNS.items(),
    ]


@dataclass(frozen=True)
class Beyond:
    """What a mirror has beyond the source's tables, or cannot know; columns by ``schema.table``.

    Attributes:
        tables: those that have left the publication, or were dropped, with rows in them.
        kept: columns that the source has dropped.
        untold: columns whose values are not in the stream: they are not compared.
        loaded: the LSN of a base load, whose rows alone have no commit time.
    """

    tables: tuple[str, ...] = ()
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict)
    untold: Mapping[str, Sequence[str]] = field(default_factory=dict)
    loaded: int | None = None


NOTHING = Beyond()

BEYOND = {
    "o09_types_binary_pg16": Beyond(
        # In binary, OIDs are bare, and nothing announces what a range is made of.
        untold={"types.all_types": ("c051_regclass", "c052_regtype", "c053_regproc", "c101_floatrange")}
    ),
    "o14_ddl_pg15": Beyond(tables=("app.leaves",), kept={"app.acct": ("old_col",)}),
    "o15_ddl_traps_pg15": Beyond(
        tables=("app2.leaves",),
        kept={"app2.acct": ("old_col",)},
        # DEFAULT 7 and 5 for the rows that were there.
        untold={"app2.acct": ("score",), "app2.nokey": ("c",)},
    ),
}
"""By case, what is as its notes say."""


def mirror_difference(actual: Actual, source: SourceTable, beyond: Beyond = NOTHING) -> str | None:
    """Compare one mirror table with the source's: columns, order, types, every row and value.

    Of what the CSV cannot know only this is checked: every row has a commit LSN and a commit time.
    """
    kept = beyond.kept.get(source.qualified_name, ())
    if missing := {*kept} - {name for name, _ in actual.fields}:
        return f"{source.qualified_name}: the columns {sorted(missing)} were not kept"
    fields = [field for field in actual.fields if field[0] not in kept]
    if fields != expected_fields(source):
        return f"{source.qualified_name}: the columns are\n    {fields}\n  and should be\n    {expected_fields(source)}"
    table, truth = actual.rows.select([name for name, _ in fields]), arrow_table(source)
    dated = table
    if beyond.loaded is not None:
        dated = table.filter(pc.not_equal(table.column(COMMIT_LSN), beyond.loaded))
    for name, rows in ((COMMIT_LSN, table), (COMMIT_TS, dated)):
        if rows.column(name).null_count:
            return f"{source.qualified_name}: {rows.column(name).null_count} rows have no {name}"
    untold = beyond.untold.get(source.qualified_name, ())
    if untold:
        source = replace(source, columns=tuple(column for column in source.columns if column.name not in untold))
        table, truth = _without_rescued(table, untold), _without_rescued(truth, untold)
    return row_difference(source, row_images(source, table), row_images(source, truth))


def _without_rescued(table: pa.Table, columns: Collection[str]) -> pa.Table:
    """Leave columns out of the rescued values."""
    texts: list[str | None] = []
    for text in table.column(RESCUED).to_pylist():
        values = {name: value for name, value in json.loads(text or "{}").items() if name not in columns}
        texts.append(json.dumps(values) if values else None)
    return table.set_column(table.schema.get_field_index(RESCUED), RESCUED, pa.array(texts, pa.string()))


def assert_tables_equal(
    spark: SparkSession, target: str | Path, sources: Iterable[SourceTable], beyond: Beyond = NOTHING
) -> None:
    """Assert that the target holds exactly these tables, and each exactly these rows."""
    assert_equal(read_tables(spark, mirror_tables(target)), sources, beyond)


def assert_equal(actual: Mapping[str, Actual], sources: Iterable[SourceTable], beyond: Beyond = NOTHING) -> None:
    """Assert the same of tables that were read."""
    by_name = {source.qualified_name: source for source in sources}
    assert sorted(actual) == sorted({*by_name, *beyond.tables}), sorted(actual)
    differences = [mirror_difference(actual[name], source, beyond) for name, source in by_name.items()]
    found = [difference for difference in differences if difference is not None]
    assert not found, "\n" + "\n".join(found)


def assert_mirror_equals(spark: SparkSession, target: str | Path, case: Case) -> None:
    """Assert that the target is the case's truth, as its notes have it."""
    assert_tables_equal(spark, target, source_tables(case), BEYOND.get(case.name, NOTHING))
