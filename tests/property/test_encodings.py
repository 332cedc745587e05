"""What a server sends in another client_encoding gives the same rows and names as what it sends in UTF-8."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.binary_cells import Binary, Value, array, convert, image
from support.extent import examples
from support.runs import cut, plan_runs
from support.wire import encode
from walreplay.changes import decode_plan
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_message
from walreplay.types import resolve
from walreplay.types.text import UTF8, codec_of, names_in

TEXT, INT4, JSONB, TEXTS, MOOD = 25, 23, 3802, 1009, 90_001
NAMES = {MOOD: ("shop", "mood")}

ENCODINGS = pytest.mark.parametrize("codec", [codec_of("LATIN1"), codec_of("SJIS")])


@cache
def letters(codec: str) -> str:
    """Return what an encoding has, those characters first whose second byte means something in an array.

    Without DEL, which no label has, and ``@``, which marks the names in what is written below.
    """
    found = []
    for point in sorted({*range(0x20, 0x10000)} - {0x7F, ord("@")}):
        try:
            if chr(point).encode(codec).decode(codec) == chr(point):
                found.append(chr(point))
        except UnicodeError:
            continue
    return "".join(sorted(found, key=lambda letter: letter.encode(codec)[1:] not in (b"\\", b"{", b"}", b"|")))


def texts(codec: str, *, least: int = 0) -> st.SearchStrategy[str]:
    known = letters(codec)
    return st.text(st.sampled_from(known[:200]) | st.sampled_from(known), min_size=least, max_size=12)


def in_each(codec: str, make: Callable[[str], Any]) -> tuple[Any, Any]:
    return make(codec), make(UTF8)


@ENCODINGS
@given(data=st.data())
def test_values_are_those_that_come_in_utf8(codec: str, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.none() | texts(codec), min_size=1, max_size=6))
    in_binary = data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn)))
    oid, head = data.draw(st.sampled_from([(TEXT, b""), (JSONB, b"\1"), (MOOD, b"")]))

    def cells(name: str) -> list[bytes | None]:
        found: list[bytes | None] = []
        for text, binary in zip(drawn, in_binary, strict=True):
            cell = None if text is None else text.encode(name)
            found.append(Binary(head + cell) if cell is not None and binary else cell)
        return found

    got, expected = in_each(codec, lambda name: convert(resolve(oid, -1, NAMES), cells(name), NAMES, codec=name))
    assert image(got) == image(expected)
    assert not got[1]
    assert got[0].to_pylist() == drawn


@ENCODINGS
@given(data=st.data())
def test_elements_of_arrays_are_those_that_come_in_utf8(codec: str, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.none() | texts(codec), max_size=6))

    def cells(name: str) -> list[bytes]:
        value = array(TEXT, [None if text is None else Value(text, text.encode(name)) for text in drawn])
        assert isinstance(value.text, str)
        return [value.text.encode(name), Binary(value.binary)]

    got, expected = in_each(codec, lambda name: convert(resolve(TEXTS, -1, {}), cells(name), codec=name))
    assert image(got) == image(expected)
    assert got[0].to_pylist() == [drawn, drawn]


def written(messages: list[m.AnyMessage], names: list[str], codec: str, framing: Framing) -> bytes:
    """Write a session whose messages have ``@n@`` where a name stands."""
    parts = []
    for message in messages:
        data = encode(message)
        if not isinstance(message, (m.Begin, m.Commit)):
            for number, name in enumerate(names):
                data = data.replace(b"@%d@" % number, name.encode(codec))
        parts.append(data + (b"\n" if framing is Framing.RECVLOGICAL else b""))
    return b"".join(parts)


def rows_of(files: dict[str, bytes], codec: str, *, guessing: bool, framing: Framing | None) -> list[Any]:
    ((_, planned),) = plan_runs([files], guessing=guessing, framing=framing, codec=codec)
    batches = decode_plan(planned.plan, files.__getitem__, codec=codec)
    return [(batch.relation, batch.data.to_pylist()) for batch in batches]


@ENCODINGS
@settings(max_examples=examples(25))
@given(data=st.data())
def test_a_stream_cut_anywhere_is_that_which_comes_in_utf8(codec: str, data: st.DataObject) -> None:
    framing = data.draw(st.sampled_from([Framing.RAW, Framing.RECVLOGICAL]))
    names = data.draw(st.lists(texts(codec, least=1), min_size=8, max_size=8))
    prefix = [m.Begin(100, 5, 7), m.Origin(1, "@0@"), m.Type(MOOD, "@1@", "@2@")]
    table = m.Relation(9, "@3@", "@4@", "d", (m.Column("id", INT4, -1, True), m.Column("n@5@", MOOD, -1, False)))

    message = m.Message(True, 50, "@7@", b"\xe9content")

    def stream(name: str) -> bytes:
        # A cell's length says how long its text is, so that it cannot be put in afterwards.
        cell = m.Cell("t", names[6].encode(name))
        inserts = [m.Insert(9, m.TupleData((m.Cell("t", b"%d" % number), cell))) for number in range(4)]
        return written([*prefix, table, message, *inserts, m.Commit(0, 100, 108, 5)], names, name, framing)

    whole = rows_of({"a": stream(UTF8)}, UTF8, guessing=False, framing=None)
    size = len(stream(codec))
    places = data.draw(st.lists(st.integers(64, size), max_size=4).map(sorted))
    found = rows_of(
        cut(stream(codec), places),
        codec,
        guessing=data.draw(st.booleans()),
        framing=data.draw(st.sampled_from([None, framing])),
    )
    assert found == whole
    ((relation, changes),) = found
    assert (relation.namespace, relation.name, relation.columns[1].name) == (names[3], names[4], "n" + names[5])
    assert [row["n" + names[5]] for row in changes] == [names[6]] * 4


@ENCODINGS
@given(data=st.data())
def test_every_name_of_a_message_is_decoded(codec: str, data: st.DataObject) -> None:
    name = data.draw(texts(codec, least=1))
    templates: list[tuple[Callable[[str], m.AnyMessage], bool]] = [
        (lambda text: m.Origin(1, text), False),
        (lambda text: m.Message(False, 1, text, b"\xe9"), False),
        (lambda text: m.Message(False, 1, text, b"\xe9", 3), True),
        (lambda text: m.Type(5, text, "t"), False),
        (lambda text: m.Type(5, "s", text), False),
        (lambda text: m.Relation(5, text, "t", "d", ()), False),
        (lambda text: m.Relation(5, "s", text, "d", (m.Column(text, 23, -1, True),)), False),
        (lambda text: m.BeginPrepare(1, 2, 3, 4, text), False),
        (lambda text: m.Prepare(0, 1, 2, 3, 4, text), False),
        (lambda text: m.StreamPrepare(0, 1, 2, 3, 4, text), False),
        (lambda text: m.CommitPrepared(0, 1, 2, 3, 4, text), False),
        (lambda text: m.RollbackPrepared(0, 1, 2, 3, 4, 5, text), False),
    ]
    for make, streaming in templates:
        sent = encode(make("@0@")).replace(b"@0@", name.encode(codec))
        assert read_message(sent, 0, streaming=streaming, names=names_in(codec)) == (make(name), len(sent))


def test_a_composite_value_has_its_text_decoded_too() -> None:
    sent = "ソ".encode(codec_of("SJIS"))
    record = Binary(struct.pack("!iIi", 1, TEXT, len(sent)) + sent)
    names = {90_002: ("shop", "pair")}
    column, rescued = convert(resolve(90_002, -1, names), [record], names, codec=codec_of("SJIS"))
    assert (column.to_pylist(), rescued) == (["(ソ)"], [])
