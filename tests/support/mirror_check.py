"""Compare a target with the truth of a capture, in any environment.

``python -m support.mirror_check TARGET CASE [with-outputs]``: with outputs, each table has a history and a change log.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from support.captures import case
from support.truth import BEYOND, NOTHING, Actual, assert_equal, mirror_tables, read_tables_by_spark, source_tables
from walreplay.delta import statements as delta
from walreplay.delta.target import Target
from walreplay.session.session import build_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WITH_OUTPUTS = "with-outputs"


def main(place: str, name: str, outputs: str = "") -> None:
    """Compare."""
    assert outputs in ("", _WITH_OUTPUTS)
    spark, recorded, target = build_session(), case(name), Target.parse(place)
    sources = source_tables(recorded)
    if target.root is not None and "://" not in target.root:
        places = mirror_tables(target.root)
        for mirror in [source.qualified_name for source in sources] if outputs else ():
            path, log = places[mirror], places.pop(f"{mirror}__changes")
            assert spark.read.format("delta").load(str(log)).count() > 0, log
            _check_history(spark, str(path), str(places.pop(f"{mirror}__history")))
        actual = read_tables_by_spark(spark, places)
    else:
        actual = {}
        for source in sources:
            frame = delta.read(spark, target.table(source.schema, source.name))
            fields = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
            actual[source.qualified_name] = Actual(fields, frame.toArrow())
    assert_equal(actual, sources, BEYOND.get(recorded.name, NOTHING))


def _check_history(spark: SparkSession, mirror: str, history: str) -> None:
    """Assert that the versions that are in force are the mirror's rows."""

    def rows(path: str, only: str = "true") -> Counter[str]:
        frame = spark.read.format("delta").load(path).where(only)
        names = [name for name in frame.columns if not name.startswith("_")]
        return Counter(map(repr, frame.select(*(f"`{name}`" for name in names)).collect()))

    is_so = rows(mirror)
    assert is_so, mirror
    assert rows(history, "__end_lsn IS NULL") == is_so, history


if __name__ == "__main__":
    main(*sys.argv[1:])
