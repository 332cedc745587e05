"""One mirror table brought up to date: moved, given its columns, then one commit for each of its epochs.

What is to be done stands in a `planning.table_run.TableRun`; the rows come from `staging`, and
`writing` brings them to the table.  It knows no other table, and of the ledger nothing.
"""
