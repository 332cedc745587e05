"""Commands that are killed at random, one upon the other, lose nothing and do nothing twice.

Between them the archive is audited, and by and by all is finished: then the tables hold what their source does.

``WALREPLAY_LONG=100`` kills so many in a course, and not 2; ``WALREPLAY_SEED=n`` is another course.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from support.killed_run import run_until_killed
from support.random_source import Source
from support.readers import collect
from support.small_mirror import SmallMirror, forget
from walreplay import cli
from walreplay.loading.description import Description, write_description
from walreplay.lsn import format_lsn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.full]

_KILLS: Final = int(os.environ.get("WALREPLAY_LONG") or 2)
_SEED: Final = int(os.environ.get("WALREPLAY_SEED") or 0)
_OUTPUTS: Final = ["mirror", "history", "changelog"]


class _Course:
    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.folder, self.mirror = folder, SmallMirror(spark, folder)
        self.source = Source(self.chance, self.mirror)
        self.config = folder / "walreplay.yaml"
        self.config.write_text(yaml.safe_dump({"outputs": _OUTPUTS}))
        self.seen: Counter[str] = Counter()
        self.loads: list[list[str]] = []

    def begin(self) -> None:
        for name in "ab":
            self.source.commit(self.source.created(name))
        self.finish(["apply"])

    def command(self) -> tuple[list[str], Path]:
        """Return a command with its own options, and its target."""
        target = Path(self.mirror.target)
        name = self.chance.choice(list(self.source.tables.values())).relation.name
        match self.chance.choice(["apply", "apply", "rebuild", "maintain", "backfill", "load"]):
            case "rebuild":
                return ["rebuild", "--table", rf"s\.{name}"], target
            case "maintain":
                return ["maintain"], target
            case "backfill":
                lsn = self.chance.choice(sorted(self.source.held)[1:])
                return ["backfill", "--until-lsn", format_lsn(lsn)], self.folder / f"then{lsn}"
            case "load":
                self.loads.append(self._load())
                return self.loads[-1], target
        return ["apply"], target

    def _load(self) -> list[str]:
        name, held = self.chance.choice(list(self.source.now().items()))
        named = held.columns
        kinds = ", ".join(f"{column} {'int' if column == 'id' else 'string'}" for column in named)
        rows = ", ".join(str(values).replace("None", "NULL") for values in held.rows)
        query = f"SELECT * FROM VALUES {rows} AS t({', '.join(named)})" if rows else f"SELECT {kinds} WHERE false"
        described = self.folder / f"tables{self.mirror.files}.jsonl"
        known = [one.relation for one in self.source.tables.values()]
        described.write_text(write_description(known, Description.of(known, ())))
        where = ["--table", name, "--at-lsn", format_lsn(self.source.lsn)]
        return ["load", "--from-query", query, *where, "--replace", "--describe", str(described)]

    def kill(self, command: list[str], target: Path) -> None:
        """Have it kill itself at a step, or a little later; it may also end before."""
        later = self.chance.choice((0.0, self.chance.random()))
        captures = None if command[0] == "maintain" else self.mirror.captures
        told: dict[str, Any] = {"scratch": self.folder, "later": later, "config": self.config, "command": command}
        try:
            steps = run_until_killed(captures, target, "", self.chance.randrange(1, 12), **told)
            self.seen[f"{command[0]} killed"] += 1
            self.seen[f"  at {steps[-1].partition(':')[0]}"] += 1
        except AssertionError as error:
            if "ended by itself with" not in str(error):
                raise
            self.seen[f"{command[0]} ended"] += 1
        forget(self.mirror.spark)

    def finish(self, command: list[str], target: Path | None = None) -> bool:
        """Run it to its end; return whether that was right."""
        given = [] if command[0] == "maintain" else ["--captures", str(self.mirror.captures)]
        where = ["--target", str(target or self.mirror.target), "--config", str(self.config), "--quiet"]
        ended = cli.main([*command, *given, *where]) == 0
        forget(self.mirror.spark)
        return ended

    def audit(self) -> None:
        assert cli.main(["audit", "--captures", str(self.mirror.captures), "--quiet"]) == 0

    def check(self, target: Path, lsn: int) -> None:
        """Compare mirrors and histories with what the source held."""
        for name, table in self.source.held[lsn].items():
            columns, rows = table.columns, table.rows
            place = target / "s" / name.partition(".")[2]
            if not rows and not place.exists():
                continue
            held = collect(place, *columns)
            assert sorted(map(tuple, held), key=repr) == rows, (name, lsn)
            versions = collect(place.with_name(f"{place.name}__history"), *columns, "__start_lsn", "__end_lsn")
            opened = [tuple(values) for *values, _, end in versions if end is None]
            assert sorted(opened, key=repr) == rows, (name, lsn)
            assert all(end is None or begin <= end for *_, begin, end in versions), (name, lsn)


def test_what_is_killed_at_random_is_finished_once(spark: SparkSession, tmp_path: Path) -> None:
    course = _Course(spark, tmp_path, _SEED)
    course.begin()
    for _ in range(_KILLS):
        for _ in range(course.chance.randrange(1, 3)):
            course.source.work()
        command, target = course.command()
        course.kill(command, target)
        course.audit()
        if course.chance.random() < 0.4:
            # The next one comes upon what was left of it.
            continue
        _finish(course, command, target)
    _finish(course, ["apply"], Path(course.mirror.target))
    print(*(f"{count:5} {what}" for what, count in sorted(course.seen.items())), sep="\n")


def _finish(course: _Course, command: list[str], target: Path) -> None:
    own = Path(course.mirror.target)
    if target != own:
        assert course.finish(command, target), command
        course.check(target, int(command[-1].partition("/")[2], 16))
    # What a load has begun, it ends by the same call, or gives up; others may have been refused since.
    unfinished = list(course.loads)
    while not course.finish(["apply"]):
        course.finish(unfinished.pop())
    course.check(own, course.source.lsn)
