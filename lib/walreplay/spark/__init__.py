"""What Spark does for a run: list and read captures, run the workers' functions, keep what they staged.

`captures`, `base_files` and `base_rows` are what is read, `workers` runs in Spark's Python workers, `staging` is the
interface to decoded events that wait for their tables' commits, and `staged_rows` its two forms.

Entry points: `captures.list_captures`, `staging.Staging`, `data_source`.

Uses: config, decode, delta, fold, loading, protocol, session, stream, types.
Used by: archive, job, ledger, table, walreplay, writing.
"""
