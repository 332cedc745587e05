"""Writing rows to Delta tables: one interface (`base.TableWriter`) with two implementations.

`files` writes Parquet from Arrow and commits it by `walreplay.delta`; `statements` uses Spark's statements.
`choice` chooses once for a target.  `ledger` and `tables` are given the writer, and do not ask which one it is.

Entry points: `choice.choose_writer`, `base.TableWriter`.

Uses: delta, delta, planning, session, settings, sink, staging, types, workers.
Used by: checks, index, job, ledger, tables.
"""
