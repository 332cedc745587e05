import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walreplay.errors import CaptureError, ConfigError, TargetError, visible, visible_json

STEERING = [
    *map(chr, (*range(0x20), *range(0x7F, 0xA0))),
    *map(chr, (*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0x61C, 0xFEFF, 0xAD)),
    *("\udc80", "\ud800", "\U000e0041", "\ue000", "\xa0", "\u3000"),
]
"""Controls, what turns the direction of writing or has no width, line ends, halves of surrogate pairs."""


@pytest.mark.parametrize("char", STEERING, ids=ascii)
def test_what_steers_a_terminal_or_cannot_be_seen_is_written_out(char):
    shown = visible(f"a{char}b")
    assert shown == f"a{char.encode('unicode_escape').decode()}b" or (
        char in "\t\n\r" and shown == f"a\\x{ord(char):02x}b"
    )
    assert json.loads(visible_json([char])) == [char]
    assert visible_json({char: char}, indent=2).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "text", ["", "public.orders", "Größe 北京 🚀", "e\u0301", "[red]x[/red]", "C:\\x \\x1b", "'\"`"]
)
def test_other_text_stands_as_it_is(text):
    assert visible(text) == text
    assert text in visible_json(text) or json.loads(visible_json(text)) == text


@given(st.text(st.characters(), max_size=20))
def test_any_text_is_one_line_that_can_be_seen(text):
    shown = visible(text)
    assert shown.isprintable()
    assert visible(shown) == shown
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in shown)


@given(st.recursive(st.text(st.characters(), max_size=8), lambda inner: st.dictionaries(st.text(max_size=4), inner)))
def test_json_is_read_as_what_was_written(values):
    for indent in (None, 2):
        text = visible_json(values, indent=indent)
        assert json.loads(text) == values
        assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("char", STEERING, ids=ascii)
@pytest.mark.parametrize("kind", [CaptureError, ConfigError, TargetError])
def test_an_error_is_one_line_whatever_its_names_are_and_keeps_them(kind, char):
    name = f"a{char}b"
    error = kind(f"the column {name} is bad", path=name, table=name, offset=3, remedy=f"Look at {name}")
    shown = visible(name)
    assert str(error) == f"{shown}, offset 3, table {shown}: the column {shown} is bad. Look at {shown}"
    assert error.table == name
