"""A file that is not the one that was planned is refused."""

from pathlib import Path

import pytest

from support.captures import case
from walreplay.changes import decode_plan, plan_files
from walreplay.errors import OrderError


def changed(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("change", [changed, lambda data: data[:-1]], ids=["changed", "cut"])
def test_a_file_that_has_changed_since_its_scan_is_refused_by_name(tmp_path: Path, change) -> None:
    (source, *_) = case("o21").files
    path = tmp_path / "1.bin"
    path.write_bytes(source.read_bytes())
    plan = plan_files([str(path)])
    rows = sum(batch.data.num_rows for batch in decode_plan(plan, lambda name: Path(name).read_bytes()))
    path.write_bytes(change(source.read_bytes()))

    with pytest.raises(OrderError, match="has changed since it was scanned") as caught:
        list(decode_plan(plan, lambda name: Path(name).read_bytes()))

    assert caught.value.path == str(path)
    # "restore the file"; that it has grown does not matter.
    path.write_bytes(source.read_bytes() + b"B")
    assert sum(batch.data.num_rows for batch in decode_plan(plan, lambda name: Path(name).read_bytes())) == rows > 0
