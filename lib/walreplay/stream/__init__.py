"""Transactions across files and runs: which are complete, in which order they commit, and where the next run starts.

`stitch` joins the summaries of all files to one stream and makes the *plan* (`plan`): which byte ranges are decoded, in
commit order (`schedule`).  What is known at the end of a file is one record (`state`), with what is `in_force` there;
streamed and prepared transactions are kept in it as references to their bytes, not as rows (`transitions`).

Entry points: `stitch.Stitch`, `plan.Plan`.

Uses: decode, protocol, types.
Used by: archive, changes, job, ledger, spark, table.
"""
