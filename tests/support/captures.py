"""The real captures in ``tests/captures`` and what the source's tables held in the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from walreplay.protocol.framing import Framing

CAPTURES = Path(__file__).parents[1] / "captures"


@dataclass(frozen=True)
class Case:
    """One recorded capture.

    Attributes:
        files: in time order.
        sessions: the same files, one tuple for each connection; the files of one join to one byte stream.
            A file may hold several connections: ``session_starts`` then says where each begins in the joined files.
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
        data = b"".join(path.read_bytes() for path in self.files)
        starts = self.info.get("session_starts")
        if starts is None:
            sizes = [sum(path.stat().st_size for path in files) for files in self.sessions]
            starts = list(accumulate(sizes[:-1], initial=0))
        return [data[start:end] for start, end in pairwise([*starts, len(data)])]


@cache
def cases() -> list[Case]:
    """List all cases, by name."""
    return [load(path.parent) for path in sorted(CAPTURES.glob("*/case.json"))]


def case(name: str) -> Case:
    """Return the one case whose name begins so: ``case("o12")``."""
    (found,) = [case for case in cases() if case.name.startswith(name)]
    return found


def load(root: Path) -> Case:
    """Read what a case's folder says of it."""
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
