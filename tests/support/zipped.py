"""The package as a zip, as ``--py-files`` takes it."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import walreplay

PACKAGE = Path(walreplay.__file__).parent


def zip_package(path: Path, *, comment: str = "", library: bool = False) -> Path:
    """Zip the sources; with a comment behind one that has kernels, and the library of compiled ones, if so asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(path, "w") as file:
        for source in PACKAGE.rglob("*.py"):
            name = source.relative_to(PACKAGE.parent).as_posix()
            more = comment if name.endswith("decode/kernels/walk.py") else ""
            file.writestr(name, source.read_text(encoding="utf-8") + more)
        for compiled in PACKAGE.rglob("*.so") if library else ():
            file.write(compiled, compiled.relative_to(PACKAGE.parent).as_posix())
    return path
