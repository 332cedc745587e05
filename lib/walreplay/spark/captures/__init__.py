"""The capture files as Spark sees them: listing, reading and scanning them in parallel.

What is in the bytes is for `walreplay.decode`; here is where they lie and which task reads them.
"""
