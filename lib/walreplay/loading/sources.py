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


def table_of(path: str, root: str, tables: Collection[str]) -> str:
    """Give the table (``schema.table``) of a file.

    It is named by the file, ``shop.orders.csv.gz``, with or without a part's number, ``shop.orders.0001.csv``; or by
    folders, ``shop/orders.csv``, ``shop.orders/0001.csv``, ``shop/orders/0001.csv``.  Signs that no file's name may
    have are percent-encoded, as in a target's folders.

    Raises:
        ConfigError: it is none of the tables'.
    """
    for name in _candidates(path, root):
        if name in tables:
            return name
    raise ConfigError(
        "the file is named like none of the tables that are described",
        path=path,
        remedy="Call it schema.table.copy (or .csv, .bin), put it into a folder schema.table, or load one table at a "
        "time, with --table schema.table",
    )


def _candidates(path: str, root: str) -> Iterator[str]:
    whole, base = PurePath(_LOCAL.sub("/", path)), PurePath(_LOCAL.sub("/", root))
    below: Sequence[str] = (
        whole.relative_to(base).parts if whole.is_relative_to(base) and whole != base else (whole.name,)
    )
    # The root itself may be a table's folder.
    folders = [*base.parts[-2:], *below[:-1]] if whole != base else [*base.parent.parts[-2:]]
    bare = bare_name(path)[0]
    for last in dict.fromkeys((bare, _PART.sub("", bare))):
        yield from _spelled(last)
        if folders:
            yield from _spelled(f"{folders[-1]}.{last}")
    for at in range(len(folders) - 1, -1, -1):
        yield from _spelled(folders[at])
        if at:
            yield from _spelled(f"{folders[at - 1]}.{folders[at]}")


def _spelled(name: str) -> Iterator[str]:
    yield name
    if "%" in name:
        yield unquote(name)


__all__ = ["table_of"]
