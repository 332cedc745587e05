"""Build wheel and sdist of the last commit twice, and compare them byte for byte: ``make reproducible``.

Usage: python conf/reproducible.py

Each build has a clean checkout in a folder of its own, compiles the kernels anew, and has another order of Python's
hashes, another time zone, and other permissions for new files.  What could differ all the same is the machine's C
compiler, which links the kernels, and zlib, which compresses: the same commit gives the same bytes where these and
the locked versions are the same.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

BUILDS: tuple[tuple[str, int, Mapping[str, str]], ...] = (
    ("first", 0o022, {"PYTHONHASHSEED": "1", "TZ": "UTC"}),
    ("in/another/folder", 0o077, {"PYTHONHASHSEED": "2", "TZ": "Asia/Kathmandu"}),
)
"""The folder of each, the permissions that new files do not get, and the process's variables."""


def main() -> None:
    """Build twice, compare, and print the files' SHA-256."""
    commit = run(ROOT, "git", "rev-parse", "HEAD").stdout.decode().strip()  # somebody may commit meanwhile
    with tempfile.TemporaryDirectory() as scratch:
        first, second = (build(commit, Path(scratch, folder), umask, variables) for folder, umask, variables in BUILDS)
        names = [sorted(path.name for path in folder.iterdir()) for folder in (first, second)]
        if names[0] != names[1]:
            sys.exit(f"error: two builds made {' and '.join(map(', '.join, names))}")
        differences = [line for name in names[0] for line in different(first / name, second / name)]
        if differences:
            sys.exit("\n".join(["error: two builds of one commit differ:", *differences]))
        for name in names[0]:
            print(hashlib.sha256((first / name).read_bytes()).hexdigest(), name)  # noqa: T201 (what was compared)


def build(commit: str, checkout: Path, umask: int, variables: Mapping[str, str]) -> Path:
    """Build a commit in a folder, and return the folder with what was made."""
    checkout.mkdir(parents=True)
    archive = run(ROOT, "git", "archive", "--format=tar", commit).stdout
    subprocess.run(["tar", "--extract"], cwd=checkout, input=archive, check=True, umask=umask)
    time = run(ROOT, "git", "log", "-1", "--format=%ct", commit).stdout.decode().strip()
    settings = {**os.environ, **variables, "SOURCE_DATE_EPOCH": time}
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, [str(checkout / "lib"), os.environ.get("PYTHONPATH")]))
    run(checkout, sys.executable, "-m", "walreplay.kernel_build", umask=umask, env=settings)
    run(checkout, sys.executable, "conf/wheel.py", "--sdist", umask=umask, env=settings)
    return checkout / "dist"


def run(folder: Path, *command: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a folder; if it fails, all does."""
    done = subprocess.run(command, cwd=folder, capture_output=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{(done.stdout + done.stderr).decode()}error: this command failed: {' '.join(command)}")
    return done


def different(one: Path, other: Path) -> list[str]:
    """Return what differs in two archives: members by name, or the archive alone; empty if no byte does."""
    if one.read_bytes() == other.read_bytes():
        return []
    first, second = contents(one), contents(other)
    names = [name for name in sorted({*first, *second}) if first.get(name) != second.get(name)]
    return [f"{one.name}: {name}" for name in names] or [f"{one.name}: times, permissions, order or compression"]


def contents(archive: Path) -> dict[str, bytes]:
    """Return the files of a zip or tar."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    with tarfile.open(archive) as sdist:
        files = [(member.name, sdist.extractfile(member)) for member in sdist.getmembers()]
        return {name: b"" if file is None else file.read() for name, file in files}


if __name__ == "__main__":
    main()
