import bz2
import gzip

import lz4.frame
import pyarrow as pa
import pytest
import zstandard

from support.captures import case
from support.framings import frame, transaction
from walreplay import read_changes
from walreplay.changes import decode_plan, plan_files
from walreplay.errors import CaptureError, ConfigError, FramingError, MalformedMessage, OrderError
from walreplay.lsn import POSTGRES_EPOCH_UNIX_MICROS
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

META = ["__op", "__commit_lsn", "__commit_ts", "__xid", "__ordinal"]


def write(path, messages, framing=Framing.RAW):
    path.write_bytes(frame(messages, framing))
    return path


def text(*values):
    kinds = [m.Cell("t", v) if isinstance(v, bytes) else m.UNCHANGED_CELL if v == "u" else m.NULL_CELL for v in values]
    return m.TupleData(tuple(kinds))


TABLE = m.Relation(9, "shop", "t", "d", (m.Column("id", 23, -1, True), m.Column("note", 25, -1, False)))


def test_columns_are_the_metadata_then_the_relations_typed(tmp_path):
    path = write(tmp_path / "a", transaction(100, TABLE, m.Insert(9, text(b"1", b"x"))))
    (batch,) = read_changes(path)
    assert batch.relation == TABLE
    assert batch.data.schema.names == [*META, "id", "note"]
    assert batch.data.schema.types == [
        pa.string(),
        pa.int64(),
        pa.timestamp("us", "UTC"),
        pa.int64(),
        pa.int64(),
        pa.int32(),
        pa.string(),
    ]
    (row,) = batch.data.to_pylist()
    assert (row["__op"], row["__commit_lsn"], row["__xid"], row["__ordinal"]) == ("c", 100, 100, 0)
    assert batch.data.column("__commit_ts").cast(pa.int64()).to_pylist() == [POSTGRES_EPOCH_UNIX_MICROS + 100]
    assert (row["id"], row["note"]) == (1, "x")


def test_each_operation_gives_a_row_and_a_delete_has_its_key(tmp_path):
    changes = [
        m.Insert(9, text(b"1", b"x")),
        m.Update(9, text(b"1", b"y")),
        m.Delete(9, key=text(b"1", None)),
        m.Truncate((9,), 0),
    ]
    (batch,) = read_changes(write(tmp_path / "a", transaction(100, TABLE, *changes)))
    assert batch.data.column("__op").to_pylist() == ["c", "u", "d", "t"]
    assert batch.data.column("__ordinal").to_pylist() == [0, 1, 2, 3]
    assert batch.data.column("id").to_pylist() == [1, 1, 1, None]


def test_unchanged_is_told_from_null(tmp_path):
    changes = [m.Update(9, text(b"1", None)), m.Update(9, text(b"2", "u"))]
    (batch,) = read_changes(write(tmp_path / "a", transaction(100, TABLE, *changes)))
    assert batch.data.column("note").to_pylist() == [None, None]
    assert {name: mask.to_pylist() for name, mask in batch.unchanged.items()} == {"note": [False, True]}


def test_an_unchanged_value_that_the_old_row_has_is_known(tmp_path):
    full = m.Relation(9, "shop", "t", "f", (m.Column("id", 23, -1, True), m.Column("note", 25, -1, True)))
    change = m.Update(9, text(b"1", "u"), old=text(b"1", b"long"))
    (batch,) = read_changes(write(tmp_path / "a", transaction(100, full, change)))
    assert batch.data.column("note").to_pylist() == ["long"]
    assert batch.unchanged == {}


def test_an_old_key_stands_in_before(tmp_path):
    changes = [m.Insert(9, text(b"1", b"x")), m.Update(9, text(b"2", b"x"), key=text(b"1", None))]
    (batch,) = read_changes(write(tmp_path / "a", transaction(100, TABLE, *changes)))
    assert batch.before.to_pylist() == [{"__row": 1, "id": 1, "note": None}]


def test_what_a_type_cannot_hold_is_rescued(tmp_path):
    relation = m.Relation(9, "s", "t", "d", (m.Column("id", 23, -1, True), m.Column("d", 1082, -1, False)))
    changes = [m.Insert(9, text(b"1", b"infinity")), m.Insert(9, text(b"2", b"2026-02-03"))]
    (batch,) = read_changes(write(tmp_path / "a", transaction(100, relation, *changes)))
    assert batch.data.column("d").null_count == 1
    assert batch.rescued.to_pylist() == ['{"d":"infinity"}', None]


def test_a_transaction_that_has_not_ended_is_left_out(tmp_path):
    unfinished = [m.Begin(200, 6, 2), m.Insert(9, text(b"2", b"y"))]
    messages = [*transaction(100, TABLE, m.Insert(9, text(b"1", b"x"))), *unfinished]
    (batch,) = read_changes(write(tmp_path / "a", messages))
    assert batch.data.column("id").to_pylist() == [1]


def test_each_version_of_a_relation_has_batches_of_its_own(tmp_path):
    wider = m.Relation(9, "shop", "t", "d", (*TABLE.columns, m.Column("more", 16, -1, False)))
    messages = transaction(100, TABLE, m.Insert(9, text(b"1", b"x")), wider, m.Insert(9, text(b"2", b"y", b"t")))
    first, second = read_changes(write(tmp_path / "a", messages))
    assert (first.relation, second.relation) == (TABLE, wider)
    assert second.data.column("more").to_pylist() == [True]


@pytest.mark.parametrize(
    "compress", [gzip.compress, bz2.compress, lz4.frame.compress, zstandard.ZstdCompressor().compress]
)
def test_compressed_files_are_read(tmp_path, compress):
    (data,) = case("o01").streams()
    (tmp_path / "a").write_bytes(compress(data[:20_000]))
    (tmp_path / "b").write_bytes(compress(data[20_000:]))
    assert sum(batch.data.num_rows for batch in read_changes(tmp_path)) == 616


def test_many_columns_of_nulls_do_not_overflow_a_tile(tmp_path):
    wide = m.Relation(9, "s", "wide", "d", tuple(m.Column(f"c{n}", 23, -1, n == 0) for n in range(1600)))
    row = text(b"1", *[None] * 1599)
    path = write(tmp_path / "a", transaction(100, wide, *[m.Insert(9, row)] * 50))
    assert sum(batch.data.num_rows for batch in read_changes(path, tile_bytes=1 << 14)) == 50


def test_a_text_file_is_no_capture(tmp_path):
    (tmp_path / "a").write_text("Dear reader, this is not a capture.\n" * 10)
    with pytest.raises(FramingError, match="no pgoutput capture") as caught:
        list(read_changes(tmp_path))
    assert caught.value.path == str(tmp_path / "a")
    assert caught.value.remedy


def test_a_row_of_an_unknown_relation_is_refused(tmp_path):
    path = write(tmp_path / "a", transaction(100, m.Insert(9, text(b"1", b"x"))))
    with pytest.raises(CaptureError, match="relation 9"):
        list(read_changes(path))


def test_a_damaged_length_is_not_taken_for_a_torn_tail(tmp_path):
    data = bytearray(frame(transaction(100, TABLE, m.Insert(9, text(b"1", b"some note"))), Framing.RAW))
    at = data.index(b"some note") - 4
    data[at] = 0x10
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(MalformedMessage, match="damaged"):
        list(read_changes(tmp_path))


def test_transactions_out_of_order_are_refused(tmp_path):
    messages = transaction(200, TABLE, m.Insert(9, text(b"1", b"x"))) + transaction(100, m.Insert(9, text(b"2", b"x")))
    with pytest.raises(OrderError, match=r"0/64. lies below what was read before"):
        list(read_changes(write(tmp_path / "a", messages)))


def test_a_file_that_changed_after_it_was_planned_is_refused(tmp_path):
    path = write(tmp_path / "a", transaction(100, TABLE, m.Insert(9, text(b"1", b"x"))))
    plan = plan_files([str(path)])
    with pytest.raises(OrderError, match="has changed"):
        list(decode_plan(plan, lambda _: path.read_bytes()[:-1] + b"!"))


def test_an_unknown_framing_is_a_usage_error(tmp_path):
    write(tmp_path / "a", transaction(100, TABLE))
    with pytest.raises(ConfigError, match="no framing is called 'tar'"):
        list(read_changes(tmp_path, framing="tar"))


LATIN1 = [
    m.Type(90, "shop", "gr@sse"),
    m.Relation(9, "shop", "str@sse", "d", (m.Column("h@hl", 23, -1, True), m.Column("n@me", 25, -1, False))),
    m.Insert(9, text(b"1", b"M\xfcller")),
]


def in_latin1(path, messages=LATIN1, framing=Framing.RAW):
    path.write_bytes(frame(transaction(100, *messages), framing).replace(b"@", b"\xf6"))
    return path


@pytest.mark.parametrize("framing", list(Framing))
def test_text_and_names_are_read_in_the_encoding_that_is_named(tmp_path, framing):
    (batch,) = read_changes(in_latin1(tmp_path / "a", framing=framing), source_encoding="LATIN1")
    assert batch.relation.qualified_name == "shop.strösse"
    assert batch.data.schema.names == [*META, "höhl", "nöme"]
    assert batch.data.column("nöme").to_pylist() == ["Müller"]


@pytest.mark.parametrize("framing", list(Framing))
@pytest.mark.parametrize("messages", [LATIN1, [TABLE, LATIN1[-1]], LATIN1[:1]])
def test_without_it_the_error_names_the_setting(tmp_path, framing, messages):
    path = in_latin1(tmp_path / "a", messages, framing)
    with pytest.raises(CaptureError, match=r"UTF-8.*source_encoding") as caught:
        list(read_changes(path))
    assert caught.value.path == str(path)


def test_an_encoding_that_there_is_none_of_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigError, match="LATIN11"):
        list(read_changes(in_latin1(tmp_path / "a"), source_encoding="LATIN11"))


def test_a_source_column_that_is_called_like_one_of_ours_gets_a_suffix(tmp_path):
    names = [*META, "__row", "__op__2", "__OP"]
    columns = (m.Column("id", 23, -1, True), *(m.Column(name, 25, -1, False) for name in names))
    relation = m.Relation(9, "shop", "t", "d", columns)
    values = [name.encode() for name in names]
    changes = [
        m.Insert(9, text(b"1", *values)),
        m.Update(9, text(b"2", *values[:-1], "u"), key=text(b"1", *[None] * len(names))),
    ]
    own = ["id", *(f"{name}__2" for name in META), "__row__2", "__op__2__2", "__OP"]
    for cut in (None, "a second file"):
        path = write(tmp_path / "a", transaction(100, relation, *changes))
        if cut:
            (tmp_path / "b").write_bytes(path.read_bytes()[200:])
            path.write_bytes(path.read_bytes()[:200])
        (batch,) = read_changes(tmp_path)
        assert batch.data.schema.names == [*META, *own]
        assert batch.before.schema.names == ["__row", *own]
        assert (batch.ops.to_pylist(), batch.commit_lsns.to_pylist()) == (["c", "u"], [100, 100])
        assert [column.to_pylist()[0] for column in batch.columns] == [1, *names]
        assert (batch.before_rows.to_pylist(), batch.before_columns[0].to_pylist()) == ([1], [1])
        assert batch.unchanged["__OP"].to_pylist() == [False, True]


@pytest.mark.parametrize(
    "ending", [[], [m.RollbackPrepared(0, 108, 116, 0, 0, 1, "g")], [m.CommitPrepared(0, 300, 308, 0, 1, "g")]]
)
def test_a_type_that_a_prepared_transaction_announces_holds_behind_it_whatever_becomes_of_it(tmp_path, ending):
    # The server announces a relation once in a session; 16408 is a domain over text[].
    table = m.Relation(9, "shop", "t", "d", (m.Column("id", 23, -1, True), m.Column("words", 16408, -1, False)))
    row = m.Insert(9, text(b"1", b"{a,NULL}"))
    prepared = [m.BeginPrepare(100, 108, 0, 1, "g"), m.Type(16408, "", "_text"), table, row]
    path = write(tmp_path / "a", [*prepared, m.Prepare(0, 100, 108, 0, 1, "g"), *transaction(200, row), *ending])
    found = [words for batch in read_changes(path) for words in batch.data.column("words").to_pylist()]
    assert found == [["a", None]] * (2 if m.CommitPrepared in map(type, ending) else 1)
