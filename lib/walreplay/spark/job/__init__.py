"""The phases of a run, one after the other: list, scan, stitch, decode, plan, apply, record.

It decides the order, and leaves the work to the rooms below.

`apply` does one run after the other, `applying` is one run behind its plan.  `backfill` ends the runs at a moment.
`as_of` writes queries for what the tables held at one.

Entry points: `apply.apply` and `backfill.backfill`, which are `walreplay.apply` and `walreplay.backfill`.

Uses: captures, checks, decode, delta, index, ledger, loading, planning, protocol, session, settings, sink, staging,
tables, transactions, workers, writing.
Used by: cli, walreplay.
"""
