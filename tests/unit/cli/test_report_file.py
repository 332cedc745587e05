"""`--report FILE`: a command's result as JSON in a file."""

import json
from pathlib import Path

import pyarrow.fs
import pytest

from walreplay.cli import main
from walreplay.errors import TargetError
from walreplay.session.text_files import write_text

_CAPTURES = Path(__file__).parents[2] / "captures"
_CUT = str(_CAPTURES / "o03_basic_split_bytes" / "capture")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_file_has_what_json_prints_whatever_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    report = tmp_path / "made" / "for it.json"
    assert main(["inspect", _CUT, "--json"]) == 0
    as_json = json.loads(capsys.readouterr().out)

    assert main(["inspect", _CUT, "--report", str(report), *options]) == 0

    assert json.loads(report.read_text(encoding="utf-8")) == as_json
    printed = capsys.readouterr().out
    assert (json.loads(printed) == as_json) if options else ("transactions" in printed)


def test_what_was_there_is_replaced(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text("x" * 100_000, encoding="utf-8")
    assert main(["inspect", _CUT, "--report", str(report)]) == 0
    assert json.loads(report.read_text(encoding="utf-8"))["files"]


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("file:{}/a.json", "a.json"),
        ("file://{}/a.json", "a.json"),
        ("{}/C:x.json", "C:x.json"),
    ],
)
def test_a_mounted_place_is_written_by_python(tmp_path: Path, place: str, path: str) -> None:
    write_text(place.format(tmp_path), "{}")
    assert (tmp_path / path).read_text(encoding="utf-8") == "{}"


def test_without_a_session_arrow_knows_the_scheme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def from_uri(uri: str) -> tuple[pyarrow.fs.FileSystem, str]:
        asked.append(uri)
        return pyarrow.fs.LocalFileSystem(), str(tmp_path / "object")

    monkeypatch.setattr(pyarrow.fs, "FileSystem", type("FileSystem", (), {"from_uri": staticmethod(from_uri)}))
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    write_text("s3a://bucket/reports/a.json", "{}")
    assert asked == ["s3://bucket/reports/a.json"]
    assert (tmp_path / "object").read_bytes() == b"{}"


def test_a_place_that_cannot_be_written_is_named_and_the_result_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a file").touch()
    report = tmp_path / "a file" / "report.json"
    assert main(["inspect", _CUT, "--report", str(report)]) == 1
    printed = capsys.readouterr()
    assert "transactions" in printed.out
    assert str(report) in printed.err
    assert "the report cannot be written" in printed.err
    with pytest.raises(TargetError, match="the report cannot be written"):
        write_text("nothing-like-it://x/y", "{}")


def test_messages_have_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", _CUT, "--messages", "--report", "x"]) == 2
    assert "--report has no messages" in capsys.readouterr().err
