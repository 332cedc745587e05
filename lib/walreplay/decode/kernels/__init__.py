"""The compiled functions of the decoder: they walk messages, place rows in columns and convert values.

They are functions of arrays and integers, in the subset of Python that numba compiles.  They check no bounds and raise
nothing: each returns a number, which its caller interprets.

Entry points: `walk` (messages), `place` (rows to columns), `fixed`, `text` and `binary` (values).

Uses: compile, protocol, types.
Used by: columns, decode, loading, sessions, stream.
"""
