"""Types that each have a form of their own: network addresses, uuid, identifiers, geometry, text search.

Identifiers are oid, xid, tid, pg_lsn, snapshots, regclass and its kin.  A server writes regclass and its kin as names
in text format, but sends only an OID in binary format.  So these values are written as OIDs.  Geometry's numbers are
doubles, each written with its shortest exact digits.
"""

from __future__ import annotations

import uuid
from ipaddress import IPv6Address, ip_interface
from struct import Struct
from typing import Final, NamedTuple

from walreplay.lsn import format_lsn
from walreplay.types.base import Cursor, fixed_writer, malformed
from walreplay.types.numbers import double_text
from walreplay.types.text import decode_text

_ADDRESS: Final = Struct("!BBBB")  # Family, network bits, 1 for cidr, length of the address

_FAMILY_4: Final = 2
_FAMILY_6: Final = 3
_SIZES: Final = {_FAMILY_4: 4, _FAMILY_6: 16}


def inet_text(data: bytes) -> str:
    """Write an inet's bytes as PostgreSQL does: without the network's size if it is a single address."""
    address, bits, full = _address(data, "inet")
    return address if bits == full else f"{address}/{bits}"


def cidr_text(data: bytes) -> str:
    """Write a cidr's bytes as PostgreSQL does."""
    address, bits, _ = _address(data, "cidr")
    return f"{address}/{bits}"


def network_text(text: str) -> str:
    """Write the network of an inet's text as a cidr: bits behind its size become zeros."""
    network = ip_interface(text).network
    packed = network.network_address.packed
    family = _FAMILY_4 if network.version == 4 else _FAMILY_6
    return cidr_text(_ADDRESS.pack(family, network.prefixlen, 1, len(packed)) + packed)


macaddr_text: Final = fixed_writer(Struct("6s"), "macaddr", lambda address: address.hex(":"))
macaddr8_text: Final = fixed_writer(Struct("8s"), "macaddr8", lambda address: address.hex(":"))


def _address(data: bytes, what: str) -> tuple[str, int, int]:
    """Return an address as text, the number of its network's bits, and the number of all its bits."""
    cursor = Cursor(data, what)
    family, bits, _, size = cursor.unpack(_ADDRESS)
    if _SIZES.get(family) != size or bits > 8 * size:
        raise malformed(what, "has a family, a length or network bits that there are none of")
    address = cursor.take(size)
    cursor.finish()
    return _dotted(address) if family == _FAMILY_4 else _colons(address), bits, 8 * size


def _dotted(address: bytes) -> str:
    return ".".join(map(str, address))


def _colons(address: bytes) -> str:
    """Write an IPv6 address; one that has an IPv4 address inside ends with that."""
    head, mapped = address[:12], bytes(10) + b"\xff\xff"
    if head == mapped or (head == bytes(12) and address[12:14] != b"\0\0"):
        return ("::ffff:" if head == mapped else "::") + _dotted(address[12:])
    return str(IPv6Address(address))


unsigned_text: Final = fixed_writer(Struct("!I"), "oid or xid")
xid8_text: Final = fixed_writer(Struct("!Q"), "xid8")
pg_lsn_text: Final = fixed_writer(Struct("!Q"), "pg_lsn", format_lsn)
tid_text: Final = fixed_writer(Struct("!IH"), "tid", lambda block, place: f"({block},{place})")
uuid_text: Final = fixed_writer(Struct("16s"), "uuid", lambda data: str(uuid.UUID(bytes=data)))

_SNAPSHOT: Final = Struct("!qq")  # The lowest transaction still open, the first not yet begun
_XID8: Final = Struct("!q")


def regclass_text(data: bytes) -> str:
    """Write the OID of a regclass or one of its kin; 0 is a dash, as in PostgreSQL."""
    return unsigned_text(data) if data != b"\0\0\0\0" else "-"


def snapshot_text(data: bytes) -> str:
    """Write the bytes of a pg_snapshot or txid_snapshot as PostgreSQL does."""
    cursor = Cursor(data, "pg_snapshot")
    count = cursor.count(_XID8.size)
    lowest, next_xid = cursor.unpack(_SNAPSHOT)
    running = ",".join(str(cursor.unpack(_XID8)[0]) for _ in range(count))
    cursor.finish()
    return f"{lowest}:{next_xid}:{running}"


def _point(x: float, y: float) -> str:
    return f"({double_text(x)},{double_text(y)})"


def _corners(x1: float, y1: float, x2: float, y2: float) -> str:
    return f"{_point(x1, y1)},{_point(x2, y2)}"


_POINT: Final = Struct("!dd")

point_text: Final = fixed_writer(_POINT, "point", _point)
line_text: Final = fixed_writer(Struct("!ddd"), "line", lambda *abc: f"{{{','.join(map(double_text, abc))}}}")
"""A, B and C of Ax + By + C = 0."""
lseg_text: Final = fixed_writer(Struct("!dddd"), "lseg", lambda *ends: f"[{_corners(*ends)}]")
box_text: Final = fixed_writer(Struct("!dddd"), "box", _corners)
circle_text: Final = fixed_writer(Struct("!ddd"), "circle", lambda x, y, r: f"<{_point(x, y)},{double_text(r)}>")


def path_text(data: bytes) -> str:
    """Write a path's bytes as PostgreSQL does: an open path stands in brackets."""
    cursor = Cursor(data, "path")
    closed = cursor.take(1)
    if closed not in (b"\0", b"\1"):
        raise malformed("path", "is neither open nor closed")
    points = _points(cursor)
    return f"({points})" if closed == b"\1" else f"[{points}]"


def polygon_text(data: bytes) -> str:
    """Write a polygon's bytes as PostgreSQL does."""
    return f"({_points(Cursor(data, 'polygon'))})"


def _points(cursor: Cursor) -> str:
    points = [_point(*cursor.unpack(_POINT)) for _ in range(cursor.count(_POINT.size))]
    cursor.finish()
    return ",".join(points)


_COUNT: Final = Struct("!H")
_POSITION: Final = Struct("!H")  # Two bits of weight, 14 bits of position
_WEIGHTS: Final = ("", "C", "B", "A")

_KIND: Final = Struct("!B")
_OPERAND: Final = Struct("!BB")  # A bit for each weight, and 1 for a prefix; the lexeme follows
_DISTANCE: Final = Struct("!H")
_VALUE: Final = 1
_OPERATOR: Final = 2

_NOT: Final = 1
_AND: Final = 2
_OR: Final = 3
_PHRASE: Final = 4
_PRIORITIES: Final = {_OR: 1, _AND: 2, _PHRASE: 3, _NOT: 4}
_OPERAND_PRIORITY: Final = 5


def tsvector_text(data: bytes, codec: str) -> str:
    """Write a tsvector's bytes as PostgreSQL does."""
    cursor = Cursor(data, "tsvector")
    lexemes = []
    for _ in range(cursor.count(3)):  # a lexeme has a NUL and a count at least
        lexeme = _quoted(cursor.terminated(), codec)
        (count,) = cursor.unpack(_COUNT)
        positions = [cursor.unpack(_POSITION)[0] for _ in range(count)]
        written = ",".join(f"{position & 0x3FFF}{_WEIGHTS[position >> 14]}" for position in positions)
        lexemes.append(f"{lexeme}:{written}" if written else lexeme)
    cursor.finish()
    return " ".join(lexemes)


class _Operator(NamedTuple):
    kind: int
    distance: int


class _Node(NamedTuple):
    """A part of a query: its text, and the priority of its outermost operator."""

    text: str
    priority: int

    def under(self, priority: int) -> str:
        return f"( {self.text} )" if self.priority < priority else self.text


def tsquery_text(data: bytes, codec: str) -> str:
    """Write a tsquery's bytes as PostgreSQL does.

    The items are in Polish notation: an operator stands before its right operand, and this before the left one.  Read
    from the end, each operator finds both operands on a stack.
    """
    cursor = Cursor(data, "tsquery")
    items = [_item(cursor, codec) for _ in range(cursor.count(2))]  # an item has its kind and one byte at least
    cursor.finish()
    if not items:
        return ""
    stack: list[_Node] = []
    for item in reversed(items):
        if isinstance(item, _Node):
            stack.append(item)
            continue
        needed = 1 if item.kind == _NOT else 2
        if len(stack) < needed:
            raise malformed("tsquery", "lacks an operand")
        operands = [stack.pop() for _ in range(needed)]
        stack.append(_joined(item, *operands))
    if len(stack) != 1:
        raise malformed("tsquery", "has operands without an operator")
    return stack[0].text


def _item(cursor: Cursor, codec: str) -> _Node | _Operator:
    (kind,) = cursor.unpack(_KIND)
    if kind == _VALUE:
        weights, prefix = cursor.unpack(_OPERAND)
        marks = ("*" if prefix else "") + "".join(
            letter for bit, letter in ((8, "A"), (4, "B"), (2, "C"), (1, "D")) if weights & bit
        )
        lexeme = _quoted(cursor.terminated(), codec)
        return _Node(f"{lexeme}:{marks}" if marks else lexeme, _OPERAND_PRIORITY)
    if kind != _OPERATOR:
        raise malformed("tsquery", "has an item that is neither operand nor operator")
    (operator,) = cursor.unpack(_KIND)
    if operator not in _PRIORITIES:
        raise malformed("tsquery", "has an operator that there is none of")
    return _Operator(operator, cursor.unpack(_DISTANCE)[0] if operator == _PHRASE else 0)


def _joined(operator: _Operator, right: _Node, left: _Node | None = None) -> _Node:
    priority = _PRIORITIES[operator.kind]
    if left is None:
        return _Node("!" + right.under(priority), priority)
    if operator.kind == _PHRASE:
        sign = "<->" if operator.distance == 1 else f"<{operator.distance}>"
        # Phrases are left-associative, so a phrase on the right side needs parentheses.
        return _Node(f"{left.under(priority)} {sign} {right.under(priority + 1)}", priority)
    sign = "&" if operator.kind == _AND else "|"
    return _Node(f"{left.under(priority)} {sign} {right.under(priority)}", priority)


def _quoted(lexeme: bytes, codec: str) -> str:
    text = decode_text(lexeme, codec).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"
