"""Schema evolution: how a table's columns follow its source's, and how values come to another type.

`shapes` compares two versions of a relation.  `convert` converts columns as the source's own cast does (`casts`), or
else exactly or not at all, by the texts that `texts` reads.  `comments` has the comments.  It works on Arrow columns,
without Spark and without files.

Entry points: `shapes.Evolution`, `convert.convert`.

Uses: decode, protocol, types.
Used by: delta, fold, job, ledger, table, writing.
"""
