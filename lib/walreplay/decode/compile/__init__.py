"""How kernels come to be machine code: from the library that was built with the package, or by numba.

The lowest floor of `walreplay.decode`: it knows what a kernel is, and nothing of bytes or messages.
"""
