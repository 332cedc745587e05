"""Base loads of a source at work that are killed at random, before and after captures are applied, end as it is.

``WALREPLAY_LOADS=n`` tries so many, and not 200; ``WALREPLAY_SEED=n`` the one of that seed alone.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import walreplay
from support.base_copies import Snapshot, snapshot
from support.base_ways import IN_SNAPSHOT, Copied, by_script
from support.history_model import as_of_lsn
from support.killed_run import run_until_killed
from support.postgres import Server, on_tcp, running_server, server_versions
from support.publications import PUBLISHER, Published, copied_rows, sent_tables
from support.readers import collect, read
from support.scenarios import Slot
from support.small_mirror import forget
from support.stopped_run import StoppedError
from support.truth import arrow_table, mirror_tables, row_difference, row_images, rows_of_csv
from walreplay.errors import WalReplayError
from walreplay.lsn import parse_lsn
from walreplay.session import steps

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from support.truth import SourceTable

pytestmark = [pytest.mark.live, pytest.mark.long]

_SEEDS: Final = (
    [int(os.environ["WALREPLAY_SEED"])]
    if "WALREPLAY_SEED" in os.environ
    else range(int(os.environ.get("WALREPLAY_LOADS") or 200))
)

_SETUP: Final = (
    "CREATE SCHEMA _s",
    "CREATE TABLE _s.keyed (secret text, id int PRIMARY KEY, kind text, note text)",
    'CREATE TABLE _s.".bag" (n int, note text)',
    'ALTER TABLE _s.".bag" REPLICA IDENTITY FULL',
    "CREATE TABLE _s.full (id int PRIMARY KEY, kind text, d date)",
    "ALTER TABLE _s.full REPLICA IDENTITY FULL",
    "CREATE TABLE _s.root (id int PRIMARY KEY, note text) PARTITION BY HASH (id)",
    "CREATE TABLE _s.part0 PARTITION OF _s.root FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
    "CREATE TABLE _s.part1 PARTITION OF _s.root FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
)

_WHOLE: Final = Published("whole", ("whole",), ("CREATE PUBLICATION whole FOR ALL TABLES",), {})
_PUBLISHED: Final = (
    _WHOLE,
    Published(
        "schema",
        ("a_schema",),
        ("CREATE PUBLICATION a_schema FOR TABLES IN SCHEMA _s WITH (publish_via_partition_root = true)",),
        {"proto_version": "2", "streaming": "on"},
    ),
    Published(
        "chosen",
        ("one", "other"),
        (
            "CREATE PUBLICATION one FOR TABLE _s.keyed (id, note) WHERE (id % 3 <> 0), _s.full WHERE (kind = 'a')",
            "CREATE PUBLICATION other FOR TABLE _s.full WHERE (id > 20), _s.root (id) WHERE (id < 30)"
            " WITH (publish_via_partition_root = true)",
        ),
        {"proto_version": "4", "streaming": "parallel"},
    ),
)


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    """Run a server of each version that publishes with filters."""
    with ExitStack() as stack:
        yield [stack.enter_context(running_server(one, {**PUBLISHER, **on_tcp()})) for one in server_versions()]


Held = dict[str, tuple["SourceTable", "pa.Table"]]
"""What the published tables held at some moment."""


@dataclass
class Source:
    """A database of an example's own, with a slot whose changes are copied into files."""

    server: Server
    one: Published
    chance: random.Random
    slot: Slot

    def change(self) -> None:
        """Make some transactions."""
        run, chance = self.server.execute, self.chance
        for _ in range(chance.randrange(1, 8)):
            key, more, kind = chance.randrange(40), chance.randrange(40), chance.choice("ab")
            free = "(SELECT g FROM generate_series(0, 60) g WHERE NOT EXISTS (SELECT FROM {0} t WHERE t.id = g)"
            free += f" ORDER BY (g * 7 + {more}) % 61 LIMIT 1)"
            run(
                *chance.sample(
                    [
                        f"INSERT INTO _s.keyed VALUES ('s', {key}, '{kind}', 'n{more}') ON CONFLICT DO NOTHING",
                        f"UPDATE _s.keyed SET note = 'u{more}', secret = 't' WHERE id % 5 = {more % 5}",
                        f"UPDATE _s.keyed SET id = {free.format('_s.keyed')} WHERE id = {key}",
                        f"DELETE FROM _s.keyed WHERE id = {key}",
                        f"INSERT INTO _s.\".bag\" SELECT {key % 4}, '{kind}' FROM generate_series(0, {more % 3})",
                        f'DELETE FROM _s.".bag" WHERE ctid = (SELECT min(ctid) FROM _s.".bag" WHERE n = {key % 4})',
                        f"INSERT INTO _s.full VALUES ({key}, '{kind}', 'infinity') ON CONFLICT DO NOTHING",
                        f"UPDATE _s.full SET kind = '{kind}', d = '2024-02-29' WHERE id IN ({key}, {more})",
                        f"DELETE FROM _s.full WHERE id = {key}",
                        f"INSERT INTO _s.root VALUES ({key}, '{kind}'), ({key + 100}, 'x') ON CONFLICT DO NOTHING",
                        f"UPDATE _s.root SET id = {free.format('_s.root')} WHERE id = {key}",
                        f"DELETE FROM _s.root WHERE id = {more}",
                    ],
                    chance.randrange(1, 6),
                )
            )

    def held(self, seen: Snapshot) -> Held:
        """Read what the published tables hold in a snapshot."""
        found: Held = {}
        for table in sent_tables(self.server, self.one):
            text = copied_rows(self.server, seen.name, table, self.one)
            rows = rows_of_csv(text, [column.name for column in table.columns])
            found[table.qualified_name] = (table, arrow_table(table, rows))
        return found


class Mirror:
    """The target of an example.

    Attributes:
        is_loading: a load was stopped when the ledger knew of it, so that nothing but a load may go on.
        has_tables: there are some, so that a load has to be told to replace them.
    """

    def __init__(self, spark: SparkSession, folder: Path, *, history: bool) -> None:
        self.spark = spark
        self.captures, self.target, self._folder = folder / "captures", folder / "mirror", folder
        self.captures.mkdir()
        self.config = folder / "config.yaml"
        self.config.write_text(json.dumps({"outputs": ["mirror", *(["history"] if history else [])]}))
        self.is_loading = self.has_tables = False
        self._to: dict[str, Any] = {"captures": self.captures, "target": self.target, "config": self.config}
        self._loaded = self._before = 0

    def apply(self) -> None:
        """Apply, which may refuse while a load is unfinished, and has to once the ledger knows of it."""
        if self.is_loading:
            with pytest.raises(WalReplayError, match="load"):
                walreplay.apply(self.spark, **self._to)
        elif any(self.captures.iterdir()):
            walreplay.apply(self.spark, **self._to)
            self.has_tables = True

    def load(self, copied: Copied, *, anew: bool = False, stop_at: int = 0) -> bool:
        """Load what is not loaded yet, or be stopped at a step; return whether all is loaded.

        Args:
            anew: in place of a load that was stopped.
        """
        seen: list[str] = []

        def on_step(step: str) -> None:
            seen.append(step)
            if len(seen) == stop_at:
                steps.on_step = None
                raise StoppedError

        self._loaded = 0 if anew else self._loaded
        steps.on_step = on_step
        try:
            for rows, said in copied.loads[self._loaded :]:
                seen.clear()
                self._before = self._recorded()
                replace, point = anew or self.has_tables, copied.lsn
                walreplay.load(
                    self.spark, rows(self.spark), consistent_point=point, replace=replace, **said, **self._to
                )
                self._loaded += 1
        except StoppedError:
            return self._killed(copied)
        finally:
            steps.on_step = None
        self.is_loading, self.has_tables = False, True
        return True

    def kill(self, copied: Copied, step: str, later: float, *, anew: bool) -> bool:
        """Load by a program that kills itself, or is too fast for that; return whether all is loaded."""
        self._before = self._recorded()
        ((rows, said),) = copied.loads
        command = ["load", "--from", str(rows(self.spark)), "--consistent-point", copied.lsn]
        command += [part for name, value in said.items() for part in (f"--{name}", str(value))]
        command += ["--replace"] if anew or self.has_tables else []
        told: dict[str, Any] = {"scratch": self._folder, "later": later, "config": self.config, "command": command}
        try:
            run_until_killed(self.captures, self.target, step, 1, **told)
        except AssertionError as error:
            if "ended by itself with 0" not in str(error):
                raise
        forget(self.spark)
        return self._killed(copied)

    def _killed(self, copied: Copied) -> bool:
        """Note what the ledger knows of a load that was stopped: it has it all, it waits for it, or nothing."""
        self.is_loading = self._waits_for() is not None
        # One that was recorded, and not ended, may have its record still where another has taken its place.
        is_done = not self.is_loading and self._recorded() > self._before
        self._loaded += is_done
        self.has_tables |= is_done
        return self._loaded == len(copied.loads)

    def _recorded(self) -> int:
        """Return how many loads the ledger takes for ended."""
        runs = Path(self.target, "_walreplay", "runs")
        if not runs.exists():
            return 0
        forget(self.spark)
        ended = self.spark.read.format("delta").load(str(runs)).where("load IS NOT NULL")
        # What was stopped behind its last record but one is not at its end.
        return ended.where(f"run <> {self._waits_for() or -1}").count()

    def _waits_for(self) -> int | None:
        """Return the number of the load that the ledger waits for; None if it waits for none."""
        ledger = Path(self.target, "_walreplay", "state")
        if not ledger.exists():
            return None
        forget(self.spark)
        (state,) = collect(ledger, "phase", "run")
        return state.run if state.phase == "loading" else None

    def assert_holds(self, held: Held) -> None:
        """Assert that the mirrors, and the histories' open versions, are what the source holds."""
        places = mirror_tables(self.target)
        assert {name for name in places if not name.endswith("__history")} == held.keys()
        for name, place in places.items():
            found = read(place)
            if name.endswith("__history"):
                found = found.filter(found.column("__end_lsn").is_null())
            _assert_equal(found, held[name.removesuffix("__history")], name)

    def assert_held(self, held: Held, lsn: int) -> None:
        """Assert what the histories have as of an LSN."""
        for name, place in mirror_tables(self.target).items():
            if name.endswith("__history"):
                _assert_equal(as_of_lsn(read(place), lsn), held[name.removesuffix("__history")], f"{name} then")


def _assert_equal(found: pa.Table, expected: tuple[SourceTable, pa.Table], name: str) -> None:
    table, rows = expected
    difference = row_difference(table, row_images(table, found), row_images(table, rows))
    assert difference is None, f"{name}: {difference}"


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_load_that_is_killed_at_random_ends_as_its_source_is(
    spark: SparkSession, servers: list[Server], seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGUSER", "postgres")
    chance, server = random.Random(seed), servers[seed % len(servers)]
    one = chance.choice(_PUBLISHED)
    # pg_dump knows no publications.
    ways = ["base.sh", *(way for way in IN_SNAPSHOT if "dump" not in way or one is _WHOLE)]
    way = chance.choice(ways)
    server.database = "postgres"
    server.execute("DROP DATABASE IF EXISTS example WITH (FORCE)", "CREATE DATABASE example")
    server.database = "example"
    server.execute(*_SETUP, *one.made_by)
    try:
        slot = Slot(server, tmp_path / "sent", one.option, options=one.options)
        _run(spark, Source(server, one, chance, slot), way, tmp_path)
    finally:
        server.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
        forget(spark)


def _run(spark: SparkSession, source: Source, way: str, folder: Path) -> None:
    server, chance = source.server, source.chance
    mirror = Mirror(spark, folder, history=chance.random() < 0.6)
    with ExitStack() as snapshots:

        def copied(number: int) -> Copied:
            place = folder / f"copied{number}"
            place.mkdir()
            if way == "base.sh":
                return by_script(server, source.one, f"base{number}", place)
            return IN_SNAPSHOT[way](snapshots.enter_context(snapshot(server, f"seen{number}")), source.one, place)

        for _ in range(2):
            source.change()
            source.slot.take()
        base = copied(0)
        source.change()
        source.slot.take()
        with snapshot(server, "middle") as middle:
            at_middle = source.held(middle)
        source.change()
        source.slot.take()

        # The load comes before the first apply, or later, also behind its LSN.
        shown = iter(source.slot.files)
        for _ in range(chance.randrange(len(source.slot.files) + 1)):
            file = next(shown)
            (mirror.captures / file.name).hardlink_to(file)
        if chance.random() < 0.7:
            mirror.apply()
        is_loaded, anew = False, False
        for number in range(1, chance.randrange(1, 5)):
            if len(base.loads) == 1 and chance.random() < 0.1:
                step = chance.choice(("decoded", "plan written", "table applied"))
                is_loaded = mirror.kill(base, step, chance.choice((0.0, chance.random())), anew=anew)
            else:
                is_loaded = mirror.load(base, anew=anew, stop_at=chance.randrange(1, 12))
            if is_loaded:
                break
            if chance.random() < 0.5:
                mirror.apply()
            if anew := way == "JDBC" and chance.random() < 0.5:
                # Its snapshot is gone: another one, which takes the load's place.
                snapshots.close()
                base = copied(number)
        assert is_loaded or mirror.load(base, anew=anew)
        source.change()
        source.slot.take()
        for file in (*shown, source.slot.files[-1]):
            if not (mirror.captures / file.name).exists():
                (mirror.captures / file.name).hardlink_to(file)
        mirror.apply()
        with snapshot(server, "end") as end:
            mirror.assert_holds(source.held(end))
        if base.row_lsn < parse_lsn(middle.lsn):
            mirror.assert_held(at_middle, parse_lsn(middle.lsn) - 1)
