"""The fold: many changes of a row become one, or the versions of a history, or the rows of a change log.

`events` turns decoded rows into events, and `net_changes` folds them, by the kernels in `reducing` (keys) and
`identity` (which columns tell rows apart, and whole rows).  `versions` makes the versions of histories.  It
works on Arrow columns, without Spark and without files.

Entry points: `events.events_of`, `net_changes`, `versions.version_rows`, `change_log`.

Uses: decode, evolution, types.
Used by: delta, job, kernel_build, spark, table, writing.
"""
