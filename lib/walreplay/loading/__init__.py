"""Base loads: the rows that tables had before the capture began, read from files of COPY, without Spark.

Entry points: `copy_files.read_cells` (rows taken apart), `description.read_description` (what the tables are),
`sources` (which file is which table's).

Uses: decode, protocol, types.
Used by: spark.
"""
