"""Record a slot's stream into an archive, and confirm to the server what the store has, and no more.

Uses: nothing.
Used by: cli, job, loading.
"""
