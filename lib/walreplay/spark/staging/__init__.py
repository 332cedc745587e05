"""Staged events: what was decoded and folded per file, kept until the tables are committed.

The files are decoded once, however many tables there are.  The events lie in files that tasks write (`files`), or in
Spark's tables (`by_spark`), until the run ends.  Both have one interface.

Entry point: `base.Staging`.

Uses: captures, delta, delta, session, sink, workers.
Used by: checks, job, ledger, planning, tables, writing.
"""
