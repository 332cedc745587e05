"""The configuration: YAML, checked strictly before anything is touched.

Every problem is a `walreplay.errors.ConfigError` that names the file, the line, the key and what was expected there;
an unknown key also names the nearest right one.  What tasks need of it is `walreplay.task_settings`: no worker imports
this package.
"""

from walreplay.settings.document import load_settings, make_settings
from walreplay.settings.keys import same_columns
from walreplay.settings.model import (
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
