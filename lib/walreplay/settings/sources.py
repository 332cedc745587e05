"""A configuration of several sources that have one target: what is common to them, and what is each one's own."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from walreplay.errors import ConfigError
from walreplay.settings.keys import check_encoding, check_schema_template, none_is_empty
from walreplay.settings.model import CaptureSettings, ObjectSettings, OriginSettings, Settings
from walreplay.settings.strict import StrictModel
from walreplay.settings.values import Expressions, Name, Operations, Outputs

if TYPE_CHECKING:
    from typing_extensions import Self

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,62}")

_OF_ALL: Final = frozenset({"sources", "shared_tables"})
"""What is said of all sources together, and not of each."""

_LISTS: Final = ("table_include_list", "table_exclude_list")


def is_source_name(name: str) -> bool:
    """Tell whether a source may be called so: its name stands on command lines, in paths and in schemas' names."""
    return _NAME.fullmatch(name) is not None


def _check_name(name: str) -> str:
    """Refuse what is no name for a source."""
    if not is_source_name(name):
        raise ValueError("a source's name has letters, digits, _, - and ., and begins with a letter or a digit")
    return name


def _place_alone(value: Any) -> Any:
    """Accept the place alone, without options."""
    return {"uri": value} if isinstance(value, str) else value


class SourceCaptures(CaptureSettings):
    """Where a source's captures are; what is said of how they are read takes the place of the common options."""

    uri: Name

    @property
    def options(self) -> dict[str, Any]:
        """The options that are said, by their names."""
        return {name: getattr(self, name) for name in self.model_fields_set if name != "uri"}


class SourceSettings(StrictModel):
    """One source: its captures, and what it has in place of what is common; None takes that."""

    captures: Annotated[SourceCaptures, BeforeValidator(_place_alone)]
    source: Name | None = None
    """See `Settings.source`: the captures' root, unless they were moved."""
    destination_schema: Annotated[Name, AfterValidator(check_schema_template)] | None = None
    objects: Annotated[tuple[ObjectSettings, ...], Field(strict=False)] | None = None
    """In addition to the common ones; of a table that stands in both, these count."""
    table_include_list: Expressions | None = None
    """Either of the lists takes the place of both of the common ones."""
    table_exclude_list: Expressions | None = None
    origins: OriginSettings | None = None
    source_encoding: Annotated[Name, AfterValidator(check_encoding)] | None = None
    skipped_operations: Operations | None = None
    outputs: Outputs | None = None
    run_bytes: Annotated[int, Field(ge=1)] | None = None


class Configuration(Settings):
    """What a configuration holds: the settings of one source, or ``sources`` and what is common to them."""

    sources: Annotated[
        dict[Annotated[Name, AfterValidator(_check_name)], SourceSettings], BeforeValidator(none_is_empty)
    ] = Field(default_factory=dict)
    shared_tables: Expressions | None = None
    """Regular expressions over the whole of a mirror's ``schema.table``: tables that several sources write to."""

    @model_validator(mode="after")
    def _check_sources(self) -> Configuration:
        if self.sources and self.source is not None:
            raise ValueError("source is the name of one stream: where there are several, it stands under each")
        if self.shared_tables is not None and not self.sources:
            raise ValueError("shared_tables are tables of several sources, and there are no sources")
        folded: dict[str, str] = {}
        for name in self.sources:
            # Neither catalogs nor all file systems tell upper case from lower.
            other = folded.setdefault(name.lower(), name)
            if other != name:
                raise ValueError(f"two of the sources are called {other} and {name}, which are one name to a catalog")
            try:
                self.of(name)
            except ConfigError as error:
                remedy = f" ({error.remedy})" if error.remedy else ""
                problem = error.problem.removeprefix("configuration: ")
                raise ValueError(f"the source {name}: {problem}{remedy}") from None
        return self

    @property
    def captures_of(self) -> Mapping[str, str]:
        """The place of each source's captures, by the sources' names."""
        return {name: source.captures.uri for name, source in self.sources.items()}

    def chosen(self, names: Sequence[str] | None = None) -> tuple[str, ...]:
        """Give sources in the configuration's order.

        Args:
            names: those that are wanted; None for all.

        Raises:
            ConfigError: there is no such source.
        """
        for name in names or ():
            if name not in self.sources:
                close = difflib.get_close_matches(name, self.sources, n=1) or list(self.sources)
                raise ConfigError(
                    f"the configuration has no source {name!r}",
                    remedy=f"There is {', '.join(close)}" if close else "It has no sources at all",
                )
        return tuple(name for name in self.sources if not names or name in names)

    def of(self, name: str) -> Settings:
        """Give the settings of one source.

        Raises:
            ConfigError: there is no such source.
        """
        self.chosen([name])
        own = self.sources[name]
        values = {key: getattr(self, key) for key in self.model_fields_set if key not in _OF_ALL}
        given = {key: getattr(own, key) for key in own.model_fields_set}
        if "table_include_list" in given or "table_exclude_list" in given:
            values = {key: value for key, value in values.items() if key not in _LISTS}
        if own.objects is not None:
            mine = {_table_of(item) for item in own.objects}
            given["objects"] = (*(item for item in self.objects if _table_of(item) not in mine), *own.objects)
        given["captures"] = self.captures.model_copy(update=own.captures.options)
        siblings = tuple(other for other in self.sources if other != name)
        return Settings.from_mapping({**values, **given}).as_one_of(
            name, own.captures.uri, siblings, self.shared_tables or ()
        )

    def single(self) -> Settings:
        """Give the settings of a configuration that has no sources.

        Raises:
            ConfigError: it has some.
        """
        if self.sources:
            raise ConfigError(
                f"the configuration has sources ({', '.join(self.sources)}), each with captures of its own",
                remedy="Leave --captures out; in Python, walreplay.apply_sources takes it, and others take one "
                "source's settings: walreplay.source_settings(config, name)",
            )
        return Settings.from_mapping({key: getattr(self, key) for key in self.model_fields_set if key not in _OF_ALL})

    def allowing_gaps(self) -> Self:
        """Give the same with ``captures: allow_gaps`` set, whatever a source says of it."""
        return self._with_captures({"allow_gaps": True})

    def _with_captures(self, options: Mapping[str, Any]) -> Self:
        sources = {
            name: one.model_copy(update={"captures": one.captures.model_copy(update=options)})
            for name, one in self.sources.items()
        }
        return self.model_copy(
            update={"captures": self.captures.model_copy(update=options), "sources": sources},
        )


def _table_of(item: ObjectSettings) -> tuple[str, str]:
    return item.table.source_schema, item.table.source_table


__all__ = ["Configuration", "SourceCaptures", "SourceSettings", "is_source_name"]
