"""What Java Paimon does to a table besides writing rows: overwrites, schemas, tags, rollbacks.

Verbs: overwrite, clear, alter, alter_refusals, may_cast, create_tag, delete_tag, roll_back, expire,
expire_partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jpype

from tests.interop.java_codec import (
    Codec,
    java_list,
    java_map,
    java_type,
    paimon_class,
    types_of_table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.interop.columns import Json
    from tests.interop.java_codec import Java
    from tests.interop.values import Row


class JavaChanges:
    """The verbs; `open_table` opens the table at a path with other options."""

    def __init__(
        self, open_table: Callable[[str, dict[str, str] | None], Java], scratch: str
    ) -> None:
        """Remember what the verbs need."""
        self._open_table = open_table
        self._scratch = scratch
        self._codec = Codec()

    def verbs(self) -> dict[str, Callable[..., Json]]:
        """The verbs by their names."""
        return {
            "overwrite": self.overwrite,
            "clear": self.clear,
            "alter": self.alter,
            "alter_refusals": self.alter_refusals,
            "may_cast": self.may_cast,
            "create_tag": self.create_tag,
            "delete_tag": self.delete_tag,
            "manage": self.manage,
            "tag_batch": self.tag_batch,
            "roll_back": self.roll_back,
            "expire": self.expire,
            "expire_partitions": self.expire_partitions,
        }

    def overwrite(
        self,
        path: str,
        rows: list[tuple[str, Row]],
        partition: dict[str, str] | None = None,
        *,
        dynamic: bool = True,
    ) -> None:
        """Put rows in the place of those of a partition, of those that rows lie in, or of all."""
        table = self._open_table(path, {"dynamic-partition-overwrite": str(dynamic).lower()})
        builder = table.newBatchWriteBuilder().withOverwrite(java_map(partition))
        manager = paimon_class("disk.IOManager").create(self._scratch)
        write, commit = builder.newWrite(), builder.newCommit()
        try:
            write.withIOManager(manager)
            kinds = {kind.shortString(): kind for kind in paimon_class("types.RowKind").values()}
            to_java = self._codec.row_writer(types_of_table(table))
            assign = _bucket_assigner(table)
            for kind, row in rows:
                record = to_java(row)
                record.setRowKind(kinds[kind])
                if assign is None:
                    write.write(record)
                else:
                    write.write(record, assign(record))
            commit.commit(write.prepareCommit())
        finally:
            commit.close()
            write.close()
            manager.close()

    def clear(self, path: str, partitions: list[dict[str, str]] | None = None) -> None:
        """Remove the rows of some partitions; of all without any."""
        commit = self._open_table(path, None).newBatchWriteBuilder().newCommit()
        try:
            if partitions is None:
                commit.truncateTable()
            else:
                commit.truncatePartitions(java_list([java_map(each) for each in partitions]))
        finally:
            commit.close()

    def alter(self, path: str, changes: list[list[Any]]) -> None:
        """Change the schema; see `engines.SchemaStep`."""
        manager = self._open_table(path, None).schemaManager()
        manager.commitChanges(java_list([_schema_change(change) for change in changes]))

    def alter_refusals(self, paths: list[str], changes: list[list[list[Any]]]) -> list[str | None]:
        """What is said against the changes of each schema; None where they were made."""
        refusals: list[str | None] = []
        for path, steps in zip(paths, changes, strict=True):
            try:
                self.alter(path, steps)
                refusals.append(None)
            except jpype.JException as error:
                refusals.append(str(error))
        return refusals

    def may_cast(self, types: list[str]) -> list[list[bool]]:
        """By type and new type, whether a column of the one may become one of the other."""
        known = [java_type(text) for text in types]
        supported = paimon_class("types.DataTypeCasts").supportsCast
        resolve = paimon_class("casting.CastExecutors").resolve
        return [
            [
                old.equals(new)
                or (bool(supported(old, new, True)) and resolve(old, new) is not None)
                for new in known
            ]
            for old in known
        ]

    def create_tag(self, path: str, name: str) -> None:
        """Tag the latest snapshot."""
        self._open_table(path, None).createTag(name)

    def delete_tag(self, path: str, name: str) -> None:
        """Remove a tag."""
        self._open_table(path, None).deleteTag(name)

    def manage(self, path: str, method: str, given: list[Any], branch: str | None) -> None:
        """Call a method of the table that manages its tags and branches, by Java's name.

        A whole number is a long; a text that begins with PT is a duration.
        """
        table = self._open_table(path, {"branch": branch} if branch else None)
        duration = jpype.JClass("java.time.Duration")
        arguments = [
            jpype.JLong(each)
            if isinstance(each, int)
            else duration.parse(each)
            if isinstance(each, str) and each.startswith("PT")
            else each
            for each in given
        ]
        getattr(table, method)(*arguments)

    def tag_batch(self, path: str) -> None:
        """Make the tag of a batch, as Flink's sink does at its end."""
        paimon_class("tag.TagBatchCreation")(self._open_table(path, None)).createTag()

    def roll_back(self, path: str, snapshot_id: int) -> None:
        """Make an earlier snapshot the latest."""
        self._open_table(path, None).rollbackTo(jpype.JLong(snapshot_id))

    def expire(
        self, path: str, retain: int, changelogs: int | None = None, branch: str | None = None
    ) -> None:
        """Keep this many snapshots, and if it is stated this many states with a changelog."""
        table = self._open_table(path, {"branch": branch} if branch else None)
        config = paimon_class("options.ExpireConfig").builder()
        config.snapshotRetainMax(retain).snapshotRetainMin(retain)
        if changelogs is not None:
            number = jpype.JClass("java.lang.Integer")(changelogs)
            config.changelogRetainMax(number).changelogRetainMin(number)
        table.newExpireSnapshots().config(config.build()).expire()
        if changelogs is not None:
            table.newExpireChangelog().config(config.build()).expire()

    def expire_partitions(self, path: str, options: dict[str, str]) -> list[dict[str, str]]:
        """Drop the partitions that have expired by these options; their values as texts."""
        table = self._open_table(path, options)
        expired = table.store().newPartitionExpire("java", table).expire(jpype.JLong(2**63 - 1))
        return [{str(key): str(each.get(key)) for key in each.keySet()} for each in expired or ()]


def _schema_change(change: Sequence[Any]) -> Java:
    verb, name, *given = change
    made = paimon_class("schema.SchemaChange")
    column = name if name is None or isinstance(name, str) else jpype.JArray(jpype.JString)(name)
    match verb:
        case "set":
            return made.setOption(name, given[0])
        case "remove":
            return made.removeOption(name)
        case "describe":
            return made.updateComment(name)
        case "add":
            field = name if isinstance(name, str) else name[-1]
            return made.addColumn(column, java_type(given[0]), None, _move(field, given[1]))
        case "drop":
            return made.dropColumn(column)
        case "rename":
            return made.renameColumn(column, given[0])
        case "retype" if isinstance(name, str):
            return made.updateColumnType(name, java_type(given[0]))
        case "retype":
            return made.updateColumnType(column, java_type(given[0]), False)
        case "nullable":
            return made.updateColumnNullability(column, given[0])
        case "comment":
            return made.updateColumnComment(column, given[0])
        case "default":
            return made.updateColumnDefaultValue(jpype.JArray(jpype.JString)([name]), given[0])
        case _:
            return made.updateColumnPosition(_move(name, given[0]))


def _move(name: str, place: Sequence[str] | None) -> Java:
    if place is None:
        return None
    kind, *beside = place
    return getattr(paimon_class("schema.SchemaChange$Move"), kind)(name, *beside)


def _bucket_assigner(table: Java) -> Callable[[Java], int] | None:
    """What gives rows of dynamic buckets theirs, as if the table were empty."""
    if str(table.bucketMode().name()) != "HASH_DYNAMIC":
        return None
    options = table.coreOptions()
    assigner = paimon_class("index.SimpleHashBucketAssigner")(
        1, 0, options.dynamicBucketTargetRowNum(), options.dynamicBucketMaxBuckets()
    )
    keys = paimon_class("table.sink.DynamicBucketRowKeyExtractor")(table.schema())

    def assign(record: Java) -> int:
        keys.setRecord(record)
        return int(assigner.assign(keys.partition(), keys.trimmedPrimaryKey().hashCode()))

    return assign
