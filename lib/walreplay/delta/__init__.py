"""Delta tables that Python reads and commits to by itself, by delta-rs and without Spark.

Nothing here knows what a row means.  Tables that delta-rs does not write, and places that the driver does not reach,
are left to Spark's statements (`walreplay.spark.writing.statements`).

Entry points: `local.LocalTable`, `local.newest_version`.

Uses: sink.
Used by: spark.
"""
