"""Scan one file: from a guessed boundary, or from a known place behind the unfinished bytes of earlier files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from walreplay.decode.place import Place
from walreplay.decode.recognition import framing_at_start, refuse_text
from walreplay.decode.scan import HEAD_LIMIT, Scanner, fingerprint, parts_of, scan_through
from walreplay.decode.sessions.first_session import first_session
from walreplay.decode.sessions.foreign_files import stranger
from walreplay.decode.sessions.leftover import refuse_leftover
from walreplay.decode.sessions.parting import find_sessions
from walreplay.decode.sessions.readings import check_tail
from walreplay.decode.sessions.resync import find_boundary, guess_framing
from walreplay.decode.sessions.starts import may_begin
from walreplay.decode.summary import FileScan, Part, Summary
from walreplay.decode.until import Until, end_scan
from walreplay.errors import CaptureError, FramingChange, NotACapture, WalReplayError
from walreplay.protocol.compression import plain
from walreplay.protocol.framing import PGCOPY_SIGNATURE, Framing
from walreplay.protocol.opening import RECOGNISABLE_BYTES
from walreplay.types.text import UTF8

_NAMED: Final = 3
"""An error names so many of the files over which a message extends."""
_ONE_OF_THEM: Final = (
    "one of them is damaged, or does not belong to the captures (leave it out), or one is missing between them"
)


@dataclass(frozen=True, slots=True)
class ScanTask:
    """How a file is scanned.

    Attributes:
        framing: the stream's; None if it is not known.
        place: the place in the stream at ``start``; None guesses a boundary.
        start: the offset in the decompressed bytes at which to begin.
        first: the file begins a stream.  So its first byte is a boundary, and an error is not due to a wrong guess.
        prefix: the unfinished bytes of earlier files, which the file continues.
        edges: the offsets in the prefix at which files begin.
        origins: for each file with a part of the prefix, its path and the offset of that part.
        gap: bytes are missing in front of the file.  A session begins at the first boundary where one can begin.
        known_length: how many bytes of the file an earlier run has read.
        codec: the encoding of names, from `walreplay.types.text.codec_of`.
        before: the path of the file before this one, for errors.
        until: where to end, if the place is known.
        length: the file's bytes, where they were listed.
    """

    framing: Framing | None = None
    place: Place | None = None
    start: int = 0
    first: bool = False
    prefix: bytes = b""
    edges: tuple[int, ...] = ()
    origins: tuple[tuple[str, int], ...] = ()
    gap: bool = False
    known_length: int = 0
    codec: str = UTF8
    before: str = ""
    until: Until | None = None
    length: int = 0


def scan_file(path: str, content: bytes | memoryview, task: ScanTask) -> FileScan:
    """Summarise a file, from a known place or from a guessed boundary.

    Args:
        path: the file's, for errors.
        content: the file's bytes as stored.

    Raises:
        CaptureError: the start was known, and the bytes are wrong; it names file and offset.
    """
    try:
        compression, data = plain(content)
        size = len(content)
        scan = FileScan(path, size, len(data), compression, fingerprint(content, size), codec=task.codec)
        if task.known_length:
            scan.known_fingerprint = fingerprint(content, task.known_length)
        place = task.place
        if task.first and place is None:
            place = _begin_stream(scan, data, task)
            if place is None:
                scan.tail = task.prefix + bytes(data)
                return scan
        if place is None:
            _scan_guessed(scan, data, task.framing)
            return scan
        if task.gap:
            _scan_behind_gap(scan, data, place)
        else:
            _scan_in_place(scan, data, place, task)
        if task.until is not None:
            end_scan(scan, data, place, task.prefix, task.until)
    except WalReplayError as error:
        error.at(path=path)
        raise
    return scan


def _begin_stream(scan: FileScan, data: memoryview, task: ScanTask) -> Place | None:
    """Return the place at the beginning of a stream; None if the bytes are too few to recognise the framing."""
    prefix, compression = task.prefix, scan.compression
    framing = task.framing or framing_at_start(
        data, task.codec, prefix=prefix, before=task.before, compression=compression
    )
    if framing is None:
        return None
    refuse_text(data, prefix, compression)
    scan.framing = framing
    return Place(framing)


def _scan_in_place(scan: FileScan, data: memoryview, place: Place, task: ScanTask) -> None:
    """Scan a file from a known place; an error names the file that has the damaged bytes."""
    try:
        _scan_own(scan, data, place, task)
    except (FramingChange, NotACapture):
        raise
    except WalReplayError as error:
        if task.prefix:
            # The damaged bytes may lie in an earlier file.
            path, offset = task.origins[0] if task.origins else (scan.path, 0)
            refuse_leftover(task.prefix, place.framing, task.codec, path=path, offset=offset)
            origins = (*task.origins, (scan.path, 0)) if task.origins else ()
            _tell_place(error, len(task.prefix), task.edges, origins)
        raise


def _tell_place(
    error: WalReplayError, before: int, edges: tuple[int, ...], origins: tuple[tuple[str, int], ...]
) -> None:
    """Translate an error's offset in the joined bytes to a file and an offset in it.

    Args:
        before: how many of the joined bytes lie in front of the file.
        edges: the offsets in these bytes at which files begin.
        origins: for each of the files, its path and the offset of its part.
    """
    at = error.offset or 0
    part = bisect_right(edges, at)
    if at < before and at and part + 1 < len(origins):
        path, offset = origins[part]
        error.at(path=path)
        error.offset = offset + at - (edges[part - 1] if part else 0)
        error.remedy = across_files([path for path, _ in origins[part + 1 :]])
        return
    # An error at the beginning of the unfinished bytes means that the file does not continue them.
    if not at and origins:
        error.remedy = f"It does not go on where {origins[-2][0]} ends: {_ONE_OF_THEM}"
    error.offset = max(at - before, 0)


def across_files(paths: Sequence[str]) -> str:
    """Write the remedy for a malformed message that extends over other files."""
    named = ", ".join(paths[:_NAMED]) + (" and others" if len(paths) > _NAMED else "")
    return f"The message that begins here goes on in {named}: {_ONE_OF_THEM}"


def _scan_own(scan: FileScan, data: memoryview, place: Place, task: ScanTask) -> None:
    """Scan a file from a known place; if that fails because the file is of another kind, say so."""
    error, before = None, task.before
    try:
        _scan_exact(scan, data, place, task)
    except CaptureError as problem:
        error = problem
    nothing_read = all(part.data is not None or part.summary.stop == part.summary.start for part in scan.parts)
    # A file that continues a message may begin inside a value, and then a small file may look like anything.
    is_doubtful = (
        error is not None and len(data) >= RECOGNISABLE_BYTES if task.prefix else error is not None or nothing_read
    )
    if before and task.start == 0 and len(data) and is_doubtful:
        found = stranger(data, scan.compression, place.framing, before=before, codec=scan.codec)
        if found is not None:
            raise found
    if error is not None:
        raise error


def _scan_exact(scan: FileScan, data: memoryview, place: Place, task: ScanTask) -> None:
    start, prefix, edges = task.start, task.prefix, task.edges
    scan.head = b""
    if not (prefix and may_begin(data, place.framing)):
        try:
            if _scan_plainly(scan, data, place, start, prefix):
                return
        except CaptureError:
            # It is reported below, unless a new session explains it.
            pass
    if prefix:
        data, edges = memoryview(prefix + bytes(data)), (*edges, len(prefix))
    found = find_sessions(data, place, start, edges=edges, codec=scan.codec)
    parts = [part for stretch in found for part in parts_of(data, stretch, len(prefix), scan.codec)]
    scan.parts = tuple(parts)
    scan.tail = bytes(data[found[-1].stop :])


def _scan_plainly(scan: FileScan, data: memoryview, place: Place, start: int, prefix: bytes) -> bool:
    """Scan a file in which no session ends; False if one does."""
    parts = scan_through(data, place, start, prefix, scan.codec)
    if parts is None:
        return False
    summary = parts[-1].summary
    _check_tail(data, summary, scan.codec)
    scan.parts = parts
    scan.tail = bytes(data[summary.stop :])
    return True


def _check_tail(data: memoryview, summary: Summary, codec: str) -> None:
    if summary.place is not None:
        check_tail(data, summary.stop, summary.place, codec)


def _scan_guessed(scan: FileScan, data: memoryview, framing: Framing | None) -> None:
    scan.guessed = True
    guess: tuple[Framing, int, bool] | None
    if bytes(data[: len(PGCOPY_SIGNATURE)]) == PGCOPY_SIGNATURE and framing in (None, Framing.PGCOPY):
        # This is no guess: a COPY's header begins a session.
        guess = (Framing.PGCOPY, 0, False)
    elif framing is None:
        guess = guess_framing(data, codec=scan.codec)
    else:
        found = find_boundary(data, framing, codec=scan.codec)
        guess = None if found is None else (framing, *found)
    if guess is None:
        return
    framing, start, streaming = guess
    scan.head = bytes(data[:start]) if start <= HEAD_LIMIT else None
    is_session = framing is Framing.PGCOPY and start == 0 and bytes(data[:4]) == PGCOPY_SIGNATURE[:4]
    place = Place(framing) if is_session else None
    scanner = Scanner(framing, place=place, streaming=streaming, codec=scan.codec)
    try:
        summary = scanner.scan(data, start)
        if scanner.broke:
            return
        _check_tail(data, summary, scan.codec)
    except CaptureError:
        # The guess may be wrong, not the file.  A scan from the true start will show it.
        return
    # Even if a session may begin there, the bytes before it are not known.
    summary.exact = False
    scan.parts = (Part(summary, new_session=is_session),)
    scan.tail = bytes(data[summary.stop :])


def _scan_behind_gap(scan: FileScan, data: memoryview, place: Place) -> None:
    """Scan a file from the first boundary at which a session can begin."""
    scan.head = b""
    start = first_session(data, place.framing, scan.codec)
    if start is None:
        scan.tail = b""
        return
    found = find_sessions(data, place.new_session(), start, codec=scan.codec)
    scan.parts = tuple(part for stretch in found for part in parts_of(data, stretch, 0, scan.codec))
    scan.tail = bytes(data[found[-1].stop :])


__all__ = ["ScanTask", "across_files", "scan_file"]
