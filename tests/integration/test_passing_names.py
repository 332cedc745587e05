"""Names that pass from table to table on a real server, inside transactions and across them, with truncates."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from support.fault_cases import assert_fault_mended, fault_case
from support.postgres import Server, chosen_versions, running_server
from support.scenarios import Slot, apply_file_by_file, apply_in_one_run
from support.truth import LEDGER, SourceTable, assert_tables_equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.full]

_NAMES: Final = ("red", "green", "blue", "grey")
_SHAPES: Final = {
    "red": "(id int PRIMARY KEY, v text)",
    "green": "(id int PRIMARY KEY, amount numeric(9,2), v text)",
    "blue": "(id int, v text)",
    "grey": "(v text, id int PRIMARY KEY)",
}
_FILES: Final = 4


def test_names_that_rotate_and_a_truncate_behind_them(spark: SparkSession, tmp_path: Path) -> None:
    case = fault_case("names_rotate")
    target, _ = apply_in_one_run(spark, case.files, tmp_path)
    assert_fault_mended(spark, target, case.name)
    assert not list((target / LEDGER).glob("set_aside_*"))


def _renamed(pairs: dict[str, str]) -> Iterator[str]:
    for name in pairs:
        yield f"ALTER TABLE n.{name} RENAME TO passing_{name}"
    for name, to in pairs.items():
        yield f"ALTER TABLE n.passing_{name} RENAME TO {to}"


class _History:
    """Transactions, by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._row = 0

    def transaction(self) -> Iterator[str]:
        for _ in range(self._random.randint(1, 4)):
            yield from self._step()

    def touched(self) -> Iterator[str]:
        """Use every table once more, so that its name is heard of."""
        for name in _NAMES:
            yield self._insert(name)

    def _step(self) -> Iterator[str]:
        what, (name, other) = self._random.random(), self._random.sample(_NAMES, 2)
        if what < 0.2:
            yield from _renamed({name: other, other: name})
        elif what < 0.35:
            yield from _renamed({name: _NAMES[number - 1] for number, name in enumerate(_NAMES)})
        elif what < 0.5:
            yield f"TRUNCATE n.{name}" + self._random.choice(["", f", n.{other}"])
        elif what < 0.6:
            yield "SAVEPOINT a"
            yield from _renamed({name: other, other: name})
            yield self._insert(name)
            yield "ROLLBACK TO a"
        else:
            yield self._insert(name)
            yield self._insert(other)
            yield f"UPDATE n.{name} SET v = v || '.' WHERE id % 2 = 0"
            yield f"DELETE FROM n.{other} WHERE id % 5 = 0"

    def _insert(self, name: str) -> str:
        self._row += 1
        return f"INSERT INTO n.{name} (id, v) VALUES ({self._row}, '{name}{self._row}')"


@pytest.fixture(scope="module", params=chosen_versions())
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server for all histories."""
    with running_server(request.param) as running:
        yield running


def _recorded(server: Server, seed: int, folder: Path) -> tuple[list[Path], list[SourceTable]]:
    history = _History(seed)
    server.execute("DROP SCHEMA IF EXISTS n CASCADE", "CREATE SCHEMA n")
    server.execute(*(f"CREATE TABLE n.{name} {shape}" for name, shape in _SHAPES.items()))
    server.execute("ALTER TABLE n.blue REPLICA IDENTITY FULL", "DROP PUBLICATION IF EXISTS names")
    server.execute("CREATE PUBLICATION names FOR ALL TABLES")
    slot = Slot(server, folder, "names", name=f"names_{seed}")
    for number in range(_FILES):
        with server.connect() as connection:
            for _ in range(3):
                with connection.transaction():
                    for statement in history.transaction():
                        connection.execute(statement.encode())
            if number == _FILES - 1:
                for statement in history.touched():
                    connection.execute(statement.encode())
        slot.take()
    return slot.files, server.source_tables("n")


@pytest.mark.live
@pytest.mark.parametrize("seed", range(3))
def test_every_table_ends_under_its_name_with_its_rows(
    spark: SparkSession, tmp_path: Path, server: Server, seed: int
) -> None:
    files, sources = _recorded(server, seed, tmp_path / "recorded")
    apply = apply_file_by_file if seed % 2 else apply_in_one_run
    target, _ = apply(spark, files, tmp_path)
    assert_tables_equal(spark, target, sources)
    assert not list((target / LEDGER).glob("set_aside_*"))
