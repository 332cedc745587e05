"""What changes mean for a table, computed on Arrow without Spark: the fold, the MERGE, and columns that change.

- Fold: `intake` turns decoded rows into `events`, and `merge` folds them, by the kernels in `fold` (keys) and `images`
  (whole rows).  `routes` says which events have to meet, `identity` which columns identify a row.
- Histories: `versions` turns events into versions of rows, by the kernels in `version_fold`; `watched` says which
  changes begin none.
- Columns: `evolution` says how a table's columns follow its relation, `projection` converts rows accordingly.
- Files: `data_files` writes Parquet, `table_log` reads Delta's log, `staged_file` holds events until they are folded.
- Small tables: `small_table` reads one and finds equal rows, `rewriting` rewrites it, `closing` does so for a history.

It runs on executors and commits nothing: that is for `walreplay.spark`.

Uses: decode, protocol, types.
Used by: delta, kernel_build, spark.
"""
