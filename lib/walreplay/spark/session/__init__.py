"""Getting a Spark session, having one of one's own, and telling what Spark throws as errors of ours.

The lowest floor of the package: it knows nothing of captures, tables or the ledger.
"""
