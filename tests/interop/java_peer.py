"""Java Paimon as a peer: `python -m tests.interop.java_peer VERSION [ZONE]`, in the peers' venv.

One process holds one JVM with one version of Paimon, driven through JPype; no Java source is
needed. Verbs: create, refusals, write, stream_write, adopt, read, compact, stream, consumers,
reset_consumer, changes, snapshots, system_table, global_table, log, statistics, and those of
`java_care`, `java_changes`, `java_clustering` and `java_evolution`.
"""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING, Any

import jpype

from tests.interop.java_care import JavaCare
from tests.interop.java_changes import JavaChanges
from tests.interop.java_clustering import JavaClustering
from tests.interop.java_codec import (
    Codec,
    java_list,
    java_map,
    java_type,
    paimon_class,
    types_of,
    types_of_table,
)
from tests.interop.java_evolution import JavaEvolution
from tests.interop.protocol import serve
from tests.interop.setup_peers import jars

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.columns import Json, Type
    from tests.interop.java_codec import Java
    from tests.interop.values import Row

# Paimon's memory segments reach into java.nio.
OPENED = ("java.base/java.nio", "java.base/java.lang", "java.base/sun.nio.ch")


def main(version: str, zone: str) -> None:
    """Start the JVM and answer requests."""
    with tempfile.TemporaryDirectory(prefix="lakecore-java-") as scratch:
        jpype.startJVM(
            "-Xmx1g",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            f"-Duser.timezone={zone}",
            f"-Djava.io.tmpdir={scratch}",
            *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
            classpath=[str(jar) for jar in jars(version)],
            convertStrings=True,
        )
        peer = JavaPeer(version, scratch)
        serve(
            {
                **JavaChanges(peer.table, scratch).verbs(),
                **JavaCare(peer.table).verbs(),
                **JavaClustering(peer.table).verbs(),
                **JavaEvolution(peer.table).verbs(),
                "create": peer.create,
                "refusals": peer.refusals,
                "write": peer.write,
                "stream_write": peer.stream_write,
                "adopt": peer.adopt,
                "read": peer.read,
                "compact": peer.compact,
                "stream": peer.stream,
                "consumers": peer.consumers,
                "reset_consumer": peer.reset_consumer,
                "changes": peer.changes,
                "global_table": peer.global_table,
                "log": peer.log,
                "statistics": peer.statistics,
                "snapshots": peer.snapshots,
                "system_table": peer.system_table,
            }
        )


class JavaPeer:
    """The verbs, on one version of Paimon."""

    def __init__(self, version: str, scratch: str) -> None:
        """Remember what the verbs need."""
        self._old = version.startswith("0.")
        self._scratch = scratch
        self._io = paimon_class("fs.local.LocalFileIO").create()
        self._codec = Codec()
        self._identifiers: dict[str, int] = {}

    def create(
        self,
        path: str,
        columns: list[dict[str, Json]],
        primary_keys: list[str],
        partition_keys: list[str],
        options: dict[str, str],
    ) -> None:
        """Create the table at `path`."""
        builder = paimon_class("schema.Schema").newBuilder()
        for column in columns:
            builder.column(column["name"], java_type(column["type"]))
        builder.primaryKey(java_list(primary_keys)).partitionKeys(java_list(partition_keys))
        builder.options(java_map(options))
        schemas = paimon_class("schema.SchemaManager")(self._io, self._path(path))
        schemas.createTable(builder.build())

    def refusals(self, path: str, tables: list[dict[str, Any]]) -> list[str | None]:
        """What is said against each table, created and opened in a place of its own below `path`.

        None where it could be written and read.
        """
        return [self._refusal(f"{path}/{at}", table) for at, table in enumerate(tables)]

    def _refusal(self, path: str, table: dict[str, Any]) -> str | None:
        try:
            self.create(path, **table)
            opened = self.table(path, None)
            opened.newRead()
            opened.newBatchWriteBuilder().newWrite()
            opened.newCommit("java")
        except jpype.JException as error:
            return str(error)
        return None

    def write(
        self,
        path: str,
        rows: list[tuple[str, Row]],
        options: dict[str, str] | None = None,
        watermark: int | None = None,
    ) -> int:
        """Write changes and commit them; return the latest snapshot id, 0 if there is none."""
        table = self.table(path, options)
        user, identifier = "java", self._identifier(path)
        manager = paimon_class("disk.IOManager").create(self._scratch)
        write, commit = table.newWrite(user), table.newCommit(user)
        try:
            write.withIOManager(manager)
            kinds = {kind.shortString(): kind for kind in paimon_class("types.RowKind").values()}
            to_java = self._codec.row_writer(types_of_table(table))
            assign = self._bucket_assigner(table, user)
            across = self._across_partitions(table, write, manager)
            for kind, row in rows:
                record = to_java(row)
                record.setRowKind(kinds[kind])
                if across is not None:
                    across.processInput(record)
                elif assign is None:
                    write.write(record)
                else:
                    write.write(record, assign(record))
            if across is not None:
                across.close()
            messages = write.prepareCommit(True, identifier)
            if watermark is None:
                commit.commit(identifier, messages)
            else:
                committable = paimon_class("manifest.ManifestCommittable")
                whole = committable(identifier, jpype.JLong(watermark))
                for message in messages:
                    whole.addFileCommittable(message)
                commit.commit(whole)
        finally:
            commit.close()
            write.close()
            manager.close()
        # None: there was nothing to commit, as of rows that the table ignores.
        latest = table.snapshotManager().latestSnapshotId()
        return 0 if latest is None else int(latest)

    def stream_write(
        self, path: str, user: str, checkpoints: dict[str, list[tuple[str, Row]]]
    ) -> Json:
        """Prepare all checkpoints with one writer, then commit those that are not committed yet.

        Returns how many were committed, and the last identifier of the user after that.
        """
        table = self.table(path, None)
        manager = paimon_class("disk.IOManager").create(self._scratch)
        builder = table.newStreamWriteBuilder().withCommitUser(user)
        write, commit = builder.newWrite(), builder.newCommit()
        kinds = {kind.shortString(): kind for kind in paimon_class("types.RowKind").values()}
        to_java = self._codec.row_writer(types_of_table(table))
        prepared = jpype.JClass("java.util.HashMap")()
        long = jpype.JClass("java.lang.Long")
        try:
            write.withIOManager(manager)
            assign = self._bucket_assigner(table, user)
            for number, rows in checkpoints.items():
                for kind, row in rows:
                    record = to_java(row)
                    record.setRowKind(kinds[kind])
                    if assign is None:
                        write.write(record)
                    else:
                        write.write(record, assign(record))
                prepared.put(long(int(number)), write.prepareCommit(True, int(number)))
            done = int(commit.filterAndCommit(prepared))
        finally:
            commit.close()
            write.close()
            manager.close()
        last = table.snapshotManager().latestSnapshotOfUser(user)
        return [done, int(last.get().commitIdentifier()) if last.isPresent() else None]

    def adopt(self, path: str, partition: Row, folder: str, file_format: str) -> None:
        """Move the files of a folder into a partition, as a migration from Hive does."""
        table = self.table(path, None)
        kind = table.schema().logicalPartitionType()
        row = self._codec.row_writer(types_of(kind))(partition)
        binary = paimon_class("data.serializer.InternalRowSerializer")(kind).toBinaryRow(row)
        bucket = table.store().pathFactory().bucketPath(binary, 0)
        self._io.mkdirs(bucket)
        migration = paimon_class("migrate.FileMetaUtils")
        every = jpype.JProxy("java.util.function.Predicate", dict={"test": lambda _: True})
        files = migration.construct(
            self._io, file_format, folder, table, every, bucket, java_map(None)
        )
        messages = java_list([])
        messages.add(migration.createCommitMessage(binary, -1, files))
        commit = table.newCommit("java")
        commit.commit(self._identifier(path), messages)
        commit.close()

    def read(
        self,
        path: str,
        options: dict[str, str] | None = None,
        columns: list[str] | None = None,
        where: tuple[str, str, Json] | None = None,
    ) -> list[Row]:
        """Read the merged rows; `where` only prunes, as Java's scan does."""
        table = self.table(path, options)
        builder = table.newReadBuilder()
        row_type = table.rowType()
        types = types_of_table(table)
        if columns is not None:
            wanted = [int(row_type.getFieldIndex(name)) for name in columns]
            builder = builder.withProjection(jpype.JArray(jpype.JInt)(wanted))
            types = [types[index] for index in wanted]
        if where is not None:
            builder = builder.withFilter(self._predicate(table, where))
        manager = paimon_class("disk.IOManager").create(self._scratch)
        splits = builder.newScan().plan().splits()
        reader = builder.newRead().withIOManager(manager).createReader(splits)
        iterator = reader.toCloseableIterator()
        to_row = self._codec.row_reader(types)
        rows: list[Row] = []
        try:
            while iterator.hasNext():
                record = iterator.next()
                kind = str(record.getRowKind().shortString())
                # Merging keeps the +U of a stored row; a retraction must never come out.
                assert kind.startswith("+"), f"read a row of kind {kind}"
                rows.append(to_row(record))
        finally:
            iterator.close()
            manager.close()
        return rows

    def stream(
        self,
        path: str,
        from_snapshot: int | None = None,
        options: dict[str, str] | None = None,
        until: int | None = None,
    ) -> list[tuple[int, list[tuple[str, Row]]]]:
        """Read what a stream gives out up to a snapshot (None: the latest); of each, its changes.

        It begins with the changes of `from_snapshot`, or else where the options say. The progress
        is recorded, as after a checkpoint, if the options name a consumer.
        """
        table = self.table(path, options)
        latest = table.snapshotManager().latestSnapshotId()
        last = until if until is not None or latest is None else int(latest)
        scan = table.newStreamScan()
        if from_snapshot is not None:
            scan.restore(jpype.JClass("java.lang.Long")(from_snapshot))
        found: list[tuple[int, list[tuple[str, Row]]]] = []
        while last is not None:
            try:
                splits = scan.plan().splits()
            except paimon_class("table.source.EndOfScanException"):
                break
            reached = int(scan.checkpoint()) - 1
            if not splits.isEmpty():
                found.append((reached, self._changes_in(table, splits, types_of_table(table))))
            if reached >= last and (splits.isEmpty() or until is not None):
                break
        if scan.checkpoint() is not None:
            scan.notifyCheckpointComplete(scan.checkpoint())
        return found

    def consumers(self, path: str) -> dict[str, int]:
        """The consumers of the table, each with its next snapshot."""
        manager = paimon_class("consumer.ConsumerManager")(self._io, self._path(path))
        found = manager.consumers()
        return {str(name): int(found.get(name)) for name in found.keySet()}

    def reset_consumer(self, path: str, name: str, next_snapshot: int) -> None:
        """Let a consumer go on with a snapshot."""
        manager = paimon_class("consumer.ConsumerManager")(self._io, self._path(path))
        manager.resetConsumer(name, paimon_class("consumer.Consumer")(next_snapshot))

    def changes(self, path: str, options: dict[str, str]) -> list[tuple[str, Row]]:
        """Read the table `$audit_log` between two snapshots, as the options say."""
        table = self.table(path, options)
        log = paimon_class("table.system.SystemTableLoader").load("audit_log", table)
        splits = log.newReadBuilder().newScan().plan().splits()
        rows = self._changes_in(log, splits, types_of_table(log))
        # The first column is the kind.
        return [(str(row[0]), row[1:]) for _, row in rows]

    def log(
        self,
        path: str,
        name: str,
        options: dict[str, str] | None = None,
        from_snapshot: int | None = None,
    ) -> list[tuple[int, list[Row]]]:
        """Read a system table of rows: once, or from a snapshot as a stream up to the latest."""
        load = paimon_class("table.system.SystemTableLoader").load
        data = self.table(path, options)
        log = load(name, data)
        types = types_of_table(log)
        if from_snapshot is None:
            splits = log.newReadBuilder().newScan().plan().splits()
            return [(0, [row for _, row in self._changes_in(log, splits, types)])]
        latest = int(data.snapshotManager().latestSnapshotId())
        scan = log.newStreamScan()
        scan.restore(jpype.JClass("java.lang.Long")(from_snapshot))
        found: list[tuple[int, list[Row]]] = []
        while True:
            splits = scan.plan().splits()
            reached = int(scan.checkpoint()) - 1
            if not splits.isEmpty():
                rows = [row for _, row in self._changes_in(log, splits, types)]
                found.append((reached, rows))
            elif reached >= latest:
                return found

    def _changes_in(self, table: Java, splits: Java, types: list[Type]) -> list[tuple[str, Row]]:
        manager = paimon_class("disk.IOManager").create(self._scratch)
        reader = table.newReadBuilder().newRead().withIOManager(manager).createReader(splits)
        iterator = reader.toCloseableIterator()
        to_row = self._codec.row_reader(types)
        changes: list[tuple[str, Row]] = []
        try:
            while iterator.hasNext():
                record = iterator.next()
                changes.append((str(record.getRowKind().shortString()), to_row(record)))
        finally:
            iterator.close()
            manager.close()
        return changes

    def compact(self, path: str, *, full: bool) -> int:
        """Compact every bucket; return the latest snapshot id, 0 if there is none."""
        table = self.table(path, {"write-only": "false"})
        user, identifier = "java", self._identifier(path)
        manager = paimon_class("disk.IOManager").create(self._scratch)
        write, commit = table.newWrite(user), table.newCommit(user)
        try:
            write.withIOManager(manager)
            if str(table.bucketMode().name()) == "BUCKET_UNAWARE":
                messages = self._compact_unaware(table, user, manager)
            else:
                # A read of a first-row table leaves out files that are not compacted yet.
                plan = table.store().newScan().plan()
                buckets = {
                    (bytes(entry.partition().toBytes()), int(entry.bucket())): entry
                    for entry in plan.files(paimon_class("manifest.FileKind").ADD)
                }
                for entry in buckets.values():
                    write.compact(entry.partition(), entry.bucket(), full)
                messages = write.prepareCommit(True, identifier)
            commit.commit(identifier, messages)
        finally:
            commit.close()
            write.close()
            manager.close()
        latest = table.snapshotManager().latestSnapshotId()
        return 0 if latest is None else int(latest)

    def snapshots(self, path: str) -> Json:
        """List id, kind and record counts of the live snapshots, and their files' levels."""
        table = self.table(path, None)
        listed: list[Json] = []
        manager = table.snapshotManager()
        for snapshot_id in range(manager.earliestSnapshotId(), manager.latestSnapshotId() + 1):
            snapshot = manager.snapshot(snapshot_id)
            plan = table.store().newScan().withSnapshot(snapshot.id()).plan()
            files = plan.files(paimon_class("manifest.FileKind").ADD)
            listed.append(
                {
                    "id": int(snapshot.id()),
                    "kind": str(snapshot.commitKind().name()),
                    "totalRecords": int(snapshot.totalRecordCount()),
                    "levels": sorted(int(entry.file().level()) for entry in files),
                }
            )
        return listed

    def statistics(self, path: str, new: dict[str, Any] | None = None) -> Json:
        """What Java reads from the newest statistics; with `new`, after it has stored these.

        `new` has the number and bytes of rows, and for each column its id and facts by name.
        """
        table = self.table(path, None)
        if new is not None:
            columns = jpype.JClass("java.util.LinkedHashMap")()
            long = jpype.JClass("java.lang.Long")
            stats = paimon_class("stats.ColStats")
            for name, facts in new["columns"].items():
                boxed = [None if each is None else long(each) for each in facts[1:]]
                distinct, nulls, average, most = boxed
                columns.put(
                    name, stats.newColStats(facts[0], distinct, None, None, nulls, average, most)
                )
            snapshot = table.snapshotManager().latestSnapshot()
            made = paimon_class("stats.Statistics")(
                snapshot.id(), snapshot.schemaId(), long(new["rows"]), long(new["bytes"]), columns
            )
            commit = table.newBatchWriteBuilder().newCommit()
            commit.updateStatistics(made)
            commit.close()
            table = self.table(path, None)
        found = table.statistics()
        if not found.isPresent():
            return None
        return {
            name: [
                int(each.colId()),
                _optional(each.distinctCount()),
                str(each.min().get()) if each.min().isPresent() else None,
                str(each.max().get()) if each.max().isPresent() else None,
                _optional(each.nullCount()),
                _optional(each.avgLen()),
                _optional(each.maxLen()),
            ]
            for name, each in found.get().colStats().items()
        } | {
            "": [
                int(found.get().snapshotId()),
                _optional(found.get().mergedRecordCount()),
                _optional(found.get().mergedRecordSize()),
            ]
        }

    def system_table(self, path: str, name: str) -> Json:
        """List the columns of a `$` table, as name and type, and its rows: numbers and texts."""
        return self._shown(
            paimon_class("table.system.SystemTableLoader").load(name, self.table(path, None))
        )

    def global_table(self, warehouse: str, name: str) -> Json:
        """List the columns and the rows of a table of the database `sys`."""
        options = paimon_class("options.Options")(java_map({"warehouse": warehouse}))
        context = paimon_class("catalog.CatalogContext").create(options)
        catalog = paimon_class("catalog.CatalogFactory").createCatalog(context)
        return self._shown(catalog.getTable(paimon_class("catalog.Identifier").create("sys", name)))

    def _shown(self, table: Java) -> Json:
        fields = list(table.rowType().getFields())
        row_class = paimon_class("data.InternalRow")
        getters = [
            row_class.createFieldGetter(field.type(), index) for index, field in enumerate(fields)
        ]
        builder = table.newReadBuilder()
        reader = builder.newRead().createReader(builder.newScan().plan().splits())
        iterator = reader.toCloseableIterator()
        rows: list[Json] = []
        try:
            while iterator.hasNext():
                record = iterator.next()
                cells = [getter.getFieldOrNull(record) for getter in getters]
                kinds = [field.type() for field in fields]
                rows.append([_cell(cell, kind) for cell, kind in zip(cells, kinds, strict=True)])
        finally:
            iterator.close()
        columns: list[Json] = [[str(field.name()), str(field.type())] for field in fields]
        return {"columns": columns, "rows": rows}

    def _path(self, path: str) -> Java:
        return paimon_class("fs.Path")(path)

    def table(self, path: str, options: dict[str, str] | None) -> Java:
        """The table at a path, with other options."""
        table = paimon_class("table.FileStoreTableFactory").create(self._io, self._path(path))
        others = dict(options or {})
        branch = others.pop("branch", None)
        if branch is not None:
            table = table.switchToBranch(branch)
        return table.copy(java_map(others)) if others else table

    def _identifier(self, path: str) -> int:
        self._identifiers[path] = self._identifiers.get(path, 0) + 1
        return self._identifiers[path]

    def _bucket_assigner(self, table: Java, user: str) -> Callable[[Java], int] | None:
        if str(table.bucketMode().name()) != "HASH_DYNAMIC":
            return None
        options = table.coreOptions()
        handler = table.store().newIndexFileHandler()
        limits = [options.dynamicBucketTargetRowNum()]
        if not self._old:
            limits.append(options.dynamicBucketMaxBuckets())
        assigner = paimon_class("index.HashBucketAssigner")(
            table.snapshotManager(), user, handler, 1, 1, 0, *limits
        )
        keys = paimon_class("table.sink.DynamicBucketRowKeyExtractor")(table.schema())

        def assign(record: Java) -> int:
            keys.setRecord(record)
            return int(assigner.assign(keys.partition(), keys.trimmedPrimaryKey().hashCode()))

        return assign

    def _across_partitions(self, table: Java, write: Java, manager: Java) -> Java | None:
        """What sends the rows of keys that may change partitions to `write`; None for others."""
        if str(table.bucketMode().name()) != "KEY_DYNAMIC":
            return None

        def collect(row: Java, bucket: Java) -> None:
            write.write(row, int(bucket))

        assigner = paimon_class("crosspartition.GlobalIndexAssigner")(table)
        consumer = jpype.JProxy("java.util.function.BiConsumer", dict={"accept": collect})
        assigner.open(jpype.JLong(16 << 20), None, manager, 1, 0, consumer)
        learn = jpype.JProxy("java.util.function.Consumer", dict={"accept": assigner.bootstrapKey})
        paimon_class("crosspartition.IndexBootstrap")(table).bootstrap(1, 0, learn)
        assigner.endBoostrap(False)
        return assigner

    def _compact_unaware(self, table: Java, user: str, manager: Java) -> Java:
        prefix = "UnawareAppendTableCompaction" if self._old else "AppendCompact"
        write = table.store().newWrite(user)
        write.withIOManager(manager)
        messages = jpype.JClass("java.util.ArrayList")()
        for task in paimon_class(f"append.{prefix}Coordinator")(table, False).run():
            messages.add(task.doCompact(table, write))
        write.close()
        return messages

    def _predicate(self, table: Java, where: tuple[str, str, Json]) -> Java:
        column, operator, value = where
        row_type = table.rowType()
        index = row_type.getFieldIndex(column)
        predicates = paimon_class("predicate.PredicateBuilder")(row_type)
        if operator in ("isNull", "isNotNull"):
            return getattr(predicates, operator)(index)
        literal = self._codec.to_java(types_of_table(table)[index])(value)
        return getattr(predicates, operator)(index, literal)


def _cell(value: Java, kind: Java) -> Json:
    """A number, a truth value, a text, or lists and objects of them."""
    root = str(kind.getTypeRoot())
    if value is None:
        return None
    if root == "ARRAY":
        return [
            _cell(_items_of(kind)(value, index), kind.getElementType())
            for index in range(value.size())
        ]
    if root == "ROW":
        fields = list(kind.getFields())
        row_class = paimon_class("data.InternalRow")
        return {
            str(field.name()): _cell(
                row_class.createFieldGetter(field.type(), at).getFieldOrNull(value), field.type()
            )
            for at, field in enumerate(fields)
        }
    if root == "BOOLEAN":
        return bool(value)
    return int(value) if root in ("INTEGER", "BIGINT") else str(value)


def _optional(value: Java) -> int | None:
    return int(value.getAsLong()) if value.isPresent() else None


def _items_of(kind: Java) -> Callable[[Java, int], Java]:
    getter = paimon_class("data.InternalArray").createElementGetter(kind.getElementType())
    items: Callable[[Java, int], Java] = getter.getElementOrNull
    return items


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "UTC")
