"""The messages of capture files, without Spark: a summary for people, or one line for each; never a cell's value."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from walreplay.changes import known_framing
from walreplay.decode.files import ScanTask, across_files, scan_file, too_few
from walreplay.decode.sessions.parting import may_become, no_capture, stranger, told_for_paths
from walreplay.decode.sessions.resync import guess_framing, refuse_leftover
from walreplay.decode.sessions.torn_messages import is_torn
from walreplay.decode.summary import Counts, FileScan, Summary, Unfinished
from walreplay.decode.walk import Place, Transaction
from walreplay.errors import (
    CaptureError,
    EncodingMismatch,
    FramingChange,
    MalformedMessage,
    NotACapture,
    TruncatedMessage,
    WalReplayError,
)
from walreplay.listing import list_files, map_file
from walreplay.lsn import format_lsn, to_datetime
from walreplay.protocol import messages as m
from walreplay.protocol.framing import PGCOPY_HEADER, PGCOPY_SIGNATURE, Framing
from walreplay.protocol.messages import Relation
from walreplay.protocol.opening import RECOGNISABLE_BYTES, detect_framing, open_file, what_is
from walreplay.protocol.reader import is_streaming_after, read_messages
from walreplay.report import JsonResult
from walreplay.types.text import codec_of, names_in

_OPTION = "`framing` in a --config"  # What a remedy calls the key for the framing


@dataclass(frozen=True, slots=True)
class FileInspection:
    """One file; ``note`` says what is special about its start or end."""

    path: str
    framing: str
    compression: str | None
    bytes: int
    messages: int
    transactions: int
    note: str


@dataclass(frozen=True, slots=True)
class RelationInspection:
    """One relation in its newest version, and its row changes in all versions."""

    name: str
    oid: int
    replica_identity: str
    columns: int
    key: tuple[str, ...]
    inserts: int
    updates: int
    deletes: int
    truncates: int


@dataclass(frozen=True, slots=True)
class Inspection(JsonResult):
    """All files together; ``messages`` counts by the message's name."""

    files: tuple[FileInspection, ...]
    messages: Mapping[str, int]
    transactions: int
    relations: tuple[RelationInspection, ...]
    first_lsn: int | None
    last_lsn: int | None
    first_commit: datetime | None
    last_commit: datetime | None
    changes: int


def inspect_captures(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    framing: str | None = None,
    *,
    source_encoding: str = "UTF8",
) -> Inspection:
    """Walk capture files one after the other.

    Args:
        paths: as `walreplay.read_changes` takes them.
        framing: where the bytes do not tell.
        source_encoding: the client_encoding that the captures were recorded with, by PostgreSQL's name.

    Raises:
        CaptureError: with file and offset of what cannot be.

    >>> found = inspect_captures("tests/captures/o03_basic_split_bytes/capture")
    >>> found.transactions, found.changes, found.messages["Relation"]
    (105, 616, 4)
    """
    forced, codec = known_framing(framing), codec_of(source_encoding)
    files: list[FileInspection] = []
    summaries: list[Summary] = []
    place, unfinished = None, Unfinished()
    for path in list_files(paths):
        scan = _scan(path, map_file(path), forced, place, unfinished, codec)
        files.append(_file(scan))
        unfinished = unfinished.behind(scan)
        for part in scan.parts:
            summaries.append(part.summary)
            place = part.summary.place  # the next file goes on there
    if not summaries and files:
        raise too_few(unfinished.size, path=files[0].path)
    if unfinished.size and place is not None:  # a message may be unfinished at the end, but not damaged
        path, offset = unfinished.origins[0]
        refuse_leftover(unfinished.data, place.framing, codec, path=path, offset=offset)
    return _gather(files, summaries)


def _scan(
    path: str, content: memoryview, framing: Framing | None, place: Place | None, unfinished: Unfinished, codec: str
) -> FileScan:
    try:
        behind = unfinished.data, unfinished.edges, unfinished.origins
        task = ScanTask(framing, place, 0, place is None, *behind, codec=codec, earlier_path=unfinished.last_path)
        return scan_file(path, content, task)
    except CaptureError as error:
        if isinstance(error, (NotACapture, FramingChange)):
            told_for_paths(error, _OPTION)
        if isinstance(error, EncodingMismatch) and error.offset:
            # Valid messages come before it, so the file does begin a stream.
            raise
        # A file from the middle of a stream may begin inside a message.
        if place is not None or unfinished.size:
            raise
        scan = scan_file(path, content, ScanTask(framing, codec=codec))
        if not scan.parts:
            raise
        return scan


def _file(scan: FileScan) -> FileInspection:
    parts = scan.parts
    summaries = [part.summary for part in parts if part.data is None]
    if not summaries:
        note = "lies inside one message" if scan.size else "is empty"
        return FileInspection(scan.path, "", scan.compression, scan.length, 0, 0, note)
    first, last = summaries[0], summaries[-1]
    notes = []
    if first.start:
        notes.append(f"begins inside a message, which ends at offset {first.start:,}")
    sessions = sum(part.new_session for part in parts)
    if sessions:
        notes.append(f"{sessions} new session{'s' * (sessions > 1)}")
    if scan.tail:
        notes.append(f"ends inside a message, from offset {scan.size - len(scan.tail):,}")
    elif last.place is not None and last.place.transaction is not None:
        notes.append(f"ends inside transaction {last.place.transaction.xid}")
    elif last.place is not None and last.place.stream is not None:
        notes.append(f"ends inside a block of the streamed transaction {last.place.stream}")
    return FileInspection(
        path=scan.path,
        framing=last.framing.value,
        compression=scan.compression,
        bytes=scan.length,
        messages=sum(sum(part.summary.messages.values()) for part in parts),
        transactions=sum(part.summary.transactions for part in parts),
        note="; ".join(notes),
    )


def _gather(files: Sequence[FileInspection], summaries: Sequence[Summary]) -> Inspection:
    messages: Counter[str] = Counter()
    counts: dict[int, Counts] = {}
    relations: dict[int, Relation] = {}
    for summary in summaries:
        messages.update(summary.messages)
        for oid, count in summary.counts.items():
            counts[oid] = counts.get(oid, Counts()) + count
        relations.update({relation.oid: relation for _, relation in summary.relations})
    firsts = [(s.first_lsn, s.first_commit_time) for s in summaries if s.first_lsn is not None]
    lasts = [(s.last_lsn, s.last_commit_time) for s in summaries if s.last_lsn is not None]
    return Inspection(
        files=tuple(files),
        messages=dict(messages),
        transactions=sum(summary.transactions for summary in summaries),
        relations=tuple(
            _relation(relations.get(oid), oid, counts.get(oid, Counts())) for oid in {**relations, **counts}
        ),
        first_lsn=firsts[0][0] if firsts else None,
        last_lsn=lasts[-1][0] if lasts else None,
        first_commit=to_datetime(firsts[0][1]) if firsts and firsts[0][1] is not None else None,
        last_commit=to_datetime(lasts[-1][1]) if lasts and lasts[-1][1] is not None else None,
        changes=sum(count.changes for count in counts.values()),
    )


def _relation(relation: Relation | None, oid: int, count: Counts) -> RelationInspection:
    changes = count.inserts, count.updates, count.deletes, count.truncates
    if relation is None:
        return RelationInspection("(not announced)", oid, "", 0, (), *changes)
    columns, key = len(relation.columns), tuple(column.name for column in relation.columns if column.key)
    return RelationInspection(relation.qualified_name, oid, relation.replica_identity, columns, key, *changes)


_KINDS: Final = {"n": "null", "u": "unchanged", "t": "text", "b": "binary"}


@dataclass(frozen=True, slots=True)
class Line:
    """One message.

    Attributes:
        path: the file that the message begins in, ``offset`` bytes (decompressed) from its start.
        message: the message's name, such as ``Insert``.
    """

    path: str
    offset: int
    message: str
    details: str


def transcribe(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    framing: str | None = None,
    *,
    source_encoding: str = "UTF8",
) -> Iterator[Line]:
    """List the messages of files that make one stream, in order.

    Args:
        paths, framing, source_encoding: as `inspect_captures` takes them.

    Raises:
        CaptureError: with file and offset of what cannot be.
    """
    reader = _Transcriber(Framing(framing) if framing else None, codec_of(source_encoding))
    for path in list_files(paths):
        yield from reader.read(path)
    yield from reader.end()


class _Transcriber:
    """Read file after file, and keep what is carried over: framing, stream state, unfinished bytes."""

    def __init__(self, framing: Framing | None, codec: str) -> None:
        self._forced = framing
        self._codec = codec
        self._names = names_in(codec)
        self._framing = framing
        self._streaming = False
        self._tail = b""
        self._tail_at = ("", 0)
        self._before = ""
        self._compression: str | None = None
        self._goes_on = False
        """Messages of the stream were read already."""
        self._describer = _Describer()

    def read(self, path: str) -> Iterator[Line]:
        data = self._opened(path)
        seam, seam_at = len(self._tail), self._tail_at if self._tail else (path, 0)  # bytes of earlier files in front
        content = self._tail + data if self._tail else data
        start = self._begin(path, content)
        self._tail = b""
        place = start
        try:
            for begin, end, message in self._messages(content, start):
                position = (path, begin - seam) if begin >= seam else (seam_at[0], seam_at[1] + begin)
                yield Line(*position, type(message).__name__, self._describer.describe(message))
                place, self._goes_on = end, True
            if self._framing is None:
                self._tail, self._tail_at = content, seam_at  # too few to know the framing; all is kept
        except TruncatedMessage as error:
            self._tail = content[place:]  # the message goes on in the next file
            self._tail_at = (path, place - seam) if place >= seam else (seam_at[0], seam_at[1] + place)
            if self._is_no_message():
                remedy = "The file is damaged, or is no capture; fetch it from its source again"
                if place < seam:
                    remedy = across_files([path])
                no_message = MalformedMessage(f"no message begins here ({error.problem})", remedy=remedy)
                problem = (self._stranger(data) if place == seam else None) or no_message
                problem.path, problem.offset = self._tail_at
                raise problem from None
        except CaptureError as error:
            offset = error.offset or 0
            if not offset and not seam:
                error = self._stranger(data) or error
            elif offset < seam:
                error.remedy = across_files([path])  # the message begins in an earlier file, so either may be damaged
            # The reader counts from the unfinished bytes that the file before left.
            error.path, error.offset = (path, offset - seam) if offset >= seam else (seam_at[0], seam_at[1] + offset)
            raise error from None
        self._before = path

    def _is_no_message(self) -> bool:
        """Return whether the unfinished bytes cannot be the beginning of a message, wherever that stands."""
        if self._framing is None or not self._tail:
            return False
        has_header = self._tail.startswith(PGCOPY_SIGNATURE)  # behind the header the first message begins
        tail, codec = memoryview(self._tail)[PGCOPY_HEADER.size if has_header else 0 :], self._codec
        if not tail:
            return False
        places = (Place(self._framing), Place(self._framing, Transaction(0, 0, 0, 0)), Place(self._framing, stream=0))
        return not any(is_torn(tail, 0, len(tail), place, codec) for place in places)

    def _stranger(self, data: bytes) -> CaptureError | None:
        """Return what a file is if it does not continue the stream."""
        if self._framing is None or not self._before:
            return None
        view, packed = memoryview(data), self._compression
        error = stranger(view, packed, self._framing, earlier_path=self._before, codec=self._codec)
        return None if error is None else told_for_paths(error, _OPTION)

    def _opened(self, path: str) -> bytes:
        """Return a file's bytes, decompressed; what an earlier COPY has left unfinished ends with it."""
        try:
            self._compression, view, _ = open_file(Path(path).read_bytes())
        except WalReplayError as error:
            raise error.at(path=path) from None
        data = bytes(view)
        if data.startswith(PGCOPY_SIGNATURE) and self._forced in (None, Framing.PGCOPY):
            self._framing, self._tail, self._streaming, self._goes_on = Framing.PGCOPY, b"", False, False
        return data

    def end(self) -> Iterator[Line]:
        """Report what is unfinished after the last file.

        Raises:
            FramingError: there is nothing else.
        """
        if self._tail and self._framing is None:
            yield from self._few_messages()
        if self._tail and self._framing is not Framing.PGCOPY:
            yield Line(*self._tail_at, "(unfinished)", f"{len(self._tail):,} bytes of a message that goes on elsewhere")

    def _few_messages(self) -> Iterator[Line]:
        """Report bytes that were too few to detect their framing, while more might have followed."""
        (path, offset), place = self._tail_at, 0
        self._framing = detect_framing(self._tail, names=_any_name)
        if self._framing is None:
            raise too_few(len(self._tail), path=path)
        try:
            for begin, end, message in self._messages(self._tail, 0):
                yield Line(path, offset + begin, type(message).__name__, self._describer.describe(message))
                place = end
            place = len(self._tail)  # all was read
        except TruncatedMessage:
            pass
        except CaptureError as error:
            raise error.at(path=path) from None
        self._tail, self._tail_at = self._tail[place:], (path, offset + place)

    def _begin(self, path: str, data: bytes) -> int:
        """Return the offset to start reading at; detect the framing if it is unknown."""
        is_foreign = what_is(data) is not None
        if self._framing is None and not is_foreign and len(data) >= RECOGNISABLE_BYTES:
            # In whatever encoding: a name that is not in it is told when it is read.
            self._framing = detect_framing(data, names=_any_name)
        if self._framing is not None or not data:
            return 0
        if len(data) < RECOGNISABLE_BYTES and may_become(data, self._codec):
            return 0
        guess = None if is_foreign else guess_framing(data, codec=self._codec)
        if guess is None:
            raise told_for_paths(no_capture(data, self._compression), _OPTION).at(path=path)
        self._framing, start, self._streaming = guess
        self._goes_on = True
        return start

    def _messages(self, data: bytes, offset: int) -> Iterator[tuple[int, int, m.AnyMessage]]:
        """Yield (begin, end, message); ``end`` is where the frame ends."""
        framing = self._framing
        if framing is None:
            return
        for begin, end, message in read_messages(
            data, offset, framing=framing, streaming=self._streaming, goes_on=self._goes_on, names=self._names
        ):
            self._streaming = is_streaming_after(message, self._streaming)
            yield begin, end, message


class _Describer:
    """Put a message into words; it has to have seen the relations to name them."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def describe(self, message: m.AnyMessage) -> str:
        if isinstance(message, m.Relation):
            self._names[message.oid] = message.qualified_name
        special = self._SPECIAL.get(type(message))
        text = special(self, message) if special else _fields(message)
        xid = getattr(message, "xid", None)
        return f"xid {xid} {text}" if xid is not None and special else text

    def _name(self, oid: int) -> str:
        return self._names.get(oid, f"relation {oid}")

    def _relation(self, relation: m.Relation) -> str:
        columns = ", ".join(f"{column.name}{'*' if column.key else ''}" for column in relation.columns)
        return f"{relation.qualified_name} oid {relation.oid} identity {relation.replica_identity} ({columns})"

    def _type(self, type_: m.Type) -> str:
        return f"{type_.qualified_name} oid {type_.oid}"

    def _row(self, change: m.RowChange) -> str:
        tuples = [(part, getattr(change, part, None)) for part in ("old", "key", "new")]
        cells = "; ".join(f"{part}: {_cells(row)}" for part, row in tuples if row is not None)
        return f"{self._name(change.relation_oid)} {cells}"

    def _truncate(self, truncate: m.Truncate) -> str:
        return ", ".join(self._name(oid) for oid in truncate.relation_oids)

    def _message(self, message: m.Message) -> str:
        kind = "transactional" if message.transactional else "not transactional"
        return f"{message.prefix} {kind} lsn {format_lsn(message.lsn)} {len(message.content):,} bytes"

    _SPECIAL: Final[dict[type, Callable[[Any, Any], str]]] = {
        m.Relation: _relation,
        m.Type: _type,
        m.Insert: _row,
        m.Update: _row,
        m.Delete: _row,
        m.Truncate: _truncate,
        m.Message: _message,
    }


def _moment(micros: int) -> str:
    """Write a time; a clock may have stood far from all years."""
    try:
        return to_datetime(micros).isoformat()
    except CaptureError:
        return f"{micros:,} microseconds after 2000-01-01"


def _any_name(data: bytes) -> str:
    return data.decode("latin-1")  # any bytes are names to it: the encoding is checked later


def _fields(message: m.AnyMessage) -> str:
    """Write the fields of a message that holds no row."""
    parts = []
    for name in type(message).__slots__:
        value = getattr(message, name)
        if value is None or (name == "flags" and value == 0):  # flags are unused so far, always 0
            continue
        if name.endswith("lsn"):
            value = format_lsn(value)
        elif name.endswith("time"):
            value = _moment(value)
        parts.append(f"{name} {value}")
    return " ".join(parts)


def _cells(row: m.TupleData) -> str:
    counts = Counter(cell.kind for cell in row.cells)
    return ", ".join(f"{counts[kind]} {name}" for kind, name in _KINDS.items() if counts[kind])
