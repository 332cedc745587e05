"""What is no capture is named as what it is, by its own name, and with a remedy that its reader can follow."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.captures import case
from support.framings import FORMS, Form
from walreplay import read_changes
from walreplay.archive.messages import inspect_captures, transcribe
from walreplay.cli import main
from walreplay.decode.files import recognise
from walreplay.errors import CaptureError, FramingChange, FramingError, NotACapture, WalReplayError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import PGCOPY_SIGNATURE, Framing

FAULTS: Final = Path(__file__).parents[2] / "faults"

READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "read_changes": lambda paths: list(read_changes(paths)),
    "inspect": inspect_captures,
    "inspect --messages": lambda paths: list(transcribe(paths)),
}


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"data": [b"B"] * 100}), sink)
    return sink.getvalue()


def tar_of(content: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        info = tarfile.TarInfo("captures/0001.bin")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return sink.getvalue()


def zip_of(content: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("0001.bin", content)
    return sink.getvalue()


RAW: Final = case("o01").files[0].read_bytes()
HEX: Final = "\\x" + RAW[:40].hex()

FOREIGN: Final[dict[str, tuple[bytes, str]]] = {
    "wal2json": (b'{"change":[{"kind":"insert","schema":"public","table":"t","columnnames":["id"]}]}\n', "wal2json"),
    "wal2json 2": (b'{"action":"B","lsn":"0/16B3748"}\n{"action":"I","schema":"public","table":"t"}\n', "wal2json"),
    "debezium": (b'{"schema":null,"payload":{"before":null,"after":{"id":1},"op":"c"}}\n' * 3, "Debezium"),
    "json": (b'[\n  {"id": 1, "name": "x"}\n, {"id": 2, "name": "y"}]\n' * 2, "JSON"),
    "test_decoding": (b"BEGIN 529\ntable public.t: INSERT: id[integer]:1\nCOMMIT 529\n" * 2, "test_decoding"),
    "pg_dump": (b"--\n-- PostgreSQL database dump\n--\n\nSET statement_timeout = 0;\n" * 2, "pg_dump as SQL"),
    "pg_dump custom": (b"PGDMP\x01\x0e\x00\x04\x08\x01\x01" + bytes(100), "pg_dump in its custom format"),
    "psql": (
        f"    lsn    | xid |  data\n-----------+-----+------\n 0/16B3748 | 740 | {HEX}\n".encode(),
        "hexadecimal text",
    ),
    "copy text": (f"0/16B3748\t740\t\\{HEX}\n0/16B3748\t740\t\\{HEX}\n".encode(), "hexadecimal text"),
    "hex": (RAW[:200].hex().encode() + b"\n", "hexadecimal text"),
    "base64": (b"QgAAAAAB" + b"a3N0cmluZw" * 20 + b"\n", "base64 text"),
    "csv": (b"id,name,lsn\n1,Rita Moreno,0/16B3748\n2,Mona,0/16B3750\n3,Olga,0/16B3758\n", "but text"),
    "report": (b"Report of the night's run: all went well, and nothing was left to be done about it.\n", "but text"),
    "orders": (b"Once upon a time there was a file that was text from its first to its last byte.\n", "but text"),
    "md": (b"# Captures\n\nWhat is in this folder, and who wrote it: see the wiki, or ask Rita.\n\n", "but text"),
    "dk": (b"datexw and what comes behind it: a text that begins as a CopyData frame would begin.\n", "but text"),
    "kt": (b"k\twhat comes behind it: a text that begins as a walsender's keepalive would begin it\n", "but text"),
    "utf-16": ("﻿BEGIN and so on, as PowerShell has it".encode("utf-16-le"), "UTF-16"),
    "parquet": (parquet(), "a Parquet file"),
    "avro": (b"Obj\x01\x04\x14avro.codec\x08null\x16avro.schema" + bytes(100), "an Avro file"),
    "tar": (tar_of(RAW), "a tar archive"),
    "tar.gz": (gzip.compress(tar_of(RAW)), "a tar archive, compressed with gzip"),
    "json.gz": (gzip.compress(b'{"id": 1, "name": "x"}\n' * 10), "JSON, compressed with gzip"),
    "gzip of gzip": (gzip.compress(gzip.compress(RAW)), "data compressed with gzip once more, compressed with gzip"),
    "bz2 of gzip": (bz2.compress(gzip.compress(RAW)), "gzip once more"),
    "zip": (zip_of(RAW), "a ZIP archive"),
    "xz": (b"\xfd7zXZ\x00\x00\x04" + bytes(100), "compressed with xz"),
    "wal": (b"\x13\xd1\x02\x00\x01\x00\x00\x00\x00\x00\x00\x03" + bytes(200), "WAL"),
    "wal_of_10": (b"\x97\xd0\x02\x00\x01\x00\x00\x00\x00\x00\x00\x03" + bytes(200), "WAL"),
    "sqlite": (b"SQLite format 3\x00\x10\x00\x01\x01" + bytes(100), "SQLite"),
    "png": (b"\x89PNG\r\n\x1a\n" + bytes(100), "a picture"),
    "zeros": (bytes(1000), "none of the framings"),
    "copy of others": (
        b"PGCOPY\n\xff\r\n\x00" + bytes(8) + (b"\x00\x04" + b"\x00\x00\x00\x04" * 4) * 9,
        "no pgcopy frame",
    ),
}


def error_of(read: Callable[[Any], Any], paths: Any) -> CaptureError:
    with pytest.raises(CaptureError) as caught:
        read(paths)
    return caught.value


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_named_as_what_it_is(tmp_path: Path, kind: str, reader: str) -> None:
    data, what = FOREIGN[kind]
    (tmp_path / "foreign").write_bytes(data)
    error = error_of(READERS[reader], tmp_path / "foreign")
    assert error.path == str(tmp_path / "foreign")
    if reader != "inspect --messages" or kind != "copy of others":
        assert what in str(error)
    assert "file_pattern" not in str(error)
    assert error.exit_code == 1


@pytest.mark.parametrize("kind", FOREIGN)
def test_inspect_ends_with_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    (tmp_path / "foreign").write_bytes(FOREIGN[kind][0])
    assert main(["inspect", str(tmp_path / "foreign")]) == 1
    assert FOREIGN[kind][1] in capsys.readouterr().err


@pytest.mark.parametrize("framing", [framing for framing in Framing if framing is not Framing.PGCOPY])
@pytest.mark.parametrize("kind", ["report", "orders", "csv", "wal2json"])
def test_naming_a_framing_makes_no_capture_of_a_text(tmp_path: Path, kind: str, framing: Framing) -> None:
    (tmp_path / "foreign").write_bytes(FOREIGN[kind][0])
    with pytest.raises(FramingError):
        inspect_captures(tmp_path / "foreign", framing.value)


@pytest.mark.parametrize("place", ["0", "zz"])
@pytest.mark.parametrize("reader", ["read_changes", "inspect"])
@pytest.mark.parametrize("kind", ["md", "json", "tar", "parquet", "report", "test_decoding"])
def test_a_foreign_file_among_captures_is_named_itself(tmp_path: Path, kind: str, reader: str, place: str) -> None:
    """Wherever it sorts; it is the one to be left out."""
    for number, file in enumerate(case("o04").files):
        (tmp_path / f"cap-{number}").write_bytes(file.read_bytes())
    (tmp_path / place).write_bytes(FOREIGN[kind][0])
    error = error_of(READERS[reader], tmp_path)
    assert (error.path, type(error)) == (str(tmp_path / place), NotACapture)
    assert FOREIGN[kind][1] in str(error)


@pytest.mark.parametrize("reader", ["read_changes", "inspect"])
@pytest.mark.parametrize("content", [b"\n", b"\r\n", b"# captures\n", b"hello", b"x" * 63, b"\n\n\n", b"1\n"], ids=repr)
def test_a_short_foreign_file_that_sorts_first_is_named_itself(tmp_path: Path, reader: str, content: bytes) -> None:
    for form in FORMS:
        if content == b"\n" and form.framing.has_bare_length:
            # As much could be there of a length, before a session broke.
            continue
        folder = tmp_path / form.name
        folder.mkdir()
        (folder / "README.md").write_bytes(content)
        (folder / "cap-0.bin").write_bytes(form.rewrite(case("o20").files[0].read_bytes(), case("o20").framing))
        assert error_of(READERS[reader], folder).path == str(folder / "README.md"), form


@pytest.mark.parametrize("reader", ["read_changes", "inspect"])
@pytest.mark.parametrize("content", [None, b"\n"])
def test_the_recorded_short_foreign_file_is_named_itself(tmp_path: Path, reader: str, content: bytes | None) -> None:
    for file in (FAULTS / "short_foreign_file" / "capture").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    if content is not None:
        (tmp_path / "README.md").write_bytes(content)
    assert error_of(READERS[reader], tmp_path).path == str(tmp_path / "README.md")
    # What the error says to do, works.
    captures = [path for path in sorted(tmp_path.iterdir()) if path.name != "README.md"]
    assert READERS[reader](captures)


EMPTY_COPY: Final = PGCOPY_SIGNATURE + bytes(8) + b"\xff\xff"


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_copy_of_no_rows_is_a_capture_wherever_it_sorts(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    rows = Form(Framing.PGCOPY).rewrite(RAW, case("o01").framing)
    wanted = inspect_captures(case("o01").folder).changes
    for name, files in {"alone": [b""], "first": [b"", rows], "last": [rows, b""], "twice": [b"", b"", rows]}.items():
        (tmp_path / name).mkdir()
        for number, data in enumerate(files):
            (tmp_path / name / str(number)).write_bytes(pack(data or EMPTY_COPY))
        inspection = inspect_captures(tmp_path / name)
        assert inspection.changes == (0 if name == "alone" else wanted)
        assert {file.framing for file in inspection.files} == {"pgcopy"}
        assert bool(list(read_changes(tmp_path / name))) == (name != "alone")


def test_an_empty_file_is_no_capture_to_inspect(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"")
    for reader in ("read_changes", "inspect"):
        assert "the 0 bytes are too few" in str(error_of(READERS[reader], tmp_path)).replace("capture's ", "")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_messages_are_listed_alike_however_the_beginning_is_cut(tmp_path: Path, form: Form) -> None:
    data = form.rewrite(RAW, case("o01").framing)[:3000]
    (tmp_path / "whole").write_bytes(data)
    wanted = [line.message for line in transcribe(tmp_path / "whole")]
    for cut in (1, 2, 5, 11, 19, 20, 22, 26, 30, 44, 47, 63, 70):
        for name, part in (("1", data[:1]), ("2", data[1:cut]), ("3", data[cut:])):
            (tmp_path / name).write_bytes(part)
        assert [line.message for line in transcribe([tmp_path / name for name in "123"])] == wanted, cut


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("kind", ["zeros", "noise", "json", "wal"])
def test_what_is_behind_a_stream_and_none_of_it_is_no_unfinished_message(tmp_path: Path, kind: str, form: Form) -> None:
    foreign = random.Random(1).randbytes(300) if kind == "noise" else FOREIGN[kind][0]
    (tmp_path / "1").write_bytes(form.rewrite(RAW, case("o01").framing))
    (tmp_path / "2").write_bytes(foreign)
    for read in READERS.values():
        assert error_of(read, tmp_path).path == str(tmp_path / "2")


@pytest.mark.parametrize("reader", READERS)
def test_a_file_in_the_middle_of_a_message_is_named(tmp_path: Path, reader: str) -> None:
    """Its bytes could be those of a value; what does not fit shows in the message, or behind it."""
    noise, stream = random.Random(2).randbytes(3000), Form(Framing.COPYDATA).rewrite(RAW, case("o01").framing)
    for cut in range(5000, 5100, 7):
        for name, data in (("1", stream[:cut]), ("2", noise), ("3", stream[cut:])):
            (tmp_path / name).write_bytes(data)
        assert str(tmp_path / "2") in str(error_of(READERS[reader], tmp_path)), cut


def test_a_time_beyond_all_years_is_an_error_of_ours_and_listed(tmp_path: Path) -> None:
    for time in (1 << 62, -(1 << 62)):
        messages = [m.Begin(100, time, 1), m.Commit(0, 100, 108, time), m.Begin(200, 0, 2), m.Commit(0, 200, 208, 0)]
        (tmp_path / "1").write_bytes(Form(Framing.RAW).write(messages))
        with pytest.raises(WalReplayError, match="outside of the years 1 to 9999"):
            list(read_changes(tmp_path))
        # What such a message begins is not taken for one: what can be read is behind it.
        assert inspect_captures(tmp_path).files[0].note == "begins inside a message, which ends at offset 47"
        assert len(list(transcribe(tmp_path))) == len(messages)


def test_an_empty_file_in_front_is_fine(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"")
    (tmp_path / "1").write_bytes(RAW)
    assert list(read_changes(tmp_path))


CHANGES: Final = [
    (one, other)
    for one in (Form(Framing.RECVLOGICAL), Form(Framing.RAW), Form(Framing.COPYDATA), Form(Framing.PGCOPY))
    for other in FORMS
    if other.framing is not one.framing
] + [(form, Form(Framing.RAW)) for form in FORMS if form.framing is not Framing.RAW]


@pytest.mark.parametrize(("one", "other"), CHANGES, ids=lambda form: form.name)
def test_a_framing_that_changes_is_told_with_both_files(tmp_path: Path, one: Form, other: Form) -> None:
    first, second = case("o26").streams()[:2]
    source = case("o26").framing
    (tmp_path / "1.bin").write_bytes(one.rewrite(first, source))
    (tmp_path / "2.bin").write_bytes(other.rewrite(second, source))
    for read in (READERS["read_changes"], READERS["inspect"]):
        error = error_of(read, tmp_path)
        assert type(error) is FramingChange, error
        assert error.path == str(tmp_path / "2.bin")
        assert (
            f"framing is {other.framing.value}, and that of {tmp_path}/1.bin before it is {one.framing.value}"
            in str(error)
        )
        assert "file_pattern" not in str(error)
    # One at a time each is read.
    assert list(read_changes(tmp_path / "1.bin"))
    assert list(read_changes(tmp_path / "2.bin"))


@pytest.mark.parametrize("size", [100, 1000, 4096])
def test_random_bytes_have_no_framing(size: int) -> None:
    chance = random.Random(size)
    for _ in range(50):
        assert recognise(memoryview(chance.randbytes(size))) is None
