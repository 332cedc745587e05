"""Decode stretches of a stream: rows as Arrow batches, one relation version each.

`SegmentCommit` is the commit of a transaction whose rows come before its end.  On request the decoder also returns what
the ledger keeps beside the rows: a record of each transaction (`Recorded`), and logical messages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from walreplay.decode.announcements import Layout, Layouts
from walreplay.decode.change_batch import ChangeBatch, RowPlaces, WalkedBytes, type_names, types_by_names
from walreplay.decode.gathered import RelationRows
from walreplay.decode.kernels import programs
from walreplay.decode.kernels import walk_words as words
from walreplay.decode.kernels.programs import Refusal
from walreplay.decode.placing import Placer, Tile
from walreplay.decode.stream import StreamWalker, Uses, outside
from walreplay.decode.walk import RECORD, Place
from walreplay.errors import ConfigError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.types import ColumnType
from walreplay.types.text import UTF8

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SegmentCommit:
    """How to decode a part of a streamed or prepared transaction, which is known to have committed.

    Attributes:
        ordinal: the ordinal of the part's first remaining row change.
        aborted: the subtransactions that have rolled back, sorted.
        applied: its rows are given.  Otherwise they are only compared with those of the first copy, or left out.
        session: the number of the session in which it has committed.
        resent: it is a copy of a transaction that is known already.
    """

    xid: int
    gid: str | None
    commit_lsn: int
    commit_time: int
    ordinal: int
    aborted: tuple[int, ...]
    applied: bool
    session: int = 0
    origin: str | None = None
    resent: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """Records of transactions, or of parts of transactions, that were decoded.

    Attributes:
        records: see `walreplay.decode.walk.RECORD`.
        path: the file in which their Begins lie, at the offsets that the records have.
        session: the number of the session in which they were sent.
        origins: the origins to which the records refer by number.
        ended: the transactions end in these bytes; those that also begin in them are complete.
    """

    records: NDArray[np.void]
    path: str
    session: int
    origins: tuple[str | None, ...]
    ended: bool = True


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """A logical message that was committed; the fields from ``commit_lsn`` on are None if it has no transaction."""

    lsn: int
    prefix: str
    content: bytes = field(repr=False)
    commit_lsn: int | None = None
    commit_time: int | None = None
    xid: int | None = None
    ordinal: int | None = None


TILE_BYTES: Final = 1 << 20
MOST_RELATIONS: Final = 8192
"""Rows of so many relation versions are gathered at the same time; each takes memory, however few rows it has."""
MOST_NAMES: Final = 1 << 20
"""So many type names are kept in all, if relation versions differ in the types that were known at their time."""

_KIND_OF_OP: Final = {"c": words.INSERT, "u": words.UPDATE, "d": words.DELETE, "t": words.TRUNCATE}

_NO_FILE: Final = WalkedBytes("")

_LEAST_SHARE: Final = 1 / 32  # of the bytes has to be walked before its rows estimate those of the rest


def every_origin(origin: str | None) -> bool:
    """Want the transactions of all origins."""
    return True


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which rows a `Decoder` gives.

    Attributes:
        relations: the relation versions whose rows are given; None for all.
        last_truncates: the run's last truncate of a relation, by oid, as (commit LSN, ordinal); rows up to it are left
            out, as are truncates themselves.  None keeps everything.
        load_lsns: of relations (by oid) that were loaded as of an LSN: rows with a lower commit LSN are left out.
        wants_origin: says whether transactions of an origin are given.
        skipped_ops: the operations (``__op`` of `ChangeBatch.data`) that are left out.
    """

    relations: Collection[m.Relation] | None = None
    last_truncates: Mapping[int, tuple[int, int]] | None = None
    load_lsns: Mapping[int, int] = field(default_factory=dict)
    wants_origin: Callable[[str | None], bool] = every_origin
    skipped_ops: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class StretchVersions:
    """What is in force where a stretch starts: relation versions and types by oid, and the announcements of tables."""

    relations: Mapping[int, m.Relation] = field(default_factory=dict)
    types: Mapping[int, m.Type] = field(default_factory=dict)
    layouts: Iterable[Layout] = ()


class Decoder(StreamWalker):
    """Decode committed row changes, stretch by stretch in commit order.

    Rows of one relation version are gathered across stretches; `rest` gives those that do not fill a batch.

    Args:
        row_filter: which rows are given; all by default.
        recording: gather what the ledger keeps of transactions and logical messages (`take_recorded`), and which
            relations were used (`take_uses`).
        column_types: the types of a relation version's columns, if they are not those of its type oids.
        tile_bytes: how many bytes are walked before their rows are converted.
        codec: the encoding of text and names, from `walreplay.types.text.codec_of`.
        with_places: the relation versions for whose rows `ChangeBatch.places` is wanted.
        announcements: the prefix of messages that announce tables; None for none.

    Raises:
        ConfigError: a tile would have no bytes.
    """

    def __init__(
        self,
        framing: Framing,
        *,
        row_filter: RowFilter = RowFilter(),
        recording: bool = False,
        column_types: Mapping[m.Relation, Sequence[ColumnType]] | None = None,
        tile_bytes: int = TILE_BYTES,
        codec: str = UTF8,
        with_places: Collection[m.Relation] = (),
        announcements: str | None = None,
    ) -> None:
        if tile_bytes < 1:  # the kernels would have no arrays to write to
            raise ConfigError(f"tile_bytes is {tile_bytes:,}: a tile has one byte at least")
        self._announcements = announcements
        self._layouts = Layouts()
        self._codec = codec
        self._with_places = with_places
        self._source = _NO_FILE
        self._column_types = column_types or {}
        self._filter = row_filter
        self._skipped_kinds = np.array([_KIND_OF_OP[op] for op in sorted(row_filter.skipped_ops)], np.uint8)
        self._truncated: dict[m.Relation, None] = {}
        self._left_out: dict[m.Relation, int] = {}
        self._types: dict[int, m.Type] = {}
        self._new_types: dict[int, m.Type] = {}
        self._type_names: dict[int, tuple[str, str]] = {}
        self._held_names = 0
        self._recording = recording
        self._commit: SegmentCommit | None = None
        self._given: dict[int, m.Relation] = {}
        self._rows: dict[m.Relation, RelationRows] = {}
        self._last_versions: dict[int, m.Relation] = {}
        """The version of each relation (by oid) that had rows last."""
        self._recorded: list[Recorded] = []
        self._messages: list[LogicalMessage] = []
        self._placer = Placer()
        self._slot_rows: dict[int, RelationRows] = {}
        self._uses = Uses(row_filter.relations)
        super().__init__(framing, place=Place(framing), relations={}, tile_bytes=tile_bytes, codec=codec)

    def decode(
        self,
        data: bytes | memoryview,
        start: int,
        stop: int,
        *,
        place: Place,
        versions: StretchVersions = StretchVersions(),
        commit: SegmentCommit | None = None,
        source: WalkedBytes = _NO_FILE,
    ) -> Iterator[ChangeBatch]:
        """Walk over a stretch's whole messages and give full batches; `rest` gives the others.

        Args:
            start, stop: the stretch, as offsets in ``data``.
            place: the place in the stream at ``start``.
            versions: what is in force there.
            commit: how to decode a part of a streamed or prepared transaction; None for ordinary transactions.
            source: the file, or files, in which ``data`` lies, for records and places.

        Raises:
            CaptureError: the bytes cannot be decoded; it has the offset in ``data``.
        """
        self._commit, self._given = commit, dict(versions.relations)  # the segment adds what it announces
        self._layouts = Layouts(self._announcements, versions.layouts)
        if self._types != versions.types:
            self._types, self._new_types, self._type_names = dict(versions.types), dict(versions.types), {}
        self.start(place, versions.relations)
        self.is_last_buffer = self.ends_session = True  # a stretch ends at a boundary
        view = memoryview(data)[:stop]
        buf = np.frombuffer(view, np.uint8)
        self._source = source
        for tile in self.walk(view, start):
            yield from self.convert(buf, tile)
        self._uses.settle(self.kernel.slots)
        self.on_records()
        self._record_open()

    def rest(self) -> Iterator[ChangeBatch]:
        """Yield the batches that are not full."""
        while self._rows:
            # The rows of one version are released before the next batch is made, because there may be thousands.
            yield from self._flush_version(next(iter(self._rows)))

    def _flush_version(self, relation: m.Relation) -> Iterator[ChangeBatch]:
        """Yield the gathered rows of a relation version and forget it; if more rows come, it is begun again."""
        rows = self._rows.pop(relation)
        for slot in rows.slots:
            self._placer.programs[slot] = programs.UNSEEN
            del self._slot_rows[slot]  # the kernel asks for a program again at the next row (`Refusal.NEW`)
        if rows.rows:
            yield rows.finish()

    def take_recorded(self) -> tuple[list[Recorded], list[LogicalMessage]]:
        """Return what was recorded since the last call: transactions and logical messages."""
        taken = self._recorded, self._messages
        self._recorded, self._messages = [], []
        return taken

    def take_truncated(self) -> list[m.Relation]:
        """Return the versions with rows that a truncate has removed, in order, since the last call; columns follow."""
        taken = list(self._truncated)
        self._truncated.clear()
        return taken

    def take_left_out(self) -> dict[m.Relation, int]:
        """Return the commit LSN of the last rows of each version that were left out since the last call."""
        taken, self._left_out = self._left_out, {}
        return taken

    def take_uses(self) -> list[m.Relation]:
        """Return the relation versions that were used, in order, since the last call; see `walreplay.decode.stream`."""
        return self._uses.take()

    @property
    def _is_deferred(self) -> bool:
        """Whether the walk is within a deferred transaction whose rows are decoded where it commits."""
        return self._commit is None and self._inner is not None

    # Before a stretch: it has ordinary transactions, or it is a part of one deferred transaction.

    def start(self, place: Place | None, relations: Mapping[int, m.Relation], *, streaming: bool = False) -> None:
        """Go to another place."""
        self._uses.start()
        super().start(place, relations, streaming=streaming)
        has_any = self._placer.has_any
        for rows in self._slot_rows.values():
            if has_any:
                rows.drop_pending()  # their cells lie in the last walk's tile, which is overwritten
            rows.slots.clear()
        self._placer.reset()
        self._slot_rows = {}
        state, commit = self.kernel.state, self._commit
        # Commit LSNs only rise, so a load leaves nothing out whose LSN is not above the first of them.
        lowest = commit.commit_lsn if commit is not None else words.NO_LSN if place is None else place.high_lsn + 1
        self._load_lsns = {oid: lsn for oid, lsn in self._filter.load_lsns.items() if lsn > lowest}
        self._leaves_out = bool(len(self._skipped_kinds) or self._filter.last_truncates or self._load_lsns)
        # If some rows are left out, they are chosen in the tile's arrays, and the others are placed later.
        self.kernel.placer = None if self._leaves_out else self._placer
        state[words.RECORDING] = self._recording
        if commit is None:
            state[words.SKIP_LOCAL] = not self._filter.wants_origin(None)
            self._defer_inner()
            return
        self.kernel.aborted = np.array(commit.aborted, np.int64)
        self._set_commit(commit)
        state[words.ORDINAL] = commit.ordinal  # rows that have rolled back have no ordinals
        state[words.SKIP] = 0 if commit.applied else words.NOT_COUNTED if commit.resent else words.LEFT_OUT
        state[words.ORIGIN] = self.origin_number(commit.origin)

    def _set_commit(self, commit: SegmentCommit) -> None:
        state = self.kernel.state
        state[words.LSN], state[words.COMMIT_TS], state[words.XID] = commit.commit_lsn, commit.commit_time, commit.xid

    def _defer_inner(self) -> None:
        """Leave out streamed and prepared transactions, which are decoded where they commit."""
        inner = self._inner is not None
        state = self.kernel.state
        if inner or state[words.TXN] == words.IDLE:
            state[words.SKIP] = words.NOT_COUNTED if inner else 0  # like a copy: it is counted where it commits
        state[words.RECORDING] = self._recording and not inner

    def _open(self, lsn: int, time: int, xid: int, ordinal: int) -> None:
        if self._commit is None:
            super()._open(lsn, time, xid, ordinal)
        else:
            # Rows have the LSN and time of the commit (`_set_commit`), not those of the Begin Prepare.
            self.kernel.state[words.TXN] = words.OPEN

    def _set_origin(self, name: str | None) -> None:
        state = self.kernel.state
        if self._commit is not None or self._inner is not None:  # a deferred one's origin comes with its commit
            return
        super()._set_origin(name)
        left_out = 0 if self._filter.wants_origin(name) else words.LEFT_OUT
        state[words.SKIP] = words.NOT_COUNTED if state[words.LSN] <= state[words.HIGH_LSN] else left_out

    def inner_relations(self, xid: int) -> Mapping[int, m.Relation]:
        """Return the relations that the deferred transaction knows; none if its rows are left out."""
        return {} if self._commit is None else self._given

    def on_unknown_relation(self, oid: int, offset: int) -> int:
        """Accept any number of columns for rows that are left out."""
        if self._is_deferred:
            return -1
        return super().on_unknown_relation(oid, offset)

    def on_stream_commit(self, xid: int) -> None:
        """Change nothing: what follows is another stretch, for which the versions in force are given."""

    def _enter(self, relations: Mapping[int, m.Relation]) -> None:
        if self._commit is not None:
            self._uses.enter(self.kernel.slots)
        super()._enter(relations)

    def _leave(self, *, keep: bool) -> None:
        if self._commit is not None and self._inner is not None:
            self._given = dict(self._inner)
            self._uses.leave(self.kernel.slots)
        super()._leave(keep=keep)
        if keep and self._recording:
            for oid in self._inner_slots:
                self.kernel.slots.newest.watch(oid)  # so that `on_first_use` comes again

    def on_first_use(self, slot: int) -> None:
        """Note that a relation version is used."""
        relation = self.slot_relations[slot]
        if self._recording and relation is not None and not self._is_deferred:
            self._uses.note_use(slot, relation, self.kernel.slots)

    def _take_relation(self, message: m.Relation, offset: int) -> None:
        # A deferred transaction has relations of its own.
        if self._recording and not self._is_deferred:
            self._uses.note_announced(outside(message), self.kernel.slots)
        super()._take_relation(message, offset)
        if self._recording:
            self.kernel.slots.newest.watch(message.oid)  # so that `on_first_use` comes again

    def annotated(self, message: m.Relation) -> m.Relation:
        """Return a Relation message with what was announced of its columns."""
        return self._layouts.annotated(message)

    def on_message(self, message: m.AnyMessage, offset: int) -> None:
        """Note types, which later relations use, and logical messages."""
        # What a prepared transaction announces holds for all that is sent behind it, whatever becomes of it.
        if isinstance(message, m.Type) and not (self._is_deferred and self.stream_xid is not None):
            if self._types.get(message.oid) != message:
                self._types[message.oid] = message
                self._new_types[message.oid] = message
        elif isinstance(message, m.Message):
            self._take_message(message, self._is_deferred)
            if not self._is_deferred:
                layouts = self._layouts.take(message, () if self._commit is None else self._commit.aborted)
                if any(layout.enum is not None for layout in layouts):
                    self._relabel(offset)
        elif self._commit is None:
            self._defer_inner()

    def _relabel(self, offset: int) -> None:
        """Put relations in force with the labels that an enum has from here on."""
        relations = self.relations if self._inner is None else self._inner
        for relation in tuple(relations.values()):
            labelled = self._layouts.labelled(relation)
            if labelled is not relation:
                self._take_relation(labelled, offset)

    def _take_message(self, message: m.Message, is_deferred: bool) -> None:
        state, position = self.kernel.state, list[int]()
        if message.transactional:
            if is_deferred or state[words.SKIP] or self._is_aborted(message.xid):
                return
            position = state[[words.LSN, words.COMMIT_TS, words.XID, words.ORDINAL]].tolist()  # outside there is none
        elif not self.is_new_message or self._commit is not None:
            return
        self._messages.append(LogicalMessage(message.lsn, message.prefix, message.content, *position))

    # Recording.

    def on_records(self) -> None:
        """Keep the kernel's records of transactions that have ended."""
        records = self.kernel.take_records()
        if len(records):
            self._record(records, self._session, ended=True)

    def _record_open(self) -> None:
        """Record the part of a transaction that does not end in the stretch."""
        state, commit = self.kernel.state, self._commit
        if not self._recording or (commit is None and (state[words.TXN] != words.OPEN or self.gid is not None)):
            return
        begin_offset = words.NO_OFFSET if commit is not None else state[words.BEGIN_AT]  # a segment has no Begin
        values = state[[words.LSN, words.COMMIT_TS, words.XID, words.ROWS, words.DIGEST, words.ORIGIN]]
        session = self._session if commit is None else commit.session
        self._record(np.array([(*values, begin_offset)], RECORD), session, ended=False)

    def _record(self, records: NDArray[np.void], session: int, *, ended: bool) -> None:
        """Keep records with the place of their Begins; the first Begin may lie in an earlier file."""
        has_begin = records["at"] >= 0
        # Only segments come without a base, and their records have no offsets.
        source, file_base = self._source, self._source.base or 0
        in_earlier_file = has_begin & (records["at"] + file_base < 0)
        for chosen, path, base in ((~in_earlier_file, source.path, file_base), (in_earlier_file, *source.before)):
            if chosen.any():
                in_file = records[chosen]
                in_file["at"][in_file["at"] >= 0] += base
                self._recorded.append(Recorded(in_file, path, session, tuple(self.origins), ended))

    # From rows to columns.

    def convert(self, buf: NDArray[np.uint8], tile: Tile) -> Iterator[ChangeBatch]:
        """Convert a tile's rows; yield the batches that they fill."""
        placer = self._placer
        yield from self._settle(buf, tile)
        if not len(tile.rows):
            return
        placer.extend(len(self.slot_relations))
        placer.begin()
        mask, is_placed = self._kept(tile), False
        while not is_placed:
            is_placed = placer.place(buf, tile, mask)
            yield from self._settle(buf, tile)

    def _settle(self, buf: NDArray[np.uint8], tile: Tile) -> Iterator[ChangeBatch]:
        """Complete the rows that were placed, and provide what the next row needs."""
        placer = self._placer
        slots, missed = placer.settle()
        for slot in slots:
            rows = self._slot_rows[slot]
            # A miss names its column by program and number; the program's address says whose it is.
            rows.complete_pending(buf, tile, missed[missed[:, 0] == rows.program.ctypes.data, 1:])
            if rows.full:
                yield rows.finish()
        refusal = placer.take_refusal()
        if refusal is Refusal.DONE:
            return
        slot, column, missing_bytes = placer.request
        if refusal is Refusal.NEW:
            yield from self._begin_slot(slot)
            return
        rows = self._slot_rows[slot]
        if refusal is Refusal.CARE:
            rows.allow_more_pending()
        elif refusal is Refusal.NOT_TEXT:
            rows.convert_in_builder(column)
        elif rows.full:
            yield rows.finish()
        elif refusal is Refusal.ROOM:
            rows.grow(self._walked_share)
        else:
            rows.make_room(column, missing_bytes, self._walked_share)

    @property
    def _walked_share(self) -> float:
        """The share of the bytes that was walked; 1 if it is too small for an estimate."""
        share = float(self.kernel.state[words.POS]) / len(self._view)  # of the buffer, not of the stretch
        return share if share > _LEAST_SHARE else 1

    def _begin_slot(self, slot: int) -> Iterator[ChangeBatch]:
        """Place a slot's rows from here on, if they are wanted."""
        relation = self.slot_relations[slot]
        if relation is None or not self._wants(relation):
            self._placer.programs[slot] = programs.NOT_WANTED
            return
        rows = self._rows.get(relation)
        if rows is None:
            # Rows of the relation's earlier version are given before those of this one.
            last_version = self._last_versions.get(relation.oid)
            if last_version in self._rows:
                yield from self._flush_version(last_version)
            elif len(self._rows) >= MOST_RELATIONS:
                yield from self._flush_version(next(iter(self._rows)))  # the one that was begun first
            names = self._names()
            if self._held_names > MOST_NAMES:
                yield from self.rest()  # names are freed with the rows that need them
                self._held_names = len(names)
            self._last_versions[relation.oid] = relation
            types = self._column_types.get(relation) or types_by_names(relation, names)
            places = RowPlaces(self.origins) if relation in self._with_places else None
            rows = self._rows[relation] = RelationRows(relation, types, names, self._codec, places)
        rows.set_source(self._source)
        self._slot_rows[slot] = rows
        rows.slots.append(slot)
        self._placer.programs[slot] = rows.program.ctypes.data

    def _wants(self, relation: m.Relation) -> bool:
        return self._filter.relations is None or relation in self._filter.relations

    def _names(self) -> dict[int, tuple[str, str]]:
        """Return the names of the types known so far; relations share one dictionary until a new type comes."""
        if self._new_types:
            self._type_names = self._type_names | type_names(self._new_types)
            self._held_names += len(self._type_names)
            self._new_types = {}
        return self._type_names

    def _kept(self, tile: Tile) -> NDArray[np.uint8]:
        """Return which rows are wanted; empty for all."""
        if not self._leaves_out:
            return _ALL
        slots, lsns = tile.rows[:, programs.ROW_SLOT], tile.rows[:, programs.ROW_LSN]
        mask = ~np.isin(tile.rows[:, programs.ROW_KIND].astype(np.uint8), self._skipped_kinds)
        for slot in np.unique(slots).tolist() if self._load_lsns else ():
            relation = self.slot_relations[slot]
            if relation is not None and relation.oid in self._load_lsns:
                mask &= (slots != slot) | (lsns >= self._load_lsns[relation.oid])
        last_truncates = self._filter.last_truncates or {}
        for slot in np.unique(slots[mask]).tolist() if last_truncates else ():
            relation = self.slot_relations[slot]
            last_truncate = None if relation is None else last_truncates.get(relation.oid)
            if relation is None or last_truncate is None or not self._wants(relation):
                continue
            lsn, ordinal = last_truncate
            truncated = mask & (slots == slot)
            truncated &= (lsns < lsn) | ((lsns == lsn) & (tile.rows[:, programs.ROW_ORDINAL] <= ordinal))
            if truncated.any():
                # Moved to the end, because a version may come back after another one.
                self._truncated.pop(relation, None)
                self._truncated[relation] = None
                mask &= ~truncated
        out_slots, out_lsns = slots[~mask], lsns[~mask]
        for slot in np.unique(out_slots).tolist():
            relation = self.slot_relations[slot]
            if relation is not None:
                # Rows are in commit order, so the last one has the greatest LSN.
                self._left_out[relation] = int(out_lsns[out_slots == slot][-1])
        return mask.view(np.uint8)


_ALL: Final = np.zeros(0, np.uint8)
