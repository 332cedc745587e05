"""Compile kernels to machine code, or load them from the library that was built with the package.

It knows what a kernel is, and nothing of bytes, messages or types.

Entry points: `kernel` declares a kernel, `parameters` its parameters.

Uses: nothing.
Used by: columns, kernel_build, kernels, sessions, sink.
"""
