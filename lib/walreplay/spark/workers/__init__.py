"""What runs in Spark's Python workers: scan, decode, fold, write; functions over Arrow batches, shipped by name.

They never raise what a user should read: an error in the capture is given back as a row, so that the driver can tell
it in one line instead of a worker's traceback.  They know nothing of Spark, of settings or of the ledger: what a task
needs is pickled with it.
"""
