"""The vectorized decoder: capture bytes to typed Arrow columns, without a Python object per row or value.

`files` opens a file and finds where its first message begins, then `scan` summarises it.  `decoder` decodes rows by a
plan, `onepass` without one.  All walk over the messages with `stream`, which calls the compiled `walk`.  `masking`
selects, renames and hashes the columns that a table has.

Rooms inside: `sessions` (reconnects and torn messages), `columns` (builders, one module per family of types),
`kernels` (what is compiled), `compile` (how it is compiled).

Which transactions are applied is not decided here, but in `walreplay.stream`.

Entry points: `files.scan_file`, `decoder.Decoder`, `onepass.OnePass`; their results are defined in `summary` and
`walk`.

Uses: protocol, types.
Used by: archive, changes, delta, evolution, fold, job, kernel_build, ledger, loading, spark, stream, table.
"""
