"""What the stream's items do to streamed and prepared transactions (`TRANSITIONS`, which `follow` executes).

Only parts of one transaction are joined: its first block, or its Begin Prepare, discards what was gathered for its xid.
A prepared transaction is identified by gid and xid together, because a gid may be used again.  What PostgreSQL never
sends is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from walreplay.decode.announcements import Layout, Layouts
from walreplay.decode.summary import Block, Body, Decided, Item, TruncateAt, XidCounts
from walreplay.decode.walk import Place
from walreplay.lsn import format_lsn
from walreplay.protocol import messages as m
from walreplay.stream.plan import AnnouncedVersion, DecidedTransaction, Deferred, Segment
from walreplay.stream.schedule import AddedPart, DeferredCommit
from walreplay.stream.state import COPY, FEWER_ROWS, MISSING, Named, StitchState, lacks_rows

Committed: TypeAlias = tuple[DecidedTransaction, DeferredCommit | None]
"""A transaction that a decision has committed, and its entry for the schedule: None if it only announces relations."""

_Position: TypeAlias = tuple[str, int]  # an item's file, and its offset there

_Announcing: TypeAlias = tuple[int, "m.Relation | m.Message"]  # with its offset; a Message may announce a table


class Fault(Enum):
    """What proves, where an item of a transaction comes, that bytes are damaged or missing."""

    NOTHING = auto()  # nothing of it is there
    FEWER_ROWS = auto()  # it has fewer rows than a session before has brought of it
    MIXED = auto()  # it has rows of a subtransaction that has rolled back as one of another transaction
    OTHER = auto()  # its gid, or its xid, was prepared with another


def _is_at_fault(fault: Fault, state: StitchState, item: Named, transaction: Deferred | None) -> bool:
    if transaction is None:
        if fault is Fault.OTHER and isinstance(item, (m.CommitPrepared, m.RollbackPrepared)):
            return state.open.contradicts(item)
        begins = (isinstance(item, Block) and item.first) or (isinstance(item, Body) and item.begins)
        return fault is Fault.NOTHING and not begins
    if fault is Fault.FEWER_ROWS:
        return transaction.lacks_rows if transaction.complete else _stream_lacks_rows(state, transaction)
    return fault is Fault.MIXED and any(segment.rows.among(state.open.gone) for segment in transaction.segments)


@dataclass(frozen=True, slots=True)
class Rejection:
    """The error for a fault; with ``is_gap``, it is a warning where gaps are allowed, and the transaction left out."""

    problem: str
    remedy: str | None
    is_gap: bool = True


@dataclass(frozen=True, slots=True)
class Transition:
    """What an item does to its transaction.

    Attributes:
        action: takes the transaction as it was, None if it is not there or left out, and returns it as it is then: it
            is put back to where it belongs now.  If it has ended, the action returns None, or what has committed.
        refused: the faults that are looked for, in this order.
    """

    action: Callable[[StitchState, Deferred | None, Any, AddedPart, _Position], Deferred | Committed | None]
    refused: Mapping[Fault, Rejection] = field(default_factory=dict)


def follow(state: StitchState, item: Item, added: AddedPart) -> Committed | None:
    """Apply an item to the transaction that it names; return the transaction if that commits it.

    Raises:
        OrderError: PostgreSQL never sends the item there.
    """
    named = item.message if isinstance(item, Decided) else item
    transition, transaction = TRANSITIONS[type(named)], state.open.take(named)
    # A copy's transaction was taken from the prepared ones by its first commit.
    is_copy = isinstance(named, m.CommitPrepared) and _is_resent(named, added)
    for fault, rejection in {} if is_copy else transition.refused.items():
        if _is_at_fault(fault, state, named, transaction):
            problem = rejection.problem.format(xid=named.xid, name=type(named).__name__)
            error = added.error(item.start, problem, rejection.remedy)
            if not rejection.is_gap:
                raise error
            state.refuse(error)
            transaction = None
            break
    result = transition.action(state, transaction, named, added, added.where(item.start))
    if not isinstance(result, Deferred):
        return result
    state.open.put(result)
    return None


# The actions


def _add_block(
    state: StitchState, transaction: Deferred | None, block: Block, added: AddedPart, position: _Position
) -> Deferred | None:
    if block.first:
        after_lsn, since = block.after_lsn, block.after_time
        if after_lsn < 0:  # no commit comes before it in the part
            after_lsn, since = added.start_place.last_lsn, added.start_place.last_commit_time
        transaction = Deferred(block.xid, *position, since=since if after_lsn >= 0 else None, after_lsn=after_lsn)
    if transaction is None:  # left out
        return None
    if block.origin is not None:
        transaction.origin = block.origin
    relations = _used_by(state, block.used, added, transaction.own_versions)
    types = _types_of(relations, state.versions.types | transaction.types, all_=block.continues)
    layouts_before = _announce(state, transaction, relations, (*block.relations, *block.announced), outside=False)
    for _, type_ in block.types:
        transaction.types[type_.oid] = replace(type_, xid=None)  # outside of the block no message has an xid
    place = Place(added.framing, stream=block.xid if block.continues else None)
    _add_segment(transaction, added, block, place, relations, types, block.rows, layouts_before)
    return transaction


def _add_body(
    state: StitchState, transaction: Deferred | None, body: Body, added: AddedPart, position: _Position
) -> Deferred:
    """Add rows between Begin Prepare and Prepare."""
    if body.begins:
        # What was streamed of it before is discarded.
        state.open.streams.pop(body.xid, None)
        transaction = Deferred(
            body.xid, *position, body.gid, streamed=False, lsn=body.prepare_lsn, since=body.prepare_time
        )
    assert transaction is not None, "it is refused where it goes on"
    transaction.origin = body.origin or transaction.origin
    relations = _used_by(state, body.used, added, transaction.own_versions)
    announcing: tuple[_Announcing, ...] = (*added.part.summary.relations, *added.part.summary.announced)
    messages = [entry for entry in announcing if body.start <= entry[0] < body.stop]
    layouts_before = _announce(state, transaction, relations, messages, outside=True)
    place = Place(added.framing)
    if not body.begins:  # else the walk begins with the Begin Prepare, and needs no open transaction
        place = replace(place, transaction=added.start_place.transaction)
    types = _types_of(relations, state.versions.types, all_=not body.begins)
    _add_segment(transaction, added, body, place, relations, types, XidCounts(body.rows), layouts_before)
    if body.complete:
        transaction.lacks_rows = lacks_rows(state, body.xid, body.prepare_lsn, XidCounts(body.ordinal + body.rows))
        _end_unseen(state, body)
        transaction.complete = True
    return transaction


def _abort(
    state: StitchState, transaction: Deferred | None, message: m.StreamAbort, _: AddedPart, __: _Position
) -> Deferred | None:
    if message.xid == message.subxid:
        return None
    if transaction is None:
        state.open.gone.add(message.subxid)  # rows of it in another transaction would prove damage
    else:
        transaction.aborted.add(message.subxid)
    return transaction


def _prepare(
    state: StitchState, transaction: Deferred | None, message: m.Prepare, _: AddedPart, position: _Position
) -> Deferred:
    """Add a prepared transaction without rows; a Prepare that comes again has none either."""
    _end_unseen(state, message)
    lsn, since = message.prepare_lsn, message.prepare_time
    return transaction or Deferred(
        message.xid, *position, message.gid, complete=True, streamed=False, lsn=lsn, since=since
    )


def _prepare_stream(
    state: StitchState, transaction: Deferred | None, message: m.StreamPrepare, _: AddedPart, __: _Position
) -> Deferred | None:
    _end_unseen(state, message)  # of a transaction that is left out, too: its gid is free
    if transaction is not None:
        transaction.lacks_rows = _stream_lacks_rows(state, transaction)
        transaction.gid, transaction.complete = message.gid, True
        transaction.lsn, transaction.since = message.prepare_lsn, message.prepare_time
    return transaction


def _end_unseen(state: StitchState, named: Body | m.Prepare | m.StreamPrepare) -> None:
    """End transactions that were prepared with the gid, or with the xid, of one that is prepared now."""
    prepared = state.open.prepared
    for (gid, xid), transaction in list(prepared.items()):
        # PostgreSQL gives no gid that is in use, and prepares an xid once.
        if (gid == named.gid) != (xid == named.xid) and (transaction.lsn or 0) < named.prepare_lsn:
            del prepared[gid, xid]
            state.warnings.append(
                f"{transaction.path}, offset {transaction.offset:,}: transaction {xid} was prepared as {gid!r}, and "
                f"transaction {named.xid} as {named.gid!r} now: the first has ended, but a file that says how is "
                "missing. It is left out; if it has committed, load the tables' rows anew (walreplay load --replace)"
            )


def _roll_back(
    state: StitchState, _: Deferred | None, message: m.RollbackPrepared, __: AddedPart, ___: _Position
) -> None:
    state.open.streams.pop(message.xid, None)  # even if it is still streamed


def _commit(
    state: StitchState,
    decided: Deferred | None,
    message: m.StreamCommit | m.CommitPrepared,
    added: AddedPart,
    position: _Position,
) -> Committed | None:
    path, offset = position
    resent = _is_resent(message, added)
    if decided is None and not resent and isinstance(message, m.CommitPrepared):
        state.warnings.append(
            f"{path}, offset {offset:,}: transaction {message.xid} (commit LSN {format_lsn(message.commit_lsn)}) was "
            "prepared, but its rows are not there: it was empty, or the file with its Prepare is missing"
        )
    origin = decided.origin if decided is not None else None
    applied = not resent and state.wants_origin(origin)
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
    state.relabel(None if renames else decided.own_versions)
    starts, truncates = decided.ordinals()
    if applied:
        for oid, ordinal in truncates:
            state.truncates.note(TruncateAt(oid, transaction.commit_lsn, ordinal, origin))
    if all(segment.is_empty for segment in decided.segments):  # its versions are in force behind it
        return (transaction, None) if decided.own_versions else None
    return transaction, DeferredCommit(decided, tuple(starts), transaction)


def _is_resent(message: m.StreamCommit | m.CommitPrepared, added: AddedPart) -> bool:
    return message.commit_lsn <= added.start_place.high_lsn  # of the part: LSNs rise in a session


def _stream_lacks_rows(state: StitchState, transaction: Deferred) -> bool:
    """Return whether a streamed transaction that ends has fewer rows than a session before has brought of it."""
    # Most streams were never cut off, and to count their rows takes time.
    rows = transaction.rows if transaction.xid in state.cut else XidCounts()
    return lacks_rows(state, transaction.xid, None, rows, transaction.aborted)


def _announce(
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
            in_force = {relation.oid: relation for relation in state.versions.relations} if has_enum else {}
            in_force |= {oid: version.relation for oid, version in transaction.own_versions.items() if has_enum}
            changed = [
                labelled for relation in in_force.values() if (labelled := layouts.labelled(relation)) is not relation
            ]
        for relation in changed:
            replaced = transaction.own_versions.get(relation.oid)
            if replaced is not None and replaced.relation != relation:
                transaction.former.append(replaced.relation)  # rows of earlier segments have it
            transaction.own_versions[relation.oid] = AnnouncedVersion(relation, state.versions.next_number())
    return layouts_before


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
            seam=added.seam(part.start, part.stop),
        )
    )


def _used_by(
    state: StitchState, used: Iterable[tuple[int, int]], added: AddedPart, own_versions: dict[int, AnnouncedVersion]
) -> list[m.Relation]:
    """Return the relation versions that a deferred transaction's rows use: its own, or else those in force outside."""
    return [(own_versions.get(oid) or state.used_version(oid, row_offset, added)).relation for oid, row_offset in used]


def _types_of(relations: Iterable[m.Relation], types: Mapping[int, m.Type], *, all_: bool) -> tuple[m.Type, ...]:
    """Return the types of some relations' columns; with ``all_``, every known type.

    All are needed if a file may end between a Type message and the Relation message that uses it.
    """
    if all_:
        return tuple(types.values())
    oids = {column.type_oid for relation in relations for column in relation.columns}
    return tuple(type_ for oid, type_ in types.items() if oid in oids)


# The table

_NO_FIRST: Final = Rejection(
    "a block of the streamed transaction {xid} goes on, but its first one is not there", MISSING
)
_NO_START: Final = Rejection("a prepared transaction goes on whose start is not there", None, is_gap=False)
_NO_BLOCK: Final = Rejection("the streamed transaction {xid} ends, but none of its blocks is there", MISSING)
_FEWER_ROWS: Final = Rejection(FEWER_ROWS, COPY)
_MIXED: Final = Rejection(
    "a subtransaction of the streamed transaction {xid} has rolled back as one of another transaction",
    "The file is damaged; fetch it from its source again",
    is_gap=False,
)
_OTHER: Final = Rejection(
    "a {name} decides on transaction {xid}, but its gid, or its xid, is not the one that it was prepared with",
    "The file is damaged, or what decided on the transaction of that gid is missing; fetch it from its source again",
)

TRANSITIONS: Final[Mapping[type[Named], Transition]] = {
    Block: Transition(_add_block, {Fault.NOTHING: _NO_FIRST}),
    Body: Transition(_add_body, {Fault.NOTHING: _NO_START}),
    m.StreamAbort: Transition(_abort),
    m.StreamPrepare: Transition(_prepare_stream, {Fault.NOTHING: _NO_BLOCK, Fault.MIXED: _MIXED}),
    m.StreamCommit: Transition(_commit, {Fault.NOTHING: _NO_BLOCK, Fault.FEWER_ROWS: _FEWER_ROWS, Fault.MIXED: _MIXED}),
    m.Prepare: Transition(_prepare),
    m.CommitPrepared: Transition(_commit, {Fault.FEWER_ROWS: _FEWER_ROWS, Fault.OTHER: _OTHER}),
    m.RollbackPrepared: Transition(_roll_back, {Fault.OTHER: _OTHER}),
}
