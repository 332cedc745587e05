"""Make tables beside a target, as of the LSN that the target is at: by base loads and ordinary runs in a side target.

The side target (`Target.side`) has a ledger of its own.  So an interrupted one can be resumed, and runs of the target
may come in between.  Each base load is repeated where it came in the target: behind the captures applied until then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from walreplay.config import Settings
from walreplay.decode.scan import Until
from walreplay.delta import statements as delta
from walreplay.delta.target import Target
from walreplay.errors import ConfigError, OrderError, TargetError
from walreplay.job.apply import Job
from walreplay.job.base_load import BaseLoad
from walreplay.job.context import RunContext
from walreplay.job.installing import remove_side
from walreplay.job.source_check import check_unshared
from walreplay.ledger.runs import loads_of
from walreplay.ledger.state import Load, State
from walreplay.loading.description import Description, read_description
from walreplay.loading.formats import CopiedFiles
from walreplay.lsn import format_lsn
from walreplay.report import RunReport
from walreplay.session import steps
from walreplay.spark.base_rows import BaseSource, FilesOfBase
from walreplay.spark.captures import root_of
from walreplay.table.registry import MirrorEntry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_WHERE: Final = (
    "Give the folder that has them by --base; or copy the tables again, and give the copy to walreplay load --replace"
)

MakeSource: TypeAlias = "Callable[[SparkSession], BaseSource]"


@dataclass(frozen=True, slots=True)
class BaseStep:
    """A base load that tables begin with.

    Attributes:
        source: returns where its rows are.
        only: the tables that are wanted of it.
    """

    load: Load
    source: MakeSource
    described: Description | None
    only: frozenset[str]

    @classmethod
    def again(cls, load: Load, origin: str | None, only: frozenset[str], place: str) -> BaseStep:
        """Return the step that repeats a load.

        Args:
            origin: where its files are now; None for where they were.
            place: the target, for an error.

        Raises:
            TargetError: its rows were not in files.
        """
        files = load.files
        if files is None:
            raise TargetError(
                f"the table was loaded from {load.origin}, whose rows as of that LSN cannot be read again",
                table=", ".join(sorted(only)),
                path=place,
                remedy="Copy it from the source again, and give the copy to walreplay load --replace "
                "(docs/starting.md); or leave it out of --table",
            )
        folder = origin or load.origin
        described = read_description(files.description, "the ledger")
        return cls(load, lambda spark: _Copied(spark, folder, files, moved=origin is not None), described, only)


class _Copied(FilesOfBase):
    """The files of a load that came before.

    Args:
        moved: they lie elsewhere now, so that they may have other times.
    """

    def __init__(self, spark: SparkSession, origin: str, files: CopiedFiles, *, moved: bool) -> None:
        super().__init__(spark, origin, files.options, files.table)
        self._known, self._moved = files, moved

    def open(self) -> None:
        """List the files.

        Raises:
            ConfigError: they are not those that were loaded.
        """
        try:
            super().open()
        except ConfigError as error:
            raise ConfigError(
                "the files that the table was loaded from are not there", path=self.origin, remedy=_WHERE
            ) from error
        found = self.files("")
        if found.digest == self._known.digest and (self._moved or found.changed == self._known.changed):
            return
        raise ConfigError(
            "the files are not those that the table was loaded from: "
            + ("their times differ" if found.digest == self._known.digest else "names or lengths differ"),
            path=self.origin,
            remedy=_WHERE,
        )


@dataclass(frozen=True, slots=True)
class Side:
    """Where tables are made, and of what.

    Attributes:
        name: the side target's.
        settings: what they are made by.
        loads: the base loads that they begin with, in their order.
    """

    name: str
    target: Target
    settings: Settings
    loads: tuple[BaseStep, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """What has been made in the side target, at the LSN of the target.

    Attributes:
        entries: the tables.
        report: of the runs that made them.
    """

    entries: tuple[MirrorEntry, ...]
    report: RunReport


@dataclass(frozen=True, slots=True)
class MakingBeside:
    """Makes tables in a side target.

    Attributes:
        context: the target's.
        since: transactions at or below this LSN need not be among the captures; None if all have to be.
    """

    context: RunContext
    captures: str
    side: Side
    since: int | None = None

    def make(self, state: State) -> Made:
        """Make the tables, up to where the target is.

        Args:
            state: of the target's ledger.

        Raises:
            OrderError: the captures do not hold all that the target has.
        """
        assert state.resume is not None
        context, end = self.context, state.resume.place.high_lsn
        before = self._look()
        if before is not None and before.resume is not None and before.resume.place.high_lsn > end:
            # The target's ledger was set back.
            self._begin_anew(before)
            before = None
        try:
            report = self._run(before, end)
        except OrderError:
            if before is None:
                raise
            # Captures that were missing, or have changed, may be right now: what was made of others does not count.
            self._begin_anew(before)
            report = self._run(None, end)
        context.warnings.extend(text for text in report.warnings if text not in context.warnings)
        made = self._look()
        try:
            self._check_end(made, state)
        except OrderError:
            self._begin_anew(made)
            raise
        assert made is not None
        check_unshared(made.tables)
        return Made(made.tables, report)

    def _context(self) -> RunContext:
        return RunContext.of(
            self.context.spark, self.side.target, self.side.settings, self.context.progress, loads=True
        )

    def _look(self) -> State | None:
        return self._context().ledger.read()

    def _begin_anew(self, before: State | None) -> None:
        """Remove what was made before."""
        tables = () if before is None else before.tables
        note = remove_side(self.context.own, self.side.target, [entry.table for entry in tables])
        if note is not None:
            raise TargetError(f"what was made before cannot be gone on with; {note}", path=self.side.target.text)

    def _run(self, before: State | None, end: int) -> RunReport:
        """Bring the side target to the target's LSN; return the report of its last run."""
        done = self._loaded(before)
        for step in self.side.loads:
            load = step.load
            if any(one.at_lsn == load.at_lsn and one.oids & load.oids for one in done):
                continue
            if load.after >= 0:
                self._apply(load.after)
            context = self._context()
            base, source = step.source(context.own), context.settings.source or root_of(self.captures)
            BaseLoad(context, base, load.at_lsn, step.described, source, anew=True, only=step.only, top=load.top).run()
            self._take_over(context)
            steps.reached("base loaded beside")
        return self._apply(end)

    def _apply(self, end: int) -> RunReport:
        context = self._context()
        report = Job(context, self.captures, Until(lsn=end)).apply()
        self._take_over(context)
        return report

    def _take_over(self, run: RunContext) -> None:
        stages = self.context.stages
        for name, seconds in run.stages.items():
            stages[name] = stages.get(name, 0.0) + seconds

    def _loaded(self, before: State | None) -> list[Load]:
        """Return the loads that the side target has."""
        table = self.side.target.ledger("runs")
        if before is None or not delta.exists(self.context.own, table):
            return []
        return [load for _, load in loads_of(delta.read(self.context.own, table), before)]

    def _check_end(self, made: State | None, state: State) -> None:
        """Make sure that the captures hold all transactions that the target has."""
        assert state.resume is not None
        reached, end = None if made is None else made.resume, state.resume.place.high_lsn
        high = -1 if reached is None else reached.place.high_lsn
        if reached is None or high != end:
            raise OrderError(
                f"the captures end at LSN {format_lsn(max(high, 0))}, but the target holds what was committed up to "
                f"{format_lsn(end)}",
                path=self.captures,
                remedy="Nothing was changed; bring back all captures that the target was made of",
            )
        found, applied = reached.applied, state.resume.applied
        where = "up to there"
        if self.since is not None:
            found, applied = self._count(self.side.target), self._count(self.context.target)
            where = f"from {format_lsn(self.since)} up to there"
        if found == applied:
            return
        told = f"the captures hold {found:,} transactions {where}, and the target was made of {applied:,}"
        if found < applied and not self.context.settings.captures.allow_gaps:
            raise OrderError(
                told,
                path=self.captures,
                remedy="Nothing was changed; bring back all captures that the target was made of, or go on without "
                f"what is missing by {'--allow-gaps' if self.since is None else 'captures: {allow_gaps: true}'}",
            )
        self.context.warnings.append(told)

    def _count(self, target: Target) -> int:
        """Return how many transactions a target's ledger has above the LSN from which they are needed."""
        table = target.ledger("transactions")
        if not delta.exists(self.context.own, table):
            return 0
        return delta.read(self.context.own, table).where(f"commit_lsn > {self.since}").count()
