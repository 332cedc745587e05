"""What an audit makes of archives that are whole, and of those that are not, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from support.archive_model import MemoryArchive
from support.captures import case, cases
from support.extent import further
from support.fault_cases import FAULTS
from support.simulator import play, seeded
from walreplay.archive.audit import Findings, Problem
from walreplay.listing import natural_order

Parts = dict[str, bytes]

NAMES = [one.name for one in cases()]
FRAMINGS = ("o01", "o04", "o06")


def parts_of(name: str, count: int = 10) -> Parts:
    data = b"".join(case(name).streams())
    edges = [len(data) * number // count for number in range(count + 1)]
    return {f"part{number:03}": data[start:end] for number, (start, end) in enumerate(pairwise(edges))}


def audited(files: Mapping[str, bytes]) -> tuple[Findings, MemoryArchive]:
    archive, found = MemoryArchive(), Findings(lambda path: path)
    for joined in archive.join(files, lenient=True):
        found.take(joined)
    found.plan_of(archive.stitch)
    return found, archive


def places(problems: list[Problem]) -> list[tuple[str, str | None]]:
    return [(one.kind, one.file) for one in problems]


def covered(found: Findings) -> list[tuple[str, str]]:
    return [(one.first_file, one.last_file) for one in found.coverage]


@pytest.mark.parametrize("name", further(NAMES, but=[name for name in NAMES if name[:3] in ("o01", "o18", "o26")]))
def test_a_whole_archive_has_no_problems(name: str) -> None:
    found, archive = audited(parts_of(name))
    assert found.problems == []
    assert covered(found) == [("part000", "part009")]
    info = case(name).info
    assert archive.stitch.state.transactions == info["transactions_committed"]
    assert archive.stitch.state.resent == sum(one.transactions for one in found.overlaps)
    assert found.coverage[0].transactions == info["transactions_committed"]
    spans, (whole,) = found.placed, found.coverage
    assert [span.file for span in spans] == sorted({span.file for span in spans})
    lsns = min(span.first_lsn for span in spans), max(span.last_lsn for span in spans)
    assert lsns == (whole.first_lsn, whole.last_lsn)
    # The session begins in the first file, which has no span where nothing is committed in it.
    begins = spans[0].file == "part000"
    assert begins <= sum(span.sessions for span in spans) <= found.sessions


@pytest.mark.parametrize("name", FRAMINGS)
def test_a_missing_file_is_told_at_the_next_one_and_the_rest_is_read(name: str) -> None:
    files = parts_of(name)
    whole, _ = audited(files)
    for missing in ("part002", "part005"):
        del files[missing]
    found, _ = audited(files)
    assert len(found.problems) == 2
    assert {one.file for one in found.problems} <= {"part001", "part003", "part004", "part006"}
    assert covered(found)[0][0] == "part000"
    assert covered(found)[-1] == ("part006", "part009")
    left = sum(one.transactions for one in found.coverage)
    assert 0.6 * whole.coverage[0].transactions < left < whole.coverage[0].transactions


@pytest.mark.parametrize("name", FRAMINGS)
def test_damage_is_told_with_its_place_and_the_rest_is_read(name: str) -> None:
    files = parts_of(name)
    middle = len(files["part004"]) // 2
    # Only lengths can tell; somewhere in 300 bytes are some.
    files["part004"] = files["part004"][:middle] + b"\xff" * 300 + files["part004"][middle + 300 :]
    found, archive = audited(files)
    assert places(found.problems) == [("damaged", "part004")]
    (problem,) = found.problems
    assert problem.offset is not None
    assert middle - 1000 < problem.offset < middle + 1000
    assert covered(found) == [("part000", "part003"), ("part005", "part009")]
    assert not archive.is_known(files)


def test_a_foreign_file_is_told_and_the_stream_goes_on_behind_it() -> None:
    files = parts_of("o01")
    whole, _ = audited(files)
    found, _ = audited(dict(sorted({**files, "part004x": b"Dear reader,\nhow are you?\n" * 50}.items())))
    assert places(found.problems) == [("foreign", "part004x")]
    assert found.coverage == whole.coverage
    assert found.tables_with(None, None) == whole.tables_with(None, None)


CAPTURED = sorted(path.parent.name for path in FAULTS.glob("*/capture"))

NOT_WHOLE = {
    "damaged_waits": ("gap", "stream.bin"),
    "parse_soup": ("foreign", "soup.bin"),
    "short_foreign_file": ("foreign", "README.md"),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_inputs_that_went_wrong_once_are_told_as_what_they_are(name: str) -> None:
    folder = FAULTS / name / "capture"
    names = natural_order(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    found, archive = audited({name: (folder / name).read_bytes() for name in names})
    assert places(found.problems) == ([NOT_WHOLE[name]] if name in NOT_WHOLE else [])
    if (FAULTS / name / "truth").exists():
        assert archive.stitch.state.transactions == sum(one.transactions for one in found.coverage) > 0


def test_a_file_under_two_names_is_told() -> None:
    files = parts_of("o01")
    found, _ = audited(dict(sorted({**files, "part004x": files["part004"]}.items())))
    assert places(found.problems) == [("twin", "part004x")]
    assert covered(found) == [("part000", "part009")]


def test_an_archive_without_its_beginning_is_told_as_one_problem() -> None:
    files = parts_of("o01")
    del files["part000"]
    found, _ = audited(files)
    assert places(found.problems) == [("gap", "part001")]
    assert found.problems[0].files == 9


def test_a_copy_that_is_damaged_is_read_again_from_the_next_copys_header() -> None:
    copy = b"".join(case("o02").streams())
    cut = {"a": copy[: len(copy) // 2], "b": copy[len(copy) // 2 + 99 :], "c": copy[-999:], "d": copy}
    found, _ = audited(cut)
    assert len(found.problems) == 2
    assert found.problems[1].file == "c"
    assert covered(found) == [("a", "a"), ("d", "d")]


@pytest.mark.parametrize("seed", further(range(200), but=range(15)))
def test_whatever_is_missing_the_audit_comes_to_its_end(seed: int) -> None:
    """And what it takes up is what is there: no transaction is told that a whole archive does not have."""
    files = play(seeded(seed)).stages[-1]
    _, complete = audited(files)
    lsns = {(one.commit_lsn, one.xid) for one in complete.stitch.state.decided}
    for left_out in files:
        left = {name: data for name, data in files.items() if name != left_out and data}
        if not left:
            continue
        found, archive = audited(left)
        assert {(one.commit_lsn, one.xid) for one in archive.stitch.state.decided} <= lsns
        assert all(one.file is not None for one in found.problems)


def test_a_table_that_is_first_updated_had_rows_before() -> None:
    found, _ = audited(parts_of("o01"))
    assert {one.base for one in found.tables_with(None, None)} == {"unknown"}
