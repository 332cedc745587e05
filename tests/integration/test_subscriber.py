"""A base load and what comes behind it give what PostgreSQL's own subscriber has of the same publication."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import walreplay
from support.base_copies import Snapshot, snapshot
from support.base_ways import IN_SNAPSHOT, Copied, by_script
from support.postgres import Recording, on_tcp, running_server, server_versions
from support.publications import (
    CHOSEN,
    EVERYTHING,
    MADE,
    PUBLISHER,
    SUBSCRIBER,
    Published,
    published,
    set_up,
    subscribe,
    tables_of,
    wait_until_copied,
    wait_until_replayed,
    work,
    working,
)
from support.truth import Beyond, SourceTable, assert_tables_equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

_SCRIPT = "base.sh"


@dataclass(frozen=True)
class Recorded:
    """A publisher at rest, with all that it has sent, and what its subscriber has of it.

    Attributes:
        folder: the captures of each of `published`, in a folder of its own.
        seen: a snapshot from the middle of the work, which is still exported.
        copies: what base.sh has copied, or what it says why it failed, by the name of what is published.
        tables: the subscriber's, by the same.
    """

    folder: Path
    seen: Snapshot
    copies: Mapping[str, Copied | str]
    tables: Mapping[str, list[SourceTable]]

    def copied(self, one: Published, way: str, folder: Path) -> Copied:
        """Return what is to be loaded; what needs the snapshot alone is copied now."""
        if way != _SCRIPT:
            return IN_SNAPSHOT[way](self.seen, one, folder)
        found = self.copies[one.name]
        assert isinstance(found, Copied), found
        return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Recorded]]:
    """Return what was recorded of a version; the first test that asks for it has it made."""
    with ExitStack() as stack:
        yield cache(lambda version: _record(version, tmp_path_factory.mktemp(f"recorded{version}"), stack))


def _record(version: int, folder: Path, stack: ExitStack) -> Recorded:
    """Have tables of all kinds published, subscribed to, recorded and copied while they are changed."""
    sets = published(version)
    publisher = stack.enter_context(running_server(version, {**PUBLISHER, **on_tcp()}))
    publisher.execute("CREATE DATABASE shop")
    publisher.database = "shop"
    set_up(publisher, version)
    work(publisher, version, unsent=True)
    with running_server(version, SUBSCRIBER) as subscriber, ExitStack() as recording:
        recordings: dict[str, Recording] = {}
        for one in sets:
            (folder / one.name / "captures").mkdir(parents=True)
            growing, slot = folder / one.name / "growing", f"of_{one.name}"
            recordings[one.name] = recording.enter_context(
                publisher.recording(growing, publication=one.option, slot=slot, options=one.options)
            )
        with working(publisher, 1):
            for one in sets:
                subscribe(publisher, subscriber, one)
        _rotate(folder, recordings, "0.bin")
        seen = stack.enter_context(snapshot(publisher))
        copies: dict[str, Copied | str] = {}
        with working(publisher, 2):
            for one in sets:
                try:
                    copies[one.name] = by_script(publisher, one, f"base_{one.name}", folder / one.name)
                except AssertionError as error:
                    # The tests of what was to be copied fail, and no others.
                    copies[one.name] = str(error)
            for one in sets:
                wait_until_copied(subscriber, one)
        _rotate(folder, recordings, "1.bin")
        work(publisher, version + 1, unsent=True)
        wait_until_replayed(publisher, subscriber, sets)
        tables = {one.name: tables_of(subscriber, one) for one in sets}
    for one in sets:
        (folder / one.name / "growing").rename(folder / one.name / "captures" / "2.bin")
    return Recorded(folder, seen, copies, tables)


def _rotate(folder: Path, recordings: Mapping[str, Recording], name: str) -> None:
    for of, recording in recordings.items():
        recording.rotate(folder / of / "captures" / name)


_QUICK = ((18, CHOSEN, _SCRIPT),)

_FULL = ((18, MADE, "JDBC"), (18, EVERYTHING, _SCRIPT), (16, CHOSEN, "JDBC"))


def _cases() -> Iterator[Any]:
    """Yield a version, what is published, a way, and whether something is applied before the load."""
    for version in reversed(server_versions()):
        for one in published(version):
            for number, way in enumerate((_SCRIPT, *IN_SNAPSHOT)):
                if "dump" in way and one is not EVERYTHING:
                    continue  # pg_dump knows nothing of what is published
                case = (version, one, way)
                marks = [] if case in _QUICK else [pytest.mark.full if case in _FULL else pytest.mark.long]
                first = number % 2 == 1
                name = f"{version}-{one.name}-{way}-{'later' if first else 'first'}"
                yield pytest.param(version, one, way, first, marks=marks, id=name)


@pytest.mark.parametrize(("version", "one", "way", "applies_first"), list(_cases()))
def test_a_mirror_holds_what_the_subscriber_does(
    spark: SparkSession,
    recorded: Callable[[int], Recorded],
    version: int,
    one: Published,
    way: str,
    applies_first: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGUSER", "postgres")
    found = recorded(version)
    files = sorted((found.folder / one.name / "captures").iterdir())
    captures, target = tmp_path / "captures", tmp_path / "mirror"
    captures.mkdir()
    if applies_first:
        (captures / "0.bin").hardlink_to(files.pop(0))
        walreplay.apply(spark, captures=captures, target=target)
    copied = found.copied(one, way, tmp_path)
    copied.load(spark, target=target, captures=captures, replace=applies_first)
    for file in files:
        (captures / file.name).hardlink_to(file)
    report = walreplay.apply(spark, captures=captures, target=target)
    assert_tables_equal(spark, target, found.tables[one.name], Beyond(loaded=copied.row_lsn))
    missing = {table.name: (table.without_base, table.deletes_without_row) for table in report.tables}
    assert set(missing.values()) == {(0, 0)}, missing
