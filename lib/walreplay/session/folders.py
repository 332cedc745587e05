"""Folders that the driver and the workers reach by themselves: mounted ones, and prefixes of an object store.

A folder is handed to tasks, so it can be pickled.  `MountedFolder` is at the same path on all machines.  `StoreFolder`
is opened by `pyarrow.fs`, with the options that the driver has found (`walreplay.session.reach`).  Both have the same
methods (`Folder`), which raise OSError as files do: FileNotFoundError if a file that is read does not exist.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyarrow import fs


Options: TypeAlias = tuple[tuple[str, "str | int | bool"], ...]
"""What an object store's client is made with, by the names of its parameters, in their order."""

WHOLE: Final = 1 << 20
"""A file in an object store that has no more bytes is read at once: a request takes as long as to read some of them."""

_ATTEMPTS: Final = 8
_PATIENCE: Final = timedelta(minutes=1)  # Google's client would try for a quarter of an hour by default

_FEW_ATTEMPTS: Final = 3
# How long a store may be silent when we only check whether it can be reached: less than 20 s in all.
_IMPATIENCE: Final = timedelta(seconds=15)

_CACHE_SECONDS: Final = 30.0  # seconds after which a store's small file is read again, at the latest

# How Arrow's clients name the reason, and the store itself, whose answer delta-rs passes on.
_STORE_REASON: Final = re.compile(
    r"(?:AWS|Google Cloud|Azure)\w* Error (\w+)|HTTP status (\d{3})|\[(\w+)\] HTTP|<Code>(\w+)</Code>"
)
# How Amazon's client writes an error that it has no name for.
_UNNAMED: Final = re.compile(r"AWS Error UNKNOWN \(HTTP status (\d{3})\)(?:.*\bUnable to parse ExceptionName: (\w+))?")

# How Amazon's client writes an error of a GET whose text is longer than the range that was requested.
_NO_ROOM_FOR_ERROR: Final = "Failed to flush response stream"

NO_NAME: Final = "its name is not known"
_SILENCES: Final = {"6": NO_NAME, "7": "the connection is refused", "28": "it is silent"}
_NO_ANSWER: Final = re.compile(rf"\bcurlCode: ({'|'.join(_SILENCES)})\b")  # curl's numbers


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Recent(Generic[_Key, _Value]):
    """The newest of the values that this process has kept, so many at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[_Key, _Value] = {}
        self._lock = threading.Lock()

    def get(self, key: _Key) -> _Value | None:
        """Return a value; None if it is not there."""
        with self._lock:
            return self._values.get(key)

    def keep(self, key: _Key, value: _Value) -> None:
        """Keep a value in place of an older one, or of the one that was kept first."""
        with self._lock:
            self._values.pop(key, None)  # so that it goes to the end of the dictionary
            while len(self._values) >= self._most:
                del self._values[next(iter(self._values))]
            self._values[key] = value

    def drop(self, is_dropped: Callable[[_Key], bool] = lambda _: True) -> None:
        """Drop some values, by default all."""
        with self._lock:
            for key in list(filter(is_dropped, self._values)):
                del self._values[key]


_FILE_CACHE: Final = Recent[tuple[str, Options, str], tuple[float, pa.Buffer]](16)
"""Small files of stores that were read a moment ago, because some are read by several in a row."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A file in a folder: another one of its name has another size (bytes) or time (ns since 1970)."""

    name: str
    size: int
    changed: int


@dataclass(frozen=True, slots=True)
class MountedFolder:
    """A folder that is mounted at the same path on all machines.

    Attributes:
        scheme: what Spark's name of it has in front of the path.
    """

    is_far: ClassVar[bool] = False
    """Each request takes so long that what is wanted together is best read together."""

    path: str
    scheme: str = "file:"

    @property
    def uri(self) -> str:
        """The folder's place as Spark names it."""
        return f"{self.scheme}{self.path}"

    def inside(self, path: str) -> MountedFolder:
        """Return a folder inside this one, by its path from here; an empty one is this folder's."""
        return MountedFolder(str(Path(self.path, path)), self.scheme)

    def make(self) -> None:
        """Make the folder and those above it."""
        Path(self.path).mkdir(parents=True, exist_ok=True)

    def create(self, name: str) -> pa.NativeFile:
        """Begin to write a file, in a folder that was made; it is there once it is closed."""
        return pa.OSFile(str(Path(self.path, name)), "wb")

    def put(self, name: str, data: bytes) -> None:
        """Write a small file, which is there whole or not at all."""
        path, whole = Path(self.path, f".{name}.{uuid.uuid4()}.tmp"), Path(self.path, name)
        path.write_bytes(data)
        path.replace(whole)  # at once: readers see no half of it

    def open(self, name: str) -> pa.NativeFile:
        """Open a file to read some of it."""
        return pa.OSFile(str(Path(self.path, name)), "rb")

    def read(self, name: str) -> bytes:
        """Read a file."""
        return Path(self.path, name).read_bytes()

    def names(self) -> list[str]:
        """Return the names of the files and folders inside, in no order; none if there is no such folder."""
        try:
            return os.listdir(self.path)  # noqa: PTH208 - in a log with many files it takes a fifth of iterdir's time
        except (FileNotFoundError, NotADirectoryError):
            return []

    def listed(self) -> list[Listed]:
        """Return the files inside, in no order; none if there is no such folder."""
        files = []
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path) as entries:
            for entry in entries:
                # A file may be gone since.
                with suppress(FileNotFoundError):
                    status = entry.stat()
                    files.append(Listed(entry.name, status.st_size, status.st_mtime_ns))
        return files

    def changed_at(self, name: str) -> float | None:
        """Return when a folder inside was last changed (seconds since 1970); None for none, or for a file."""
        path = Path(self.path, name)
        try:
            return path.stat().st_mtime if path.is_dir() else None
        except FileNotFoundError:
            return None

    def delete(self, *names: str) -> None:
        """Delete files, as far as they exist."""
        for name in names:
            Path(self.path, name).unlink(missing_ok=True)

    def delete_all(self) -> None:
        """Delete the folder and all that is in it, if it exists."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self.path)

    def delete_empty(self) -> None:
        """Delete the folder if nothing is in it."""
        with suppress(OSError):
            Path(self.path).rmdir()


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """A prefix of an object store.

    Attributes:
        scheme: as Spark knows the store (``s3a``); ``bucket`` is the part of the URI between its scheme and its path.
        path: the prefix as `pyarrow.fs` names it: the bucket or container, and what the URI has behind that.
        kind: the class of `pyarrow.fs`; ``options`` are its arguments.  They may hold keys, so they are never shown.
    """

    is_far: ClassVar[bool] = True

    scheme: str
    bucket: str
    path: str
    kind: str
    options: Options = field(repr=False)

    @property
    def uri(self) -> str:
        """The folder's place as Spark names it."""
        _, _, rest = self.path.partition("/")
        return f"{self.scheme}://{self.bucket}/{rest}".rstrip("/")

    @property
    def system(self) -> fs.FileSystem:
        """The store's client; a process has one."""
        return _client(self.kind, self.options)

    def try_out(self) -> None:
        """List a folder that does not exist, by a client with a short timeout.

        Raises:
            Exception: of any kind: the store refuses, or does not answer; or Arrow has no client for it.
        """
        from pyarrow import fs

        system = _client(self.kind, self.options, patient=False)
        # What the folder has may be many thousand files.
        system.get_file_info(fs.FileSelector(self._of(".reached"), allow_not_found=True))

    def inside(self, path: str) -> StoreFolder:
        """Return a folder inside this one."""
        below = path.strip("/")
        whole = f"{self.path}/{below}" if below else self.path
        return StoreFolder(self.scheme, self.bucket, whole, self.kind, self.options)

    def make(self) -> None:
        """Do nothing: a prefix is there with its first file."""

    def create(self, name: str) -> pa.NativeFile:
        """Begin to write a file."""
        self.forget(name)
        return self.system.open_output_stream(self._of(name))

    def put(self, name: str, data: bytes) -> None:
        """Write a small file, which is there whole or not at all."""
        with self.create(name) as file:
            file.write(data)

    def open(self, name: str) -> pa.NativeFile:
        """Open a file; a small one is read at once, and kept for a while (see `forget_files`)."""
        key = self.kind, self.options, self._of(name)
        since, kept = _FILE_CACHE.get(key) or (0.0, None)
        if kept is not None and time.monotonic() - since < _CACHE_SECONDS:
            return pa.BufferReader(kept)
        file = self.system.open_input_file(self._of(name))
        if file.size() > WHOLE:
            return file
        with file:
            data = file.read_buffer()
        _FILE_CACHE.keep(key, (time.monotonic(), data))
        return pa.BufferReader(data)

    def forget(self, name: str = "") -> None:
        """Read a file again, or with no name all below the prefix; see `forget_files`."""
        store, path = (self.kind, self.options), self._of(name)
        _FILE_CACHE.drop(lambda key: key[:2] == store and (key[2] == path or (not name and key[2].startswith(path))))

    def read(self, name: str) -> bytes:
        """Read a file."""
        with self.open(name) as file:
            read: bytes = file.read()
        return read

    def names(self) -> list[str]:
        """Return the names of the files and folders inside."""
        return [info.base_name for info in self._listed()]

    def listed(self) -> list[Listed]:
        """Return the files inside."""
        return [Listed(info.base_name, info.size, info.mtime_ns or 0) for info in self._listed() if info.is_file]

    def changed_at(self, name: str) -> float | None:
        """Return when the newest file of a folder inside was written."""
        times = [info.mtime_ns or 0 for info in self.inside(name)._listed() if info.is_file]
        return max(times) / 1e9 if times else None

    def delete(self, *names: str) -> None:
        """Delete files, as far as they exist."""
        for name in names:
            with suppress(FileNotFoundError):
                self.forget(name)
                self.system.delete_file(self._of(name))

    def delete_all(self) -> None:
        """Delete all objects whose names begin with the prefix."""
        with suppress(FileNotFoundError):
            self.forget()
            self.system.delete_dir(self.path)

    def delete_empty(self) -> None:
        """Do nothing: a prefix is gone with its last file."""

    def _listed(self) -> Sequence[fs.FileInfo]:
        from pyarrow import fs

        infos: Sequence[fs.FileInfo] = self.system.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return infos

    def _of(self, name: str) -> str:
        return f"{self.path}/{name}"


Folder: TypeAlias = MountedFolder | StoreFolder


def reason_of(error: OSError) -> str:
    """Return in a few words why a file system or a store refuses something, without names and values."""
    if error.errno:
        return os.strerror(error.errno)
    unnamed, reason = _UNNAMED.search(str(error)), _STORE_REASON.search(str(error))
    if _NO_ROOM_FOR_ERROR in str(error):
        return "the store has refused to send it"
    if unnamed:
        return unnamed[2] or f"HTTP status {unnamed[1]}"
    return next(filter(None, reason.groups())) if reason else "an error of the file system"


def silence_of(error: Exception) -> str | None:
    """Return in a few words why S3's client has got no answer at all from an address; None if it is something else."""
    match = _NO_ANSWER.search(str(error)) if isinstance(error, OSError) else None
    return None if match is None else _SILENCES[match[1]]


def forget_files(folder: Folder | None = None) -> None:
    """Read small files of stores again, because somebody else may have replaced them.

    Data files and staged ones never change, and have names of their own.  But a table's log that is deleted, or moved
    away, may be followed by another one whose commits have the same numbers.

    Args:
        folder: with all below it; None for any.
    """
    if folder is None:
        _FILE_CACHE.drop()
    elif isinstance(folder, StoreFolder):
        folder.forget()


@lru_cache(maxsize=16)
def _client(kind: str, options: Options, *, patient: bool = True) -> fs.FileSystem:
    from pyarrow import fs

    made, arguments = getattr(fs, kind), dict[str, Any](options)
    if kind == "GcsFileSystem":
        arguments["retry_time_limit"] = _PATIENCE if patient else _IMPATIENCE
    if kind != "S3FileSystem":
        return made(**arguments)
    # As patient as Hadoop's client: a busy store answers late, or with 503 for a while.
    connect, request, attempts = (10.0, 60.0, _ATTEMPTS) if patient else (4.0, 5.0, _FEW_ATTEMPTS)
    arguments |= {"connect_timeout": connect, "request_timeout": request}
    arguments["retry_strategy"] = fs.AwsStandardS3RetryStrategy(max_attempts=attempts)
    try:
        # A small file is written by one request instead of three.
        return made(**arguments, allow_delayed_open=True)
    except TypeError:
        # Arrow has it since its version 21.
        return made(**arguments)
