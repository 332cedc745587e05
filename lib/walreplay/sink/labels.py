"""Labels of enums that the source has renamed: rows have today's texts, whenever they were written.

``ALTER TYPE … RENAME VALUE`` changes no row, and replication sends nothing of it, but all rows show the new label from
then on.  Announcements tell it (`walreplay.decode.announcements`): a column's type has the labels that were renamed,
each with all the texts that it has had.  So the types of two moments say which text has become which.

Transactions that are open while a label is renamed still send the old text behind the announcement.  So do servers
whose caches are not told.  So a text that is no label any more stands for the label that it was
(`ColumnType.as_sent`).  A text that is the label of another value by now is taken as what it says where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from walreplay.types.arrays import with_elements
from walreplay.types.base import ColumnType, Family, Label

_DELIMITER: Final = ","


def with_labels(column_type: ColumnType, labels: tuple[Label, ...], *, in_array: bool) -> ColumnType:
    """Give a type with its renamed labels, if its values are the labels' texts."""
    if not labels or column_type.family != Family.STRING or column_type.overridden:
        return column_type
    return replace(column_type, labels=labels, labels_in_array=in_array)


def as_sent(column_type: ColumnType, labels: tuple[Label, ...]) -> ColumnType | None:
    """Give the type of values as they are sent at a place of the stream; None if it makes no difference.

    Args:
        column_type: as of the run's end.
        labels: as they were announced at that place.
    """
    sent = replace(column_type, labels=labels, as_sent=True)
    return sent if renamed_labels(sent, column_type) else None


def renamed_labels(old: ColumnType, new: ColumnType) -> dict[str, str]:
    """Give the new text by the old one, for the labels whose texts differ.

    Types with other oids are other enums; what `USING` has made of their values is not known.
    """
    if not new.labels or old.oid != new.oid or (old.labels == new.labels and not old.as_sent):
        return {}
    now = {oid: texts[-1] for oid, texts in new.labels}
    found = {texts[-1]: now[oid] for oid, texts in old.labels if oid in now}
    if old.as_sent:
        for was, oids in _former(old.labels).items():
            if len(oids) == 1 and oids[0] in now:
                found.setdefault(was, now[oids[0]])
    known = dict(old.labels)
    for oid, texts in new.labels:
        if oid not in known:
            # What was not renamed by then had its first text.  Of two with one text the first had it first.
            found.setdefault(texts[0], texts[-1])
    return {was: now for was, now in found.items() if was != now}


def _former(labels: tuple[Label, ...]) -> dict[str, list[int]]:
    """Give the texts that are labels no more, with those that had them."""
    present = {texts[-1] for _, texts in labels}
    former: dict[str, list[int]] = {}
    for oid, texts in labels:
        for text in dict.fromkeys(texts[:-1]):
            if text not in present:
                former.setdefault(text, []).append(oid)
    return former


def relabelled(values: pa.Array, labels: Mapping[str, str], *, in_array: bool) -> pa.Array:
    """Give strings with new labels, all at once, so that two may swap their texts.

    Args:
        in_array: the strings are arrays' texts, whose elements are the labels.
    """
    encoded = values.dictionary_encode()

    def now(text: str) -> str:
        return labels.get(text, text)

    texts = [with_elements(text, _DELIMITER, now) if in_array else now(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(texts, values.type).take(encoded.indices)


__all__ = ["as_sent", "relabelled", "renamed_labels", "with_labels"]
