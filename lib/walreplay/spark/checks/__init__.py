"""Checks before a run writes: are the captures, the tables and the ledger as the last run left them?

It reads, and restores tables whose ledger is older than they are (`setting_back`).  It applies no changes.

Entry points: `places.check_places`, `tables.TableChecks`.

Uses: delta, ledger, planning, session, sink, staging, transactions, workers.
Used by: job.
"""
