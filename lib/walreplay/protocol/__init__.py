"""The pgoutput protocol: its messages, a reader of one message at a time, and the framings in files.

No I/O, no state beyond a call, and only the standard library; the packages for zstd and lz4 are imported when a file
needs them.

Entry points: `messages`, `reader.read_stream`, `framing.Framing`, `opening.detect_framing`, `compression.decompress`.

Uses: nothing.
Used by: archive, changes, config, decode, evolution, job, ledger, loading, spark, stream, table, types.
"""
