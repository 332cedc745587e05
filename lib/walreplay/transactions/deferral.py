"""Gather streamed and prepared transactions from the parts that hold their rows: blocks (streamed) and bodies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from walreplay.decode.announcements import Layout, Layouts
from walreplay.decode.place import Place
from walreplay.decode.summary import Block, Body, XidCounts
from walreplay.errors import OrderError
from walreplay.protocol import messages as m
from walreplay.transactions.deferred import Announced, Deferred, Segment
from walreplay.transactions.state import StitchState
from walreplay.transactions.walked import Walk


def add_block(state: StitchState, block: Block, walked: Walk) -> None:
    """Add a block of a streamed transaction whose earlier blocks are all there."""
    xid = block.xid
    if block.first:
        path, offset = walked.where(block.start)
        after_lsn, since = block.after_lsn, block.after_time
        if after_lsn < 0:
            after_lsn, since = walked.before.last_lsn, walked.before.last_commit_time
        state.open.streams[xid] = Deferred(
            xid, path, offset, since=since if after_lsn >= 0 else None, after_lsn=after_lsn
        )
    item = state.open.streams[xid]
    if block.origin is not None:
        item.origin = block.origin
    relations = used_by(state, block.used, walked, item.view)
    types = types_of(relations, state.versions.types | item.types, all_=block.continues)
    layouts = _layouts(state, item)
    before = _before(layouts, relations, [relation for _, relation in block.relations])
    waiting = list(block.announced)
    for offset, message in block.relations:
        while waiting and waiting[0][0] < offset:
            _take(state, item, layouts, waiting.pop(0)[1])
        _view(state, item, layouts.told(message))
    for _, message_ in waiting:
        _take(state, item, layouts, message_)
    for _, type_ in block.types:
        item.types[type_.oid] = replace(type_, xid=None)
    place = Place(walked.framing, stream=xid if block.continues else None)
    _add_segment(state, item, walked, block, place, relations, types, block.rows, before)


def _before(layouts: Layouts, used: Sequence[m.Relation], coming: Sequence[m.Relation]) -> tuple[Layout, ...]:
    """Give what was announced before a part of a transaction of the relations that it uses and announces."""
    return layouts.of([relation.oid for relation in (*used, *coming)], (*used, *coming))


def _view(state: StitchState, item: Deferred, relation: m.Relation) -> None:
    """Put a relation version in force within a transaction."""
    known = item.view.get(relation.oid)
    if known is not None and known.relation != relation:
        item.former.append(known.relation)
    item.view[relation.oid] = Announced(relation, state.versions.next_number())


def _take(state: StitchState, item: Deferred, layouts: Layouts, message: m.Message) -> None:
    """Take what a transaction announces; behind an enum, all that it may use is told anew."""
    found = layouts.take(message, item.aborted)
    item.layouts += found
    if not any(layout.enum is not None for layout in found):
        return
    within = {oid: known.relation for oid, known in item.view.items()}
    outside = {relation.oid: relation for relation in state.versions.relations}
    for relation in (outside | within).values():
        labelled = layouts.labelled(relation)
        if labelled is not relation:
            _view(state, item, labelled)


def _take_body(
    state: StitchState, body: Body, item: Deferred, walked: Walk, used: Sequence[m.Relation]
) -> tuple[Layout, ...]:
    """Follow what a transaction announces that is being prepared; give what was announced before."""
    summary = walked.part.summary
    relations = [(at, relation) for at, relation in summary.relations if body.start <= at < body.stop]
    waiting = [(at, message) for at, message in summary.announced if body.start <= at < body.stop]
    layouts = _layouts(state, item)
    before = _before(layouts, used, [relation for _, relation in relations])
    for offset, relation in relations:
        while waiting and waiting[0][0] < offset:
            _take(state, item, layouts, waiting.pop(0)[1])
        told = layouts.told(relation)
        if told != state.layouts.told(relation):
            # Within the transaction alone; outside of it the relation is read as before.
            _view(state, item, told)
    for _, message in waiting:
        _take(state, item, layouts, message)
    return before


def _layouts(state: StitchState, item: Deferred) -> Layouts:
    """Give what is announced of tables inside of a streamed transaction."""
    layouts = Layouts(state.layouts.prefix, state.layouts.all(), state.layouts.shown.values())
    layouts.add(item.layouts, item.aborted)
    return layouts


def add_body(state: StitchState, body: Body, walked: Walk) -> None:
    """Add rows of a transaction that is being prepared (between Begin Prepare and Prepare).

    Raises:
        OrderError: the transaction's start is missing.
    """
    path, offset = walked.where(body.start)
    if body.begins:
        state.open.begin_body(
            Deferred(body.xid, path, offset, body.gid, streamed=False, lsn=body.prepare_lsn, since=body.prepare_time)
        )
    item = state.open.body
    if item is None:
        raise OrderError("a prepared transaction goes on whose start is not there", path=path, offset=offset)
    item.origin = body.origin or item.origin
    relations = used_by(state, body.used, walked, item.view)
    before = _take_body(state, body, item, walked, relations)
    place = Place(walked.framing)
    if not body.begins:
        opened = walked.before.transaction
        place = replace(place, transaction=opened)
    types = types_of(relations, state.versions.types, all_=not body.begins)
    _add_segment(state, item, walked, body, place, relations, types, XidCounts(body.rows), before)
    if body.complete:
        state.open.prepare_body(item, body.gid)


def _add_segment(
    state: StitchState,
    item: Deferred,
    walked: Walk,
    part: Block | Body,
    place: Place,
    relations: Iterable[m.Relation],
    types: tuple[m.Type, ...],
    rows: XidCounts,
    layouts: tuple[Layout, ...],
) -> None:
    scan = walked.scan
    item.segments.append(
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
            seam=None if walked.part.data is None else walked.part.data[part.start : part.stop],
            seam_path=walked.origin[0],
            seam_offset=walked.origin[1] + part.start,
        )
    )


def used_by(
    state: StitchState, used: Iterable[tuple[int, int]], walked: Walk, view: dict[int, Announced]
) -> list[m.Relation]:
    """Give the relation versions that a deferred transaction's rows use: its own, or else those in force outside."""
    return [(view.get(oid) or state.known(oid, at, walked)).relation for oid, at in used]


def types_of(relations: Iterable[m.Relation], known: Mapping[int, m.Type], *, all_: bool) -> tuple[m.Type, ...]:
    """Give the types of some relations' columns; with ``all_``, every known type.

    All are needed if a file may end between a Type message and the Relation message that uses it.
    """
    if all_:
        return tuple(known.values())
    oids = {column.type_oid for relation in relations for column in relation.columns}
    return tuple(type_ for oid, type_ in known.items() if oid in oids)
