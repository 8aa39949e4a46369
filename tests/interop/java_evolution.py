"""What Java Paimon does in tables with data evolution: it writes columns and joins files.

Verbs: write_columns, delete_rows, join_files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jpype

from tests.interop.java_codec import Codec, java_list, paimon_class, types_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.columns import Json
    from tests.interop.java_codec import Java
    from tests.interop.values import Row


class JavaEvolution:
    """The verbs; `open_table` opens the table at a path with other options."""

    def __init__(self, open_table: Callable[[str, dict[str, str] | None], Java]) -> None:
        """Remember what the verbs need."""
        self._open_table = open_table
        self._codec = Codec()

    def verbs(self) -> dict[str, Callable[..., Json]]:
        """The verbs by their names."""
        return {
            "write_columns": self.write_columns,
            "delete_rows": self.delete_rows,
            "join_files": self.join_files,
        }

    def write_columns(
        self, path: str, columns: list[str], first_row_id: int, rows: list[Row]
    ) -> None:
        """Commit new values of some columns for the rows from `first_row_id` on."""
        table = self._open_table(path, None)
        row_type = table.rowType().project(java_list(columns))
        builder = table.newBatchWriteBuilder()
        write = builder.newWrite().withWriteType(row_type).getWrite()
        partition = paimon_class("data.BinaryRow").EMPTY_ROW
        writer = write.createWriter(partition, 0)
        to_java = self._codec.row_writer(types_of(row_type))
        for row in rows:
            writer.write(to_java(row))
        made = writer.prepareCommit(False).newFilesIncrement().newFiles()
        files = [file.assignFirstRowId(jpype.JLong(first_row_id)) for file in made]
        writer.close()
        nothing = java_list([])
        increment = paimon_class("io.DataIncrement")(java_list(files), nothing, nothing)
        message = paimon_class("table.sink.CommitMessageImpl")(
            partition,
            0,
            None,
            increment,
            paimon_class("io.CompactIncrement").emptyIncrement(),
        )
        commit = builder.newCommit()
        commit.commit(java_list([message]))
        commit.close()

    def delete_rows(self, path: str, row_ids: list[int]) -> None:
        """Mark the rows with these ids, as Spark does since Paimon 2.0."""
        table = self._open_table(path, None)
        store = table.store()
        plan = store.newScan().plan().files(paimon_class("manifest.FileKind").ADD)
        files = [entry.file() for entry in plan]
        partition = paimon_class("data.BinaryRow").EMPTY_ROW
        maintainer = paimon_class(
            "deletionvectors.append.BaseAppendDeleteFileMaintainer"
        ).forUnawareAppend(
            store.newIndexFileHandler(), table.snapshotManager().latestSnapshot(), partition
        )
        identity = jpype.JClass("java.util.function.Function").identity()
        vectors: dict[str, tuple[Java, Java]] = {}
        for row_id in row_ids:
            covering = [f for f in files if 0 <= row_id - int(f.firstRowId()) < int(f.rowCount())]
            anchor = paimon_class("utils.DataEvolutionUtils").retrieveAnchorFile(
                java_list(covering), identity
            )
            new = paimon_class("deletionvectors.BitmapDeletionVector")
            _, vector = vectors.setdefault(str(anchor.fileName()), (anchor, new()))
            vector.delete(jpype.JLong(row_id - int(anchor.firstRowId())))
        for name, (_, vector) in vectors.items():
            maintainer.notifyNewDeletionVector(name, vector)
        added, deleted = java_list([]), java_list([])
        for entry in maintainer.persist():
            (added if str(entry.kind()) == "ADD" else deleted).add(entry.indexFile())
        nothing = java_list([])
        message = paimon_class("table.sink.CommitMessageImpl")(
            partition,
            0,
            None,
            paimon_class("io.DataIncrement")(nothing, nothing, nothing, added, deleted),
            paimon_class("io.CompactIncrement").emptyIncrement(),
        )
        commit = table.newBatchWriteBuilder().newCommit()
        commit.commit(java_list([message]))
        commit.close()

    def join_files(self, path: str) -> int:
        """Compact the table; returns how many tasks there were."""
        table = self._open_table(path, {"compaction.min.file-num": "2"})
        snapshot = table.snapshotManager().latestSnapshot()
        coordinator = paimon_class("append.dataevolution.DataEvolutionCompactCoordinator")
        try:
            tasks = list(coordinator(table, False, False, snapshot).plan())
            is_new = True
        except TypeError:
            tasks = list(coordinator(table, False, False).plan())
            is_new = False
        messages = java_list([task.doCompact(table, "java") for task in tasks])
        if is_new:
            rewriter = paimon_class(
                "append.dataevolution.DataEvolutionCompactDeletionVectorRewriter"
            )
            messages.addAll(rewriter(table, snapshot).rewriteDeletionVectors(messages))
        commit = table.newBatchWriteBuilder().newCommit()
        commit.commit(messages)
        commit.close()
        return len(tasks)
