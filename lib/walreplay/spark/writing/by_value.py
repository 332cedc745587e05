"""Compare rows to merge with the target by value, because its texts may have been sent under other settings.

A MERGE compares texts as they are.  So Python first brings the texts of both sides into one form for each value.  If
the forms of two texts are equal, the target's text replaces the source's before the MERGE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from walreplay.spark.delta.sql_types import sql_schema
from walreplay.spark.workers.compare import FORMED, TEXT, form_batches
from walreplay.types.by_value import STRUCTURED, Form

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def formed(spark: SparkSession, query: str, form: Form, kind: pa.DataType, view: str) -> str:
    """Create a view with the columns ``text`` and ``form``; give its name.

    Args:
        query: SQL for a column ``text``, without duplicates.
        kind: the type of the texts: strings, or lists of strings.
        view: the name for the view.
    """
    schema = pa.schema([pa.field(TEXT, kind), pa.field(FORMED, kind)])
    spark.sql(query).mapInArrow(partial(form_batches, form=form), sql_schema(schema)).createOrReplaceTempView(view)
    return view


def may_differ(frame: DataFrame, columns: Mapping[str, Form], condition: str = "true") -> bool:
    """Say whether any row has a text that the target may hold as another text of the same value.

    Args:
        columns: columns of the frame, and the form of each.
        condition: SQL for the rows that are looked at.
    """
    pattern = STRUCTURED.replace("\\", "\\\\")
    terms = [
        f"{name} RLIKE '{pattern}'" if form is Form.SHAPE else f"{name} IS NOT NULL" for name, form in columns.items()
    ]
    return bool(terms) and not frame.where(f"({condition}) AND ({' OR '.join(terms)})").limit(1).isEmpty()


def with_bases(
    spark: SparkSession, source: DataFrame, target: str, keys: Sequence[tuple[str, str, pa.DataType, Form | None]]
) -> DataFrame:
    """Add the columns ``b0`` … to rows to merge: each row's key as the target writes it, else the row's own.

    Args:
        target: the table's name in SQL.
        keys: for each key column: its name in the source, its quoted name in the target, its type, and the form by
            which it is compared.
    """
    own = "walreplay_keys"
    source.createOrReplaceTempView(own)
    formed_there, formed_here, joins_there, joins_here = [], [], [], []
    for k, (column, place, kind, form) in enumerate(keys):
        if form is None:
            exact = "CAST(CAST({} AS DOUBLE) AS STRING)" if pa.types.is_floating(kind) else "{}"
            formed_there.append(f"{exact.format(f't.{place}')} AS v{k}")
            formed_here.append(f"{exact.format(f's.{column}')} AS v{k}")
            continue
        there = formed(
            spark,
            f"SELECT DISTINCT {place} AS {TEXT} FROM {target} WHERE {place} IS NOT NULL",
            form,
            kind,
            f"walreplay_there_{k}",
        )
        here = formed(
            spark,
            f"SELECT DISTINCT {column} AS {TEXT} FROM {own} WHERE {column} IS NOT NULL",
            form,
            kind,
            f"walreplay_here_{k}",
        )
        formed_there.append(f"m{k}.{FORMED} AS v{k}")
        formed_here.append(f"m{k}.{FORMED} AS v{k}")
        joins_there.append(f"JOIN {there} AS m{k} ON t.{place} = m{k}.{TEXT}")
        joins_here.append(f"LEFT JOIN {here} AS m{k} ON s.{column} = m{k}.{TEXT}")
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


__all__ = ["formed", "may_differ", "with_bases"]
