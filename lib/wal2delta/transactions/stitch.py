"""Join the files' summaries into one stream, and plan what of it is applied.

Files are scanned in parallel, each on a guess of where its first message begins.  Here the guesses are held
against what is certain: the unfinished bytes at the end of one file and the bytes before the guessed start of the
next must be whole messages, and the transaction open at the end of one must be the one that the next goes on
with.  A file whose guess proves wrong is asked for again (`Rescan`), this time from its true place.

Invariant: ``place``, ``relations``, ``types`` and ``tail`` always describe the end of the last file that was
added, exactly; nothing in them rests on a guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from wal2delta.decode.scan import FileScan, Scanner, Summary, TruncateAt, with_last
from wal2delta.decode.stream import Place
from wal2delta.errors import FramingError, UnknownRelation, Wal2DeltaError
from wal2delta.lsn import format_lsn
from wal2delta.protocol import messages as m
from wal2delta.protocol.framing import Framing
from wal2delta.transactions.plan import FilePlan, Plan, Resume, TruncatePosition


@dataclass(frozen=True, slots=True)
class Rescan:
    """The wish to have a file scanned again from a known place, behind some unfinished bytes.

    No place means the start of the stream, of which so few bytes were seen that its framing is unknown.
    """

    path: str
    place: Place | None
    prefix: bytes


@dataclass(slots=True)
class _Begun:
    """Where the open transaction began, and what was in force there."""

    path: str
    offset: int
    place: Place
    relations: dict[int, m.Relation]
    types: dict[int, m.Type]


@dataclass(frozen=True, slots=True)
class _Piece:
    """The part of the unfinished bytes that lies in one file."""

    path: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class _Seen:
    length: int
    fingerprint: int
    size: int


class Stitch:
    """Take the files' scans in their order; then give the plan.

    Args:
        resume: where the last run ended; None at the start of a stream.
    """

    def __init__(self, resume: Resume | None) -> None:
        self.place = resume.place if resume else None
        self.after_lsn = resume.place.last_lsn if resume else -1
        self.relations = {relation.oid: relation for relation in resume.relations} if resume else {}
        self.types = {type_.oid: type_ for type_ in resume.types} if resume else {}
        self.tail = b""
        self._resume = resume
        self._tail_at: tuple[str, int] = (resume.path, resume.offset) if resume else ("", 0)
        self._tail_pieces: list[_Piece] = []
        self._begun: _Begun | None = None
        self._files: list[FilePlan] = []
        self._seen: dict[str, _Seen] = {}
        self._truncates: dict[int, tuple[TruncateAt, ...]] = {}
        self._announced: dict[m.Relation, None] = {}
        self._transactions = 0
        if resume:
            self._seen[resume.path] = _Seen(resume.length, resume.fingerprint, -1)

    def add(self, scan: FileScan, *, exact: bool = False) -> Rescan | None:
        """Add the next file; give a `Rescan` instead when its guess does not hold.

        Args:
            scan: the file's summary.
            exact: the scan was made from the place and the tail that this stitch stands at.
        """
        if exact:
            if scan.summary is None:
                # The file lies inside one message.
                if not self.tail:
                    self._tail_at = (scan.path, 0)
                head = scan.head or b""
                self.tail += head
                self._tail_pieces.append(_Piece(scan.path, 0, len(head)))
                if self.place is None and scan.framing is not None:
                    self.place = Place(scan.framing)
                self._see(scan)
                return None
            self._join(scan, scan.summary, self._seam(scan, scan.summary.framing))
            return None
        again = Rescan(scan.path, self.place, self.tail)
        if scan.summary is None or scan.head is None or self.place is None:
            return again
        if scan.summary.framing is not self.place.framing:
            return again
        try:
            seam = self._seam(scan, scan.summary.framing)
        except Wal2DeltaError:
            # The file's own scan will tell where and what.
            return again
        if seam is not None and seam.stop != len(self.tail) + len(scan.head):
            return again
        place = seam.place if seam is not None else self.place
        if place is None or not _continues(place, scan.summary):
            return again
        self._join(scan, scan.summary, seam)
        return None

    def plan(self) -> Plan:
        """Give what the added files come to."""
        place = self.place
        if place is None:
            raise FramingError(
                f"the capture's {len(self.tail):,} bytes are too few to tell what they are",
                path=next(iter(self._seen), None),
                offset=0,
                remedy="Run again when the capture has grown; if it will not, it was truncated",
            )
        resume = self._make_resume(place)
        warnings = []
        if self.tail:
            path, offset = self._tail_at
            warnings.append(
                f"{path}, offset {offset:,}: the last {len(self.tail):,} bytes are an unfinished message; "
                "the next run goes on there when more has come. If nothing more will, the file was truncated"
            )
        if place.transaction is not None:
            warnings.append(
                f"transaction {place.transaction.xid} (commit LSN {format_lsn(place.transaction.final_lsn)}) "
                f"is open at the end, since {resume.path}, offset {resume.offset:,}; the next run goes on there"
            )
        return Plan(
            files=tuple(self._files),
            after_lsn=self.after_lsn,
            upto_lsn=place.last_lsn,
            upto_commit_time=place.last_commit_time,
            truncates=tuple(self._committed_truncates(place.last_lsn)),
            resume=resume,
            transactions=self._transactions,
            announced=tuple(self._announced),
            before=self._resume.relations if self._resume else (),
            types=tuple(self.types.values()),
            torn=(*self._tail_at, len(self.tail)) if self.tail else None,
            warnings=tuple(warnings),
        )

    def _seam(self, scan: FileScan, framing: Framing) -> Summary | None:
        """Walk the bytes that the boundary between two files cuts; None when it cuts no message."""
        data = self.tail + (scan.head or b"")
        if not data:
            return None
        place = self.place or Place(framing)
        return Scanner(place.framing, place=place).scan(data, 0)

    def _join(self, scan: FileScan, summary: Summary, seam: Summary | None) -> None:
        before = self.place
        if before is None:
            before = Place(summary.framing)
        body_place = seam.place if seam is not None and seam.place is not None else before
        relations_before, types_before = dict(self.relations), dict(self.types)
        seam_path, seam_offset = self._tail_at if self.tail else (scan.path, 0)
        used: dict[int, m.Relation] = {}
        for part in (seam, summary):
            if part is None:
                continue
            for oid, offset in part.used:
                if oid in self.relations:
                    used[oid] = self.relations[oid]
                    if oid in relations_before:
                        used[oid] = relations_before[oid]
                else:
                    path, at = self._in_seam(scan, offset) if part is seam else (scan.path, offset)
                    raise UnknownRelation(
                        f"a row change names relation {oid}, but no Relation message announced it",
                        path=path,
                        offset=at,
                        remedy="A capture has to begin where its session began; a file before this one is missing",
                    )
            self._announce(part)
        self._count(seam, before)
        self._count(summary, body_place)
        self._follow_begin(scan, seam, summary, before, relations_before, types_before)
        self._files.append(
            FilePlan(
                path=scan.path,
                length=scan.length,
                fingerprint=scan.fingerprint,
                seam=self.tail + (scan.head or b""),
                seam_path=seam_path,
                seam_offset=seam_offset,
                start=summary.start,
                stop=summary.stop,
                place=before,
                relations=tuple(used.values()),
                types=tuple(types_before.values()),
            )
        )
        self.place = _end_place(body_place, summary)
        self.tail = scan.tail
        self._tail_at = (scan.path, summary.stop)
        self._tail_pieces = [_Piece(scan.path, summary.stop, len(scan.tail))]
        self._see(scan)

    def _see(self, scan: FileScan) -> None:
        self._seen[scan.path] = _Seen(scan.length, scan.fingerprint, scan.size)

    def _announce(self, part: Summary) -> None:
        for _, relation in part.relations:
            self.relations[relation.oid] = relation
            self._announced[relation] = None
        for type_ in part.types:
            self.types[type_.oid] = type_

    def _count(self, part: Summary | None, place: Place) -> None:
        if part is None:
            return
        self._transactions += part.transactions
        for truncate in part.truncates:
            at = _position(truncate, place)
            self._truncates[at.oid] = with_last(self._truncates.get(at.oid, ()), at)

    def _committed_truncates(self, upto_lsn: int) -> Iterator[TruncatePosition]:
        """Give the last truncate of each relation that has any."""
        for known in self._truncates.values():
            for at in reversed(known):
                if at.lsn is not None and at.lsn <= upto_lsn:
                    yield TruncatePosition(at.oid, at.lsn, at.ordinal)
                    break

    def _follow_begin(
        self,
        scan: FileScan,
        seam: Summary | None,
        summary: Summary,
        before: Place,
        relations: dict[int, m.Relation],
        types: dict[int, m.Type],
    ) -> None:
        """Remember where the transaction that is open at the file's end began."""
        body_place = seam.place if seam is not None and seam.place is not None else before
        if _end_place(body_place, summary).transaction is None:
            self._begun = None
            return
        if summary.begin_at is not None:
            for part, limit in ((seam, None), (summary, summary.begin_at)):
                for offset, relation in part.relations if part else ():
                    if limit is None or offset < limit:
                        relations[relation.oid] = relation
                for type_ in part.types if part else ():
                    types[type_.oid] = type_
            place = replace(body_place, transaction=None)
            if summary.last_lsn is not None and summary.last_commit_time is not None:
                place = replace(place, last_lsn=summary.last_lsn, last_commit_time=summary.last_commit_time)
            self._begun = _Begun(scan.path, summary.begin_at, place, relations, types)
        elif seam is not None and seam.begin_at is not None:
            for offset, relation in seam.relations:
                if offset < seam.begin_at:
                    relations[relation.oid] = relation
            for type_ in seam.types:
                types[type_.oid] = type_
            path, at = self._in_seam(scan, seam.begin_at)
            place = replace(before, transaction=None)
            if seam.last_lsn is not None and seam.last_commit_time is not None:
                place = replace(place, last_lsn=seam.last_lsn, last_commit_time=seam.last_commit_time)
            self._begun = _Begun(path, at, place, relations, types)

    def _in_seam(self, scan: FileScan, offset: int) -> tuple[str, int]:
        """Give the file that a place of the seam lies in, and its offset there."""
        for piece in self._tail_pieces:
            if offset < piece.size:
                return piece.path, piece.offset + offset
            offset -= piece.size
        return scan.path, offset

    def _make_resume(self, place: Place) -> Resume:
        last_path = next(reversed(self._seen))
        last = self._seen[last_path]
        if place.transaction is not None and self._begun is not None:
            begun = self._begun
            path, offset, at = begun.path, begun.offset, begun.place
            relations, types = begun.relations, begun.types
            open_ = (place.transaction.xid, place.transaction.final_lsn)
        else:
            path, offset = self._tail_at
            at, relations, types, open_ = place, self.relations, self.types, None
        seen = self._seen[path]
        later = list(self._seen)[list(self._seen).index(path) + 1 :]
        rest = seen.size - offset + sum(self._seen[name].size for name in later)
        return Resume(
            path=path,
            offset=offset,
            length=seen.length,
            fingerprint=seen.fingerprint,
            done=open_ is None and not self.tail,
            last_path=last_path,
            last_length=last.length,
            place=at,
            relations=tuple(relations.values()),
            types=tuple(types.values()),
            open_transaction=open_,
            open_bytes=rest,
        )


def _continues(place: Place, summary: Summary) -> bool:
    """Whether a guessed summary may follow a known place."""
    open_ = place.transaction
    if summary.head_commit is not None:
        return open_ is not None and summary.head_commit == (open_.final_lsn, open_.commit_time)
    if summary.head_changes and open_ is None:
        return False
    if summary.place is None:
        return True
    begins = summary.first_lsn
    if summary.place.transaction is not None and begins is None:
        begins = summary.place.transaction.final_lsn
    return open_ is None and (begins is None or begins > place.last_lsn)


def _end_place(place: Place, summary: Summary) -> Place:
    """Give the place at a summary's end, given the one at its start."""
    if summary.exact and summary.place is not None:
        return summary.place
    if summary.place is None:
        open_ = place.transaction
        if open_ is None:
            return place
        return replace(place, transaction=replace(open_, ordinal=open_.ordinal + summary.head_changes))
    if summary.last_lsn is None:
        return replace(place, transaction=summary.place.transaction)
    return summary.place


def _position(truncate: TruncateAt, place: Place) -> TruncateAt:
    """Give a truncate's place in its transaction, where that began before the stretch."""
    open_ = place.transaction
    if truncate.lsn is not None or open_ is None:
        return truncate
    return TruncateAt(truncate.oid, open_.final_lsn, open_.ordinal + truncate.ordinal)


__all__ = ["Rescan", "Stitch"]
