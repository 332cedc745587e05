"""Of targets that random work has made, each fault that somebody plants is told, and nothing else is.

Each call of verify has faults in some of its tables, one each, and none in the others; both the archive and the source
are held against them.  ``WALREPLAY_LONG`` sets the number of workloads, ``WALREPLAY_SEED`` that of the only one; it
has to be set for a target in an object store, which Spark has no JARs for else.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import pytest

import walreplay
from support import streamed_workload, typed_source
from support.base_copies import copied_by_script
from support.object_store import ObjectStore, object_store
from support.planted_faults import FAULTS, PlantedTable
from support.postgres import Server, on_tcp, running_server, server_versions
from support.streamed_workload import Mix, Workload, decide_all, hold
from support.workload import PUBLICATION, PUBLISH, SETUP, at_work, run_workload
from walreplay.names import Output, output_of
from walreplay.report import TableVerification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

_LONG: Final = int(os.environ.get("WALREPLAY_LONG", "0"))
SEEDS: Final = [int(os.environ["WALREPLAY_SEED"])] if "WALREPLAY_SEED" in os.environ else range(_LONG // 10_000 or 1)
TABLES, ROUNDS = (10, 3) if _LONG else (2, 1)

KEYED: Final = ("typed__full_rows", "live__full_with_key")
"""Tables of which one configuration names the key."""

SOFT: Final = ("typed__plain", "typed__collated", "big__load")
"""Tables in which one configuration keeps deleted rows."""


def _tables(**settings: Any) -> Any:
    """Return the configuration of tables, each by its name with ``__`` for the dot."""
    names = ((*name.split("__"), of) for name, of in settings.items())
    return [{"table": {"source_schema": schema, "source_table": table, **of}} for schema, table, of in names]


CONFIGS: Final[Sequence[Mapping[str, Any]]] = (
    {},
    {"objects": _tables(**{name: {"soft_deletes": True} for name in SOFT})},
    {"decimal_handling_mode": "string", "objects": _tables(**{name: {"keys": ["id"]} for name in KEYED})},
    {
        "column_mask_salt": "salt",
        "objects": _tables(
            typed__collated={"column_mask_hash": ["l"]},
            live__many_types={"column_mask_hash": ["c_varchar", "c_numeric"], "exclude_columns": ["c_json"]},
        ),
    },
)

_TWO: Final = ("eu", "us")
SETTINGS: Final[Sequence[tuple[str, Sequence[str], bool]]] = (
    ("folder", (), False),
    ("S3", (), False),
    ("catalog", (), False),
    ("folder", _TWO, False),
    ("folder", _TWO, True),
    ("S3", _TWO, True),
    ("catalog", _TWO, True),
)
"""By seed where the tables lie, of which sources, and whether these share them; with `CONFIGS` in all pairs."""

STREAMED: Final = {"proto_version": "4", "streaming": "parallel", "two_phase": "true"}
_OWN: Final = re.compile("__.*")


@contextmanager
def recorded(seed: int, folder: Path) -> Iterator[Server]:
    """Run a server that was at work, and is recorded; its transactions are streamed, and prepared."""
    settings = {"logical_decoding_work_mem": "64kB", "max_prepared_transactions": "20", "lock_timeout": "20s"}
    versions = server_versions()
    with running_server(versions[seed % len(versions) - 1], {**on_tcp(), **settings}) as server:
        by_root = "" if seed % 3 == 0 else " WITH (publish_via_partition_root)"
        server.execute(*SETUP, *streamed_workload.SETUP, *typed_source.SETUP, PUBLISH + by_root)
        (folder / "captures").mkdir(parents=True)
        options = {**STREAMED, "publication_names": PUBLICATION}
        server.make_slot("archive", options)
        with server.recording(folder / "captures" / "0.bin", slot="archive", options=options, make=False):
            yield server


@dataclass
class Rounds:
    """Verifications of one source's tables.

    Attributes:
        keys: of the source's tables.
        place: where they lie.
        called: what verify is called with.
        source: the source's name, of several.
        seen: how many of which kind there were.
    """

    spark: SparkSession
    chance: random.Random
    keys: Mapping[str, Sequence[str]]
    place: Place
    called: Mapping[str, Any]
    source: str
    seen: Counter[str]

    def verified(self, **more: Any) -> dict[str, TableVerification]:
        report = walreplay.verify(self.spark, self.place.target, **{**self.called, **more})
        self.seen.update(report.warnings)
        self.seen["calls"] += 1
        return {table.name: table for table in report.tables}

    def planted(self, table: TableVerification) -> PlantedTable:
        """Return where a table lies, and what of it is compared."""
        assert table.oid is not None
        output, by_source = output_of(table.oid), "source" in self.called
        key = list(self.keys[table.name.removesuffix(output.suffix).removeprefix(f"{self.source}_")])
        left_out: Callable[[str], bool] = ("__commit_lsn", "__commit_ts", *["__deleted"] * by_source).__contains__
        is_open = "__deleted" if by_source else None
        if output is Output.CHANGELOG:
            key, left_out = ["__commit_lsn", "__ordinal"], "__file".__eq__
        elif output is Output.HISTORY:
            key = [*key, "__start_lsn"] if key else []
            left_out = (lambda name: bool(_OWN.match(name))) if by_source else (lambda _: False)
            is_open = "__end_lsn" if by_source else None
        store = self.place.store and self.place.store.delta_options()
        return PlantedTable(self.spark, table.location, key, left_out, is_open, self.source, store)

    def run(self, rounds: int, others: Sequence[Rounds] = ()) -> None:
        """Have all tables equal first; then plant faults in some, not in others', see what is told, take them back."""
        against = "the source" if "source" in self.called else "the archive"
        tables = self.verified()
        for table in tables.values():
            assert table.result == "equal", table
            assert not table.reason or (table.rows == 0 and not table.location), table
        self.seen[f"untouched against {against}"] += len(tables)
        present = [name for name, table in tables.items() if table.location]
        for number in range(rounds if present else 0):
            share = self.chance.choice((0.0, 0.9, 0.9, 0.9, 0.9))
            chosen = [name for name in present if self.chance.random() < share] or [self.chance.choice(present)]
            expected, undone = {}, []
            for name in chosen:
                for fault in self.chance.sample(list(FAULTS), len(FAULTS)):
                    done = self.planted(tables[name]).plant(fault, self.chance)
                    if done is not None:
                        expected[name] = (fault, done[0])
                        undone.append(done[1])
                        break
            place = f"{self.place.folder}/{self.source} differences from {against}/{number}"
            found = self.verified(differences=place)
            assert found.keys() == tables.keys()
            rows = self.spark.read.format("delta").load(place).collect()
            for name, table in found.items():
                if name not in expected:
                    assert table.result == "equal", table
                    self.seen[f"beside faults against {against}"] += 1
                    continue
                fault, (missing, extra, changed, columns) = expected[name]
                self.seen[f"{fault} in {output_of(table.oid or 0).label} against {against}"] += 1
                assert (table.missing, table.extra, table.changed) == (missing, extra, changed), (fault, table, rows)
                assert table.result == ("different" if missing or extra or changed else "equal"), (fault, table)
                assert columns in (None, table.columns), (fault, table, columns)
                kinds = Counter(row.kind for row in rows if row.table == name)
                assert kinds == +Counter(missing=missing, extra=extra, changed=changed), (fault, table, kinds)
                key = self.planted(table).key
                for row in rows:
                    if row.table == name and key:
                        assert set(json.loads(row.key)) <= set(key), (fault, row)
            for other in others:
                assert {table.result for table in other.verified().values()} == {"equal"}
            for undo in undone:
                undo()


def _chosen(chance: random.Random, names: Sequence[str], config: Mapping[str, Any]) -> list[str]:
    """Choose tables, those that have settings of their own among them."""
    named = [
        ".".join(item["table"][f"source_{part}"] for part in ("schema", "table")) for item in config.get("objects", ())
    ]
    return [*named, *chance.sample([name for name in names if name not in named], max(TABLES - len(named), 1))]


class Place(NamedTuple):
    """Where a target lies, and in which folder all else; and in which store."""

    folder: str
    target: str
    store: ObjectStore | None = None

    def brought(self, folder: Path, name: str) -> str:
        """Return where a folder is, once it and what lies beside it are where the target is."""
        if self.store is None:
            return str(folder)
        for path in filter(Path.is_file, folder.parent.rglob("*")):
            key = quote(f"{name}/{path.relative_to(folder.parent)}")
            self.store.put(self.folder.removeprefix("s3a://"), key, path.read_bytes())
        return f"{self.folder}/{name}/{folder.name}"


@pytest.fixture(scope="module")
def store(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as store:
        for name, value in store.settings().items():
            spark._jsc.hadoopConfiguration().set(name.removeprefix("spark.hadoop."), value)
        yield store


@pytest.fixture
def place(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, seed: int) -> Iterator[Place]:
    schemas = {schema.namespace for schema in spark.sql("SHOW SCHEMAS").collect()}
    kind = SETTINGS[seed % len(SETTINGS)][0]
    if kind == "S3":
        request.getfixturevalue("store").make_bucket(f"seed-{seed}")
        yield Place(f"s3a://seed-{seed}", f"s3a://seed-{seed}/mirror", request.getfixturevalue("store"))
    else:
        yield Place(str(tmp_path), "spark_catalog" if kind == "catalog" else str(tmp_path / "mirror"))
    for schema in {schema.namespace for schema in spark.sql("SHOW SCHEMAS").collect()} - schemas:
        spark.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS)
def test_each_fault_is_told_and_nothing_else(
    spark: SparkSession, tmp_path: Path, seed: int, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGUSER", "postgres")
    chance, seen, (_, sources, is_shared) = random.Random(seed), Counter[str](), SETTINGS[seed % len(SETTINGS)]
    config: dict[str, Any] = {"outputs": [output.value for output in Output], **CONFIGS[seed % len(CONFIGS)]}
    folders = {name: tmp_path / name / "captures" for name in sources or [""]}
    own = {name: {"captures": str(folder), "source": str(folder)} for name, folder in folders.items()}
    if is_shared:
        config |= {"sources": own, "shared_tables": [".*"]}
    elif sources:
        config["sources"] = {name: {**of, "destination_schema": f"{name}_{{schema}}"} for name, of in own.items()}
    else:
        config["source"] = own[""]["source"]
    rounds: list[Rounds] = []
    for number, (name, folder) in enumerate(folders.items()):
        with recorded(seed + number, folder.parent) as server:
            keys = typed_source.identities(server)
            if seed % len(CONFIGS) == 2:
                keys |= {name.replace("__", "."): ["id"] for name in KEYED}
            config.setdefault("table_include_list", [*map(re.escape, _chosen(chance, sorted(keys), config))])
            settings = walreplay.source_settings(config, name) if name else config
            rounds.append(Rounds(spark, chance, keys, place, {"captures": folder, "config": settings}, name, seen))
            base = place.brought(_worked(server, seed + number, rounds[-1]), name or "one")
        replace(rounds[-1], called={**rounds[-1].called, "source": base}).run(ROUNDS)
        walreplay.apply(spark, folder, place.target, settings)
    for one in rounds:
        captures = place.brought(one.called["captures"], one.source or "one")
        others = [other for other in rounds if other.source != one.source]
        replace(one, called={**one.called, "captures": captures}).run(ROUNDS, others)
    print(f"seed {seed}", *(f"{count:6} {what}" for what, count in seen.most_common()), sep="\n")


def _worked(server: Server, seed: int, rounds: Rounds) -> Path:
    """Have a server work, with verifications in between, and return where its tables were copied."""
    spark, chance, target, (captures, config) = rounds.spark, rounds.chance, rounds.place.target, rounds.called.values()
    typed_source.change(server, chance, 6)
    with Workload(server, Mix(seed, prepares=True, transactions=2, rows=60)) as work:
        with work.stopped(lambda: walreplay.apply(spark, captures, target, config)):
            typed_source.change(server, chance, 3)
        if _LONG:
            rounds.run(0)
    decide_all(server, chance)
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/{server.database}"
    with at_work(server, seed):
        base = copied_by_script(server, captures.parent / "copies", PUBLICATION)
        if _LONG:
            live = {"source": url, "publication": PUBLICATION, "wait": 60.0}
            replace(rounds, called={**rounds.called, **live}).run(0)
    hold(server)
    run_workload(server, transactions=20, seed=seed, pause=lambda: None)
    typed_source.change(server, chance, 2)
    return base
