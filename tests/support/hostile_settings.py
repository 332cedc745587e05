"""Settings of other people's sessions, and captures whose values come out otherwise where one of them has its way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from support.readers import read
from support.small_mirror import row
from walreplay.protocol import messages as m
from walreplay.session import isolation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SET_BY_US: Final[Mapping[str, str]] = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.int96AsTimestamp": "false",
    "spark.sql.parquet.int96TimestampConversion": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.caseSensitive": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.preserveCharVarcharTypeInfo": "true",
    "spark.sql.readSideCharPadding": "false",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.variable.substitute": "true",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.pyspark.binaryAsBytes": "false",
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.sql.json.enableExactStringParsing": "false",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.legacy.createEmptyCollectionUsingStringType": "true",
    "spark.sql.legacy.allowNegativeScaleOfDecimal": "true",
    "spark.sql.legacy.disableMapKeyNormalization": "true",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true",
    "spark.sql.legacy.raiseErrorWithoutErrorClass": "true",
    "spark.sql.legacy.sizeOfNull": "false",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "true",
    "spark.sql.legacy.useV1Command": "true",
    "spark.sql.legacy.keepCommandOutputSchema": "true",
    "spark.databricks.delta.schema.autoMerge.enabled": "true",
    "spark.databricks.delta.replaceWhere.dataColumns.enabled": "false",
    "spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false",
    "spark.databricks.delta.write.dataFilesToSubdir": "true",
    "spark.databricks.delta.write.txnAppId": "theirs",
    "spark.databricks.delta.write.txnVersion": "1000000",
    "spark.databricks.delta.write.utcTimestampPartitionValues": "false",
    "spark.databricks.delta.properties.defaults.columnMapping.mode": "name",
    "spark.databricks.delta.properties.defaults.enableChangeDataFeed": "true",
    "spark.databricks.delta.properties.defaults.appendOnly": "true",
    "spark.databricks.delta.properties.defaults.dataSkippingNumIndexedCols": "0",
    "spark.databricks.delta.properties.defaults.checkpointPolicy": "v2",
    "spark.databricks.delta.properties.defaults.enableRowTracking": "true",
}

OF_NO_MATTER: Final[Mapping[str, str]] = {
    "spark.sql.datetime.java8API.enabled": "true",
    "spark.sql.execution.arrow.compression.codec": "zstd",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    "spark.sql.files.maxRecordsPerFile": "5",
    "spark.sql.parquet.columnarReaderBatchSize": "3",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.fieldId.read.enabled": "true",  # Delta sets it itself, in each session that has read a table
    "spark.sql.parquet.filterPushdown": "false",
    "spark.sql.sources.default": "json",
    "spark.databricks.delta.autoCompact.enabled": "true",
    "spark.databricks.delta.autoCompact.minNumFiles": "2",
    "spark.databricks.delta.commitInfo.userMetadata": "theirs",
    "spark.databricks.delta.dynamicPartitionOverwrite.enabled": "false",
    "spark.databricks.delta.merge.preserveNullSourceStructs": "false",
    "spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "false",
    "spark.databricks.delta.optimizeWrite.enabled": "true",
    "spark.databricks.delta.stats.collect": "false",
}
"""With these the same rows are written, though in other files."""

_OIDS: Final = {
    "d": 1082, "t": 1114, "z": 1184, "n": 1700, "m": 1700, "f": 701, "İI": 25, "b": 17, "a": 1182, "big": 25, "w": 23
}  # fmt: skip
_MODS: Final = {"n": (38 << 16 | 10) + 4, "m": (5 << 16 | 2) + 4}
_KEY: Final = ("d", "z", "İI")
_BIG: Final = list(_OIDS).index("big")

_Row = tuple[str, ...]


def _relation(oid: int, name: str, **changed: int) -> m.Relation:
    kinds = {**_OIDS, **changed}
    columns = (m.Column(c, kind, _MODS.get(c, -1) if kind == 1700 else -1, c in _KEY) for c, kind in kinds.items())
    return m.Relation(oid, "s", name, "d", tuple(columns))


_DAYS: Final = ("0001-01-01", "1066-10-14", "1500-02-28", "1582-10-04", "1582-10-15", "1883-11-18", "2024-11-03")
"""Days of the Julian calendar, and two on which New York's clocks show an hour twice."""
_CLOCKS: Final = ("00:00:00.000001", "05:30:00", "06:30:00.5")


def _rows() -> Iterator[_Row]:
    for day in _DAYS:
        for clock in _CLOCKS:
            yield (
                day, f"{day} {clock}", f"{day} {clock}+00", "9999999999999999999999999999.0123456789", "-0.01", "-0",
                "İıiI \\n ${spark.master} `x`", "\\x00ff5c", f"{{{day},NULL}}", "x" * 40, "-2147483648",
            )  # fmt: skip


_FIRST: Final = tuple(_rows())
_ENDLESS: Final = ("infinity", "infinity", *_FIRST[-1][2:])
_MOVED: Final = ("1582-10-14", *_FIRST[12][1:])


def _later(values: _Row) -> _Row:
    return (*values[:4], "9.99", "NaN", *values[6:])


def _key(values: _Row) -> m.TupleData:
    return row(*(value if name in _KEY else None for name, value in zip(_OIDS, values, strict=True)))


def _unchanged(values: _Row) -> m.TupleData:
    """Return a row whose long text is not sent again."""
    cells = row(*values).cells
    return m.TupleData((*cells[:_BIG], m.UNCHANGED_CELL, *cells[_BIG + 1 :]))


def runs() -> tuple[tuple[m.AnyMessage, ...], ...]:
    """Return the messages of each run."""
    later: list[m.AnyMessage] = [m.Update(1, _unchanged(_later(values))) for values in _FIRST[:12]]
    later += [m.Delete(1, key=_key(values)) for values in _FIRST[13:]]
    later += [m.Update(1, _unchanged(_MOVED), key=_key(_FIRST[12])), m.Update(1, _unchanged(_later(_ENDLESS)))]
    last = m.Update(1, _unchanged((*_FIRST[0][:-1], str(1 << 40))))
    inserts = [m.Insert(oid, row(*values)) for oid in (1, 2) for values in (*_FIRST, _ENDLESS)]
    return (
        (_relation(1, "Parish"), _relation(2, "parish"), *inserts),
        tuple(later),
        # A column that is widened, and one whose type becomes another.
        (_relation(1, "Parish", w=20), last, _relation(2, "parish", d=25), m.Delete(2, key=_key(_FIRST[9]))),
    )


def truth() -> dict[str, list[str]]:
    """Return the rows of each table in the end, as `rows_of` does."""
    first = [*map(_later, _FIRST[:12]), _MOVED, _later(_ENDLESS)]
    first[0] = (*_FIRST[0][:-1], str(1 << 40))
    second = [values for values in (*_FIRST, _ENDLESS) if values != _FIRST[9]]
    return {
        "Parish": sorted(repr(_typed(values, "d", "t")) for values in first),
        "parish": sorted(repr((values[0], *_typed(values, "t")[1:])) for values in second),
    }


def _typed(values: _Row, *rescuable: str) -> tuple[Any, ...]:
    by_name = dict(zip(_OIDS, values, strict=True))
    rescued = {name: by_name[name] for name in rescuable if by_name[name] == "infinity"}
    day, moment = values[0], values[1]
    return (
        None if day == "infinity" else date.fromisoformat(day),
        None if moment == "infinity" else datetime.fromisoformat(moment.replace("30:00.5", "30:00.500000")),
        datetime.fromisoformat(values[2].removesuffix("+00").replace(".5", ".500000")).replace(tzinfo=timezone.utc),
        *map(Decimal, values[3:5]),
        float(values[5]),
        values[6],
        b"\x00\xff\x5c",
        [date.fromisoformat(values[8][1:11]), None],
        values[9],
        int(values[10]),
        json.dumps(rescued, separators=(",", ":")) if rescued else None,
    )


def rows_of(target: str | Path) -> dict[str, list[str]]:
    """Return the rows of each table as DuckDB reads them."""
    rows = {}
    for name in ("Parish", "parish"):
        table = read(Path(target, "s", name)).select([*_OIDS, "_rescued_data"]).to_pydict()
        rows[name] = sorted(repr(tuple(map(_in_utc, values))) for values in zip(*table.values(), strict=True))
    return rows


def _in_utc(value: Any) -> Any:
    return value.astimezone(timezone.utc) if isinstance(value, datetime) and value.tzinfo is not None else value


@contextmanager
def configured(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Have new sessions begin with some settings, as those of a cluster that is configured so."""
    conf = spark.sparkContext._jsc.sc().conf()  # type: ignore[union-attr]
    before = {key: conf.get(key) for key in values if conf.contains(key)}
    for key, value in values.items():
        conf.set(key, value)
    isolation._of_cluster.cache_clear()
    try:
        yield
    finally:
        for key in values:
            conf.remove(key)
        for key, value in before.items():
            conf.set(key, value)
        isolation._of_cluster.cache_clear()
