"""What a fold and a MERGE mean, without Spark.

`events` makes of decoded batches what a fold takes in, `fold` reduces it to one row per row identity, `identity`
says what makes two rows the same.
"""
