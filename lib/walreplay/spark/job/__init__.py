"""The phases of a run, one after the other: list, scan, stitch, decode, plan, apply, record.

It decides the order, and leaves the work to the rooms below.

`apply` does one run after the other, `applying` is one run behind its plan.  `backfill` ends the runs at a moment,
`by_source` does them for each of several sources.

Entry points: `apply.apply`, `backfill.backfill` and `by_source.apply_sources`.

Uses: captures, checks, decode, delta, index, ledger, loading, planning, protocol, session, settings, staging, tables,
transactions, workers, writing.
Used by: cli, walreplay.
"""
