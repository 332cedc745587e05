"""What lies in an archive: single messages, what an index keeps of each file, and whether anything is missing.

`index` is the Delta table with a row for each file; `joining` goes through an archive's files, reads those alone that
the table does not know, and joins them to one stream; `facts` is what is known of each.  `audit` reads all.

Entry points: `index.ArchiveIndex`, `building.index`, `audit.audit`, `messages.inspect_captures`.

Uses: config, decode, delta, protocol, session, spark, stream, types, writing.
Used by: cli, job, walreplay.
"""
