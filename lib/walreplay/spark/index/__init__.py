"""What is in an archive's files, kept beside them, so that a later run need not read them to know.

`archive` is the Delta table with a row for each file; `joining` goes through an archive's files, reads those alone that
the table does not know, and joins them to one stream; `facts` is what is told of each.  A run that joins files by
itself uses the table by `ArchiveIndex.known`, and adds to it by a `Recording`.

Entry points: `archive.ArchiveIndex`, `recording.Recording`, `building.index`, `audit.audit`.

Uses: captures, decode, delta, delta, protocol, session, settings, transactions, workers, writing.
Used by: cli, job, walreplay.
"""
