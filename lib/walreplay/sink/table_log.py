"""Read a Delta table's log without Spark (Delta's protocol, "Action Reconciliation").

Delta lists a table's files by a Spark query, which takes longer than the work on a small table.  If the log is plain
(commits after a checkpoint that is one file), Python lists the files, and checks the result against the version's
checksum.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from walreplay.sink.lineage import LoggedCommit, mark_of

_MOST_COMMITS: Final = 100
"""So many commits are read at most; Delta writes a checkpoint after every ten, unless a table's properties differ."""

_OF_VERSION: Final = re.compile(r"(\d{20})\.(json|checkpoint\b.*\.parquet)")
"""The log's files that show that a table has had a version."""


class LoggedVersion:
    """A table's version according to its log.  A method gives None if the log is not plain or has no valid checksum.

    Args:
        folder: the table's.
        version: the version's number; below 0 for a table that does not exist yet.
    """

    def __init__(self, folder: str, version: int) -> None:
        self._log = Path(folder, "_delta_log")
        self._version = version

    @cached_property
    def _sums(self) -> Mapping[str, Any] | None:
        return _checksum(self._log, self._version)

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

    def files(self) -> list[Mapping[str, Any]] | None:
        """Give the table's files, as the log's ``add`` entries."""
        if self._sums is None:
            return None
        try:
            found = _replayed(self._log, self._version)
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return None
        if found is None or (len(found), sum(file["size"] for file in found)) != self.size():
            return None
        return found


def newest_version(folder: str) -> int:
    """Give a table's newest version by the names of its log's files; -1 if there is no table."""
    try:
        names = [path.name for path in Path(folder, "_delta_log").iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return -1
    return max((int(found[1]) for name in names if (found := _OF_VERSION.fullmatch(name))), default=-1)


def commits_from(folder: str, first: int, last: int) -> Iterator[LoggedCommit]:
    """Give the commits from one version to another, both included; those that the log no longer has are left out."""
    for version in range(max(first, 0), last + 1):
        try:
            lines = Path(folder, "_delta_log", f"{version:020}.json").read_bytes().splitlines()
        except FileNotFoundError:
            continue
        actions = [json.loads(line) for line in lines]
        info: Mapping[str, Any] = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
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


def whole_file(folder: str, logged: Mapping[str, Any]) -> Path | None:
    """Give a file's path, from its entry in the log.

    None if the file has a deletion vector, or does not lie in the table's folder.
    """
    path: str = logged["path"]
    if logged.get("deletionVector") or ":" in path or path.startswith("/"):
        return None
    return Path(folder, unquote(path))


def _checksum(log: Path, version: int) -> Mapping[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((log / f"{version:020}.crc").read_bytes())
    except (OSError, ValueError):
        return None
    if not {"numFiles", "tableSizeBytes", "txnId"} <= found.keys():
        return None
    return found if found["txnId"] == _writer(log, version) else None


def _writer(log: Path, version: int) -> str | None:
    """Give the id of a commit's transaction: a checksum may be left from another commit that was rolled back."""
    try:
        for line in (log / f"{version:020}.json").read_bytes().splitlines():
            action = json.loads(line)
            if "commitInfo" in action:
                name: str | None = action["commitInfo"].get("txnId")
                return name
    except (OSError, ValueError):
        pass
    return None


def _replayed(log: Path, version: int) -> list[Mapping[str, Any]] | None:
    """Read commits back to a checkpoint or to the first one; for each file the newest entry counts.

    None if there are too many commits.
    """
    files: dict[tuple[str, str | None], Mapping[str, Any] | None] = {}
    for number in range(version, max(version - _MOST_COMMITS, -1), -1):
        checkpoint = log / f"{number:020}.checkpoint.parquet"
        if checkpoint.is_file():
            for file in _of_checkpoint(checkpoint):
                files.setdefault(_identity(file), file)
            break
        told: dict[tuple[str, str | None], Mapping[str, Any] | None] = {}
        for line in (log / f"{number:020}.json").read_bytes().splitlines():
            action = json.loads(line)
            if "add" in action:
                told[_identity(action["add"])] = action["add"]
            elif "remove" in action:
                told.setdefault(_identity(action["remove"]), None)
        files = {**told, **files}
        if number == 0:
            break
    else:
        return None
    return [file for file in files.values() if file is not None]


def _identity(file: Mapping[str, Any]) -> tuple[str, str | None]:
    """Identify a file together with its deletion vector."""
    vector = file.get("deletionVector")
    return file["path"], None if vector is None else json.dumps(vector, sort_keys=True)


def _of_checkpoint(path: Path) -> list[Mapping[str, Any]]:
    file = pq.ParquetFile(path)
    # delta-rs writes this column in every checkpoint, so only its values show that there are sidecars.
    if "sidecar" in file.schema_arrow.names and file.read(columns=["sidecar"]).column("sidecar").drop_null():
        raise ValueError("a checkpoint whose files are listed elsewhere")
    adds = file.read(columns=["add"]).column("add").drop_null().to_pylist()
    told = [{name: add.get(name) for name in ("path", "size", "deletionVector")} for add in adds]
    # Arrow reads a map as a list of pairs.
    return [one | {"partitionValues": dict(add["partitionValues"])} for one, add in zip(told, adds, strict=True)]
