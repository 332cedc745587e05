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
        decimal_handling_mode: what becomes of numeric: precise (decimal, or string where no decimal holds it),
            string, or double (the nearest one).
        binary_handling_mode: what becomes of bytea: bytes, or a string in base64, base64-url-safe or hex.
        overrides: (column, name of a type) of the columns that are read as another type than their own, whatever
            the modes say.
    """

    decimal_handling_mode: DecimalMode = "precise"
    binary_handling_mode: BinaryMode = "bytes"
    overrides: tuple[tuple[str, str], ...] = ()

    def override_of(self, column: str) -> str | None:
        """Give the name of the type that a column is to be read as; None for its own."""
        return dict(self.overrides).get(column)


DEFAULT_OPTIONS: Final = TypeOptions()
