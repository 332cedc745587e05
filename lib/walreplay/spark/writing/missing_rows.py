"""Updates and deletes of rows that are not in their table.

If all rows of a table were captured, this is a contradiction.  But nothing in the bytes says that a table was empty
when the captures began.  So a missing row is a warning, or stops the run if that is configured (``on_missing_row``).
It is neither if the configuration itself leaves rows out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from walreplay.errors import MissingRow

if TYPE_CHECKING:
    from walreplay.report import TableReport
    from walreplay.settings import Settings

_REASONS: Final = (
    "Likely reasons: the rows were there before the captures began, or came with a partition that was attached; a "
    "setting of the sender, such as IntervalStyle, TimeZone or extra_float_digits, was another one when they were "
    "sent; the key does not name the rows; something else has changed the mirror"
)


def refuse_missing(table: str, *, updates: int, deletes: int) -> None:
    """Stop before a commit that changes rows which the table does not have.

    Args:
        table: the table's name for people.
        updates: how many rows to be updated are missing; ``deletes`` counts those to be deleted.

    Raises:
        MissingRow: either number is not 0.
    """
    if updates or deletes:
        raise MissingRow(
            f"{_told(updates, deletes)} (on_missing_row: stop)",
            table=table,
            remedy=f"{_REASONS}. The table was not touched. Set on_missing_row: warn and run again to go on with it as "
            "it is, or mirror it anew from captures that have all of its rows",
        )


def missing_warnings(reports: Iterable[TableReport], settings: Settings) -> Iterator[str]:
    """Give a warning for each table that did not have rows that were changed.

    There are no warnings if the configuration leaves rows out, because then missing rows are expected.  The tables'
    notes still have the counts.
    """
    if settings.leaves_rows_out:
        return
    for report in sorted(reports, key=lambda report: report.name):
        if report.without_base or report.deletes_without_row:
            yield f"{report.name}: {_told(report.without_base, report.deletes_without_row)}. {_REASONS}"


def _told(updates: int, deletes: int) -> str:
    kinds = [f"{count:,} to be {what}" for count, what in ((updates, "updated"), (deletes, "deleted")) if count]
    total = updates + deletes
    return f"{total:,} {'row is' if total == 1 else 'rows are'} not in the table though changed: {', '.join(kinds)}"
