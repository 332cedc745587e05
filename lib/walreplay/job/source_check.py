"""Check several sources of one target against each other, before any of them writes.

- `SiblingLedgers`: no two sources write to one table unless it is shared.  Each source has a ledger of its own, which
  names its tables, and those that a run at work, or an interrupted one, is about to make.
- `check_shared`: a shared table can have what a source is about to write.  Each source's ledger knows the columns of
  its own rows alone; the table has those of all.
- `check_places`, `check_apart`: captures and target, and captures of several sources, do not lie inside one another.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from walreplay.config.document import is_source_name
from walreplay.delta.commits import CommitId
from walreplay.delta.target import TableName, Target
from walreplay.errors import ConfigError, TargetError
from walreplay.ledger.ledger import Ledger
from walreplay.ledger.state import State
from walreplay.names import fold
from walreplay.session.isolation import one_name
from walreplay.table import sharing
from walreplay.table.plan import TablePlan, TablesPlan
from walreplay.table.registry import MirrorEntry
from walreplay.table.table_run import table_schema
from walreplay.writing.by_statements import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


# Held from the read of the other ledgers until this run's plan is in its own: in a process one source at a time.
_turn: Final = threading.Lock()


class SiblingLedgers:
    """The ledgers of the other sources, looked at when something of them is asked.

    Args:
        target: with the source's own ledger.
        siblings: the other sources.
        at_once: how many ledgers are read at the same time.
    """

    def __init__(
        self, spark: SparkSession, target: Target, writer: TableWriter, siblings: tuple[str, ...], at_once: int
    ) -> None:
        self._spark, self._target, self._writer = spark, target, writer
        self._siblings, self._at_once = siblings, at_once
        self._known: set[tuple[str, str]] = set()  # sources and ledgers that were found; these do not change
        self._turn = threading.Lock()

    def has_made(self, commit: CommitId) -> bool:
        """Return whether the ledger of another source of this target has made a commit of a shared table.

        The commit says which source's it is.  Whether the configuration still has that one does not matter.
        """
        name = commit.source
        if name is None or name == self._target.source or not is_source_name(name):
            return False
        with self._turn:
            if (name, commit.application) not in self._known:
                state = self._state(name)
                if state is None or state.ledger != commit.application:
                    return False
                self._known.add((name, commit.application))
            return True

    def type_in(self, table: TableName, column: str) -> tuple[str, str] | None:
        """Name another source whose rows of a shared table have a column, with PostgreSQL's name of the type there."""
        for name in self._siblings:
            state = self._state(name)
            for entry in () if state is None else state.tables:
                if entry.set_aside or entry.table.place != table.place:
                    continue
                for held_column in entry.shape.columns:
                    if fold(held_column.name) == fold(column):
                        return name, held_column.type.postgres_name
        return None

    @contextmanager
    def apart(
        self, new_tables: Mapping[TableName, str], shared: Collection[TableName] = ()
    ) -> Iterator[tuple[str, ...]]:
        """Return the places that a run takes, for its plan, which is to be written inside.

        Where a run takes no new place, or the target is of one source or a side target, no other ledger is read.

        Args:
            new_tables: the tables that the run makes, with the names of their source tables; see `taken_by`.
            shared: those of the tables that other sources may have, too.

        Raises:
            ConfigError: another source has one of the tables.
        """
        target = self._target
        places = tuple(target.relative(table).place for table in new_tables)
        if target.source is None or target.side_name or not new_tables:
            yield places
            return
        with _turn:
            _check(target, self._holders(), new_tables, shared)
            yield places

    def _holders(self) -> dict[str, _Holder]:
        """Return who has which place."""
        owners = (None, *self._siblings)  # None: what was applied before there were sources
        with ThreadPoolExecutor(self._at_once) as pool:
            states = list(pool.map(self._state, owners))
        held: dict[str, _Holder] = {}
        for owner, state in zip(owners, states, strict=True):
            held |= dict.fromkeys(() if state is None else state.places, _Holder(owner, None))
            for entry in () if state is None else state.tables:
                if not entry.set_aside:
                    held[self._target.relative(entry.table).place] = _Holder(owner, entry.share is not None)
        return held

    def _state(self, name: str | None) -> State | None:
        # loads=True: an interrupted load of that source is no error here.
        return Ledger(self._spark, self._target.of_source(name), self._writer, loads=True).read()


def taken_by(tables: TablesPlan) -> dict[TableName, str]:
    """Return the tables that a run makes or brings to another place, with the names of their source tables."""
    placed = ((plan, plan.before) for plan in tables.tables if not plan.set_aside)
    made = {
        plan.table: plan.name
        for plan, entry in placed
        if entry is None or entry.set_aside or entry.table.place != plan.table.place
    }
    moved = {move.destination: move.name for move in tables.placement.moves if not move.set_aside}
    return {**moved, **made}


def shared_by(tables: TablesPlan) -> set[TableName]:
    """Return those of a run's tables that other sources may have, too."""
    moved = {table.before.table for table in tables.tables if table.before is not None and table.before.share}
    return moved | {table.table for table in tables.tables if table.metadata.share is not None}


@dataclass(frozen=True, slots=True)
class _Holder:
    """Who has a place."""

    source: str | None  # None for the ledger that a target of one source has
    shares: bool | None  # None for a table that is still to be made, and says so itself then


def _check(
    target: Target, held: Mapping[str, _Holder], new_tables: Mapping[TableName, str], shared: Collection[TableName]
) -> None:
    for table, name in new_tables.items():
        place = target.relative(table).place
        if place not in held:
            continue
        owner = held[place].source
        if owner is not None and table in shared and held[place].shares is not False:
            continue
        whose = "what was applied to this target without sources" if owner is None else f"the source {owner}"
        remedy = 'give one of the two a destination_schema of its own, such as "NAME_{schema}"'
        if len(target.catalog) == 2:
            remedy = "in the one schema of this target, give one of the two another destination_table under objects"
        raise ConfigError(
            f"the source {target.source} would write to a table of {whose}",
            table=name,
            path=table.text,
            remedy=f"Nothing of it was applied; {remedy}, or leave the table out with table_exclude_list. "
            "Several sources have one table where shared_tables names it before it is made",
        )


def check_shared(plan: TablePlan, schema: StructType, siblings: SiblingLedgers, made: Iterable[CommitId]) -> None:
    """Refuse a table that lacks columns that it had, or that has a column of another type than the source's rows.

    Args:
        schema: the table's columns.
        made: the commits that have made the table what it is, where the source has none of its rows yet.

    Raises:
        ConfigError: two sources have columns of one name that cannot be one, or another output each.
        TargetError: the table is not as its runs have left it.
    """
    share = plan.metadata.share
    assert share is not None
    columns = sharing.columns_in(schema)
    if share.column not in schema.names:
        raise TargetError(
            f"the table has no column {share.column!r}, which says of a row of what source it is",
            table=plan.name,
            path=plan.table.text,
            remedy="Nothing was applied; move the table away, or take it out of shared_tables",
        )
    if plan.before is not None:  # its own rows are there already
        lost = sharing.needed(columns, sharing.columns_in(table_schema(plan.before.shape, plan.metadata)))
        if lost.any:
            names = [column.text for column in (*lost.added, *lost.widened, *(pair[0] for pair in lost.conflicts))]
            raise TargetError(
                f"the table's columns are not those that its last run has left ({', '.join(names)})",
                table=plan.name,
                path=plan.table.text,
                remedy="A mirror must have no other writer; undo the change, or apply to a new target",
            )
    else:
        sharing.check_output(plan.name, plan.table.text, plan.oid, share.source, made)
        sharing.check_own_columns(plan, columns)
    for epoch in plan.epochs:
        changes = sharing.needed(columns, sharing.columns_in(table_schema(epoch.shape, plan.metadata)))
        for needed, present in changes.conflicts:
            raise sharing.column_conflict(plan, needed, present, siblings.type_in(plan.table, needed.name))
        columns = sharing.with_needed(columns, changes)  # the next epoch comes upon what this one adds


def check_unshared(entries: Iterable[MirrorEntry]) -> None:
    """Refuse to make tables again that have rows of other sources.

    Raises:
        ConfigError: naming one.
    """
    for entry in entries:
        if entry.share is not None:
            raise ConfigError(
                "the table is shared with other sources, and is not made again for one of them",
                table=entry.name,
                path=entry.table.text,
                remedy=f"Leave {entry.name} out of --table; to have it anew, apply all sources to a new target",
            )


# Folders that contain one another

_S3: Final = {"s3n": "s3a", "s3": "s3a"}  # three names of one store
_GLOB: Final = re.compile(r"[*?\[\]{}]")


def check_places(captures: str, target: Target) -> None:
    """Refuse captures that lie in the target's folder, and a target in that of the captures.

    Raises:
        ConfigError: what one of them holds would be taken for the other's.
    """
    if target.root is None:  # a catalog has no folder
        return
    source, place = _parts(captures), _parts(target.root)
    if source == place:
        problem = "the captures and the target are one folder"
    elif _contains(source, place):
        problem = f"the target lies in the captures' folder, {captures}: its files would be read as captures"
    elif _contains(place, source):
        problem = f"the captures, {captures}, lie in the target's folder, where tables and the ledger are"
    else:
        return
    raise ConfigError(problem, path=target.text, remedy="Give each a folder of its own, beside the other")


def lie_apart(place: str, other: str) -> bool:
    """Return whether neither of two folders lies in the other."""
    return not _contains(_parts(place), _parts(other)) and not _contains(_parts(other), _parts(place))


def check_apart(captures: Mapping[str, str], patterns: Mapping[str, str | None] | None = None) -> None:
    """Refuse a source whose captures are those of another one, or lie among them.

    Two sources may have one folder if patterns separate their files.  That two patterns have a file in
    common is noticed only where one of them matches all that the other does.

    Args:
        captures: the place of each source's, by its name.
        patterns: of the files' names, by the sources that have one.

    Raises:
        ConfigError: naming both.
    """
    by_name = {name: pattern for name, pattern in (patterns or {}).items() if pattern is not None}
    for outer, holding in captures.items():
        for inner, held in captures.items():
            mine, other = _parts(holding), _parts(held)
            if outer == inner or not _contains(mine, other):
                continue
            if len(mine) < len(other):
                problem = (
                    f"the captures of the source {inner} lie in those of {outer}, which would read them as its own"
                )
                raise ConfigError(problem, path=held, remedy="Give each a folder of its own, beside the other")
            if len(mine) == len(other) and _matches(by_name.get(outer), by_name.get(inner)):
                raise ConfigError(
                    f"the captures of the source {inner} are those of {outer}, too: a source is a stream of its own",
                    path=held,
                    remedy="Give each a folder of its own; or, if one folder has the files of both, a pattern each: "
                    'file_pattern: "eu_*". One stream that is to make other tables as well needs a '
                    "target of its own for these",
                )


def _matches(outer: str | None, inner: str | None) -> bool:
    """Return whether a pattern (None: every name) matches names that another one matches, as far as they show it."""
    return outer is None or inner is None or outer == inner or fnmatchcase(inner, outer)


def _contains(outer: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    """Return whether a folder, whose path may contain globs, contains another one."""
    if len(outer) > len(inner):
        return False
    return all(
        mine == other or (_GLOB.search(mine) is not None and fnmatchcase(other, mine))
        for mine, other in zip(outer, inner, strict=False)
    )


def _parts(place: str) -> tuple[str, ...]:
    """Return the parts of a path or a URI, links and dots resolved: the file system first, then folder by folder."""
    place = one_name(place)
    if re.match(r"[A-Za-z][A-Za-z0-9+.\-]*:", place):
        url = urlsplit(place)
        if url.scheme != "file":
            path = os.path.normpath(f"/{url.path}")
            return (_S3.get(url.scheme, url.scheme), url.netloc, *Path(path).parts[1:])
        place = unquote(url.path)
    return ("", "", *Path(os.path.realpath(place)).parts[1:])  # a link leads into another folder
