"""A configuration that is made to be too much is refused at once, as what it is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pytest

from walreplay.cli import main
from walreplay.config import make_settings
from walreplay.errors import ConfigError


def laughs(levels: int, width: int = 10, *, merged: bool = False) -> str:
    """Write aliases of aliases: each level has the one before several times."""
    lines = ["a0: &a0 {x: 1}" if merged else "a0: &a0 [lol]"]
    for level in range(1, levels):
        inner = ", ".join([f"*a{level - 1}"] * width)
        lines.append(f"a{level}: &a{level} {{<<: [{inner}]}}" if merged else f"a{level}: &a{level} [{inner}]")
    return "\n".join(lines) + "\n"


TOO_MUCH: Final = {
    "a billion laughs": (laughs(10), "aliases"),
    "laughs for ever": (laughs(40, 2), "aliases"),
    "merged laughs": (laughs(10, merged=True), "aliases"),
    "a long chain": ("a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 5000)), "nested"),
    "brackets": ("[" * 20_000, "nested"),
    "closed brackets": ("a: " + "[" * 20_000 + "]" * 20_000, "nested"),
    "braces": ("a: " + "{a: " * 5_000, "nested"),
    "indented": ("".join(" " * n + "a:\n" for n in range(400)), "nested"),
    "dashes": ("- " * 3000 + "x", "nested"),
    "an alias in itself": ("a: &a [*a]\n", "an alias stands inside what it names"),
    "an alias as a key of itself": ("? &a {*a : 1}\n: 2\n", "an alias stands inside what it names"),
}


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_what_is_too_much_is_refused_at_once(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, problem = TOO_MUCH[kind]
    path = tmp_path / "config.yaml"
    path.write_text(text)
    start = time.process_time()
    with pytest.raises(ConfigError, match=problem) as caught:
        make_settings(path)
    assert time.process_time() - start < 5
    assert caught.value.path == str(path)
    assert main(["apply", "--captures", "nowhere", "--target", "./nowhere", "--config", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="characters"):
        make_settings("/dev/zero")


def test_aliases_as_people_use_them_are_fine(tmp_path: Path) -> None:
    tables = "".join(
        f"  - table: {{<<: *all, source_schema: shop, source_table: t{number}}}\n" for number in range(500)
    )
    path = tmp_path / "config.yaml"
    path.write_text(f"objects:\n  - table: &all {{source_schema: shop, source_table: t, keys: &key [id]}}\n{tables}")
    assert len(make_settings(path).objects) == 501
