"""What the names of recorded files say of each other, and of what is in the files."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from walreplay.errors import NotACapture, OrderError
from walreplay.listing import missing_numbers
from walreplay.recorded_names import RecordedName, broken_chains, refuse_outside

A = "00000041_0-1000_0-2000.pgo.zst"
B = "00000042_0-2000_0-2000.pgo.zst"  # a head of a transaction alone
C = "00000043_0-2000_1-0.pgo.zst"
D = "00000044_1-0_1-5.pgo.zst"
GAP = "00000044_gap_1-FF_2-0.pgo.zst"

CASES = {
    "whole": ([A, B, C, D], []),
    "cleared beginning": ([C, D], []),
    "other names": (["00000001_0-1_0-2.pgo", "cap-7.bin", "00000003_0-9_0-A.pgo.zst.part"], []),
    "removed": ([A, D], [(D, "in front of it 2 files are missing, behind 00000041_0-1000_0-2000", False)]),
    "one removed": ([A, C], [(C, "in front of it 1 file is missing", False)]),
    "doubled": (
        [A, B, "00000042_0-2000_0-2001.pgo.zst", C],
        [
            ("00000042_0-2000_0-2001.pgo.zst", f"{B} has the same number: two recorders", False),
            (C, "it begins at LSN 0/2000, and 00000042_0-2000_0-2001.pgo.zst, in front of it, goes to 0/2001", False),
        ],
    ),
    "two recorders": ([A, "00000042_0-1800_0-2800.pgo.zst"], [("00000042_0-1800_0-2800.pgo.zst", "goes to", False)]),
    "renamed": ([A, "00000042_1-0_1-5.pgo.zst"], [("00000042_1-0_1-5.pgo.zst", "begins at LSN 1/0", False)]),
    "gap": ([C, GAP], [(GAP, "what committed from LSN 1/0 to 1/FF was never recorded", True)]),
    "removed in front of a gap": ([B, GAP], [(GAP, "1 file is missing", False)]),
    "gap first": ([GAP, "00000045_2-0_2-1.pgo.zst"], []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_names_say_of_each_other(name: str) -> None:
    names, expected = CASES[name]
    for folder in ("", "/captures/2026 [a]/"):
        chains = list(broken_chains(folder + name for name in reversed(names)))  # in any order
        assert [(chain.after, chain.is_recorded) for chain in chains] == [
            (folder + after, is_recorded) for after, _, is_recorded in expected
        ]
        for chain, (after, problem, _) in zip(chains, expected, strict=True):
            error = chain.error
            assert isinstance(error, OrderError)
            assert problem in error.problem
            assert (error.path, error.offset) == (folder + after, None)
            assert error.remedy


def test_each_folder_has_a_chain_of_its_own() -> None:
    assert list(broken_chains([f"a/{A}", f"b/{C}", f"a/{B}", f"b/{D}"])) == []


@pytest.mark.parametrize("names", [[A, B, D], [A, C, D, "00000046_1-5_1-6.pgo.zst"]])
def test_a_hole_is_named_once(names: Sequence[str]) -> None:
    assert missing_numbers(names) == []
    assert len([*broken_chains(names)]) == len(names) - 2


def test_the_remedy_of_a_gap_names_its_end() -> None:
    (chain,) = broken_chains([C, GAP])
    assert chain.start == 0x1_000000FF
    assert "as of LSN 1/FF or later (docs/starting.md): walreplay load --replace --from COPY;" in chain.remedy


@pytest.mark.parametrize("name", [A, C, GAP, "123456789_0-1_FFFFFFFF-FFFFFFFF.pgo.zst"])
def test_a_name_is_read_as_it_is_written(name: str) -> None:
    assert str(RecordedName.parse(f"s3a://archive/{name}")) == name


@pytest.mark.parametrize("commits", [[], [0x1000], [0x1000, 0x1FFF], [0x1FF0, 0x1FF0]])
def test_commits_between_a_names_ends_are_its_own(commits: list[int]) -> None:
    refuse_outside(f"/captures/{A}", commits)


@pytest.mark.parametrize("commits", [[0xFFF, 0x1FFF], [0x1000, 0x2000], [0x5000, 0x6000], [1, 2]])
def test_other_commits_are_another_files(commits: list[int]) -> None:
    refuse_outside("/captures/00000041.bin", commits)
    with pytest.raises(NotACapture, match="its name says 0/1000 to 0/2000: it was renamed") as caught:
        refuse_outside(f"/captures/{A}", commits)
    assert caught.value.path == f"/captures/{A}"


def test_nothing_commits_in_a_file_of_one_lsn() -> None:
    with pytest.raises(NotACapture):
        refuse_outside(B, [0x2000])


@pytest.mark.parametrize("number", ["1" * 5000, "\u0661" * 8, "1234567", "-0000001"])
def test_a_number_that_the_recorder_never_writes_makes_another_name(number: str) -> None:
    assert RecordedName.parse(f"{number}_0-1_0-2.pgo.zst") is None
