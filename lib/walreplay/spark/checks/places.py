"""Check that captures and target, and the captures of several sources, do not lie inside one another."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from walreplay.errors import ConfigError
from walreplay.spark.delta.target import Target
from walreplay.spark.session.places import one_name

_S3: Final = {"s3n": "s3a", "s3": "s3a"}
_GLOB: Final = re.compile(r"[*?\[\]{}]")


def check_places(captures: str, target: Target) -> None:
    """Refuse captures that lie in the target's folder, and a target in that of the captures.

    Raises:
        ConfigError: what one of them holds would be taken for the other's.
    """
    if target.root is None:
        return
    source, place = _parts(captures), _parts(target.root)
    if source == place:
        problem = "the captures and the target are one folder"
    elif _holds(source, place):
        problem = f"the target lies in the captures' folder, {captures}: its files would be read as captures"
    elif _holds(place, source):
        problem = f"the captures, {captures}, lie in the target's folder, where tables and the ledger are"
    else:
        return
    raise ConfigError(problem, path=target.text, remedy="Give each a folder of its own, beside the other")


def check_apart(
    captures: Mapping[str, str], recursive: Collection[str], patterns: Mapping[str, str | None] | None = None
) -> None:
    """Refuse a source whose captures are those of another one, or lie among them.

    Two sources may have one folder if they tell their files apart by their names.  That two patterns have a file in
    common is noticed only where one of them matches all that the other does.

    Args:
        captures: the place of each source's, by its name.
        recursive: the sources that read folders inside folders, too.
        patterns: of the files' names, by the sources that have one.

    Raises:
        ConfigError: naming both.
    """
    by_name = {name: pattern for name, pattern in (patterns or {}).items() if pattern is not None}
    for outer, holding in captures.items():
        for inner, held in captures.items():
            mine, other = _parts(holding), _parts(held)
            if outer == inner or not _holds(mine, other):
                continue
            if len(mine) < len(other) and outer in recursive:
                raise ConfigError(
                    f"the captures of the source {inner} lie in those of {outer}, which would read them as its own",
                    path=held,
                    remedy=f"Give each a folder of its own, beside the other; or set recursive: false for {outer}",
                )
            if len(mine) == len(other) and _takes(by_name.get(outer), by_name.get(inner)):
                raise ConfigError(
                    f"the captures of the source {inner} are those of {outer}, too: a source is a stream of its own",
                    path=held,
                    remedy="Give each a folder of its own; or, if one folder has the files of both, a pattern each: "
                    'captures: {uri: …, pattern: "eu_*"}. One stream that is to make other tables as well needs a '
                    "target of its own for these",
                )


def _takes(outer: str | None, inner: str | None) -> bool:
    """Say whether a pattern (None takes every name) takes names that another one takes, as far as they show it."""
    return outer is None or inner is None or outer == inner or fnmatchcase(inner, outer)


def _holds(outer: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    """Say whether a folder, whose path may contain globs, contains another one."""
    if len(outer) > len(inner):
        return False
    return all(
        mine == other or (_GLOB.search(mine) is not None and fnmatchcase(other, mine))
        for mine, other in zip(outer, inner, strict=False)
    )


def _parts(place: str) -> tuple[str, ...]:
    """Give the parts of a path or a URI, links and dots resolved: the file system first, then folder by folder."""
    place = one_name(place)
    if re.match(r"[A-Za-z][A-Za-z0-9+.\-]*:", place):
        found = urlsplit(place)
        if found.scheme != "file":
            path = os.path.normpath(f"/{found.path}")
            return (_S3.get(found.scheme, found.scheme), found.netloc, *Path(path).parts[1:])
        place = unquote(found.path)
    return ("", "", *Path(os.path.realpath(place)).parts[1:])


__all__ = ["check_apart", "check_places"]
