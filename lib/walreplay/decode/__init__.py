"""The vectorized decoder: capture bytes to typed Arrow columns, without a Python object per row or value.

The way of the bytes: `onepass` and `files` open a file and find where its first message begins.  `scan` summarises the
file, `decoder` decodes its rows.  Both walk over the messages with `stream`, which calls the compiled `walk`.

Rooms inside: `sessions` (reconnects and torn messages), `columns` (builders, one module per family of types),
`kernels` (what is compiled), `compile` (how it is compiled).

It decodes what it is told to decode.  Which transactions are applied is decided in `walreplay.stream`.

Entry points: `files.scan_file`, `decoder.Decoder`, `onepass.OnePass`; their results are defined in `summary` and
`walk`.

Uses: protocol, types.
Used by: archive, changes, evolution, fold, job, kernel_build, loading, spark, stream, table.
"""
