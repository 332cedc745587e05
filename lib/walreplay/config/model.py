"""The configuration's models, with defaults.  They are checked strictly before anything is read or written.

`Narrowed` is a part of the tables or outputs: what one call wants of all that the configuration does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr, model_validator

from walreplay.config.keys import (
    DEFAULT_NAMES,
    AddedDefaults,
    ClusterColumns,
    ColumnNames,
    DropColumnPolicy,
    Expressions,
    FramingName,
    HistoryChanges,
    MetadataSettings,
    MissingRowPolicy,
    Name,
    OfSource,
    Operation,
    Operations,
    OrderName,
    OriginNames,
    OutputNames,
    Outputs,
    RecreatePolicy,
    StrictModel,
    TableProperties,
    TrackedColumns,
    TypeChangePolicy,
    TypeOverrides,
    check_encoding,
    check_expressions,
    check_folder,
    check_renames,
    check_scd_type,
    check_schema_template,
    check_table_name,
    check_track_lists,
    expression,
    none_is_empty,
    same_columns,
    validated,
)
from walreplay.errors import ConfigError
from walreplay.names import Output, RowKind
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
        return self.tables is None or expression(self.tables).fullmatch(name) is not None

    def wants_relation(self, oid: int) -> bool:
        """Return whether a relation is wanted."""
        return self.oids is None or oid in self.oids

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


class CaptureSettings(StrictModel):
    """Which files are captures, and their framing and order."""

    framing: FramingName = "auto"
    pattern: Name | None = None
    """Glob of the files' names; None takes every file."""
    recursive: bool = True
    order: OrderName = "natural"
    """The order of the files in the stream: see `walreplay.listing.sort_key`."""
    allow_gaps: bool = False
    """Continue where the bytes prove, or the files' numbers suggest, that something is missing."""
    index: bool = False
    """Whether runs write what they find to the archive's index, in the captures' folder."""


class OriginSettings(StrictModel):
    """Whose changes are wanted, by replication origin."""

    include: OriginNames | None = None
    exclude: OriginNames | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> OriginSettings:
        if self.include is not None and self.exclude is not None:
            raise ValueError("may have include or exclude, not both")
        return self

    @property
    def plain(self) -> Origins:
        """The same without pydantic."""
        return Origins(self.include, self.exclude)


class TableSettings(StrictModel):
    """The options of one source table; None takes the value for all tables."""

    source_schema: Name
    source_table: Name
    destination_schema: Name | None = None
    destination_table: Annotated[Name, AfterValidator(check_table_name)] | None = None
    keys: ColumnNames | None = None
    """The columns that identify a row, in place of the replica identity's."""
    include_columns: ColumnNames | None = None
    """The only columns that are wanted, now and later."""
    exclude_columns: ColumnNames | None = None
    rename_columns: Annotated[dict[Name, Name], Field(min_length=1), AfterValidator(check_renames)] | None = None
    """Columns that were renamed at the source: the old name to the new one."""
    column_mask_hash: ColumnNames | None = None
    """Columns whose values become salted hashes: see `walreplay.fold.masking`."""
    added_defaults: AddedDefaults | None = None
    """What rows that are older than a column have in it, as PostgreSQL's text: applied when the column is added."""
    type_overrides: TypeOverrides | None = None
    """Columns that are read as another type than their own, by that type's name: see `walreplay.types.names`."""
    table_properties: TableProperties | None = None
    """Properties of the mirror table, besides those and in place of those that all tables have."""
    cluster_by: ClusterColumns | None = None
    """The columns that the mirror table is clustered by; none where it is empty."""
    outputs: Outputs | None = None
    output_names: Annotated[OutputNames, Field(min_length=1)] | None = None
    """What its further tables are called, in place of what all tables' are."""
    scd_type: Annotated[Literal[1, 2], BeforeValidator(check_scd_type)] = 1
    """2: in place of the mirror there is a history, under the mirror's name."""
    soft_deletes: bool | None = None
    on_type_change: TypeChangePolicy | None = None
    on_recreate: RecreatePolicy | None = None
    on_drop_column: DropColumnPolicy | None = None
    on_missing_row: MissingRowPolicy | None = None
    history_changes: HistoryChanges | None = None
    track_history_column_list: TrackedColumns | None = None
    track_history_except_column_list: TrackedColumns | None = None
    """Either, in place of either for all tables."""

    @property
    def renames(self) -> tuple[tuple[str, str], ...]:
        """The columns' renames, (old name, new name) each."""
        return tuple((self.rename_columns or {}).items())

    @property
    def destination(self) -> tuple[str, str]:
        """The schema and the name that the mirror table has."""
        return self.destination_schema or self.source_schema, self.destination_table or self.source_table

    def type_options(self, common: TypeOptions) -> TypeOptions:
        """Return the options of this table, an overridden column under whichever of its names."""
        given = self.type_overrides or {}
        known = {name: kind for listed, kind in given.items() for name in sorted(same_columns(listed, self.renames))}
        return replace(common, overrides=tuple({**known, **given}.items()))

    def added_default(self, name: str) -> str | None:
        """Return what rows that are older than a column have in it, under whichever of its names it is listed."""
        given = self.added_defaults or {}
        return next((given[one] for one in (name, *sorted(same_columns(name, self.renames))) if one in given), None)

    def wants_column(self, name: str) -> bool:
        """Return whether a column is wanted, under whichever of its names it is listed."""
        listed = self.include_columns or self.exclude_columns
        if listed is None:
            return True
        return same_columns(name, self.renames).isdisjoint(listed) == (self.include_columns is None)

    def masks_column(self, name: str) -> bool:
        """Return whether a column is masked, under whichever of its names it is listed."""
        return not same_columns(name, self.renames).isdisjoint(self.column_mask_hash or ())

    @model_validator(mode="after")
    def _agree(self) -> TableSettings:
        if self.include_columns is not None and self.exclude_columns is not None:
            raise ValueError("may have include_columns or exclude_columns, not both")
        check_track_lists(self.track_history_column_list, self.track_history_except_column_list)
        for key, names in (
            ("keys", self.keys),
            ("column_mask_hash", self.column_mask_hash),
            ("added_defaults", self.added_defaults),
            ("type_overrides", self.type_overrides),
            ("track_history_column_list", self.track_history_column_list),
            ("track_history_except_column_list", self.track_history_except_column_list),
        ):
            for name in names or ():
                if not self.wants_column(name):
                    what = "not in include_columns" if self.include_columns else "in exclude_columns as well"
                    raise ValueError(f"{name!r} is in {key}, but {what}")
        return self


class LedgerSettings(StrictModel):
    """How long a target's ledger remembers, and how often it is kept small."""

    keep_days: Annotated[int, Field(ge=1)] | None = None
    """Runs that ended so many days ago are forgotten; None forgets none."""
    compact_every: Annotated[int, Field(ge=0)] = 50
    """Once in so many runs, the files of the ledger's tables are written together; 0 for never."""


class ObjectSettings(StrictModel):
    """One entry of ``objects``."""

    table: TableSettings


def _each_table_once(objects: tuple[ObjectSettings, ...]) -> tuple[ObjectSettings, ...]:
    names = [(item.table.source_schema, item.table.source_table) for item in objects]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"must name each table once, and {'.'.join(name)} stands there twice")
    return objects


class Settings(OfSource):
    """The whole configuration; the defaults suit most users."""

    source: Name | None = None
    """What makes one stream of transactions; None takes the captures' root for its name."""
    captures: Annotated[CaptureSettings, BeforeValidator(none_is_empty)] = CaptureSettings()
    destination_schema: Annotated[Name, AfterValidator(check_schema_template)] | None = None
    """The schema of mirror tables whose entry under ``objects`` names none; None takes the source's."""
    origins: Annotated[OriginSettings, BeforeValidator(none_is_empty)] = OriginSettings()
    objects: Annotated[
        tuple[ObjectSettings, ...],
        Field(strict=False),
        BeforeValidator(lambda value: () if value is None else value),
        AfterValidator(_each_table_once),
    ] = ()
    table_include_list: Expressions | None = None
    """Regular expressions over the whole of ``schema.table``; None wants every table."""
    table_exclude_list: Expressions | None = None
    skipped_operations: Operations = ()
    """Changes of these kinds are left out."""
    decimal_handling_mode: DecimalMode = "precise"
    """What becomes of numeric, in all columns without an override."""
    source_encoding: Annotated[Name, AfterValidator(check_encoding)] = "UTF8"
    """The client_encoding that the captures were recorded with, by PostgreSQL's name."""
    metadata_columns: Annotated[MetadataSettings, BeforeValidator(none_is_empty)] = MetadataSettings()
    column_mask_salt: Annotated[SecretStr, Field(min_length=1)] | None = None
    """What goes into every masked column's hashes; it is shown nowhere."""
    outputs: Outputs = ("mirror",)
    """What each source table becomes: see `walreplay.names`."""
    output_names: Annotated[OutputNames, BeforeValidator(none_is_empty)] = Field(default_factory=DEFAULT_NAMES.copy)
    """What the tables of further outputs are called."""
    soft_deletes: bool = False
    """A deleted row stays, marked."""
    on_type_change: TypeChangePolicy = "rewrite"
    on_recreate: RecreatePolicy = "replace"
    on_drop_column: DropColumnPolicy = "keep"
    on_missing_row: MissingRowPolicy = "warn"
    """An update or a delete does not find its row."""
    history_changes: HistoryChanges = "collapse"
    """Whether several changes of a row in one transaction are one version of it."""
    track_history_column_list: TrackedColumns | None = None
    """In a history, only changes of these columns begin versions; others are made in the open one."""
    track_history_except_column_list: TrackedColumns | None = None
    """In a history, changes of these columns alone begin no version."""
    table_properties: Annotated[TableProperties, BeforeValidator(none_is_empty)] = Field(default_factory=dict)
    """Properties of all mirror tables, Delta's and the user's own."""
    cluster_by: ClusterColumns = ()
    """The columns that all mirror tables are clustered by."""
    infer_renames: bool = True
    """A column that stands under another name where one of its type was, between others, was renamed."""
    announcements: Name | None = None
    """The prefix of the logical messages with which the source announces its tables; None reads none."""
    ledger: Annotated[LedgerSettings, BeforeValidator(none_is_empty)] = LedgerSettings()
    accept_changed_tables: bool = False
    """Continue from tables that somebody else has changed since the last run, as they are."""
    staging: Annotated[str, AfterValidator(check_folder)] | None = None
    """A folder for events while a run works, which driver and workers reach; None: in the target's own place."""
    run_bytes: Annotated[int, Field(ge=1)] | None = None
    """Bytes of captures that one run reads; a larger archive is several runs.  None goes by the cluster."""
    _narrowed: Narrowed = PrivateAttr(default=NOT_NARROWED)

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        if self.table_include_list is not None and self.table_exclude_list is not None:
            raise ValueError("may have table_include_list or table_exclude_list, not both")
        check_track_lists(self.track_history_column_list, self.track_history_except_column_list)
        for item in self.objects:
            table = item.table
            name = f"{table.source_schema}.{table.source_table}"
            if not self.wants_table(table.source_schema, table.source_table):
                key = "table_include_list" if self.table_include_list else "table_exclude_list"
                raise ValueError(f"{name} stands under objects, but {key} leaves it out")
            if table.column_mask_hash and self.column_mask_salt is None:
                raise ValueError(f"{name} has a column_mask_hash, which needs a column_mask_salt")
            if table.soft_deletes and self.metadata_columns.deleted is None:
                raise ValueError(f"{name} has soft_deletes, which need metadata_columns.deleted")
            if table.scd_type == 2 and table.outputs is not None and {"mirror", "history"} <= {*table.outputs}:
                raise ValueError(f"{name} has scd_type 2, a history in place of its mirror, and outputs with both")
        for name in self.output_names.values():
            if "{table}" not in name:
                raise ValueError(f"output_names must have {{table}} in {name!r}: all tables would have one name else")
        if self.soft_deletes and self.metadata_columns.deleted is None:
            raise ValueError("soft_deletes need metadata_columns.deleted")
        return self

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Check values that came as a mapping.

        Raises:
            ConfigError: naming the key and what was expected.
        """
        return validated(cls, values, path=None, document=None)

    def accepting_changed_tables(self) -> Self:
        """Return the same settings with ``accept_changed_tables`` set."""
        return self.model_copy(update={"accept_changed_tables": True})

    def allowing_gaps(self) -> Self:
        """Return the same settings with ``captures: allow_gaps`` set."""
        return self.model_copy(update={"captures": self.captures.model_copy(update={"allow_gaps": True})})

    def narrowed(self, to: Narrowed) -> Settings:
        """Return the same settings for a call that wants a part of the tables."""
        copy = self.model_copy()
        copy._narrowed = to
        return copy

    def with_outputs(self, outputs: Sequence[Output]) -> Settings:
        """Return the same settings for tables that have these outputs and no others.

        Raises:
            ConfigError: there is none of that kind yet.
        """
        names = [output.value for output in outputs]
        checked = Settings.from_mapping({"outputs": names}).outputs
        objects = tuple(
            one.model_copy(update={"table": one.table.model_copy(update={"outputs": None})}) for one in self.objects
        )
        return self.model_copy(update={"outputs": checked, "objects": objects})

    @property
    def makes_mirrors(self) -> bool:
        """Whether any table may have a mirror."""
        given = [self.outputs, *(one.table.outputs for one in self.objects if one.table.outputs is not None)]
        return any(Output(name).rows is RowKind.CURRENT for names in given for name in names)

    @property
    def from_lsn(self) -> int:
        """Changes of transactions with a lower commit LSN are left out; -1 leaves out none."""
        return -1 if self._narrowed.from_lsn is None else self._narrowed.from_lsn

    def wants_relation(self, oid: int) -> bool:
        """Return whether a relation is wanted, as far as its oid decides that, and not its name."""
        return self._narrowed.wants_relation(oid)

    def wants_origin(self, origin: str | None) -> bool:
        """Return whether the changes of a replication origin are wanted; None: made on the server itself."""
        return self.origins.plain.wants(origin)

    @property
    def of_tasks(self) -> TaskSettings:
        """What tasks have to know."""
        return TaskSettings(self.origins.plain, frozenset(self.skipped_operations), self.source_codec, self.mask_salt)

    def keys_of(self, schema: str, table: str) -> tuple[str, ...] | None:
        """Return the configured key columns of a source table; None where there are none."""
        found = self.table(schema, table)
        return found.keys if found is not None else None

    def table(self, schema: str, table: str) -> TableSettings | None:
        """Return the options of a source table; None if there are none."""
        for item in self.objects:
            if (item.table.source_schema, item.table.source_table) == (schema, table):
                return item.table
        return None

    def options_of(self, schema: str, table: str) -> TableSettings:
        """Return the options of a source table, with the schema that its mirror has."""
        found = self.table(schema, table) or TableSettings(source_schema=schema, source_table=table)
        if self.destination_schema is None or found.destination_schema is not None:
            return found
        return found.model_copy(update={"destination_schema": self.destination_schema.replace("{schema}", schema)})

    def properties_of(self, table: TableSettings) -> tuple[tuple[str, str], ...]:
        """Return the properties of a mirror table, in one order."""
        return tuple(sorted({**self.table_properties, **(table.table_properties or {})}.items()))

    def outputs_of(self, schema: str, table: str) -> tuple[Output, ...]:
        """Return what a source table becomes, each once, in their usual order."""
        found = self.table(schema, table)
        wanted = self.outputs if found is None or found.outputs is None else found.outputs
        if found is not None and found.scd_type == 2:
            wanted = tuple("history" if name == "mirror" else name for name in wanted)
        return tuple(one for one in Output if one.value in wanted and self._narrowed.wants_output(one))

    def output_name(self, table: TableSettings, output: Output) -> str:
        """Return the name of the table of an output; its schema is the mirror's."""
        own = table.output_names or {}
        names = {**DEFAULT_NAMES, **self.output_names, **own}
        if output is Output.HISTORY and table.scd_type == 2 and output.value not in own:
            del names[output.value]
        return names.get(output.value, "{table}").replace("{table}", table.destination[1])

    def type_options(self, schema: str, table: str) -> TypeOptions:
        """Return how the values of a source table are read."""
        common = TypeOptions(self.decimal_handling_mode)
        found = self.table(schema, table)
        return common if found is None else found.type_options(common)

    @property
    def source_codec(self) -> str:
        """Python's name of the source's encoding."""
        return codec_of(self.source_encoding)

    def wants_table(self, schema: str, table: str) -> bool:
        """Return whether a source table is wanted."""
        expressions = self.table_include_list or self.table_exclude_list
        name = f"{schema}.{table}"
        if expressions is None or not self._narrowed.wants(name):
            return self._narrowed.wants(name)
        listed = any(expression(text).fullmatch(name) for text in expressions)
        return listed == (self.table_include_list is not None)

    def skips(self, operation: Operation) -> bool:
        """Return whether changes of a kind are left out."""
        return operation in self.skipped_operations

    @property
    def leaves_rows_out(self) -> bool:
        """Whether rows may be left out to which later changes refer."""
        return self.skips("c") or self.skips("u") or self.origins != OriginSettings() or self.captures.allow_gaps

    @property
    def mask_salt(self) -> bytes:
        """What is hashed in front of every masked value."""
        return b"" if self.column_mask_salt is None else self.column_mask_salt.get_secret_value().encode()
