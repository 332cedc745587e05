"""Base loads: the rows that tables had before the capture began, without Spark.

Entry points: `copy_files.read_cells` (rows of COPY as cells), `typed_rows` (rows in Arrow's columns),
`description.read_description` (what the tables are, and which file is which table's), `database` (what is asked
of PostgreSQL, where Spark reads it).

Uses: decode, protocol, recording, types.
Used by: cli, job, ledger, spark.
"""
