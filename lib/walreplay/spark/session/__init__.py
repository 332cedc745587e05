"""The Spark session: getting one, isolating settings in one, and telling Spark's exceptions as errors of ours.

It knows nothing of captures, tables or the ledger.

Entry points: `session.build_session`, `isolation`, `failures.spark_errors`.

Uses: sink.
Used by: captures, checks, cli, delta, index, job, ledger, staging, tables, walreplay, writing.
"""
