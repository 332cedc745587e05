"""Rows of a target that are compared by value: their texts may have been sent under other settings.

A MERGE compares what stands in the table.  So what is to be merged is brought to that before: Python gives the texts of
both sides one form, and where the forms are the same the target's text takes the place of the source's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from walreplay.sink.by_value import by_value
from walreplay.spark.delta.sql_types import sql_schema
from walreplay.spark.workers.process import spark_task
from walreplay.types.by_value import STRUCTURED, Form

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TEXT: Final = "text"
_FORMED: Final = "form"


@spark_task
def form_batches(batches: Iterable[pa.RecordBatch], *, form: Form) -> Iterator[pa.RecordBatch]:
    """Give texts with what stands for their values."""
    for batch in batches:
        texts = batch.column(0)
        yield pa.RecordBatch.from_arrays([texts, by_value(texts, form)], names=[_TEXT, _FORMED])


def formed(spark: SparkSession, query: str, form: Form, kind: pa.DataType, view: str) -> str:
    """Give the name of a view of texts and their forms.

    Args:
        query: SQL for a column `text` of the texts, each once.
        kind: strings, or lists of them.
    """
    schema = pa.schema([pa.field(_TEXT, kind), pa.field(_FORMED, kind)])
    spark.sql(query).mapInArrow(partial(form_batches, form=form), sql_schema(schema)).createOrReplaceTempView(view)
    return view


def may_differ(frame: DataFrame, columns: Mapping[str, Form], condition: str = "true") -> bool:
    """Say whether any row has a text that may stand in the target in another form.

    Args:
        columns: the forms of the frame's columns.
    """
    pattern = STRUCTURED.replace("\\", "\\\\")
    terms = [
        f"{name} RLIKE '{pattern}'" if form is Form.SHAPE else f"{name} IS NOT NULL" for name, form in columns.items()
    ]
    return bool(terms) and not frame.where(f"({condition}) AND ({' OR '.join(terms)})").limit(1).isEmpty()


def with_bases(
    spark: SparkSession, source: DataFrame, target: str, keys: Sequence[tuple[str, str, pa.DataType, Form | None]]
) -> DataFrame:
    """Give rows to merge with ``b0`` …: the key that each has in the target, or its own where there is none.

    Args:
        target: the table in SQL.
        keys: of each key column the source's, the target's (quoted), its type, and the form that it is compared by.
    """
    own = "walreplay_keys"
    source.createOrReplaceTempView(own)
    formed_there, formed_here, joins_there, joins_here = [], [], [], []
    for k, (column, place, kind, form) in enumerate(keys):
        if form is None:
            exact = "CAST({} AS STRING)" if pa.types.is_floating(kind) else "{}"
            formed_there.append(f"{exact.format(f't.{place}')} AS v{k}")
            formed_here.append(f"{exact.format(f's.{column}')} AS v{k}")
            continue
        there = formed(
            spark,
            f"SELECT DISTINCT {place} AS {_TEXT} FROM {target} WHERE {place} IS NOT NULL",
            form,
            kind,
            f"walreplay_there_{k}",
        )
        here = formed(
            spark,
            f"SELECT DISTINCT {column} AS {_TEXT} FROM {own} WHERE {column} IS NOT NULL",
            form,
            kind,
            f"walreplay_here_{k}",
        )
        formed_there.append(f"m{k}.{_FORMED} AS v{k}")
        formed_here.append(f"m{k}.{_FORMED} AS v{k}")
        joins_there.append(f"JOIN {there} AS m{k} ON t.{place} = m{k}.{_TEXT}")
        joins_here.append(f"LEFT JOIN {here} AS m{k} ON s.{column} = m{k}.{_TEXT}")
    numbers = range(len(keys))
    listed = ", ".join(f"v{k}" for k in numbers)
    texts = ", ".join(f"x{k}" for k, (_, _, _, form) in enumerate(keys) if form is not None)
    stored = (
        f"SELECT {listed}, min(struct({texts})) AS own FROM (SELECT {', '.join(formed_there)}, "
        f"{', '.join(f't.{place} AS x{k}' for k, (_, place, _, _) in enumerate(keys))} FROM {target} AS t "
        f"{' '.join(joins_there)}) GROUP BY {listed}"
    )
    others = [name for name in source.columns if name not in {f"b{k}" for k in numbers}]
    bases = ", ".join(
        f"{f's.{column}' if form is None else f'coalesce(o.own.x{k}, s.{column})'} AS b{k}"
        for k, (column, _, _, form) in enumerate(keys)
    )
    same = " AND ".join(f"s.v{k} <=> o.v{k}" for k in numbers)
    return spark.sql(
        f"SELECT {', '.join(f's.{name}' for name in others)}, {bases} FROM (SELECT s.*, {', '.join(formed_here)} "
        f"FROM {own} AS s {' '.join(joins_here)}) AS s LEFT JOIN ({stored}) AS o ON {same}"
    )


__all__ = ["form_batches", "formed", "may_differ", "with_bases"]
