"""The scripts for the source, as the command line gives them."""

from __future__ import annotations

import subprocess

import pytest

from walreplay.cli.program import main
from walreplay.scripts import script, script_names


def test_scripts_are_listed_printed_and_copied(capsys, tmp_path):
    assert main(["sql"]) == 0
    listed = capsys.readouterr().out
    assert [name for name in script_names() if name in listed] == [
        "announce.sql",
        "base.sh",
        "copies.sql",
        "describe.sql",
        "kept.sql",
        "snapshot.sh",
    ]
    assert main(["sql", "describe.sql"]) == 0
    assert capsys.readouterr().out.strip() == script("describe.sql").strip()
    assert main(["sql", "--into", str(tmp_path / "here")]) == 0
    assert {file.name: file.read_text() for file in (tmp_path / "here").iterdir()} == {
        name: script(name) for name in script_names()
    }
    for name in ("base.sh", "snapshot.sh"):
        assert subprocess.run(["sh", "-n", tmp_path / "here" / name]).returncode == 0
        assert (tmp_path / "here" / name).stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.sql"], "There are announce.sql, base.sh, copies.sql, describe.sql, kept.sql, snapshot.sh"),
        (["base.sh", "--into", "x"], "Leave out the name, or --into"),
    ],
)
def test_what_is_no_script_is_refused(capsys, arguments, said):
    assert main(["sql", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_scripts_that_somebody_has_changed_are_not_written_over(capsys, tmp_path):
    assert main(["sql", "--into", str(tmp_path)]) == 0
    (tmp_path / "base.sh").write_text("mine")
    assert main(["sql", "--into", str(tmp_path)]) == 2
    assert "another file of that name is there" in capsys.readouterr().err
    assert (tmp_path / "base.sh").read_text() == "mine"
    (tmp_path / "base.sh").unlink()
    assert main(["sql", "--into", str(tmp_path)]) == 0
    (tmp_path / "file").write_text("")
    assert main(["sql", "--into", str(tmp_path / "file")]) == 2
