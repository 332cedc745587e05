"""Delta tables: by delta-rs and without Spark (`local`), and by Spark's statements (`statements`).

`target` names tables and places, `data_files` writes Parquet with Delta's statistics, `small_table` merges folded rows
into a small table that it rewrites, `staged_file` keeps events until they are folded.  What rows mean is unknown here.

Entry points: `opened.OpenedTable`, `local.LocalTable`, `statements`, `target.Target`.

Uses: decode, evolution, fold, session.
Used by: archive, job, ledger, spark, table, writing.
"""
