"""Make tables in a side target (`Target.side`) with a ledger of its own, by the ordinary job, up to the target's LSN.

So a killed rebuild is resumed.  Each base load is repeated where it came in the target: behind the captures applied
until then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from walreplay.archive.index import IndexedFileGone
from walreplay.config import Settings
from walreplay.decode.scan import Until
from walreplay.delta import statements as delta
from walreplay.delta.target import Target
from walreplay.errors import ConfigError, OrderError, TargetError
from walreplay.job.apply import Job
from walreplay.job.base_load import BaseLoad
from walreplay.job.context import RunContext
from walreplay.job.installing import remove_side
from walreplay.ledger.runs import loads_of
from walreplay.ledger.state import Load, State
from walreplay.loading.description import Description, read_description
from walreplay.loading.formats import CopiedFiles
from walreplay.lsn import format_lsn
from walreplay.report import RunReport
from walreplay.session import steps
from walreplay.spark.base_rows import BaseSource, FilesOfBase
from walreplay.spark.captures import root_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BASE_REMEDY: Final = (
    "Give the folder that has them by --base; or copy the tables again (docs/starting.md): walreplay load --replace "
    "--from COPY"
)


@dataclass(frozen=True, slots=True)
class BaseStep:
    """A base load that tables begin with.

    Attributes:
        source: returns where its rows are.
        only: the tables that are wanted of it.
    """

    load: Load
    source: Callable[[SparkSession], BaseSource]
    described: Description | None
    only: frozenset[str]

    @classmethod
    def again(cls, load: Load, origin: str | None, only: frozenset[str]) -> BaseStep:
        """Return the step that repeats a load of files.

        Args:
            origin: where they are now; None for where they were.
        """
        files = load.files
        assert files is not None
        folder = origin or load.origin
        described = read_description(files.description, "the ledger")
        return cls(load, lambda spark: _Copied(spark, folder, files, moved=origin is not None), described, only)

    @staticmethod
    def not_again(load: Load, only: Iterable[str], place: str) -> TargetError:
        """Return the error for a load whose rows were not in files; ``place`` is the target."""
        return TargetError(
            f"the table was loaded from {load.origin}, whose rows as of that LSN cannot be read again",
            table=", ".join(sorted(only)),
            path=place,
            remedy="Copy it from the source again: walreplay load --replace --from COPY (docs/starting.md); "
            "or leave the table out of --table",
        )


class _Copied(FilesOfBase):
    """The files of a load that came before.

    Args:
        moved: they lie elsewhere now, so that they may have other times.
    """

    def __init__(self, spark: SparkSession, origin: str, files: CopiedFiles, *, moved: bool) -> None:
        super().__init__(spark, origin, files.options, files.table)
        self._loaded_files, self._moved = files, moved

    def open(self) -> None:
        """List the files.

        Raises:
            ConfigError: they are not those that were loaded.
        """
        try:
            super().open()
        except ConfigError as error:
            problem = "the files that the table was loaded from are not there"
            raise ConfigError(problem, path=self.origin, remedy=_BASE_REMEDY) from error
        loaded, present = self._loaded_files, self.files("")
        is_same = loaded.digest == present.digest
        if is_same and (self._moved or loaded.changed == present.changed):
            return
        why = "their times differ" if is_same else "names or lengths differ"
        problem = f"the files are not those that the table was loaded from: {why}"
        raise ConfigError(problem, path=self.origin, remedy=_BASE_REMEDY)


@dataclass(frozen=True, slots=True)
class Side:
    """Where tables are made, and of what; ``loads`` are the base loads that they begin with, in their order."""

    name: str
    target: Target
    settings: Settings
    loads: tuple[BaseStep, ...] = ()


def side_name(settings: Settings, *parts: object) -> str:
    """Return the name of the side target for what is made by some settings; ``parts`` say what, as JSON has it.

    The same call finds what an earlier one, which was killed, has made.
    """
    others = {"staging", "ledger_keep_days", "index"}  # they change nothing of what tables hold
    values = [settings.model_dump(mode="json", exclude=others), settings.mask_salt.hex(), *parts]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SideBuild:
    """Makes tables in a side target.

    Attributes:
        context: the target's.
        compare_from_lsn: transactions at or below this LSN need not be among the captures; None if all have to be.
    """

    context: RunContext
    captures: str
    side: Side
    compare_from_lsn: int | None = None

    def make(self, state: State) -> tuple[State, RunReport]:
        """Make the tables, up to where the target is.

        Returns:
            the state of the side target, and the report of the runs that made its tables.

        Raises:
            OrderError: the captures do not hold all that the target has.
        """
        assert state.resume is not None
        context, end = self.context, state.resume.place.high_lsn
        side_state = self.read()
        if side_state is not None and side_state.resume is not None and side_state.resume.place.high_lsn > end:
            # The target's ledger was set back since the side target was made: runs do not go backwards.
            self._start_over(side_state)
            side_state = None
        try:
            self._load(side_state)
            report = self._apply(end)
        except OrderError as error:
            if side_state is None or isinstance(error, IndexedFileGone):
                raise
            # The side target was made of captures that were incomplete, or have changed: make it of the present ones.
            self._start_over(side_state)
            self._load(None)
            report = self._apply(end)
        context.warnings.extend(text for text in report.warnings if text not in context.warnings)
        made = self.read()
        try:
            self._check_end(made, state)
        except OrderError:
            self._start_over(made)
            raise
        assert made is not None
        return made, report

    def stage(self) -> None:
        """Bring the side target its first rows alone, anew.

        Raises:
            TargetError: somebody else is at work on it.
        """
        context = self._context()
        side_state = context.ledger.read()
        if side_state is not None:
            context.lock()
            context.ledger.release()
            self._start_over(side_state)
        self._load(None)

    def staged(self) -> Load | None:
        """Return the load of rows that wait in the side target; None for none."""
        return next(iter(self._loads(self.read())), None)

    def _context(self) -> RunContext:
        spark, progress = self.context.spark, self.context.progress
        return RunContext.of(spark, self.side.target, self.side.settings, progress, loads=True)

    def read(self) -> State | None:
        """Return the state of the side target's ledger."""
        return self._context().ledger.read()

    def _start_over(self, side_state: State | None) -> None:
        """Remove what was made before."""
        tables = () if side_state is None else side_state.tables
        note = remove_side(self.context.session, self.side.target, [entry.table for entry in tables])
        if note is not None:
            raise TargetError(f"what was made before cannot be gone on with; {note}", path=self.side.target.text)

    def _load(self, side_state: State | None) -> None:
        # By their number: two loads may be as of one LSN, of the same tables.
        for step in self.side.loads[len(self._loads(side_state)) :]:
            load = step.load
            if load.after >= 0:  # -1: the load came before any captures
                self._apply(load.after)
            context = self._context()
            base, source = step.source(context.session), context.settings.source or root_of(self.captures)
            BaseLoad(context, base, load.at_lsn, step.described, source, anew=True, only=step.only, top=load.top).run()
            self._take_over(context)
            steps.reached("side base loaded")

    def _apply(self, end: int) -> RunReport:
        context = self._context()
        report = Job(context, self.captures, Until(lsn=end)).apply()
        self._take_over(context)
        return report

    def _take_over(self, run: RunContext) -> None:
        stages = self.context.stages
        for name, seconds in run.stages.items():
            stages[name] = stages.get(name, 0.0) + seconds

    def _loads(self, side_state: State | None) -> list[Load]:
        """Return the loads that the side target has."""
        table = self.side.target.ledger("runs")
        if side_state is None or not delta.exists(self.context.session, table):
            return []
        return [load for _, load in loads_of(delta.read(self.context.session, table), side_state)]

    def _check_end(self, made: State | None, state: State) -> None:
        """Make sure that the captures hold all transactions that the target has."""
        assert state.resume is not None
        side_resume = None if made is None else made.resume
        end, high = state.reached[0], -1 if made is None else made.reached[0]
        if side_resume is None or high != end:
            raise OrderError(
                f"the captures end at LSN {format_lsn(max(high, 0))}, but the target holds what was committed up to "
                f"{format_lsn(end)}",
                path=self.captures,
                remedy="Nothing was changed; bring back all captures that the target was made of",
            )
        side_count, target_count = side_resume.applied, state.resume.applied
        where = "up to there"
        if self.compare_from_lsn is not None:
            side_count, target_count = self._count(self.side.target), self._count(self.context.target)
            where = f"from {format_lsn(self.compare_from_lsn)} up to there"
        if side_count == target_count:
            return
        message = f"the captures hold {side_count:,} transactions {where}, and the target was made of {target_count:,}"
        if side_count < target_count and not self.context.settings.allow_gaps:
            raise OrderError(
                message,
                path=self.captures,
                remedy="Nothing was changed; bring back all captures that the target was made of, or go on without "
                "what is missing by --allow-gaps",
            )
        self.context.warnings.append(message)

    def _count(self, target: Target) -> int:
        """Return how many transactions a target's ledger has above the LSN from which they are needed."""
        table = target.ledger("transactions")
        if not delta.exists(self.context.session, table):
            return 0
        return delta.read(self.context.session, table).where(f"commit_lsn > {self.compare_from_lsn}").count()
