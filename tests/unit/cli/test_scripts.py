"""The scripts for the source, as the command line gives them."""

from __future__ import annotations

import subprocess

from walreplay.cli.program import main
from walreplay.scripts import script, script_names


def test_scripts_are_copied_and_listed(capsys, tmp_path):
    assert main(["--scripts", str(tmp_path / "here")]) == 0
    listed = capsys.readouterr().out
    assert [name for name in script_names() if name in listed] == [
        "announce.sql",
        "base.sh",
        "copies.sql",
        "describe.sql",
        "kept.sh",
        "kept.sql",
        "snapshot.sh",
    ]
    assert "What replication does not send of DDL" in listed
    assert {file.name: file.read_text() for file in (tmp_path / "here").iterdir()} == {
        name: script(name) for name in script_names()
    }
    for name in ("base.sh", "kept.sh", "snapshot.sh"):
        assert subprocess.run(["sh", "-n", tmp_path / "here" / name]).returncode == 0
        assert (tmp_path / "here" / name).stat().st_mode & 0o111


def test_scripts_that_somebody_has_changed_are_not_written_over(capsys, tmp_path):
    assert main(["--scripts", str(tmp_path)]) == 0
    (tmp_path / "base.sh").write_text("mine")
    assert main(["--scripts", str(tmp_path)]) == 2
    assert "another file of that name is there" in capsys.readouterr().err
    assert (tmp_path / "base.sh").read_text() == "mine"
    (tmp_path / "base.sh").unlink()
    assert main(["--scripts", str(tmp_path)]) == 0
    (tmp_path / "file").write_text("")
    assert main(["--scripts", str(tmp_path / "file")]) == 2
