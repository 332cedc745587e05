"""This package as one file, for executors that do not have it installed.

Spark puts zips in front of the path of its Python workers: those of ``--py-files``, and on Spark Connect those of
``SparkSession.addArtifacts``.  The compiled kernels are in it, too.
"""

from __future__ import annotations

import hashlib
import io
import sys
import tempfile
import zipfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walreplay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.abc import Traversable

    from pyspark.sql import SparkSession

_NAME: Final = __name__.partition(".")[0]
_LEFT_OUT: Final = ("__pycache__",)
_DATE: Final = (1980, 1, 1, 0, 0, 0)
"""Zips of the same files are the same."""


def package_zip(file: str | Path) -> str:
    """Write a zip of this package, as it is installed here, for Spark's executors.

    Args:
        file: its path, which ends with ``.zip``, as Spark takes no other; a file that is there is replaced.

    Returns:
        the path: ``spark.addArtifacts(walreplay.package_zip("walreplay.zip"), pyfile=True)``.

    Raises:
        ConfigError: it ends with something else, or cannot be written.
    """
    path = Path(file)
    if path.suffix != ".zip":
        raise ConfigError("Spark takes a package only from a file .zip", path=str(path), remedy="Name it so")
    try:
        path.write_bytes(_zipped())
    except OSError as error:
        raise ConfigError(
            f"the package cannot be written ({error.strerror})", path=str(path), remedy="Give another file"
        ) from None
    return str(path)


def give_package(spark: SparkSession) -> None:
    """Give this package to the workers of a session of Spark Connect; a server that refuses may have it installed."""
    content = _zipped()
    # A session takes no other file of a name that it has had.
    name = f"{_NAME}-{hashlib.blake2b(content, digest_size=8).hexdigest()}.zip"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(content)
        try:
            spark.addArtifacts(str(file), pyfile=True)
        except Exception:
            return
        finally:
            # pyspark has the driver import from it, too, which has the package already.
            sys.path[:] = [entry for entry in sys.path if entry != str(file)]


def _zipped() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, file in _files(resources.files(_NAME), _NAME):
            archive.writestr(zipfile.ZipInfo(path, _DATE), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Give path and file of all that is in a folder, which may lie in a zip, in the same order everywhere."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name in _LEFT_OUT:
            continue
        if entry.is_dir():
            yield from _files(entry, f"{path}/{entry.name}")
        else:
            yield f"{path}/{entry.name}", entry


__all__ = ["give_package", "package_zip"]
