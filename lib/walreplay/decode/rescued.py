"""Values that their columns' types cannot hold: for each row a JSON object of column names and PostgreSQL's texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray


_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-f]{4})|.)")


def read_rescued(rescued: pa.Array) -> list[dict[str, str]]:
    """Parse the objects of all rows; a row without one gets an empty dictionary."""
    return [{} if text is None else json.loads(text) for text in rescued.to_pylist()]


def rescued_json(values: Mapping[str, Any]) -> str:
    """Write an object as Spark's `to_json` writes one with sorted names: equal objects have to be equal texts."""
    text = json.dumps(values, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return _ESCAPE.sub(_in_capitals, text) if "\\u" in text else text


def _in_capitals(escape: re.Match[str]) -> str:
    return escape[0] if escape[1] is None else f"\\u{escape[1].upper()}"


def rescued_array(rows: Iterable[Mapping[str, str]]) -> pa.Array:
    """Write an object for each row, NULL for an empty one."""
    return pa.array([rescued_json(values) if values else None for values in rows], pa.string())


def spread(some: pa.Array, at: Sequence[int] | NDArray[np.int64], rows: int) -> pa.Array:
    """Give a column of `rows` rows with the values `some` at the rows `at`, and NULL elsewhere."""
    index = np.full(rows, -1, np.int64)
    index[at] = np.arange(len(some))
    return some.take(pa.array(index, mask=index < 0))
