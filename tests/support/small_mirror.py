"""Mirrors of small tables made by hand: a file of captures for each run, and the rows that the tables hold."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.framings import frame, transaction
from support.readers import collect, read
from support.truth import mirror_tables
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INT4, INT8, TEXT = 23, 20, 25

Rows = Mapping[str, Counter[tuple[Any, ...]]]

_EXPECTED: dict[bytes, Rows] = {}
"""What captures make, by their digest."""


def relation(
    oid: int, name: str, columns: Mapping[str, int], identity: str = "d", *, key: str = "id", schema: str = "s"
) -> m.Relation:
    """Make a relation; under replica identity full every column is its key."""
    flagged = set(columns) if identity == "f" else {key} if identity == "d" else set()
    return m.Relation(oid, schema, name, identity, tuple(m.Column(c, t, -1, c in flagged) for c, t in columns.items()))


def row(*values: object) -> m.TupleData:
    """Make a row of texts."""
    return m.TupleData(tuple(m.NULL_CELL if v is None else m.Cell("t", str(v).encode()) for v in values))


@contextmanager
def runs_of(size: int) -> Iterator[None]:
    """Have each run read so many bytes at most."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("walreplay.job.apply.run_bytes_of", lambda _: size)
        yield


class SmallMirror:
    """Captures and their mirror, in a folder of their own; each file holds one transaction.

    Args:
        target: where the tables are; None for a folder.
    """

    def __init__(self, spark: SparkSession, folder: Path, target: str | None = None) -> None:
        self.spark = spark
        self.captures = folder / "captures"
        self.target = target or str(folder / "mirror")
        self.captures.mkdir(parents=True)
        self.files = 0

    @property
    def ledger(self) -> Path:
        return Path(self.target, "_walreplay")

    def write(self, *changes: m.AnyMessage) -> Path:
        """Bring the next file."""
        self.files += 1
        lsn = 100 * self.files
        path = self.captures / f"{self.files:03}.bin"
        path.write_bytes(frame(transaction(lsn, *changes, xid=self.files), Framing.RAW))
        return path

    def apply(
        self, *changes: m.AnyMessage, allow_gaps: bool = False, accept_changed_tables: bool = False, **config: Any
    ) -> walreplay.RunReport:
        """Bring the next file, if there are changes, and apply what is there."""
        if changes:
            self.write(*changes)
        settings = walreplay.Settings.from_mapping(config)
        settings = settings.allowing_gaps() if allow_gaps else settings
        settings = settings.accepting_changed_tables() if accept_changed_tables else settings
        return walreplay.apply(self.spark, captures=self.captures, target=self.target, config=settings)

    def location(self, name: str) -> Path:
        return Path(self.target, "s", name)

    def rows(self) -> Rows:
        """Return the rows of all tables, whatever commit they were written at."""
        return rows_of(self.target)

    def expected(self, folder: Path) -> Rows:
        """Return the rows that all captures make, in one run into a new target.

        The same captures make the same rows: one run serves all cases that have them, whichever way each has written.
        """
        captures = hashlib.sha256()
        for path in sorted(self.captures.iterdir()):
            captures.update(b"%s %d " % (path.name.encode(), path.stat().st_size) + path.read_bytes())
        found = _EXPECTED.get(captures.digest())
        if found is None:
            walreplay.apply(self.spark, captures=self.captures, target=folder)
            found = _EXPECTED[captures.digest()] = rows_of(folder)
        return found

    def keep(self, folder: Path) -> None:
        """Copy the captures and the mirror away."""
        shutil.copytree(self.captures.parent, folder)

    def go_back_to(self, folder: Path) -> None:
        """Put copies of both in their place again."""
        shutil.rmtree(self.captures.parent)
        shutil.copytree(folder, self.captures.parent)
        self.files = len(list(self.captures.iterdir()))
        forget(self.spark)

    def save(self, folder: Path, what: str = "") -> None:
        """Copy the ledger, or one of its tables, away."""
        shutil.copytree(self.ledger / what, folder)

    def put_back(self, folder: Path, what: str = "") -> None:
        """Put a copy in its place again."""
        shutil.rmtree(self.ledger / what)
        shutil.copytree(folder, self.ledger / what)
        forget(self.spark)

    def lose(self, table: str, commits: int) -> None:
        """Take the newest commits of one of the ledger's tables away."""
        log = self.ledger / table / "_delta_log"
        newest = max(int(path.stem) for path in log.glob("*.json"))
        for path in log.iterdir():
            number = path.name.lstrip(".")[:20]
            if number.isdigit() and int(number) > newest - commits:
                path.unlink()
        forget(self.spark)

    def history(self, name: str) -> Sequence[str]:
        """Return by its log what was done to a table, the newest last, but for what it says of itself."""
        commits = sorted((self.location(name) / "_delta_log").glob("*.json"))
        actions = [json.loads(line) for path in commits for line in path.read_text(encoding="utf-8").splitlines()]
        told = [action["commitInfo"] for action in actions if "commitInfo" in action]
        properties = [(info, info.get("operationParameters", {}).get("properties", "")) for info in told]
        return [info["operation"] for info, given in properties if '{"comment":' not in given]


def forget(spark: SparkSession) -> None:
    """Have Delta look at its tables anew, as a program would that is started then."""
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]


def rows_of(target: str | Path) -> Rows:
    """Return the rows of a target's tables, but for what says at which commit they were written."""
    return {name: _rows(location) for name, location in mirror_tables(target).items()}


def _rows(location: Path) -> Counter[tuple[Any, ...]]:
    columns = [name for name in read(location).column_names if name not in ("__commit_lsn", "__commit_ts")]
    # Arrays and maps have no hashes.
    plain = lambda value: repr(value) if isinstance(value, list | dict) else value  # noqa: E731
    return Counter((tuple(columns), *map(plain, row)) for row in collect(location, *columns))
