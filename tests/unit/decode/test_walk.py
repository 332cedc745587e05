import struct

import numpy as np
import pytest

from support.captures import case, cases
from support.framings import reframe
from support.rows import rows_by_reader, rows_by_walk
from walreplay.decode.kernels import walk_words as words
from walreplay.decode.kernels.frames import Outcome
from walreplay.decode.walk import RelationSlots, WalkKernel, truncate_digest
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

ORDINARY = [item for item in cases() if item.name[:3] not in ("o18", "o19", "o26")]
"""Captures of one session without streamed or two-phase transactions."""


@pytest.mark.parametrize("recorded", ORDINARY, ids=lambda item: item.name[:3])
@pytest.mark.parametrize("tile_bytes", [1 << 20, 5000])
def test_the_walk_and_the_scalar_reader_find_the_same_rows(recorded, tile_bytes):
    (data,) = recorded.streams()
    rows = rows_by_walk(data, recorded.framing, tile_bytes)
    assert rows == list(rows_by_reader(data, recorded.framing))
    assert rows


@pytest.mark.parametrize("framing", list(Framing))
def test_the_framing_makes_no_difference(framing):
    recorded = case("o12")
    (data,) = recorded.streams()
    expected = list(rows_by_reader(data, recorded.framing))
    assert rows_by_walk(reframe(data, recorded.framing, framing), framing, 4096) == expected


def test_ledgers_have_a_truncates_digest_whichever_subtransaction_it_is_of():
    assert [truncate_digest(m.Truncate((16401, 7), 1, xid), 3) for xid in (None, 9)] == [1_397_892] * 2


def test_a_relation_gets_a_slot_for_each_of_its_versions():
    slots = RelationSlots()
    assert [slots.add(7, 2), slots.add(9, 1), slots.add(7, 3)] == [0, 1, 2]
    assert (slots.slot_of(7), slots.slot_of(9), slots.slot_of(8)) == (2, 1, None)
    assert slots.columns[:3, 0].tolist() == [2, 1, 3]


def test_more_relations_than_a_table_holds_make_it_grow():
    slots = RelationSlots()
    for oid in range(1000, 2000):
        slots.add(oid, 1)
    assert all(slots.slot_of(oid) == oid - 1000 for oid in range(1000, 2000))


def test_a_kernel_without_tiles_keeps_no_arrays():
    assert len(WalkKernel(Framing.RAW)._offset) == 0


def _outcome_of_text(text: bytes, around: int) -> Outcome:
    """Walk an insert of one text, with other bytes around it."""
    message = b"I" + struct.pack(">IcHcI", 7, b"N", 1, b"t", len(text)) + text
    before = 16
    data = np.frombuffer(bytes([around]) * before + message + bytes([around]) * 48, np.uint8)
    kernel = WalkKernel(Framing.RAW)
    kernel.slots.add(7, 1)
    kernel.state[words.POS], kernel.state[words.TXN] = before, words.OPEN
    end = before + len(message)
    return kernel.walk(data, end, end)


@pytest.mark.parametrize("size", [*range(40), 64, 65, 100])
def test_a_nul_is_seen_wherever_it_stands_in_a_text_and_nowhere_else(size: int) -> None:
    for around in (0, 1, 255):
        for fill in (1, 128, 255):
            text = bytearray([fill]) * size
            assert _outcome_of_text(text, around) == Outcome.DONE
            for at in range(size):
                text[at] = 0
                assert _outcome_of_text(text, around) == Outcome.NUL_IN_TEXT
                text[at] = fill
