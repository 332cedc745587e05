"""Compile kernels to machine code, or load them from the library that was built with the package.

Nothing here depends on messages, rows or types.

Entry points: `kernel` declares a kernel, `parameters` its parameters.

Uses: nothing.
Used by: fold, job, kernel_build, kernels, sessions.
"""
