"""Sessions: find where one connection's bytes end and the next one's begin, although nothing marks the place.

A session ends at a reconnect, perhaps in the middle of a message.  `starts` and `torn_messages` look at one place,
`readings` reads one session, `breaks` explains where a stream broke, and `parting` divides a buffer into sessions.  For
whole files, `resync` finds a message's boundary, `first_session` finds the framing, and `foreign_files` recognises
files that are no captures.  No row is decoded here.

Entry points: `parting.find_sessions`, `resync.find_boundary`, `first_session.framing_of`.

Uses: compile, decode, kernels, protocol, types.
Used by: decode, inspection, transactions, transcript.
"""
