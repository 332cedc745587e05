"""Summarise capture files without Spark: messages, transactions, relations, LSN and time range.

Streamed and two-phase transactions are counted too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from walreplay.changes import known_framing
from walreplay.decode.files import ScanTask, scan_file
from walreplay.decode.place import Place
from walreplay.decode.recognition import too_few
from walreplay.decode.sessions.foreign_files import told_for_paths
from walreplay.decode.sessions.leftover import refuse_leftover
from walreplay.decode.summary import Counts, FileScan, Summary
from walreplay.decode.unfinished import Unfinished
from walreplay.errors import CaptureError, EncodingMismatch, FramingChange, NotACapture
from walreplay.listing import list_files, map_file
from walreplay.lsn import to_datetime
from walreplay.protocol.framing import Framing
from walreplay.protocol.messages import Relation
from walreplay.types.text import codec_of


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
class Inspection:
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
            place = part.summary.place
    if not summaries and files:
        raise too_few(unfinished.size, path=files[0].path)
    if unfinished.size and place is not None:
        path, offset = unfinished.origins[0]
        refuse_leftover(unfinished.data, place.framing, codec, path=path, offset=offset)
    return _gather(files, summaries)


def _scan(
    path: str, content: memoryview, framing: Framing | None, place: Place | None, unfinished: Unfinished, codec: str
) -> FileScan:
    try:
        behind = unfinished.data, unfinished.edges, unfinished.origins
        task = ScanTask(framing, place, 0, place is None, *behind, codec=codec, before=unfinished.last_path)
        return scan_file(path, content, task)
    except CaptureError as error:
        if isinstance(error, (NotACapture, FramingChange)):
            told_for_paths(error, "--framing")
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
    own = [part.summary for part in parts if part.data is None]
    if not own:
        note = "lies inside one message" if scan.size else "is empty"
        return FileInspection(scan.path, "", scan.compression, scan.length, 0, 0, note)
    first, last = own[0], own[-1]
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
    return RelationInspection(
        name=relation.qualified_name if relation else "(not announced)",
        oid=oid,
        replica_identity=relation.replica_identity if relation else "",
        columns=len(relation.columns) if relation else 0,
        key=tuple(column.name for column in relation.columns if column.key) if relation else (),
        inserts=count.inserts,
        updates=count.updates,
        deletes=count.deletes,
        truncates=count.truncates,
    )


__all__ = ["FileInspection", "Inspection", "RelationInspection", "inspect_captures"]
