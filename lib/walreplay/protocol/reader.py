"""The scalar reader: one message at a time, every length checked before the bytes are touched.

It is the reference that defines what the bytes mean; decoders made for speed are tested against it.
`read_message` has no state: the caller says whether the message lies inside a stream.  `read_stream` keeps that state
(`is_streaming_after` is all of it) and knows the framings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final, TypeAlias

from walreplay.errors import EncodingMismatch, FramingError, MalformedMessage, TruncatedMessage, UnknownMessage
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing, parse_frame, read_pgcopy_mark, read_trailer

Buffer: TypeAlias = bytes | memoryview
Names: TypeAlias = Callable[[bytes], str]
"""Decodes a name by the client_encoding of the session that recorded it; raises UnicodeDecodeError."""

_NUL_SEARCH_BYTES: Final = 128

_ENCODING_REMEDY: Final = (
    "Names are in the client_encoding that the capture was recorded with: if that was another one, source_encoding in "
    "the configuration says which; if not, the file is damaged"
)


def names_in_utf8(data: bytes) -> str:
    """Decode a name, unless the configuration says that names are in another encoding."""
    return data.decode()


def read_message(
    data: Buffer,
    offset: int,
    *,
    streaming: bool = False,
    parallel: bool | None = None,
    names: Names = names_in_utf8,
) -> tuple[m.AnyMessage, int]:
    """Read the message that begins at an offset; return it and the offset behind it.

    Args:
        data: what holds the message; it may end before the message does, or long after.
        offset: where the message's tag is.
        streaming: the message stands between Stream Start and Stream Stop, so most carry an xid.
        parallel: whether a Stream Abort has an LSN and a time.  None decides by what follows: the LSN's first
            byte is 0, which begins no message and is no newline.  A Stream Abort that could end with the data
            is taken to end there; more data might have shown it to be longer.
        names: decodes the names of relations, columns, types, origins and prepared transactions, and the prefixes of
            logical messages.

    Raises:
        TruncatedMessage: the data end before the message does.
        UnknownMessage: no message has this tag.
        MalformedMessage: the bytes break the message's layout.
    """
    if not 0 <= offset < len(data):
        raise TruncatedMessage("a message needs 1 byte for its tag, the data have 0", offset=offset)
    kind = _BY_TAG.get(data[offset])
    if kind is None:
        raise UnknownMessage(f"no message has the tag 0x{data[offset]:02x}", offset=offset)
    cursor = _Cursor(data, offset, _NAMES[kind], streaming=streaming, parallel=parallel, names=names)
    layout = m.LAYOUTS.get(kind)
    message = _OTHERS[kind](cursor) if layout is None else _laid_out(cursor, kind, layout)
    return message, cursor.position


def is_streaming_after(message: m.AnyMessage, streaming: bool) -> bool:
    """Return whether what follows a message stands inside a stream, given whether the message did."""
    if isinstance(message, m.StreamStart):
        return True
    if isinstance(message, m.StreamStop):
        return False
    return streaming


def read_stream(
    data: Buffer, *, framing: Framing, parallel: bool | None = None, names: Names = names_in_utf8
) -> Iterator[tuple[int, m.AnyMessage]]:
    """Read one session's whole bytes, uncut and uncompressed; yield each message with its own offset.

    Args:
        parallel: see `read_message`, as for ``names``.

    Raises:
        CaptureError: what cannot be read, with its offset; messages in front of it have been given by then.
    """
    for begin, _, message in read_messages(data, 0, framing=framing, parallel=parallel, names=names):
        yield begin, message


def read_messages(
    data: Buffer,
    offset: int,
    *,
    framing: Framing,
    streaming: bool = False,
    goes_on: bool = False,
    parallel: bool | None = None,
    names: Names = names_in_utf8,
) -> Iterator[tuple[int, int, m.AnyMessage]]:
    """Read the messages from an offset on; yield where each begins, where what follows it begins, and the message.

    Args:
        goes_on: frames stand in front of the offset, so that no header of the whole has to stand there.

    Raises:
        CaptureError: as `read_stream`.
    """
    view, in_copy = memoryview(data), goes_on
    while True:
        if framing.layout.is_row:
            offset, in_copy = _next_row(view, offset, in_copy=in_copy), True
        if offset >= len(view):
            return
        begin, end, is_empty = parse_frame(view, offset, framing)
        if is_empty:
            offset = read_trailer(view, end, framing)
            continue
        try:
            # A message may not reach beyond its frame.
            message, behind = read_message(view[:end], begin, streaming=streaming, parallel=parallel, names=names)
        except TruncatedMessage as error:
            if not framing.is_sized:
                raise
            raise FramingError(
                f"the {framing.value} frame ends before its message: {error.problem}", offset=begin
            ) from None
        if framing.is_sized and behind != end:
            raise FramingError(f"the {framing.value} frame holds {end - behind} bytes behind its message", offset=begin)
        offset = read_trailer(view, behind, framing)
        yield begin, offset, message
        streaming = is_streaming_after(message, streaming)


def _next_row(view: memoryview, offset: int, *, in_copy: bool) -> int:
    """Step over trailers and headers of binary COPY to the next row, or to the end."""
    while offset < len(view) or in_copy:
        if in_copy and bytes(view[offset : offset + 1]) not in (b"", b"\xff"):
            break
        behind, is_header = read_pgcopy_mark(view, offset)
        if is_header is in_copy:
            raise FramingError("no pgcopy header begins here", offset=offset)
        offset, in_copy = behind, is_header
    return offset


class _Cursor:
    """A place inside one message; each method reads a field and steps behind it."""

    __slots__ = ("data", "kind", "names", "parallel", "position", "start", "streaming")

    def __init__(
        self, data: Buffer, start: int, kind: str, *, streaming: bool, parallel: bool | None, names: Names
    ) -> None:
        self.data = data
        self.start = start
        self.position = start + 1  # behind the tag
        self.kind = kind
        self.streaming = streaming
        self.parallel = parallel
        self.names = names

    @property
    def remaining(self) -> int:
        return len(self.data) - self.position

    def malformed(self, problem: str) -> MalformedMessage:
        return MalformedMessage(f"{self.kind} message: {problem}", offset=self.start)

    def need(self, count: int, field: str) -> None:
        have = self.remaining
        if have < count:
            raise TruncatedMessage(
                f"{self.kind} message ends early: need {count} bytes for {field}, have {have}",
                offset=self.start,
            )

    def fields(self, layout: Struct, names: str) -> tuple[Any, ...]:
        self.need(layout.size, names)
        values = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def integer(self, layout: Struct, name: str) -> int:
        (value,) = self.fields(layout, name)
        return int(value)

    def count(self, layout: Struct, name: str) -> int:
        value = self.integer(layout, name)
        if value < 0:
            raise self.malformed(f"{name} is negative ({value})")
        return value

    def raw(self, count: int, name: str) -> bytes:
        self.need(count, name)
        value = bytes(self.data[self.position : self.position + count])
        self.position += count
        return value

    def string(self, name: str) -> str:
        """Read text up to its NUL."""
        value = self.raw(self._find_nul(name) - self.position, name)
        self.position += 1
        try:
            return self.names(value)
        except UnicodeDecodeError:
            # Without the original error: it holds the bytes.
            what = "UTF-8" if self.names is names_in_utf8 else "in the encoding that source_encoding names"
            raise EncodingMismatch(
                f"{self.kind} message: {name} is not {what}", offset=self.start, remedy=_ENCODING_REMEDY
            ) from None

    def name(self, name: str) -> str:
        """Read the name of something, which PostgreSQL lets nothing be without."""
        value = self.string(name)
        if not value:
            raise self.malformed(f"{name} is empty")
        return value

    def _find_nul(self, name: str) -> int:
        # A memoryview cannot search.  Names are short, so look a little ahead, and further only as needed.
        offset, width = self.position, _NUL_SEARCH_BYTES
        while offset < len(self.data):
            distance = bytes(self.data[offset : offset + width]).find(0)
            if distance >= 0:
                return offset + distance
            offset += width
            width *= 2
        raise TruncatedMessage(
            f"{self.kind} message ends early: no NUL behind {name} in {self.remaining} bytes",
            offset=self.start,
        )

    def flag(self, name: str) -> bool:
        value = self.integer(m.UINT8, name)
        if value > 1:
            raise self.malformed(f"{name} is {value}, not 0 or 1")
        return value == 1

    def stream_xid(self) -> int | None:
        return self.integer(m.UINT32, "xid") if self.streaming else None

    def tuple_data(self, name: str) -> m.TupleData:
        count = self.count(m.INT16, f"number of columns of the {name}")
        return m.TupleData(tuple([self._cell(f"column {i + 1} of the {name}") for i in range(count)]))

    def _cell(self, name: str) -> m.Cell:
        kind = self.integer(m.UINT8, name)
        if kind == _NULL:
            return m.NULL_CELL
        if kind == _UNCHANGED:
            return m.UNCHANGED_CELL
        if kind != _TEXT and kind != _BINARY:
            raise self.malformed(f"{name} is not of kind n, u, t or b")
        size = self.count(m.INT32, f"length of {name}")
        if kind == _TEXT and 0 in bytes(self.data[self.position : self.position + size]):
            # PostgreSQL's texts have none.  What was torn shows so that it has swallowed what follows.
            raise self.malformed(f"{name} holds a NUL byte, which PostgreSQL's texts never do")
        return m.Cell(chr(kind), self.raw(size, name))


_NULL, _UNCHANGED, _TEXT, _BINARY = b"nutb"
_NEW, _OLD, _KEY = b"NOK"


def _laid_out(cursor: _Cursor, kind: type[Any], layout: m.MessageLayout) -> m.AnyMessage:
    """Read a message that a layout describes."""
    values = list(cursor.fields(layout.numbers, layout.label))
    for number, name in enumerate(kind.__slots__[: len(values)]):
        # No flag exists yet.  PostgreSQL refuses others, and so they betray wrong bytes.
        if name == "flags" and values[number] != 0:
            raise cursor.malformed(f"flags are {values[number]}, not 0")
        if name == "first_segment":
            if values[number] > 1:
                raise cursor.malformed(f"first-segment flag is {values[number]}, not 0 or 1")
            values[number] = values[number] == 1
    message: m.AnyMessage = kind(*values, *([cursor.string(layout.text)] if layout.text else ()))
    return message


def _message(cursor: _Cursor) -> m.Message:
    xid = cursor.stream_xid()
    flags, lsn = cursor.fields(m.MESSAGE, "flags and LSN")
    if flags > 1:
        raise cursor.malformed(f"flags are {flags}, not 0 or 1")
    prefix = cursor.string("prefix")
    content = cursor.raw(cursor.count(m.INT32, "length of the content"), "content")
    return m.Message(flags == 1, lsn, prefix, content, xid)


def _relation(cursor: _Cursor) -> m.Relation:
    xid = cursor.stream_xid()
    oid = cursor.integer(m.UINT32, "OID")
    namespace = cursor.string("namespace")  # that of pg_catalog is empty
    name = cursor.name("name")
    identity, count = cursor.fields(m.RELATION_END, "replica identity and number of columns")
    if chr(identity) not in m.REPLICA_IDENTITIES:
        raise cursor.malformed(f"replica identity is none of {', '.join(m.REPLICA_IDENTITIES)}")
    if count < 0:
        raise cursor.malformed(f"number of columns is negative ({count})")
    columns = tuple([_column(cursor, i + 1) for i in range(count)])
    if len({column.name for column in columns}) < count:  # no relation has: the bytes are wrong
        raise cursor.malformed("two columns have one name")
    return m.Relation(oid, namespace, name, chr(identity), columns, xid)


def _column(cursor: _Cursor, number: int) -> m.Column:
    key = cursor.flag(f"flags of column {number}")
    name = cursor.name(f"name of column {number}")
    type_oid, typmod = cursor.fields(m.COLUMN_END, f"type of column {number}")
    return m.Column(name, type_oid, typmod, key)


def _type(cursor: _Cursor) -> m.Type:
    xid = cursor.stream_xid()
    oid = cursor.integer(m.UINT32, "OID")
    return m.Type(oid, cursor.string("namespace"), cursor.name("name"), xid)


def _insert(cursor: _Cursor) -> m.Insert:
    xid = cursor.stream_xid()
    oid = cursor.integer(m.UINT32, "relation's OID")
    if cursor.integer(m.UINT8, "kind of tuple") != _NEW:
        raise cursor.malformed("no new tuple (N) follows the relation's OID")
    return m.Insert(oid, cursor.tuple_data("new tuple"), xid)


def _update(cursor: _Cursor) -> m.Update:
    xid = cursor.stream_xid()
    oid = cursor.integer(m.UINT32, "relation's OID")
    old = key = None
    kind = cursor.integer(m.UINT8, "kind of tuple")
    if kind == _OLD:
        old = cursor.tuple_data("old tuple")
    elif kind == _KEY:
        key = cursor.tuple_data("key")
    if kind in (_OLD, _KEY):
        kind = cursor.integer(m.UINT8, "kind of tuple")
    if kind != _NEW:
        raise cursor.malformed("no new tuple (N) follows")
    return m.Update(oid, cursor.tuple_data("new tuple"), old, key, xid)


def _delete(cursor: _Cursor) -> m.Delete:
    xid = cursor.stream_xid()
    oid = cursor.integer(m.UINT32, "relation's OID")
    kind = cursor.integer(m.UINT8, "kind of tuple")
    if kind == _OLD:
        return m.Delete(oid, old=cursor.tuple_data("old tuple"), xid=xid)
    if kind == _KEY:
        return m.Delete(oid, key=cursor.tuple_data("key"), xid=xid)
    raise cursor.malformed("neither an old tuple (O) nor a key (K) follows the relation's OID")


def _truncate(cursor: _Cursor) -> m.Truncate:
    xid = cursor.stream_xid()
    count, options = cursor.fields(m.TRUNCATE, "number of relations and options")
    if count < 0:
        raise cursor.malformed(f"number of relations is negative ({count})")
    if options > m.TRUNCATE_CASCADE | m.TRUNCATE_RESTART_IDENTITY:
        raise cursor.malformed(f"options {options} hold an unknown bit")
    size = m.UINT32.size
    whole_oids = cursor.data[cursor.position : cursor.position + min(count, cursor.remaining // size) * size]
    oids = tuple([oid for (oid,) in m.UINT32.iter_unpack(whole_oids)])
    if 0 in oids or len(set(oids)) < len(oids):
        # A count that was torn, or damaged, swallows what follows.
        raise cursor.malformed("it names relation 0, or one relation twice")
    cursor.need(count * size, "OIDs of the relations")
    cursor.position += count * size
    return m.Truncate(oids, options, xid)


def _stream_abort(cursor: _Cursor) -> m.StreamAbort:
    xid, subxid = cursor.fields(m.STREAM_ABORT, "xids")
    has_more = cursor.parallel
    if has_more is None:
        has_more = cursor.remaining > 0 and cursor.data[cursor.position] == 0  # an LSN's first byte begins no message
    if not has_more:
        return m.StreamAbort(xid, subxid)
    return m.StreamAbort(xid, subxid, *cursor.fields(m.STREAM_ABORT_PARALLEL, "LSN and time"))


_OTHERS: Final[dict[type[m.AnyMessage], Callable[[_Cursor], m.AnyMessage]]] = {
    m.Message: _message,
    m.Relation: _relation,
    m.Type: _type,
    m.Insert: _insert,
    m.Update: _update,
    m.Delete: _delete,
    m.Truncate: _truncate,
    m.StreamAbort: _stream_abort,
}

_BY_TAG: Final = {ord(kind.tag): kind for kind in (*m.LAYOUTS, *_OTHERS)}
_NAMES: Final = {kind: re.sub("(?<=[a-z])(?=[A-Z])", " ", kind.__name__) for kind in _BY_TAG.values()}
"""What PostgreSQL's documentation calls them."""
