"""That captures, tables and ledger are as a run may find them, and what is done where they are not.

It reads, and sets tables back where their ledger is older; it applies nothing.  It stands on `planning`, `ledger` and
`delta`; `job` asks it before anything is written.
"""
