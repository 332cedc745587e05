"""The Spark job: the only package that imports pyspark.

Its rooms, from the top floor down.  An import points to a lower floor, or stays in its room:

- `job`: the phases of a run, one after the other.
- `checks`: are captures, tables and ledger as the last run left them?
- `tables`: one mirror table brought up to date.
- `ledger`: what was read, what was applied, where the next run starts, and who is at work.
- `index`: what is in an archive's files, kept beside them.
- `writing`: rows to Delta tables, by files or by statements.
- `planning`: which relation belongs to which table, and what a run does to it.
- `staging`: decoded events, kept until the tables are committed.
- `captures`: listing and reading the capture files.
- `workers`: the functions that run in Spark's Python workers.
- `delta`: Delta's statements, names and locations of tables.
- `session`: getting a Spark session.

Uses: decode, delta, loading, protocol, settings, sink, transactions, types.
Used by: cli, walreplay.
"""
