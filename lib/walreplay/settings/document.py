"""Read the configuration's YAML."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from walreplay.errors import ConfigError
from walreplay.settings.explain import validated
from walreplay.settings.model import Settings
from walreplay.settings.sources import Configuration

_MOST_TEXT: Final = 16 << 20

_MOST_VALUES: Final = 300_000

_MOST_NESTED: Final = 50


def load_settings(path: str | os.PathLike[str] | None) -> Settings:
    """Read the settings of one source from a YAML file; None gives the defaults.

    Raises:
        ConfigError: as `load_configuration` does; or the file has several sources.
    """
    return load_configuration(path).single()


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
            text = file.read(_MOST_TEXT + 1)
    except UnicodeDecodeError:
        raise ConfigError("the file is not UTF-8 text", path=name) from None
    except OSError as error:
        problem = (error.strerror or "it cannot be read").lower()
        raise ConfigError(f"cannot read the configuration: {problem}", path=name) from None
    if len(text) > _MOST_TEXT:
        raise ConfigError(f"the file has more than {_MOST_TEXT:,} characters, as no configuration has", path=name)
    try:
        _refuse_deep(text, name)
        document = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_many(document, name)
        _refuse_repeated_keys(document, name)
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError(f"{line}not YAML: {error.problem or error.context}", path=name) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {' '.join(str(error).split())}", path=name) from None
    except ValueError as error:  # a date that does not exist
        raise ConfigError(f"not YAML: {error}", path=name) from None
    return validated(Configuration, {} if values is None else values, path=name, document=document)


def make_settings(config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None) -> Settings:
    """Give the settings of one source, for what a caller passes: None, a file, a mapping, or settings.

    Raises:
        ConfigError: something is not allowed there, or it has several sources.
    """
    if isinstance(config, Settings) and not isinstance(config, Configuration):
        return config
    return make_configuration(config).single()


def make_configuration(config: str | os.PathLike[str] | Mapping[str, Any] | Settings | None) -> Configuration:
    """Give the configuration, which may have several sources, for what a caller passes.

    Raises:
        ConfigError: something is not allowed there.
    """
    if isinstance(config, Configuration):
        return config
    if isinstance(config, Settings):
        return Configuration.from_mapping({key: getattr(config, key) for key in config.model_fields_set})
    return Configuration.from_mapping(config) if isinstance(config, Mapping) else load_configuration(config)


def source_settings(config: str | os.PathLike[str] | Mapping[str, Any] | Configuration, name: str) -> Settings:
    """Give the settings of one of a configuration's sources; with them everything goes to its own ledger.

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
    known: dict[int, tuple[int, int]] = {}
    inside: set[int] = set()

    def measure(node: yaml.Node) -> tuple[int, int]:
        """Count the values that a node comes to, and how deep they are nested."""
        if id(node) in inside:
            raise ConfigError("an alias stands inside what it names", path=path)
        if id(node) not in known:
            inside.add(id(node))
            parts = node.value if isinstance(node, yaml.CollectionNode) else ()
            found = [measure(part) for item in parts for part in (item if isinstance(item, tuple) else (item,))]
            known[id(node)] = 1 + sum(size for size, _ in found), 1 + max((deep for _, deep in found), default=0)
            inside.discard(id(node))
        size, deep = known[id(node)]
        if size > _MOST_VALUES or deep > _MOST_NESTED + 1:
            line = node.start_mark.line + 1
            raise ConfigError(
                f"line {line}: its aliases come to more values than a configuration has ({_MOST_VALUES:,}), or are "
                f"nested more than {_MOST_NESTED} deep",
                path=path,
                remedy="Write the values out in place of the aliases",
            )
        return known[id(node)]

    if document is not None:
        measure(document)


def _refuse_repeated_keys(node: yaml.Node | None, path: str, above: tuple[yaml.Node, ...] = ()) -> None:
    """Refuse equal keys, which YAML forbids and PyYAML accepts (the last would win), and endless loops."""
    if any(node is outer for outer in above):
        raise ConfigError("an alias stands inside what it names", path=path)
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, path, (*above, node))
    elif isinstance(node, yaml.MappingNode):
        seen: set[Hashable] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise ConfigError(
                        f"line {line}, {key.value}: the key stands there twice",
                        path=path,
                        remedy="Keep one of them",
                    )
                seen.add(key.value)
            _refuse_repeated_keys(value, path, (*above, node))
