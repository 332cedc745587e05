"""Sessions: find where one connection's bytes end and the next one's begin, although nothing marks the place.

A session ends at a reconnect, perhaps in the middle of a message.  `starts` and `torn_messages` look at one place,
`readings` reads one session, `breaks` explains where a stream broke, and `parting` divides a buffer into sessions, and
recognises files that are no captures.  For whole files, `resync` finds a message's boundary.  No row is decoded here.

Entry points: `parting.find_sessions`, `resync.find_boundary`, `parting.framing_of`.

Uses: compile, decode, kernels, protocol, types.
Used by: archive, decode, stream.
"""
