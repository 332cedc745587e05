"""The real captures in ``tests/captures`` and what the source's tables held in the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from wal2delta.protocol.framing import Framing

CAPTURES = Path(__file__).parents[1] / "captures"


@dataclass(frozen=True)
class Case:
    """One recorded capture.

    Attributes:
        files: in time order.
        sessions: the same files, one tuple for each connection; the files of one join to one byte stream.
        truth: the CSV file with a table's rows at the end, by ``schema.table``.
        info: the whole of ``case.json``.
    """

    name: str
    files: tuple[Path, ...]
    sessions: tuple[tuple[Path, ...], ...]
    framing: Framing
    truth: Mapping[str, Path]
    info: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """The folder that holds the capture files and nothing else."""
        return self.files[0].parent

    def streams(self) -> list[bytes]:
        """Read each session's bytes, its files joined."""
        return [b"".join(path.read_bytes() for path in files) for files in self.sessions]


@cache
def cases() -> list[Case]:
    """List all cases, by name."""
    return [_load(path.parent) for path in sorted(CAPTURES.glob("*/case.json"))]


def case(name: str) -> Case:
    """Give the one case whose name begins so: ``case("o12")``."""
    (found,) = [case for case in cases() if case.name.startswith(name)]
    return found


def _load(root: Path) -> Case:
    info = json.loads((root / "case.json").read_text(encoding="utf-8"))
    sessions = tuple(tuple(root / "capture" / name for name in names) for names in info["sessions"])
    return Case(
        name=root.name,
        files=tuple(path for files in sessions for path in files),
        sessions=sessions,
        framing=Framing(info["framing"]),
        truth={table["table"]: root / table["truth"] for table in info["tables"]},
        info=info,
    )
