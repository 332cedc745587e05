"""Bring one mirror table up to date: move it, alter its columns, then make one commit per epoch.

A `planning.table_run.TableRun` says what to do, `staging` has the rows, and `writing` writes them.  Each table is
handled by itself; the ledger is not used here.

Entry points: `update.apply_table`, `move.move`.

Uses: delta, delta, ledger, planning, session, sink, staging, types, workers, writing.
Used by: job.
"""
