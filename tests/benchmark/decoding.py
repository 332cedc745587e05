"""How fast captures are decoded on one core, by `read_changes`, in every form."""

from __future__ import annotations

from pathlib import Path

from generate import MEGABYTE, Shape, write_capture
from measuring import Timing, Work, compared, in_turn
from peers.beside import peers
from recorded import record

from walreplay import read_changes
from walreplay.changes import plan_files
from walreplay.protocol.framing import Framing

KINDS = ("pgbench", "orders")


def run(folder: Path, megabytes: int, runs: int) -> list[list[Timing]]:
    """Measure each kind of capture; a side is `read_changes` over one form of it, or a peer."""
    return [_of_kind(folder, kind, megabytes, runs) for kind in KINDS]


def _of_kind(folder: Path, kind: str, megabytes: int, runs: int) -> list[Timing]:
    shapes = {f"{kind} text, {framing.value}": Shape(kind, framing) for framing in Framing}
    shapes[f"{kind} binary, raw"] = Shape(kind, Framing.RAW, binary=True)
    shapes[f"{kind} streamed, raw"] = Shape(kind, Framing.RAW, streamed=True)
    paths = {
        name: write_capture(folder / f"{name.replace(', ', ' ').replace(' ', '-')}-{megabytes}.bin", shape, size)
        for name, shape in shapes.items()
        for size in (megabytes * MEGABYTE,)
    }
    paths[f"{kind} recorded from PostgreSQL"] = record(folder / f"{kind}-recorded.bin", kind)
    raw, boundaries = f"{kind} text, raw", f"{kind} boundaries alone, raw"
    sides: dict[str, Work] = {name: _decoding(path) for name, path in paths.items()}
    sides[boundaries] = lambda: plan_files([str(paths[raw])])
    sizes = {name: path.stat().st_size for name, path in paths.items()}
    sizes[boundaries] = sizes[raw]
    # Each is warm by a run of its own: what the side before it leaves in caches, and in memory for columns, is others'.
    taken = in_turn(sides, runs, before=sides)
    timings = [Timing("decode", name, seconds, sizes[name]) for name, seconds in taken.items()]
    changes = decode(paths[raw])
    for timing in timings:
        if timing.name == raw:
            timing.more["million_changes_per_s"] = round(changes / timing.median / 1e6, 2)
    beside = peers(folder / "peers", kind, paths[f"{kind} text, copydata"], runs)
    for timing in beside:
        # Frames are no work of theirs: they are compared by the messages in them.
        timing.bytes = round(sizes[raw] * timing.more.pop("part"))
    return compared([*timings, *beside], raw)


def decode(path: Path) -> int:
    """Decode a capture to Arrow and count its row changes."""
    return sum(batch.data.num_rows for batch in read_changes(path))


def _decoding(path: Path) -> Work:
    return lambda: decode(path)
