"""What one call wants of all that the configuration does: a part of the tables, or of their outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from walreplay.errors import ConfigError
from walreplay.outputs import Output
from walreplay.settings.keys import check_expressions, expression


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What a call wants; None leaves it to the configuration.

    Attributes:
        tables: a regular expression over the whole of ``schema.table``.
        oids: relations, whatever they are called.
        outputs: what is wanted of those that a table has.
        from_lsn: changes of transactions with a lower commit LSN are left out.
    """

    tables: str | None = None
    oids: frozenset[int] | None = None
    outputs: tuple[Output, ...] | None = None
    from_lsn: int | None = None

    def wants(self, name: str) -> bool:
        """Tell whether a table is wanted, by its ``schema.table``."""
        return self.tables is None or expression(self.tables).fullmatch(name) is not None

    def wants_relation(self, oid: int) -> bool:
        """Tell whether a relation is wanted."""
        return self.oids is None or oid in self.oids

    def wants_output(self, output: Output) -> bool:
        """Tell whether an output is wanted."""
        return self.outputs is None or output in self.outputs


NOT_NARROWED: Final = Narrowed()


def outputs_named(names: Iterable[str | Output] | None) -> tuple[Output, ...] | None:
    """Read the outputs that a call names; None for none.

    Raises:
        ConfigError: there is no such output.
    """
    if names is None:
        return None
    found = []
    for name in names:
        try:
            found.append(Output(name))
        except ValueError:
            known = ", ".join(one.value for one in Output)
            raise ConfigError(f"--output: there is no output {name}", remedy=f"There are {known}") from None
    return tuple(dict.fromkeys(found)) or None


def tables_named(text: str) -> str:
    """Check the expression that a call names tables by.

    Raises:
        ConfigError: it is none.
    """
    try:
        check_expressions((text,))
    except ValueError as error:
        raise ConfigError(
            f"--table: {error}", remedy="It is over the whole of schema.table, such as 'shop\\.orders'"
        ) from None
    return text


__all__ = ["NOT_NARROWED", "Narrowed", "outputs_named", "tables_named"]
