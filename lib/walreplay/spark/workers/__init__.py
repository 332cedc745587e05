"""The functions that run in Spark's Python workers: scan, decode, fold, write, load and audit, over Arrow batches.

An error in a capture is returned as a row, so that the driver can report it in one line instead of a worker's
traceback.  Workers know nothing of Spark, the settings or the ledger: what a task needs is pickled with it.

Entry points: one module per stage (`scan`, `decode`, `fold`, `write`); `rows` has the schemas of what they return.

Uses: decode, delta, fold, loading, protocol, session, stream, types.
Used by: archive, job, ledger, spark, table, writing.
"""
