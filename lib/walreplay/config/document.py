"""Read the configuration, from YAML or a `dict`, of one source or of several with one target.

`Configuration` has what is common to all sources, and what is each one's own; `source_settings` returns one's.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import AfterValidator, Field, model_validator

from walreplay.config.keys import Expressions, Name, validated
from walreplay.config.model import OneOfSeveral, Settings, SourceOptions, inherited
from walreplay.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,62}")

_OF_ALL: Final = frozenset({"sources", "shared_tables"})  # What is said of all sources together, and not of each


def is_source_name(name: str) -> bool:
    """Return whether a source may have this name: command lines, paths and schemas' names contain it."""
    return _NAME.fullmatch(name) is not None


def _check_name(name: str) -> str:
    """Refuse what is no name for a source."""
    if not is_source_name(name):
        raise ValueError("a source's name has letters, digits, _, - and ., and begins with a letter or a digit")
    return name


class SourceSettings(SourceOptions):
    """One source: its captures, and what it has in place of what is said of all sources."""

    captures: Name
    """The folder (or file, or glob) of its capture files."""


class Configuration(Settings):
    """What a configuration holds: the settings of one source, or ``sources`` and what is common to them."""

    sources: dict[Annotated[Name, AfterValidator(_check_name)], SourceSettings] = Field(default_factory=dict)
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
                self.of(name)  # common options and the source's own may contradict each other
            except ConfigError as error:
                remedy = f" ({error.remedy})" if error.remedy else ""
                problem = error.problem.removeprefix("configuration: ")
                raise ValueError(f"the source {name}: {problem}{remedy}") from None
        return self

    @property
    def captures_of(self) -> Mapping[str, str]:
        """The place of each source's captures, by the sources' names."""
        return {name: source.captures for name, source in self.sources.items()}

    def chosen(self, names: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return sources in the configuration's order.

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
        """Return the settings of one source.

        Raises:
            ConfigError: there is no such source.
        """
        self.chosen([name])
        source = self.sources[name]
        options = {key: value for key, value in source.explicit.items() if key != "captures"}
        siblings = tuple(other for other in self.sources if other != name)
        place = OneOfSeveral(name, source.captures, siblings, self.shared_tables or ())
        return self._as_called(inherited(self._common, options)).at(place)

    def single(self) -> Settings:
        """Return the settings of a configuration that has no sources.

        Raises:
            ConfigError: it has some.
        """
        if self.sources:
            raise ConfigError(
                f"the configuration has sources ({', '.join(self.sources)}), each with captures of its own",
                remedy="Leave --captures out; in Python, walreplay.apply_sources takes it, and others take one "
                "source's settings: walreplay.source_settings(config, name)",
            )
        return self._as_called(self._common)

    @property
    def _common(self) -> dict[str, Any]:
        return {key: value for key, value in self.explicit.items() if key not in _OF_ALL}

    def _as_called(self, options: Mapping[str, Any]) -> Settings:
        """Return settings, with what a call has added to these."""
        settings = Settings.from_mapping(options)  # as of a mapping, so that checks run on the result
        return settings._copied(_allow_gaps=self.allow_gaps, _accept_changed_tables=self.accept_changed_tables)


_MOST_TEXT: Final = 16 << 20
_MOST_VALUES: Final = 300_000  # aliases of aliases multiply: ten lines come to billions
_MOST_NESTED: Final = 50


def load_configuration(path: str | os.PathLike[str] | None) -> Configuration:
    """Read a YAML file; None gives the defaults.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or holds what is not allowed.
    """
    if path is None:
        return Configuration()
    name = os.fspath(path)
    try:
        with Path(name).open(encoding="utf-8") as file:
            text = file.read(_MOST_TEXT + 1)  # one more than allowed shows that there are more
    except UnicodeDecodeError:
        raise ConfigError("the file is not UTF-8 text", path=name) from None
    except OSError as error:
        problem = (error.strerror or "it cannot be read").lower()
        raise ConfigError(f"cannot read the configuration: {problem}", path=name) from None
    if len(text) > _MOST_TEXT:
        raise ConfigError(f"the file has more than {_MOST_TEXT:,} characters, as no configuration has", path=name)
    try:
        _refuse_deep(text, name)  # before compose, which calls itself for each level
        document = yaml.compose(text, Loader=yaml.SafeLoader)  # its nodes have the line numbers for errors
        _refuse_many(document, name)
        _refuse_repeated_keys(document, name)
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError(f"{line}not YAML: {error.problem or error.context}", path=name) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {' '.join(str(error).split())}", path=name) from None  # in one line
    except ValueError as error:  # a date that does not exist
        raise ConfigError(f"not YAML: {error}", path=name) from None
    return validated(Configuration, {} if values is None else values, path=name, document=document)


def make_settings(config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None) -> Settings:
    """Return the settings of one source, for what a caller passes: None, a file, a mapping, or settings.

    Raises:
        ConfigError: something is not allowed there, or it has several sources.
    """
    if isinstance(config, Settings) and not isinstance(config, Configuration):
        return config
    return make_configuration(config).single()


def make_configuration(config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None) -> Configuration:
    """Return the configuration, which may have several sources, for what a caller passes.

    Raises:
        ConfigError: something is not allowed there.
    """
    if isinstance(config, Configuration):
        return config
    if isinstance(config, Settings):
        configuration = Configuration.from_mapping(config.explicit)
        return configuration._copied(_allow_gaps=config.allow_gaps, _accept_changed_tables=config.accept_changed_tables)
    return Configuration.from_mapping(config) if isinstance(config, Mapping) else load_configuration(config)


def source_settings(config: str | os.PathLike[str] | Mapping[str, Any] | Configuration, name: str) -> Settings:
    """Return the settings of one of a configuration's sources; with them everything goes to its own ledger.

    Raises:
        ConfigError: there is no such source, or something is not allowed.
    """
    return make_configuration(config).of(name)


def _refuse_deep(text: str, path: str) -> None:
    """Refuse deeper nesting than any configuration has: PyYAML would run out of stack."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MOST_NESTED:
                line = event.start_mark.line + 1 if event.start_mark else 0
                raise ConfigError(f"line {line}: values are nested more than {_MOST_NESTED} deep", path=path)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _refuse_many(document: yaml.Node | None, path: str) -> None:
    """Refuse aliases that expand to more or deeper values than any configuration has, or without end."""
    measures: dict[int, tuple[int, int]] = {}
    inside: set[int] = set()

    def measure(node: yaml.Node) -> tuple[int, int]:
        """Count the values that a node comes to, and how deep they are nested."""
        if id(node) in inside:
            raise ConfigError("an alias stands inside what it names", path=path)
        if id(node) not in measures:
            inside.add(id(node))
            parts = node.value if isinstance(node, yaml.CollectionNode) else ()
            of_parts = [measure(part) for item in parts for part in (item if isinstance(item, tuple) else (item,))]
            depth = max((deep for _, deep in of_parts), default=0)  # of the parts below the node
            measures[id(node)] = 1 + sum(size for size, _ in of_parts), 1 + depth
            inside.discard(id(node))
        size, deep = measures[id(node)]
        if size > _MOST_VALUES or deep > _MOST_NESTED + 1:  # a value without parts has depth 1
            line = node.start_mark.line + 1
            raise ConfigError(
                f"line {line}: its aliases come to more values than a configuration has ({_MOST_VALUES:,}), or are "
                f"nested more than {_MOST_NESTED} deep",
                path=path,
                remedy="Write the values out in place of the aliases",
            )
        return measures[id(node)]

    if document is not None:
        measure(document)


def _refuse_repeated_keys(node: yaml.Node | None, path: str) -> None:
    """Refuse equal keys, which YAML forbids and PyYAML accepts (the last would win); nothing stands inside itself."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, path)
    elif isinstance(node, yaml.MappingNode):
        seen: set[Hashable] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):  # others are no text, and refused later
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise ConfigError(
                        f"line {line}, {key.value}: the key stands there twice", path=path, remedy="Keep one of them"
                    )
                seen.add(key.value)
            _refuse_repeated_keys(value, path)
