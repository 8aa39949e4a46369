"""Iceberg metadata of a table: every snapshot, as readers of Iceberg see it.

`publish` brings the metadata to the latest snapshot and the current tags; a repeat changes nothing.
It runs after each commit and each verb that changes snapshots or tags, and on request. The steps:

1. Read the newest document, `vN.metadata.json`. Cut it back to its newest snapshot that is still a
   snapshot of the table: a rollback may have given its number to another commit. If there is none,
   or if Java wrote no totals, begin again from all files of the latest snapshot.
2. For each later snapshot, write manifests of the files that became visible or disappeared, and a
   manifest list.
3. Leave out the snapshots that have expired, and name the tags.
4. Write the document. Then point `version-hint.text` at it, and the table's entry in an Iceberg
   catalog, if it has one (`iceberg_catalogs.py`). This is the step that readers see.
5. Delete the documents, and what only they name, that readers need no longer. Those of the version
   before stay, for readers and other publishers that are at work.

A file of a table without a key is always visible. Of a table with a key, rows that a newer row
replaces must stay hidden: either only the files of the last level are visible, or, with deletion
vectors in Iceberg's format 3, all files above level 0, with the vectors.

INVARIANT: a failure here never makes a commit fail; the next commit, or `Table.export_iceberg`,
tries again from what the documents say (docs/decisions/0229).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakecore.errors import (
    AlreadyExists,
    CorruptTable,
    InvalidRequest,
    LakecoreError,
    NotFound,
    Unsupported,
)
from lakecore.format.iceberg import documents, manifests
from lakecore.format.iceberg.manifests import DELETED, DELETES, EXISTING, Record, encode_puffin
from lakecore.format.layout import MAIN_BRANCH, canonical, one_name
from lakecore.io.stores.guarded import guarded
from lakecore.model.files import DELETION_VECTORS
from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.model.snapshot import CommitKind, IcebergExport, Snapshot
from lakecore.model.types import is_in_milliseconds, leaves
from lakecore.options.choices import IcebergLocation, IcebergStorage
from lakecore.table.context import TableContext, require_table
from lakecore.table.maintenance.iceberg_catalogs import entries_of
from lakecore.table.maintenance.reachable import tags_of
from lakecore.table.reads.scan import live_in, of_last_level
from lakecore.table.vectors import BucketVectors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.format.iceberg.documents import Json
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema

log = logging.getLogger("lakecore.iceberg")

_ATTEMPTS_MAX = 5
_ENTRIES_MAX = 50_000
"""The most entries of a manifest."""


def export_iceberg(context: TableContext, *, rebuild: bool = False) -> IcebergExport:
    """Bring the Iceberg metadata to the latest snapshot, whatever `metadata.iceberg.storage` says.

    With `rebuild`, it begins again from the files of the latest snapshot.
    """
    require_table(context)
    check_publishable(context)
    return publish(context, rebuild=rebuild)


def check_publishable(context: TableContext) -> None:
    """Raise an error for a table that has no Iceberg form."""
    options, schema = context.options, context.schema
    options.require_all_rows()
    _place(context)
    entries_of(context)
    documents.iceberg_schema(schema)
    marked = options.deletion_vectors_enabled and not _shows_vectors(context)
    if marked and not schema.primary_keys:
        raise InvalidRequest(
            "Iceberg would show the deleted rows of this table; set metadata.iceberg.format-version"
            "=3 and deletion-vectors.bitmap64=true",
            table=context.identifier,
        )
    if context.layout.branch != MAIN_BRANCH:
        raise Unsupported("a branch has no Iceberg metadata", branch=context.layout.branch)
    if options.data_evolution_enabled:
        raise Unsupported(
            "Iceberg cannot read rows whose columns are in several files",
            option="data-evolution.enabled",
            table=context.identifier,
        )
    formats = {options.file_format, *options.file_format_per_level.values()}
    if formats != {"parquet"}:
        raise Unsupported(
            "Iceberg readers find columns by field ids, which only Parquet files of Paimon have",
            option="file.format",
            value=sorted(formats),
            table=context.identifier,
        )


def _shows_vectors(context: TableContext) -> bool:
    options = context.options
    wide = options.deletion_vectors_enabled and options.deletion_vectors_bitmap64
    return wide and options.metadata_iceberg_format_version > 2


def _place(context: TableContext) -> str:
    """The directory above `metadata`."""
    options, root = context.options, context.layout.root.rstrip("/")
    of_table = (IcebergStorage.DISABLED, IcebergStorage.TABLE_LOCATION)
    location = options.metadata_iceberg_storage_location
    if location is None and options.metadata_iceberg_storage in of_table:
        location = IcebergLocation.TABLE_LOCATION
    if location is IcebergLocation.TABLE_LOCATION:
        return root
    place = documents.warehouse_place(root)
    if place is None:
        raise InvalidRequest(
            "the Iceberg metadata of a table is stored in its warehouse, but the table is in none; "
            "set metadata.iceberg.storage=table-location",
            path=root,
        )
    return place


# --- publication ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """A document whose current snapshot shows `snapshot`, and the lines of its manifest list."""

    document: Json
    lines: tuple[Record, ...] = ()
    snapshot: Snapshot | None = None


def publish(context: TableContext, *, rebuild: bool = False) -> IcebergExport:
    """Steps 1 to 5 of the module; repeated if another commit came in between.

    Repeated, too, if a file is gone that was to be read: another publisher, an expiry or a rollback
    has deleted it.
    """
    publication, entries = _Publication(context), entries_of(context)
    done, failed_at = IcebergExport(), None
    for _ in range(_ATTEMPTS_MAX):
        latest = context.history.latest_snapshot()
        if latest is None:
            return IcebergExport()
        try:
            done = publication.bring_to(latest, rebuild=rebuild)
        except (NotFound, CorruptTable):
            if latest.is_same(failed_at):
                raise
            failed_at = latest
            continue
        if latest.is_same(context.history.latest_snapshot()) and (
            entries is None or entries.point(publication.newest)
        ):
            publication.clean_up(latest.id)
            return done
        rebuild = False
    return done


class _Publication:
    """The metadata directory of a table, and what writes it."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._options = context.options
        self._root = context.layout.root.rstrip("/")
        place = _place(context)
        self._directory = f"{place}/metadata"
        own = replace(
            context.layout,
            root=place if place == self._root else documents.above_place(place),
        )
        self._store: Store = guarded(context.store, own)
        self._version = context.options.metadata_iceberg_format_version
        self._vectors = _shows_vectors(context)
        self._keyed = bool(context.schema.primary_keys)
        self._location = self._root
        self._uuid = context.ambient.new_uuid()
        self._count = 0
        self._written: list[str] = []

    # --- the steps ---

    def bring_to(self, latest: Snapshot, *, rebuild: bool) -> IcebergExport:
        """Steps 1 to 4 of the module."""
        before = self._newest()
        # After a rename of the table, the paths of its files are others.
        begins = before is None or not self._is_here(before) or rebuild
        head = None if before is None or begins else self._common(before, latest)
        history = self._context.history
        found = None if head is None else self._between(head, latest)
        rebuilt = head is None or found is None
        if head is None or found is None:
            head, found = _Head(document=self._blank(before, latest)), [latest]
        self._location = head.document["location"]
        for snapshot in found:
            head = self._advanced(head, snapshot)
        properties = self._options.metadata_iceberg_table_properties
        document = documents.with_state(
            head.document, history.snapshot_ids(), tags_of(history), properties
        )
        writes = document != before
        second = writes and not self._write(document, latest, new=found and not rebuilt)
        if second and latest.is_same(history.latest_snapshot()):
            return self.bring_to(latest, rebuild=False)  # now from the document of the first one
        return IcebergExport(
            metadata_path=self._document(latest.id),
            snapshot_id=latest.id,
            snapshots_added=len(found),
            rebuilt=rebuilt,
        )

    def _write(self, document: Json, latest: Snapshot, *, new: object) -> bool:
        """Write the document, and point the hint at it.

        False if it has a `new` snapshot that another publisher has published meanwhile: of the two,
        the first one stays, so that no reader's manifests are replaced by others.
        """
        path = self._document(latest.id)
        document["last-updated-ms"] = self._context.ambient.now_ms()
        data = documents.encode_document(document)
        created = bool(new) and self._store.put_if_absent(path, data)
        second = bool(new) and not created and self._has(path, latest)
        if not created and not second:
            self._store.put(path, data)
        # If another commit came in between, its publisher may have set the hint already.
        if latest.is_same(self._context.history.latest_snapshot()):
            self._store.put(f"{self._directory}/{documents.HINT}", str(latest.id).encode())
        for each in self._written if second else ():
            self._store.delete(each)
        self._written.clear()
        return not second

    def _has(self, path: str, snapshot: Snapshot) -> bool:
        """Whether there is a document whose current snapshot shows this one."""
        try:
            document = documents.decode_document(self._store.read(path), path)
        except (NotFound, CorruptTable):
            return False
        return documents.shows(document, snapshot)

    def newest(self) -> tuple[str, Json] | None:
        """The document that readers see, and its path, if it shows the latest snapshot."""
        document, latest = self._newest(), self._context.history.latest_snapshot()
        if document is None or latest is None:
            return None
        return (self._document(latest.id), document) if documents.shows(document, latest) else None

    def _newest(self) -> Json | None:
        """The document that readers see; None if there is none, or if it is unreadable."""
        try:
            hint = int(self._store.read(f"{self._directory}/{documents.HINT}"))
            path = self._document(hint)
            return documents.decode_document(self._store.read(path), path)
        except (NotFound, ValueError, CorruptTable):
            return None

    def _is_here(self, document: Json) -> bool:
        """Whether the document is that of the table's path. Raises AlreadyExists for another's."""
        if canonical(document["location"]).rstrip("/") == self._root:
            return True
        if self._directory != f"{self._root}/metadata":
            raise AlreadyExists(
                "the directory holds the Iceberg metadata of another table; remove it, or set "
                "metadata.iceberg.storage=table-location",
                path=self._directory,
                location=document["location"],
            )
        return False

    def _common(self, document: Json, latest: Snapshot) -> _Head | None:
        """The document at its newest snapshot that the table still has; None to begin again."""
        if document["format-version"] != self._version:
            if document["format-version"] > self._version:
                raise InvalidRequest(
                    "the format of Iceberg metadata cannot go back",
                    option="metadata.iceberg.format-version",
                    value=self._version,
                    metadata=document["format-version"],
                )
            return None
        for published in sorted(document["snapshots"], key=lambda each: -int(each["snapshot-id"])):
            number = int(published["snapshot-id"])
            if number > latest.id:
                continue
            snapshot = self._context.history.snapshot_if_there(number)
            if snapshot is None:
                return None
            if documents.is_of(published, snapshot):
                if not documents.has_totals(published):
                    return None
                try:
                    lines = tuple(self._lines(published))
                except NotFound:
                    return None
                cut = documents.cut_back(document, number)
                return _Head(document=cut, lines=lines, snapshot=snapshot)
        return None

    def _between(self, head: _Head, latest: Snapshot) -> list[Snapshot] | None:
        """The snapshots after that of `head`, up to `latest`; None if one is missing."""
        assert head.snapshot is not None, "only a blank document has no snapshot"
        between = range(head.snapshot.id + 1, latest.id)
        found = [self._context.history.snapshot_if_there(number) for number in between]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return None
        return known if head.snapshot.id == latest.id else [*known, latest]

    def _blank(self, before: Json | None, latest: Snapshot) -> Json:
        """A document without snapshots, of the same table as before unless that was dropped."""
        uuid, next_row_id = self._context.ambient.new_uuid(), 0
        if before is not None and latest.id > 1:
            uuid, next_row_id = before["table-uuid"], int(before.get("next-row-id", 0))
        return documents.new_document(self._root, uuid, self._version, next_row_id)

    def _warn_of_milliseconds(self, schema: TableSchema, entries: Iterable[ManifestEntry]) -> None:
        """Files of milliseconds that were written without the option may have bounds.

        Iceberg's Java library takes the bounds for microseconds (`WriteFormat.bare_milliseconds`).
        """
        names = [
            each.name for each in schema.fields if any(map(is_in_milliseconds, leaves(each.type)))
        ]
        schemas = map(self._context.history.schema, {each.file.schema_id for each in entries})
        stored = [each.options.get("metadata.iceberg.storage", "disabled") for each in schemas]
        if names and "disabled" in stored:
            log.warning(
                "Spark and other readers with Iceberg's Java library miss rows, or fail, if a "
                "condition compares these columns, in files that were written without "
                "metadata.iceberg.storage; rewrite them, or declare TIMESTAMP(6): "
                "table=%s columns=%s",
                self._context.identifier,
                ",".join(names),
            )

    # --- one snapshot ---

    def _advanced(self, head: _Head, snapshot: Snapshot) -> _Head:
        """The document with this snapshot, whose manifests are written."""
        history = self._context.history
        schema = history.schema(snapshot.schema_id)
        written = _Written(self, schema, snapshot.id)
        if head.snapshot is None:
            added, gone = list(history.live_entries(snapshot)), set[str]()
            self._warn_of_milliseconds(schema, added)
        else:
            delta = history.entries(history.delta_manifests(snapshot))
            added = [each for each in delta if each.kind is FileKind.ADD]
            gone = {
                each.file.name
                for each in delta
                if each.kind is FileKind.DELETE and (not self._keyed or each.file.level > 0)
            }
        added = self._visible(added, snapshot)
        lines, removed, stayed = self._without(head, gone, {e.file.name for e in added}, written)
        records = self._records([e for e in added if e.file.name not in stayed], schema)
        lines = written.write([manifests.entry(each, snapshot.id) for each in records]) + lines
        lines = self._merged(lines, written)
        deletes = self._delete_lines(head, snapshot, written)
        lines = [line for line in lines if line["content"] != DELETES] + deletes
        published = self._published(head, snapshot, lines, (records, removed))
        document = documents.with_snapshot(
            head.document,
            published,
            written.schema,
            written.spec,
            last_column_id=schema.highest_field_id,
        )
        return _Head(document=document, lines=tuple(lines), snapshot=snapshot)

    def _visible(self, entries: list[ManifestEntry], snapshot: Snapshot) -> list[ManifestEntry]:
        """Those of a snapshot's live files that readers see."""
        if not self._keyed:
            return entries
        above = [each for each in entries if each.file.level > 0]
        if self._vectors:
            return above
        context = self._context
        buckets = {(each.partition, each.bucket) for each in above}
        live = live_in(context.history, context.partitions, snapshot, buckets)
        shown = {each.file.name for each in of_last_level(context.history, self._options, live)}
        return [each for each in above if each.file.name in shown]

    def _records(self, entries: Sequence[ManifestEntry], schema: TableSchema) -> list[Record]:
        """The records of data files. Raises Unsupported for one that Iceberg would misread."""
        history = self._context.history
        now = documents.iceberg_schema(schema)
        for schema_id in {each.file.schema_id for each in entries}:
            if not documents.reads_as(documents.iceberg_schema(history.schema(schema_id)), now):
                raise Unsupported(
                    "Iceberg does not read the old type of a column as the new one; rewrite the "
                    "files: compact(full=True) of a table with a key, or an overwrite",
                    schema_of_files=schema_id,
                    schema=schema.id,
                )
        formats = {each.file.format for each in entries} - {"parquet"}
        if formats:
            raise Unsupported("Iceberg readers need Parquet files", formats=sorted(formats))
        partitions = self._partitions(entries, schema)
        return manifests.data_records(
            [(each.file, self._path(each), partitions[each.partition]) for each in entries],
            history.schema,
            schema,
        )

    def _path(self, entry: ManifestEntry) -> str:
        """The path of a data file, as the documents of this table write paths."""
        folder = self._context.partitions.path(entry.partition)
        path = self._context.layout.data_file(folder, entry.bucket, entry.file)
        within = path.startswith(f"{self._root}/")
        return self._location.rstrip("/") + path[len(self._root) :] if within else path

    def _partitions(
        self, entries: Iterable[ManifestEntry], schema: TableSchema
    ) -> dict[bytes, Record]:
        """The values of each partition."""
        distinct = list({each.partition: None for each in entries})
        batch = self._context.partitions.values(distinct)
        columns = {
            manifests.avro_name(field.name): manifests.plain_values(batch.column(place), of)
            for place, (field, of) in enumerate(
                zip(schema.partition_fields, documents.partition_types(schema), strict=True)
            )
        }
        return {
            partition: {name: values[row] for name, values in columns.items()}
            for row, partition in enumerate(distinct)
        }

    def _without(
        self, head: _Head, gone: set[str], again: set[str], written: _Written
    ) -> tuple[list[Record], list[Record], set[str]]:
        """The lines of a snapshot, with the manifests rewritten that hold files which are gone.

        Returns also the records of these files, and the names of those in `again` that are there:
        they only changed their level.
        """
        lines: list[Record] = []
        removed: list[Record] = []
        stayed: set[str] = set()
        left = set(gone)
        for line in head.lines:
            if line["content"] != DELETES and manifests.live_rows(line) == 0:
                continue  # its files were deleted by an earlier snapshot
            if line["content"] == DELETES or not left:
                lines.append(line)
                continue
            entries = self._entries(line)
            here = {_name(each) for each in entries} & left
            left -= here
            stayed |= here & again
            out = here - again
            if not out:
                lines.append(line)
                continue
            for each in entries:
                each["status"] = EXISTING
                if _name(each) in out:
                    each.update(status=DELETED, snapshot_id=written.snapshot_id)
                    removed.append(each["data_file"])
            lines += written.write(entries)
        return lines, removed, stayed

    def _merged(self, lines: list[Record], written: _Written) -> list[Record]:
        """The lines, with small manifests of earlier snapshots merged if they are many."""
        options = self._options
        target = options.manifest_target_file_size_bytes
        small = [
            line
            for line in lines
            if line["content"] != DELETES
            and line["added_snapshot_id"] != written.snapshot_id
            and line["manifest_length"] < target * 2 // 3
        ]
        full = sum(line["manifest_length"] for line in small) >= target
        if len(small) < options.metadata_iceberg_compaction_min_file_num or not (
            full or len(small) >= options.metadata_iceberg_compaction_max_file_num
        ):
            return lines
        entries = [each for line in small for each in self._entries(line)]
        for each in entries:
            each["status"] = EXISTING
        kept = [line for line in lines if not any(line is each for each in small)]
        return kept + written.write(entries)

    def _delete_lines(self, head: _Head, snapshot: Snapshot, written: _Written) -> list[Record]:
        """The lines of the manifests of deletion vectors, which are written if they changed."""
        if not self._vectors or snapshot.index_manifest is None:
            return []
        before = head.snapshot
        if before is not None and before.index_manifest == snapshot.index_manifest:
            summary = documents.current(head.document)["summary"]
            if summary.get(documents.ENGINE[0]) == documents.ENGINE[1]:
                return [line for line in head.lines if line["content"] == DELETES]
        marked = {
            each.data_file
            for one in self._context.history.index_entries(snapshot)
            if one.file.index_type == DELETION_VECTORS
            for each in one.file.vectors or ()
        }
        live = {
            each.file.name: each
            for each in self._context.history.live_entries(snapshot)
            if each.file.name in marked and (each.file.level > 0 or not self._keyed)
        }
        partitions = self._partitions(live.values(), written.table_schema)
        positions = {}
        by_path: dict[str, ManifestEntry] = {}
        for bucket in {(each.partition, each.bucket) for each in live.values()}:
            vectors = BucketVectors.of(self._context, snapshot, *bucket)
            for name in vectors.ranges.keys() & live.keys():
                path = self._path(live[name])
                positions[path], by_path[path] = vectors.positions(name), live[name]
        if not positions:
            return []
        data, ranges = encode_puffin(positions, "lakecore")
        path = f"{self._directory}/{self._uuid}-{snapshot.id}-vectors.puffin"
        self._put(path, data)
        return written.write(
            [
                manifests.entry(
                    manifests.vector_record(
                        {
                            "file_path": each.data_file,
                            "partition": partitions[by_path[each.data_file].partition],
                        },
                        path=path,
                        size_bytes=len(data),
                        place=(each.offset, each.length),
                        cardinality=each.cardinality or 0,
                    ),
                    snapshot.id,
                )
                for each in ranges
            ]
        )

    def _published(
        self,
        head: _Head,
        snapshot: Snapshot,
        lines: list[Record],
        changed: tuple[list[Record], list[Record]],
    ) -> Json:
        """The Iceberg snapshot; writes its manifest list."""
        added, removed = changed
        # In Iceberg, `replace` changes no rows, and `append` only adds some. A compaction of a
        # table with a key shows new rows.
        is_replaced = snapshot.commit_kind is CommitKind.COMPACT and not self._keyed
        kind = "replace" if is_replaced else "overwrite"
        before = {} if head.snapshot is None else documents.current(head.document)["summary"]
        deletes = [line for line in lines if line["content"] == DELETES]
        vectors = (
            sum(line["added_files_count"] + line["existing_files_count"] for line in deletes),
            sum(map(manifests.live_rows, deletes)),
        )
        adds_only = not removed and vectors[1] == int(before.get("total-position-deletes", 0))
        kind = "append" if adds_only else kind
        summary = documents.summary(kind, before, added, removed, vectors)
        published: Json = {
            "sequence-number": snapshot.id,
            "snapshot-id": snapshot.id,
            "timestamp-ms": snapshot.time_ms,
            "summary": {
                **summary,
                documents.ENGINE[0]: documents.ENGINE[1],
                documents.IDENTITY: documents.identity_of(snapshot),
            },
            "manifest-list": f"{self._directory}/snap-{snapshot.id}-{self._uuid}.avro",
            "schema-id": snapshot.schema_id,
        }
        if head.snapshot is not None:
            published["parent-snapshot-id"] = head.snapshot.id
        if self._version > 2:
            first = row_id = int(head.document.get("next-row-id", 0))
            for line in lines:
                if line["content"] != DELETES and line["first_row_id"] is None:
                    line["first_row_id"] = row_id
                    row_id += manifests.live_rows(line)
            published |= {"first-row-id": first, "added-rows": row_id - first}
        data = manifests.encode_list(
            lines,
            published,
            version=self._version,
            compression=self._options.metadata_iceberg_manifest_compression,
            legacy=self._options.metadata_iceberg_manifest_legacy_version,
        )
        self._put(published["manifest-list"], data)
        return published

    # --- files ---

    def put_manifest(self, data: bytes) -> str:
        """Write a manifest under a new name. Returns its path."""
        path = f"{self._directory}/{self._uuid}-m{self._count}.avro"
        self._count += 1
        self._put(path, data)
        return path

    def _put(self, path: str, data: bytes) -> None:
        self._store.put(path, data)
        self._written.append(path)

    def encode(self, entries: Sequence[Record], written: _Written) -> bytes:
        """The bytes of a manifest of entries of one content."""
        return manifests.encode_manifest(
            entries,
            written.schema,
            written.spec,
            written.types,
            version=self._version,
            content=entries[0]["data_file"]["content"],
            compression=self._options.metadata_iceberg_manifest_compression,
        )

    def _document(self, version: int) -> str:
        return f"{self._directory}/{documents.document_name(version)}"

    def _own(self, path: str) -> str:
        """The path of a file that a document names; only files of the directory are touched."""
        return f"{self._directory}/{one_name(path.rpartition('/')[2])}"

    def _lines(self, published: Json) -> list[Record]:
        path = self._own(published["manifest-list"])
        return manifests.decode_list(self._store.read(path), path)

    def _entries(self, line: Record) -> list[Record]:
        path = self._own(line["manifest_path"])
        return manifests.decode_manifest(self._store.read(path), path, line["first_row_id"])

    # --- clean-up ---

    def clean_up(self, newest: int) -> None:
        """Step 5 of the module. Failures leave files behind."""
        if not self._options.metadata_iceberg_delete_after_commit_enabled:
            return
        keep = max(1, self._options.metadata_iceberg_previous_versions_max)
        names = [status.path.rpartition("/")[2] for status in self._store.list(self._directory)]
        numbers = map(documents.document_version, names)
        versions = sorted(number for number in numbers if number is not None)
        # After the listing: a later document is that of a rollback, or of another's newer commit.
        latest = self._context.history.latest_snapshot()
        last = newest if latest is None else max(newest, latest.id)
        older = [number for number in versions if number < newest]
        old = [*older[:-keep], *(number for number in versions if number > last)]
        if not old:
            return
        with suppress(LakecoreError, OSError):
            stale, kept = self._snapshots(old), self._snapshots(set(versions) - set(old))
            for path in self._unneeded(stale, kept):
                if documents.is_own(path.rpartition("/")[2]):
                    self._store.delete(path)
            for number in old:
                self._store.delete(self._document(number))

    def _snapshots(self, versions: Iterable[int]) -> dict[str, Json]:
        """The snapshots in these documents, by manifest list."""
        found: dict[str, Json] = {}
        for number in versions:
            path = self._document(number)
            document = documents.decode_document(self._store.read(path), path)
            found |= {each["manifest-list"]: each for each in document["snapshots"]}
        return found

    def _unneeded(self, stale: dict[str, Json], kept: dict[str, Json]) -> list[str]:
        """The files of snapshots that no kept document has.

        Manifests pass from a snapshot to the next one. So one that the kept snapshots before and
        after do not have is in no kept snapshot.
        """
        paths: list[str] = []
        for name in stale.keys() - kept.keys():
            number = stale[name]["snapshot-id"]
            before = [each for each in kept.values() if each["snapshot-id"] <= number]
            after = [each for each in kept.values() if each["snapshot-id"] >= number]
            near = [
                *sorted(before, key=lambda each: int(each["snapshot-id"]))[-1:],
                *sorted(after, key=lambda each: int(each["snapshot-id"]))[:1],
            ]
            needed = {line["manifest_path"] for each in near for line in self._lines(each)}
            try:
                lines = self._lines(stale[name])
            except NotFound:
                continue
            for line in lines:
                path = line["manifest_path"]
                if path in needed:
                    continue
                if line["content"] == DELETES:
                    with suppress(NotFound):
                        files = {each["data_file"]["file_path"] for each in self._entries(line)}
                        paths += [self._own(each) for each in files if each.endswith(".puffin")]
                paths.append(self._own(path))
            paths.append(self._own(name))
        return paths


class _Written:
    """Writes the manifests of one snapshot, in its schema."""

    def __init__(self, owner: _Publication, schema: TableSchema, snapshot_id: int) -> None:
        self._owner = owner
        self.table_schema = schema
        self.snapshot_id = snapshot_id
        self.schema = documents.iceberg_schema(schema)
        self.spec = documents.partition_spec(schema)
        self.types = documents.partition_types(schema)

    def write(self, entries: Sequence[Record]) -> list[Record]:
        """Write manifests of these entries. Returns their lines."""
        lines = []
        for start in range(0, len(entries), _ENTRIES_MAX):
            part = entries[start : start + _ENTRIES_MAX]
            data = self._owner.encode(part, self)
            path = self._owner.put_manifest(data)
            line = manifests.manifest_line(path, len(data), part, self.types, self.snapshot_id)
            lines.append(line)
        return lines


def _name(entry: Record) -> str:
    return str(entry["data_file"]["file_path"]).rpartition("/")[2]
