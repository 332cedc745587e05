"""The scripts that run on the source: SQL and shell that come with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final

from walreplay.errors import ConfigError

_FOLDER: Final = "postgresql"

_ABOUT: Final = ("#", "--")  # comments of shell and of SQL


def script_names() -> list[str]:
    """List the scripts."""
    return sorted(file.name for file in (files("walreplay") / _FOLDER).iterdir() if file.name.endswith((".sh", ".sql")))


def script(name: str) -> str:
    """Return a script's text.

    Raises:
        ConfigError: there is none of that name.
    """
    names = script_names()
    if name not in names:
        raise ConfigError(f"there is no script {name}", remedy=f"There are {', '.join(names)}")
    return (files("walreplay") / _FOLDER / name).read_text(encoding="utf-8")


def about(text: str) -> str:
    """Return what a script says of itself: its first sentence."""
    first = next(line for line in text.splitlines() if line.startswith(_ABOUT) and not line.startswith("#!"))
    return first.lstrip("#- ")


def copy_scripts(folder: Path) -> list[Path]:
    """Copy all scripts into a folder, which is made if it is not there; those that are there already stay.

    Raises:
        ConfigError: one of them is there with another text, or cannot be written.
    """
    copies = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in script_names():
            copy, text = folder / name, script(name)
            if copy.exists() and copy.read_text(encoding="utf-8") != text:  # a file that somebody has changed stays
                raise ConfigError(
                    "another file of that name is there", path=str(copy), remedy="Give another folder, or remove it"
                )
            copy.write_text(text, encoding="utf-8")
            copy.chmod(0o755 if name.endswith(".sh") else 0o644)  # executable
            copies.append(copy)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "a file of that name is no text"
        raise ConfigError(
            f"the scripts cannot be written: {why}", path=str(folder), remedy="Give another folder"
        ) from None
    return copies
