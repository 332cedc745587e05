"""The pgoutput protocol: its messages, a reader and a writer of one message at a time, and the framings in files.

No I/O, no state beyond a call, and only the standard library; the packages for zstd and lz4 are imported when a file
needs them.

Entry points: `messages`, `read_stream`, `Framing`, `detect_framing`, `decompress`; `frame` writes captures for tests.

Uses: nothing.
Used by: archive, changes, config, decode, evolution, job, ledger, loading, spark, stream, table, types.
"""

from walreplay.protocol.compression import decompress, detect_compression
from walreplay.protocol.framing import Framing, Keepalive, read_copydata, read_pgcopy
from walreplay.protocol.messages import (
    AnyMessage,
    Begin,
    BeginPrepare,
    Cell,
    Column,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    Message,
    Origin,
    Prepare,
    Relation,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    TupleData,
    Type,
    Update,
)
from walreplay.protocol.opening import detect_framing
from walreplay.protocol.reader import is_streaming_after, read_message, read_stream
from walreplay.protocol.writer import encode, frame, reframe

__all__ = [
    "AnyMessage",
    "Begin",
    "BeginPrepare",
    "Cell",
    "Column",
    "Commit",
    "CommitPrepared",
    "Delete",
    "Framing",
    "Insert",
    "Keepalive",
    "Message",
    "Origin",
    "Prepare",
    "Relation",
    "RollbackPrepared",
    "StreamAbort",
    "StreamCommit",
    "StreamPrepare",
    "StreamStart",
    "StreamStop",
    "Truncate",
    "TupleData",
    "Type",
    "Update",
    "decompress",
    "detect_compression",
    "detect_framing",
    "encode",
    "frame",
    "is_streaming_after",
    "read_copydata",
    "read_message",
    "read_pgcopy",
    "read_stream",
    "reframe",
]
