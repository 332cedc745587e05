"""Texts that a server writes of one value under any settings have one form, and those of two values have two."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from support.postgres import Server, chosen_versions, running_server
from walreplay.types.by_value import Form, one_form

pytestmark = [pytest.mark.integration, pytest.mark.full]

_STYLES = ("postgres", "postgres_verbose", "sql_standard", "iso_8601")
_ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia")
_BYTEA = ("hex", "escape")
_VALUES = 150


@pytest.fixture(scope="module", params=chosen_versions())
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with running_server(request.param) as running:
        running.execute(
            "CREATE TYPE part AS (at timestamptz, lasts interval, data bytea, n int, note text)",
            "CREATE TYPE whole AS (inner_part part, parts part[], spans tstzrange)",
            "CREATE TYPE lengths AS RANGE (subtype = interval)",
        )
        yield running


def _interval(dice: random.Random) -> str:
    def sized() -> int:
        return dice.choice([0, 0, 1, -1, dice.randint(-40, 40), dice.randint(-100_000, 100_000)])

    micros = dice.choice([0, 0, sized(), 3_600_000_000 * sized(), dice.randint(-(10**12), 10**12)])
    return f"make_interval(months => {sized()}, days => {sized()}) + interval '1 microsecond' * {micros}"


def _moment(dice: random.Random) -> str:
    micros = dice.choice([0, dice.randint(-(10**16), 10**16), 86_400_000_000 * dice.randint(-700_000, 700_000)])
    return f"(timestamptz '2000-01-01 00:00:00+00' + interval '1 microsecond' * {micros})"


def _part(dice: random.Random) -> str:
    data = bytes(dice.randrange(256) for _ in range(dice.randrange(4))).hex()
    note = dice.choice(["'plain'", "'with \"quotes\" and, commas'", "'back\\slash'", "''", "NULL", "'(1,2)'"])
    lasts = dice.choice([_interval(dice), "NULL"])
    return f"ROW({_moment(dice)}, {lasts}, '\\x{data}', {dice.randint(-9, 9)}, {note})::part"


def _range(dice: random.Random, kind: str, bounds: tuple[str, str]) -> str:
    one, other = bounds
    return dice.choice([f"{kind}(least({one}, {other}), greatest({one}, {other}), '[]')", f"{kind}(NULL, {one})"])


def _expression(dice: random.Random, what: str) -> str:
    if what == "interval":
        return _interval(dice)
    if what == "tstzrange":
        return _range(dice, "tstzrange", (_moment(dice), _moment(dice)))
    if what == "tstzmultirange":
        return f"tstzmultirange({_expression(dice, 'tstzrange')}, {_expression(dice, 'tstzrange')})"
    if what == "lengths":
        return _range(dice, "lengths", (_interval(dice), _interval(dice)))
    if what == "point":
        return f"point({dice.uniform(-1, 1)!r}, {dice.choice([0.1, 1e300, 5e-324, 1 / 3])!r})"
    if what == "part[]":
        return f"ARRAY[{', '.join(_part(dice) for _ in range(dice.randint(1, 3)))}]"
    if what == "whole":
        parts = _expression(dice, "part[]")
        return f"ROW({_part(dice)}, {parts}, {_expression(dice, 'tstzrange')})::whole"
    return _part(dice)


_KINDS = {
    "interval": Form.INTERVAL,
    "tstzrange": Form.MOMENTS,
    "tstzmultirange": Form.MOMENTS,
    "point": Form.NUMBERS,
    "lengths": Form.SHAPE,
    "part": Form.SHAPE,
    "part[]": Form.SHAPE,
    "whole": Form.SHAPE,
}


@pytest.mark.parametrize(("what", "form"), _KINDS.items(), ids=_KINDS.keys())
def test_a_value_has_one_form_under_all_settings(server: Server, what: str, form: Form) -> None:
    dice = random.Random(what)
    expressions = [_expression(dice, what) for _ in range(_VALUES)]
    query = " UNION ALL ".join(f"SELECT {number}, ({text})::text" for number, text in enumerate(expressions))
    found: dict[int, set[str]] = {}
    texts: dict[int, str] = {}
    with server.connect() as connection:
        for number in range(max(len(_STYLES), len(_ZONES))):
            connection.execute(f"SET IntervalStyle = {_STYLES[number % len(_STYLES)]}".encode())
            connection.execute(f"SET TimeZone = '{_ZONES[number % len(_ZONES)]}'".encode())
            connection.execute(f"SET bytea_output = {_BYTEA[number % len(_BYTEA)]}".encode())
            connection.execute(f"SET extra_float_digits = {1 + number % 3}".encode())
            for value, text in connection.execute(query.encode()).fetchall():
                found.setdefault(value, set()).add(one_form(text, form))
                texts.setdefault(value, text)
    assert [texts[value] for value, forms in found.items() if len(forms) != 1] == []
    # Under one choice of settings the texts are equal where the values are.
    assert len({forms.pop() for forms in found.values()}) == len(set(texts.values()))
