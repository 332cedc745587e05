"""Where the archive lies: a folder, or a prefix of an object store that `pyarrow.fs` reaches.

A file is never overwritten.  It counts as stored once its bytes were read back: a store may answer that it has what it
has not, and may have done what it answers an error to.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walreplay.errors import ConfigError, OrderError, TargetError

if TYPE_CHECKING:
    from pyarrow import fs

_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}  # as Hadoop has them
_SECRETS: Final = re.compile(r"(?<=://).*:.*@|\?.*", re.DOTALL)


class Store(ABC):
    """A place for files with simple names, and with at most one folder in front.

    Methods raise OSError where the store does not do what it is asked, now.

    Attributes:
        shown: the place without the keys that its URI may have.
    """

    def __init__(self, uri: str) -> None:
        self.shown = _SECRETS.sub("", uri).rstrip("/")

    @abstractmethod
    def names(self, folder: str = "") -> list[str]:
        """List the names of the files in the place, or in a folder of it; none if it is not there."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return a file's bytes; None if there is none of that name."""

    @abstractmethod
    def _write(self, name: str, data: bytes) -> None:
        """Write a file that was not there a moment ago, or not whole."""

    def put(self, name: str, data: bytes) -> None:
        """Write a file, or find it there with the same bytes.

        Raises:
            OrderError: one of that name is there with other bytes.
            OSError: it is not known to be stored; the same call may be tried again.
        """
        kept = self.read(name)
        # Some stores show the beginning of a file that was not written to its end.
        if kept is None or (kept != data and data.startswith(kept)):
            self._write(name, data)
            kept = self.read(name)
            if kept is None:
                raise OSError("the store has answered that it has the file, and does not have it")
        if kept != data:
            raise OrderError(
                "a file of that name is there with other bytes",
                path=f"{self.shown}/{name}",
                remedy="Somebody else writes into this folder, or the store does not keep what it is given: find out "
                "which. Nothing is lost: the server keeps what is not confirmed",
            )


class _MountedStore(Store):
    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path
        path.mkdir(parents=True, exist_ok=True)
        _flush(path.parent)

    def names(self, folder: str = "") -> list[str]:
        try:
            return os.listdir(self._path / folder)  # noqa: PTH208 - names are wanted
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def _write(self, name: str, data: bytes) -> None:
        file = self._path / name
        file.parent.mkdir(exist_ok=True)
        hidden = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            with hidden.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            try:
                os.link(hidden, file)  # unlike a rename, it refuses a name that is there
            except OSError:  # or the file system has no links
                if not file.exists():
                    hidden.rename(file)
        finally:
            hidden.unlink(missing_ok=True)

    def put(self, name: str, data: bytes) -> None:
        super().put(name, data)
        # Also where it was there: who has written it may have been killed before this.
        _flush((self._path / name).parent)


class _ObjectStore(Store):
    def __init__(self, uri: str, system: fs.FileSystem, path: str) -> None:
        super().__init__(uri)
        self._system, self._path = system, path.rstrip("/")

    def names(self, folder: str = "") -> list[str]:
        from pyarrow import fs

        place = f"{self._path}/{folder}" if folder else self._path
        files = self._system.get_file_info(fs.FileSelector(place, allow_not_found=True))
        return [file.base_name for file in files if file.is_file]

    def read(self, name: str) -> bytes | None:
        try:  # by its name, Arrow would decompress it
            with self._system.open_input_stream(f"{self._path}/{name}", compression=None) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def _write(self, name: str, data: bytes) -> None:
        # Arrow's clients have no conditional PUT: descriptions tell recorders apart, see `walreplay.recording.stretch`.
        with self._system.open_output_stream(f"{self._path}/{name}", compression=None) as stream:
            stream.write(data)


def _flush(folder: Path) -> None:
    """Have a folder's names on the disk, where its file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def store_at(uri: str) -> Store:
    """Open a path or a URI.

    Raises:
        ConfigError: there is nothing that reaches it.
        TargetError: the folder cannot be made.
    """
    from pyarrow import ArrowException, fs

    scheme, separator, rest = uri.partition("://")
    shown = _SECRETS.sub("", uri)
    try:
        if not separator or scheme == "file":
            return _MountedStore(Path(rest if separator else uri.removeprefix("file:")).absolute())
        scheme = _SCHEMES.get(scheme, scheme)
        if scheme == "s3":  # a small file is one PUT, which is there as a whole or not at all
            rest += f"{'&' if '?' in rest else '?'}allow_delayed_open=true"
        system, place = fs.FileSystem.from_uri(f"{scheme}://{rest}")
    except (ArrowException, ValueError):
        remedy = "Give a folder, or s3://, gs://, abfss://"
        raise ConfigError("nothing here reaches such a place", path=shown, remedy=remedy) from None
    except OSError as error:
        problem = f"the folder cannot be made ({error.strerror or 'the store refuses'})"
        raise TargetError(problem, path=shown, remedy="See that it may be written to") from None
    return _ObjectStore(uri, system, place)
