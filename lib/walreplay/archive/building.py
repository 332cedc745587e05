"""Make the index of an archive, or bring it up to what the archive holds now."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from walreplay.archive.index import ArchiveIndex, home_of, table_of
from walreplay.archive.joining import Joining
from walreplay.config import Settings, make_settings
from walreplay.delta import statements as delta
from walreplay.listing import Hole, missing_numbers
from walreplay.lsn import format_lsn
from walreplay.progress import NoProgress, Progress
from walreplay.session.failures import spark_errors
from walreplay.session.isolation import own_session, quiet_queries
from walreplay.session.isolation import settings as set_for_a_while
from walreplay.spark.captures import CaptureFile, confirm_holes, list_captures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What `index` did.

    Attributes:
        index: where the index is.
        files, capture_bytes: of the archive; ``files_read`` and ``bytes_read`` were not known and had to be read.
        transactions: that commit in the archive, without those that come again.
        first_lsn, last_lsn: the least and the greatest commit LSN.
    """

    captures: str
    index: str
    files: int
    capture_bytes: int
    files_read: int
    bytes_read: int
    transactions: int
    changes: int
    first_lsn: int | None
    last_lsn: int | None
    warnings: tuple[str, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the report as values for JSON; LSNs as ``X/X``."""
        found: dict[str, Any] = {name: getattr(self, name) for name in IndexReport.__slots__}
        found["warnings"] = list(self.warnings)
        found["seconds"] = round(self.seconds, 3)
        for name in ("first_lsn", "last_lsn"):
            found[name] = None if found[name] is None else format_lsn(found[name])
        return found


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive's listing, and its index.

    Attributes:
        holes: by the path of the file before which others are missing, according to their numbers.
    """

    spark: SparkSession
    files: Sequence[CaptureFile]
    index: ArchiveIndex
    holes: Mapping[str, Hole]

    @property
    def size(self) -> int:
        """Bytes of the files, as stored."""
        return sum(file.length for file in self.files)


@contextmanager
def archive_of(
    spark: SparkSession, captures: str, index: str | None, wanted: Settings, progress: Progress
) -> Iterator[Archive]:
    """List an archive and open its index, in a session of its own.

    Raises:
        WalReplayError: it cannot be listed.
    """
    with spark_errors(path=captures):
        own = own_session(spark)
        with quiet_queries(), set_for_a_while(own, delta.SMALL_STATE):
            progress.stage("list", None)
            files = list_captures(own, captures, wanted.captures)
            home = home_of(captures, files)
            found = ArchiveIndex(own, table_of(index, home), home, wanted)
            holes = confirm_holes(own, missing_numbers([file.path for file in files]))
            try:
                yield Archive(own, files, found, {hole.after: hole for hole in holes})
            finally:
                progress.done()


def index(
    spark: SparkSession,
    captures: str | os.PathLike[str],
    index: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None = None,
    progress: Progress | None = None,
) -> IndexReport:
    """Read the capture files that the index does not know, and write down what is in each.

    It may be stopped at any time, and goes on where it was.  Two may be at work at the same time.

    Args:
        captures: the folder (or file, or glob) of the capture files.
        index: a folder's URI, or ``catalog.schema.table``; by default ``_walreplay_index`` in the captures' folder.
        config: as `walreplay.apply` takes it; how files are found and read is what counts.
        progress: told how far it is.

    Raises:
        WalReplayError: what stopped it: captures are damaged or missing, or the index cannot be written.
    """
    began, wanted, told = time.monotonic(), make_settings(config), progress or NoProgress()
    with archive_of(spark, str(captures), None if index is None else str(index), wanted, told) as archive:
        told.stage("scan", len(archive.files))
        joining = Joining(
            archive.spark,
            wanted,
            archive.files,
            archive.index,
            told,
            holes=archive.holes,
            lenient=wanted.captures.allow_gaps,
        )
        changes, lsns = 0, list[int]()
        warnings: list[str] = []
        for joined in joining.run():
            warnings += (str(gap) for gap in joined.gaps)
            if joined.hole is not None:
                warnings.append(f"{joined.file.path}: {joined.hole.describe()} (gaps are allowed)")
            if joined.facts is not None:
                changes += joined.facts.changes
                lsns += (lsn for lsn in (joined.facts.first_lsn, joined.facts.last_lsn) if lsn is not None)
                lsns = [min(lsns), max(lsns)] if lsns else []
        if joining.unwritten is not None:
            raise joining.unwritten
        plan = joining.stitch.plan()
        return IndexReport(
            captures=str(captures),
            index=archive.index.table.text,
            files=len(archive.files),
            capture_bytes=archive.size,
            files_read=len(joining.read),
            bytes_read=sum(file.length for file in joining.read),
            transactions=plan.transactions,
            changes=changes,
            first_lsn=min(lsns, default=None),
            last_lsn=max(lsns, default=None),
            warnings=tuple(dict.fromkeys([*warnings, *plan.warnings])),
            seconds=time.monotonic() - began,
        )
