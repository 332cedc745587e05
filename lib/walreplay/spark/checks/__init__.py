"""Checks before a run writes: are the captures, the tables and the ledger as the last run left them?

It reads, and restores tables whose ledger is older than they are (`setting_back`).  It applies no changes.

Entry points: `places.check_places`, `tables.TableChecks`, `siblings.apart_from_siblings`.

Uses: delta, delta, ledger, planning, session, settings, sink, staging, transactions, workers, writing.
Used by: job.
"""
