"""Which properties a mirror table may be given, and what values: checked before anything is read or written."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Final

_DELTA: Final = "delta."

_SWITCH: Final = re.compile(r"true|false", re.IGNORECASE)
_INTERVAL: Final = re.compile(
    r"(?:interval\s+)?(?:\d+\s+(?:week|day|hour|minute|second|millisecond|microsecond)s?\s*)+", re.IGNORECASE
)
_POSITIVE: Final = re.compile(r"0*[1-9]\d*")
_COUNT: Final = re.compile(r"-1|\d+")

_FORMS: Final[Mapping[re.Pattern[str], str]] = {
    _SWITCH: "true or false",
    _INTERVAL: "an interval: 30 days",
    _POSITIVE: "a whole number above 0",
    _COUNT: "a whole number, or -1",
}

KNOWN: Final[Mapping[str, re.Pattern[str]]] = {
    "delta.autoOptimize.autoCompact": re.compile(r"true|false|auto|legacy", re.IGNORECASE),
    "delta.autoOptimize.optimizeWrite": _SWITCH,
    "delta.checkpoint.writeStatsAsJson": _SWITCH,
    "delta.checkpoint.writeStatsAsStruct": _SWITCH,
    "delta.checkpointInterval": _POSITIVE,
    "delta.checkpointPolicy": re.compile("classic|v2"),
    "delta.columnMapping.mode": re.compile("name"),
    "delta.compatibility.symlinkFormatManifest.enabled": _SWITCH,
    "delta.dataSkippingNumIndexedCols": _COUNT,
    "delta.deletedFileRetentionDuration": _INTERVAL,
    "delta.enableChangeDataFeed": _SWITCH,
    "delta.enableDeletionVectors": _SWITCH,
    "delta.enableExpiredLogCleanup": _SWITCH,
    "delta.enableRowTracking": _SWITCH,
    "delta.enableTypeWidening": re.compile("true", re.IGNORECASE),
    "delta.logRetentionDuration": _INTERVAL,
    "delta.randomizeFilePrefixes": _SWITCH,
    "delta.randomPrefixLength": _POSITIVE,
}
"""Delta's own, as far as all versions of it know them, and the values that they take here."""

_NEEDED: Final = {
    "delta.columnMapping.mode": "must be name, which renamed and dropped columns need",
    "delta.enableTypeWidening": "must be true, which columns need that get a wider type",
}
_OURS: Final = ("delta.appendOnly", "delta.columnMapping.", "delta.feature.", "delta.min", "delta.setTransactionRet")
"""What a mirror could not be kept by, or walreplay sets by itself, begins so."""


def texts_of(value: Any) -> Any:
    """Give a property's text for values that YAML reads as a boolean or a number, such as true and 10."""
    if not isinstance(value, Mapping):
        return value
    return {name: _text(one) for name, one in value.items()}


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def check_properties(properties: dict[str, str]) -> dict[str, str]:
    """Refuse properties that Delta does not know, or that conflict with what walreplay does.

    Names without ``delta.`` in front are the user's own, and mean nothing to Delta.
    """
    for name, value in properties.items():
        if not name.startswith(_DELTA):
            continue
        form = KNOWN.get(name)
        if form is None and name.startswith(_OURS):
            raise ValueError(f"{name} may not be given: walreplay sets it where it is needed, or could not go on")
        if form is None:
            close = difflib.get_close_matches(name, KNOWN, n=1)
            nearest = f"; the nearest is {close[0]}" if close else f"; known are {', '.join(KNOWN)}"
            raise ValueError(f"{name} is no property of Delta's that is known here{nearest}")
        if form.fullmatch(value.strip()) is None:
            raise ValueError(f"{name} {_NEEDED.get(name) or _expected(form)}")
    return properties


def _expected(form: re.Pattern[str]) -> str:
    return f"must be {_FORMS.get(form) or form.pattern.replace('|', ' or ')}"
