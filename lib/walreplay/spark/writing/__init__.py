"""Rows to Delta tables: one interface (`base`), and two ways that stand behind it, `files` and `statements`.

`choice` finds out once which one a target is written by.  What a commit is made for comes from `planning`, the rows
from `staging` and `workers`; `delta` commits.  `ledger` and `tables` are handed the writer, and do not ask which it is.
"""
