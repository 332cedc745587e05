"""What a run will do to each table: which relation belongs to it, how its columns change, and in which commits.

It takes the plan of transactions (`walreplay.stream`), the configuration, and the ledger's entries (`registry`).  It
returns values that `walreplay.writing` follows.  Nothing is written here.

Entry points: `versions.Catalogue`, `placement.plan_moves`, `plan.plan_tables`; `table_run.TableRun`, of one table, with
its commits, each of them one of the `cases.CASES`.

Uses: config, decode, delta, evolution, fold, protocol, spark, stream, types.
Used by: job, ledger, writing.
"""
