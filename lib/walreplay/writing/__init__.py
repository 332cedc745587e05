"""Bring tables up to date: move one, alter its columns, then make one commit per epoch.

`writer.TableWriter` is the one interface to a table's rows: `by_files` writes Parquet by Python and commits it by
`walreplay.delta.local`, `by_statements` uses Spark's statements.  `choose_writer` chooses once for a target.

Entry points: `update.apply_table`, `move.move`, `writer.TableWriter`, `by_files.choose_writer`.

Uses: config, delta, evolution, fold, session, spark, table, types.
Used by: archive, job, ledger.
"""
