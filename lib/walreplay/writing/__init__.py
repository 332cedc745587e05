"""Bring tables up to date: move one, alter its columns, then make one commit per epoch.

`by_statements.TableWriter` is the one interface to a table's rows, and writes by Spark's statements.
`by_files.FileWriter` overrides it: Python writes Parquet, `walreplay.delta.local` commits.  `choose_writer` chooses.
Each session (`spark`) is one that only the caller uses: its settings mark commits.

Entry points: `update.apply_table`, `move.move`, `by_statements.TableWriter`, `by_files.choose_writer`.

Uses: config, delta, evolution, fold, session, spark, table, types.
Used by: archive, job, ledger.
"""
