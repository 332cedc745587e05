"""What stands open where a run's files end, and where the next run goes on."""

from __future__ import annotations

from collections.abc import Iterator

from walreplay.decode.place import Place
from walreplay.lsn import format_lsn
from walreplay.transactions.deferred import OpenTransaction
from walreplay.transactions.plan import Resume
from walreplay.transactions.state import StitchState


def resume_at(state: StitchState, place: Place) -> Resume:
    """Say where the next run goes on, if the files end at a place: where what is open there begins."""
    last_path = next(reversed(state.seen))
    last = state.seen[last_path]
    begun = state.begun
    open_ = place.transaction if place.transaction is not None and place.transaction.gid is None else None
    if open_ is not None and begun is not None:
        path, offset, at = begun.path, begun.offset, begun.place
        relations, types, layouts = begun.relations, begun.types, begun.layouts
    else:
        path, offset = state.tail_at
        at = place
        relations, types = state.versions.snapshot()
        layouts = state.layouts.all()
    seen = state.seen[path]
    later = list(state.seen)[list(state.seen).index(path) + 1 :]
    rest = seen.size - offset + sum(state.seen[name].size for name in later)
    transaction = None
    if open_ is not None:
        transaction = OpenTransaction(
            "ordinary", open_.xid, None, open_.final_lsn, open_.commit_time, path, offset, rest, 1
        )
    return Resume(
        path=path,
        offset=offset,
        length=seen.length,
        fingerprint=seen.fingerprint,
        done=open_ is None and not state.tail and not state.ended,
        has_more=state.ended,
        last_path=last_path,
        last_length=last.length,
        place=at,
        relations=tuple(known.relation for known in relations.values()),
        numbers=tuple(known.number for known in relations.values()),
        types=tuple(types.values()),
        begun=transaction,
        deferred=state.open.deferred,
        awaited=state.awaited,
        cut=tuple(state.cut.values()),
        partitions=state.partitions.in_force,
        trailing=state.partitions.trailing if open_ is None else None,
        seeming=state.partitions.seeming if open_ is None else (),
        layouts=layouts,
        top_time=state.resume.top_time if state.resume else None,
    )


def warnings_of(state: StitchState, place: Place, resume: Resume, torn: tuple[str, int, int] | None) -> Iterator[str]:
    """Say what is open at the end.

    Args:
        torn: the file, offset and size of an unfinished message.
    """
    if torn is not None:
        path, offset, size = torn
        yield (
            f"{path}, offset {offset:,}: the last {size:,} bytes are an unfinished message; "
            "the next run goes on there when more has come. If nothing more will, the file was truncated"
        )
    if place.transaction is not None and place.transaction.gid is None:
        yield (
            f"transaction {place.transaction.xid} (commit LSN {format_lsn(place.transaction.final_lsn)}) "
            f"is open at the end, since {resume.path}, offset {resume.offset:,}; the next run goes on there"
        )
