"""tsvector and tsquery."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from walreplay.types.cursor import Cursor, malformed
from walreplay.types.text import decode_text

_COUNT: Final = Struct("!H")
_POSITION: Final = Struct("!H")
"""Two bits of weight, 14 bits of position."""
_WEIGHTS: Final = ("", "C", "B", "A")

_KIND: Final = Struct("!B")
_OPERAND: Final = Struct("!BB")
"""A bit for each weight, and 1 for a prefix; the lexeme follows."""
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
    for _ in range(cursor.count(3)):
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
    items = [_item(cursor, codec) for _ in range(cursor.count(2))]
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
