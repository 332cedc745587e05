"""The configuration: YAML or a `dict`, checked before anything is read or written.

Every problem is a `walreplay.errors.ConfigError` with the file, the line, the key and what was expected there; for an
unknown key it also names the nearest right one.  Spark's workers do not import this package: what tasks need of the
configuration is in `walreplay.task_settings`.

Entry points: `Settings`, `load_settings`, `make_settings`.

Uses: types.
Used by: cli, selection, spark, walreplay.
"""

from walreplay.settings.document import load_settings, make_settings
from walreplay.settings.keys import same_columns
from walreplay.settings.model import (
    COMMIT_LSN,
    COMMIT_TS,
    DEFAULT_BUCKET_BYTES,
    CaptureSettings,
    DropColumnPolicy,
    MetadataSettings,
    MissingRowPolicy,
    OrderName,
    OriginSettings,
    RecreatePolicy,
    Settings,
    TableSettings,
    TypeChangePolicy,
)

__all__ = [
    "COMMIT_LSN",
    "COMMIT_TS",
    "DEFAULT_BUCKET_BYTES",
    "CaptureSettings",
    "DropColumnPolicy",
    "MetadataSettings",
    "MissingRowPolicy",
    "OrderName",
    "OriginSettings",
    "RecreatePolicy",
    "Settings",
    "TableSettings",
    "TypeChangePolicy",
    "load_settings",
    "make_settings",
    "same_columns",
]
