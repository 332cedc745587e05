"""The configuration: YAML or a `dict`, checked before anything is read or written.

Every problem is a `walreplay.errors.ConfigError` with the file, the line, the key and what was expected there; for an
unknown key it also names the nearest right one.  Spark's workers do not import this package: what tasks need of the
configuration is in `walreplay.task_settings`.

`Settings` are of one source; a `Configuration` may have several (`source_settings` returns one's).

Entry points: `Settings`, `make_settings`; `Configuration`, `make_configuration`, `source_settings`.

Uses: protocol, types.
Used by: archive, cli, job, spark, table, walreplay, writing.
"""

from walreplay.config.document import (
    Configuration,
    SourceSettings,
    load_configuration,
    make_configuration,
    make_settings,
    source_settings,
)
from walreplay.config.keys import OrderName, same_columns
from walreplay.config.model import Settings, TableSettings

__all__ = [
    "Configuration",
    "OrderName",
    "Settings",
    "SourceSettings",
    "TableSettings",
    "load_configuration",
    "make_configuration",
    "make_settings",
    "same_columns",
    "source_settings",
]
