"""What a torn message, damage or another session does to a stream: where one ends, and what can be read on.

It reads with the walk of `wal2delta.decode.stream`, and gives places and offsets; rows are never made here.
"""
