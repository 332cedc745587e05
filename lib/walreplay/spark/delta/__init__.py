"""Delta by Spark: statements, and the names and locations of tables.  Nothing here knows what a row means.

Entry points: `target.Target`, `statements`, `located.opened_at`.

Uses: delta, session, sink.
Used by: captures, checks, cli, index, job, ledger, planning, staging, tables, writing.
"""
