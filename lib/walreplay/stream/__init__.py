"""Transactions across files and runs: which are complete, in which order they commit, and where the next run starts.

`stitch` joins the summaries of all files to one stream and makes the *plan* (`plan`): which byte ranges are decoded, in
commit order (`schedule`).  Streamed and prepared transactions are kept as references to their bytes (`deferred`), not
as rows.

Entry points: `stitch.Stitch`, `plan.Plan`.

Uses: decode, protocol, types.
Used by: archive, changes, job, ledger, spark, table.
"""
