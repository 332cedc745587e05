"""How kernels come to be machine code: from the library that was built with the package, or by numba.

The lowest floor of `wal2delta.decode`: it knows what a kernel is, and nothing of bytes or messages.
"""
