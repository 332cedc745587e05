"""Values of PostgreSQL's types, drawn at random, as the texts that a server takes in.

A sample knows edges, which always take part, and a way to draw more.  The texts need not be in the form that the
server gives them back in; they have to be valid.
"""

from __future__ import annotations

import ipaddress
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

Draw = Callable[[Random], str]


@dataclass(frozen=True)
class Sample:
    """The values of one type.

    Args:
        draw: draws one.
        edges: those that always take part.
        since: the first major version that takes `new_edges`.
    """

    draw: Draw
    edges: tuple[str, ...] = ()
    new_edges: tuple[str, ...] = ()
    since: int = 0

    def texts(self, random: Random, count: int, version: int) -> list[str]:
        """Return the edges, and so many drawn values."""
        edges = self.edges + (self.new_edges if version >= self.since else ())
        return [*edges, *(self.draw(random) for _ in range(count))]


_NASTY = " \t\n\r\v\f\"'\\,;:{}()[]<>=&|!*$%/#aBz0é€ß\u00a0\u0085\u2028\u3000漢😀"
_WORDS = ("", "NULL", "null", "Null", "nullable", " ", "\\", '"', "'", "\\N", "\\.", "{}", "()", "a b", "%s")


def string(random: Random, longest: int = 12, shortest: int = 0) -> str:
    """Draw a text that has what the output functions quote or escape."""
    if shortest == 0 and random.random() < 0.15:
        return random.choice(_WORDS)
    return "".join(random.choice(_NASTY) for _ in range(random.randint(shortest, longest)))


def _integer(random: Random, bits: int, *, signed: bool = True) -> str:
    value = random.getrandbits(random.randint(1, bits))
    if not signed:
        return str(value)
    return str(value - (1 << (bits - 1)) if value.bit_length() == bits else random.choice((1, -1)) * (value >> 1))


def _double(random: Random) -> str:
    kind = random.randrange(6)
    if kind == 0:
        value = struct.unpack("!d", random.randbytes(8))[0]
    elif kind == 1:
        value = random.choice((1, -1)) * random.randrange(10**18) / 10 ** random.randrange(18)
    elif kind == 2:  # near powers of two, where the distance to the next number changes
        value = 2.0 ** random.randint(-1074, 1023) * random.choice((1.0, 1 + 2**-52, 1 - 2**-53))
    elif kind == 3:  # integers that doubles do not all hold: what lies midway between two of them
        value = float(random.getrandbits(random.randint(50, 90)))
    elif kind == 4:
        value = random.randrange(10) * 10.0 ** random.randint(-30, 30)
    else:
        return random.choice(_FLOAT_EDGES)
    return repr(value)


def _single(random: Random) -> str:
    kind = random.randrange(5)
    if kind == 0:
        value = struct.unpack("!f", random.randbytes(4))[0]
    elif kind == 1:
        value = random.choice((1, -1)) * random.randrange(10**9) / 10 ** random.randrange(9)
    elif kind == 2:
        value = 2.0 ** random.randint(-149, 127) * random.choice((1.0, 1 + 2**-23, 1 - 2**-24))
    elif kind == 3:
        value = float(random.getrandbits(random.randint(20, 60)))
    else:
        return random.choice(_FLOAT_EDGES)
    return repr(struct.unpack("!f", struct.pack("!f", value))[0])


_FLOAT_EDGES = (
    *("0", "-0", "NaN", "Infinity", "-Infinity", "1", "0.1", "1e-4", "1e-5", "123456", "1e5", "1e6", "1234567"),
    *("999999", "999999.9", "1e14", "1e15", "1e16", "99999999999999.9", "123456789012345", "1e20", "1e23", "1.5e-10"),
)
_DOUBLE_EDGES = (
    *_FLOAT_EDGES,
    *("5e-324", "2.2250738585072014e-308", "1.7976931348623157e308", "9007199254740993", "9e22", "8.41e21"),
    *("2e22", "5.764607523034235e39", "1.152921504606847e40", "5.684341886080802e-14", "4.35", "1e100", "1e-100"),
)
_SINGLE_EDGES = (*_FLOAT_EDGES, "1e-45", "1.1754944e-38", "3.4028235e38", "16777216", "33554432", "8.5899346e9")


def _numeric(random: Random) -> str:
    kind = random.randrange(8)
    if kind == 0:
        return random.choice(("NaN", "Infinity", "-Infinity", "0", "0.000", "-0.0"))
    sign = random.choice(("", "-"))
    whole = str(random.randrange(10 ** random.choice((1, 3, 4, 5, 8, 20, 60))))
    if kind == 1:
        return sign + whole + "0" * random.randrange(30)
    if kind == 2:
        return f"{sign}0.{'0' * random.randrange(30)}{whole}{'0' * random.randrange(9)}"
    if kind == 3:
        return sign + whole
    return f"{sign}{whole}.{random.randrange(10 ** random.choice((1, 4, 5, 12, 30)))}{'0' * random.randrange(9)}"


def numeric_sample(precision: int, scale: int) -> Sample:
    """Return a sample of numeric(precision,scale); it has no infinities."""

    def draw(random: Random) -> str:
        digits = random.randrange(10 ** random.randint(1, precision))
        return f"{random.choice(('', '-'))}{digits}e{-scale}"

    largest = f"{10**precision - 1}e{-scale}"
    return Sample(draw, ("NaN", "0", "-0", f"1e{-scale}", largest, f"-{largest}"))


Moment = tuple[int, int, int, int]
"""Year (0 is 1 BC), month, day, microseconds of the day: in order of time."""


def _moment(random: Random, last_year: int) -> Moment:
    kind = random.randrange(8)
    if kind == 0:
        year = random.randint(-4712, 1)
    elif kind == 1:
        year = random.randint(9998, last_year)
    elif kind == 2:
        year = random.choice((0, 1, 4, 1600, 1700, 1900, 2000, 2100, 9999, 10000))
    else:
        year = random.randint(1, 9999)
    micros = random.choice(
        (0, 1, 86_399_999_999, random.randrange(86_400_000_000), 1000 * random.randrange(86_400_000))
    )
    return year, random.randint(1, 12), random.randint(1, 28), micros


def _written(moment: Moment, *, clock: bool = True, zone: str = "") -> str:
    year, month, day, micros = moment
    text = f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}"
    if clock:
        text += " " + _clock(micros)
    return text + zone + ("" if year > 0 else " BC")


def _clock(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"


def _zone(random: Random) -> str:
    seconds = random.choice((0, 60, 3600, 900, 1)) * random.randint(0, 57_599)
    seconds = min(seconds, 57_599)
    return f"{random.choice('+-')}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _date(random: Random) -> str:
    return _written(_moment(random, 5_874_896), clock=False)


def _timestamp(random: Random) -> str:
    return _written(_moment(random, 294_275))


def _timestamptz(random: Random) -> str:
    return _written(_moment(random, 294_275), zone=random.choice(("+00", "-07:30", "+15:59:59")))


def _time(random: Random) -> str:
    return _clock(_moment(random, 9999)[3])


def _interval(random: Random) -> str:
    months, days, micros = (
        random.choice((0, 0, 1, -1, 12, random.randint(-limit, limit), random.randint(-50, 50)))
        for limit in (2**31 - 1, 2**31 - 1, 2**62)
    )
    if random.random() < 0.5:
        micros = random.randint(-100_000, 100_000) * random.choice((1000, 1_000_000))
    return f"{months} mons {days} days {micros} microseconds"


def _ipv6(random: Random) -> str:
    words = [random.choice((0, 0, 0, 1, 0xFFFF, random.getrandbits(16), random.getrandbits(4))) for _ in range(8)]
    if random.random() < 0.3:  # forms with an IPv4 address inside
        words[:5] = [0] * 5
        words[5] = random.choice((0, 0, 0xFFFF))
    return ":".join(f"{word:x}" for word in words)


def _inet(random: Random) -> str:
    if random.random() < 0.5:
        address, bits = ".".join(str(random.choice((0, 1, 255, random.getrandbits(8)))) for _ in range(4)), 32
    else:
        address, bits = _ipv6(random), 128
    return address if random.random() < 0.3 else f"{address}/{random.choice((0, 8, bits, random.randint(0, bits)))}"


def _cidr(random: Random) -> str:
    return str(ipaddress.ip_network(_inet(random), strict=False))


def _bits(random: Random) -> str:
    return "".join(random.choice("01") for _ in range(random.choice((0, 1, 7, 8, 9, random.randrange(70)))))


def _hex(random: Random, size: int) -> str:
    return random.randbytes(size).hex()


def _json_value(random: Random, depth: int = 0) -> object:
    kind = random.randrange(8 if depth < 3 else 6)
    if kind < 2:
        return string(random)
    if kind == 2:
        return random.choice((None, True, False))
    if kind == 3:
        return random.randint(-(10**12), 10**12)
    if kind == 4:
        return random.randint(-999, 999) / 8
    if kind == 5:
        return random.choice(("é", "\u0001", "\x1f", "a\\b", 'a"b', "</script>"))
    if kind == 6:
        return [_json_value(random, depth + 1) for _ in range(random.randrange(4))]
    return {string(random): _json_value(random, depth + 1) for _ in range(random.randrange(4))}


def _json(random: Random) -> str:
    return json.dumps(
        _json_value(random), ensure_ascii=random.random() < 0.5, indent=random.choice((None, None, 1, "\t"))
    )


_PATH_STEPS = (".a", '."b c"', "[*]", "[0 to last]", ".**", ".**{2 to 4}", ".type()", ".size()", '."é"', ".*", "[1,3]")
_PATH_FILTERS = (
    "",
    " ? (@ > 1)",
    ' ? (@.x == "y\\"z" && !(@ < 2.5))',
    ' ? (@ like_regex "^a" flag "i")',
    ' ? (@ starts with "é")',
    " ? (exists (@.a) || (@.b == null) is unknown)",
)


def _jsonpath(random: Random) -> str:
    steps = "".join(random.choice(_PATH_STEPS) for _ in range(random.randrange(4)))
    path = f"${steps}{random.choice(_PATH_FILTERS)}"
    if random.random() < 0.2:
        path = f"({path} + {random.randrange(99)}) * -2"
    return random.choice(("", "strict ", "lax ")) + path


def _point(random: Random) -> str:
    return f"({_double(random)},{_double(random)})"


def _finite(random: Random) -> str:
    return str(random.choice((random.randint(-99, 99), random.randint(-(10**9), 10**9) / 1024, 1e-300, 1e300)))


def _points(random: Random) -> str:
    return ",".join(_point(random) for _ in range(random.randint(1, 5)))


def _path(random: Random) -> str:
    return random.choice(("[{}]", "({})")).format(_points(random))


def _line(random: Random) -> str:
    return f"{{{_finite(random)},{random.choice(('1', '-1', '0.1', '1e200'))},{_double(random)}}}"


def _circle(random: Random) -> str:
    return f"<{_point(random)},{_finite(random).lstrip('-')}>"


def _lexeme(random: Random) -> str:
    text = string(random, shortest=1).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"


def _tsvector(random: Random) -> str:
    lexemes = []
    for _ in range(random.randrange(6)):
        positions = [
            f"{random.choice((1, 16383, 20000, random.randint(1, 99)))}{random.choice('ABCD ').strip()}"
            for _ in range(random.randrange(4))
        ]
        lexemes.append(_lexeme(random) + (":" + ",".join(positions) if positions else ""))
    return " ".join(lexemes)


def _tsquery(random: Random, depth: int = 0) -> str:
    kind = random.randrange(8)
    if depth > 5 or kind < 3:
        marks = random.choice(("", "", ":*", ":A", ":*BD", ":abcd", ":C"))
        return _lexeme(random) + marks
    if kind == 3:
        return f"!{_tsquery(random, depth + 1)}" if random.random() < 0.5 else f"!({_tsquery(random, depth + 1)})"
    operator = random.choice(("&", "|", "<->", "<->", "<0>", "<3>", "<16384>"))
    sides = []
    for _ in range(2):
        side = _tsquery(random, depth + 1)
        sides.append(f"({side})" if random.random() < 0.6 else side)
    return f"{sides[0]} {operator} {sides[1]}"


def _snapshot(random: Random) -> str:
    lowest = random.randint(1, 2 ** random.randint(1, 62))
    last = lowest + random.randrange(1000)
    running = sorted(random.sample(range(lowest, last), min(random.randrange(5), last - lowest)))
    return f"{lowest}:{last}:{','.join(map(str, running))}"


def _oids(random: Random, bits: int, *, signed: bool) -> str:
    return " ".join(_integer(random, bits, signed=signed) for _ in range(random.randrange(5)))


def _unknown_oid(random: Random) -> str:
    # Higher than any that a new server has given away, so its text is the number.
    return random.choice(("0", str(random.randint(3_000_000_000, 2**32 - 1))))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def range_of(bound: Callable[[Random], tuple[object, str]], random: Random) -> str:
    """Draw a range; a bound is drawn as what it is ordered by, and its text."""
    if random.random() < 0.1:
        return "empty"
    (_, lower), (_, upper) = sorted((bound(random), bound(random)), key=lambda pair: pair[0])
    lower = "" if random.random() < 0.15 else _quoted(lower)
    upper = "" if random.random() < 0.15 else _quoted(upper)
    return f"{random.choice('[(')}{lower},{upper}{random.choice('])')}"


def multirange_of(bound: Callable[[Random], tuple[object, str]], random: Random) -> str:
    """Draw a multirange."""
    return f"{{{','.join(range_of(bound, random) for _ in range(random.randrange(5)))}}}"


def array_of(element: Draw, delimiter: str, random: Random) -> str:
    """Draw an array, with any dimensions and bounds."""
    sizes = [random.randint(1, 3) for _ in range(random.choice((0, 1, 1, 1, 1, 2, 3)))]
    if not sizes:
        return "{}"
    if len(sizes) == 1:
        sizes = [random.randint(1, 5)]
    bounds = ""
    if random.random() < 0.2:
        firsts = [random.choice((1, 0, -3, 7)) for _ in sizes]
        bounds = "".join(f"[{first}:{first + size - 1}]" for first, size in zip(firsts, sizes, strict=True)) + "="
    return bounds + _array_body(element, delimiter, sizes, random)


def _array_body(element: Draw, delimiter: str, sizes: list[int], random: Random) -> str:
    if not sizes:
        return "NULL" if random.random() < 0.15 else _quoted(element(random))
    return f"{{{delimiter.join(_array_body(element, delimiter, sizes[1:], random) for _ in range(sizes[0]))}}}"


def record_of(fields: list[Draw], random: Random) -> str:
    """Draw a composite value."""
    return f"({','.join('' if random.random() < 0.2 else _quoted(field(random)) for field in fields)})"


def array_sample(element: Sample, delimiter: str) -> Sample:
    """Return a sample of the arrays of a type; their elements are its edges too."""

    def either(random: Random) -> str:
        return random.choice(element.edges) if element.edges and random.random() < 0.3 else element.draw(random)

    return Sample(partial(array_of, either, delimiter), ("{}", "{NULL}"))


def _int_bound(limit: int, random: Random) -> tuple[object, str]:
    value = random.choice((random.randint(-limit, limit), random.randint(-20, 20)))
    return value, str(value)


def _numeric_bound(random: Random) -> tuple[object, str]:
    value = random.randint(-(10**9), 10**9)
    return value, f"{value}.{random.choice(('', '0', '000'))}"


def _moment_bound(last_year: int, write: Callable[[Moment], str], random: Random) -> tuple[object, str]:
    moment = _moment(random, last_year)
    return moment, write(moment)


_BOUNDS: dict[str, Callable[[Random], tuple[object, str]]] = {
    "int4": partial(_int_bound, 2**31 - 2),
    "int8": partial(_int_bound, 2**63 - 2),
    "num": _numeric_bound,
    "ts": partial(_moment_bound, 294_275, _written),
    "tstz": partial(_moment_bound, 294_275, partial(_written, zone="+00")),
    "date": partial(_moment_bound, 5_874_896, partial(_written, clock=False)),
}
_RANGE_EDGES = {
    "ts": ("[-infinity,infinity]", "(,)", "[2000-01-01,infinity)"),
    "date": ("[-infinity,infinity]", "(,)", "(-infinity,2000-01-01]"),
    "num": ("[-Infinity,Infinity]", "[NaN,NaN]", "[1,1]", "(1,1)"),
}

_PLACES = ("infinity", "-infinity", "epoch")
_MONEY_EDGES = (
    *("0", "-0.01", "0.05", "999.99", "1000", "-1000", "1234567.89", "-1234567.89"),
    *("92233720368547758.07", "-92233720368547758.08"),
)
_REG_TYPES = (
    *("regproc", "regprocedure", "regoper", "regoperator", "regclass", "regtype"),
    *("regconfig", "regdictionary", "regnamespace", "regrole", "regcollation"),
)

SAMPLES: dict[str, Sample] = {
    "bool": Sample(lambda random: random.choice("tf")),
    "bytea": Sample(lambda random: "\\x" + _hex(random, random.randrange(20)), ("\\x",)),
    "char": Sample(
        lambda random: random.choice(("", chr(random.randint(1, 127)), f"\\{random.randint(128, 255):03o}"))
    ),
    "name": Sample(string, ("x" * 63,)),
    "text": Sample(string),
    "varchar": Sample(string),
    "bpchar": Sample(string),
    "refcursor": Sample(string),
    "int2": Sample(partial(_integer, bits=16), ("32767", "-32768")),
    "int4": Sample(partial(_integer, bits=32), ("2147483647", "-2147483648")),
    "int8": Sample(partial(_integer, bits=64), (str(2**63 - 1), str(-(2**63)))),
    "oid": Sample(partial(_integer, bits=32, signed=False), ("4294967295",)),
    "xid": Sample(partial(_integer, bits=32, signed=False), ("4294967295",)),
    "cid": Sample(partial(_integer, bits=32, signed=False), ("4294967295",)),
    "xid8": Sample(partial(_integer, bits=64, signed=False), (str(2**64 - 1),)),
    "tid": Sample(lambda random: f"({random.getrandbits(32)},{random.getrandbits(16)})"),
    "int2vector": Sample(partial(_oids, bits=16, signed=True), ("",)),
    "oidvector": Sample(partial(_oids, bits=32, signed=False), ("",)),
    **{name: Sample(_unknown_oid) for name in _REG_TYPES},
    "float4": Sample(_single, _SINGLE_EDGES),
    "float8": Sample(_double, _DOUBLE_EDGES),
    "numeric": Sample(_numeric, ("1e131071", "1e-16383", "-1.5e-16000", "10000", "0.0001", "1" * 1000)),
    "money": Sample(lambda random: f"{random.randint(-(10 ** random.randint(1, 18)), 10**18) / 100:.2f}", _MONEY_EDGES),
    "date": Sample(_date, (*_PLACES, "4713-11-24 BC", "5874897-12-31", "0001-12-31 BC", "0001-01-01", "2000-02-29")),
    "time": Sample(_time, ("00:00:00", "24:00:00", "23:59:59.999999")),
    "timetz": Sample(
        lambda random: _time(random) + _zone(random), ("24:00:00+00", "00:00:00-15:59:59", "00:00:00+15:59:59")
    ),
    "timestamp": Sample(_timestamp, (*_PLACES, "4713-11-24 00:00:00 BC", "294276-12-31 23:59:59.999999")),
    "timestamptz": Sample(_timestamptz, (*_PLACES, "4713-11-24 00:00:00+00 BC", "294276-12-31 23:59:59.999999+00")),
    "interval": Sample(
        _interval,
        ("0", "1 year", "-1 year", "1 mon -1 day", "-1 mon 1 day 1 second", "-1 day 2 hours", "178956970 years 7 mons"),
        ("infinity", "-infinity"),
        since=17,
    ),
    "uuid": Sample(lambda random: _hex(random, 16)),
    "inet": Sample(_inet, ("::", "::1", "::1/0", "::ffff:1.2.3.4", "::1.2.3.4", "0.0.0.0/0", "1::", "1:0:0:2::3")),
    "cidr": Sample(_cidr, ("::/0", "::1/128", "10/8", "192.168.1/24")),
    "macaddr": Sample(lambda random: _hex(random, 6)),
    "macaddr8": Sample(lambda random: _hex(random, 8)),
    "bit": Sample(lambda random: f"{random.getrandbits(13):013b}"),
    "varbit": Sample(_bits, ("",)),
    "json": Sample(_json, ('{"a" :1,  "a": 2.500}',)),
    "jsonb": Sample(_json, ('{"b": 1, "a": 2.500, "b": 1e5}', "[]", "{}")),
    "jsonpath": Sample(_jsonpath),
    "xml": Sample(string),
    "pg_lsn": Sample(lambda random: f"{random.getrandbits(32):X}/{random.getrandbits(32):X}", ("0/0", "FFFFFFFF/0")),
    "txid_snapshot": Sample(_snapshot),
    "pg_snapshot": Sample(_snapshot),
    "point": Sample(_point),
    "line": Sample(_line),
    "lseg": Sample(lambda random: f"[{_point(random)},{_point(random)}]"),
    "box": Sample(lambda random: f"{_point(random)},{_point(random)}"),
    "path": Sample(_path),
    "polygon": Sample(lambda random: f"({_points(random)})"),
    "circle": Sample(_circle),
    "tsvector": Sample(_tsvector, ("",)),
    "tsquery": Sample(_tsquery, ("", "a <-> (b <-> c)", "(a <-> b) <-> c", "!(!a)", "!(a & b) | c <-> !d")),
    **{f"{name}range": Sample(partial(range_of, bound), _RANGE_EDGES.get(name, ())) for name, bound in _BOUNDS.items()},
    **{f"{name}multirange": Sample(partial(multirange_of, bound), ("{}",)) for name, bound in _BOUNDS.items()},
}
"""By the name in pg_type; arrays are made by `array_sample`."""

MOOD_LABELS = ("ok", "so so", "très bien", 'a"b', "c\\d", "NULL", "{x}", "(y,z)", "😀")
"""The labels of the enum that a test's server has."""


def _vector(random: Random) -> str:
    numbers = (repr(float(number)) for number in (_single(random) for _ in range(random.randint(1, 9))))
    return f"[{','.join('1' if n in ('nan', 'inf', '-inf') else n for n in numbers)}]"


def _half(random: Random) -> float:
    value = struct.unpack("!e", random.randbytes(2))[0]
    return value if abs(value) < 65_520 else 1.0


def _halfvec(random: Random) -> str:
    return f"[{','.join(repr(_half(random)) for _ in range(random.randint(1, 9)))}]"


def _sparsevec(random: Random) -> str:
    places = sorted(random.sample(range(1, 40), random.randrange(5)))
    return f"{{{','.join(f'{place}:{_half(random)!r}' for place in places)}}}/40"


PGVECTOR_SAMPLES: dict[str, Sample] = {
    "vector": Sample(_vector),
    "halfvec": Sample(_halfvec, ("[65504,6e-8,-0,0.1]",)),
    "sparsevec": Sample(_sparsevec, ("{}/3",)),
}

USER_DEFINED: tuple[str, ...] = (
    f"CREATE TYPE mood AS ENUM ({', '.join(chr(39) + label + chr(39) for label in MOOD_LABELS)})",
    "CREATE DOMAIN price AS numeric(10,3)",
    "CREATE DOMAIN words AS text[]",
    "CREATE TYPE inner_row AS (t text, n numeric)",
    "CREATE TYPE outer_row AS ("
    "m mood, i inner_row, a int[], b box, bs bytea, r int4range, p price, t text, ra inner_row[])",
    "CREATE TYPE one_field AS (t text)",
    "CREATE TYPE no_field AS ()",
    "CREATE TYPE floatrange AS RANGE (subtype = float8)",
)

_inner = partial(record_of, [string, _numeric])
_mood: Draw = lambda random: random.choice(MOOD_LABELS)  # noqa: E731
_price: Draw = lambda random: f"{random.randint(-(10**9), 10**9) / 1000:.3f}"  # noqa: E731
_outer = partial(
    record_of,
    [
        _mood,
        _inner,
        partial(array_of, partial(_integer, bits=32), ","),
        SAMPLES["box"].draw,
        SAMPLES["bytea"].draw,
        SAMPLES["int4range"].draw,
        _price,
        string,
        partial(array_of, _inner, ","),
    ],
)

USER_DEFINED_SAMPLES: dict[str, Sample] = {
    "mood": Sample(_mood, MOOD_LABELS),
    "price": Sample(_price),
    "words": Sample(partial(array_of, string, ",")),
    "inner_row": Sample(_inner, ("(,)",)),
    "outer_row": Sample(_outer),
    "one_field": Sample(partial(record_of, [string]), ("()", '("")')),
    "mood[]": Sample(partial(array_of, _mood, ",")),
    "price[]": Sample(partial(array_of, _price, ",")),
    "inner_row[]": Sample(partial(array_of, _inner, ",")),
}
"""Values of the types that `USER_DEFINED` makes."""
