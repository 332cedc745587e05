"""The capture files as Spark sees them: listing, reading and scanning them in parallel.

What the bytes mean is for `walreplay.decode`.

Entry points: `files.list_captures`, `files.scan_captures`.

Uses: decode, delta, loading, protocol, session, settings, sink, workers.
Used by: index, job, staging, walreplay.
"""
