"""Compile kernels to machine code, load them from the library that was built with the package, or have Python run them.

Nothing here depends on messages, rows or types.

Entry points: `kernel` declares a kernel, `parameters` its parameters.

Uses: nothing.
Used by: cli, columns, kernel_build, kernels, sessions, sink, spark.
"""
