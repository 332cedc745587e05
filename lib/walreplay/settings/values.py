"""The values that keys of the configuration take: the words, lists and mappings that are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from walreplay.settings.keys import (
    check_clustering,
    check_expressions,
    check_operations,
    check_origins,
    check_output_name,
    check_outputs,
    check_type,
    defaults_of,
    each_once,
    split_expressions,
)
from walreplay.settings.properties import check_properties, texts_of

FramingName = Literal[
    "auto",
    "raw",
    "recvlogical",
    "copydata",
    "pgcopy",
    "walsender",
    "length",
    "length_le",
    "length_self",
    "length_self_le",
]
OrderName = Literal["natural", "path", "modified"]
TypeChangePolicy = Literal["rewrite", "stop"]
RecreatePolicy = Literal["replace", "keep", "stop"]
DropColumnPolicy = Literal["keep", "drop"]
MissingRowPolicy = Literal["warn", "stop"]
HistoryChanges = Literal["collapse", "keep"]
OutputName = Literal["mirror", "history", "changelog"]
FurtherOutput = Literal["history", "changelog"]
Operation = Literal["c", "u", "d", "t"]
"""Debezium's letters: inserts, updates, deletes, truncates."""

COMMIT_LSN: Final = "__commit_lsn"
COMMIT_TS: Final = "__commit_ts"

DEFAULT_NAMES: Final[Mapping[FurtherOutput, str]] = {"history": "{table}__history", "changelog": "{table}__changes"}
"""What histories and change logs are called; ``{table}`` stands for the mirror's name."""

Name = Annotated[str, Field(min_length=1)]
# YAML has lists, never tuples: the sequence itself is taken leniently, its items are not.
ColumnNames = Annotated[tuple[Name, ...], Field(strict=False, min_length=1), AfterValidator(each_once("column"))]
TrackedColumns = Annotated[tuple[Name, ...], Field(strict=False), AfterValidator(each_once("column"))]
OriginNames = Annotated[
    tuple[Name, ...],
    Field(strict=False, min_length=1),
    AfterValidator(each_once("origin")),
    AfterValidator(check_origins),
]
Expressions = Annotated[
    tuple[Name, ...],
    Field(strict=False, min_length=1),
    AfterValidator(check_expressions),
    BeforeValidator(split_expressions),
]
Operations = Annotated[
    tuple[Operation, ...],
    Field(strict=False),
    AfterValidator(each_once("operation")),
    BeforeValidator(check_operations),
]

Outputs = Annotated[
    tuple[OutputName, ...],
    Field(strict=False, min_length=1),
    AfterValidator(each_once("output")),
    BeforeValidator(check_outputs),
]
OutputNames = dict[FurtherOutput, Annotated[Name, AfterValidator(check_output_name)]]

AddedDefaults = Annotated[dict[Name, str], Field(min_length=1), BeforeValidator(defaults_of)]

TypeOverrides = Annotated[dict[Name, Annotated[Name, AfterValidator(check_type)]], Field(min_length=1)]


TableProperties = Annotated[dict[Name, str], AfterValidator(check_properties), BeforeValidator(texts_of)]
ClusterColumns = Annotated[
    tuple[Name, ...], Field(strict=False), AfterValidator(each_once("column")), AfterValidator(check_clustering)
]
