"""The statements as frozen values, which the parsers build.

Names are chains: `(table,)`, `(database, table)` or `(catalog, database, table)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.catalog.views import ViewChange
    from lakecore.model.schema_change import Change

Chain: TypeAlias = "tuple[str, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A statement that returns rows and that DuckDB executes."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """EXPLAIN of a query. With `analyze`, the query runs, and the plan states times and rows."""

    text: str
    analyze: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """A statement on objects of DuckDB, passed to DuckDB unchanged."""

    text: str


# --- catalogs and databases -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateCatalog:
    """CREATE CATALOG name WITH (...)."""

    name: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCatalog:
    """DROP CATALOG name: the name is removed from the session; nothing is deleted."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """USE database, USE catalog.database or USE CATALOG catalog."""

    chain: Chain
    catalog: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """AS TABLE or AS DATABASE: the followed table or database of a source catalog.

    `options` are those of the hint. `computed` has the columns after ADD COLUMN, as
    `name=expression`. `including` and `excluding` are regular expressions.
    """

    chain: Chain
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    computed: tuple[str, ...] = ()
    including: str | None = None
    excluding: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDatabase:
    """CREATE DATABASE. With `mirror`, its tables follow those of a source, and get the options."""

    chain: Chain
    if_not_exists: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    mirror: Mirror | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDatabase:
    """DROP DATABASE."""

    chain: Chain
    if_exists: bool = False
    cascade: bool = False


# --- tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of CREATE TABLE or ALTER TABLE. `type` is Paimon's type text, with NOT NULL."""

    name: str
    type: str
    comment: str | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """CREATE TABLE; `query` is the query after AS, `like` the table after LIKE.

    With `replace`, an existing table is replaced; with `existing`, it must exist. If the query is
    `TABLE name`, `mirror` also has this name, because it may be a table of a source catalog.
    """

    chain: Chain
    columns: tuple[Column, ...] = ()
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    if_not_exists: bool = False
    temporary: bool = False
    replace: bool = False
    existing: bool = False
    query: str | None = None
    like: Chain | None = None
    mirror: Mirror | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateView:
    """CREATE [TEMPORARY] VIEW name AS query."""

    chain: Chain
    query: str
    comment: str | None = None
    temporary: bool = False
    replace: bool = False
    if_not_exists: bool = False
    columns: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterView:
    """ALTER VIEW ... AS query, or with changes of its options and comment."""

    chain: Chain
    query: str | None = None
    changes: tuple[ViewChange, ...] = ()
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """DROP TABLE or DROP VIEW."""

    chain: Chain
    if_exists: bool = False
    view: bool = False
    temporary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameTable:
    """ALTER TABLE ... RENAME TO, ALTER VIEW ... RENAME TO."""

    chain: Chain
    to: Chain
    if_exists: bool = False
    view: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTable:
    """ALTER TABLE with changes of the schema; dropped columns may be missing if `absent_ok`."""

    chain: Chain
    changes: tuple[Change, ...]
    if_exists: bool = False
    absent_ok: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPartition:
    """ALTER TABLE ... DROP PARTITION, and TRUNCATE TABLE ... PARTITION."""

    chain: Chain
    partitions: tuple[Mapping[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    """TRUNCATE TABLE."""

    chain: Chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Analyze:
    """ANALYZE TABLE ... COMPUTE STATISTICS [FOR ALL COLUMNS | FOR COLUMNS ...]."""

    chain: Chain
    columns: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTag:
    """ALTER TABLE ... CREATE | REPLACE | DELETE | RENAME TAG."""

    chain: Chain
    verb: str
    tag: str
    to: str | None = None
    snapshot_id: int | None = None
    retain: str | None = None
    if_exists: bool = False
    if_not_exists: bool = False


# --- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """INSERT INTO or OVERWRITE; `partition` has None for keys whose values come from the rows."""

    chain: Chain
    query: str
    columns: tuple[str, ...] | None = None
    partition: Mapping[str, str | None] | None = None
    overwrite: bool = False
    by_name: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """UPDATE; values and condition are expressions as text. A path names a field of a ROW."""

    chain: Chain
    alias: str | None
    values: Mapping[Chain, str]
    where: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """DELETE FROM."""

    chain: Chain
    alias: str | None
    where: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClause:
    """A WHEN clause. `match` is matched, not_matched or by_source. `values` None stands for `*`.

    `row` are the values of INSERT VALUES (...) for the columns of the table, in their order.
    """

    match: str
    action: str
    condition: str | None = None
    values: Mapping[Chain, str] | None = None
    row: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """MERGE INTO."""

    chain: Chain
    alias: str | None
    source: str
    source_chain: Chain | None
    source_alias: str | None
    on: str
    clauses: tuple[MergeClause, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyInto:
    """COPY INTO table FROM files. `options` are those of FILE_FORMAT, without TYPE."""

    chain: Chain
    source: str
    format: str
    options: Mapping[str, str | tuple[str, ...]]
    columns: tuple[str, ...] | None = None
    pattern: str | None = None
    force: bool = False
    on_error: str = "ABORT_STATEMENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOut:
    """COPY INTO a directory FROM a query; `query` is the text of a query."""

    target: str
    query: str
    format: str
    options: Mapping[str, str | tuple[str, ...]]
    overwrite: bool = False


# --- the rest -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """SHOW what [of a table or database] [PARTITION (...)] [LIKE pattern]."""

    what: str
    chain: Chain = ()
    partition: Mapping[str, str | None] | None = None
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """DESCRIBE [EXTENDED] table, DESCRIBE DATABASE or DESCRIBE FUNCTION."""

    chain: Chain
    extended: bool = False
    database: bool = False
    function: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentOn:
    """COMMENT ON TABLE | COLUMN ... IS."""

    chain: Chain
    comment: str | None
    column: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetVariable:
    """SET key = value; without a key, all variables are shown."""

    key: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """RESET key; without a key, all."""

    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """CALL sys.procedure(...): expressions as text, by position or by name."""

    procedure: str
    positional: tuple[str, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)


RowStatement = Insert | Update | Delete | Merge | Truncate
"""The statements that change the rows of a table."""
TableStatement = (
    CreateDatabase
    | DropDatabase
    | CreateView
    | AlterView
    | Drop
    | RenameTable
    | AlterTable
    | DropPartition
    | CommentOn
    | ChangeTag
)
"""The statements that change databases, tables, views and tags, except for CREATE TABLE."""
Statement: TypeAlias = (
    "Query | Explain | Own | CreateCatalog | DropCatalog | Use | CreateTable | Analyze"
    " | CopyInto | CopyOut | Show | Describe | SetVariable | Reset | Call"
    " | RowStatement | TableStatement"
)
