"""Java Paimon as a peer: `python -m tests.interop.java_peer VERSION [ZONE]`, in the peers' venv.

One process holds one JVM with one version of Paimon, driven through JPype; no Java source is
needed. Verbs: create, write, overwrite, adopt, read, compact, stream, changes, snapshots,
system_table.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import jpype

from tests.interop import values
from tests.interop.columns import type_from_json
from tests.interop.protocol import serve
from tests.interop.setup_peers import jars

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.interop.columns import Json, Type
    from tests.interop.values import Row

    # Objects of the JVM: JPype knows their classes only at run time.
    Java = Any

PAIMON = "org.apache.paimon."
# Paimon's memory segments reach into java.nio.
OPENED = ("java.base/java.nio", "java.base/java.lang", "java.base/sun.nio.ch")
MILLIS_NANOS = 1_000_000


def main(version: str, zone: str) -> None:
    """Start the JVM and answer requests."""
    with tempfile.TemporaryDirectory(prefix="lakecore-java-") as scratch:
        jpype.startJVM(
            "-Xmx1g",
            f"-Duser.timezone={zone}",
            f"-Djava.io.tmpdir={scratch}",
            *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
            classpath=[str(jar) for jar in jars(version)],
            convertStrings=True,
        )
        peer = JavaPeer(version, scratch)
        serve(
            {
                "create": peer.create,
                "write": peer.write,
                "overwrite": peer.overwrite,
                "adopt": peer.adopt,
                "read": peer.read,
                "compact": peer.compact,
                "stream": peer.stream,
                "changes": peer.changes,
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
        self._io = _class("fs.local.LocalFileIO").create()
        self._codec = _Codec()
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
        json_mapper = jpype.JClass(
            PAIMON + "shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper"
        )()
        parser = _class("types.DataTypeJsonParser")
        builder = _class("schema.Schema").newBuilder()
        for column in columns:
            tree = json_mapper.readTree(json.dumps(column["type"]))
            builder.column(column["name"], parser.parseDataType(tree))
        builder.primaryKey(_list(primary_keys)).partitionKeys(_list(partition_keys))
        builder.options(_map(options))
        _class("schema.SchemaManager")(self._io, self._path(path)).createTable(builder.build())

    def write(
        self, path: str, rows: list[tuple[str, Row]], options: dict[str, str] | None = None
    ) -> int:
        """Write changes and commit them; return the latest snapshot id, 0 if there is none."""
        table = self._table(path, options)
        user, identifier = "java", self._identifier(path)
        manager = _class("disk.IOManager").create(self._scratch)
        write, commit = table.newWrite(user), table.newCommit(user)
        try:
            write.withIOManager(manager)
            kinds = {kind.shortString(): kind for kind in _class("types.RowKind").values()}
            to_java = self._codec.row_writer(_types(table))
            assign = self._bucket_assigner(table, user)
            for kind, row in rows:
                record = to_java(row)
                record.setRowKind(kinds[kind])
                if assign is None:
                    write.write(record)
                else:
                    write.write(record, assign(record))
            commit.commit(identifier, write.prepareCommit(True, identifier))
        finally:
            commit.close()
            write.close()
            manager.close()
        # None: there was nothing to commit, as of rows that the table ignores.
        latest = table.snapshotManager().latestSnapshotId()
        return 0 if latest is None else int(latest)

    def overwrite(self, path: str, rows: list[tuple[str, Row]]) -> None:
        """Put rows in the place of all others of a table without dynamic buckets."""
        table = self._table(path, None)
        builder = table.newBatchWriteBuilder().withOverwrite()
        manager = _class("disk.IOManager").create(self._scratch)
        write, commit = builder.newWrite(), builder.newCommit()
        try:
            write.withIOManager(manager)
            kinds = {kind.shortString(): kind for kind in _class("types.RowKind").values()}
            to_java = self._codec.row_writer(_types(table))
            for kind, row in rows:
                record = to_java(row)
                record.setRowKind(kinds[kind])
                write.write(record)
            commit.commit(write.prepareCommit())
        finally:
            commit.close()
            write.close()
            manager.close()

    def adopt(self, path: str, partition: Row, folder: str, file_format: str) -> None:
        """Move the files of a folder into a partition, as a migration from Hive does."""
        table = self._table(path, None)
        kind = table.schema().logicalPartitionType()
        row = self._codec.row_writer(_types_of(kind))(partition)
        binary = _class("data.serializer.InternalRowSerializer")(kind).toBinaryRow(row)
        bucket = table.store().pathFactory().bucketPath(binary, 0)
        self._io.mkdirs(bucket)
        migration = _class("migrate.FileMetaUtils")
        every = jpype.JProxy("java.util.function.Predicate", dict={"test": lambda _: True})
        files = migration.construct(self._io, file_format, folder, table, every, bucket, _map(None))
        messages = _list([])
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
        table = self._table(path, options)
        builder = table.newReadBuilder()
        row_type = table.rowType()
        types = _types(table)
        if columns is not None:
            wanted = [int(row_type.getFieldIndex(name)) for name in columns]
            builder = builder.withProjection(jpype.JArray(jpype.JInt)(wanted))
            types = [types[index] for index in wanted]
        if where is not None:
            builder = builder.withFilter(self._predicate(table, where))
        manager = _class("disk.IOManager").create(self._scratch)
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
        self, path: str, from_snapshot: int | None = None, options: dict[str, str] | None = None
    ) -> list[tuple[int, list[tuple[str, Row]]]]:
        """Read what a stream gives out up to the latest snapshot; of each, its id and changes.

        It begins with the changes of `from_snapshot`, or else with the latest state.
        """
        table = self._table(path, options)
        latest = table.snapshotManager().latestSnapshotId()
        scan = table.newStreamScan()
        if from_snapshot is not None:
            scan.restore(jpype.JClass("java.lang.Long")(from_snapshot))
        found: list[tuple[int, list[tuple[str, Row]]]] = []
        while latest is not None:
            splits = scan.plan().splits()
            reached = int(scan.checkpoint()) - 1
            if not splits.isEmpty():
                found.append((reached, self._changes_in(table, splits, _types(table))))
            elif reached >= int(latest):
                break
        return found

    def changes(self, path: str, options: dict[str, str]) -> list[tuple[str, Row]]:
        """Read the table `$audit_log` between two snapshots, as the options say."""
        table = self._table(path, options)
        log = _class("table.system.SystemTableLoader").load("audit_log", table)
        splits = log.newReadBuilder().newScan().plan().splits()
        rows = self._changes_in(log, splits, _types(log))
        # The first column is the kind.
        return [(str(row[0]), row[1:]) for _, row in rows]

    def _changes_in(self, table: Java, splits: Java, types: list[Type]) -> list[tuple[str, Row]]:
        manager = _class("disk.IOManager").create(self._scratch)
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
        table = self._table(path, {"write-only": "false"})
        user, identifier = "java", self._identifier(path)
        manager = _class("disk.IOManager").create(self._scratch)
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
                    for entry in plan.files(_class("manifest.FileKind").ADD)
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
        table = self._table(path, None)
        listed: list[Json] = []
        manager = table.snapshotManager()
        for snapshot_id in range(manager.earliestSnapshotId(), manager.latestSnapshotId() + 1):
            snapshot = manager.snapshot(snapshot_id)
            plan = table.store().newScan().withSnapshot(snapshot.id()).plan()
            files = plan.files(_class("manifest.FileKind").ADD)
            listed.append(
                {
                    "id": int(snapshot.id()),
                    "kind": str(snapshot.commitKind().name()),
                    "totalRecords": int(snapshot.totalRecordCount()),
                    "levels": sorted(int(entry.file().level()) for entry in files),
                }
            )
        return listed

    def system_table(self, path: str, name: str) -> Json:
        """List the columns of a `$` table, as name and type, and its rows: numbers and texts."""
        table = _class("table.system.SystemTableLoader").load(name, self._table(path, None))
        fields = list(table.rowType().getFields())
        row_class = _class("data.InternalRow")
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
                kinds = [str(field.type().getTypeRoot()) for field in fields]
                rows.append([_cell(cell, kind) for cell, kind in zip(cells, kinds, strict=True)])
        finally:
            iterator.close()
        columns: list[Json] = [[str(field.name()), str(field.type())] for field in fields]
        return {"columns": columns, "rows": rows}

    def _path(self, path: str) -> Java:
        return _class("fs.Path")(path)

    def _table(self, path: str, options: dict[str, str] | None) -> Java:
        table = _class("table.FileStoreTableFactory").create(self._io, self._path(path))
        return table.copy(_map(options)) if options else table

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
        assigner = _class("index.HashBucketAssigner")(
            table.snapshotManager(), user, handler, 1, 1, 0, *limits
        )
        keys = _class("table.sink.DynamicBucketRowKeyExtractor")(table.schema())

        def assign(record: Java) -> int:
            keys.setRecord(record)
            return int(assigner.assign(keys.partition(), keys.trimmedPrimaryKey().hashCode()))

        return assign

    def _compact_unaware(self, table: Java, user: str, manager: Java) -> Java:
        prefix = "UnawareAppendTableCompaction" if self._old else "AppendCompact"
        write = table.store().newWrite(user)
        write.withIOManager(manager)
        messages = jpype.JClass("java.util.ArrayList")()
        for task in _class(f"append.{prefix}Coordinator")(table, False).run():
            messages.add(task.doCompact(table, write))
        write.close()
        return messages

    def _predicate(self, table: Java, where: tuple[str, str, Json]) -> Java:
        column, operator, value = where
        row_type = table.rowType()
        index = row_type.getFieldIndex(column)
        predicates = _class("predicate.PredicateBuilder")(row_type)
        if operator in ("isNull", "isNotNull"):
            return getattr(predicates, operator)(index)
        literal = self._codec.to_java(_types(table)[index])(value)
        return getattr(predicates, operator)(index, literal)


class _Codec:
    """Canonical values to Paimon's internal ones, and back."""

    def __init__(self) -> None:
        self._string = _class("data.BinaryString")
        self._decimal = _class("data.Decimal")
        self._timestamp = _class("data.Timestamp")
        self._big_decimal = jpype.JClass("java.math.BigDecimal")
        self._boxes = {
            root: jpype.JClass(f"java.lang.{name}")
            for root, name in {
                "BOOLEAN": "Boolean",
                "TINYINT": "Byte",
                "SMALLINT": "Short",
                "INT": "Integer",
                "DATE": "Integer",
                "TIME": "Integer",
                "BIGINT": "Long",
                "FLOAT": "Float",
                "DOUBLE": "Double",
            }.items()
        }

    def row_writer(self, types: Sequence[Type]) -> Callable[[Row], Java]:
        generic_row = _class("data.GenericRow")
        writers = [self.to_java(kind) for kind in types]

        def write(row: Row) -> Java:
            record = generic_row(len(writers))
            for index, (writer, value) in enumerate(zip(writers, row, strict=True)):
                record.setField(index, None if value is None else writer(value))
            return record

        return write

    def row_reader(self, types: Sequence[Type]) -> Callable[[Java], Row]:
        readers = [self._reader(kind) for kind in types]

        def read(record: Java) -> Row:
            return [
                None if record.isNullAt(index) else reader(record, index)
                for index, reader in enumerate(readers)
            ]

        return read

    def to_java(self, kind: Type) -> Callable[[Any], Java]:
        """Return the function that turns one canonical value into Paimon's."""
        root = kind.root
        if root in values.TEXTS:
            return self._string_from
        if root in values.BINARIES:
            return lambda value: jpype.JArray(jpype.JByte)(bytes.fromhex(value))
        if root == "DECIMAL":
            return lambda value: self._decimal.fromBigDecimal(
                self._big_decimal(value), kind.precision, kind.scale
            )
        if root == "DATE":
            return lambda value: self._boxes["DATE"](values.date_days(value))
        if root == "TIME":
            return lambda value: self._boxes["TIME"](values.time_millis(value))
        if root in values.TIMESTAMPS:
            return self._timestamp_from
        if root in values.FLOATS:
            return lambda value: self._boxes[root](float(value))
        if root in self._boxes:
            box: Callable[[Any], Java] = self._boxes[root]
            return box
        return self._nested_to_java(kind)

    def _string_from(self, value: str) -> Java:
        return self._string.fromString(value)

    def _timestamp_from(self, value: str) -> Java:
        millis, nanos = divmod(values.timestamp_nanos(value), MILLIS_NANOS)
        return self._timestamp.fromEpochMillis(millis, nanos)

    def _nested_to_java(self, kind: Type) -> Callable[[Any], Java]:
        types = [child.type for child in kind.children]
        if kind.root == "ROW":
            return self.row_writer(types)
        element = self.to_java(types[0])
        if kind.root == "ARRAY":
            generic_array = _class("data.GenericArray")
            objects = jpype.JArray(jpype.JObject)
            return lambda value: generic_array(
                objects([None if item is None else element(item) for item in value])
            )
        entry = self.to_java(types[1]) if kind.root == "MAP" else self._boxes["INT"]

        def to_map(value: list[list[Json]]) -> Java:
            pairs = jpype.JClass("java.util.HashMap")()
            for key, item in value:
                pairs.put(
                    None if key is None else element(key), None if item is None else entry(item)
                )
            return _class("data.GenericMap")(pairs)

        return to_map

    def _reader(self, kind: Type) -> Callable[[Java, int], Json]:
        root, precision = kind.root, kind.precision
        if root in values.TEXTS:
            return lambda row, i: str(row.getString(i).toString())
        if root in values.BINARIES:
            return lambda row, i: bytes(row.getBinary(i)).hex()
        if root == "DECIMAL":
            return lambda row, i: str(
                row.getDecimal(i, precision, kind.scale).toBigDecimal().toPlainString()
            )
        if root in values.TIMESTAMPS:
            return lambda row, i: values.timestamp_text(
                _nanos(row.getTimestamp(i, precision)), kind
            )
        if root in _READERS:
            return _READERS[root]
        return self._nested_reader(kind)

    def _nested_reader(self, kind: Type) -> Callable[[Java, int], Json]:
        types = [child.type for child in kind.children]
        if kind.root == "ROW":
            read = self.row_reader(types)
            return lambda row, i: read(row.getRow(i, len(types)))
        element = self._reader(types[0])
        if kind.root == "ARRAY":
            return lambda row, i: _items(row.getArray(i), element)
        value = (
            self._reader(types[1])
            if kind.root == "MAP"
            else lambda array, index: int(array.getInt(index))
        )

        def pairs(row: Java, i: int) -> Json:
            found = row.getMap(i)
            keys = _items(found.keyArray(), element)
            items = _items(found.valueArray(), value)
            return values.sort_pairs([[key, item] for key, item in zip(keys, items, strict=True)])

        return pairs


_READERS: dict[str, Callable[[Java, int], Json]] = {
    "BOOLEAN": lambda row, i: bool(row.getBoolean(i)),
    "TINYINT": lambda row, i: int(row.getByte(i)),
    "SMALLINT": lambda row, i: int(row.getShort(i)),
    "INT": lambda row, i: int(row.getInt(i)),
    "BIGINT": lambda row, i: int(row.getLong(i)),
    "FLOAT": lambda row, i: values.float_text(float(row.getFloat(i)), single=True),
    "DOUBLE": lambda row, i: values.float_text(float(row.getDouble(i)), single=False),
    "DATE": lambda row, i: values.date_text(int(row.getInt(i))),
    "TIME": lambda row, i: values.time_text(int(row.getInt(i))),
}


def _items(array: Java, reader: Callable[[Java, int], Json]) -> list[Json]:
    return [None if array.isNullAt(i) else reader(array, i) for i in range(array.size())]


def _nanos(timestamp: Java) -> int:
    return int(timestamp.getMillisecond()) * MILLIS_NANOS + int(timestamp.getNanoOfMillisecond())


def _types(table: Java) -> list[Type]:
    return _types_of(table.rowType())


def _types_of(row_type: Java) -> list[Type]:
    serializer = _class("utils.JsonSerdeUtil")
    fields = json.loads(str(serializer.toFlatJson(row_type)))["fields"]
    return [type_from_json(field["type"]) for field in fields]


def _cell(value: Java, kind: str) -> Json:
    if value is None:
        return None
    if kind == "ARRAY":
        return [str(value.getString(index)) for index in range(value.size())]
    return int(value) if kind in ("INTEGER", "BIGINT") else str(value)


def _class(name: str) -> Java:
    return jpype.JClass(PAIMON + name)


def _list(items: Sequence[str]) -> Java:
    return jpype.JClass("java.util.ArrayList")(jpype.JClass("java.util.Arrays").asList(items))


def _map(items: dict[str, str] | None) -> Java:
    found = jpype.JClass("java.util.HashMap")()
    for key, value in (items or {}).items():
        found.put(key, value)
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "UTC")
