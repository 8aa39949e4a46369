"""The table of a load: what dbt and dlt share.

A load names its table, keys and options each time. The first load creates the table; later ones
find it, and may change its options, but not its keys. If the first load fails, the table is dropped
again, so that the next load begins like the first, unless somebody has committed to it meanwhile.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecore.catalog.identifier import check_name
from lakecore.errors import AlreadyExists, CommitUnknown, InvalidRequest, LakecoreError
from lakecore.model.schema_change import SchemaChange
from lakecore.options import OptionValue, option_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from lakecore.session import Session
    from lakecore.table.handle import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """What a load says about its table. `name` is `database.table`."""

    name: str
    primary_keys: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, OptionValue] = field(default_factory=dict)


@contextmanager
def opened(session: Session, wanted: LoadedTable, schema: pa.Schema) -> Iterator[Table]:
    """The table, which is created with `schema` if it does not exist.

    A created table is dropped again if the block raises an error of lakecore, unless a commit, of
    this load or of another, has or may have succeeded.

    Raises InvalidRequest if an existing table has other keys.
    """
    table = None if session.table_exists(wanted.name) else _created(session, wanted, schema)
    if table is None:
        yield _existing(session, wanted)
        return
    try:
        yield table
    except CommitUnknown:
        raise
    except LakecoreError:
        if table.context.history.latest_snapshot() is None:
            session.drop_table(wanted.name)
        raise


def table_name(database: str, table: str) -> str:
    """The name `database.table`. Raises InvalidRequest if no such table can be created.

    `a.b` and `t` would otherwise be the table `b.t` of the database `a`.
    """
    check_name("database", database)
    check_name("table", table)
    return f"{database}.{table}"


def _created(session: Session, wanted: LoadedTable, schema: pa.Schema) -> Table | None:
    """The new table; None if another load was faster."""
    session.create_database(wanted.name.partition(".")[0], ignore_if_exists=True)
    try:
        return session.create_table(
            wanted.name,
            schema,
            primary_keys=wanted.primary_keys,
            partition_keys=wanted.partition_keys,
            options=wanted.options,
        )
    except AlreadyExists:
        return None


def _existing(session: Session, wanted: LoadedTable) -> Table:
    table = session.get_table(wanted.name)
    schema = table.schema
    for what, has, wants in (
        ("primary key", schema.primary_keys, wanted.primary_keys),
        ("partition keys", schema.partition_keys, wanted.partition_keys),
    ):
        if set(has) != set(wants):
            raise InvalidRequest(
                f"the table has another {what}, which cannot change: load another table, or "
                "create this one again",
                table=wanted.name,
                has=list(has),
                wanted=list(wants),
            )
    has_options = table.options.texts
    changes = [
        SchemaChange.set_option(key, text)
        for key, text in option_texts(wanted.options, table=wanted.name).items()
        if has_options.get(key) != text
    ]
    if changes:
        session.alter_table(wanted.name, changes)
        table = session.get_table(wanted.name)
    return table
