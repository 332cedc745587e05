"""The phases of a run, one after the other: list, scan, stitch, decode, plan, apply, record.

It decides the order, and leaves the work to the rooms below.

Entry point: `apply.apply`, which is `walreplay.apply`.

Uses: captures, checks, decode, delta, ledger, planning, protocol, session, settings, staging, tables, transactions,
workers, writing.
Used by: walreplay.
"""
