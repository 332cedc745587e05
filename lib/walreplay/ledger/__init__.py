"""The ledger: what was read, what was applied, where the next run starts, and who is at work.

These are Delta tables beside the mirror.  A run begins by reading ``state`` alone; ``runs``, ``files``,
``transactions`` and ``messages`` are history.  The ledger knows mirror tables by their entries
(`walreplay.table.registry`), and never opens one.

Entry points: `ledger.Ledger`, `status.status`, `status.versions_at`, `runs.keep_small`.

Uses: decode, delta, evolution, loading, protocol, session, spark, stream, table, writing.
Used by: archive, cli, job, walreplay.
"""
