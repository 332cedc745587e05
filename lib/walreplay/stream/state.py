"""The state of a stitch (`StitchState`), and what streamed and prepared transactions do to it.

The state is everything that is known at the end of the last file that was added.  `OpenTransactions` are the streamed
and prepared ones as of that place of the stream.  These rules make sure that only parts of one transaction are joined:

- A Stream Start with the first-segment flag begins a transaction anew, and discards what was gathered for its xid.
- A new session discards all open streamed transactions.  A complete Prepare outlives its session.
- A Stream Abort of a subtransaction removes that one's rows; a Stream Abort of the top-level xid removes everything.
- A prepared transaction is identified by gid and xid together, because a gid may be used again.

`add_block` and `add_body` gather these transactions from the parts that hold their rows; `decide` follows the messages
that prepare, commit or abort them.  Missing bytes (`check_awaited`, `check_rows`, `lacks_start`) are an error, or a
warning if gaps are allowed and incomplete transactions left out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar

from walreplay.decode.announcements import Layout, Layouts
from walreplay.decode.summary import Block, Body, Decided, FileScan, Part, TruncateAt, Unfinished, XidCounts
from walreplay.decode.walk import Place, Transaction
from walreplay.errors import OrderError, UnknownRelation
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m
from walreplay.stream.duplicates import DuplicateFiles
from walreplay.stream.in_force import PartitionsInForce, Truncates, Versions
from walreplay.stream.plan import AnnouncedVersion, CutOff, DecidedTransaction, Deferred, Resume, Segment
from walreplay.stream.schedule import AddedPart, DeferredCommit, Schedule
from walreplay.types.text import UTF8


class OpenTransactions:
    """Transactions whose rows have come, in part or completely, and of which it is not known whether they commit.

    ====================  ======================  =======================================================
    a transaction is      by the message          then it is
    ====================  ======================  =======================================================
    not known             Stream Start            in `streams`
    not known             Begin Prepare           the `body`
    not known             Prepare                 in `prepared`: it is empty
    in `streams`          Stream Abort            not known; of a subtransaction: there, without its rows
    in `streams`          Stream Commit           committed
    in `streams`          Stream Prepare          in `prepared`
    the `body`            Prepare                 in `prepared`
    in `prepared`         Commit Prepared         committed
    in either             Rollback Prepared       not known
    in `prepared`         another of gid or xid   not known: it has ended, unseen
    `streams`, the body   the session's end       not known: it comes again from its start
    ====================  ======================  =======================================================

    Attributes:
        streams: streamed transactions by xid.
        prepared: prepared transactions by gid and xid; they outlive their session.
        body: the transaction that is being prepared, between its Begin Prepare and its Prepare; None if there is none.
        gone: the session's subtransactions that have rolled back before anything of them was streamed.
    """

    def __init__(self) -> None:
        self.streams: dict[int, Deferred] = {}
        self.prepared: dict[tuple[str, int], Deferred] = {}
        self.body: Deferred | None = None
        self.gone: set[int] = set()

    def resume_from(self, resume: Resume) -> None:
        """Continue with the transactions that the last run has left open, and with its last session."""
        self.gone = set(resume.gone)
        for transaction in resume.deferred:
            # A copy, because the run may be planned again from the same transactions.
            copied = _copied_deferred(transaction)
            if copied.gid is None:
                self.streams[copied.xid] = copied
            elif copied.complete:
                self.prepared[copied.gid, copied.xid] = copied
            else:
                self.body = copied

    def copied(self) -> OpenTransactions:
        """Return the same, which does not change with these."""
        other = OpenTransactions()
        other.streams = {xid: _copied_deferred(transaction) for xid, transaction in self.streams.items()}
        other.prepared = dict(self.prepared)  # a complete transaction does not change any more
        other.body = None if self.body is None else _copied_deferred(self.body)
        other.gone = set(self.gone)
        return other

    @property
    def deferred(self) -> tuple[Deferred, ...]:
        """All of them, the oldest first."""
        transactions = [*self.prepared.values(), *self.streams.values(), *([self.body] if self.body else [])]
        # A stream in front of the first commit has no time: it is the oldest.
        return tuple(sorted(transactions, key=lambda transaction: (transaction.since or 0, transaction.xid)))

    def prepare_body(self, transaction: Deferred, gid: str) -> None:
        """Turn the body into a prepared transaction."""
        transaction.complete = True
        self.add_prepared(transaction, gid)
        self.body = None

    def prepare_stream(self, transaction: Deferred, message: m.StreamPrepare) -> None:
        """Add a prepared transaction that was streamed; the caller has removed it from the streams."""
        transaction.gid, transaction.complete = message.gid, True
        transaction.lsn, transaction.since = message.prepare_lsn, message.prepare_time
        self.add_prepared(transaction, message.gid)

    def add_prepared(self, transaction: Deferred, gid: str) -> None:
        """Add a prepared transaction; one of its gid or xid that was prepared before it has ended, unseen."""
        for key, other in list(self.prepared.items()):
            # Only one of the two is equal: PostgreSQL would refuse a gid in use, and an xid is prepared once.
            if (key[0] == gid) != (key[1] == transaction.xid) and (other.lsn or 0) < (transaction.lsn or 0):
                del self.prepared[key]
        self.prepared[gid, transaction.xid] = transaction

    def abort(self, xid: int, subxid: int) -> None:
        """Remove a streamed transaction, or the rows of a subtransaction."""
        if xid == subxid:
            self.streams.pop(xid, None)
        elif xid in self.streams:
            self.streams[xid].aborted.add(subxid)
        else:
            self.gone.add(subxid)  # rows of it in another transaction would prove damage

    def is_partly_gone(self, transaction: Deferred) -> bool:
        """Return whether a transaction has rows of a subtransaction that has rolled back as part of another one."""
        return any(segment.rows.among(self.gone) for segment in transaction.segments)

    def contradicts(self, message: m.CommitPrepared | m.RollbackPrepared) -> bool:
        """Return whether a decision's xid was prepared with another gid, or a commit's gid with another xid.

        A rollback's gid may be another transaction's: it may be used again, and the old rollback may be sent again.
        """
        is_commit = isinstance(message, m.CommitPrepared)
        return any(xid == message.xid or (is_commit and gid == message.gid) for gid, xid in self.prepared)

    def end_session(self, place: Place, *, late: bool) -> None:
        """End a session: its streamed transactions are discarded, because they are sent again from their start.

        Args:
            place: where the session ends.
            late: only an LSN shows that the session has ended.  So transactions that began after its last commit may
                belong to the new session, and are kept.
        """
        self.streams = {
            xid: transaction
            for xid, transaction in self.streams.items()
            if late and transaction.after_lsn == place.last_lsn and place.stream != xid
        }
        self.gone.clear()  # the next session sends again from the transactions' start

    def discard_unfinished(self) -> None:
        """Discard transactions that cannot continue, because bytes are missing."""
        self.streams, self.body = {}, None


def _copied_deferred(deferred: Deferred) -> Deferred:
    return replace(deferred, **_copied_collections((name, getattr(deferred, name)) for name in Deferred.__slots__))


_T = TypeVar("_T")


@dataclass(slots=True)
class Begun:
    """Where the open ordinary transaction began, and what was in force there.

    Attributes:
        path, offset: its Begin.
        entry: the schedule's entry that has its bytes, from the offset ``entry_offset`` on.
        moved: so much was announced of partitions by then.
    """

    path: str
    offset: int
    entry: int
    entry_offset: int
    place: Place
    relations: dict[int, AnnouncedVersion]
    types: dict[int, m.Type]
    layouts: tuple[Layout, ...] = ()
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A file when it was scanned: length and fingerprint as stored, and size in bytes when decompressed."""

    length: int
    fingerprint: int
    size: int


@dataclass(slots=True)
class StitchState:
    """Everything that the stitch knows; nothing in it rests on a guess.

    Attributes:
        resume: where the last run ended; None at the start of a stream.
        wants_origin: says whether transactions of an origin (None: of the source itself) are applied.
        allow_gaps: leave out incomplete transactions with a warning, instead of refusing them.
        place: the place at the end of the last file; None until the framing is known.
        after_lsn: transactions up to this commit LSN have been applied by earlier runs.
        tail_at: file and offset at which ``unfinished`` begins.
        unfinished: the message that continues in the next file, as far as it was read.
        codec: the encoding of names.
        begun: where the open ordinary transaction began, if that was in this run.
        cut: what the sessions before have brought of transactions that were cut off, by xid.
        duplicate_files: the files that were added.
        awaited: the commit LSN of a transaction that a session's end has cut off, and that has to be sent again; of
            several, the lowest.
        transactions: how many transactions have committed, without copies.
        resent: how many copies of known transactions there were.
        seen: the files that were scanned, by path.
        scanned: from which to which offset each file was read, by path.
        ended: the files continue with a transaction that is too late for the run.
        decided: the streamed and prepared transactions that have committed.
        parts: of the file that was added last, as they were joined.
        gap_errors: what proved that something is missing, where gaps are allowed.
        gap: the last gap that was gone over, and where it is; empty for none.
        layouts: what is announced of tables outside of streamed transactions.
    """

    resume: Resume | None
    wants_origin: Callable[[str | None], bool]
    allow_gaps: bool
    place: Place | None = None
    after_lsn: int = -1
    tail_at: tuple[str, int] = ("", 0)
    unfinished: Unfinished = field(default_factory=Unfinished)
    codec: str = UTF8
    begun: Begun | None = None
    cut: dict[int, CutOff] = field(default_factory=dict)
    duplicate_files: DuplicateFiles = field(default_factory=DuplicateFiles)
    awaited: int | None = None
    ended: bool = False
    transactions: int = 0
    resent: int = 0
    versions: Versions = field(default_factory=Versions)
    partitions: PartitionsInForce = field(default_factory=PartitionsInForce)
    truncates: Truncates = field(default_factory=Truncates)
    open: OpenTransactions = field(default_factory=OpenTransactions)
    schedule: Schedule = field(default_factory=Schedule)
    seen: dict[str, Seen] = field(default_factory=dict)
    scanned: dict[str, tuple[int, int]] = field(default_factory=dict)
    decided: list[DecidedTransaction] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    parts: tuple[Part, ...] = ()
    gap_errors: list[OrderError] = field(default_factory=list)
    layouts: Layouts = field(default_factory=Layouts)
    gap: str = ""

    def __post_init__(self) -> None:
        resume = self.resume
        if resume is None:
            return
        self.place, self.after_lsn = resume.place, resume.place.high_lsn
        self.cut = {cut_off.xid: cut_off for cut_off in resume.cut}
        self.tail_at, self.awaited = (resume.path, resume.offset), resume.awaited
        self.seen[resume.path] = Seen(resume.length, resume.fingerprint, -1)  # -1: known after its next scan
        self.partitions.resume_from(resume)
        self.versions.resume_from(resume)
        if self.layouts.prefix is not None:
            self.layouts = Layouts(self.layouts.prefix, resume.layouts, resume.relations)
        self.open.resume_from(resume)

    @property
    def tail(self) -> bytes:
        """The unfinished bytes at the end of the last file."""
        return self.unfinished.data

    def warn_of_gap(self, gap: str) -> None:
        """Go on over a gap, with a warning."""
        self.warnings.append(f"{gap} (gaps are allowed)")
        self.gap = f"{gap}, near LSN {format_lsn(max(0, -1 if self.place is None else self.place.high_lsn))}"

    def copied(self) -> StitchState:
        """Return the same state, which does not change with this one: a file that cannot be added leaves it halfway."""
        other = copy.copy(self)
        for name in ("versions", "partitions", "truncates", "schedule", "layouts", "duplicate_files"):
            setattr(other, name, _copied(getattr(self, name)))
        for name in ("seen", "scanned", "decided", "warnings", "gap_errors"):
            setattr(other, name, getattr(self, name).copy())
        other.open = self.open.copied()
        return other

    def note_cut(self, open_: Transaction | None, streams: Mapping[int, Deferred], place: Place) -> None:
        """Note how much has come of the transactions that a session's end cuts off."""
        # A session that ends before it has caught up with an earlier one says nothing of what that one has brought.
        cut_offs = {xid: earlier for xid, earlier in self.cut.items() if place.last_lsn <= earlier.high_lsn}
        cut_offs |= {xid: CutOff(xid, None, transaction.rows, place.high_lsn) for xid, transaction in streams.items()}
        if open_ is not None:
            cut_offs[open_.xid] = CutOff(open_.xid, open_.final_lsn, XidCounts(open_.ordinal), place.high_lsn)
        for xid, cut_off in cut_offs.items():
            earlier = self.cut.get(xid)
            # The session may have ended before it had sent again all rows of the one before.
            if earlier is not None and earlier.lsn == cut_off.lsn and earlier.has_more_than(cut_off.rows):
                cut_offs[xid] = earlier
        self.cut = cut_offs

    def used_version(self, oid: int, row_offset: int, added: AddedPart) -> AnnouncedVersion:
        """Return the version of a relation that a row at an offset uses, outside of streamed transactions.

        Raises:
            UnknownRelation: no Relation message has announced it.
        """
        version = self.versions.version_of(oid)
        if version is None:
            path, offset = added.where(row_offset)
            raise UnknownRelation(
                f"a row change names relation {oid}, but no Relation message announced it",
                path=path,
                offset=offset,
                remedy="A capture has to begin where its session began; a file before this one is missing",
            )
        return version

    def announce(self, relation: m.Relation) -> None:
        """Put a relation version in force from here on, outside of streamed transactions."""
        self.versions.announce(self.layouts.annotated(relation))
        self.partitions.forget(relation.oid)

    def relabel(self, oids: Iterable[int] | None = None) -> None:
        """Put some relations (None: all) in force with the labels that enums have from here on."""
        for relation in self.versions.relations if oids is None else self.versions.view_of(oids):
            labelled = self.layouts.labelled(relation)
            if labelled is not relation:
                self.versions.announce(labelled)

    def cut_begun(self) -> None:
        """Remove the open ordinary transaction from the schedule."""
        if self.begun is not None:
            self.schedule.cut(self.begun.entry, self.begun.entry_offset)
        self.begun = None

    def end_file(self, scan: FileScan, start: int, stop: int) -> None:
        """Update the state at the end of a file, after its parts were added."""
        self.scanned[scan.path] = (start, stop)
        self.ended = scan.ended
        # The unfinished bytes may begin in an earlier file.
        self.unfinished = self.unfinished.behind(scan)
        self.tail_at = self.unfinished.origins[0]
        self.seen[scan.path] = Seen(scan.length, scan.fingerprint, scan.size)
        self.codec = scan.codec


def _copied(part: _T) -> _T:
    """Copy a part of the state with its lists and dicts; what is in these does not change."""
    other = copy.copy(part)
    vars(other).update(_copied_collections(vars(part).items()))
    return other


def _copied_collections(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value.copy() for name, value in fields if isinstance(value, (list, dict, set))}


_Announcing: TypeAlias = tuple[int, "m.Relation | m.Message"]  # with its offset; a Message may announce a table

_Committed: TypeAlias = tuple[DecidedTransaction, DeferredCommit | None]
"""A transaction that a decision has committed, and its entry for the schedule: None if it only announces relations."""


def decide(state: StitchState, decision: Decided, added: AddedPart) -> _Committed | None:
    """Apply a decision to the state; return the committed transaction if the decision is a commit.

    Raises:
        OrderError: a subtransaction of it has rolled back as one of another transaction.
    """
    message = decision.message
    if isinstance(message, m.StreamAbort):
        state.open.abort(message.xid, message.subxid)
        return None
    if isinstance(message, (m.Prepare, m.StreamPrepare)):
        _end_unseen(state, message.gid, message.xid, message.prepare_lsn)
    if isinstance(message, m.Prepare):
        path, offset = added.where(decision.offset)
        empty = Deferred(
            message.xid,
            path,
            offset,
            message.gid,
            complete=True,
            streamed=False,
            lsn=message.prepare_lsn,
            since=message.prepare_time,
        )
        if (message.gid, message.xid) not in state.open.prepared:  # a Prepare that comes again has no rows
            state.open.add_prepared(empty, message.gid)
        return None
    if isinstance(message, m.RollbackPrepared):
        # Even if it is still streamed.
        state.open.streams.pop(message.xid, None)
        state.open.prepared.pop((message.gid, message.xid), None)
        return None
    if isinstance(message, m.StreamPrepare):
        prepared = _take_stream(state, message.xid, decision, added)
        if prepared is not None:
            prepared.lacks_rows = stream_lacks_rows(state, prepared)
            state.open.prepare_stream(prepared, message)
        return None
    resent = message.commit_lsn <= added.start_place.high_lsn  # of the part: LSNs rise in a session
    if isinstance(message, m.StreamCommit):
        decided = _take_stream(state, message.xid, decision, added)
    else:
        decided = state.open.prepared.pop((message.gid, message.xid), None)
        if decided is None and not resent:
            path, offset = added.where(decision.offset)
            state.warnings.append(
                f"{path}, offset {offset:,}: transaction {message.xid} (commit LSN "
                f"{format_lsn(message.commit_lsn)}) was prepared, but its rows are not there: "
                "it was empty, or the file with its Prepare is missing"
            )
    return _commit(state, decided, message, decision, added, resent=resent)


def _end_unseen(state: StitchState, gid: str, xid: int, lsn: int) -> None:
    """End the transaction whose gid another one is prepared with: PostgreSQL gives no gid that is in use."""
    for key, transaction in list(state.open.prepared.items()):
        if key[0] == gid and key[1] != xid and (transaction.lsn or 0) < lsn:
            del state.open.prepared[key]
            state.warnings.append(
                f"{transaction.path}, offset {transaction.offset:,}: transaction {transaction.xid} was prepared as "
                f"{gid!r}, and so is transaction {xid} now: the first has ended, but a file that says how is "
                "missing. It is left out; if it has committed, load the tables' rows anew (walreplay load --replace)"
            )


def _take_stream(state: StitchState, xid: int, decision: Decided, added: AddedPart) -> Deferred | None:
    stream = state.open.streams.pop(xid, None)
    if stream is not None and state.open.is_partly_gone(stream):
        path, offset = added.where(decision.offset)
        raise OrderError(
            f"a subtransaction of the streamed transaction {xid} has rolled back as one of another transaction",
            path=path,
            offset=offset,
            remedy="The file is damaged; fetch it from its source again",
        )
    return stream


def _commit(
    state: StitchState,
    decided: Deferred | None,
    message: m.StreamCommit | m.CommitPrepared,
    decision: Decided,
    added: AddedPart,
    *,
    resent: bool,
) -> _Committed | None:
    origin = decided.origin if decided is not None else None
    applied = not resent and state.wants_origin(origin)
    path, offset = added.where(decision.offset)
    transaction = DecidedTransaction(
        commit_lsn=message.commit_lsn,
        commit_time=message.commit_time,
        xid=message.xid,
        gid=message.gid if isinstance(message, m.CommitPrepared) else None,
        origin=origin,
        applied=applied,
        resent=resent,
        complete=decided is not None,
        session=added.start_place.session,
        path=path,
        offset=offset,
    )
    state.decided.append(transaction)
    state.resent += resent
    state.transactions += not resent
    if decided is None:
        return None
    state.versions.adopt(decided, holds_outside=isinstance(message, m.StreamCommit))
    state.layouts.add(decided.layouts, decided.aborted)  # announcements hold from the commit on
    if not decided.streamed:
        # What it has announced to be in force was read without what it said of the columns.
        for layout in decided.layouts:
            version = None if layout.enum is not None or layout.is_dropped else state.versions.version_of(layout.oid)
            if version is not None:
                state.versions.announce(state.layouts.annotated(version.relation))
    # Labels may have been renamed since it has announced its tables, or by itself.
    renames = any(layout.enum is not None for layout in decided.layouts)
    state.relabel(None if renames else decided.view)
    starts, truncates = decided.ordinals()
    if applied:
        for oid, ordinal in truncates:
            state.truncates.note(TruncateAt(oid, transaction.commit_lsn, ordinal, origin))
    if all(segment.is_empty for segment in decided.segments):  # its versions are in force behind it
        return (transaction, None) if decided.view else None
    return transaction, DeferredCommit(decided, tuple(starts), transaction)


def add_block(state: StitchState, block: Block, added: AddedPart) -> None:
    """Add a block of a streamed transaction whose earlier blocks are all there."""
    xid = block.xid
    if block.first:
        path, offset = added.where(block.start)
        after_lsn, since = block.after_lsn, block.after_time
        if after_lsn < 0:  # no commit comes before it in the part
            after_lsn, since = added.start_place.last_lsn, added.start_place.last_commit_time
        state.open.streams[xid] = Deferred(
            xid, path, offset, since=since if after_lsn >= 0 else None, after_lsn=after_lsn
        )
    transaction = state.open.streams[xid]
    if block.origin is not None:
        transaction.origin = block.origin
    relations = used_by(state, block.used, added, transaction.view)
    types = types_of(relations, state.versions.types | transaction.types, all_=block.continues)
    layouts_before = _follow(state, transaction, relations, (*block.relations, *block.announced), outside=False)
    for _, type_ in block.types:
        transaction.types[type_.oid] = replace(type_, xid=None)  # outside of the block no message has an xid
    place = Place(added.framing, stream=xid if block.continues else None)
    _add_segment(transaction, added, block, place, relations, types, block.rows, layouts_before)


def _follow(
    state: StitchState,
    transaction: Deferred,
    used_relations: Sequence[m.Relation],
    messages: Sequence[_Announcing],
    *,
    outside: bool,
) -> tuple[Layout, ...]:
    """Follow what a part of a transaction announces, offset by offset.

    Args:
        outside: its Relation messages are in force outside of it too, read without what it says of the columns.

    Returns:
        what was announced before the part, of the relations that it uses and announces.
    """
    layouts = Layouts(state.layouts.prefix, state.layouts.all(), state.layouts.shown.values())
    layouts.add(transaction.layouts, transaction.aborted)
    named = [*used_relations, *(message for _, message in messages if isinstance(message, m.Relation))]
    layouts_before = layouts.of([relation.oid for relation in named], named)
    for _, message in sorted(messages, key=lambda entry: entry[0]):
        if isinstance(message, m.Relation):
            annotated = layouts.annotated(message)
            changed = [] if outside and annotated == state.layouts.annotated(message) else [annotated]
        else:
            announcements = layouts.take(message, transaction.aborted)
            transaction.layouts += announcements
            # Behind an enum, all that the transaction may use is told anew.
            has_enum = any(layout.enum is not None for layout in announcements)
            in_force = _relations(state, transaction) if has_enum else ()
            changed = [labelled for relation in in_force if (labelled := layouts.labelled(relation)) is not relation]
        for relation in changed:
            _view(state, transaction, relation)
    return layouts_before


def _relations(state: StitchState, transaction: Deferred) -> Iterable[m.Relation]:
    """Return the relation versions that are in force within a transaction."""
    own_relations = {oid: version.relation for oid, version in transaction.view.items()}
    return ({relation.oid: relation for relation in state.versions.relations} | own_relations).values()


def _view(state: StitchState, transaction: Deferred, relation: m.Relation) -> None:
    """Put a relation version in force within a transaction."""
    replaced = transaction.view.get(relation.oid)
    if replaced is not None and replaced.relation != relation:
        transaction.former.append(replaced.relation)  # rows of earlier segments have it
    transaction.view[relation.oid] = AnnouncedVersion(relation, state.versions.next_number())


def add_body(state: StitchState, body: Body, added: AddedPart) -> None:
    """Add rows of a transaction that is being prepared (between Begin Prepare and Prepare).

    Raises:
        OrderError: the transaction's start is missing.
    """
    path, offset = added.where(body.start)
    if body.begins:
        # What was streamed of it before is discarded.
        state.open.streams.pop(body.xid, None)
        state.open.body = Deferred(
            body.xid, path, offset, body.gid, streamed=False, lsn=body.prepare_lsn, since=body.prepare_time
        )
    transaction = state.open.body
    if transaction is None:
        raise OrderError("a prepared transaction goes on whose start is not there", path=path, offset=offset)
    transaction.origin = body.origin or transaction.origin
    relations = used_by(state, body.used, added, transaction.view)
    announcing: tuple[_Announcing, ...] = (*added.part.summary.relations, *added.part.summary.announced)
    messages = [entry for entry in announcing if body.start <= entry[0] < body.stop]
    layouts_before = _follow(state, transaction, relations, messages, outside=True)
    place = Place(added.framing)
    if not body.begins:  # else the walk begins with the Begin Prepare, and needs no open transaction
        opened = added.start_place.transaction
        place = replace(place, transaction=opened)
    types = types_of(relations, state.versions.types, all_=not body.begins)
    _add_segment(transaction, added, body, place, relations, types, XidCounts(body.rows), layouts_before)
    if body.complete:
        transaction.lacks_rows = lacks_rows(state, body.xid, body.prepare_lsn, XidCounts(body.ordinal + body.rows))
        _end_unseen(state, body.gid, body.xid, body.prepare_lsn)
        state.open.prepare_body(transaction, body.gid)


def _add_segment(
    transaction: Deferred,
    added: AddedPart,
    part: Block | Body,
    place: Place,
    relations: Iterable[m.Relation],
    types: tuple[m.Type, ...],
    rows: XidCounts,
    layouts: tuple[Layout, ...],
) -> None:
    scan = added.scan
    transaction.segments.append(
        Segment(
            path=scan.path,
            length=scan.length,
            fingerprint=scan.fingerprint,
            start=part.start,
            stop=part.stop,
            place=place,
            relations=tuple(dict.fromkeys(relations)),
            types=types,
            rows=rows,
            truncate=part.truncate if isinstance(part, Block) else None,
            truncates=part.truncates if isinstance(part, Body) else (),
            messages=part.messages,
            layouts=layouts,
            seam=None if added.part.data is None else added.part.data[part.start : part.stop],
            seam_path=added.origin[0],
            seam_offset=added.origin[1] + part.start,
        )
    )


def used_by(
    state: StitchState, used: Iterable[tuple[int, int]], added: AddedPart, view: dict[int, AnnouncedVersion]
) -> list[m.Relation]:
    """Return the relation versions that a deferred transaction's rows use: its own, or else those in force outside."""
    return [(view.get(oid) or state.used_version(oid, row_offset, added)).relation for oid, row_offset in used]


def types_of(relations: Iterable[m.Relation], types: Mapping[int, m.Type], *, all_: bool) -> tuple[m.Type, ...]:
    """Return the types of some relations' columns; with ``all_``, every known type.

    All are needed if a file may end between a Type message and the Relation message that uses it.
    """
    if all_:
        return tuple(types.values())
    oids = {column.type_oid for relation in relations for column in relation.columns}
    return tuple(type_ for oid, type_ in types.items() if oid in oids)


_MISSING: Final = "A file before this one is missing; bring it back, or leave its transactions out by --allow-gaps"
_COPY: Final = "A file in front of this one is missing, or is there twice; bring it back, or remove the copy"
_DAMAGED: Final = (
    "The file is damaged, or what decided on the transaction of that gid is missing; fetch it from its source again"
)


def check_awaited(state: StitchState, added: AddedPart) -> None:
    """Check that a transaction that a session's end has cut off is sent again.

    Raises:
        OrderError: it is not, and gaps are not allowed.
    """
    summary = added.part.summary
    first = summary.first_event
    if state.awaited is None or first is None:
        return
    awaited, state.awaited = state.awaited, None
    if first <= awaited:  # the awaited one comes, or one before it, from which the server starts over
        return
    problem = f"transaction {format_lsn(awaited)} has begun before, but neither goes on here nor comes again"
    _refuse(state, added, summary.start, problem, _MISSING)


def check_rows(state: StitchState, parts: tuple[Part, ...], path: str) -> None:
    """Check that an ordinary transaction, which ends in a file, has the rows that a session before has brought of it.

    Raises:
        OrderError: it has not.
    """
    place, head_rows = state.place, 0
    open_ = None if place is None else place.transaction
    for part in parts:
        if part.new_session or open_ is None:
            return
        summary = part.summary
        if summary.head_commit is not None:
            rows = XidCounts(open_.ordinal + head_rows + summary.head_changes)
            if lacks_rows(state, open_.xid, open_.final_lsn, rows):
                error = OrderError(_fewer_rows(open_.xid), path=path, offset=0, remedy=_COPY)
                if not state.allow_gaps:
                    raise error
                state.warn_of_gap(f"{path}: {error.problem}; it is applied as it is")
            return
        if summary.exact and summary.place is not None:
            open_, head_rows = summary.place.transaction, 0  # an exact part counts from the Begin by itself
        else:
            head_rows += summary.head_changes


def lacks_rows(state: StitchState, xid: int, lsn: int | None, rows: XidCounts, aborted: Collection[int] = ()) -> bool:
    """Return whether a transaction that is whole has fewer rows than a session before has brought of it."""
    cut = state.cut.get(xid)
    return cut is not None and cut.lsn == lsn and cut.has_more_than(rows, aborted)


def stream_lacks_rows(state: StitchState, transaction: Deferred) -> bool:
    """Return whether a streamed transaction that ends has fewer rows than a session before has brought of it."""
    # Most streams were never cut off, and to count their rows takes time.
    rows = transaction.rows if transaction.xid in state.cut else XidCounts()
    return lacks_rows(state, transaction.xid, None, rows, transaction.aborted)


def _fewer_rows(xid: int) -> str:
    return f"transaction {xid} ends here, but has fewer rows than a session before has brought of it"


def lacks_start(state: StitchState, item: Block | Body | Decided, added: AddedPart) -> bool:
    """Return whether the beginning of an item's transaction is missing, so that the item is left out.

    Raises:
        OrderError: it is missing, and gaps are not allowed.
    """
    if isinstance(item, Block):
        if item.first or item.xid in state.open.streams:
            return False
        problem = f"a block of the streamed transaction {item.xid} goes on, but its first one is not there"
        _refuse(state, added, item.start, problem, _MISSING)
        return True
    if isinstance(item, Body):
        return False
    message = item.message
    if isinstance(message, (m.StreamCommit, m.StreamPrepare)) and message.xid not in state.open.streams:
        problem = f"the streamed transaction {message.xid} ends, but none of its blocks is there"
        _refuse(state, added, item.offset, problem, _MISSING)
        return True
    if isinstance(message, (m.StreamCommit, m.CommitPrepared)) and _commits_too_few(state, message, added):
        _refuse(state, added, item.offset, _fewer_rows(message.xid), _COPY)
        return True
    if isinstance(message, (m.CommitPrepared, m.RollbackPrepared)):
        return _decides_on_another(state, message, item.offset, added)
    return False


def _commits_too_few(state: StitchState, message: m.StreamCommit | m.CommitPrepared, added: AddedPart) -> bool:
    """Return whether a transaction commits that lacks rows; it is forgotten then."""
    open_ = state.open
    if isinstance(message, m.StreamCommit):
        lacks = stream_lacks_rows(state, open_.streams[message.xid])
        return lacks and open_.streams.pop(message.xid, None) is not None  # one that is left out must not stay open
    prepared = open_.prepared.get((message.gid, message.xid))
    if prepared is None or not prepared.lacks_rows or message.commit_lsn <= added.start_place.high_lsn:
        return False
    del open_.prepared[message.gid, message.xid]
    return True


def _decides_on_another(
    state: StitchState, message: m.CommitPrepared | m.RollbackPrepared, offset: int, added: AddedPart
) -> bool:
    """Return whether a decision names a transaction that was prepared with another gid or xid."""
    is_known = (message.gid, message.xid) in state.open.prepared
    # A copy's transaction was taken from the prepared ones by its first commit.
    is_copy = isinstance(message, m.CommitPrepared) and message.commit_lsn <= added.start_place.high_lsn
    if is_known or is_copy or not state.open.contradicts(message):
        return False
    problem = (
        f"a {type(message).__name__} decides on transaction {message.xid}, but its gid, or its xid, is not the one "
        "that it was prepared with"
    )
    _refuse(state, added, offset, problem, _DAMAGED)
    return True


def _refuse(state: StitchState, added: AddedPart, part_offset: int, problem: str, remedy: str) -> None:
    """Raise an error, or add a warning if gaps are allowed."""
    path, offset = added.where(part_offset)
    error = OrderError(problem, path=path, offset=offset, remedy=remedy)
    if not state.allow_gaps:
        raise error
    state.gap_errors.append(error)
    state.warn_of_gap(f"{path}, offset {offset:,}: {problem}; it is left out")
