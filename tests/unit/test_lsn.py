"""LSNs as people write them."""

import pytest

from walreplay.lsn import format_lsn, parse_lsn


@pytest.mark.parametrize("lsn", [0, 1, 0xFFFFFFFF, 1 << 32, (1 << 64) - 1])
def test_an_lsn_is_read_as_it_was_written(lsn):
    assert parse_lsn(format_lsn(lsn)) == lsn
    assert parse_lsn(f" {format_lsn(lsn).lower()}\n") == lsn


@pytest.mark.parametrize(
    "text", ["", "16", "16/", "/B374D848", "16/B374D848/0", "16/B374D8480", "0x16/0", "-1/0", "G/0"]
)
def test_what_is_no_lsn_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="write it like 16/B374D848"):
        parse_lsn(text)
