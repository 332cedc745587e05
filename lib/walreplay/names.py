"""Names in the target: a mirror table's columns, and the tables that a source table is written to.

A column keeps its source's name.  But PostgreSQL distinguishes ``Id`` from ``id`` and Delta does not, a source's column
may have the name of one of the mirror's own, and Delta reserves some names.  A name that is in use gets a suffix:
``__2``, or the next free number.

Names are assigned in the order in which columns were created: version by version of the relation, and in each version
in the order of its columns, which is the order in which PostgreSQL created them.  So an added column never changes the
name of another, and a longer history has the same names as a shorter one.  A name is not used again, even if its column
is gone: the table may still have it.

A relation's changes are written to its mirror and to other *outputs*.  An output is planned like a relation of its own,
with an oid that is derived from the relation's.  So its name, moves, columns and commits are its own, and follow the
same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from walreplay.errors import ConfigError

_FIRST_SUFFIX: Final = 2  # a, a__2, a__3

RESERVED_COLUMNS: Final = (
    *("_change_type", "_commit_version", "_commit_timestamp", "__is_cdc"),
    *("_metadata", "_file_name_", "_row_dropped_", "_row_id_", "_source_row_present_", "_target_row_present_"),
    *("_tmp_metadata_row_index", "__delta_internal_is_row_deleted", "__delta_internal_row_index", "__condition__"),
)
"""Columns that Delta adds by itself: with its change data feed, inside of a MERGE or UPDATE, with deletion vectors.

A table that has one of its own may refuse the feed, or its MERGEs and UPDATEs.
"""


def fold(name: str) -> str:
    """Return the same text for two names that Spark may take for one.

    Spark compares by Java's ``equalsIgnoreCase`` in some places and by lower case in others, each character by itself.
    Two names that are equal to either of them are one here.
    """
    # By character: ß becomes SS in a text, and stays ß in Java's comparison.
    uppers = (upper if len(upper := character.upper()) == 1 else character for character in name)
    # İ is i with a dot to the one, and i to the other.
    return "".join(map(str.lower, uppers)).replace("i\u0307", "i")


def column_names(
    versions: Iterable[Sequence[str]],
    metadata: Iterable[str] = (),
    *,
    renames: Iterable[tuple[str, str]] = (),
    earlier: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the target's name of every source column that a table has, or has had.

    Args:
        versions: the source's column names, version by version in the stream's order.
        metadata: the mirror's own columns.
        renames: columns that were renamed at the source, see `renamed_columns`; the new name may then be like the
            old one but for case.
        earlier: names that were given before; they stay, and count as older than all versions.

    Raises:
        ConfigError: a known column has a name that is now one of the mirror's own.
    """
    names = dict(earlier or {})
    own_names = {fold(name): name for name in metadata}
    for source, target in names.items():
        if fold(target) in own_names:
            raise ConfigError(
                f"the metadata column {own_names[fold(target)]!r} has the name that the column {source!r} has in the "
                "table",
                remedy="Give the metadata column another name (commit_lsn_column, commit_ts_column, "
                "rescued_data_column); the names of others are fixed: leave out the source's column (exclude_columns), "
                "or rename it",
            )
    taken = {*own_names, *(fold(name) for name in RESERVED_COLUMNS), *(fold(target) for target in names.values())}
    renames = tuple(renames)
    # The columns that were known before may be those of the first version, or older ones.
    previous: Sequence[str] = tuple(names)
    for version in versions:
        for old in renamed_columns(previous, version, renames):
            taken.discard(fold(names.pop(old)))  # the new name may be like the old one but for case
        for name in version:
            if name not in names:
                names[name] = _free(name, taken)
                taken.add(fold(names[name]))  # also when the column is gone: the table may still have it
        previous = version
    return names


def free_names(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Return each name as it is, or with a suffix if it is taken; here names that differ by case are different."""
    used, result = set(taken), []
    for name in names:
        result.append(_free(name, used, alike=str))
        used.add(result[-1])
    return result


def _free(name: str, taken: Collection[str], alike: Callable[[str], str] = fold) -> str:
    candidate, number = name, _FIRST_SUFFIX
    while alike(candidate) in taken:
        candidate, number = f"{name}__{number}", number + 1
    return candidate


def renamed_columns(before: Sequence[str], after: Sequence[str], renames: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the columns that are renamed between one version and the next, old name to new.

    The configuration may name renames that have happened already, or are still to come.  A rename happens in this step
    if the old name ends and the new one begins with it.  One step may hold several renames of one column (a to b to c),
    and renames that follow each other (b to c, then a to b).
    """
    previous = {new: old for old, new in renames}
    old_names, new_names = set(before), set(after)
    renamed: dict[str, str] = {}
    for name in after:
        if name in old_names:
            continue
        chain: dict[str, str] = {}
        new, old, seen = name, previous.get(name), {name}
        while old is not None and old not in seen:  # names may be exchanged: a to b, and b to a
            seen.add(old)
            if old in old_names:
                chain[old] = new
                if old not in new_names:
                    renamed.update(chain)
                    break
                # The old name still exists, so it belongs to another column now.
                new = old
            elif old in new_names:
                break
            old = previous.get(old)
    return renamed


_BITS: Final = 32  # of PostgreSQL's oid; above it are 8 of the output, 8 of formers, and the successor's number


class RowKind(Enum):
    """What a row of a table is.  It decides how rows are decoded, folded and written, and the table's own columns."""

    CURRENT = "a row that the source has now"
    VERSION = "a version of a row, with the time from which and until which it held"
    CHANGE = "a change of a row, one behind the other"


class Output(str, Enum):
    """An output, by the name that the configuration has for it.

    Attributes:
        number: its number, which is part of what the ledger keeps.
        label: what people call it; ``comment`` is what stands in the table's comment in front of the source's name.
        is_whole: its table has rows from before the captures, too, and must miss no change.  Any other is appended to,
            change by change, whatever identifies the source's rows.
        table: what its table is called, where ``{table}`` stands for the mirror's name.
    """

    number: int
    label: str
    comment: str
    rows: RowKind
    is_whole: bool
    table: str

    MIRROR = "mirror", 0, "mirror", "PostgreSQL table", RowKind.CURRENT, True, "{table}"
    HISTORY = "history", 1, "history", "History of PostgreSQL table", RowKind.VERSION, True, "{table}__history"
    CHANGELOG = "changelog", 2, "change log", "Changes of PostgreSQL table", RowKind.CHANGE, False, "{table}__changes"

    def __new__(cls, name: str, *record: Any) -> Output:
        """Make an output of what is written above."""
        output = str.__new__(cls, name)
        output._value_ = name
        output.number, output.label, output.comment, output.rows, output.is_whole, output.table = record
        return output

    @property
    def suffix(self) -> str:
        """What stands behind the source's name in the name that people see; nothing for a mirror."""
        return "" if self is Output.MIRROR else f" ({self.value})"

    def oid_of(self, source: int) -> int:
        """Return the oid that stands for the output of a source relation; the mirror's is the relation's own."""
        return self.number << _BITS | source  # the mirror's number is 0


_OUTPUT_MASK: Final = 0xFF << _BITS
_FORMERS_AT: Final = 40
_MOST_FORMERS: Final = 0xFF
_SUCCESSORS_AT: Final = 48

_OUTPUTS: Final = {output.number: output for output in Output}

COUNT: Final = len(_OUTPUTS)  # of outputs that a relation may have


def source_oid(oid: int) -> int:
    """Return the source relation's own oid, which other tables may have had, too."""
    return oid & ((1 << _BITS) - 1)


def relation_of(oid: int) -> int:
    """Return what stands for the source relation alone, whichever of its outputs the oid stands for."""
    return oid & ~_OUTPUT_MASK


def successor_of(oid: int, formers: int | None = None) -> int:
    """Return what stands for another relation of the same oid: behind so many that have ended, or behind this one."""
    return oid + (1 << _SUCCESSORS_AT) if formers is None else oid | (formers & _MOST_FORMERS) << _FORMERS_AT


def former_tables(oid: int) -> int:
    """Return how many tables of the same oid are announced to have ended before."""
    return oid >> _FORMERS_AT & _MOST_FORMERS


def output_of(oid: int) -> Output:
    """Return the output that an oid stands for."""
    return _OUTPUTS[(oid & _OUTPUT_MASK) >> _BITS]
