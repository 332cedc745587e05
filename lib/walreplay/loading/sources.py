"""Which table each file's rows are of: by the names of the file and of the folders that it lies in."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePath
from typing import Final
from urllib.parse import unquote

from walreplay.errors import ConfigError
from walreplay.loading.formats import bare_name

_LOCAL: Final = re.compile(r"^file:/+")
_PART: Final = re.compile(r"[._-]\d+$")


def table_of(path: str, root: str, tables: Collection[str]) -> str | None:
    """Return the table (``schema.table``) of a file; None if it is hidden, and no table is called as it is.

    It is named by the file, ``shop.orders.csv.gz``, with or without a part's number, ``shop.orders.0001.csv``; or by
    folders, ``shop/orders.csv``, ``shop.orders/0001.csv``, ``shop/orders/0001.csv``.  Signs may be percent-encoded, as
    in a target's folders.  A name that begins with ``.`` or ``_`` hides what is called so, unless the table is.

    Raises:
        ConfigError: it is none of the tables'.
    """
    whole, base = _pure(path), _pure(root)
    below: Sequence[str] = (
        whole.relative_to(base).parts if whole.is_relative_to(base) and whole != base else (whole.name,)
    )
    # The root itself may be a table's folder.
    above = (base if whole != base else base.parent).parts[-2:]
    parts = (*above, *below)
    hidden = set() if whole == base else {at for at, part in enumerate(parts) if at >= len(above) and _is_hidden(part)}
    for name, first, last in _candidates(parts):
        if name in tables and all(first <= at <= last for at in hidden):
            return name
    if hidden:
        return None
    raise ConfigError(
        "the file is named like none of the tables that are described",
        path=path,
        remedy="If it is not of this copy, take it away; else call it schema.table.copy (or .csv, .bin), put it into a "
        "folder schema.table, or load one table at a time, with --table schema.table",
    )


def is_hidden(path: str, root: str) -> bool:
    """Tell whether a file, or a folder that it is in below the root, has a name that begins with ``.`` or ``_``."""
    whole, base = _pure(path), _pure(root)
    return whole.is_relative_to(base) and any(map(_is_hidden, whole.relative_to(base).parts))


def is_same(path: str, other: str) -> bool:
    """Tell whether two paths are the same, with ``file:`` in front or without."""
    return _pure(path) == _pure(other)


def _pure(path: str) -> PurePath:
    return PurePath(_LOCAL.sub("/", path))


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _candidates(parts: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Give what a file may be called after, and which of the path's parts say so: the first and the last."""
    *folders, own = parts
    end = len(folders)
    bare = bare_name(own)[0]
    for last in dict.fromkeys((bare, _PART.sub("", bare))):
        yield from _spelled(last, end, end)
        if folders:
            yield from _spelled(f"{folders[-1]}.{last}", end - 1, end)
    for at in range(end - 1, -1, -1):
        yield from _spelled(folders[at], at, at)
        if at:
            yield from _spelled(f"{folders[at - 1]}.{folders[at]}", at - 1, at)


def _spelled(name: str, first: int, last: int) -> Iterator[tuple[str, int, int]]:
    # What is encoded is part of a name, and does not part two.
    if "%" in name and "." in name:
        yield unquote(name), first, last
    yield name, first, last


__all__ = ["is_hidden", "is_same", "table_of"]
