"""Rows to Delta tables, by whichever way the target allows: files of our own, or Spark's statements.

It stands on `workers`, which write the files, and on `delta`, which commits them.  `ledger` and `tables` write by it.
"""
