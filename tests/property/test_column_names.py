"""What columns are called changes nothing but what they are called."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from support.batches import batch_of, row
from support.hostile_names import NAMES
from walreplay.decode.change_batch import METADATA_NAMES, ROW, ChangeBatch, field_names
from walreplay.decode.masking import Shown, show
from walreplay.fold.events import Events, Identity, Mode, events_of
from walreplay.protocol import messages as m
from walreplay.types import resolve

COLUMNS = 4

_names = st.lists(
    st.one_of(st.sampled_from([*METADATA_NAMES, ROW, "__op__2", "__op__3"]), st.sampled_from(NAMES)),
    min_size=COLUMNS,
    max_size=COLUMNS,
    unique=True,
)


def _relation(names: list[str], identity: str) -> m.Relation:
    types = (23, 25, 1082, 25)
    columns = [m.Column(name, types[n], -1, identity == "f" or n == 0) for n, name in enumerate(names)]
    return m.Relation(9, "s", "t", identity, tuple(columns))


def _batch(names: list[str], identity: str) -> ChangeBatch:
    old = {"old": row(b"2", b"b", b"2000-01-01", b"x")} if identity == "f" else {"key": row(b"2", None, None, None)}
    sent = row(b"3", b"c", b"infinity", b"y")
    return batch_of(
        _relation(names, identity),
        m.Insert(9, row(b"1", b"a", b"infinity", None)),
        m.Insert(9, row(b"2", b"b", b"2000-01-01", b"x")),
        m.Update(9, m.TupleData((*sent.cells[:3], m.UNCHANGED_CELL)) if identity == "d" else sent, **old),
        m.Delete(9, **old),
    )


def _told(events: Events, names: list[str]) -> list[object]:
    """Put events into plain values; what is rescued by the columns' numbers."""

    def numbered(texts: pa.Array | None) -> list[object]:
        found = [json.loads(text or "{}") for text in ([] if texts is None else texts.to_pylist())]
        return [{names.index(name): text for name, text in one.items()} for one in found]

    return [
        [column.to_pylist() for column in events.columns],
        [events.lsn.to_pylist(), events.ts.to_pylist(), events.action.tolist(), events.expected.tolist()],
        {number: mask.tolist() for number, mask in events.unchanged.items()},
        None if events.old_key is None else [column.to_pylist() for column in events.old_key],
        numbered(events.rescued),
        numbered(events.old_rescued),
    ]


@given(_names, _names, st.sampled_from("df"))
def test_columns_become_the_same_events_whatever_they_are_called(
    names: list[str], shown_as: list[str], identity: str
) -> None:
    plain = [f"column {n}" for n in range(COLUMNS)]
    found, expected = _batch(names, identity), _batch(plain, identity)
    assert [column.to_pylist() for column in found.columns] == [column.to_pylist() for column in expected.columns]
    keyed = Identity(Mode.KEYED, (0,)) if identity == "d" else Identity(Mode.MULTISET)
    assert _told(events_of(found, keyed), names) == _told(events_of(expected, keyed), plain)
    # Without the first row, masked, and under other names.
    parts = [(found.slice(1, 4), shown_as), (expected.slice(1, 4), plain)]
    masked = ((1, resolve(25, -1, {})),)
    told = []
    for batch, called in parts:
        relation = replace(
            batch.relation,
            columns=tuple(replace(one, name=name) for one, name in zip(batch.relation.columns, called, strict=True)),
        )
        showing = show(batch, Shown(relation, tuple(range(COLUMNS)), masked), b"salt")
        assert showing.data.schema.names == [*METADATA_NAMES, *field_names(relation)]
        told.append(_told(events_of(showing, keyed), called))
    assert told[0] == told[1]


@given(st.lists(st.one_of(_names.map(lambda names: names[0]), st.text(min_size=1, max_size=3)), unique=True))
def test_no_two_fields_of_a_batch_have_one_name_and_others_keep_theirs(names: list[str]) -> None:
    fields = field_names(m.Relation(1, "s", "t", "d", tuple(m.Column(name, 25, -1, False) for name in names)))
    own = [*METADATA_NAMES, ROW]
    assert len({*fields, *own}) == len(fields) + len(own)
    for name, field in zip(names, fields, strict=True):
        assert field == name or (field.startswith(f"{name}__") and any(name.startswith(one) for one in own))
    if not any(name.startswith(tuple(own)) for name in names):
        assert fields == names
