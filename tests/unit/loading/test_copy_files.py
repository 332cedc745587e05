"""Files of COPY: what they are taken apart to, wherever chunks and ranges are cut."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walreplay.errors import CaptureError, ConfigError, NotSupported
from walreplay.loading import copy_files
from walreplay.loading.copy_files import range_of, read_cells
from walreplay.loading.description import table_of
from walreplay.loading.formats import BINARY, CSV, SIGNATURE, TEXT, CopyFormat, CopyOptions, copy_options, header_of

Rows = list[list[bytes | None]]

TEXTS = st.text(st.sampled_from("ab\\\t\n\r\"',N.xé0 "), max_size=6).map(str.encode)
VALUES = st.one_of(st.none(), TEXTS)


def taken(data: bytes, form: CopyFormat, fields: int, **place: int) -> Rows:
    """Return the rows of a file, field by field."""
    rows: Rows = []
    for cells in read_cells(data, form, fields, "f", **place):
        for row in range(cells.rows):
            at = range(row * fields, (row + 1) * fields)
            rows.append([_cell(cells, number) for number in at])
    return rows


def _cell(cells, number: int) -> bytes | None:
    start, length = int(cells.offset[number]), int(cells.length[number])
    if length == -1:
        return None
    return cells.buf[start : start + (length if length >= 0 else -3 - length)].tobytes()


def as_text(rows: Sequence[Sequence[bytes | None]], delimiter: str = "\t", null: str = "\\N") -> bytes:
    """Write rows as COPY TO does in text format."""
    signs = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\v": "\\v"}
    signs |= {delimiter: signs.get(delimiter, f"\\{delimiter}")}

    def field(value: bytes | None) -> str:
        return null if value is None else "".join(signs.get(sign, sign) for sign in value.decode())

    return "".join(delimiter.join(map(field, row)) + "\n" for row in rows).encode()


def as_csv(rows: Sequence[Sequence[bytes | None]]) -> bytes:
    """Write rows as COPY TO does in CSV."""

    def field(value: bytes | None, *, alone: bool) -> str:
        if value is None:
            return ""
        text = value.decode()
        if not text or any(sign in text for sign in ',"\n\r') or (alone and text == "\\."):
            return '"' + text.replace('"', '""') + '"'
        return text

    return "".join(",".join(field(value, alone=len(row) == 1) for value in row) + "\n" for row in rows).encode()


def as_binary(rows: Sequence[Sequence[bytes | None]]) -> bytes:
    """Write rows as COPY TO does in binary format."""
    parts = [SIGNATURE, bytes(8)]
    for row in rows:
        parts.append(len(row).to_bytes(2, "big"))
        for value in row:
            parts.append(b"\xff\xff\xff\xff" if value is None else len(value).to_bytes(4, "big") + value)
    return b"".join([*parts, b"\xff\xff"])


WRITERS = [(as_text, TEXT), (as_csv, CSV), (as_binary, BINARY)]
NAMES = ["text", "csv", "binary"]


@pytest.fixture(params=[1, 2, 7, 64, 1 << 20])
def chunk(request, monkeypatch):
    monkeypatch.setattr(copy_files, "CHUNK", request.param)


@pytest.mark.parametrize(("write", "form"), WRITERS, ids=NAMES)
@given(
    rows=st.integers(1, 3).flatmap(lambda n: st.lists(st.lists(VALUES, min_size=n, max_size=n), max_size=8)),
    size=st.integers(1, 40),
)
def test_rows_are_what_copy_wrote_however_they_are_cut(write, form, rows, size):
    fields = len(rows[0]) if rows else 1
    before, copy_files.CHUNK = copy_files.CHUNK, size
    try:
        assert taken(write(rows), form, fields) == rows
    finally:
        copy_files.CHUNK = before


@given(
    rows=st.lists(st.lists(VALUES, min_size=2, max_size=2), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 200), max_size=5),
)
def test_ranges_of_text_meet_at_rows(rows, cuts):
    data = as_text(rows)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found: Rows = []
    for start, stop in pairwise(edges):
        low, high = range_of(memoryview(data), start, stop)
        found += taken(data, TEXT, 2, start=low, stop=high)
    assert found == rows


@given(rows=st.lists(st.lists(TEXTS, min_size=2, max_size=2), max_size=6))
def test_csv_of_others_is_read_as_well(rows):
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([[value.decode() for value in row] for row in rows])
    assert taken(out.getvalue().encode(), CSV, 2) == rows


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (rb"\101\60\x41\x4a\x7" + b"\n", [[b"A0AJ\x07"]]),
        (rb"\q\b\f\v\." + b"\n", [[b"q\b\f\v."]]),
        (b"a\\\nb\n", [[b"a\nb"]]),
        (b"\\\\N\n\\N\n\\N \n", [[b"\\N"], [None], [b"N "]]),
        (b"\n\n", [[b""], [b""]]),
        (b"a\r\nb\r\n", [[b"a"], [b"b"]]),
        (b"a\n\\.\n", [[b"a"]]),
        (b"a\n\\.", [[b"a"]]),
        (b"", []),
        (b"\\\\\n", [[b"\\"]]),
    ],
)
def test_text_as_copy_from_reads_it(data, rows, chunk):
    assert taken(data, TEXT, 1) == rows


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b'"",\n', [[b"", None]]),
        (b'x"y,"z,\n', [[b"xy,z", None]]),
        (b'"a\r\nb",c\r\n', [[b"a\r\nb", b"c"]]),
        (b'"a""",""""\n', [[b'a"', b'"']]),
        (b'\\N,"\\."\n\\.\n', [[b"\\N", b"\\."]]),
    ],
)
def test_csv_as_copy_from_reads_it(data, rows, chunk):
    assert taken(data, CSV, 2) == rows


def test_csv_with_its_own_signs(chunk):
    form = CopyFormat("csv", delimiter=";", null="NULL", quote="'", escape="\\")
    data = b"'it\\'s; \\\\ \n';NULL\n'NULL';x\\y\n"
    assert taken(data, form, 2) == [[b"it's; \\ \n", None], [b"NULL", b"x\\y"]]


def test_text_with_its_own_signs():
    form = CopyFormat("text", delimiter="|", null="")
    assert taken(as_text([[b"a|b", None], [b"\t", b"c"]], "|", ""), form, 2) == [[b"a|b", None], [b"\t", b"c"]]


@pytest.mark.parametrize(("write", "form"), WRITERS, ids=NAMES)
@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress])
def test_compressed_files_are_read(write, form, compress):
    rows: Rows = [[str(number).encode(), None] for number in range(5000)]
    assert taken(compress(write(rows)), form, 2) == rows


def test_a_row_larger_than_many_chunks_is_read(monkeypatch):
    monkeypatch.setattr(copy_files, "CHUNK", 16)
    rows: Rows = [[b"x" * 5000], [b"y"], [b"z\n" * 900]]
    for write, form in WRITERS:
        assert taken(write(rows), form, 1) == rows


def test_tables_without_columns_have_rows():
    for write, form in WRITERS:
        cells = list(read_cells(write([[], [], []]), form, 0, "f"))
        assert sum(part.rows for part in cells) == 3


@pytest.mark.parametrize(
    ("form", "data", "problem", "offset"),
    [
        (TEXT, b"a\tb\na\n", "a row has 1 fields where 2 are expected", 4),
        (TEXT, b"a\tb\na\tb\tc\n", "a row has more fields where 2 are expected", 4),
        (TEXT, b"a\tb\nsecret\rx\tb\n", "a carriage return stands in the middle", 4),
        (TEXT, b"a\tb\\", "the data end with a backslash", 0),
        # What COPY FROM would take: COPY TO ends each row with a newline.
        (TEXT, b"a\tb\na\tb", "the last row has no newline", 4),
        (TEXT, b"a\tb\na\tb\\\n", "the last row has no newline", 4),
        (TEXT, b"a\tb\r\na\tb\r", "the last row has no newline", 5),
        (CSV, b"a,b\na,b", "the last row has no newline", 4),
        (CSV, b'a,b\n"a\n",b', "the last row has no newline", 4),
        (TEXT, b"a\tb\n\\.\nc\td\n", "there is more behind the marker", 7),
        (CSV, b'a,b\n"c,d\n', "a quoted field has no end", 4),
        (CSV, b"a,b\na\n", "a row has 1 fields", 4),
        (BINARY, SIGNATURE + bytes(8), "the data end early", 19),
        (BINARY, as_binary([[b"a", b"b"]])[:-5], "the data end inside of a row", 19),
        (BINARY, as_binary([[b"a", b"b"]]) + b"x", "there is more behind the marker", 33),
        (BINARY, as_binary([[b"a"]]), "a row has 1 fields", 19),
        (BINARY, SIGNATURE + bytes(8) + b"\0\2\xff\xff\xff\xfe", "a field's length is negative", 19),
    ],
)
def test_what_is_no_copy_is_refused_with_its_place(form, data, problem, offset, chunk):
    with pytest.raises(CaptureError) as caught:
        taken(data, form, 2)
    assert caught.value.problem.startswith(problem)
    assert caught.value.offset == offset
    assert "secret" not in str(caught.value)


def test_rows_with_oids_are_refused():
    with pytest.raises(NotSupported, match="OIDs"):
        taken(SIGNATURE + (1 << 16).to_bytes(4, "big") + bytes(4), BINARY, 1)


def test_a_files_format_is_told_by_its_bytes_and_name():
    options = CopyOptions()
    assert options.format_of("t.copy", b"a").kind == "text"
    assert options.format_of("t.csv.gz", b"a").kind == "csv"
    assert options.format_of("t.csv", SIGNATURE).kind == "binary"
    with pytest.raises(CaptureError, match="is in COPY's binary format"):
        CopyOptions("text").format_of("t", SIGNATURE)
    with pytest.raises(NotSupported, match="cp932"):
        options.format_of("t.csv", b"a", "cp932")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (None, CopyOptions()),
        ("", CopyOptions()),
        ("format csv, header, delimiter ';', null '\\N'", CopyOptions("csv", ";", "\\N", header=True)),
        ("WITH (FORMAT CSV, HEADER true, QUOTE '''', ESCAPE '\\')", CopyOptions("csv", None, None, "'", "\\", True)),
        ('format CSV, null NA, quote "\'"', CopyOptions("csv", null="na", quote="'")),
        (r"(delimiter E'\t',null E'\x4e\101\'',header off)", CopyOptions(None, "\t", "NA'")),
        ("format 'csv', header match, null ''", CopyOptions("csv", null="", header=True)),
        ("null 'a,b', delimiter '('", CopyOptions(delimiter="(", null="a,b")),
    ],
    ids=repr,
)
def test_copys_options_are_read_in_its_own_syntax(text, options):
    assert copy_options(text) == options


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("formt csv", "formt is no option that says how rows are written. The nearest is format"),
        ("freeze", "There are format, delimiter, null, header, quote, escape"),
        ("encoding 'LATIN1'", "Give source_encoding"),
        ("delimiter", "delimiter has to have a value"),
        ("header maybe", "header has to have one of true, on"),
        ("format parquet", "format has to have one of text, csv, binary"),
        ("delimiter ';", "not a list of COPY's options: delimiter ';"),
        ("format csv header", "not a list of COPY's options"),
        ("null 'a', null 'b'", "null is given twice"),
        (", ,", "Write them as COPY has them"),
    ],
)
def test_what_is_no_option_of_copys_is_refused(text, said):
    with pytest.raises(ConfigError) as caught:
        copy_options(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        CopyOptions(delimiter="ab"),
        CopyOptions(delimiter="."),
        CopyOptions("csv", delimiter='"'),
        CopyOptions(null="\n"),
    ],
)
def test_signs_that_copy_does_not_take_are_refused(options):
    with pytest.raises(ConfigError):
        options.format_of("t", b"")


@pytest.mark.parametrize(
    ("head", "form", "names"),
    [
        (b'a,"b,""c"\n1,2\n', CSV, ["a", 'b,"c']),
        (b"a\tb\\tc\n1\t2\n", TEXT, ["a", "b\tc"]),
        (b'"a\nb"\n', CSV, ["a\nb"]),
    ],
)
def test_headers_name_the_columns(head, form, names):
    found, start = header_of(head, form, "utf-8", "f")
    assert found == names
    assert head[:start].endswith(b"\n")


@pytest.mark.parametrize("form", [TEXT, CSV], ids=["text", "csv"])
def test_a_header_in_another_encoding_is_refused_without_its_bytes(form):
    with pytest.raises(CaptureError, match="is not UTF-8") as caught:
        header_of(b"id\tsecret\xe9\n", form, "utf-8", "f")
    assert caught.value.__cause__ is None
    assert "secret" not in str(caught.value)


TABLES = {"shop.orders", "shop.order items", "shop.a/b", "app.v1.2", "app.v1", "x.app.v1"}
TABLES |= {"shop.%41", "shop.%2541", "shop.Orders", "shop.t.csv", "_an.ev", "shop._t", ".dot._t"}


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("file:/base/shop.orders.copy", "shop.orders"),
        ("file:/base/shop.orders.0001.csv.gz", "shop.orders"),
        ("file:/base/shop.orders/part-3.bin", "shop.orders"),
        ("file:/base/shop/orders.csv", "shop.orders"),
        ("file:/base/shop/orders/7", "shop.orders"),
        ("file:/base/shop.order items", "shop.order items"),
        ("file:/base/shop.a%2Fb.copy", "shop.a/b"),
        ("file:/base/app.v1.2.copy", "app.v1.2"),
        # As base.sh names files: a dot within a name is encoded, and two long names make a folder.
        ("file:/base/app.v1%2E2.copy.zst", "app.v1.2"),
        ("file:/base/shop/order%20items.copy", "shop.order items"),
        ("file:/base/shop.%2541.copy", "shop.%41"),
        ("file:/base/shop.%252541.copy", "shop.%2541"),
        ("file:/base/x/app%2Ev1.copy", "x.app.v1"),
        ("file:/base/shop.Orders.csv", "shop.Orders"),
        ("file:/base/shop.t%2Ecsv.copy.gz", "shop.t.csv"),
        # What is hidden is a table's if that is called so.
        ("file:/base/%5Fan.ev.copy", "_an.ev"),
        ("file:/base/_an.ev.0001.copy", "_an.ev"),
        ("file:/base/_an/ev/0001.copy", "_an.ev"),
        ("file:/base/shop/_t.copy", "shop._t"),
        ("file:/base/.dot._t.copy", ".dot._t"),
        ("file:/base/shop.orders/_SUCCESS", None),
        ("file:/base/shop.orders/.part-1.parquet.crc", None),
        ("file:/base/shop.orders/_temporary/0/part-1.parquet", None),
        ("file:/base/_temporary/shop.orders.copy", None),
        ("file:/base/.shop.orders.copy", None),
    ],
)
def test_a_file_is_named_by_its_table(path, table):
    assert table_of(path, "file:/base", TABLES) == table


def test_a_file_of_no_table_is_refused():
    with pytest.raises(ConfigError, match="named like none"):
        table_of("file:/base/shop.order.copy", "file:/base", TABLES)


@pytest.mark.parametrize("form", [TEXT, CSV])
def test_a_file_that_is_cut_anywhere_within_a_row_is_refused(form):
    row = b'1\tone\\\n"\t\\N\n' if form is TEXT else b'1,"a\n\r\n""",x\n'
    data = row * 3
    fields = 3
    whole = taken(data, form, fields)
    for cut in range(1, len(data)):
        if cut % len(row) == 0:
            assert taken(data[:cut], form, fields) == whole[: cut // len(row)]
            continue
        with pytest.raises(CaptureError) as caught:
            taken(data[:cut], form, fields)
        assert caught.value.offset == cut // len(row) * len(row)


def test_rows_whose_end_has_to_be_marked_are_refused_without_the_marker():
    assert len(taken(b"a\nb\n\\.\n\n\n", TEXT, 1, is_marked=True)) == 2
    for cut in (b"", b"a\n", b"a\nb\n"):
        with pytest.raises(CaptureError, match="the marker of their end is missing"):
            taken(cut, TEXT, 1, is_marked=True)
