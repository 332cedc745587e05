"""Checks before a run writes: are the captures, the tables and the ledger as the last run left them?

It applies no changes.  Of a ledger that is older than its tables, it removes records (`set_back`).

Entry points: `places.check_places`, `tables.TableChecks`, `siblings.apart_from_siblings`.

Uses: delta, delta, ledger, planning, session, settings, sink, staging, transactions, workers, writing.
Used by: job.
"""
