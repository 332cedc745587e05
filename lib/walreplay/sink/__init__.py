"""What a fold and a MERGE mean, without Spark.

`intake` makes `events` of decoded batches; `merge` folds them, first per file and then all, by the kernels of `fold`
(keys) and `images` (whole rows); `routes` says which events have to meet; `identity` what makes two rows the same.
`evolution` and `projection` bring rows of other relation versions into the table's shape.
"""
