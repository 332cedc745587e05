"""Checks of single keys, beyond their types.  Each raises a ValueError, to which pydantic adds the place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from walreplay.errors import ConfigError
from walreplay.types.names import type_named
from walreplay.types.text import codec_of

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

_EVERY_ORIGIN: Final = "any"

_MOST_CLUSTERING: Final = 4

_NO_OPERATION: Final = "none"


def each_once(what: str) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    """Give the check that refuses a name that is given twice, such as a column."""

    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) != len(names):
            raise ValueError(f"must name each {what} once")
        return names

    return check


def check_origins(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse ``any``, which is no origin's name."""
    if any(name.lower() == _EVERY_ORIGIN for name in names):
        raise ValueError("any is no origin's name: leave origins out to have the changes of all of them")
    return names


def split_expressions(value: Any) -> Any:
    """Accept Debezium's form too: one text, separated by commas; a backslash escapes a comma of an expression."""
    if not isinstance(value, str):
        return value
    return [part.replace("\\,", ",") for item in re.split(r"(?<!\\),", value) if (part := item.strip())]


def check_expressions(expressions: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what is no regular expression."""
    for text in expressions:
        try:
            expression(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return expressions


@cache
def expression(text: str) -> re.Pattern[str]:
    """Compile a regular expression over whole names."""
    # As in Debezium, case does not matter, so that no table slips through a list for being quoted at its source; nor
    # does one whose name has more than one line.
    return re.compile(text, re.IGNORECASE | re.DOTALL)


def check_operations(value: Any) -> Any:
    """Accept Debezium's form too: one text, separated by commas, and ``none``."""
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if isinstance(names, (list, tuple)) and _NO_OPERATION in names:
        if len(names) > 1:
            raise ValueError("none stands alone: it skips nothing")
        return []
    return names


def check_outputs(value: Any) -> Any:
    """Accept one output, or several separated by commas."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def check_output_name(name: str) -> str:
    """Refuse a name with a schema in front, or with braces that stand for nothing."""
    if any(brace in name.replace("{table}", "") for brace in "{}"):
        raise ValueError("knows {table}, which stands for the name of the mirror's table, and no other braces")
    return check_table_name(name)


def check_table_name(name: str) -> str:
    """Refuse a name with a schema in front."""
    if "." in name:
        raise ValueError("is the table's name alone; its schema is destination_schema")
    return name


def check_schema_template(name: str) -> str:
    """Refuse braces that stand for nothing."""
    if any(brace in name.replace("{schema}", "") for brace in "{}"):
        raise ValueError("knows {schema}, which stands for the source's schema, and no other braces")
    return name


def check_scd_type(value: Any) -> Any:
    """Accept Lakeflow's names of the SCD types as well."""
    known = {"SCD_TYPE_1": 1, "SCD_TYPE_2": 2}.get(value, value) if isinstance(value, str) else value
    if isinstance(known, bool):  # true is 1 to Python
        raise ValueError("must be 1 or 2")
    return known


def check_clustering(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse more columns than Delta clusters by."""
    if len(names) > _MOST_CLUSTERING:
        raise ValueError(f"takes {_MOST_CLUSTERING} columns at most")
    return names


def check_track_lists(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> None:
    """Refuse both lists of the columns whose changes begin versions."""
    if one is not None and other is not None:
        raise ValueError("may have track_history_column_list or track_history_except_column_list, not both")


def check_renames(names: dict[str, str]) -> dict[str, str]:
    """Refuse renames that contradict each other."""
    for old, new in names.items():
        if old == new:
            raise ValueError(f"{old!r} is renamed to itself")
    if len(set(names.values())) != len(names):
        raise ValueError("two columns cannot be renamed to one")
    return names


def defaults_of(value: Any) -> Any:
    """Give PostgreSQL's text for defaults that YAML reads as a boolean or a whole number."""
    if not isinstance(value, Mapping):
        return value
    found = {}
    for name, one in value.items():
        if isinstance(one, bool):
            one = "t" if one else "f"
        elif isinstance(one, int):
            one = str(one)
        elif not isinstance(one, str):
            raise ValueError(f"{name!r} has a value that is no text: write it in quotes, as PostgreSQL shows it")
        found[name] = one
    return found


def check_type(name: str) -> str:
    """Refuse what is no type's name."""
    with _as_problem_of_this_key():
        type_named(name)
    return name


def check_folder(place: str) -> str:
    """Refuse a path that each machine would look for somewhere else."""
    if _SCHEME.match(place) is None and not place.startswith("/"):
        raise ValueError("give an absolute path, or a URI")
    return place


def check_encoding(name: str) -> str:
    """Refuse what is no encoding of PostgreSQL's."""
    with _as_problem_of_this_key():
        codec_of(name)
    return name


@contextmanager
def _as_problem_of_this_key() -> Iterator[None]:
    # pydantic knows the place of a ValueError, and of no other.
    try:
        yield
    except ConfigError as error:
        raise ValueError(str(error)) from None


def same_columns(name: str, renames: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Give all names that a column has had, or will have, by its renames, its own among them."""
    found = {name}
    pairs = [set(pair) for pair in renames]
    while True:
        more = found.union(*(pair for pair in pairs if pair & found))
        if more == found:
            return frozenset(found)
        found = more


def none_is_empty(value: Any) -> Any:
    """Treat a section whose lines are all commented out, which YAML reads as null, as an empty one."""
    return {} if value is None else value
