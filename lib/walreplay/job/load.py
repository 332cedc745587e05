"""Load: rows that tables had before the captures began, at any time.

Rows as of an LSN that the target is not behind are loaded as they are (`walreplay.job.base_load`).  If more is
applied already, the tables are made in a side target, of the rows and of what the archive has behind their LSN, and
swapped into place in one commit each (`walreplay.job.rebuild`): the result is the same.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walreplay.config import Settings, make_settings
from walreplay.config.model import Narrowed
from walreplay.errors import ConfigError, TargetError
from walreplay.job.as_of import last_lsn_of
from walreplay.job.base_load import BaseLoad, PlannedLoad
from walreplay.job.context import RunContext
from walreplay.job.rebuild import Rebuilding
from walreplay.job.side_build import BaseStep
from walreplay.job.side_tables import SideTables
from walreplay.loading.database import SCHEME, read_address
from walreplay.loading.description import HOW_TO_DESCRIBE, Description, read_description
from walreplay.loading.formats import CopyOptions
from walreplay.loading.formats import copy_options as read_copy_options
from walreplay.lsn import format_lsn
from walreplay.names import Output, output_of, source_oid
from walreplay.progress import Progress
from walreplay.report import RunReport
from walreplay.spark.base_rows import BaseSource, DatabaseOfBase, FilesOfBase, FrameOfBase
from walreplay.spark.captures import root_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_OF_SPARK: Final = "a DataFrame"  # in the place of a folder, in reports and errors


def load(
    spark: SparkSession,
    source: str | os.PathLike[str] | DataFrame,
    target: str | os.PathLike[str],
    at_lsn: int | str | None = None,
    *,
    consistent_point: int | str | None = None,
    describe: str | os.PathLike[str] | None = None,
    table: str | None = None,
    publication: str | None = None,
    snapshot: str | None = None,
    connections: int | None = None,
    captures: str | os.PathLike[str] | None = None,
    copy_options: str | None = None,
    replace: bool = False,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Bring tables the rows that they had before the captures began.

    Args:
        source: the folder (or file) of what COPY has written of the tables, named by table; or a database, as
            ``jdbc:postgresql://host/database`` (its user and password are those of PGUSER, PGPASSWORD and PGPASSFILE);
            or a DataFrame with the rows of one table: columns by the table's names, each of strings that hold
            PostgreSQL's text, or of a type that converts exactly.
        target, config, progress: as `walreplay.apply` takes them.
        at_lsn: the last commit LSN that is among the rows: those at or below it are, and no others.  Where neither LSN
            is given, it and the description are what ``base.sh`` has written beside a mounted folder.
        consistent_point: in its place, the LSN of a slot's exported snapshot: commit LSNs below it are among the rows.
        describe: a file that the script ``describe.sql`` has written; without it, the tables have to be known by their
            captures, or their rows read from a database.
        table: the one table (``schema.table``) that all files or rows are of, or that is read from a database.
        publication: of a database: whose tables are read.
        snapshot: of a database: the name of a snapshot that is exported for the time of the load.
        connections: of a database: how many sessions read at a time (by default 8).
        captures: where the captures lie or will lie; by default the configuration's, or those applied last.
        copy_options: COPY's options, in its syntax, where that is not its default: ``format csv, header``.
        replace: tables that have rows already are made anew, and a load that was interrupted is given up.

    Raises:
        WalReplayError: what stopped it.  No table is touched when the files are at fault.
    """
    began = time.monotonic()
    chosen = make_settings(config)
    options = read_copy_options(copy_options)
    if at_lsn is None and consistent_point is None:
        consistent_point, beside = written_beside(source)
        describe = describe or beside
    lsn = last_lsn_of(at_lsn, consistent_point)
    described = None if describe is None else _read_description(describe)
    is_folder = isinstance(source, (str, os.PathLike)) and not str(source).startswith(SCHEME)
    with RunContext.on(spark, target, chosen, progress, reads=str(source) if is_folder else None, loads=True) as run:
        of_database = {"publication": publication, "snapshot": snapshot, "connections": connections}
        base = _base(run.session, source, lsn, options, table, of_database)
        captures_uri = chosen.captures_uri if captures is None else str(captures)
        source_name = chosen.source or (None if captures_uri is None else root_of(captures_uri))
        return _bring(BaseLoad(run, base, lsn, described, source_name, anew=replace), captures_uri, began)


def written_beside(source: str | os.PathLike[str] | DataFrame | None) -> tuple[str | None, str | None]:
    """Return the LSN and the description's path that ``base.sh`` has left beside a mounted folder; None: it has not."""
    if not isinstance(source, (str, os.PathLike)) or "://" in str(source):
        return None, None
    folder = str(source).removeprefix("file:").rstrip("/")
    lsn, described = Path(f"{folder}.lsn"), Path(f"{folder}.jsonl")
    if not (lsn.is_file() and described.is_file()):
        if not Path(folder).exists():
            remedy = "walreplay record --create --and-copy makes it, and the description and the LSN beside it"
            raise ConfigError("there is no such folder of copies", path=folder, remedy=f"{remedy} (docs/starting.md)")
        return None, None
    return lsn.read_text(encoding="ascii", errors="replace").strip(), str(described)


def _bring(load: BaseLoad, captures: str | None, began: float) -> RunReport:
    """Bring the rows in one commit a table; behind what is applied, with the archive's changes since then."""
    with load.context.at_work():
        begun = load.begin()  # takes the lock
        # Where nothing behind the rows is applied, they can be written as they are.
        if load.lsn >= begun.applied and not begun.is_displaced:
            return load.bring(begun, began)
        late_load = _late_load(load, begun)
    assert begun.state is not None
    # The tables are made beside; names that differ by case alone are two tables'.
    narrowed = Narrowed(tables=f"(?-i:{'|'.join(map(re.escape, sorted(late_load.only)))})")
    captures = begun.state.captures if captures is None else captures
    report = Rebuilding(SideTables(load.context, captures, narrowed, late_load)).run()
    rows = sum(table.inserted for table in report.tables if output_of(table.oid or 0) is Output.MIRROR)
    return replace_fields(report, status="loaded", captures=load.base.origin, files=0, capture_bytes=0, changes=rows)


def _base(
    spark: SparkSession,
    source: str | os.PathLike[str] | DataFrame,
    lsn: int,
    options: CopyOptions,
    table: str | None,
    of_database: Mapping[str, Any],
) -> BaseSource:
    """Return where the rows are."""
    if isinstance(source, str) and source.startswith(SCHEME):
        return DatabaseOfBase(spark, read_address(source), lsn, table=table, **of_database)
    if any(option is not None for option in of_database.values()):
        raise ConfigError(
            "a publication, a snapshot and connections are a database's",
            remedy="Give --from jdbc:postgresql://host/database, or leave out --publication and --snapshot",
        )
    if isinstance(source, (str, os.PathLike)):
        return FilesOfBase(spark, str(source), options, table)
    return FrameOfBase(source, ROWS_OF_SPARK, table)


def _read_description(path: str | os.PathLike[str]) -> Description:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"the description cannot be read: {why}", path=str(path), remedy="Check --describe") from None
    return read_description(text, str(path))


def _late_load(bringing: BaseLoad, begun: PlannedLoad) -> BaseStep:
    """Return the load of rows that are older than what is applied: its tables are made again, beginning with it.

    Raises:
        TargetError: a table has rows of another load, or another load was interrupted.
    """
    state = begun.state
    assert state is not None
    oids = {relation.oid for relation in begun.loaded}
    loaded = [entry for entry in state.tables if entry.base_lsn is not None and source_oid(entry.oid) in oids]
    if loaded and not bringing.anew:
        raise TargetError(
            "the table was loaded already",
            table=loaded[0].name,
            path=loaded[0].table.text,
            remedy="To have it made anew from these rows, and the captures behind them, give --replace; to load the "
            "others alone, leave its lines out of --describe",
        )
    described = bringing.described or bringing.base.described()
    if described is None:
        raise ConfigError(
            "more is applied than the rows have, and nothing says what the tables' columns were as of their LSN",
            path=bringing.context.target.text,
            remedy=HOW_TO_DESCRIBE,
        )
    bringing.give_up_interrupted(begun)
    load = bringing.load(begun).as_first()
    names = frozenset(name for _, name in load.tables)
    return BaseStep(load, lambda _: bringing.base, described, names)


def give_up_load(
    spark: SparkSession,
    target: str | os.PathLike[str],
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
) -> str:
    """Forget a load that was interrupted, or has failed, before any table had its rows; return what it was.

    Raises:
        TargetError: there is none, or tables may have its rows.
    """
    with RunContext.on(spark, target, make_settings(config), None, loads=True) as context, context.at_work():
        place = context.target
        state = context.read()
        if state is not None:
            state = context.lock()  # read again, under the lock
        if state is None or state.load is None:
            raise TargetError("no load was interrupted there", path=place.text, remedy="Check --target")
        load = state.load
        if load.writing:  # before that, rows were only read
            raise TargetError(
                f"tables may have rows of the load of {load.names} already",
                path=place.text,
                remedy=f"Run it again, as of LSN {format_lsn(load.at_lsn)}, which finishes it; or load all of them "
                "as of another one, with --replace",
            )
        context.ledger.write(state.ended(state.tables))
    return f"the load of {load.names} as of LSN {format_lsn(load.at_lsn)} is forgotten"
