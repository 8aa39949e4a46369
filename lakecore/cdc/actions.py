"""The common part of Paimon's CDC actions, which replicate the tables of a source.

An action takes the same arguments as Paimon's action. Opening an action gives a source, and the
rules that map source tables to target tables. The module of each source declares its actions;
`action_table.py` lists them all.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from lakecore.cdc.computed_columns import parse_computed_columns
from lakecore.cdc.target_rules import TargetRules
from lakecore.cdc.types.mapping import TypeMapping
from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.cdc.events import Source, SourceTable
    from lakecore.io.ambient import Ambient

log = logging.getLogger("lakecore.cdc")

COMMON_FLAGS = (
    "partition_keys",
    "primary_keys",
    "type_mapping",
    "computed_column",
    "metadata_column",
    "sync_primary_keys_from_source_schema",
)
REPEATED_FLAGS = frozenset(
    {
        "column_type",
        "computed_column",
        "exclude_column",
        "metadata_column",
        "multiple_table_partition_keys",
        "table_mapping",
        "table_prefix_db",
        "table_suffix_db",
        "type_mapping",
    }
)


class OnTruncate(StrEnum):
    """What happens to the target when TRUNCATE or a change of partitions removes rows."""

    FOLLOW = "follow"
    IGNORE = "ignore"
    STOP = "stop"

    def follows(self, tables: Sequence[SourceTable]) -> bool:
        """Whether the targets of these tables lose the rows that a statement removed.

        Raises InvalidRequest if the tables are not followed any more.
        """
        if self is OnTruncate.STOP:
            raise InvalidRequest(
                "a statement removed rows of a table, and `--truncate stop` is set",
                tables=[*map(str, tables)],
            )
        if self is OnTruncate.IGNORE:
            log.warning(
                "a statement removed or exchanged rows of a table; its target keeps them. "
                "tables=%s",
                [*map(str, tables)],
            )
        return self is OnTruncate.FOLLOW


def unfindable(table: SourceTable) -> InvalidRequest:
    """The error of a statement that removed rows of a table without a primary key."""
    return InvalidRequest(
        "a statement removed rows of a table without a primary key, so the target cannot tell "
        "which; `--truncate ignore` keeps them",
        table=str(table),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The arguments of an action. `repr` shows no options of the source: they hold secrets.

    - `database`, `table`: the target; `table` is None for an action of a whole database;
    - `conf`: the options of the source;
    - `flags`: all other arguments by name, each with the strings that the user gave.
    """

    database: str
    table: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    table_conf: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    case_sensitive: bool = True

    def text(self, name: str) -> str | None:
        """The value of a flag; None if the user did not give it."""
        given = self.flags.get(name)
        return given[-1] if given else None

    def names(self, name: str) -> tuple[str, ...]:
        """The comma-separated values of a flag."""
        given = ",".join(self.flags.get(name, ()))
        return tuple(each.strip() for each in given.split(",") if each.strip())

    def lists(self, name: str) -> dict[str, tuple[str, ...]]:
        """The value lists of a flag that may be given several times, each as `key=a,b`."""
        found: dict[str, tuple[str, ...]] = {}
        for text in self.flags.get(name, ()):
            key, _, listed = text.partition("=")
            names = tuple(each.strip() for each in listed.split(",") if each.strip())
            if not key.strip() or not names or key.strip() in found:
                raise InvalidRequest(
                    "write key=a,b, once for each key", flag=f"--{name}", value=text
                )
            found[key.strip()] = names
        return found

    def flag(self, name: str, *, default: bool) -> bool:
        """Whether a flag is true. Raises InvalidRequest for anything but true and false."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            raise InvalidRequest("the flag is true or false", flag=f"--{name}", value=text)
        return text.lower() == "true"

    @property
    def on_truncate(self) -> OnTruncate:
        """The choice of `--truncate`. Raises InvalidRequest for an unknown choice."""
        text = self.text("truncate") or OnTruncate.FOLLOW
        if text not in list(OnTruncate):
            raise InvalidRequest(
                "unknown value of --truncate", value=text, known=[*map(str, OnTruncate)]
            )
        return OnTruncate(text)

    @property
    def mapping(self) -> TypeMapping:
        """The options of `--type_mapping`, and of single columns."""
        return TypeMapping.parse(
            self.names("type_mapping"),
            self.names("primary_keys"),
            self.flags.get("column_type", ()),
            self.names("exclude_column"),
        )

    @property
    def metadata(self) -> tuple[str, ...]:
        return self.names("metadata_column")


@dataclass(frozen=True, slots=True)
class Opened:
    """The result of opening an action: a source, and the rules for its target tables.

    `opens_at_start`: whether a table of the target database is opened before rows arrive.
    """

    source: Source
    rules: TargetRules
    follows_new_tables: bool = False
    needs_key: bool = False
    opens_at_start: Callable[[str], bool] | None = None
    ignores_incompatible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action.

    - `conf`: the name of the flag that holds the options of the source;
    - `takes_table`: whether the target is one table, not a whole database;
    - `flags`: the flags that are not common to all actions.
    """

    conf: str
    takes_table: bool
    opens: Callable[[Arguments, Ambient], Opened]
    flags: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[str, ...]:
        """All flags except those that name the warehouse and the target."""
        return (*COMMON_FLAGS, *self.flags)


def rules_of(
    arguments: Arguments,
    route: Callable[[SourceTable], str | None],
    ambient: Ambient,
    *,
    falls_back: bool = False,
    lenient: bool = False,
) -> TargetRules:
    """The target rules, from the arguments that all actions share."""
    computed = parse_computed_columns(list(arguments.flags.get("computed_column", ())))
    prefix = arguments.text("metadata_column_prefix") or ""
    if prefix and not arguments.metadata:
        raise InvalidRequest(
            "metadata_column_prefix names no column without metadata_column", prefix=prefix
        )
    return TargetRules(
        route=route,
        ambient=ambient,
        primary_keys=arguments.names("primary_keys"),
        partition_keys=arguments.names("partition_keys"),
        partition_keys_of=arguments.lists("multiple_table_partition_keys"),
        table_conf=arguments.table_conf,
        computed=computed,
        metadata=arguments.metadata,
        metadata_prefix=prefix,
        mapping=arguments.mapping,
        takes_source_keys=arguments.flag("sync_primary_keys_from_source_schema", default=True),
        falls_back=falls_back,
        case_sensitive=arguments.case_sensitive,
        lenient=lenient,
    )


# --- conf ----------------------------------------------------------------------------------------
# Checks of options that sources share, such as `--mysql_conf` and `--kafka_conf`.

Mode = TypeVar("Mode", bound="StrEnum")


def check_keys(
    flag: str, conf: Mapping[str, str], known: Sequence[str], needed: Sequence[str]
) -> None:
    """Raise InvalidRequest for an option of `flag` that is unknown or missing."""
    for key in conf:
        if key not in known:
            near = get_close_matches(key, known, 1)
            raise InvalidRequest(
                f"unknown option of {flag}",
                option=key,
                **({"nearest": near[0]} if near else {"known": known}),
            )
    missing = [key for key in needed if key not in conf]
    if missing:
        raise InvalidRequest(f"{flag} needs these options", missing=missing)


def startup_mode(modes: type[Mode], text: str) -> Mode:
    """The startup mode with this name. Raises InvalidRequest for an unknown name."""
    try:
        return modes(text.lower())
    except ValueError:
        known = [each.value for each in modes]
        raise InvalidRequest(
            "unknown startup mode", option="scan.startup.mode", mode=text, known=known
        ) from None


def checked_pattern(key: str, text: str, what: str = "option") -> str:
    """The pattern, if valid. Raises InvalidRequest if it is no regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidRequest(
            "not a regular expression", **{what: key}, value=text, cause=error
        ) from error
    return text


def matches(pattern: str, name: str) -> bool:
    """Whether a regular expression matches a whole name; `.` also matches a line break."""
    return re.fullmatch(pattern, name, re.DOTALL) is not None


# --- routing -------------------------------------------------------------------------------------
# Decides which source tables are synchronised, and to which tables of the target database.
#
# 1. A table is synchronised if its database and its name fully match the including patterns and do
#    not match the excluding ones.
# 2. The target's name is the mapped name, or else the table's name between a prefix and a suffix. A
#    prefix or suffix for the table's database takes precedence over the general one.
# 3. Tables of the same name in several databases go into one table; without `merge_shards`, the
#    target's name starts with the name of the database and `_`.
#
# Paimon's page: https://paimon.apache.org/docs/master/cdc-ingestion/kafka-cdc/


@dataclass(frozen=True, kw_only=True)
class Routing:
    """The routing options of a database action, named as its flags.

    The keys of `table_mapping`, `table_prefix_db` and `table_suffix_db` match case-insensitively.
    Without `case_sensitive`, names of targets are in lower case.
    """

    database: str
    including_tables: str = ".*"
    excluding_tables: str | None = None
    including_dbs: str = ".*"
    excluding_dbs: str | None = None
    table_prefix: str = ""
    table_suffix: str = ""
    table_prefix_db: Mapping[str, str] = field(default_factory=dict)
    table_suffix_db: Mapping[str, str] = field(default_factory=dict)
    table_mapping: Mapping[str, str] = field(default_factory=dict)
    merge_shards: bool = True
    case_sensitive: bool = True

    def __post_init__(self) -> None:
        for name in ("including_tables", "excluding_tables", "including_dbs", "excluding_dbs"):
            checked_pattern(name, getattr(self, name) or "", what="argument")

    def includes(self, table: SourceTable) -> bool:
        return _matches(table.database, self.including_dbs, self.excluding_dbs) and _matches(
            table.name, self.including_tables, self.excluding_tables
        )

    def target(self, table: SourceTable) -> str | None:
        """The target as `database.table`; None if the table is not synchronised.

        Raises InvalidRequest for a table without a name or a database.
        """
        if not table.name or not table.database:
            raise InvalidRequest(
                "a message does not name its database and table, so a target cannot be chosen; "
                "use the action for one table",
                database=table.database,
                table=table.name,
            )
        return f"{self.database}.{self._name(table)}" if self.includes(table) else None

    def may_be_target(self, name: str) -> bool:
        """Whether a table of the target database may be the target of an included table."""
        if name in self.table_mapping.values():
            return True
        prefixes = {self.table_prefix, *self.table_prefix_db.values()}
        suffixes = {self.table_suffix, *self.table_suffix_db.values()}
        inner = [
            name[len(prefix) : len(name) - len(suffix)]
            for prefix in prefixes
            for suffix in suffixes
            if name.startswith(prefix)
            and name.endswith(suffix)
            and len(name) > len(prefix) + len(suffix)
        ]
        return any(matches(self.including_tables, each) for each in inner) and not any(
            self.excluding_tables is not None and matches(self.excluding_tables, each)
            for each in inner
        )

    def _name(self, table: SourceTable) -> str:
        name = table.name if self.merge_shards else f"{table.database}_{table.name}"
        mapped = self._lower["table_mapping"].get(name.lower())
        if mapped is not None:
            return self._cased(mapped)
        database = table.database.lower()
        prefix = self._lower["table_prefix_db"].get(database, self.table_prefix)
        suffix = self._lower["table_suffix_db"].get(database, self.table_suffix)
        return f"{prefix}{self._cased(name)}{suffix}"

    def _cased(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()

    @cached_property
    def _lower(self) -> Mapping[str, Mapping[str, str]]:
        return {
            name: {key.lower(): value for key, value in getattr(self, name).items()}
            for name in ("table_mapping", "table_prefix_db", "table_suffix_db")
        }


def _matches(name: str, including: str, excluding: str | None) -> bool:
    return matches(including, name) and (excluding is None or not matches(excluding, name))


# --- message actions -----------------------------------------------------------------------------
# The common part of the actions that read messages, from topics or from files.

TABLE_FLAGS = ("metadata_column_prefix",)
DATABASE_FLAGS = (
    "metadata_column_prefix",
    "table_mapping",
    "table_prefix",
    "table_suffix",
    "table_prefix_db",
    "table_suffix_db",
    "including_tables",
    "excluding_tables",
    "including_dbs",
    "excluding_dbs",
    "multiple_table_partition_keys",
    "eager_init",
)


def table_opened(
    arguments: Arguments, ambient: Ambient, source: Source, metadata: Sequence[str]
) -> Opened:
    """The source, and rules by which every message goes into one table."""
    rules = table_rules(arguments, ambient, metadata)
    return Opened(source, rules, follows_new_tables=True)


def database_opened(
    arguments: Arguments, ambient: Ambient, source: Source, metadata: Sequence[str]
) -> Opened:
    """The source, and rules by which the table that a message names decides its target."""
    rules = database_rules(arguments, ambient, metadata)
    eager = arguments.flag("eager_init", default=False)
    return Opened(
        source,
        rules,
        follows_new_tables=True,
        opens_at_start=routing_of(arguments).may_be_target if eager else None,
    )


def table_rules(arguments: Arguments, ambient: Ambient, metadata: Sequence[str]) -> TargetRules:
    """The rules by which every message goes into one table.

    `metadata`: the metadata columns that the source has.
    """
    check_metadata(arguments, metadata)
    target = f"{arguments.database}.{arguments.table}"
    return rules_of(arguments, lambda _table: target, ambient)


def database_rules(arguments: Arguments, ambient: Ambient, metadata: Sequence[str]) -> TargetRules:
    """The rules by which the table that a message names decides its target."""
    check_metadata(arguments, metadata)
    if arguments.conf.get("value.format") == "json":
        raise Unsupported("messages of the format json name no table: use the action for one table")
    route = routing_of(arguments).target
    return rules_of(arguments, route, ambient, falls_back=True, lenient=True)


def routing_of(arguments: Arguments, including_dbs: str | None = None) -> Routing:
    """The routing by the arguments of a database action.

    `including_dbs`: the pattern of databases, if an option of the source states it.
    """
    return Routing(
        database=arguments.database,
        including_tables=arguments.text("including_tables") or ".*",
        excluding_tables=arguments.text("excluding_tables"),
        including_dbs=including_dbs or arguments.text("including_dbs") or ".*",
        excluding_dbs=arguments.text("excluding_dbs"),
        table_prefix=arguments.text("table_prefix") or "",
        table_suffix=arguments.text("table_suffix") or "",
        table_prefix_db=_pairs(arguments, "table_prefix_db"),
        table_suffix_db=_pairs(arguments, "table_suffix_db"),
        table_mapping=_pairs(arguments, "table_mapping"),
        merge_shards=arguments.flag("merge_shards", default=True),
        case_sensitive=arguments.case_sensitive,
    )


SERVER_TABLE_FLAGS = ("truncate", "column_type", "exclude_column")
"""The flags of all actions that follow tables of a server."""
SERVER_FLAGS = (
    *SERVER_TABLE_FLAGS,
    "ignore_incompatible",
    "merge_shards",
    "table_prefix",
    "table_suffix",
    "including_tables",
    "excluding_tables",
    "multiple_table_partition_keys",
    "eager_init",
)
"""The flags of all actions that follow a database of a server."""


def refuse_table_name(arguments: Arguments) -> None:
    """Raise InvalidRequest if an action of a whole database is given the option of one table."""
    if "table-name" in arguments.conf:
        raise InvalidRequest(
            "a database action chooses tables by --including_tables and --excluding_tables",
            option="table-name",
        )


def check_metadata(arguments: Arguments, known: Sequence[str]) -> None:
    """Raise InvalidRequest for a column of `--metadata_column` that the source does not have."""
    unknown = [name for name in arguments.metadata if name not in known]
    if unknown:
        raise InvalidRequest("unknown metadata column", columns=unknown, known=list(known))


def _pairs(arguments: Arguments, name: str) -> dict[str, str]:
    """The pairs of a flag of the form `key=value`, given several times or separated by commas."""
    pairs: dict[str, str] = {}
    for text in arguments.names(name):
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InvalidRequest("write key=value", flag=f"--{name}", value=text)
        pairs[key.strip()] = value.strip()
    return pairs
