"""What the configuration says about the reading of one table's values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

DecimalMode = Literal["precise", "string", "double"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]

DECIMAL_MODES: Final[tuple[str, ...]] = get_args(DecimalMode)
BINARY_MODES: Final[tuple[str, ...]] = get_args(BinaryMode)


@dataclass(frozen=True, slots=True)
class TypeOptions:
    """How the values of one table are read; the names are Debezium's.

    Args:
        decimal_handling_mode: the type for numeric: precise (decimal, or string if no decimal can hold the values),
            string, or double (the nearest one).
        binary_handling_mode: the type for bytea: bytes, or a string in base64, base64-url-safe or hex.
        overrides: (column, type name) for each column that is read as another type than its own.  They have priority
            over the modes.
    """

    decimal_handling_mode: DecimalMode = "precise"
    binary_handling_mode: BinaryMode = "bytes"
    overrides: tuple[tuple[str, str], ...] = ()

    def override_of(self, column: str) -> str | None:
        """Give the name of the type as which a column is read; None if that is its own."""
        return dict(self.overrides).get(column)


DEFAULT_OPTIONS: Final = TypeOptions()
