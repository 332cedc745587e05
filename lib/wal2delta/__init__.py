"""Make Delta tables of archived PostgreSQL logical replication streams (pgoutput).

>>> import wal2delta
>>> for batch in wal2delta.read_changes("tests/captures/o03_basic_split_bytes/capture"):  # Arrow, without Spark
...     print(batch.relation.qualified_name, batch.data.num_rows)
shop.orders 110
shop.order items 301
shop.customers 131
shop.products 74

With Spark and Delta the same becomes tables:

>>> report = wal2delta.apply(spark, captures="/data/captures", target="/data/mirror")  # doctest: +SKIP

Names are loaded on first use: importing the package costs nothing, and reading changes needs no pyspark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from wal2delta.changes import ChangeBatch, read_changes
    from wal2delta.errors import Wal2DeltaError
    from wal2delta.report import RunReport
    from wal2delta.settings import Settings
    from wal2delta.spark.job.apply import apply
    from wal2delta.spark.ledger.status import Cut, TargetStatus, status, versions_at

__all__ = [
    "ChangeBatch",
    "Cut",
    "RunReport",
    "Settings",
    "TargetStatus",
    "Wal2DeltaError",
    "__version__",
    "apply",
    "read_changes",
    "status",
    "versions_at",
]

__version__ = "0.1.0"

_HOMES: Final = {
    "ChangeBatch": "wal2delta.changes",
    "Cut": "wal2delta.spark.ledger.status",
    "RunReport": "wal2delta.report",
    "Settings": "wal2delta.settings",
    "TargetStatus": "wal2delta.spark.ledger.status",
    "Wal2DeltaError": "wal2delta.errors",
    "apply": "wal2delta.spark.job.apply",
    "read_changes": "wal2delta.changes",
    "status": "wal2delta.spark.ledger.status",
    "versions_at": "wal2delta.spark.ledger.status",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'wal2delta' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
