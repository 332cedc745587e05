"""The phases of a run, one after the other: list, scan, stitch, decode, plan, check, apply, record.

`apply` does one run after the other, `execution` is one run behind its plan.  `backfill` ends the runs at a moment, and
plans runs without applying them (a forecast).  Tables are made again beside the target (`side_tables`, `side_build`)
and compared (`compare`): `verify` says what has come of it, `rebuild` puts others in place (`installing`).
`source_rows` has what the source itself holds.  `as_of` writes queries for what the tables held at a moment.  `sources`
does runs for each of several sources.  The modules named `…_check` refuse what is not as the last run left it, before
anything is written; `standing` is a table compared with its ledger.

Entry points: `apply.apply`, `backfill.backfill`, `rebuild.rebuild`, `verify.verify`, `load.load` and
`sources.apply_sources`, which are `walreplay.apply` and so on.

Uses: archive, config, decode, delta, evolution, fold, ledger, loading, protocol, recording, session, spark, stream,
table, writing.
Used by: cli, walreplay.
"""
