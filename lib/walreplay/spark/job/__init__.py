"""The phases of a run, one behind the other: list, scan, stitch, decode, plan, apply, record.

It decides the order in which things are done, and leaves each of them to the floors below.  Nothing of this package
imports it but the public names in `walreplay`.
"""
