"""A table's columns as Delta's log declares them, before and after a change.

This repeats what ALTER TABLE writes there.  A renamed column keeps its physical name and id.  A widened one records its
old type (Delta's protocol, "Type Widening").  A new one gets both from Delta's transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from walreplay.sink.comments import followed

Field = Mapping[str, Any]

_TYPE_CHANGES: Final = "delta.typeChanges"


@dataclass(frozen=True, slots=True)
class Added:
    """A new column as the log declares it, and the name of the column before it; None for the first position."""

    field: Field
    after: str | None


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of a table's columns.

    Attributes:
        drops: names of columns.
        renames: old and new name of columns.
        types: the new types, as the log writes them, by the columns' names in the end; None for none.
        adds: the new columns.
        comments: by the columns' names in the end, the comment that walreplay wrote last, and the new one.
    """

    drops: Sequence[str] = ()
    renames: Sequence[tuple[str, str]] = ()
    types: Mapping[str, Any] | None = None
    adds: Sequence[Added] = ()
    comments: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def changed(fields: Sequence[Field], changes: Changes) -> list[Field]:
    """Give a table's columns after some changes; changes that the table already has are skipped."""
    renames, types = dict(changes.renames), changes.types or {}
    found: list[Field] = []
    for one in fields:
        if one["name"] in changes.drops:
            continue
        name = str(renames.get(one["name"], one["name"]))
        kind, metadata = one["type"], one["metadata"]
        wider = types.get(name, kind)
        if wider != kind:
            metadata = {**metadata, _TYPE_CHANGES: [*metadata.get(_TYPE_CHANGES, ()), *_widened(kind, wider)]}
        there = metadata.get("comment", "")
        if name in changes.comments and (comment := followed(there, *changes.comments[name])) != there:
            metadata = {**metadata, "comment": comment}
        found.append({**one, "name": name, "type": wider, "metadata": metadata})
    for added in changes.adds:
        names = [one["name"] for one in found]
        if added.field["name"] not in names:
            place = 0 if added.after is None else names.index(added.after) + 1
            found.insert(place, {"metadata": {}, **added.field})
    return found


def changed_within(fields: Sequence[Field], column: str | None, changes: Changes) -> list[Field]:
    """Give a table's columns after some changes of them, or of the fields of one of them."""
    if column is None:
        return changed(fields, changes)
    found: list[Field] = []
    for one in fields:
        if one["name"] == column:
            kind = one["type"]
            one = {**one, "type": {**kind, "fields": changed(kind["fields"], changes)}}
        found.append(one)
    return found


def _widened(old: Any, new: Any, *path: str) -> Iterator[dict[str, str]]:
    """Give the log's notes of a type that was widened: one for each part of the type that differs."""
    if isinstance(old, str):
        told = {"fromType": old, "toType": new}
        if old != new:
            yield told | ({"fieldPath": ".".join(path)} if path else {})
    else:
        yield from _widened(old["elementType"], new["elementType"], *path, "element")
