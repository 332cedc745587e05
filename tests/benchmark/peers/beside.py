"""Run other decoders over the same messages: pglogrepl where Go is, pypgoutput where pip can install it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from measuring import Timing, in_turn

from peers import by_struct
from walreplay.errors import TruncatedMessage
from walreplay.protocol.framing import Framing
from walreplay.protocol.reader import read_messages

_SLOW_BYTES = 8_000_000
"""What a decoder is given that makes an object of each value."""


def peers(folder: Path, kind: str, capture: Path, runs: int) -> list[Timing]:
    """Time the peers on a capture in copydata framing; ``part`` says how much of it each has read."""
    return [
        *_pglogrepl(folder, kind, capture, runs),
        *_pypgoutput(folder, kind, capture),
        _by_struct(kind, capture, runs),
    ]


def _by_struct(kind: str, capture: Path, runs: int) -> Timing:
    """Time a parser by ``struct``, without types."""
    data = capture.read_bytes()
    messages = b"".join(_messages(data[:_SLOW_BYTES]))
    taken = in_turn({"struct": lambda: list(by_struct.parse(messages, {}))}, runs)["struct"]
    part = {"part": _SLOW_BYTES / len(data)}
    return Timing("decode", f"{kind} parser by struct, no types", taken, more=part)


def _messages(data: bytes | memoryview) -> Iterator[bytes]:
    """Yield the whole messages of a part of a capture."""
    with suppress(TruncatedMessage):
        for begin, end, _ in read_messages(data, 0, framing=Framing.COPYDATA):
            yield bytes(data[begin:end])


def _pglogrepl(folder: Path, kind: str, capture: Path, runs: int) -> list[Timing]:
    if shutil.which("go") is None:
        return []
    program = folder.resolve() / "pglogrepl"
    folder.mkdir(parents=True, exist_ok=True)
    built = _run(["go", "build", "-o", str(program), "."], Path(__file__).parent / "pglogrepl")
    if built is None:
        return []
    timings = []
    for name, option in (("parse only", []), ("typed by pgx", ["-typed"])):
        said = _run([str(program), *option, "-runs", str(runs), str(capture)], folder)
        if said is not None:
            found = json.loads(said)
            timings.append(Timing("decode", f"{kind} pglogrepl (Go), {name}", found["seconds"], more={"part": 1.0}))
    return timings


def _pypgoutput(folder: Path, kind: str, capture: Path) -> list[Timing]:
    path = folder / "python" / "pypgoutput" / "decoders.py"
    if not path.exists():
        install = ["install", "--quiet", "--no-deps", "--target", str(folder / "python"), "pypgoutput==0.0.3"]
        _run([sys.executable, "-m", "pip", *install], Path())
    if not path.exists():
        return []
    decoders = _load(path)
    data = capture.read_bytes()
    part = memoryview(data)[:_SLOW_BYTES]
    messages = [*_messages(part)]
    classes: dict[int, Callable[[bytes], object]] = {
        ord(name[0]): getattr(decoders, name) for name in ("Begin", "Commit", "Insert", "Update", "Delete", "Relation")
    }

    def parse() -> None:
        for message in messages:
            classes[message[0]](message)

    taken = in_turn({"peer": parse}, 1)["peer"]
    return [Timing("decode", f"{kind} pypgoutput, parse only", taken, more={"part": len(part) / len(data)})]


def _load(path: Path) -> types.ModuleType:
    """Load one module without its package, which wants a database's driver."""
    spec = importlib.util.spec_from_file_location("pypgoutput_decoders", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _run(command: list[str], folder: Path, **more: str) -> str | None:
    """Run a program; None, and a line that says so, if it fails."""
    environment = {**os.environ, **more}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{command[0]} failed, left out: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return done.stdout
