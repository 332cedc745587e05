"""Transactions across files and runs: which are whole, in which order, and where the next run goes on."""
