"""Which relation belongs to which mirror table, and what a run does to it: nothing is written here.

It takes the plan of transactions (`walreplay.transactions`), the settings, and what the ledger knows of the tables
(`registry`); it gives values that `writing` and `tables` go by.
"""
