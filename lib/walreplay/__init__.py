"""Turn archived PostgreSQL logical replication (pgoutput) into Delta tables.

>>> import walreplay
>>> for batch in walreplay.read_changes("tests/captures/o03_basic_split_bytes/capture"):  # Arrow, without Spark
...     print(batch.relation.qualified_name, batch.data.num_rows)
shop.orders 110
shop.order items 301
shop.customers 131
shop.products 74

With Spark and Delta the same becomes tables:

>>> report = walreplay.apply(spark, captures="/data/captures", target="/data/mirror")  # doctest: +SKIP

Names are loaded on first use: importing the package costs nothing, and reading changes needs no pyspark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from walreplay.changes import ChangeBatch, read_changes
    from walreplay.errors import WalReplayError
    from walreplay.report import Forecast, MaintenanceReport, RunReport, SourceReport, SourcesReport
    from walreplay.settings import Configuration, Settings, source_settings
    from walreplay.spark.captures.data_source import PgoutputDataSource
    from walreplay.spark.index.audit import audit
    from walreplay.spark.index.audited import AuditReport
    from walreplay.spark.index.building import IndexReport, index
    from walreplay.spark.job.apply import apply
    from walreplay.spark.job.as_of import AsOf, as_of
    from walreplay.spark.job.backfill import backfill, forecast
    from walreplay.spark.job.by_source import apply_sources, sources_status
    from walreplay.spark.job.load import give_up_load, load
    from walreplay.spark.job.maintain import maintain
    from walreplay.spark.job.rebuild import rebuild
    from walreplay.spark.ledger.status import Cut, TargetStatus, status, versions_at
    from walreplay.spark.session.package import package_zip

__all__ = [
    "AsOf",
    "AuditReport",
    "ChangeBatch",
    "Configuration",
    "Cut",
    "Forecast",
    "IndexReport",
    "MaintenanceReport",
    "PgoutputDataSource",
    "RunReport",
    "Settings",
    "SourceReport",
    "SourcesReport",
    "TargetStatus",
    "WalReplayError",
    "__version__",
    "apply",
    "apply_sources",
    "as_of",
    "audit",
    "backfill",
    "forecast",
    "give_up_load",
    "index",
    "load",
    "maintain",
    "package_zip",
    "read_changes",
    "rebuild",
    "source_settings",
    "sources_status",
    "status",
    "versions_at",
]

__version__ = "0.1.0"

_HOMES: Final = {
    "AsOf": "walreplay.spark.job.as_of",
    "AuditReport": "walreplay.spark.index.audited",
    "ChangeBatch": "walreplay.changes",
    "Configuration": "walreplay.settings",
    "Cut": "walreplay.spark.ledger.status",
    "Forecast": "walreplay.report",
    "IndexReport": "walreplay.spark.index.building",
    "MaintenanceReport": "walreplay.report",
    "PgoutputDataSource": "walreplay.spark.captures.data_source",
    "RunReport": "walreplay.report",
    "Settings": "walreplay.settings",
    "SourceReport": "walreplay.report",
    "SourcesReport": "walreplay.report",
    "TargetStatus": "walreplay.spark.ledger.status",
    "WalReplayError": "walreplay.errors",
    "apply": "walreplay.spark.job.apply",
    "apply_sources": "walreplay.spark.job.by_source",
    "as_of": "walreplay.spark.job.as_of",
    "audit": "walreplay.spark.index.audit",
    "backfill": "walreplay.spark.job.backfill",
    "forecast": "walreplay.spark.job.backfill",
    "index": "walreplay.spark.index.building",
    "give_up_load": "walreplay.spark.job.load",
    "load": "walreplay.spark.job.load",
    "maintain": "walreplay.spark.job.maintain",
    "package_zip": "walreplay.spark.session.package",
    "read_changes": "walreplay.changes",
    "rebuild": "walreplay.spark.job.rebuild",
    "source_settings": "walreplay.settings",
    "sources_status": "walreplay.spark.job.by_source",
    "status": "walreplay.spark.ledger.status",
    "versions_at": "walreplay.spark.ledger.status",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'walreplay' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
