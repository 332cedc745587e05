"""The ledger: what was read, what was applied, where the next run goes on, and who is at work.

Delta tables of its own beside the mirror.  `state` alone is read to begin a run; `runs`, `files`, `relations`,
`transactions` and `messages` are history.  It knows mirror tables by their entries
(`planning.registry`), and never opens one.
"""
