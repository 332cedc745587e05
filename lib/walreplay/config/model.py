"""The configuration's models, with defaults.  They are checked strictly before anything is read or written.

`TableOptions` can be said of all tables and of one, `SourceOptions` of all sources and of one: what is said of one
comes first (`inherited`).  `Narrowed` is a part of the tables or outputs: what one call wants of the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr, model_validator

from walreplay.config import keys as k
from walreplay.errors import ConfigError
from walreplay.names import RESERVED_COLUMNS, Output
from walreplay.task_settings import Origins, TaskSettings
from walreplay.types.registry import DecimalMode, TypeOptions
from walreplay.types.text import codec_of

if TYPE_CHECKING:
    from typing_extensions import Self


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
        """Return whether a table is wanted, by its ``schema.table``."""
        return self.tables is None or k.expression(self.tables).fullmatch(name) is not None

    def wants_output(self, output: Output) -> bool:
        """Return whether an output is wanted."""
        return self.outputs is None or output in self.outputs


NOT_NARROWED: Final = Narrowed()


def outputs_named(names: Iterable[str | Output] | None) -> tuple[Output, ...] | None:
    """Read the outputs that a call names; None for none.

    Raises:
        ConfigError: there is no such output.
    """
    if names is None:
        return None
    outputs = []
    for name in names:
        try:
            outputs.append(Output(name))
        except ValueError:
            known_outputs = ", ".join(output.value for output in Output)
            raise ConfigError(f"--output: there is no output {name}", remedy=f"There are {known_outputs}") from None
    return tuple(dict.fromkeys(outputs)) or None


def tables_named(text: str) -> str:
    """Check the expression that a call names tables by.

    Raises:
        ConfigError: it is none.
    """
    try:
        k.check_expressions((text,))
    except ValueError as error:
        raise ConfigError(
            f"--table: {error}", remedy="It is over the whole of schema.table, such as 'shop\\.orders'"
        ) from None
    return text


_EITHER: Final = (
    ("table_include_list", "table_exclude_list"),
    ("origin_include_list", "origin_exclude_list"),
    ("include_columns", "exclude_columns"),
    ("track_history_column_list", "track_history_except_column_list"),
)
"""Lists of which one may be given, and which stands in place of both."""


def inherited(common: Mapping[str, Any], specific: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said of one table or source, and what is said of all where nothing is said of the one.

    Properties of one are in addition to those of all, and so are tables under ``objects``.
    """
    # A list of the one takes the place of both common lists of its pair.
    replaced = {name for pair in _EITHER if not specific.keys().isdisjoint(pair) for name in pair}
    merged = {**{name: value for name, value in common.items() if name not in replaced}, **specific}
    if "table_properties" in specific:
        merged["table_properties"] = {**common.get("table_properties", {}), **specific["table_properties"]}
    if "objects" in specific:
        specific_names = {item.name for item in specific["objects"]}
        others = (item for item in common.get("objects", ()) if item.name not in specific_names)
        merged["objects"] = (*others, *specific["objects"])
    return merged


class TableOptions(k.StrictModel):
    """What can be said of one table, and of all tables."""

    outputs: k.Outputs = ("mirror",)
    """What a source table becomes: see `walreplay.names`."""
    soft_deletes: bool = False
    """A deleted row stays, marked."""
    on_type_change: k.TypeChangePolicy = "rewrite"
    on_recreate: k.RecreatePolicy = "replace"
    on_drop_column: k.DropColumnPolicy = "keep"
    on_table_error: k.TableErrorPolicy = "stop"
    """An error of the table alone stops the run, or the table is left out until it is made again."""
    track_history_column_list: k.TrackedColumns | None = None
    """In a history, only changes of these columns begin versions; others are made in the open one."""
    track_history_except_column_list: k.TrackedColumns | None = None
    """In a history, changes of these columns alone begin no version."""
    table_properties: k.TableProperties = Field(default_factory=dict)
    """Properties of mirror tables, Delta's and the user's own."""
    cluster_by: k.ClusterColumns = ()
    """The columns that mirror tables are clustered by."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        for first, second in _EITHER:
            if getattr(self, first, None) is not None and getattr(self, second, None) is not None:
                raise ValueError(f"may have {first} or {second}, not both")
        return self


class TableSettings(TableOptions):
    """The options of one source table."""

    source_schema: k.Name
    source_table: k.Name
    destination_schema: k.Name | None = None
    destination_table: Annotated[k.Name, AfterValidator(k.check_table_name)] | None = None
    keys: k.ColumnNames | None = None
    """The columns that identify a row, in place of the replica identity's."""
    include_columns: k.ColumnNames | None = None
    """The only columns that are wanted, now and later."""
    exclude_columns: k.ColumnNames | None = None
    rename_columns: Annotated[dict[k.Name, k.Name], Field(min_length=1), AfterValidator(k.check_renames)] | None = None
    """Columns that were renamed at the source: the old name to the new one."""
    not_renamed: k.ColumnNames | None = None
    """Columns that never had another name, though their places would allow that."""
    column_mask_hash: k.ColumnNames | None = None
    """Columns whose values become salted hashes: see `walreplay.decode.masking`."""
    added_defaults: k.AddedDefaults | None = None
    """What rows that are older than a column have in it, as PostgreSQL's text: applied when the column is added."""
    type_overrides: k.TypeOverrides | None = None
    """Columns that are read as another type than their own, by that type's name: see `walreplay.types.names`."""
    scd_type: Annotated[Literal[1, 2], BeforeValidator(k.check_scd_type)] = 1
    """2: in place of the mirror there is a history, under the mirror's name."""

    def name_of(self, output: Output) -> str:
        """Return the name of the table of an output; its schema is the mirror's."""
        name = self.destination[1]
        if output is Output.HISTORY and self.scd_type == 2:
            return name
        return output.table.replace("{table}", name)

    @property
    def renames(self) -> tuple[tuple[str, str], ...]:
        """The columns' renames, (old name, new name) each."""
        return tuple((self.rename_columns or {}).items())

    @property
    def destination(self) -> tuple[str, str]:
        """The schema and the name that the mirror table has."""
        return self.destination_schema or self.source_schema, self.destination_table or self.source_table

    def added_default(self, name: str) -> str | None:
        """Return what rows that are older than a column have in it, under whichever of its names it is listed."""
        given = self.added_defaults or {}
        names = (name, *sorted(k.same_columns(name, self.renames)))
        return next((given[listed] for listed in names if listed in given), None)  # its own name first

    def wants_column(self, name: str) -> bool:
        """Return whether a column is wanted, under whichever of its names it is listed."""
        listed = self.include_columns or self.exclude_columns
        if listed is None:
            return True
        # One list says what is in, the other what is out.
        return k.same_columns(name, self.renames).isdisjoint(listed) == (self.include_columns is None)

    def masks_column(self, name: str) -> bool:
        """Return whether a column is masked, under whichever of its names it is listed."""
        return not k.same_columns(name, self.renames).isdisjoint(self.column_mask_hash or ())

    @model_validator(mode="after")
    def _agree(self) -> TableSettings:
        for key in (
            *("keys", "column_mask_hash", "added_defaults", "type_overrides"),
            *("track_history_column_list", "track_history_except_column_list"),
        ):
            for name in getattr(self, key) or ():
                if not self.wants_column(name):
                    what = "not in include_columns" if self.include_columns else "in exclude_columns as well"
                    raise ValueError(f"{name!r} is in {key}, but {what}")
        return self


class ObjectSettings(k.StrictModel):
    """One entry of ``objects``."""

    table: TableSettings

    @property
    def name(self) -> str:
        """The source table's, as ``schema.table``."""
        return f"{self.table.source_schema}.{self.table.source_table}"


def _each_table_once(objects: tuple[ObjectSettings, ...]) -> tuple[ObjectSettings, ...]:
    names = [item.name for item in objects]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"must name each table once, and {name} stands there twice")
    return objects


class SourceOptions(TableOptions):
    """What can be said of one source, and of all sources."""

    source: k.Name | None = None
    """What makes one stream of transactions; None takes the captures' root for its name."""
    framing: k.FramingName = "auto"
    index: k.Name | None = None
    """Where the index of the captures is; None has it in their folder (`walreplay.archive.index.table_of`)."""
    file_pattern: k.Name | None = None
    """Glob of the capture files' names; None takes every file."""
    file_order: k.OrderName = "natural"
    """The order of the files in the stream: see `walreplay.listing.sort_key`."""
    source_encoding: Annotated[k.Name, AfterValidator(k.named_as(codec_of))] = "UTF8"
    """The client_encoding that the captures were recorded with, by PostgreSQL's name."""
    origin_include_list: k.OriginNames | None = None
    """Whose changes are wanted, by replication origin."""
    origin_exclude_list: k.OriginNames | None = None
    table_include_list: k.Expressions | None = None
    """Regular expressions over the whole of ``schema.table``; None wants every table."""
    table_exclude_list: k.Expressions | None = None
    objects: Annotated[tuple[ObjectSettings, ...], Field(strict=False), AfterValidator(_each_table_once)] = ()
    destination_schema: Annotated[k.Name, AfterValidator(k.check_schema_template)] | None = None
    """The schema of mirror tables whose entry under ``objects`` names none; None takes the source's."""
    skipped_operations: k.Operations = ()
    """Changes of these kinds are left out."""
    announcements: k.Name | None = None
    """The prefix of the logical messages with which the source announces its tables; None reads none."""


@dataclass(frozen=True, slots=True)
class OneOfSeveral:
    """Which of several sources settings are of (see `Settings`); the defaults are for a target of one source."""

    ledger_name: str | None = None
    captures: str | None = None
    siblings: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    """Regular expressions over the names of the target's tables that several sources write to."""


class Settings(SourceOptions):
    """The whole configuration; the defaults suit most users."""

    decimal_handling_mode: DecimalMode = "precise"
    """What becomes of numeric, in all columns without an override."""
    commit_lsn_column: k.Name | None = k.COMMIT_LSN
    """The name of this metadata column and of the next two; None leaves one out."""
    commit_ts_column: k.Name | None = k.COMMIT_TS
    rescued_data_column: k.Name | None = "_rescued_data"
    """Left out, a value that its column's type cannot hold stops the run: it has nowhere to go."""
    column_mask_salt: Annotated[SecretStr, Field(min_length=1)] | None = None
    """What goes into every masked column's hashes; it is shown nowhere."""
    infer_renames: bool = True
    """A column that stands under another name where one of its type was, between others, was renamed."""
    ledger_keep_days: Annotated[int, Field(ge=1)] | None = None
    """Runs that ended so many days ago are forgotten by the ledger; None forgets none."""
    staging: Annotated[str, AfterValidator(k.check_folder)] | None = None
    """A folder for events while a run works, which driver, workers and Spark reach; None: in the target's own place."""
    _narrowed: Narrowed = PrivateAttr(default=NOT_NARROWED)
    _place: OneOfSeveral = PrivateAttr(default=OneOfSeveral())
    _allow_gaps: bool = PrivateAttr(default=False)
    _accept_changed_tables: bool = PrivateAttr(default=False)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        fixed = {k.DELETED, k.SOURCE, *k.LOG_COLUMNS.values(), *k.HISTORY_COLUMNS.values()}
        usual = ((self.commit_lsn_column, k.COMMIT_LSN), (self.commit_ts_column, k.COMMIT_TS))
        # What a mirror does without, a change log has under its usual name.
        names = [*(name or default for name, default in usual), *filter(None, [self.rescued_data_column]), *fixed]
        for name in names:
            # Delta does not tell upper case from lower.
            if name.lower() in RESERVED_COLUMNS:
                raise ValueError(f"{name} is a name that Delta keeps for itself")
            if sum(name.lower() == other.lower() for other in names) > 1:
                raise ValueError(f"two of the metadata columns are called {name}")
        return self

    @model_validator(mode="after")
    def _agree(self) -> Self:
        for item in self.objects:
            table = item.table
            if not self.wants_table(table.source_schema, table.source_table):
                key = "table_include_list" if self.table_include_list else "table_exclude_list"
                raise ValueError(f"{item.name} stands under objects, but {key} leaves it out")
            if table.column_mask_hash and self.column_mask_salt is None:
                raise ValueError(f"{item.name} has a column_mask_hash, which needs a column_mask_salt")
            if table.scd_type == 2 and {"mirror", "history"} <= {*table.explicit.get("outputs", ())}:
                raise ValueError(f"{item.name} has scd_type 2, a history in place of its mirror, and outputs with both")
        return self

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Check values that came as a mapping.

        Raises:
            ConfigError: naming the key and what was expected.
        """
        return k.validated(cls, values, path=None, document=None)

    def accepting_changed_tables(self) -> Self:
        """Return the same settings for a call that continues from tables as somebody else has changed them."""
        return self._copied(_accept_changed_tables=True)

    def allowing_gaps(self) -> Self:
        """Return the same settings for a call that continues where something is missing."""
        return self._copied(_allow_gaps=True)

    def narrowed(self, to: Narrowed) -> Self:
        """Return the same settings for a call that wants a part of the tables."""
        return self._copied(_narrowed=to)

    def at(self, place: OneOfSeveral) -> Self:
        """Return the same settings as those of one of several sources."""
        return self._copied(_place=place)

    def _copied(self, **private: Any) -> Self:
        copy = self.model_copy()
        for name, value in private.items():
            setattr(copy, name, value)  # private attributes may change in a frozen model
        return copy

    def with_outputs(self, outputs: Sequence[Output]) -> Self:
        """Return the same settings for tables that have these outputs and no others.

        Raises:
            ConfigError: there is none of that kind yet.
        """
        # As the configuration's own value is: the check knows which outputs there are.
        checked = {"outputs": Settings.from_mapping({"outputs": [output.value for output in outputs]}).outputs}
        objects = (item.model_copy(update={"table": item.table.model_copy(update=checked)}) for item in self.objects)
        return self.model_copy(update={**checked, "objects": tuple(objects)})

    @property
    def allow_gaps(self) -> bool:
        """Whether to continue where the bytes prove, or the files' numbers suggest, that something is missing."""
        return self._allow_gaps

    @property
    def accept_changed_tables(self) -> bool:
        """Whether to continue from tables that somebody else has changed since the last run, as they are."""
        return self._accept_changed_tables

    @property
    def ledger_name(self) -> str | None:
        """The source whose ledger the target has beside those of others; None where the target is of one source."""
        return self._place.ledger_name

    @property
    def siblings(self) -> tuple[str, ...]:
        """The other sources of the same target."""
        return self._place.siblings

    @property
    def captures_uri(self) -> str | None:
        """The place of the source's captures; None where the target is of one source."""
        return self._place.captures

    def shares_table(self, schema: str, table: str) -> bool:
        """Return whether a table of the target, by its mirror's name, has rows of several sources."""
        name = f"{schema}.{table}"
        return any(k.expression(text).fullmatch(name) for text in self._place.shared)

    @property
    def makes_whole(self) -> bool:
        """Whether any table may have an output that is whole, as mirrors and histories are."""
        given = [self.outputs, *(item.table.outputs for item in self.objects if "outputs" in item.table.explicit)]
        return any(Output(name).is_whole for names in given for name in names)

    @property
    def from_lsn(self) -> int:
        """Changes of transactions with a lower commit LSN are left out; -1 leaves out none."""
        return -1 if self._narrowed.from_lsn is None else self._narrowed.from_lsn

    def wants_relation(self, oid: int) -> bool:
        """Return whether a relation is wanted, as far as its oid decides that, and not its name."""
        return self._narrowed.oids is None or oid in self._narrowed.oids

    @property
    def origins(self) -> Origins:
        """The replication origins whose changes are wanted."""
        return Origins(self.origin_include_list, self.origin_exclude_list)

    @property
    def of_tasks(self) -> TaskSettings:
        """What tasks have to know."""
        return TaskSettings(self.origins, frozenset(self.skipped_operations), self.source_codec, self.mask_salt)

    def keys_of(self, schema: str, table: str) -> tuple[str, ...] | None:
        """Return the configured key columns of a source table; None where there are none."""
        options = self.table(schema, table)
        return options.keys if options is not None else None

    def table(self, schema: str, table: str) -> TableSettings | None:
        """Return the options of a source table; None if there are none."""
        tables = (item.table for item in self.objects)
        return next((each for each in tables if (each.source_schema, each.source_table) == (schema, table)), None)

    def options_of(self, schema: str, table: str) -> TableSettings:
        """Return the options of a source table: its own, and what is said of all tables where it has none."""
        options = self.table(schema, table) or TableSettings(source_schema=schema, source_table=table)
        common = {name: value for name, value in self.explicit.items() if name in TableOptions.model_fields}
        if self.destination_schema is not None:
            # The common one may be a template.
            common["destination_schema"] = self.destination_schema.replace("{schema}", schema)
        return options.model_copy(update=inherited(common, options.explicit))

    def outputs_of(self, schema: str, table: str) -> tuple[Output, ...]:
        """Return what a source table becomes, each once, in their usual order."""
        options = self.options_of(schema, table)
        names = options.outputs
        if options.scd_type == 2:
            names = tuple("history" if name == "mirror" else name for name in names)  # it takes the mirror's place
        return tuple(output for output in Output if output.value in names and self._narrowed.wants_output(output))

    def type_options(self, schema: str, table: str) -> TypeOptions:
        """Return how the values of a source table are read, an overridden column under whichever of its names."""
        options = self.table(schema, table)
        given, renames = ({}, ()) if options is None else (options.type_overrides or {}, options.renames)
        # An override holds under all names of its column, but one that lists the very name comes first.
        by_name = {name: kind for listed, kind in given.items() for name in sorted(k.same_columns(listed, renames))}
        return TypeOptions(self.decimal_handling_mode, tuple({**by_name, **given}.items()))

    @property
    def source_codec(self) -> str:
        """Python's name of the source's encoding."""
        return codec_of(self.source_encoding)

    def wants_table(self, schema: str, table: str) -> bool:
        """Return whether a source table is wanted."""
        return self._narrowed.wants(f"{schema}.{table}") and not self.leaves_out(schema, table)

    def leaves_out(self, schema: str, table: str) -> bool:
        """Return whether a source table is left out by its name, whatever part of the tables a call wants."""
        expressions = self.table_include_list or self.table_exclude_list
        if expressions is None:
            return False
        listed = any(k.expression(text).fullmatch(f"{schema}.{table}") for text in expressions)
        return listed != (self.table_include_list is not None)  # one list says what is in, the other what is out

    def holds(self, schema: str, table: str) -> bool:
        """Return whether an error of a source table alone holds it, and does not stop the run."""
        options = self.options_of(schema, table)
        # A rebuild, which ends a hold, wants a part of the tables, and refuses those that sources share.
        is_whole = self._narrowed == NOT_NARROWED and not self.shares_table(*options.destination)
        return options.on_table_error == "hold" and is_whole

    def skips(self, operation: k.Operation) -> bool:
        """Return whether changes of a kind are left out."""
        return operation in self.skipped_operations

    @property
    def leaves_rows_out(self) -> bool:
        """Whether rows may be left out to which later changes refer."""
        return self.skips("c") or self.skips("u") or self.origins != Origins() or self.allow_gaps

    @property
    def mask_salt(self) -> bytes:
        """What is hashed in front of every masked value."""
        return b"" if self.column_mask_salt is None else self.column_mask_salt.get_secret_value().encode()
