"""Decoded events between the pass over the files and the tables' commits.

The files are decoded once, whatever the number of tables; what comes out lies in files that tasks write (`files`), or
in Spark's tables (`by_spark`), until the run ends.  Both are one interface (`base`).
"""
