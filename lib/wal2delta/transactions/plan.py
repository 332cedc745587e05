"""The plan of a run: small, and written down before anything is applied."""

from __future__ import annotations

from dataclasses import dataclass

from wal2delta.decode.stream import Place
from wal2delta.protocol import messages as m


@dataclass(frozen=True, slots=True)
class FilePlan:
    """How one file is decoded.

    Attributes:
        length: bytes as stored; the file is refused when it has another length or fingerprint by then.
        seam: the message that the file's start cuts: the unfinished bytes before it, and its head.
        seam_path: the file that the seam begins in, at ``seam_offset``.
        start: where the first whole message of its own begins, in decompressed bytes.
        stop: behind its last whole message.
        place: the place in the stream where the seam begins (or the first message, where there is none).
        relations: the relation versions in force there that the file's rows need.
    """

    path: str
    length: int
    fingerprint: int
    seam: bytes
    seam_path: str
    seam_offset: int
    start: int
    stop: int
    place: Place
    relations: tuple[m.Relation, ...]
    types: tuple[m.Type, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """Where the next run goes on: at a message's boundary between two transactions.

    Attributes:
        path: the file that the boundary lies in, ``offset`` bytes (decompressed) from its start.
        done: nothing behind the boundary is left to read in that file.
        last_path: the last file that was read; ``last_length`` tells whether it has grown since.
        fingerprint: of ``path`` at ``length`` bytes.
        open_transaction: xid and commit LSN of a transaction that began but was not ended, for people.
    """

    path: str
    offset: int
    length: int
    fingerprint: int
    done: bool
    last_path: str
    last_length: int
    place: Place
    relations: tuple[m.Relation, ...]
    types: tuple[m.Type, ...]
    open_transaction: tuple[int, int] | None = None
    open_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TruncatePosition:
    """The last truncate of a relation in the run: what lies before it, in commit order, is gone."""

    oid: int
    lsn: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run applies: the transactions whose commit LSN is above ``after_lsn`` and up to ``upto_lsn``."""

    files: tuple[FilePlan, ...]
    after_lsn: int
    upto_lsn: int
    upto_commit_time: int
    truncates: tuple[TruncatePosition, ...]
    resume: Resume
    transactions: int
    announced: tuple[m.Relation, ...]
    """Every Relation message of the run, in stream order, repeats left out."""
    before: tuple[m.Relation, ...]
    """The relation versions in force when the run began."""
    types: tuple[m.Type, ...]
    """The types that are known at its end."""
    torn: tuple[str, int, int] | None = None
    """The unfinished message at the captures' end: its file, its offset there, and how many bytes there are."""
    warnings: tuple[str, ...] = ()

    @property
    def relations(self) -> tuple[m.Relation, ...]:
        """Every relation version that a row of the run may have."""
        return tuple(dict.fromkeys((*self.before, *self.announced)))
