"""Read a Delta table's log without Spark (Delta's protocol, "Action Reconciliation").

Delta lists a table's files by a Spark query, which takes longer than the work on a small table.  If the log is plain
(commits after a checkpoint that is one file), Python lists the files, and checks the result against the version's
checksum.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from walreplay.sink.folders import Folder
from walreplay.sink.lineage import LoggedCommit, mark_of

LOG: Final = "_delta_log"

_MOST_COMMITS: Final = 100
"""So many commits are read at most; Delta writes a checkpoint after every ten, unless a table's properties differ."""

_OF_VERSION: Final = re.compile(r"(\d{20})\.(json|checkpoint\b.*\.parquet)")
"""The log's files that show that a table has had a version."""

_NUMBERED: Final = re.compile(r"\.{0,2}(\d{20})\.")
"""How files of a version begin: its checksums, and what was to become one."""


class LoggedVersion:
    """A table's version according to its log.  A method gives None if the log is not plain or has no valid checksum.

    Args:
        folder: the table's.
        version: the version's number; below 0 for a table that does not exist yet.
        known: gives the version's checksum, if somebody has it in memory, so that its file need not be read.
    """

    def __init__(self, folder: Folder, version: int, known: Callable[[int], str | None] | None = None) -> None:
        self._log = folder.inside(LOG)
        self._version = version
        self._known = known

    @cached_property
    def _sums(self) -> Mapping[str, Any] | None:
        """The version's checksum, if it is the commit's own: one may be left from a commit that was rolled back."""
        known = None if self._known is None else self._known(self._version)
        try:
            found: dict[str, Any] = json.loads(known or self._log.read(f"{self._version:020}.crc"))
        except (OSError, ValueError):
            return None
        if not {"numFiles", "tableSizeBytes", "txnId"} <= found.keys():
            return None
        return found if self.made_by is not None and self.made_by == found["txnId"] else None

    @property
    def made_by(self) -> str | None:
        """The id of the version's commit, which no other table's has."""
        return _info_of(self._newest or ()).get("txnId")

    @cached_property
    def _newest(self) -> Sequence[Mapping[str, Any]] | None:
        """The actions of the version's commit."""
        try:
            return _actions(self._log, self._version)
        except (OSError, ValueError):
            return None

    def size(self) -> tuple[int, int] | None:
        """Give the number of the table's files, and their total size in bytes."""
        return None if self._sums is None else (int(self._sums["numFiles"]), int(self._sums["tableSizeBytes"]))

    def transactions(self) -> dict[str, int] | None:
        """Give the number of each application's last commit (``txnVersion`` by ``txnAppId``)."""
        if self._version < 0:
            return {}
        if self._sums is None or self._sums.get("setTransactions") is None:
            return None
        return {one["appId"]: int(one["version"]) for one in self._sums["setTransactions"]}

    def metadata(self) -> Mapping[str, Any] | None:
        """Give the table's metadata, as the log's ``metaData`` entry."""
        return None if self._sums is None else self._sums.get("metadata")

    def replaced_by(self) -> Mapping[str, Any] | None:
        """Give the one file of a version whose commit has replaced all rows, by that commit alone; None for others."""
        actions = self._newest or ()
        info = _info_of(actions)
        told = info.get("operationParameters") or {}
        added = [one["add"] for one in actions if "add" in one]
        replaces = info.get("operation") == "WRITE" and told.get("mode") == "Overwrite"
        return added[0] if replaces and "predicate" not in told and len(added) == 1 else None

    def files(self) -> list[Mapping[str, Any]] | None:
        """Give the table's files, as the log's ``add`` entries."""
        size = self.size()
        if size is None:
            return None
        try:
            found = _replayed(self._log, self._version, self._newest or (), size)
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return None
        return None if found is None or _size(found) != size else found


class DamagedLog(ValueError):
    """A table's log lacks a commit, or has one that is not whole."""


def newest_version(folder: Folder) -> int:
    """Give a table's newest version by the names of its log's files; -1 if there is no table."""
    return _newest(folder.inside(LOG).names())


def _newest(names: Sequence[str]) -> int:
    return max((int(found[1]) for name in names if (found := _OF_VERSION.fullmatch(name))), default=-1)


def check_log(folder: Folder) -> int:
    """Check the commits behind a log's newest checkpoint, which all readers need; return the newest version.

    In an object store each commit takes a request, so there only their names are checked.

    Raises:
        DamagedLog: one is missing, or torn; the text names it.
    """
    log = folder.inside(LOG)
    names = frozenset(log.names())
    newest = _newest(tuple(names))
    begins = (int(name[:20]) + 1 for name in names if ".checkpoint." in name and _OF_VERSION.fullmatch(name))
    for version in range(max(begins, default=0), newest + 1):
        name = f"{version:020}.json"
        if name not in names:
            raise DamagedLog(f"{LOG}/{name} is missing")
        if not log.is_far:
            try:
                _actions(log, version)
            except ValueError:
                raise DamagedLog(f"{LOG}/{name} is not whole") from None
    return newest


def clear_leftovers(folder: Folder) -> None:
    """Remove files of a log that belong to commits which are gone: they would be taken for those of the next ones.

    Hadoop's checksums of commits (``.NAME.json.crc``) damn a commit that comes in their place.
    """
    log = folder.inside(LOG)
    names = log.names()
    newest = _newest(names)
    numbered = ((name, _NUMBERED.match(name)) for name in names)
    log.delete(*(name for name, found in numbered if found is not None and int(found[1]) > newest))


def commits_from(folder: Folder, first: int, last: int) -> Iterator[LoggedCommit]:
    """Give the commits from one version to another, both included; those that the log no longer has are left out."""
    log = folder.inside(LOG)
    for version in range(max(first, 0), last + 1):
        try:
            actions = _actions(log, version)
        except FileNotFoundError:
            continue
        info = _info_of(actions)
        files = [action for one in actions for kind in ("add", "remove") if (action := one.get(kind)) is not None]
        parameters: Mapping[str, Any] = info.get("operationParameters") or {}
        yield LoggedCommit(
            version,
            str(info.get("operation", "a commit that does not say what it does")),
            parameters,
            mark_of(info.get("userMetadata"), parameters),
            keeps_files=not any(file.get("dataChange", True) for file in files),
            keeps_metadata=not any("metaData" in one for one in actions),
        )


def whole_file(logged: Mapping[str, Any]) -> str | None:
    """Give a file's name in the table's folder, from its entry in the log.

    None if the file has a deletion vector, or does not lie in the table's folder.
    """
    path: str = logged["path"]
    if logged.get("deletionVector") or ":" in path or path.startswith("/"):
        return None
    return unquote(path)


def _info_of(actions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Give what a commit says of itself; empty if it says nothing."""
    info: Mapping[str, Any] = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
    return info


def _actions(log: Folder, version: int) -> list[Mapping[str, Any]]:
    found = [json.loads(line) for line in log.read(f"{version:020}.json").splitlines()]
    if not found:
        raise DamagedLog(f"{LOG}/{version:020}.json is empty")
    return found


_Files = dict[tuple[str, "str | None"], Mapping[str, Any] | None]
"""A table's files by their identity; None for one that was removed."""


def _replayed(
    log: Folder, version: int, newest: Sequence[Mapping[str, Any]], size: tuple[int, int] | None
) -> list[Mapping[str, Any]] | None:
    """Read commits back until all files are found, or to a checkpoint; for each file the newest entry counts.

    None if there are too many commits.

    Args:
        newest: the actions of the version's own commit.
        size: how many files the table has, and their total size; None if that is not known.
    """
    files = _told(newest)
    names = frozenset[str]()
    for number in range(version, max(version - _MOST_COMMITS, -1), -1):
        if number < version:
            # The checkpoints are asked for by one listing, and only if the newest commit does not tell all.
            names = names or frozenset(log.names())
        if f"{number:020}.checkpoint.parquet" in names:
            for file in _of_checkpoint(log, number):
                files.setdefault(_identity(file), file)
            return _live(files)
        if number < version:
            files = {**_told(_actions(log, number)), **files}
        # A file that is there and not removed later is there for certain.
        if number == 0 or _size(_live(files)) == size:
            return _live(files)
    return None


def _told(actions: Sequence[Mapping[str, Any]]) -> _Files:
    """Give the files that a commit has added or removed."""
    told: _Files = {}
    for action in actions:
        if "add" in action:
            told[_identity(action["add"])] = action["add"]
        elif "remove" in action:
            told.setdefault(_identity(action["remove"]), None)
    return told


def _live(files: _Files) -> list[Mapping[str, Any]]:
    return [file for file in files.values() if file is not None]


def _size(files: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    return len(files), sum(file["size"] for file in files)


def _identity(file: Mapping[str, Any]) -> tuple[str, str | None]:
    """Identify a file together with its deletion vector."""
    vector = file.get("deletionVector")
    return file["path"], None if vector is None else json.dumps(vector, sort_keys=True)


def _of_checkpoint(log: Folder, version: int) -> list[Mapping[str, Any]]:
    file = pq.ParquetFile(log.open(f"{version:020}.checkpoint.parquet"))
    # delta-rs writes this column in every checkpoint, so only its values show that there are sidecars.
    if "sidecar" in file.schema_arrow.names and file.read(columns=["sidecar"]).column("sidecar").drop_null():
        raise ValueError("a checkpoint whose files are listed elsewhere")
    adds = file.read(columns=["add"]).column("add").drop_null().to_pylist()
    told = [{name: add.get(name) for name in ("path", "size", "deletionVector")} for add in adds]
    # Arrow reads a map as a list of pairs.
    return [one | {"partitionValues": dict(add["partitionValues"])} for one, add in zip(told, adds, strict=True)]
