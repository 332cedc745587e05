"""What must come out of a simulated capture: told by the simulator's own knowledge, never by reading bytes.

A transaction counts from the byte on at which the message that commits it is wholly there, framing included.  Its rows
are those that the server kept.  That is all there is to what is applied; what is open is told by walking the messages
of the sessions, of which the model knows, unlike a reader, where they begin and end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from support.simulator_server import Txn, Values
from walreplay.protocol.messages import Relation

ORDINARY: Final = "ordinary"
STREAMED: Final = "streamed"
PREPARED: Final = "prepared"

Label = tuple[str, int, str | None]
"""Kind, xid and gid of an open transaction."""

Change = tuple[int, str, Relation, Values | None, Values | None]

Row = tuple[str, int, int, int, int, Values | None, Values | None]
"""Op, commit LSN, commit time, top-level xid, ordinal, values, values before; a truncate has none."""

Rows = dict[str, list[Row]]
"""Row changes in commit order, by the relation's qualified name."""


@dataclass(frozen=True)
class Transaction:
    """A committed transaction.

    Attributes:
        changes: ordinal, op, relation, values, values before; a truncate of two relations is two of the same ordinal.
        messages: its logical messages: prefix and content.
    """

    commit_lsn: int
    commit_time: int
    xid: int
    origin: str | None
    gid: str | None
    changes: tuple[Change, ...]
    messages: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class State:
    """What holds of the bytes that are there.

    Attributes:
        certain: what must be listed as open: for each xid, under one of these labels.
        possible: what may be listed besides: it was voided by a new session that the bytes may not show (yet), or
            was committed before and is on its way again.
        messages: the logical messages outside of transactions, each once: LSN, prefix, content.
    """

    transactions: tuple[Transaction, ...]
    certain: dict[int, frozenset[Label]]
    possible: frozenset[Label]
    messages: tuple[tuple[int, str, bytes], ...]

    @property
    def rows(self) -> Rows:
        """The row changes of each relation."""
        found: Rows = {}
        for one in self.transactions:
            for ordinal, op, relation, values, before in one.changes:
                row = (op, one.commit_lsn, one.commit_time, one.xid, ordinal, values, before)
                found.setdefault(relation.qualified_name, []).append(row)
        return found

    def faults_of(self, listed: Sequence[Label]) -> list[str]:
        """Return what is wrong with a list of open transactions."""
        faults = []
        if len({xid for _, xid, _ in listed}) < len(listed):
            faults.append("an xid is listed twice")
        allowed = self.possible.union(*self.certain.values())
        faults.extend(f"{label} is listed but not open" for label in listed if label not in allowed)
        for xid, labels in self.certain.items():
            if labels.isdisjoint(listed):
                faults.append(f"{sorted(labels, key=repr)} is open but not listed: {xid}")
        return faults


@dataclass(frozen=True)
class Mark:
    """A message that means something, and the byte behind it."""

    end: int
    what: str
    txn: Txn | None
    content: tuple[int, str, bytes] | None = None


@dataclass
class Session:
    """What is left of a walsender's session.

    Attributes:
        start, end: its bytes in the stream of all files.
        torn: it ends inside a message.
        first: the byte behind what shows that it is a session of its own, where its file does; else None.
    """

    start: int
    end: int = 0
    torn: bool = False
    first: int | None = None
    marks: list[Mark] = field(default_factory=list)


@dataclass
class _Open:
    """What is open at some place of the stream."""

    inside: bool = False
    """An ordinary transaction or a block is unfinished: nothing but a new session can follow other than its rest."""
    completed: int = 0
    """Transactions that the session has completed, prepared ones included."""
    current: dict[Txn, frozenset[Label]] = field(default_factory=dict)
    """Open in the session."""
    voided: dict[Txn, frozenset[Label]] = field(default_factory=dict)
    """Open in the sessions before it."""
    prepared: dict[Txn, frozenset[Label]] = field(default_factory=dict)
    again: dict[Txn, frozenset[Label]] = field(default_factory=dict)
    """Prepared, but sent again since, or sent again after it was decided."""
    stale: dict[Txn, frozenset[Label]] = field(default_factory=dict)
    """Streamed in a session before, sent as an ordinary one since: that it is not open shows by its xid alone."""
    done: set[Txn] = field(default_factory=set)


class Model:
    """The truth about a capture.

    Args:
        prepares: whether prepared transactions are sent as such.
    """

    def __init__(self, sessions: Sequence[Session], *, prepares: bool) -> None:
        self._sessions = sessions
        self._prepares = prepares

    def at(self, visible: int) -> State:
        """Return what holds when so many bytes of the stream are there."""
        committed: dict[int, Transaction] = {}
        messages: dict[int, tuple[int, str, bytes]] = {}
        for session in self._sessions:
            for mark in session.marks[: bisect_right(session.marks, visible, key=lambda mark: mark.end)]:
                if mark.what == "commit" and mark.txn is not None:
                    if mark.txn.commit_lsn not in committed:
                        committed[mark.txn.commit_lsn] = self._transaction(mark.txn)
                elif mark.content is not None:
                    messages[mark.content[0]] = mark.content
        certain, possible = self._open(visible)
        return State(
            tuple(committed[lsn] for lsn in sorted(committed)),
            certain,
            possible,
            tuple(messages[lsn] for lsn in sorted(messages)),
        )

    def _transaction(self, txn: Txn) -> Transaction:
        changes: list[Change] = []
        ordinal = 0
        for change in txn.kept:
            if change.op:
                for relation in change.relations:
                    values = None if change.op == "t" else change.values
                    changes.append((ordinal, change.op, relation, values, change.before))
                ordinal += 1
        return Transaction(
            txn.commit_lsn,
            txn.commit_time,
            txn.xid,
            txn.origin[1] if txn.origin is not None else None,
            txn.gid if self._prepares else None,
            tuple(changes),
            tuple(change.message for change in txn.kept if change.message is not None),
        )

    # What is open.

    def _open(self, visible: int) -> tuple[dict[int, frozenset[Label]], frozenset[Label]]:
        seen = _Open()
        sure = True
        for number, session in enumerate(self._sessions):
            if session.start >= visible:
                break
            before = self._sessions[number - 1] if number else None
            seen.voided.update(seen.current)
            seen.current = {}
            inside, seen.inside, seen.completed = seen.inside, False, 0
            for mark in session.marks:
                if mark.end > visible:
                    break
                if mark.txn is not None:
                    _step(seen, mark.what, mark.txn)
            own = session.first is not None and session.first <= visible
            unfinished = before is not None and (before.torn or inside)
            if own or (unfinished and seen.completed):
                seen.voided.clear()
                seen.stale.clear()
            # Behind a torn message the bytes may go either way until something is complete.
            sure = before is None or own or not before.torn or seen.completed > 0
        certain = {txn.xid: labels for txn, labels in seen.prepared.items()}
        possible = [*seen.voided.values(), *seen.again.values(), *seen.stale.values()]
        for txn, labels in seen.current.items():
            if sure and txn not in seen.done:
                certain[txn.xid] = labels
            else:
                possible.append(labels)
        return certain, frozenset[Label]().union(*possible)


def _step(seen: _Open, what: str, txn: Txn) -> None:
    """Take one message into account."""
    plain: Label = (ORDINARY, txn.xid, None)
    whole: Label = (PREPARED, txn.xid, txn.gid)
    if what in ("begin", "begin_prepare", "start"):
        # What was gathered for this xid before is void.
        stale = seen.voided.pop(txn, None)
        if what == "begin" and stale is not None:
            seen.stale[txn] = stale
        if txn in seen.prepared:
            seen.again[txn] = seen.prepared.pop(txn)
        labels = {
            "begin": frozenset((plain,)),
            # Its gid is known, its Prepare is not there: it may be listed one way or the other.
            "begin_prepare": frozenset((plain, (ORDINARY, txn.xid, txn.gid), whole)),
            "start": frozenset[Label](((STREAMED, txn.xid, None),)),
        }
        seen.current[txn] = labels[what]
        seen.inside = True
    elif what == "block":
        seen.inside = True
    elif what == "stop":
        seen.inside = False
    elif what == "prepare":
        begun = seen.current.pop(txn, None) is not None
        seen.again.pop(txn, None)
        seen.inside = False
        seen.completed += 1
        # An empty one has no Begin Prepare: there is nothing that could be completed.
        (seen.prepared if begun and txn not in seen.done else seen.again)[txn] = frozenset((whole,))
    elif what in ("commit", "abort", "forget"):
        for known in (seen.current, seen.voided, seen.prepared, seen.again):
            known.pop(txn, None)
        seen.inside = False
        seen.completed += what == "commit"
        seen.done.add(txn)
