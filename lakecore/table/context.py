"""A table as its verbs see it: schema, options, store and file layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from lakecore.errors import NotFound, Unsupported
from lakecore.io.parallel import IN_THREADS, BulkFiles, InThreads
from lakecore.io.stores.guarded import guarded, unguarded
from lakecore.model.column_rules import require_plain_names
from lakecore.options import RENAMED, TableOptions, check_known
from lakecore.plan.partitions import Partitions
from lakecore.table.publication import EXCLUSIVE_CREATE, Publication

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakecore.format.layout import Layout
    from lakecore.io.ambient import Ambient
    from lakecore.io.history import History
    from lakecore.io.progress import WorkBar
    from lakecore.io.stores.store import Store
    from lakecore.memory import Budget
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class TableContext:
    """The value that every verb needs. `identifier` is for messages: `db.table`, or a path.

    SQL in conditions and values uses the time zone `zone` (empty: the zone of the machine) and the
    current time `statement_ms` (None: the clock). If several processes work on one statement, all
    of them get the same `zone` and `statement_ms`.
    """

    identifier: str
    schema: TableSchema
    options: TableOptions
    layout: Layout
    store: Store
    history: History
    partitions: Partitions
    ambient: Ambient
    budget: Budget
    publication: Publication = EXCLUSIVE_CREATE
    bulk: BulkFiles = IN_THREADS
    zone: str = ""
    statement_ms: int | None = None

    def __post_init__(self) -> None:
        """Raise Unsupported for a column name that Polars reads as a pattern."""
        require_plain_names(self.schema, self.identifier)

    @property
    def falls_back(self) -> bool:
        """Whether reads of the table fall back to another branch."""
        return self.options.scan_fallback_branch not in {None, self.layout.branch}

    def __reduce__(self) -> NoReturn:
        """Refuse pickling, also inside a `Table`: locks and caches belong to one process."""
        raise Unsupported(
            "a table, and what reads or writes it, cannot be pickled; pass its path and "
            "options, and open it in the other process: lakecore.open_table(path, options=...)",
            table=self.identifier,
            path=self.layout.root,
        )


def load_context(  # noqa: PLR0913  what a table is bound to
    store: Store,
    layout: Layout,
    *,
    identifier: str,
    dynamic_options: Mapping[str, str],
    ambient: Ambient,
    budget: Budget,
    publication: Publication = EXCLUSIVE_CREATE,
) -> TableContext:
    """The table at this layout, with its newest schema. Raises NotFound if there is no table."""
    history = publication.history(unguarded(store), layout)
    schema = history.latest_schema()
    if schema is None:
        raise NotFound(
            "no table here: there is no schema file", path=layout.root, branch=layout.branch
        )
    name = identifier or layout.root
    stated = schema.options.get("branch", layout.branch)
    if stated != layout.branch:
        raise Unsupported(
            "the schema names another branch of the table than was opened",
            option="branch",
            value=stated,
            branch=layout.branch,
            table=name,
        )
    check_known(dynamic_options, table=name)
    return bind_context(
        history,
        schema,
        identifier=name,
        dynamic_options=dynamic_options,
        ambient=ambient,
        budget=budget,
        publication=publication,
    )


def bind_context(  # noqa: PLR0913  what a table is bound to
    history: History,
    schema: TableSchema,
    *,
    identifier: str,
    dynamic_options: Mapping[str, str],
    ambient: Ambient,
    budget: Budget,
    publication: Publication = EXCLUSIVE_CREATE,
) -> TableContext:
    """The table with this schema; the schema need not be stored yet."""
    options = schema.parsed_options(dynamic_options, table=identifier)
    layout = _laid_out(history.layout, options)
    return TableContext(
        identifier=identifier,
        schema=schema,
        options=options,
        layout=layout,
        store=guarded(history.store, layout),
        history=history,
        partitions=Partitions(schema, options),
        ambient=ambient,
        budget=budget,
        publication=publication,
    )


def reload_context(context: TableContext) -> TableContext:
    """The same table with its newest schema; branch and dynamic options are kept."""
    return load_context(
        context.store,
        context.layout,
        identifier=context.identifier,
        dynamic_options=dynamic_options_of(context),
        ambient=context.ambient,
        budget=context.budget,
        publication=context.publication,
    )


def with_schema(context: TableContext, schema: TableSchema) -> TableContext:
    """The same table with another of its schemas, and with the same dynamic options."""
    options = schema.parsed_options(dynamic_options_of(context), table=context.identifier)
    return with_options(replace(context, schema=schema), options)


def with_options(context: TableContext, options: TableOptions) -> TableContext:
    """The same table with other options; its layout and partition names follow them."""
    layout = _laid_out(context.layout, options)
    # A store that the caller has put around the guarded one stays.
    own = unguarded(context.store)
    return replace(
        context,
        options=options,
        layout=layout,
        store=context.store if own is context.store else guarded(own, layout),
        partitions=Partitions(context.schema, options),
    )


def _laid_out(layout: Layout, options: TableOptions) -> Layout:
    """The layout with data and index files in the folders that the options name."""
    return replace(
        layout,
        data_directory=options.data_file_path_directory or "",
        index_in_data_dir=options.index_file_in_data_file_dir,
        external_roots=options.lakecore_external_paths,
        blob_roots=options.lakecore_blob_paths,
    )


def dynamic_options_of(context: TableContext) -> dict[str, str]:
    """The dynamic options: those that differ from the options stored with the table."""
    stated = {RENAMED.get(key, key): text for key, text in context.schema.effective_options.items()}
    return {key: text for key, text in context.options.texts.items() if stated.get(key) != text}


def on_branch(context: TableContext, name: str, *, own: Collection[str]) -> TableContext:
    """The table on a branch or on `main`, with its newest schema.

    Dynamic options are kept, except those named in `own`, which every branch sets for itself.
    Raises NotFound if the branch has no schema.
    """
    dynamic = {key: text for key, text in dynamic_options_of(context).items() if key not in own}
    if context.options.query_auth_enabled:
        # The branch's schema may predate this option, but the branch holds rows of the table.
        dynamic["query-auth.enabled"] = "true"
    return load_context(
        context.store,
        context.layout.on_branch(name),
        identifier=context.identifier,
        dynamic_options=dynamic,
        ambient=context.ambient,
        budget=context.budget,
        publication=context.publication,
    )


def has_unaware_bucket(context: TableContext) -> bool:
    """Whether the table has unaware buckets: it has no primary key, and `bucket` is -1.

    Each partition then has one bucket, whose rows have no order.
    """
    return not context.schema.primary_keys and context.options.bucket < 0


def crosses_partitions(context: TableContext) -> bool:
    """Whether a key of the table may move from one partition to another.

    Its primary key lacks partition keys, and its buckets are dynamic.
    """
    schema = context.schema
    lacks = not set(schema.partition_keys) <= set(schema.primary_keys)
    return bool(schema.primary_keys) and lacks and context.options.bucket == -1


def with_bar(context: TableContext, bar: WorkBar) -> TableContext:
    """The table, whose files are listed and deleted before the eyes of a person.

    An engine with many machines shows its work itself.
    """
    return replace(context, bulk=InThreads(bar)) if context.bulk is IN_THREADS else context


def require_own_references(context: TableContext, verb: str) -> None:
    """Raise Unsupported if a server owns the tags and branches, and has no call for the verb."""
    if context.publication.references is not None:
        raise Unsupported(
            "the catalog's server has no call for this", verb=verb, table=context.identifier
        )


def newest_schema_id(context: TableContext) -> int:
    """The id of the newest schema. Raises NotFound if the table is being dropped.

    `require_table` has just been called.
    """
    newest = context.history.newest_schema_id(context.schema.id)
    if newest is None:
        raise _dropped(context)
    return newest


def _dropped(context: TableContext) -> NotFound:
    return NotFound(
        "the table is not there any more: it was dropped or renamed",
        table=context.identifier,
        path=context.layout.root,
    )


def require_table_of(context: TableContext, latest: Snapshot | None) -> None:
    """As `require_table`, after the newest snapshot was read, which may prove it."""
    if not context.history.is_confirmed(latest):
        require_table(context)
        if latest is not None:
            context.history.confirm(latest)


def require_table(context: TableContext) -> None:
    """Raise NotFound if the table was dropped or replaced since it was opened."""
    history = context.history
    if history.still_holds(context.schema):
        return
    if not history.schema_ids():
        raise _dropped(context)
    raise NotFound(
        "the table is not there any more: another was made in its place; open that one",
        table=context.identifier,
        path=context.layout.root,
    )
