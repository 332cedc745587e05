"""Delta as it is used here: statements, transactions of files of our own, names and places of tables.

Whatever drives Delta's private classes stands in `internals`, and nowhere else.  Nothing here knows what a row means.
"""
