"""Delta as it is used here: statements, commits of files that Python wrote, names and locations of tables.

Calls of Delta's private classes are in `internals`, and nowhere else.  Nothing here knows what a row means.

Entry points: `target.Target`, `statements`, `transaction.begin`.

Uses: delta, session, sink.
Used by: captures, checks, cli, index, job, ledger, planning, staging, tables, writing.
"""
