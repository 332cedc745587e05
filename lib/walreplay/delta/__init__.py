"""Delta tables: by delta-rs and without Spark (`local`), and by Spark's statements (`statements`).

`target` names tables and places, `data_files` writes Parquet with Delta's statistics, `small_table` writes a small
table anew with folded rows in it, `staged_file` holds events until they are folded.  What rows mean is not known here.

Entry points: `local.LocalTable`, `statements`, `target.Target`.

Uses: evolution, fold, session, types.
Used by: archive, cli, job, ledger, spark, table, writing.
"""
