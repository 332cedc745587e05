"""What a torn message does to a stream: where one session ends and the next begins, though nothing marks it.

From below: `starts` and `torn_messages` look at one place, `readings` at one session, `breaks` explains what broke,
`parting` cuts a buffer into sessions, `first_session` and `foreign_files` tell what a file is at all.  Stands on `scan`
and the rooms below it; never decodes a row.
"""
