"""What a run will do: which relation belongs to which mirror table, and what happens to each table.

It takes the plan of transactions (`walreplay.transactions`), the settings, and the ledger's entries (`registry`).  It
returns values that `writing` and `tables` follow.  Nothing is written here.

Entry points: `versions.Catalogue`, `placement.place`, `plan.plan_tables`; `table_run.TableRun` is what one table gets.

Uses: decode, delta, protocol, settings, sink, staging, transactions, types, workers.
Used by: checks, job, ledger, tables, writing.
"""
