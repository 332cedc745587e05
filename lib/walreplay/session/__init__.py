"""The Spark session: getting one, settings in one of its own, its errors as ours; and which places workers reach.

`folders` reads and writes mounted folders and object stores by `pyarrow.fs`, without Spark; `reach` finds out which
ones driver and workers reach.  Nothing here knows captures, tables or the ledger.

Entry points: `session.build_session`, `isolation`, `failures.spark_errors`, `folders`.

Uses: nothing.
Used by: archive, cli, delta, job, ledger, spark, walreplay, writing.
"""
