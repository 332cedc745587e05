"""What Spark does for a run: list and read captures, run the workers' functions, keep what they staged.

`captures`, `base_files` and `base_rows` are what is read, `workers` runs in Spark's Python workers, `staging` has
decoded events that wait for their tables' commits, and `reached` tries which folders driver and workers reach.

Entry points: `captures.list_captures`, `staging.Staging`, `data_source`.

Uses: config, decode, delta, fold, loading, protocol, session, stream, types.
Used by: archive, job, ledger, table, walreplay, writing.
"""
