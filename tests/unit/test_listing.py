import gzip
import typing

import pytest

from walreplay.config import OrderName
from walreplay.errors import ConfigError
from walreplay.listing import Hole, Order, list_files, map_file, matches_glob, missing_numbers, natural_order, sort_key


def test_ten_comes_after_nine():
    assert natural_order(["p10", "p9", "p1"]) == ["p1", "p9", "p10"]


def test_numbers_compare_as_numbers_wherever_they_stand():
    paths = ["2026-11-20/part10.bin", "2026-11-20/part2.bin", "2026-9-1/part99.bin"]
    assert natural_order(paths) == ["2026-9-1/part99.bin", "2026-11-20/part2.bin", "2026-11-20/part10.bin"]


def test_an_order_is_definite_even_where_numbers_are_equal():
    assert natural_order(["a01", "a1", "a001"]) == natural_order(["a001", "a01", "a1"])


def test_folders_give_their_visible_files_in_order(tmp_path):
    for name in ("b10", "b9", ".hidden", "_temporary/x", "sub/a1"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    found = [path.removeprefix(f"{tmp_path}/") for path in list_files(tmp_path)]
    assert found == ["b9", "b10", "sub/a1"]


def test_files_that_are_named_keep_their_order(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).write_bytes(b"")
    assert list_files([tmp_path / "b", tmp_path / "a"]) == [str(tmp_path / "b"), str(tmp_path / "a")]


def test_a_missing_path_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no such file or folder") as caught:
        list_files(tmp_path / "nowhere")
    assert "nowhere" in str(caught.value)


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="there are no files"):
        list_files(tmp_path)


def test_an_empty_file_can_be_mapped(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "some").write_bytes(gzip.compress(b"x"))
    assert bytes(map_file(str(tmp_path / "empty"))) == b""
    assert gzip.decompress(map_file(str(tmp_path / "some"))) == b"x"


# Order

TEN, NINE, HEX = ("p10", 300), ("p9", 200), ("pA", 200)


@pytest.mark.parametrize(
    ("order", "expected"),
    [("natural", [NINE, TEN, HEX]), ("path", [TEN, NINE, HEX]), ("modified", [NINE, HEX, TEN])],
)
def test_files_stand_in_the_order_that_is_asked_for(order, expected):
    assert sorted([HEX, TEN, NINE], key=lambda file: sort_key(order, *file)) == expected


def test_files_of_one_time_stand_in_natural_order():
    files = [("b10", 5), ("b9", 5), ("b09", 5)]
    assert [path for path, _ in sorted(files, key=lambda file: sort_key("modified", *file))] == natural_order(
        path for path, _ in files
    )


def test_a_folder_is_listed_in_the_natural_order(tmp_path):
    for name in ("10", "9", "a"):
        (tmp_path / name).write_bytes(b"")
    assert [path.removeprefix(f"{tmp_path}/") for path in list_files(tmp_path)] == ["9", "10", "a"]


def test_every_order_that_can_be_configured_is_known():
    assert typing.get_args(Order) == typing.get_args(OrderName)


# Numbers left out


def found(*names: str) -> list[tuple[str, str, int, str]]:
    return [(hole.before, hole.after, hole.missing, hole.example) for hole in missing_numbers(names)]


@pytest.mark.parametrize(
    ("names", "missing", "example"),
    [
        ("cap.0017 cap.0018 cap.0020", 1, "cap.0019"),
        ("part-9 part-10 part-13", 2, "part-11"),
        ("9.bin 10.bin 12.bin", 1, "11.bin"),
        ("p09998 p09999 p10001", 1, "p10000"),
        ("0001/cap.bin 0002/cap.bin 0004/cap.bin", 1, "0003/cap.bin"),
        ("cap.1998 cap.1999 cap.2001", 1, "cap.2000"),
        ("000017.bin 000018.bin 000020.bin", 1, "000019.bin"),
        ("cap-17-0-16B3748.bin cap-18-0-16B4F00.bin cap-20-0-17A0000.bin", 1, "cap-19…"),
        ("cap-0017-16B3748.bin cap-0018-16B4F00.bin cap-0020-17A0000.bin", 1, "cap-0019…"),
        ("17-1767225600.bin 18-1767225661.bin 20-1767225720.bin", 1, "19…"),
        ("00FD.bin 00FE.bin 0100.bin", 1, "00FF.bin"),
        ("x-0009 x-000a x-000d", 2, "x-000b"),
        ("00000001000000020000003F 000000010000000200000040 000000010000000200000042", 1, "000000010000000200000041"),
        ("2026/01/30/part-17 2026/01/30/part-18 2026/01/30/part-20", 1, "2026/01/30/part-19"),
        ("2026/01/30/part-17 2026/01/30/part-18 2026/01/31/part-20", 1, "…/…/…/part-19"),
        ("20260130T101500Z-17.bin 20260130T102500Z-18.bin 20260131T101500Z-20.bin", 1, "…T…Z-19.bin"),
        ("2026-01-30/0060.bin 2026-01-30/0061.bin 2026-01-30/0063.bin", 1, "2026-01-30/0062.bin"),
    ],
)
def test_a_number_that_is_left_out_is_found(names, missing, example):
    *_, before, after = names.split()
    assert found(*names.split()) == [(before, after, missing, example)]


@pytest.mark.parametrize(
    "names",
    [
        "",
        "cap.1",
        "cap.1 cap.3",
        "a.1 a.2 b.4",
        "cap.10 cap.20 cap.30 cap.40",
        "cap.1 cap.3 cap.4 cap.6",
        "cap.5 cap.6 cap.90000",
        "cap.17 cap.0018 cap.0020",
        "20260101.bin 20260102.bin 20260104.bin",
        "2026-01-01.bin 2026-01-02.bin 2026-01-04.bin",
        "2026-01-30T10-15 2026-01-30T10-16 2026-01-30T10-18",
        "20260130T101500Z 20260130T101501Z 20260130T101503Z",
        "20260130-101500 20260130-101501 20260130-101503",
        "2026/01/30/10.bin 2026/01/30/11.bin 2026/01/30/13.bin",
        "2026/01/30.bin 2026/01/31.bin 2026/02/02.bin",
        "year=2026/month=1/day=9/a year=2026/month=1/day=10/a year=2026/month=1/day=12/a",
        "03-01-2026 03-02-2026 03-04-2026",
        "01.03.2026 02.03.2026 04.03.2026",
        "260101 260102 260104",
        "30Jan2026 31Jan2026 02Feb2026",
        "Jan-03 Jan-04 Jan-06",
        "2026-W05 2026-W06 2026-W08",
        "2026.bin 2027.bin 2029.bin",
        "1767225600 1767225601 1767225603",
        "1767225600000 1767225600001 1767225600003",
        "0-16B3748.bin 0-17A0000.bin 0-19FFFFF.bin",
        "16-B374D848 17-0A000000 19-33333333",
        "00000016-B374D848 00000017-0A000000 0000001A-33333333",
        "16/B374D848 17/A000000 19/33333333",
        "cap-16777216.bin cap-16777300.bin cap-16779999.bin",
        # Sessions, each with numbers of its own.
        "1-1 1-2 1-3 3-1 3-2 4-1",
        "20260101-1 20260101-2 20260103-1 20260103-2",
        # The same file, compressed meanwhile.
        "cap.1.gz cap.2.gz cap.3 cap.2 cap.4",
        "d0008 d0009 d0010 d0011",
    ],
)
def test_what_is_not_numbered_one_by_one_has_no_number_left_out(names):
    assert found(*names.split()) == []


def segments(each: int) -> list[str]:
    return [f"{1:08X}{log:08X}{segment:08X}.bin" for log in (9, 10) for segment in range(each)]


@pytest.mark.parametrize("each", [256, 64, 4])
def test_behind_a_logs_last_segment_comes_the_first_of_the_next(each):
    assert found(*segments(each)) == []


def test_a_segment_that_is_left_out_at_the_turn_of_a_log_is_found():
    names = segments(256)
    last = names.pop(255)
    assert found(*names) == [(names[254], names[255], 1, last)]


def test_a_long_loss_in_a_long_series_is_found():
    names = [f"cap.{number:06}" for number in (*range(1, 51), *range(400, 420))]
    assert found(*names) == [("cap.000050", "cap.000400", 349, "cap.000051")]


def test_a_file_that_was_cleared_away_is_not_missing_when_it_is_known():
    there, cleared = ["cap.1", "cap.2", "cap.5", "cap.6"], ["cap.3", "cap.4"]
    assert found(*there) == [("cap.2", "cap.5", 2, "cap.3")]
    assert found(*there, *cleared) == []


def test_what_finds_the_missing_files_takes_any_date_and_any_suffix():
    (hole,) = missing_numbers(["a[1]/cap-8.bin.gz", "a[1]/cap-9.bin.gz", "a[1]/cap-12.bin"])
    assert hole.names == (("a[1]/cap-10…", r"a\[1\]/cap-10*"), ("a[1]/cap-11…", r"a\[1\]/cap-11*"))
    (hole,) = missing_numbers(["b/2026/01/30/17", "b/2026/01/30/18", "b/2026/01/31/48"])
    assert hole.names[0] == ("b/…/…/…/19", "b/*/*/*/19*")
    assert len(hole.names) == hole.missing == 29


def test_a_number_that_goes_on_over_days_and_months_is_followed():
    names = [f"b/2026/0{1 + number // 28}/{1 + number % 28:02}/{number:05}.bin" for number in range(84)]
    left = [name for number, name in enumerate(names) if number not in (28, 50)]
    assert found(*left) == [
        (names[27], names[29], 1, "b/…/…/…/00028.bin"),
        (names[49], names[51], 1, "b/…/…/…/00050.bin"),
    ]


def test_a_hole_is_described_without_the_folders():
    hole = Hole("s3://b/c/cap.0018", "s3://b/c/cap.0020", 1, "s3://b/c/cap.0019")
    assert hole.describe() == "between cap.0018 and cap.0020 1 file is missing, such as cap.0019"
    hole = Hole("s3://b/c/2026/01/30/18", "s3://b/c/2026/01/31/1021", 1002, "s3://b/c/…/19")
    assert hole.describe() == "between 2026/01/30/18 and 2026/01/31/1021 1,002 files are missing, such as …/19"


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("cap*.{bin,gz}", ["cap1.bin", "cap.gz"], ["cap1.zst", "cap1.{bin,gz}", "a/cap1.bin"]),
        ("[^x]*", ["a", "^"], ["x", "", "a/b"]),
        ("[!x-z]?", ["ab", "!b"], ["yb", "a", "abc"]),
        (r"a\*b\{c,d", ["a*b{c,d"], ["axb{c,d", r"a\*b\{c,d"]),
        ("/data/*/caps", ["/data/a/caps"], ["/data/a/b/caps", "/data/caps"]),
        ("/data/{a,b}/**", ["/data/a/c/d", "/data/b/c"], ["/data/c/d", "/data/a"]),
        ("a,b.(c)|d", ["a,b.(c)|d"], ["a", "a,bx(c)|d"]),
        ("line\n?", ["line\n\n"], ["line\n"]),
    ],
)
def test_globs_are_hadoops(glob: str, matching: list[str], others: list[str]) -> None:
    assert [text for text in [*matching, *others] if matches_glob(text, glob)] == matching
