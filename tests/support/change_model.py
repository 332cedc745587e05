"""What a change log has to hold, from the changes that `walreplay.read_changes` gives, and plain SQL that folds it."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import walreplay
from support.readers import read
from walreplay.archive.messages import transcribe
from walreplay.decode.change_batch import ChangeBatch
from walreplay.names import Output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGED = {"Insert", "Update", "Delete", "Truncate"}
FIRST = ["__op", "__commit_lsn", "__commit_ts", "__xid", "__ordinal", "__origin", "__file", "__offset"]
LAST = ["__before", "__unchanged", "_rescued_data"]

Row = dict[str, Any]


def changes_of(batches: Iterable[ChangeBatch]) -> dict[str, list[Row]]:
    """Return the rows that each table's change log has to have, by ``schema.table``, but for where they come from."""
    found: dict[str, list[Row]] = defaultdict(list)
    for batch in batches:
        names = [column.name for column in batch.relation.columns]
        rows = [dict(zip(names, values, strict=True)) for values in _rows(batch.columns)]
        olds: dict[int, Row] = {}
        old_texts: dict[int, str | None] = {}
        if batch.before is not None:
            at = batch.before_rows.to_pylist()
            values = _rows(batch.before_columns)
            olds = {row: dict(zip(names, old, strict=True)) for row, old in zip(at, values, strict=True)}
            texts = batch.before_rescued.to_pylist() if batch.before_rescued is not None else [None] * len(at)
            old_texts = dict(zip(at, texts, strict=True))
        rescued = batch.rescued.to_pylist() if batch.rescued is not None else [None] * len(rows)
        masks = {name: mask.to_pylist() for name, mask in batch.unchanged.items()}
        own = zip(*(column.to_pylist() for column in batch.data.columns[:5]), strict=True)
        for number, (op, lsn, ts, xid, ordinal) in enumerate(own):
            is_gone = op == "d"
            before = rows[number] if is_gone else olds.get(number)
            texts_of_old = rescued[number] if is_gone else old_texts.get(number)
            texts = json.loads(rescued[number]) if rescued[number] else {}
            if texts_of_old:
                texts["__before"] = json.loads(texts_of_old)
            found[batch.relation.qualified_name].append(
                {
                    "__op": op,
                    "__commit_lsn": lsn,
                    "__commit_ts": ts,
                    "__xid": xid,
                    "__ordinal": ordinal,
                    **rows[number],
                    "__before": before,
                    "__unchanged": sorted(name for name, mask in masks.items() if mask[number]),
                    "_rescued_data": texts,
                }
            )
    return {name: sorted(rows, key=_place) for name, rows in found.items()}


def _rows(columns: Sequence[Any]) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _place(row: Row) -> tuple[int, int]:
    return row["__commit_lsn"], row["__ordinal"]


def logged(spark: SparkSession, location: str | Path) -> list[Row]:
    """Return the rows of a change log in their order."""
    rows = read(location).to_pylist()
    for row in rows:
        row["__unchanged"] = sorted(row["__unchanged"])
        row["_rescued_data"] = json.loads(row["_rescued_data"]) if row["_rescued_data"] else {}
    return sorted(rows, key=_place)


def comparable(value: Any) -> Any:
    """Return a value that equals another if they are the same: NaN is NaN, and -0 is not 0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, dict):
        return {name: comparable(one) for name, one in value.items()}
    return [comparable(one) for one in value] if isinstance(value, list) else value


def assert_logs_changes(spark: SparkSession, logs: Mapping[str, str], captures: Sequence[str | Path]) -> None:
    """Check the change logs of a target, all of them, against what the captures say.

    Args:
        logs: where they are, by their source tables' names.
    """
    batches = walreplay.read_changes([str(path) for path in captures])
    expected = changes_of(batches)
    places = {
        (line.path, line.offset) for line in transcribe([str(path) for path in captures]) if line.message in CHANGED
    }
    assert logs.keys() == expected.keys()
    for name, location in logs.items():
        found = logged(spark, location)
        columns = list(found[0])
        assert columns[: len(FIRST)] == FIRST
        assert columns[-len(LAST) :] == LAST
        for row in found:
            del row["__origin"]
            assert (_local(row.pop("__file")), row.pop("__offset")) in places, name
        assert [comparable(row) for row in found] == [comparable(row) for row in expected[name]], name


def _local(path: str) -> str:
    return path.removeprefix("file://").removeprefix("file:")


def logs_of(report: walreplay.RunReport) -> dict[str, str]:
    """Return where the change logs are that a run has written to, by their source tables' names."""
    suffix = Output.CHANGELOG.suffix
    return {one.name.removesuffix(suffix): one.location for one in report.tables if one.name.endswith(suffix)}


def folded(log: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Fold a change log to the rows that its table has now, by SQL that anybody would write.

    Args:
        key: the columns that tell rows apart; none: rows are counted.
    """
    spark = log.sparkSession
    log.createOrReplaceTempView("log")
    listed = ", ".join(f"`{name}`" for name in columns)
    live = (
        "SELECT * FROM log WHERE struct(__commit_lsn, __ordinal) > (SELECT coalesce(max(struct(__commit_lsn, "
        "__ordinal)), struct(-1L AS __commit_lsn, -1L AS __ordinal)) FROM log WHERE __op = 't')"
    )
    if not key:
        olds = ", ".join(f"__before.`{name}`" for name in columns)
        return spark.sql(
            f"WITH live AS ({live}), images AS (SELECT {listed}, 1 AS __times FROM live WHERE __op IN ('c', 'u') "
            f"UNION ALL SELECT {olds}, -1 FROM live WHERE __op IN ('u', 'd')), "
            f"counted AS (SELECT {listed}, sum(__times) AS __times FROM images GROUP BY {listed} "
            "HAVING sum(__times) > 0) "
            f"SELECT {listed} FROM (SELECT {listed}, explode(sequence(1, CAST(__times AS INT))) FROM counted)"
        )
    keys = ", ".join(f"`{name}`" for name in key)
    carried = ", ".join(
        f"last_value(CASE WHEN NOT array_contains(__unchanged, '{name}') THEN struct(`{name}`) END, true) "
        f"OVER (PARTITION BY {keys} ORDER BY __commit_lsn, __ordinal).`{name}` AS `{name}`"
        for name in columns
        if name not in key
    )
    moved = " OR ".join(f"NOT __before.`{name}` <=> `{name}`" for name in key)
    old_keys = ", ".join(f"__before.`{name}` AS `{name}`" if name in key else f"NULL AS `{name}`" for name in columns)
    return spark.sql(
        f"WITH live AS ({live}), parted AS (SELECT __op, __commit_lsn, __ordinal, __unchanged, {listed} FROM live "
        f"UNION ALL SELECT 'd', __commit_lsn, __ordinal, array(), {old_keys} FROM live "
        f"WHERE __op = 'u' AND __before IS NOT NULL AND ({moved})), "
        f"carried AS (SELECT __op, {keys}, {carried + ', ' if carried else ''}"
        f"row_number() OVER (PARTITION BY {keys} ORDER BY __commit_lsn DESC, __ordinal DESC) AS nth FROM parted) "
        f"SELECT {listed} FROM carried WHERE nth = 1 AND __op <> 'd'"
    )
