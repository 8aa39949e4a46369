"""The common part of the actions that read messages, from topics or from files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.cdc.actions import Arguments, Opened, rules_of
from lakecore.cdc.routing import Routing
from lakecore.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.cdc.events import Source
    from lakecore.cdc.target_rules import TargetRules
    from lakecore.io.ambient import Ambient

__all__ = [
    "DATABASE_FLAGS",
    "TABLE_FLAGS",
    "database_opened",
    "database_rules",
    "table_opened",
    "table_rules",
]

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
    """The source, and rules by which each message goes into the target of the table it names."""
    rules = database_rules(arguments, ambient, metadata)
    eager = arguments.flag("eager_init", default=False)
    return Opened(
        source,
        rules,
        follows_new_tables=True,
        opens_at_start=_routing(arguments).may_be_target if eager else None,
    )


def table_rules(arguments: Arguments, ambient: Ambient, metadata: Sequence[str]) -> TargetRules:
    """The rules by which every message goes into one table.

    `metadata`: the metadata columns that the source has.
    """
    _check_metadata(arguments, metadata)
    target = f"{arguments.database}.{arguments.table}"
    return rules_of(arguments, lambda _table: target, ambient)


def database_rules(arguments: Arguments, ambient: Ambient, metadata: Sequence[str]) -> TargetRules:
    """The rules by which each message goes into the target of the table that it names."""
    _check_metadata(arguments, metadata)
    if arguments.conf.get("value.format") == "json":
        raise Unsupported("messages of the format json name no table: use the action for one table")
    route = _routing(arguments).target
    return rules_of(arguments, route, ambient, falls_back=True, lenient=True)


def _routing(arguments: Arguments) -> Routing:
    return Routing(
        database=arguments.database,
        including_tables=arguments.text("including_tables") or ".*",
        excluding_tables=arguments.text("excluding_tables"),
        including_dbs=arguments.text("including_dbs") or ".*",
        excluding_dbs=arguments.text("excluding_dbs"),
        table_prefix=arguments.text("table_prefix") or "",
        table_suffix=arguments.text("table_suffix") or "",
        table_prefix_db=_pairs(arguments, "table_prefix_db"),
        table_suffix_db=_pairs(arguments, "table_suffix_db"),
        table_mapping=_pairs(arguments, "table_mapping"),
        case_sensitive=arguments.case_sensitive,
    )


def _check_metadata(arguments: Arguments, known: Sequence[str]) -> None:
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
