"""The configuration: YAML, checked strictly before anything is touched.

Every problem is a `wal2delta.errors.ConfigError` that names the file, the line, the key and what was expected there;
an unknown key also names the nearest right one.  What tasks need of it is `wal2delta.task_settings`: no worker imports
this package.
"""

from wal2delta.settings.document import load_settings, make_settings
from wal2delta.settings.keys import same_columns
from wal2delta.settings.model import (
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
