"""The fold: many changes of a row become one, or the versions of a history, or the rows of a change log.

`events` turns decoded rows into events.  `reducing` follows rows through them by their keys: a mirror takes the last
version of each (`net_changes`), a history all (`versions`).  `identity` has what tells rows apart, and whole rows,
`batches` the Arrow columns that all of them work on, without Spark and without files.

Entry points: `events.events_of`, `net_changes`, `versions.version_rows`, `change_log`.

Uses: decode, evolution, types.
Used by: delta, job, kernel_build, spark, table, writing.
"""
