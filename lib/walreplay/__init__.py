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
    from walreplay.archive.audit import AuditReport, audit
    from walreplay.archive.joining import IndexReport, index
    from walreplay.changes import ChangeBatch, read_changes
    from walreplay.config import Configuration, Settings, source_settings
    from walreplay.errors import WalReplayError
    from walreplay.job.apply import apply
    from walreplay.job.as_of import AsOf, as_of
    from walreplay.job.backfill import backfill, forecast
    from walreplay.job.load import give_up_load, load
    from walreplay.job.maintain import maintain
    from walreplay.job.rebuild import rebuild
    from walreplay.job.sources import apply_sources, sources_status
    from walreplay.job.verify import verify
    from walreplay.ledger.status import Cut, TargetStatus, status, versions_at
    from walreplay.report import (
        Forecast,
        MaintenanceReport,
        RunReport,
        SourceReport,
        SourcesReport,
        TableVerification,
        VerifyReport,
    )
    from walreplay.session.session import package_zip
    from walreplay.spark.data_source import PgoutputDataSource

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
    "TableVerification",
    "TargetStatus",
    "VerifyReport",
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
    "verify",
    "versions_at",
]

__version__ = "0.1.0"

_HOMES: Final = {
    name: f"{__name__}.{module}"
    for module, names in (
        ("archive.audit", "AuditReport audit"),
        ("archive.joining", "IndexReport index"),
        ("changes", "ChangeBatch read_changes"),
        ("config", "Configuration Settings source_settings"),
        ("errors", "WalReplayError"),
        ("job.apply", "apply"),
        ("job.as_of", "AsOf as_of"),
        ("job.backfill", "backfill forecast"),
        ("job.load", "give_up_load load"),
        ("job.maintain", "maintain"),
        ("job.rebuild", "rebuild"),
        ("job.sources", "apply_sources sources_status"),
        ("job.verify", "verify"),
        ("ledger.status", "Cut TargetStatus status versions_at"),
        ("report", "Forecast MaintenanceReport RunReport SourceReport SourcesReport TableVerification VerifyReport"),
        ("session.session", "package_zip"),
        ("spark.data_source", "PgoutputDataSource"),
    )
    for name in names.split()
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
