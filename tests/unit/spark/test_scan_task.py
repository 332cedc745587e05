"""What a scanning task hands to its worker."""

import json
import pickle

import pyarrow as pa

from wal2delta.errors import EncodingMismatch, from_dict
from wal2delta.protocol import messages as m
from wal2delta.protocol.framing import Framing
from wal2delta.protocol.writer import frame
from wal2delta.spark.workers import ScanTask, scan_batches
from wal2delta.types.text import codec_of


def scanned(**given):
    relation = m.Relation(9, "s", "stra@e", "d", (m.Column("id", 23, -1, True),))
    data = frame([m.Begin(100, 5, 7), relation, m.Commit(0, 100, 108, 5)], Framing.RAW).replace(b"@", b"\xdf")
    files = pa.RecordBatch.from_pylist([{"path": "a", "content": data}])
    (found,) = scan_batches([files], tasks={"a": ScanTask(None, first=True, **given)})
    (row,) = found.to_pylist()
    return row


def test_names_are_read_in_the_configured_encoding():
    scan = pickle.loads(scanned(codec=codec_of("LATIN1"))["scan"])
    ((_, relation),) = scan.parts[0].summary.relations
    assert relation.name == "straße"


def test_an_encoding_that_is_not_configured_is_told_by_the_driver():
    error = from_dict(json.loads(scanned()["error"]))
    assert isinstance(error, EncodingMismatch)
    assert "source_encoding" in str(error)
