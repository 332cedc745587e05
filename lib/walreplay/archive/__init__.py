"""What lies in an archive: single messages, what an index keeps of each file, and whether anything is missing.

`index` is a Delta table with a row for each file; `joining` joins all files to one stream and updates it; `facts` has
what is known of each file, `messages` summarises or lists messages, `audit` decodes all.

Entry points: `index.ArchiveIndex`, `joining.index`, `audit.audit`, `messages.inspect_captures`.

Uses: config, decode, delta, ledger, protocol, session, spark, stream, types, writing.
Used by: cli, job, walreplay.
"""
