"""What a server writes under any settings is decoded as what it writes under the settings of docs/capturing.md."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import walreplay
from support.binary_cells import convert
from support.postgres import TEXT_SETTINGS, Server, chosen_versions, running_server
from walreplay.types import ColumnType, resolve
from walreplay.types.canonical import canonical_text

pytestmark = pytest.mark.live

_STYLES = ("postgres", "postgres_verbose", "sql_standard", "iso_8601")
_ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia")
_BYTEA = ("hex", "escape")
_VALUES = 150


@pytest.fixture(scope="module", params=chosen_versions())
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running_server(request.param) as running:
        yield running


def _interval(dice: random.Random) -> str:
    def sized() -> int:
        return dice.choice([0, 0, 1, -1, dice.randint(-40, 40), dice.randint(-100_000, 100_000)])

    micros = dice.choice([0, 0, sized(), 3_600_000_000 * sized(), dice.randint(-(10**12), 10**12)])
    return f"make_interval(months => {sized()}, days => {sized()}) + interval '1 microsecond' * {micros}"


def _moment(dice: random.Random) -> str:
    micros = dice.choice([0, dice.randint(-(10**16), 10**16), 86_400_000_000 * dice.randint(-700_000, 700_000)])
    return f"(timestamptz '2000-01-01 00:00:00+00' + interval '1 microsecond' * {micros})"


def _number(dice: random.Random) -> str:
    return repr(dice.choice([0.1, 1e300, 5e-324, 1 / 3, 1e15, -0.0, dice.uniform(-1, 1), dice.uniform(-1e6, 1e6)]))


def _bytea(dice: random.Random) -> str:
    return f"'\\x{dice.randbytes(dice.randrange(4)).hex()}'::bytea"


def _range(dice: random.Random, kind: str, bounds: tuple[str, str]) -> str:
    one, other = bounds
    return dice.choice([f"{kind}(least({one}, {other}), greatest({one}, {other}), '[]')", f"{kind}(NULL, {one})"])


def _expression(dice: random.Random, kind: str) -> str:
    if kind.endswith("[]"):
        elements = [_expression(dice, kind.removesuffix("[]")) for _ in range(dice.randrange(4))]
        listed = f"ARRAY[{', '.join([*elements, 'NULL'])}]::{kind}"
        return dice.choice(
            [listed, listed, f"ARRAY[{listed}, {listed}]", f"('[3:{3 + len(elements)}]=' || {listed}::text)::{kind}"]
        )
    if kind == "interval":
        return _interval(dice)
    if kind == "timestamptz":
        return _moment(dice)
    if kind == "tstzrange":
        return _range(dice, "tstzrange", (_moment(dice), _moment(dice)))
    if kind == "tstzmultirange":
        return f"tstzmultirange({_expression(dice, 'tstzrange')}, {_expression(dice, 'tstzrange')})"
    if kind == "bytea":
        return _bytea(dice)
    if kind == "double precision":
        return f"({_number(dice)})::float8"
    if kind == "real":
        return f"({dice.choice(['0.1', '1e-5', '16777216', repr(dice.uniform(-9, 9))])})::real"
    if kind == "circle":
        return f"circle({_expression(dice, 'point')}, abs({_number(dice)}))"
    if kind == "box":
        return f"box({_expression(dice, 'point')}, {_expression(dice, 'point')})"
    if kind == "path":
        return f"'[{','.join(f'({_number(dice)},{_number(dice)})' for _ in range(dice.randint(1, 4)))}]'::path"
    return f"point({_number(dice)}, {_number(dice)})"


_KINDS = ("interval", "timestamptz", "tstzrange", "tstzmultirange", "bytea", "double precision", "real", "point", "box")
_ARRAYS = tuple(f"{kind}[]" for kind in _KINDS)


def _decoded(column_type: ColumnType, texts: list[str]) -> tuple[str, dict[int, str]]:
    """Return a column's values, and its rescued texts by row."""
    array, rescued = convert(column_type, texts)
    return repr(array.to_pylist()), {one.row: canonical_text(one.text, column_type.oid) for one in rescued}


@pytest.mark.parametrize("kind", [*_KINDS, "circle", "path", *_ARRAYS])
def test_a_value_is_decoded_alike_under_all_settings(server: Server, kind: str) -> None:
    dice = random.Random(kind)
    expressions = [_expression(dice, kind) for _ in range(_VALUES)]
    query = " UNION ALL ".join(f"SELECT {number}, ({text})::text" for number, text in enumerate(expressions))
    with server.connect() as connection:

        def written(*settings: str) -> list[str]:
            for setting in settings:
                connection.execute(setting.encode())
            return [text for _, text in sorted(connection.execute(query.encode()).fetchall())]

        oid = connection.execute(f"SELECT '{kind}'::regtype::oid".encode()).fetchone()[0]
        wanted = written(*TEXT_SETTINGS)
        columns = [resolve(oid, -1, {}), resolve(oid, -1, {}, override="text")]
        decoded = [_decoded(column, wanted) for column in columns]
        # Overridden to text, the column has the very text of the server.
        assert decoded[1] == (repr(wanted), {})
        for _ in range(5):
            sent = written(
                f"SET IntervalStyle = {dice.choice(_STYLES)}",
                f"SET TimeZone = '{dice.choice(_ZONES)}'",
                f"SET bytea_output = {dice.choice(_BYTEA)}",
                f"SET extra_float_digits = {dice.randint(1, 3)}",
            )
            assert [_decoded(column, sent) for column in columns] == decoded


def test_a_slot_goes_on_in_text_where_the_server_has_no_binary_form(server: Server, tmp_path: Path) -> None:
    """What docs/capturing.md says of ``binary``."""
    server.execute(
        "CREATE TABLE grants (id integer PRIMARY KEY, acl aclitem[])", "CREATE PUBLICATION grants FOR TABLE grants"
    )
    server.make_slot("grants", {})
    server.execute("INSERT INTO grants VALUES (1, ARRAY[makeaclitem(10, 10, 'SELECT', false)])")
    options = {"proto_version": "1", "publication_names": "grants"}
    file = tmp_path / "0001.bin"
    with pytest.raises(psycopg.Error, match="no binary output function"):
        server.copy_changes(file, "grants", {**options, "binary": "true"})
    server.copy_changes(file, "grants", options)
    (batch,) = walreplay.read_changes([file])
    assert batch.columns[0].to_pylist() == [1]
    server.drop_slots("grants")
