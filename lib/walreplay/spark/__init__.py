"""The Spark job: the only package that imports pyspark and delta.

Its rooms, from the top floor down; an import points to a lower floor or stays in its room:

- `job`: the phases of a run, one behind the other.
- `checks`: that captures, tables and ledger are as a run may find them, and what is done where they are not.
- `tables`: one mirror table brought up to date.
- `planning`: which relation belongs to which table, and what a run does to it.
- `ledger`: what was read, what was applied, and where the next run goes on.
- `writing`: rows to tables, by whichever way the target allows.
- `staging`: decoded events between the pass over the files and the tables.
- `captures`: the capture files as Spark lists and reads them.
- `workers`: what runs in Spark's Python workers.
- `delta`: Delta as it is used here: statements, transactions, names and places of tables.
- `session`: getting a Spark session, and what goes for all of it.
"""
