"""Where the archive lies: a folder, or a prefix of an object store that `pyarrow.fs` reaches.

A file is there whole, under its name, or not at all, and is never overwritten.  It counts as stored once its bytes were
read back: a store may answer that it has what it has not, and may have done what it answers an error to.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walreplay.errors import ConfigError, OrderError, TargetError

if TYPE_CHECKING:
    from pyarrow import fs

_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)  # a mounted store may have none
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}  # as Hadoop has them


class Store(ABC):
    """A place for files with simple names, and with at most one folder in front.

    Methods raise OSError where the store does not do what it is asked, now.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")

    @abstractmethod
    def names(self, folder: str = "") -> list[str]:
        """List the names of the files in the place, or in a folder of it; none if it is not there."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return a file's bytes; None if there is none of that name."""

    @abstractmethod
    def _write(self, name: str, data: bytes) -> None:
        """Write a file that was not there a moment ago."""

    def put(self, name: str, data: bytes) -> None:
        """Write a file, or find it there with the same bytes.

        Raises:
            OrderError: one of that name is there with other bytes.
            OSError: it is not known to be stored; the same call may be tried again.
        """
        kept = self.read(name)
        if kept is None:
            with suppress(FileExistsError):  # since a moment ago
                self._write(name, data)
            kept = self.read(name)
            if kept is None:
                raise OSError("the store has answered that it has the file, and does not have it")
        if kept != data:
            raise OrderError(
                "a file of that name is there with other bytes",
                path=f"{self.uri}/{name}",
                remedy="Somebody else writes into this folder, or the store does not keep what it is given: find out "
                "which. Nothing is lost: the server keeps what is not confirmed",
            )


class _Folder(Store):
    def __init__(self, uri: str, path: Path) -> None:
        super().__init__(uri)
        self._path = path
        path.mkdir(parents=True, exist_ok=True)

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
            except OSError as error:
                if error.errno not in _NO_LINKS or file.exists():
                    raise
                hidden.rename(file)
        finally:
            hidden.unlink(missing_ok=True)
        self._flush(file.parent)

    @staticmethod
    def _flush(folder: Path) -> None:
        """Have the folder's names on the disk, too."""
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class _Objects(Store):
    def __init__(self, uri: str, system: fs.FileSystem, path: str) -> None:
        super().__init__(uri.partition("?")[0])
        self._system, self._path = system, path.rstrip("/")

    def names(self, folder: str = "") -> list[str]:
        from pyarrow import fs

        place = f"{self._path}/{folder}" if folder else self._path
        files = self._system.get_file_info(fs.FileSelector(place, allow_not_found=True))
        return [file.base_name for file in files if file.is_file]

    def read(self, name: str) -> bytes | None:
        try:
            with self._system.open_input_stream(f"{self._path}/{name}") as stream:
                data: bytes = stream.read()
                return data
        except FileNotFoundError:
            return None

    def _write(self, name: str, data: bytes) -> None:
        # Arrow's clients have no conditional PUT: names tell recorders apart, see `walreplay.recording.stretch`.
        with self._system.open_output_stream(f"{self._path}/{name}") as stream:
            stream.write(data)


def store_at(uri: str) -> Store:
    """Open a path or a URI.

    Raises:
        ConfigError: there is nothing that reaches it.
        TargetError: the folder cannot be made.
    """
    from pyarrow import ArrowException, fs

    scheme, separator, rest = uri.partition("://")
    try:
        if not separator or scheme == "file":
            path = Path(rest if separator else uri.removeprefix("file:")).absolute()
            return _Folder(str(path), path)
        system, place = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}://{rest}")
    except (ArrowException, ValueError) as error:
        raise ConfigError(
            "nothing here reaches such a place", path=uri, remedy="Give a folder, or s3://, gs://, abfss://"
        ) from error
    except OSError as error:
        raise TargetError(
            f"the folder cannot be made ({error.strerror})", path=uri, remedy="See that it may be written to"
        ) from error
    return _Objects(uri, system, place)
