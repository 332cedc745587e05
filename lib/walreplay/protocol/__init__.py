"""The pgoutput protocol: its messages, a reader of one message at a time, and the framings in files.

No I/O, no state beyond a call, and only the standard library; pyarrow decompresses, and is imported when a file needs
it.

Entry points: `messages`, `reader.read_stream`, `framing.Framing`, `opening.detect_framing`, `compression.decompress`.

Uses: nothing.
Used by: archive, changes, config, decode, evolution, job, ledger, loading, spark, stream, table, types.
"""
