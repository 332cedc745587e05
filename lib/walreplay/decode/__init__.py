"""The vectorized decoder: capture bytes to typed Arrow columns, without a Python object per row or value.

The way of the bytes: `onepass` and `files` open files and find where they begin; `scan` sums a file up, `decoder`
gathers its rows; both walk it by `stream`, which stands on `walk`.  Rooms beside it: `sessions` (what a torn message
does to a stream), `columns` (builders, a module a family of types), `kernels` (what is compiled), `compile` (how).
"""
