"""Versions that begin only when one of some *watched* columns changes; other changes are made in the open version.

Whether a watched column has changed is known here if both values are among the events.  If one is the table's own, it
is decided when the rows are joined with the table's: `continue_bases`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from walreplay.decode.compile.kernel import kernel
from walreplay.decode.compile.parameters import INT64, given, out
from walreplay.sink.assembly import choose
from walreplay.sink.events import Events, Identity
from walreplay.sink.identity import contiguous, hash_rows, rescued_of
from walreplay.sink.version_fold import Followed

if TYPE_CHECKING:
    from numpy.typing import NDArray


@kernel(
    given("int64"),
    given("int64"),
    given("int32"),
    out("int32", ndim=2),
    given("uint64"),
    out("uint64", ndim=2),
    given("int64"),
    given("uint64"),
    INT64,
    out("int32"),
    out("int32"),
    out("bool"),
    out("bool"),
)
def _compare(action, lsn, previous, source, rest, value, column, null, collapse, prior, start, replaced, may_continue):  # type: ignore[no-untyped-def]
    """Compare each updated row with the one that its version would go on with.

    ``rest`` has the hashes of each event's watched columns that are always brought, ``value`` those of the others, of
    which ``column`` gives the places in ``source``.
    """
    for i in range(action.shape[0]):
        prior[i] = -1
        start[i] = i
        replaced[i] = False
        may_continue[i] = False
        if action[i] != 1:
            continue
        p = previous[i]
        if collapse and p >= 0 and lsn[p] == lsn[i]:
            # What counts is the row before the transaction.
            replaced[p] = True
            p = prior[p]
        prior[i] = p
        if p < 0:
            may_continue[i] = p == -2
            continue
        same = rest[p] == rest[i]
        unsure = False
        for t in range(column.shape[0]):
            a = source[p, column[t]]
            b = source[i, column[t]]
            if a == b:
                continue
            if a == -1:
                unsure = True
            elif (null[t] if a < 0 else value[a, t]) != (null[t] if b < 0 else value[b, t]):
                same = False
        replaced[p] = same and not unsure
        if replaced[p]:
            start[i] = start[p]
            may_continue[i] = may_continue[p]
        else:
            may_continue[i] = same
    return 0


@dataclass(frozen=True, slots=True)
class Continued:
    """Which versions go on in later ones; all arrays have one entry per event.

    Attributes:
        start: the event that the version begins with.
        replaced: a later event changes the version without ending it: the version of that event stands for both.
        may_continue: the version goes on with the one before, or with the base, if the base's own values say so.
    """

    start: NDArray[np.int32]
    replaced: NDArray[np.bool_]
    may_continue: NDArray[np.bool_]


def continued(
    events: Events,
    followed: Followed,
    end_lsn: NDArray[np.int64],
    identity: Identity,
    names: Sequence[str],
    watched: Sequence[int],
    *,
    keep: bool,
) -> Continued:
    """Find the versions that go on in later ones.

    Args:
        end_lsn: where each event's version ends.
        watched: the numbers of the watched columns.
        keep: see `versions.version_rows`.
    """
    here = sorted(events.unchanged)
    lsn = contiguous(events.lsn).to_numpy(zero_copy_only=False)
    always = [number for number in watched if number not in here]
    others = [number for number in watched if number in here]
    rest, _ = _hashes([events.columns[number] for number in always], events.rescued, identity, names, always)
    value, null = np.empty((events.rows, len(others)), np.uint64), np.empty(len(others), np.uint64)
    for t, number in enumerate(others):
        values = events.columns[number]
        value[:, t], _ = _hashes([values], events.rescued, identity, names, [number])
        nothing = [pa.nulls(1, contiguous(values).type)]
        null[t] = _hashes(nothing, pa.nulls(1, pa.string()), identity, names, [number])[0][0]
    prior, start = np.empty(events.rows, np.int32), np.empty(events.rows, np.int32)
    replaced, may_continue = np.empty(events.rows, np.bool_), np.empty(events.rows, np.bool_)
    columns = np.array([here.index(number) for number in others], np.int64)
    results = prior, start, replaced, may_continue
    _compare(events.action, lsn, followed.previous, followed.source, rest, value, columns, null, not keep, *results)
    if not keep:
        # The transaction that changed the row has also ended it, so the change is never seen.
        unseen = np.nonzero((lsn == end_lsn) & ~replaced & (prior >= 0))[0]
        replaced[prior[unseen]] = False
    return Continued(start, replaced, may_continue)


def _hashes(
    columns: Sequence[Any], rescued: pa.Array, identity: Identity, names: Sequence[str], numbers: Sequence[int]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    texts = rescued_of(rescued, [names[number] for number in numbers])
    return hash_rows(identity.compared(columns, numbers), len(rescued), texts)


def continue_bases(
    batches: Iterable[pa.RecordBatch], identity: Identity, names: Sequence[str], watched: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Decide which versions go on with the one before, when the base's values are known.

    Args:
        batches: rows of `versions.version_rows` that name a base, with the columns of `versions.version_schema`.
            Values that are the base's (``k<n>``) are filled in, with their rescued texts.  More columns: ``found`` (the
            table has the base), the base's values of the watched columns, ``o<n>``, and its rescued texts,
            ``o_rescued``.  Rows of one base follow one another, sorted by ``opens``, ``start_lsn`` and ``ordinal``.

    Returns:
        rows of the same columns.  A row that closes a base may now have ``replaces``: the base's row gets the values
        of ``c0`` … and ``rescued``, and stays open if ``closes`` is false.
    """
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows = pa.Table.from_batches(waiting).combine_chunks()
        begins = _begins(rows, identity)
        # More rows of the last base may come.
        last = int(np.nonzero(begins)[0][-1])
        if last:
            yield from _continue(rows.slice(0, last), begins[:last], identity, names, watched)
        waiting = rows.slice(last).to_batches()
    if waiting:
        rows = pa.Table.from_batches(waiting).combine_chunks()
        yield from _continue(rows, _begins(rows, identity), identity, names, watched)


def _begins(rows: pa.Table, identity: Identity) -> NDArray[np.bool_]:
    """Say which rows are the first of a base."""
    keys = [contiguous(rows.column(f"b{k}")) for k in range(len(identity.key))]
    first, second = hash_rows(
        identity.compared(keys, identity.key), rows.num_rows, contiguous(rows.column("base_rescued"))
    )
    same = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
    return np.concatenate([[True], ~same])


def _continue(
    rows: pa.Table, begins: NDArray[np.bool_], identity: Identity, names: Sequence[str], watched: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    def column(name: str) -> pa.Array:
        return contiguous(rows.column(name))

    def truths(name: str) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = pc.coalesce(column(name), pa.scalar(value=False)).to_numpy(zero_copy_only=False)
        return found

    own = _hashes([column(f"c{n}") for n in watched], column("rescued"), identity, names, watched)
    olds = _hashes([column(f"o{n}") for n in watched], column("o_rescued"), identity, names, watched)
    opens, goes_on = truths("opens"), truths("may_continue") & ~begins
    after = np.flatnonzero(goes_on)
    of_base = ~opens[after - 1]
    equal = np.ones(len(after), np.bool_)
    for mine, base in zip(own, olds, strict=True):
        equal &= mine[after] == np.where(of_base, base[after], mine[after - 1])
    goes_on[after] = equal & (~of_base | truths("found")[after])
    starts = np.flatnonzero(~goes_on)
    ends = np.append(starts[1:], len(begins)) - 1
    first, last = pa.array(starts), pa.array(ends)
    replaces = ~opens[starts] & (ends > starts)
    result = rows.take(first)
    values = [name for name in rows.schema.names if name[0] == "c" and name[1:].isdigit()]
    for name in (*values, "rescued", "unknown"):
        result = _set(result, name, column(name).take(last))
    # A base whose row goes on ends with its last version, if that ends.
    for name, end in (("closes_lsn", "end_lsn"), ("closes_at", "end_at")):
        result = _set(result, name, choose(replaces, column(end).take(last), contiguous(result.column(name))))
        ended = choose(replaces, pa.nulls(len(first), column(end).type), column(end).take(last))
        result = _set(result, end, ended)
    still = choose(replaces, contiguous(result.column("closes_lsn")).is_valid(), contiguous(result.column("closes")))
    result = _set(result, "closes", still)
    yield from result.append_column("replaces", pa.array(replaces)).combine_chunks().to_batches()


def _set(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
