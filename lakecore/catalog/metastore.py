"""The interface of a metastore: a database or a server that stores the names of tables.

The schemas and rows of the tables are files. `MetastoreNames` has the common code of such catalogs.
A `Metastore` only stores names, copies of schemas for other readers, and locks. A repair makes
missing copies from the files.

As in other Paimon engines, the lock of a table is held for two short steps: the publication of a
snapshot, and the publication of a schema. On a storage with exclusive creation of files, the lock
is only a second protection.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypedDict

import polars as pl

from lakecore.catalog.identifier import Identifier, check_directory
from lakecore.errors import LakecoreError
from lakecore.format.layout import MAIN_BRANCH, Layout
from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.table.publication import (
    EXCLUSIVE_CREATE,
    Outcome,
    Published,
    ReadAccess,
    References,
    Refused,
    SchemaProposal,
    SnapshotProposal,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.catalog.views import Views
    from lakecore.io.history import History
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.plan.partitions import Partitions

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A Paimon table as a metastore lists it. A drop of an external table keeps its files."""

    path: str
    external: bool = False
    left: Identifier | None = None
    """The old name, if a rename may have left the files in the directory of that name."""


class Metastore(Protocol):
    """Names of databases and tables in a metastore.

    Every call asks the server; nothing is cached.
    """

    @property
    def case_sensitive(self) -> bool:
        """Whether names may have upper-case letters. If not, callers must use lower case."""

    @property
    def views(self) -> Views | None:
        """The views that queries can read; None if the metastore stores none for Paimon."""

    def databases(self) -> tuple[str, ...]:
        """The names of all databases, sorted."""

    def has_database(self, name: str) -> bool:
        """Whether the database is listed."""

    def check_database_name(self, name: str) -> None:
        """Raise InvalidRequest for a name that the metastore cannot hold."""

    def check_table_name(self, name: Identifier) -> None:
        """Raise InvalidRequest for a name that the metastore cannot hold."""

    def check_schema(self, name: Identifier, schema: TableSchema) -> None:
        """Raise InvalidRequest or Unsupported for a schema that the metastore cannot hold."""

    def add_database(self, name: str) -> bool:
        """Add an entry for a database; False if it already has one."""

    def remove_database(self, name: str) -> None:
        """Remove a database, its views, and all other entries in it. Does not delete files."""

    def database_path(self, name: str) -> str:
        """The directory of a database."""

    def tables(self, database: str) -> tuple[str, ...]:
        """The names of the Paimon tables of a database, sorted."""

    def others(self, database: str) -> tuple[str, ...]:
        """The sorted names of all entries that are not Paimon tables: views and other tables."""

    def foreign(self, database: str) -> tuple[str, ...]:
        """The names of views and tables of other engines, which prevent a drop of the database."""

    def find(self, name: Identifier) -> Entry | None:
        """The entry of a Paimon table; None if it is not listed."""

    def is_taken(self, name: Identifier) -> bool:
        """Whether any table or view has that name."""

    def new_path(self, name: Identifier) -> str:
        """The directory of a new table of that name."""

    def add(self, name: Identifier, path: str, schema: TableSchema) -> bool:
        """Add an entry for a table; False if the name is taken."""

    def update(self, name: Identifier, schema: TableSchema, before: TableSchema | None) -> None:
        """Update the copy of a table's schema, and remove what only the schema `before` has."""

    def remove(self, name: Identifier) -> bool:
        """Remove the entry of a table, but not its files; False if there was none."""

    def rename(self, old: Identifier, new: Identifier, path: str, *, moves: bool) -> bool:
        """Give an entry another name and directory; False if the new name is taken.

        `moves`: the files are still in the directory of the old name. In the same step, the entry
        stores the old name, until `moved` is called.
        """

    def moved(self, name: Identifier) -> None:
        """Forget the old name of an entry, because its files have moved."""

    def after_commit(
        self, name: Identifier, store: Store, layout: Layout, proposal: SnapshotProposal
    ) -> None:
        """Copy what a commit of the main branch changed. Logs errors, and raises none."""

    def after_tags(
        self, name: Identifier, history: History, made: Sequence[str], gone: Sequence[str]
    ) -> None:
        """Copy the new and deleted tags of the main branch.

        Logs errors, and raises none.
        """

    def repair_partitions(self, name: Identifier, store: Store, path: str) -> None:
        """Copy the partitions of a table again, if the metastore stores partitions."""

    def lock(self, name: Identifier) -> AbstractContextManager[None]:
        """Holds the lock of a table, if the catalog has locks.

        Raises CommitConflict if others hold the lock for too long. Leaving the context raises no
        error.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class MetastorePublication:
    """Publishes snapshots and schemas as files, under the lock of the table."""

    metastore: Metastore
    name: Identifier

    @property
    def access(self) -> ReadAccess | None:
        """Always None: metastores have no row filters and column masks."""
        return None

    @property
    def references(self) -> References | None:
        """Always None: tags and branches are files."""
        return None

    def history(self, store: Store, layout: Layout) -> History:
        """A history that finds snapshots and schemas by their files."""
        return EXCLUSIVE_CREATE.history(store, layout)

    def publish_snapshot(self, store: Store, layout: Layout, proposal: SnapshotProposal) -> Outcome:
        """Create the snapshot's file under the lock.

        Publishes nothing if the lock cannot be taken.
        """
        name = self._on_branch(layout)
        try:
            with self.metastore.lock(name):
                outcome = EXCLUSIVE_CREATE.publish_snapshot(store, layout, proposal)
        except LakecoreError as error:
            return Refused(error)
        if isinstance(outcome, Published) and layout.branch == MAIN_BRANCH:
            self.metastore.after_commit(name, store, layout, proposal)
        return outcome

    def publish_schema(self, store: Store, layout: Layout, proposal: SchemaProposal) -> bool:
        """Copy the schema to the metastore, then create its file, both under the lock.

        In this order, a schema that the metastore refuses never gets a file. If another writer has
        created the file first, the newest schema is copied instead.
        """
        name = self._on_branch(layout)
        if layout.branch != MAIN_BRANCH:
            with self.metastore.lock(name):
                return EXCLUSIVE_CREATE.publish_schema(store, layout, proposal)
        self.metastore.check_schema(name, proposal.schema)
        with self.metastore.lock(name):
            before = self.history(store, layout).latest_schema()
            self.metastore.update(name, proposal.schema, before)
            made = False
            try:
                made = EXCLUSIVE_CREATE.publish_schema(store, layout, proposal)
            finally:
                if not made:
                    self._copy_again(name, store, layout, proposal.schema)
        return made

    def _copy_again(
        self, name: Identifier, store: Store, layout: Layout, proposed: TableSchema
    ) -> None:
        """Copy the newest schema again, because the `proposed` one was copied but not published."""
        try:
            newest = self.history(store, layout).latest_schema()
            if newest is not None:
                self.metastore.update(name, newest, proposed)
        except (LakecoreError, OSError) as error:
            _log.warning("schema not copied table=%s error=%s", name, error)

    def write_hints(self, history: History, snapshot: Snapshot) -> None:
        """Write the hint files, which save readers a listing of the directory."""
        EXCLUSIVE_CREATE.write_hints(history, snapshot)

    def note_tags(
        self, history: History, *, made: Sequence[str] = (), gone: Sequence[str] = ()
    ) -> None:
        """Copy the tags of the main branch to the metastore."""
        if history.layout.branch == MAIN_BRANCH and (made or gone):
            self.metastore.after_tags(self.name, history, made, gone)

    def _on_branch(self, layout: Layout) -> Identifier:
        return replace(self.name, branch=layout.branch)


def copied_properties(schema: TableSchema) -> dict[str, str]:
    """The properties of a table that a metastore copies: its options, and its keys."""
    keys = {
        "primary-key": schema.primary_keys,
        "partition": schema.partition_keys,
        "bucket-key": () if "bucket-key" in schema.options else schema.trimmed_primary_keys,
    }
    options = {key: text for key, text in schema.options.items() if key != LEFT}
    return {**options, **{key: ",".join(names) for key, names in keys.items() if names}}


# --- renames -------------------------------------------------------------------------------------
# The old name of a table whose files have not moved yet, as a property of its entry.

LEFT = "lakecore.renamed-from"


def left_text(name: Identifier) -> str:
    """The old name of a table, as the property `LEFT` holds it."""
    return json.dumps([name.database, name.table])


def parse_left(text: str | None) -> Identifier | None:
    """The old name of a table; None if the property is missing or malformed."""
    with suppress(ValueError, RecursionError, LakecoreError):
        match json.loads(text or "null"):
            case [str(database), str(table)]:
                check_directory("database", database)
                check_directory("table", table)
                return Identifier(database=database, table=table)
    return None


# --- locks ---------------------------------------------------------------------------------------


def lock_name(name: Identifier) -> str:
    """The name of a table or branch within its database, for its lock."""
    return name.table if name.branch == MAIN_BRANCH else f"{name.table}$branch_{name.branch}"


# --- partition statistics ------------------------------------------------------------------------
# The statistics of partitions in the form of Paimon's JSON, which catalogs and servers exchange.
#
# https://paimon.apache.org/docs/master/concepts/rest/rest-api/

Spec: TypeAlias = tuple[tuple[str, str], ...]
"""The partition keys with their values, as strings."""


class PartitionStatistics(TypedDict):
    """Counts and sizes of the files of a partition, under the names of Paimon's JSON."""

    spec: dict[str, str]
    recordCount: int
    fileSizeInBytes: int
    fileCount: int
    lastFileCreationTime: int
    totalBuckets: int


def partition_statistics(
    entries: Iterable[ManifestEntry], partitions: Partitions
) -> dict[Spec, PartitionStatistics]:
    """The net change of each partition by a commit; numbers may be negative.

    Partitions with the same spec are counted together: null and blank strings have the same spec.
    """
    specs: dict[bytes, Spec] = {}
    grouped: dict[Spec, list[ManifestEntry]] = defaultdict(list)
    for entry in entries:
        if entry.partition not in specs:
            specs[entry.partition] = tuple(partitions.spec(entry.partition).items())
        grouped[specs[entry.partition]].append(entry)
    return {spec: statistics_of(spec, own) for spec, own in grouped.items()}


def live_statistics(
    history: History, snapshot: Snapshot, partitions: Partitions
) -> dict[Spec, PartitionStatistics]:
    """The statistics of the live files of each partition, as `partition_statistics` groups them."""
    found, facts = history.live_facts(snapshot)
    specs: dict[Spec, list[int]] = defaultdict(list)
    for number, partition in enumerate(found):
        specs[tuple(partitions.spec(partition).items())].append(number)
    places = {number: place for place, own in enumerate(specs.values()) for number in own}
    sums = (
        facts.with_columns(spec=pl.col("partition").replace_strict(places, return_dtype=pl.Int64))
        .group_by("spec")
        .agg(
            pl.col("row_count", "size_bytes").sum(),
            pl.len(),
            pl.col("creation_time_ms").max().fill_null(0),
            pl.col("total_buckets").last(),
        )
    )
    names = list(specs)
    return {
        names[place]: {
            "spec": dict(names[place]),
            "recordCount": rows,
            "fileSizeInBytes": size_bytes,
            "fileCount": count,
            "lastFileCreationTime": newest_ms,
            "totalBuckets": total_buckets,
        }
        for place, rows, size_bytes, count, newest_ms, total_buckets in sums.iter_rows()
    }


def statistics_of(spec: Spec, entries: Sequence[ManifestEntry]) -> PartitionStatistics:
    """The sums of the files that these entries add, minus those of the files that they delete."""
    signs = [1 if entry.kind is FileKind.ADD else -1 for entry in entries]
    pairs = list(zip(signs, entries, strict=True))
    times = [e.file.creation_time_ms for sign, e in pairs if sign > 0 and e.file.creation_time_ms]
    return {
        "spec": dict(spec),
        "recordCount": sum(sign * entry.file.row_count for sign, entry in pairs),
        "fileSizeInBytes": sum(sign * entry.file.size_bytes for sign, entry in pairs),
        "fileCount": sum(signs),
        "lastFileCreationTime": max(times, default=0),
        "totalBuckets": entries[-1].total_buckets if entries else 0,
    }
