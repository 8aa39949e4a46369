"""The common part of Paimon's CDC actions, which replicate the tables of a source.

An action takes the same arguments as Paimon's action. It opens a source, and the rules that turn
source tables into target tables. The module of each source declares its actions; `action_table.py`
lists them all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.cdc.columns.computed import parse_computed_columns
from lakecore.cdc.target_rules import TargetRules
from lakecore.cdc.types.mapping import TypeMapping
from lakecore.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.cdc.events import Source, SourceTable
    from lakecore.io.ambient import Ambient

__all__ = ["COMMON_FLAGS", "REPEATED_FLAGS", "Action", "Arguments", "Opened", "rules_of"]

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
        "computed_column",
        "metadata_column",
        "multiple_table_partition_keys",
        "table_mapping",
        "table_prefix_db",
        "table_suffix_db",
        "type_mapping",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The arguments of an action. `repr` shows no options of the source: they hold secrets.

    - `database`, `table`: the target; `table` is None for an action of a whole database;
    - `conf`: the options of the source;
    - `flags`: all other arguments by name, each with the texts that the user gave.
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
        """Whether a flag is true. Raises InvalidRequest unless the text is true or false."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            raise InvalidRequest("the flag is true or false", flag=f"--{name}", value=text)
        return text.lower() == "true"

    @property
    def mapping(self) -> TypeMapping:
        """The options of `--type_mapping`."""
        return TypeMapping.parse(self.names("type_mapping"), self.names("primary_keys"))

    @property
    def metadata(self) -> tuple[str, ...]:
        """The columns of `--metadata_column`."""
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
    """The target rules that follow from the arguments that all actions share."""
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
