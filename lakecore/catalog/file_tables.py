"""The common parts of catalogs: checks of table names, branches, schema changes, and errors."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from lakecore.catalog.identifier import (
    MAIN_BRANCH,
    SYSTEM_DATABASE,
    Identifier,
    check_name,
    may_be_named,
    parse_identifier,
)
from lakecore.catalog.options import OptionReader
from lakecore.deferred import deferred
from lakecore.errors import (
    CommitConflict,
    InvalidRequest,
    NotFound,
    Unsupported,
    check_flags,
    did_you_mean,
)
from lakecore.format.layout import Layout
from lakecore.io.dropped_mark import hides
from lakecore.io.history import History
from lakecore.io.stores.open import locate, open_store
from lakecore.io.stores.remote import SINGLE_WRITER_OPTION
from lakecore.model.casts import narrowed_columns
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import Change, check_changes
from lakecore.options import OptionValue, option_texts
from lakecore.table.publication import SchemaProposal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.catalog.names import Names, Place
    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import Store
    from lakecore.table.compactions.change_options import check_stored_rows
    from lakecore.table.handle import Table
    from lakecore.table.verbs.compaction_job import compact_for_switch
else:
    _RULES = "lakecore.table.compactions.change_options"
    check_stored_rows = deferred(_RULES, "check_stored_rows")
    compact_for_switch = deferred("lakecore.table.verbs.compaction_job", "compact_for_switch")

log = logging.getLogger("lakecore.schema")


ALTER_ATTEMPTS_MAX = 10
ALTER_WAIT_SECONDS = 0.01
BRANCH = "branch-"
_VECTORS = "deletion-vectors.enabled"
_NAMES_SHOWN = 20


def data_table(text: str, verb: str, *, branch_allowed: bool) -> Identifier:
    """The table whose data a verb changes.

    Raises InvalidRequest for a system table, and for a branch unless `branch_allowed`.
    """
    name = parse_identifier(text)
    if name.system is not None or name.database == SYSTEM_DATABASE:
        raise InvalidRequest(f"a system table cannot be {_done(verb)}", table=name)
    if name.branch != MAIN_BRANCH and not branch_allowed:
        raise InvalidRequest(
            f"a branch cannot be {_done(verb)} by the catalog", table=name, branch=name.branch
        )
    return name


def asked_table(
    identifier: str, options: Mapping[str, OptionValue] | None, *, ignore_if_exists: bool
) -> tuple[Identifier, dict[str, str]]:
    """The name of a table to create, and its options as strings.

    Raises InvalidRequest for arguments of the wrong kind, and for an invalid table name.
    """
    check_flags(ignore_if_exists=ignore_if_exists)
    given = option_texts(options, table=identifier)
    name = data_table(identifier, "create", branch_allowed=False)
    check_name("table", name.table)
    return name, given


def is_table(store: Store, path: str, branch: str = MAIN_BRANCH) -> bool:
    """Whether the directory holds a table, or that branch of one."""
    layout = Layout(root=path, branch=branch)
    # Most tables still have their first schema file, and one existence check is cheaper than a
    # listing. The check is enough if a drop renames the directory atomically: no table is half
    # deleted.
    if store.renames_at_once and store.exists(layout.schema(0)):
        return True
    if branch != MAIN_BRANCH and hides(store, layout.root):
        return False
    return bool(History(store, layout).schema_ids())


def branch_names(store: Store, path: str) -> tuple[str, ...]:
    """The names of the branches of the table in that directory, sorted. `main` is not listed."""
    names = directories(store, Layout(root=path).branches_dir)
    return tuple(sorted(n.removeprefix(BRANCH) for n in names if n.startswith(BRANCH)))


def change_schema(
    place: Place,
    name: Identifier,
    changes: Sequence[Change],
    *,
    opened: Callable[[], Table],
    ambient: Ambient,
) -> bool:
    """Publish one new schema with all changes. Returns False if there is no table.

    A switch of deletion vectors first compacts the table, which `opened` opens, if stored rows need
    a compaction. Raises CommitConflict if other processes keep changing the schema at the same
    time.
    """
    layout, table = Layout(root=place.path, branch=name.branch), str(name)
    history = place.publication.history(place.store, layout)
    check_changes(changes)
    for attempt in range(ALTER_ATTEMPTS_MAX):
        if attempt:
            ambient.sleep(ALTER_WAIT_SECONDS * 2**attempt * ambient.random())
        current = history.latest_schema()
        if current is None:
            return False
        if not changes:
            return True
        changed = evolve(
            current,
            list(changes),
            now_ms=ambient.now_ms(),
            has_snapshots=history.latest_snapshot_id() is not None,
            table=table,
        )
        if changed.options.get(_VECTORS) != current.options.get(_VECTORS):
            compact_for_switch(opened().context, changed)
        check_stored_rows(history, current, changed, changes, table=table)
        proposal = SchemaProposal(schema=changed, changes=changes)
        narrowed = narrowed_columns(current.fields, changed.fields)
        if place.publication.publish_schema(place.store, layout, proposal):
            if narrowed and history.latest_snapshot_id() is not None:
                log.warning(
                    "stored values may not fit a new type; reads cast them or name the first that "
                    "cannot be cast table=%s columns=%s "
                    "disable-explicit-type-casting=true refuses such changes",
                    table,
                    ", ".join(narrowed),
                )
            return True
    raise CommitConflict(
        "other processes keep changing the schema; read it and try again",
        table=table,
        attempts=ALTER_ATTEMPTS_MAX,
    )


# --- errors --------------------------------------------------------------------------------------


def no_database(names: Names, name: str) -> NotFound:
    """The error for a missing database."""
    text = "no such database"
    if name == "default":
        text += "; in SQL, a table is in it unless you write DATABASE.TABLE, or USE another one"
    return NotFound(text, database=name, **near("databases", name, names.databases()))


def no_table(names: Names, name: Identifier, place: Place | None = None) -> NotFound | Unsupported:
    """The error for a missing table or branch. `place`: where its files should be, if known."""
    database = name.database
    if not names.has_database(database):
        return no_database(names, database)
    main = replace(name, branch=MAIN_BRANCH)
    if name.branch != MAIN_BRANCH and names.has_table(main):
        branches = names.branches(main)
        return NotFound("no such branch", table=name, **near("branches", name.branch, branches))
    if place is not None and place.is_listed:
        return without_files(name, place.path)
    if name.table in names.others(database):
        return Unsupported("a view (SQL reads it), or not a table of Paimon", table=name)
    others = [each for each in names.near(database) if each != name.table]
    return NotFound("no such table", table=name, **near("tables", name.table, others))


def without_files(name: Identifier, path: str) -> NotFound:
    """The error for a table that a catalog lists, but that has no files."""
    return NotFound(
        "the catalog lists the table, but its directory holds none; if a rename was interrupted, "
        "repeat it with the old name, rename_table(OLD, THIS), or drop this entry",
        table=name,
        path=path,
    )


def check_empty(database: str, inside: Mapping[str, Sequence[str]], *, cascade: bool) -> None:
    """Raise InvalidRequest if a database without `cascade` has entries; `inside`: by kind."""
    kind = next((kind for kind, names in inside.items() if names), None)
    if kind is not None and not cascade:
        raise InvalidRequest(
            "the database is not empty; cascade=True removes what is in it",
            database=database,
            **{kind: shown(inside[kind])},
        )


def check_renames(store: Store, *, single_writer: bool, **facts: object) -> None:
    """Raise Unsupported if the storage cannot rename a directory in one step."""
    if not store.renames_at_once and not single_writer:
        raise Unsupported(
            "this storage cannot rename a directory in one step, so a writer could lose its "
            "commits; if nobody else writes, set commit.single-writer",
            **facts,
        )


# --- directories ---------------------------------------------------------------------------------


def directories(store: Store, path: str) -> list[str]:
    """The names of the directories below a path, without those that no caller can name."""
    names = [base_name(child.path) for child in store.list(path) if child.is_directory]
    return [name for name in names if may_be_named(name)]


def base_name(path: str) -> str:
    """The last component of a path."""
    return path.rstrip("/").rpartition("/")[2]


def shown(names: Sequence[str]) -> list[str]:
    """The first names of a long list, for an error message."""
    more = len(names) - _NAMES_SHOWN
    return [*names[:_NAMES_SHOWN], *([f"... {more} more"] if more > 0 else [])]


def near(what: str, name: str, names: Sequence[str]) -> dict[str, object]:
    """The facts of an error about an unknown name: the most similar name, and `what`, all names."""
    return {**did_you_mean(name, names), what: shown(names)}


def _done(verb: str) -> str:
    return {"drop": "dropped"}.get(verb, verb.removesuffix("e") + "ed")


# --- warehouse -----------------------------------------------------------------------------------
# Opens or creates the directory of a warehouse in its store.


def open_warehouse(stated: str, options: Mapping[str, str], *, create: bool) -> tuple[str, Store]:
    """The absolute path or URI of a warehouse, and its store.

    Raises NotFound if the warehouse is missing, unless `create` is set.
    """
    warehouse = locate(stated)
    store = open_store(warehouse, options)
    if not store.exists(warehouse):
        if not create:
            store.list(warehouse)  # raises if there is no bucket
            raise NotFound(
                "no such warehouse; connect(..., create=True) makes one", warehouse=warehouse
            )
        store.make_directory(warehouse)
    elif _is_file(store, warehouse):
        raise InvalidRequest("a warehouse must be a directory", warehouse=warehouse)
    return warehouse, store


def open_lockable_warehouse(
    stated: str, options: Mapping[str, str], *, create: bool
) -> tuple[str, Store, bool]:
    """The result of `open_warehouse`, and whether the catalog locks tables.

    As in Java, locks are on by default for object stores, which have no atomic rename.

    On a storage without conditional puts, a put first checks that the file does not exist. The lock
    ensures that no other process writes between the check and the put.
    """
    warehouse, store = open_warehouse(stated, options, create=create)
    locked = OptionReader(options).flag("lock.enabled", default=not store.renames_at_once)
    if locked:
        store = open_store(warehouse, {**options, SINGLE_WRITER_OPTION: "true"})
    return warehouse, store, locked


def _is_file(store: Store, path: str) -> bool:
    """Whether a local path is a file; on object stores a path may be both a file and a prefix."""
    if store.local_path(path) is None:
        return False
    try:
        store.size(path)
    except NotFound:
        return False
    return True
