"""The phases of a run, one after the other: list, scan, stitch, decode, plan, apply, record.

It decides the order, and leaves the work to the rooms below.

`apply` does one run after the other, `applying` is one run behind its plan.  `backfill` ends the runs at a moment, and
`forecasting` applies none of them.  `rebuild` makes tables beside, and `installing` puts them in place.  `as_of` writes
queries for what the tables held at a moment.  `by_source` does runs for each of several sources.

Entry points: `apply.apply`, `backfill.backfill`, `rebuild.rebuild` and `by_source.apply_sources`, which are
`walreplay.apply` and so on.

Uses: captures, checks, decode, delta, index, ledger, loading, planning, protocol, session, settings, sink, staging,
tables, transactions, workers, writing.
Used by: cli, walreplay.
"""
