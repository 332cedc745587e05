"""The vectorized decoder: capture bytes to typed Arrow columns, without a Python object per row or value.

`walk` finds the messages and gives each value's place, `columns` converts the values of one column,
`batches` keeps the columns of each relation version together, `scan` summarises a file.
"""
