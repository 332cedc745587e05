"""Scan one file: from a guessed boundary, or from a known place behind the unfinished bytes of earlier files.

The framing is recognised by the first bytes, and confirmed by reading a session in them.  `parts_of_guess` compares a
file that was scanned from a guessed boundary with the place where the file before it ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from walreplay.decode.proof import Proof
from walreplay.decode.scan import (
    HEAD_LIMIT,
    Scanner,
    Until,
    end_scan,
    fingerprint,
    is_framed_so,
    parts_of,
    scan_through,
)
from walreplay.decode.sessions.parting import find_sessions, first_session, framing_of, may_become, no_capture, stranger
from walreplay.decode.sessions.readings import check_tail
from walreplay.decode.sessions.resync import find_boundary, guess_framing, refuse_leftover
from walreplay.decode.sessions.starts import may_begin
from walreplay.decode.summary import Block, FileScan, Part, Summary
from walreplay.decode.walk import Place
from walreplay.errors import CaptureError, FramingChange, FramingError, NotACapture, TruncatedMessage, WalReplayError
from walreplay.protocol.framing import PGCOPY_SIGNATURE, Framing
from walreplay.protocol.opening import HEAD_BYTES, RECOGNISABLE_BYTES, detect_framing, open_file, what_is
from walreplay.types.text import UTF8, names_in


def recognise(data: memoryview, codec: str = UTF8, *, prefix: bytes = b"") -> Framing | None:
    """Recognise a stream's framing by its first bytes, the prefix and then its first file's; None if they fit none.

    Raises:
        TruncatedMessage: the bytes are too few.
    """
    head = prefix + bytes(data[:HEAD_BYTES])
    if what_is(head) is not None:  # another kind of file
        return None
    framing = detect_framing(head, names=names_in(codec))
    return confirmed(framing, memoryview(prefix + bytes(data[:HEAD_LIMIT])), codec)


def confirmed(first_guess: Framing | None, beginning: memoryview, codec: str = UTF8) -> Framing | None:
    """Return the framing in which a stream's first session can be read; None if there is none.

    Args:
        first_guess: the framing that its very first bytes fit; None if they fit none.
        beginning: its first `HEAD_LIMIT` bytes; so many, because its first message may be a long logical one.

    Raises:
        TruncatedMessage: the bytes are too few.
    """
    if first_guess is not None and is_framed_so(beginning, first_guess, codec):
        return first_guess
    try:
        return framing_of(beginning, codec) or first_guess
    except TruncatedMessage:
        if first_guess is None:
            raise
        return first_guess


def framing_at_start(
    data: memoryview, codec: str, *, prefix: bytes = b"", earlier_path: str = "", compression: str | None = None
) -> Framing | None:
    """Recognise the framing of a stream whose first bytes end in a file; None if they are too few.

    Args:
        data: the file's bytes, decompressed.
        prefix: the bytes of the files before it, which were too few.
        earlier_path: the path of the file before it.
        compression: how the file was compressed, for the error.

    Raises:
        NotACapture: the file is no capture, or the one before it, which the error then names.
    """
    framing = None
    beginning = prefix + bytes(data[:HEAD_BYTES])
    if beginning.startswith(PGCOPY_SIGNATURE):
        # A COPY without rows is too short for the check below.
        return Framing.PGCOPY
    if len(beginning) < RECOGNISABLE_BYTES:
        if not beginning or may_become(beginning, codec):
            return None
    else:
        try:
            framing = recognise(data, codec, prefix=prefix)
        except TruncatedMessage:
            return None
    if prefix and earlier_path and _begins_stream(data, prefix, framing, codec):
        raise no_capture(prefix).at(path=earlier_path)
    if framing is not None:
        return framing
    raise no_capture(data, compression)


def _begins_stream(data: memoryview, prefix: bytes, joined_framing: Framing | None, codec: str) -> bool:
    """Return whether a stream begins with a file itself, and not with the few bytes of the files before it.

    Args:
        joined_framing: the framing of those bytes and the file together.
    """
    try:
        framing_alone = recognise(data, codec)
    except TruncatedMessage:
        return joined_framing is None
    if joined_framing is None or framing_alone is None:
        return framing_alone is not None
    if framing_alone is joined_framing or not is_framed_so(data[:HEAD_LIMIT], framing_alone, codec):
        return False  # a guess cannot know a gid
    return not is_framed_so(memoryview(prefix + bytes(data[:HEAD_LIMIT])), joined_framing, codec)


def too_few(size: int, *, path: str | None) -> FramingError:
    """Make the error for bytes that are too few to recognise their framing, when there are no more."""
    return FramingError(
        f"the {size:,} bytes are too few to tell what they are",
        path=path,
        offset=0,
        remedy="Inspect it again when it has grown; if it will not, it was truncated, or is no capture",
    )


_NAMED: Final = 3  # An error names so many of the files over which a message extends
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
        earlier_path: the path of the file before this one, for errors.
        until: where to end, if the place is known.
        length: the file's bytes, where they were listed.
        proof: what an index knows of the file; None without an index.
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
    earlier_path: str = ""
    until: Until | None = None
    length: int = 0
    proof: Proof | None = None


def scan_file(path: str, content: bytes | memoryview, task: ScanTask) -> FileScan:
    """Summarise a file, from a known place or from a guessed boundary.

    Raises:
        CaptureError: the start was known, and the bytes are wrong; it names file and offset.
    """
    try:
        compression, data, _ = open_file(content)
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
        data, task.codec, prefix=prefix, earlier_path=task.earlier_path, compression=compression
    )
    if framing is None:
        return None
    # A framing may be configured of what looks like text or another file format.
    beginning = prefix + bytes(data[:HEAD_BYTES])
    if len(beginning) >= RECOGNISABLE_BYTES and what_is(beginning) is not None:
        raise no_capture(beginning, compression)
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
            _locate_error(error, len(task.prefix), task.edges, origins)
        raise


def _locate_error(
    error: WalReplayError, size_in_front: int, edges: tuple[int, ...], origins: tuple[tuple[str, int], ...]
) -> None:
    """Translate an error's offset in the joined bytes to a file and an offset in it.

    Args:
        size_in_front: how many of the joined bytes lie in front of the file.
        edges: the offsets in these bytes at which files begin.
        origins: for each of the files, its path and the offset of its part.
    """
    joined_offset = error.offset or 0
    part = bisect_right(edges, joined_offset)
    if joined_offset < size_in_front and joined_offset and part + 1 < len(origins):
        path, offset = origins[part]
        error.at(path=path)
        error.offset = offset + joined_offset - (edges[part - 1] if part else 0)
        error.remedy = across_files([path for path, _ in origins[part + 1 :]])
        return
    # An error at the beginning of the unfinished bytes means that the file does not continue them.
    if not joined_offset and origins:
        error.remedy = f"It does not go on where {origins[-2][0]} ends: {_ONE_OF_THEM}"
    error.offset = max(joined_offset - size_in_front, 0)


def across_files(paths: Sequence[str]) -> str:
    """Write the remedy for a malformed message that extends over other files."""
    named = ", ".join(paths[:_NAMED]) + (" and others" if len(paths) > _NAMED else "")
    return (
        f"The message that begins here goes on in {named}: {_ONE_OF_THEM}. If all are as their writer left them, it is "
        "torn: cut it off"
    )


def _scan_own(scan: FileScan, data: memoryview, place: Place, task: ScanTask) -> None:
    """Scan a file from a known place; if that fails because the file is of another kind, say so."""
    error, earlier_path = None, task.earlier_path
    try:
        _scan_exact(scan, data, place, task)
    except CaptureError as problem:
        error = problem
    nothing_read = all(part.data is not None or part.summary.stop == part.summary.start for part in scan.parts)
    # A small file that continues a message, or has only the beginning of one, may look like anything.
    is_small = len(data) < RECOGNISABLE_BYTES
    has_failed = error is not None and not (task.prefix and is_small)
    is_doubtful = has_failed or (nothing_read and not task.prefix and not is_small)
    if earlier_path and task.start == 0 and len(data) and is_doubtful:
        refusal = stranger(data, scan.compression, place.framing, earlier_path=earlier_path, codec=scan.codec)
        if refusal is not None:
            raise refusal
    if error is not None:
        raise error


def _scan_exact(scan: FileScan, data: memoryview, place: Place, task: ScanTask) -> None:
    prefix, edges = task.prefix, task.edges
    scan.head = b""
    if not (prefix and may_begin(data, place.framing)):
        # An error is reported below, unless a new session explains it.
        with suppress(CaptureError):
            parts = scan_through(data, place, task.start, prefix, scan.codec)
            if parts is not None:
                _end_scan(scan, data, parts)
                return
    if prefix:
        data, edges = memoryview(prefix + bytes(data)), (*edges, len(prefix))
    stretches = find_sessions(data, place, task.start, edges=edges, codec=scan.codec)
    scan.parts = tuple(part for stretch in stretches for part in parts_of(data, stretch, len(prefix), scan.codec))
    scan.tail = bytes(data[stretches[-1].stop :])


def _end_scan(scan: FileScan, data: memoryview, parts: tuple[Part, ...]) -> None:
    """Take the parts of a file in which no session ends, and check what they leave unfinished."""
    summary = parts[-1].summary
    if summary.place is not None and summary.stop < len(data):
        check_tail(data, summary.stop, summary.place, scan.codec)
    scan.parts, scan.tail = parts, bytes(data[summary.stop :])


def _scan_guessed(scan: FileScan, data: memoryview, framing: Framing | None) -> None:
    scan.guessed = True
    guess: tuple[Framing, int, bool] | None
    if bytes(data[: len(PGCOPY_SIGNATURE)]) == PGCOPY_SIGNATURE and framing in (None, Framing.PGCOPY):
        # This is no guess: a COPY's header begins a session.
        guess = (Framing.PGCOPY, 0, False)
    elif framing is None:
        guess = guess_framing(data, codec=scan.codec)
    else:
        boundary = find_boundary(data, framing, codec=scan.codec)
        guess = None if boundary is None else (framing, *boundary)
    if guess is None:
        return
    framing, start, streaming = guess
    scan.head = bytes(data[:start]) if start <= HEAD_LIMIT else None
    is_session = framing is Framing.PGCOPY and start == 0 and bytes(data[:4]) == PGCOPY_SIGNATURE[:4]
    place = Place(framing) if is_session else None
    scanner = Scanner(framing, place=place, streaming=streaming, codec=scan.codec)
    # The guess may be wrong, not the file.  A scan from the true start will show it.
    with suppress(CaptureError):
        summary = scanner.scan(data, start)
        # Even if a session may begin there, the bytes before it are not known.
        summary.exact = False
        if not scanner.stopped_at_session:
            _end_scan(scan, data, (Part(summary, new_session=is_session),))


def _scan_behind_gap(scan: FileScan, data: memoryview, place: Place) -> None:
    """Scan a file from the first boundary at which a session can begin."""
    scan.head = b""
    start = first_session(data, place.framing, scan.codec)
    if start is None:
        scan.tail = b""
        return
    stretches = find_sessions(data, place.new_session(), start, codec=scan.codec)
    scan.parts = tuple(part for stretch in stretches for part in parts_of(data, stretch, 0, scan.codec))
    scan.tail = bytes(data[stretches[-1].stop :])


def parts_of_guess(scan: FileScan, place: Place, tail: bytes) -> tuple[Part, ...] | None:
    """Return the parts of a file that was scanned on a guess; None if the guess is wrong or uncertain.

    Together, the unfinished bytes of earlier files and those in front of the guessed start must be whole messages.  The
    transaction that is open behind them must be the one that the file continues.

    Args:
        place: the place behind the last whole message of the file before.
        tail: the unfinished bytes of earlier files, which follow it.
    """
    if not scan.parts or scan.head is None:  # nothing fits, or the head is too long
        return None
    (part,) = scan.parts
    if part.summary.framing is not place.framing:
        return None
    if tail and may_begin(memoryview(scan.head), place.framing):
        # The file may continue a message, or begin a session.  Only an exact scan tests both readings.
        return None
    seam, parts = tail + scan.head, tuple[Part, ...]()
    if seam:
        scanner = Scanner(place.framing, place=place, codec=scan.codec)
        scanner.is_last_buffer = True
        try:
            summary = scanner.scan(seam, 0)
        except WalReplayError:
            # An exact scan of the file will report the error with its place.
            return None
        if scanner.stopped_at_session or summary.stop != len(seam) or summary.place is None or part.new_session:
            return None
        parts, place = (Part(summary, data=seam),), summary.place
    if part.new_session and not place.begun:
        # All files before it are empty, so that no session ends here.
        part = replace(part, new_session=False)
    if part.new_session:
        place = place.new_session()
    if not _continues(place, part.summary):
        return None
    if part.summary.place is None and scan.tail:
        # Only now it is known which transaction is open at the end; the unfinished message must not hold its end.
        try:
            check_tail(memoryview(scan.tail), 0, place, scan.codec)
        except CaptureError:
            return None
    if place.stream is not None:
        # Which transaction's the blocks are that are open at the guessed start is known now.
        xid, items = place.stream, part.summary.items
        items = [replace(item, xid=xid) if isinstance(item, Block) and item.xid == -1 else item for item in items]
        part = replace(part, summary=replace(part.summary, items=items))
    return (*parts, part)


def _continues(place: Place, summary: Summary) -> bool:
    """Whether a guessed summary may follow a known place."""
    open_ = place.transaction
    inside = bool(summary.items) and isinstance(summary.items[0], Block) and summary.items[0].xid == -1
    if inside != (place.stream is not None) or (open_ is not None and open_.gid is not None):
        return False
    if summary.first_message is not None and summary.first_message <= place.message_lsn:
        return False
    if summary.head_commit is not None:
        return (
            open_ is not None
            and summary.head_commit == (open_.final_lsn, open_.commit_time)
            and (open_.final_lsn > place.high_lsn)
        )
    if summary.head_changes and open_ is None:
        return False
    if summary.place is None:
        return True
    begins = summary.first_lsn
    if summary.place.transaction is not None and begins is None:
        begins = summary.place.transaction.final_lsn
    return open_ is None and (begins is None or begins > max(place.last_lsn, place.high_lsn))
