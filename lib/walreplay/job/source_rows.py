"""The rows that a source has at an LSN, staged beside a target that is compared with them (`walreplay.job.verify`).

Rows come from files that base.sh has written, or from a database under a snapshot that is given up as soon as they are
read.  They are loaded into the side target (`walreplay.job.side_build`), and stay there until they were compared:
captures may reach their LSN later.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from walreplay.config.model import Narrowed
from walreplay.errors import ConfigError, TargetError
from walreplay.job.apply import apply
from walreplay.job.as_of import last_lsn_of
from walreplay.job.base_load import BaseLoad
from walreplay.job.context import RunContext
from walreplay.job.side_build import BaseStep, Side, SideBuild, side_name
from walreplay.job.side_tables import SideTables
from walreplay.ledger.state import Load, State
from walreplay.listing import escape_glob
from walreplay.loading.database import SCHEME, read_address
from walreplay.loading.description import Description, read_description
from walreplay.loading.formats import copy_options
from walreplay.loading.snapshot import exported_snapshot
from walreplay.recording.server import Snapshot
from walreplay.session.isolation import has_own_sessions
from walreplay.spark.base_rows import BaseSource, DatabaseOfBase, FilesOfBase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_A_WHILE: Final = 10.0  # seconds, after which captures are listed again


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where a source's rows are, as whoever calls has said it.

    Attributes:
        origin: a folder of copies, or ``jdbc:postgresql://host/database``.
        describe, consistent_point: of copies, where these are not beside the folder as base.sh has written them.
        publication: of a database: whose tables are read.
        snapshot: of a database: one that is exported, with its ``consistent_point``; None to make one.
        wait: seconds for captures that reach the rows' LSN.
    """

    origin: str
    describe: str | None = None
    consistent_point: int | str | None = None
    publication: str | None = None
    snapshot: str | None = None
    wait: float = 0.0


@dataclass
class SourceRows:
    """Rows of a source that a target's tables are compared with.

    Attributes:
        load: of the rows into the side target, once they are staged.
        latest: the LSN that a target has to reach to be like them: theirs, or that of a TRUNCATE (see `Description`).
    """

    context: RunContext
    captures: str
    narrowed: Narrowed
    place: SourcePlace
    load: Load = field(init=False)
    latest: int = -1
    _ledger: str = field(init=False)  # the id of the side target's: rows that are staged anew get another one
    _side: SideBuild = field(init=False)

    def tables(self, state: State) -> tuple[SideTables, State]:
        """Stage the rows, and bring the target to their LSN, as far as there are captures.

        Returns:
            the tables that are made of the rows, and the target's state by then.
        """
        name = self._name(state)
        tables = SideTables(self.context, self.captures, self.narrowed, skips=True, name=name)
        side = Side(name, self.context.target.side(name), self.context.settings)
        self._side = SideBuild(self.context, self.captures, side)
        self.load = self._earlier(state) or self._staged(tables, state)
        staged = self._side.read()
        base_lsns = (None, self.load.at_lsn + 1)
        is_own = staged is not None and all(entry.base_lsn in base_lsns for entry in staged.tables)
        self._ledger = staged.ledger if staged is not None and is_own else ""  # "": of rows as of another LSN by now
        tables.late_load, self.latest = self._waiting(self.load), max(self.load.at_lsn, self.latest)
        return tables, self._applied(state) if state.reached[0] < self.latest else state

    def _earlier(self, state: State) -> Load | None:
        """Return the load of rows that an earlier call has staged, whose LSN the captures had not reached."""
        # Rows that were compared once are never used again: the source has gone on.
        if state.awaiting != self._side.side.name or self.place.snapshot is not None:
            return None
        load = self._side.staged()
        # Copies that were made anew since are newer.
        return load if load is not None and load.files is None else None

    def check(self) -> None:
        """Make sure that the tables were made of the rows that this call has staged, and not another one meanwhile.

        Raises:
            TargetError: they were not.
        """
        staged = self._side.read()
        if staged is None or staged.ledger != self._ledger:
            raise TargetError(
                "somebody else verifies the same tables by the same source, and has staged rows in place of these",
                path=self.context.target.text,
                remedy="Wait until that has ended, and run it again",
            )

    def _name(self, state: State) -> str:
        """Return the side target's name: the same call finds the rows that an earlier one has staged."""
        outputs, place = [output.value for output in self.narrowed.outputs or ()], self.place
        asked = ("source", place.origin, self.narrowed.tables, place.publication, outputs)
        name = side_name(self.context.settings, state.ledger, *asked)
        if self.context.target.root is None or has_own_sessions(self.context.spark):
            return name
        # A client of Spark Connect cannot remove the folder of an earlier call, whose rows may still be awaited.
        is_awaited = place.origin.startswith(SCHEME) and place.snapshot is None and state.awaiting.startswith(name)
        return state.awaiting if is_awaited else f"{name}-{uuid.uuid4().hex[:8]}"

    def _staged(self, tables: SideTables, state: State) -> Load:
        """Stage the rows, and return the load that has brought them to the side target."""
        with self._base() as (base, lsn, described):
            bringing = BaseLoad(self.context, base, lsn, described, None, anew=True)
            begun = bringing.begin()
            self.context.ledger.release()
            load = bringing.load(begun).as_first()
            load = replace(load, tables=tuple(item for item in load.tables if self.narrowed.wants(item[1])))
            if not load.tables:
                problem = f"there are no rows of a table that is called {self.narrowed.tables}"
                raise ConfigError(problem, path=self.place.origin, remedy="Check --table")
            names = frozenset(name for _, name in load.tables)
            tables.late_load = BaseStep(load, lambda _: base, described or base.described(), names)
            SideBuild(self.context, self.captures, tables.side(state), lsn).stage()
            read = described or base.described()  # a database has looked for a TRUNCATE meanwhile
            self.latest = max([lsn, *(read.emptied.get(oid, -1) for oid in load.oids if read is not None)])
            return load

    @contextmanager
    def _base(self) -> Iterator[tuple[BaseSource, int, Description | None]]:
        """Provide where the rows are, with their LSN and what describes them, while they are read."""
        place, spark = self.place, self.context.session
        if not place.origin.startswith(SCHEME):
            folder = place.origin.rstrip("/")
            point = place.consistent_point or self._text(f"{folder}.lsn", "--consistent-point").strip()
            describe = place.describe or f"{folder}.jsonl"
            described = read_description(self._text(describe, "--describe"), describe)
            yield FilesOfBase(spark, place.origin, copy_options(None), None), last_lsn_of(None, point), described
            return
        with self._snapshot() as snapshot:
            lsn, address = last_lsn_of(None, snapshot.consistent_point), read_address(place.origin)
            yield DatabaseOfBase(spark, address, lsn, publication=place.publication, snapshot=snapshot.name), lsn, None

    @contextmanager
    def _snapshot(self) -> Iterator[Snapshot]:
        place = self.place
        if place.snapshot is None:
            with exported_snapshot(read_address(place.origin), place.wait) as snapshot:
                yield snapshot
        elif place.consistent_point is None:
            problem = "a snapshot is given, and not as of which LSN it is"
            raise ConfigError(problem, path=place.origin, remedy="Give its --consistent-point, too")
        else:
            yield Snapshot(place.snapshot, last_lsn_of(None, place.consistent_point) + 1)

    def _text(self, path: str, option: str) -> str:
        """Read a small file beside the copies, wherever Spark can."""
        try:
            rows = self.context.session.read.text(escape_glob(path), wholetext=True)
            return "".join(row.value for row in rows.collect())
        except AnalysisException:
            raise ConfigError(
                "the file that base.sh writes beside the copies is not there", path=path, remedy=f"Give {option}"
            ) from None

    def _waiting(self, load: Load) -> BaseStep:
        """Return the step of rows that were staged before, and need not be read any more."""

        def gone(_: SparkSession) -> BaseSource:
            raise TargetError(
                "the source's rows that were staged are gone: captures were missing behind them, or somebody else has "
                "verified the same tables by them",
                path=self.context.target.text,
                remedy="Run it again, which reads them anew",
            )

        return BaseStep(load, gone, None, frozenset(name for _, name in load.tables))

    def waited(self, state: State, lsn: int) -> State:
        """Wait for captures that reach an LSN, and apply them; return the target's state by then."""
        ends = time.monotonic() + self.place.wait
        while state.reached[0] < lsn and (left := ends - time.monotonic()) > 0:
            with self.context.stage("wait for captures"):
                time.sleep(min(left, _A_WHILE))
            state = self._applied(state)
        return state

    def _applied(self, state: State) -> State:
        context = self.context
        apply(context.spark, self.captures, context.target.text, context.settings, context.progress)
        return context.ledger.read() or state
