"""An archive with an index shows that it is whole: each command names each damage, before anything is done."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

import walreplay
from support.captures import case
from support.extent import further
from support.framings import frame
from support.small_mirror import row
from support.stopped_run import StoppedError
from walreplay.archive.index import FORMAT, SCHEMA
from walreplay.config import Settings
from walreplay.errors import CaptureError
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

EARLY = "0/1940000"
"""A nightly run that comes behind this has two of the seven files behind it."""


def overwrite(path: Path, content: bytes) -> None:
    """Overwrite a file, whose times stay."""
    times = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def flip(archive: Path) -> None:
    """Flip a bit of a value, which nothing but the index can prove."""
    content = bytearray((archive / "part004.bin").read_bytes())
    content[content.index(b"@example.com") + 1] ^= 0x20
    overwrite(archive / "part004.bin", bytes(content))


def swap(archive: Path) -> None:
    (archive / "part004.bin").rename(archive / "aside")
    (archive / "part005.bin").rename(archive / "part004.bin")
    (archive / "aside").rename(archive / "part005.bin")


def age(archive: Path) -> None:
    """Make the index one that an older version has left: with fewer facts, and another archive's rows."""
    index = archive / "_walreplay_index"
    rows = DeltaTable(index).to_pyarrow_table().drop_columns(["resent"])
    formats = pc.replace_substring_regex(rows["scanned_as"], r"^\d+", str(FORMAT - 1))
    rows = rows.set_column(rows.schema.get_field_index("scanned_as"), "scanned_as", formats)
    of_another = rows.set_column(rows.schema.get_field_index("archive"), "archive", pa.array(["/other"] * len(rows)))
    write_deltalake(index, pa.concat_tables([rows, of_another]), mode="overwrite", schema_mode="overwrite")


def cut(archive: Path, name: str) -> None:
    overwrite(archive / name, (archive / name).read_bytes()[:1000])


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "one bit flipped": (flip, "part004.bin"),
    "one bit flipped, rows of an older version": (lambda archive: (age(archive), flip(archive)), "part004.bin"),
    "removed": (lambda archive: (archive / "part004.bin").unlink(), "part004.bin"),
    "the last removed": (lambda archive: (archive / "part007.bin").unlink(), "part007.bin"),
    "cut": (lambda archive: cut(archive, "part004.bin"), "part004.bin"),
    "an older copy of the last": (lambda archive: cut(archive, "part007.bin"), "part007.bin"),
    "swapped": (swap, "part004.bin"),
    "under another name": (lambda archive: (archive / "part004.bin").rename(archive / "part0041"), "part004.bin"),
    "there twice": (lambda archive: shutil.copy(archive / "part004.bin", archive / "part004.old"), "part004.old"),
    "there twice, behind": (lambda archive: shutil.copy(archive / "part004.bin", archive / "part010"), "part010"),
    "a strange one": (lambda archive: shutil.copy(case("o01").files[0], archive / "part004.old"), "part004.old"),
    "grown in the middle": (
        lambda archive: overwrite(archive / "part004.bin", (archive / "part004.bin").read_bytes() + b"x"),
        "part004.bin",
    ),
}


@pytest.fixture(scope="module")
def sound(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an archive and its index, a target that has all of it, and one that has its beginning."""
    folder = tmp_path_factory.mktemp("sound")
    shutil.copytree(case("o03").folder, folder / "captures")
    walreplay.index(spark, folder / "captures")
    walreplay.apply(spark, folder / "captures", folder / "whole")
    walreplay.backfill(spark, folder / "captures", folder / "early", until_lsn=EARLY)
    return folder


@pytest.fixture
def archive(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path, dirs_exist_ok=True)
    return tmp_path / "captures"


def refusal(command: Callable[[], Any]) -> tuple[str | None, str]:
    """Return the file that an error names, and what it says; a run must not end without one."""
    with pytest.raises(CaptureError) as caught:
        command()
    return Path(caught.value.path or "").name, str(caught.value)


@pytest.mark.parametrize(
    "damage", further(DAMAGES, but=("one bit flipped, rows of an older version", "removed", "swapped", "there twice"))
)
def test_each_damage_is_named_by_each_command_before_anything_is_done(
    spark: SparkSession, archive: Path, sound: Path, damage: str
) -> None:
    harm, name = DAMAGES[damage]
    harm(archive)
    folder = archive.parent
    config = {"source": str(sound / "captures")}
    commands: dict[str, Callable[[], Any]] = {
        "apply": lambda: walreplay.apply(spark, archive, folder / "new"),
        "a nightly apply": lambda: walreplay.apply(spark, archive, folder / "early", config),
        "backfill": lambda: walreplay.backfill(spark, archive, folder / "part", until_lsn="0/1959EA0"),
        "forecast": lambda: walreplay.forecast(spark, archive, folder / "new"),
        "rebuild": lambda: walreplay.rebuild(spark, archive, folder / "whole", r"shop\.orders", config=config),
        "verify": lambda: walreplay.verify(spark, folder / "whole", archive, config=config),
        "index": lambda: walreplay.index(spark, archive),
    }
    if damage == "one bit flipped":
        del commands["index"]  # it reads what is new, or has another time
    for command, call in commands.items():
        file, text = refusal(call)
        assert file == name, (command, text)
        assert "indexed" in text or "holds the same bytes" in text, (command, text)
    assert not list(folder.glob("new/shop*"))
    report = walreplay.audit(spark, archive)
    assert not report.is_whole
    assert name in {problem.file for problem in report.problems}


@pytest.mark.full
def test_what_is_wrong_may_be_gone_on_over_or_taken_into_the_index(spark: SparkSession, archive: Path) -> None:
    (archive / "part007.bin").unlink()
    allowing = Settings().allowing_gaps()
    report = walreplay.apply(spark, archive, archive.parent / "new", allowing)
    assert any("part007.bin: the file was indexed, and is gone" in text for text in report.warnings)
    flip(archive)
    # Other bytes are no gap.
    assert (
        "not those that were indexed"
        in refusal(lambda: walreplay.apply(spark, archive, archive.parent / "b", allowing))[1]
    )
    os.utime(archive / "part004.bin")
    texts = walreplay.index(spark, archive, config=allowing).warnings
    assert [name for name in ("part004.bin", "part005.bin", "part007.bin") if f"{name}: the file" in str(texts)] == [
        "part004.bin",
        "part007.bin",
    ]
    assert walreplay.index(spark, archive).files_read == 0
    assert walreplay.audit(spark, archive).as_indexed == 6
    # The oldest are cleared away: what remains need not be read for that.
    for name in ("part001.bin", "part002.bin"):
        (archive / name).unlink()
    assert "walreplay index --cleared" in refusal(lambda: walreplay.index(spark, archive))[1]
    # That is no leave for what else is gone.
    shutil.move(archive / "part005.bin", archive.parent)
    assert refusal(lambda: walreplay.index(spark, archive, cleared=True))[0] == "part005.bin"
    shutil.move(archive.parent / "part005.bin", archive)
    report = walreplay.index(spark, archive, cleared=True)
    named = [Path(text.partition(":")[0]).name for text in report.warnings]
    assert (report.files_read, named) == (0, ["part001.bin", "part002.bin"])
    assert walreplay.index(spark, archive).warnings == ()


def test_an_index_elsewhere_proves_as_well(spark: SparkSession, archive: Path, tmp_path: Path) -> None:
    shutil.rmtree(archive / "_walreplay_index")
    config = {"index": str(tmp_path / "elsewhere")}
    report = walreplay.apply(spark, archive, tmp_path / "before", config)
    assert "nothing proves their bytes" in report.warnings[0]
    assert walreplay.index(spark, archive, config=config).index == config["index"]
    assert not (archive / "_walreplay_index").exists()
    assert walreplay.apply(spark, archive, tmp_path / "sound", config).warnings == ()
    flip(archive)
    for call in (
        lambda: walreplay.apply(spark, archive, tmp_path / "new", config),
        # Rows of files that were read in another way prove the bytes, too.
        lambda: walreplay.apply(spark, archive, tmp_path / "new", config | {"framing": case("o03").framing.value}),
    ):
        assert "not those that were indexed" in refusal(call)[1]
    assert walreplay.apply(spark, archive, tmp_path / "unproved").warnings == ()


def test_rows_of_an_older_version_prove_until_there_are_new_ones(
    spark: SparkSession, archive: Path, sound: Path
) -> None:
    last, aside = archive / "part007.bin", archive.with_name("part007.bin")
    shutil.rmtree(archive / "_walreplay_index")
    last.rename(aside)
    walreplay.index(spark, archive)
    age(archive)
    aside.rename(last)
    # What a run adds to it follows the older rows.
    assert walreplay.apply(spark, archive, archive.parent / "early", {"source": str(sound / "captures")}).warnings == ()
    assert [walreplay.index(spark, archive).files_read for _ in range(2)] == [7, 0]
    rows = DeltaTable(archive / "_walreplay_index").to_pyarrow_table().to_pylist()
    assert Counter((row["archive"], row["scanned_as"].split()[0]) for row in rows) == {
        ("", str(FORMAT)): 7,
        ("/other", str(FORMAT - 1)): 6,
    }
    assert all(row.keys() == {*SCHEMA.names} for row in rows)
    assert all((row["resent"] is None) == (row["archive"] == "/other") for row in rows)


def test_an_archive_whose_oldest_files_are_gone_is_indexed_after_an_upgrade(
    spark: SparkSession, archive: Path, tmp_path: Path
) -> None:
    last, aside = archive / "part007.bin", archive.with_name("part007.bin")
    shutil.rmtree(archive / "_walreplay_index")
    last.rename(aside)
    walreplay.index(spark, archive)
    walreplay.apply(spark, archive, tmp_path / "mirror")
    for name in ("part001.bin", "part002.bin", "part003.bin"):
        (archive / name).unlink()
    assert walreplay.index(spark, archive, cleared=True).files_read == 0
    age(archive)
    aside.rename(last)
    file, text = refusal(lambda: walreplay.index(spark, archive))
    assert file == "part004.bin"
    assert "first run walreplay apply" in text
    # A run knows where it goes on, and so does the index from there.
    assert walreplay.apply(spark, archive, tmp_path / "mirror").warnings == ()
    assert walreplay.index(spark, archive).files_read == 0


def test_an_interrupted_run_proves_what_it_reads_again(
    spark: SparkSession, archive: Path, tmp_path: Path, stop: Callable[[str], None]
) -> None:
    stop("plan written")
    with pytest.raises(StoppedError):
        walreplay.apply(spark, archive, tmp_path / "new")
    flip(archive)
    assert refusal(lambda: walreplay.apply(spark, archive, tmp_path / "new"))[0] == "part004.bin"


def test_new_files_need_not_be_indexed_yet(spark: SparkSession, archive: Path, tmp_path: Path) -> None:
    last = archive / "part007.bin"
    content = last.read_bytes()
    shutil.rmtree(archive / "_walreplay_index")
    cut(archive, "part007.bin")
    walreplay.index(spark, archive)
    walreplay.apply(spark, archive, tmp_path / "new")
    last.write_bytes(content)  # it grows, and one comes behind it
    (archive / "part008.bin").write_bytes(content[-1:])
    last.write_bytes(content[:-1])
    assert walreplay.apply(spark, archive, tmp_path / "new").warnings == ()
    # Of the one that has grown, the index has no more than it had then.
    (warning,) = walreplay.apply(spark, archive, tmp_path / "new").warnings
    assert "from part008.bin on it cannot tell foreign files" in warning
    walreplay.index(spark, archive)
    assert walreplay.apply(spark, archive, tmp_path / "new").warnings == ()
    assert walreplay.apply(spark, archive, tmp_path / "other").warnings == ()
    assert walreplay.audit(spark, archive).is_whole


def test_what_a_streamed_transaction_has_in_a_file_that_has_grown_is_proved(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = m.Relation(9, "s", "t", "d", (m.Column("id", 23, -1, True), m.Column("v", 25, -1, False)))
    rows = [m.Insert(9, row(number, "x" * 1000), 7) for number in range(300)]
    first = [m.Begin(100, 0, 1), table, m.Insert(9, row(-1, "")), m.Commit(0, 100, 108, 0)]
    opened = [m.StreamStart(7, True), replace(table, xid=7), *rows, m.StreamStop()]
    captures = tmp_path / "captures"
    captures.mkdir()
    file = captures / "part1"
    file.write_bytes(frame([*first, *opened], Framing.RAW))
    walreplay.index(spark, captures)
    walreplay.apply(spark, captures, tmp_path / "mirror")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content) + frame([m.StreamCommit(7, 0, 200, 208, 0)], Framing.RAW))
    assert refusal(lambda: walreplay.apply(spark, captures, tmp_path / "mirror"))[0] == "part1"
