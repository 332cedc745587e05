"""A small target and its archive as a version of walreplay has left them, with an index: an input of tests.

Usage: python -m support.format_sample

Makes ``tests/formats/ledger-A-index-B.zip`` anew, for this version's formats.  A file of other formats is never made
again: it is kept as that version wrote it, and `tests/integration/test_formats_of_versions.py` reads it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zipfile import ZIP_DEFLATED, ZipFile

from support.framings import frame, transaction
from support.small_mirror import INT4, TEXT, relation, row
from walreplay.archive.index import FORMAT as INDEX_FORMAT
from walreplay.ledger.state import FORMAT as LEDGER_FORMAT
from walreplay.protocol import messages as m
from walreplay.protocol.framing import Framing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = Path(__file__).parents[1] / "formats"

CONFIG: Final = {"source": "sample", "outputs": ["mirror", "history", "changelog"]}
"""How it was made; the source's name does not depend on where the archive lies."""

_ORDERS = relation(1, "orders", {"id": INT4, "note": TEXT})
_EVENTS = relation(2, "events", {"id": INT4, "note": TEXT}, "f")


def captures() -> list[bytes]:
    """Return the files of the archive: of all kinds of transactions, with one that is open at the end of the first.

    The last one comes after the sample was made.
    """
    first: list[m.AnyMessage] = [
        *transaction(100, _ORDERS, *(m.Insert(1, row(number, f"note {number}")) for number in (1, 2, 3)), xid=1),
        *transaction(200, _EVENTS, m.Insert(2, row(1, "a")), m.Insert(2, row(1, "a")), xid=2),
        m.StreamStart(3, True),
        m.Relation(1, "s", "orders", "d", _ORDERS.columns, xid=3),
        m.Insert(1, row(4, "streamed"), xid=3),
        m.StreamStop(),
    ]
    second: list[m.AnyMessage] = [
        *transaction(300, m.Update(1, row(1, "changed")), m.Message(True, 290, "app", b"content"), xid=4),
        m.BeginPrepare(320, 328, 320, 5, "prepared"),
        m.Insert(1, row(5, None)),
        m.Prepare(0, 320, 328, 320, 5, "prepared"),
        *transaction(400, m.Delete(1, key=row(2, None)), m.Delete(2, old=row(1, "a")), xid=6),
    ]
    third: list[m.AnyMessage] = [
        m.StreamCommit(3, 0, 500, 508, 500),
        m.CommitPrepared(0, 520, 528, 520, 5, "prepared"),
        *transaction(600, m.Update(1, row(9, "another key"), key=row(3, None)), m.Insert(2, row(2, "b")), xid=7),
    ]
    return [frame(messages, Framing.RAW) for messages in (first, second, third)]


def write(folder: Path, files: Sequence[bytes], first: int = 1) -> Path:
    """Write files of captures."""
    folder.mkdir(exist_ok=True)
    for number, data in enumerate(files, first):
        (folder / f"{number:03}.bin").write_bytes(data)
    return folder


def make(spark: SparkSession, folder: Path) -> None:
    """Make archive, index and target in a folder, in two runs; the last file of the captures is not there yet."""
    import walreplay

    first, second, _ = captures()
    folder.mkdir()
    archive = write(folder / "captures", [first])
    walreplay.index(spark, archive)
    walreplay.apply(spark, archive, folder / "mirror", CONFIG)
    write(archive, [second], 2)
    walreplay.apply(spark, archive, folder / "mirror", CONFIG)


def pack(folder: Path, file: Path) -> None:
    """Zip a folder; Spark's checksums are left out, as a store has none."""
    with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.endswith(".crc"):
                archive.write(path, path.relative_to(folder).as_posix())


def unpack(file: Path, folder: Path) -> tuple[int, int]:
    """Unzip a sample, and return the formats of its ledger and its index."""
    with ZipFile(file) as archive:
        archive.extractall(folder)
    formats = re.fullmatch(r"ledger-(\d+)-index-(\d+)", file.stem)
    assert formats is not None
    return int(formats[1]), int(formats[2])


def current() -> Path:
    """Return the file of this version's formats."""
    return FOLDER / f"ledger-{LEDGER_FORMAT}-index-{INDEX_FORMAT}.zip"


def main() -> None:
    """Make this version's sample."""
    from support.spark import start_session

    with tempfile.TemporaryDirectory() as scratch:
        spark = start_session(Path(scratch))
        make(spark, Path(scratch, "sample"))
        pack(Path(scratch, "sample"), current())
        spark.stop()
    sys.stdout.write(f"{current()}\n")


if __name__ == "__main__":
    main()
