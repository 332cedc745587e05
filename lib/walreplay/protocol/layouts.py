"""The fixed parts of the messages, as they lie on the wire behind the tag: all integers big-endian."""

from struct import Struct
from typing import Final

UINT8: Final = Struct("!B")
INT16: Final = Struct("!h")
INT32: Final = Struct("!i")
UINT32: Final = Struct("!I")

BEGIN: Final = Struct("!QqI")  # final_lsn, commit_time, xid
COMMIT: Final = Struct("!BQQq")  # flags, commit_lsn, end_lsn, commit_time
ORIGIN: Final = Struct("!Q")  # origin_lsn; name follows
MESSAGE: Final = Struct("!BQ")  # flags, lsn; prefix, length, content follow

RELATION_END: Final = Struct("!Bh")  # replica_identity, number of columns; oid, namespace, name precede
COLUMN_END: Final = Struct("!Ii")  # type_oid, typmod; flags and name precede
TRUNCATE: Final = Struct("!iB")  # number of relations, options; the OIDs follow

STREAM_START: Final = Struct("!IB")  # xid, first_segment
STREAM_COMMIT: Final = Struct("!IBQQq")  # xid, flags, commit_lsn, end_lsn, commit_time
STREAM_ABORT: Final = Struct("!II")  # xid, subxid
STREAM_ABORT_PARALLEL: Final = Struct("!Qq")  # abort_lsn, abort_time: behind STREAM_ABORT, version 4 only

BEGIN_PREPARE: Final = Struct("!QQqI")  # prepare_lsn, end_lsn, prepare_time, xid; gid follows
PREPARE: Final = Struct("!BQQqI")  # flags, prepare_lsn, end_lsn, prepare_time, xid; gid follows
COMMIT_PREPARED: Final = Struct("!BQQqI")  # flags, commit_lsn, end_lsn, commit_time, xid; gid follows
# flags, prepare_end_lsn, rollback_end_lsn, prepare_time, rollback_time, xid; gid follows
ROLLBACK_PREPARED: Final = Struct("!BQQqqI")
