"""What all of the configuration's models are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, PrivateAttr

from walreplay.settings.keys import expression

if TYPE_CHECKING:
    from typing_extensions import Self


class StrictModel(BaseModel):
    """Keys and values: nothing is converted, and no key is unknown."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)


class OfSource(StrictModel):
    """Settings that may be those of one of several sources, which no key says."""

    _ledger_name: str | None = PrivateAttr(default=None)
    _siblings: tuple[str, ...] = PrivateAttr(default=())
    _captures_uri: str | None = PrivateAttr(default=None)
    _shared: tuple[str, ...] = PrivateAttr(default=())

    @property
    def ledger_name(self) -> str | None:
        """The source whose ledger the target has beside those of others; None where the target is of one source."""
        return self._ledger_name

    @property
    def siblings(self) -> tuple[str, ...]:
        """The other sources of the same target."""
        return self._siblings

    @property
    def captures_uri(self) -> str | None:
        """The place of the source's captures; None where the target is of one source."""
        return self._captures_uri

    def shares_table(self, schema: str, table: str) -> bool:
        """Tell whether a table of the target, by its mirror's name, has rows of several sources."""
        name = f"{schema}.{table}"
        return any(expression(text).fullmatch(name) for text in self._shared)

    def as_one_of(self, name: str, captures: str, siblings: tuple[str, ...], shared: tuple[str, ...] = ()) -> Self:
        """Give the same settings as those of one of several sources.

        Args:
            shared: regular expressions over the names of the target's tables that several sources write to.
        """
        found = self.model_copy()
        found._ledger_name, found._captures_uri, found._siblings = name, captures, siblings
        found._shared = shared
        return found


__all__ = ["OfSource", "StrictModel"]
