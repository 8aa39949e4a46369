from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.format.file_index.container import decode_container
from lakecore.io.stores.store import MemoryStore
from lakecore.model.evolution import evolve
from lakecore.model.file_indexes import IndexesRewritten
from lakecore.model.schema_change import SchemaChange
from lakecore.table.publication import write_schema
from tests.stores import FailingStore, MeddledStore, StoreFailure
from tests.tables import (
    PATH,
    held,
    in_directory,
    new_table,
    put,
    reopened,
    rows,
    with_options,
)

if TYPE_CHECKING:
    from lakecore.model.files import CommitMessage, DataFile
    from lakecore.table.handle import Table

INDEXED = {"file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": "1 b"}


def files_of(table: Table) -> list[DataFile]:
    history = table.context.history
    snapshot = history.latest_snapshot()
    assert snapshot is not None
    return [entry.file for entry in history.live_entries(snapshot)]


def written(table: Table, text: str) -> list[CommitMessage]:
    """The messages of a writer, not yet committed."""
    with table.new_write() as writer:
        writer.write(rows(table.schema, text))
        return writer.prepare_commit()


def indexed(table: Table, **options: str | None) -> Table:
    with_options(
        table, **{key.replace(".", "__").replace("-", "_"): v for key, v in options.items()}
    )
    return table.refresh()


def skipped(table: Table, where: str) -> int:
    return table.explain(where=where).files_skipped_by_index


@pytest.mark.parametrize("keys", [(), ("id",)])
def test_old_files_get_the_indexes_of_the_new_options(keys: tuple[str, ...]) -> None:
    table = new_table(keys=keys, write_only="true")
    put(table, "1 a | 2 c")
    put(table, "3 d | 4 f")
    before = held(table)
    names = {file.name for file in files_of(table)}
    table = indexed(table, **INDEXED)

    done = table.rewrite_file_index()
    assert (done.snapshot_id, done.partitions, done.files) == (3, 1, 2)
    assert str(done).split() == ["snapshot", "3", "partitions", "1", "files", "2"]
    assert {file.name for file in files_of(table)} == names
    assert all(len(file.extra_files) == 1 for file in files_of(table))
    assert held(table) == before
    assert skipped(table, "v = 'b'") == 1
    assert table.context.history.snapshot(3).commit_kind == "COMPACT"
    # Again, with other options: the index moves into the manifest, and then is gone.
    table = indexed(table, **{"file-index.in-manifest-threshold": "1 mb"})
    table.rewrite_file_index()
    assert all(file.embedded_index and not file.extra_files for file in files_of(table))
    assert skipped(table, "v = 'b'") == 1
    table = indexed(table, **{"file-index.bitmap.columns": None})
    assert table.rewrite_file_index().files == 2
    assert not any(file.embedded_index for file in files_of(table))
    assert table.rewrite_file_index().snapshot_id is None
    table.expire_snapshots(retain_max=1, retain_min=1, older_than="2999-01-01T00:00:00Z")
    table.remove_orphan_files(older_than="2999-01-01T00:00:00Z", force=True)
    assert held(table) == before
    assert not [name for name in in_directory(table, "bucket-0") if name.endswith(".index")]


def test_indexes_that_stay_the_same_are_not_replaced() -> None:
    table = indexed(new_table(), **{"file-index.bitmap.columns": "v"})
    put(table, "1 a | 2 c")
    assert all(file.embedded_index for file in files_of(table))

    done = table.rewrite_file_index()

    assert (done.snapshot_id, done.files) == (None, 0)
    assert held(reopened(table)) == "1 a | 2 c"


def test_file_with_newer_rows_of_the_same_keys_is_indexed_alone() -> None:
    table = indexed(new_table(write_only="true"), **{"file-index.bitmap.columns": "v"})
    put(table, "1 a | 2 c")
    table = indexed(table, **{"file-index.bitmap.columns": None})
    put(table, "1 b")
    table = indexed(table, **{"file-index.bitmap.columns": "v"})

    assert table.rewrite_file_index().files == 1
    assert all(file.embedded_index for file in files_of(table))
    assert held(reopened(table)) == "1 b | 2 c"


def test_index_does_not_make_rows_newer_than_those_committed_after_them() -> None:
    table = new_table(write_only="true")
    older = written(table, "1 old | 2 c")
    table = indexed(table, **{"file-index.bitmap.columns": "v"})
    newer = written(table, "1 new")
    table.commit(older)
    table.commit(newer)
    first, second = files_of(table)
    assert (first.sequence_min, second.sequence_min) == (0, 0)
    assert (first.embedded_index, bool(second.embedded_index)) == (None, True)
    assert held(table) == "1 new | 2 c"

    # The second file needs no other entry, so the first would be listed after it.
    assert reopened(table).rewrite_file_index().files == 0
    assert held(reopened(table)) == "1 new | 2 c"
    size = len(second.embedded_index or b"")
    table = indexed(table, **{"file-index.in-manifest-threshold": f"{size} b"})
    assert table.rewrite_file_index().files == 0
    assert not [name for name in in_directory(table, "bucket-0") if name.endswith(".index")]
    table = indexed(table, **INDEXED)
    assert table.rewrite_file_index().files == 2
    assert held(reopened(table)) == "1 new | 2 c"


def test_index_does_not_make_rows_newer_than_those_of_a_concurrent_commit() -> None:
    store = MemoryStore()
    table = new_table(store=store, write_only="true")
    older, newer = written(table, "1 old | 2 c"), written(table, "1 new")
    table.commit(older)
    table = indexed(table, **INDEXED)
    meddled = MeddledStore(store, lambda: table.commit(newer))

    assert reopened(table, store=meddled).rewrite_file_index().files == 2
    assert held(reopened(table)) == "1 new | 2 c"


def test_index_of_an_old_file_has_the_names_of_its_schema() -> None:
    table = new_table({"id": "INT NOT NULL", "v": "STRING"}, keys=[])
    put(table, "1 a | 2 c")
    context = table.context
    changes = [SchemaChange.rename_column("v", "w"), SchemaChange.add_column("x", "INT")]
    schema = evolve(context.schema, changes, has_snapshots=True, now_ms=1)
    assert write_schema(context.store, context.layout, schema)
    table = indexed(
        table.refresh(),
        **{"file-index.bitmap.columns": "w,x", "file-index.in-manifest-threshold": "1 mb"},
    )

    table.rewrite_file_index()
    (file,) = files_of(table)
    assert file.embedded_index is not None
    assert [index.column for index in decode_container(file.embedded_index)] == ["v"]
    assert skipped(table, "w = 'b'") == 1
    assert held(table, where="w = 'c'") == "2 c _"


def test_only_the_chosen_partitions_are_indexed() -> None:
    columns = {"id": "INT", "p": "STRING", "v": "STRING"}
    table = new_table(columns, keys=[], partitions=["p"])
    put(table, "1 a x | 2 b x")
    table = indexed(table, **INDEXED)

    assert table.rewrite_file_index(partitions=[{"p": "a"}]).files == 1
    assert table.rewrite_file_index(where="p = 'b'").files == 1
    assert skipped(table, "v = 'y'") == 0  # statistics leave them out first
    with pytest.raises(InvalidRequest):
        table.rewrite_file_index(where="v = 'x'")


def test_death_at_any_call_leaves_the_rows_and_later_calls_finish() -> None:
    call, failures = 1, list[str]()
    while True:
        store = MemoryStore()
        table = new_table(keys=[], store=store)
        put(table, "1 a | 2 c")
        put(table, "3 d")
        table = indexed(table, **INDEXED)
        failing = FailingStore(store, fail_at=call)
        try:
            reopened(table, store=failing).rewrite_file_index()
        except (StoreFailure, OSError, LakecoreError) as error:
            failures.append(str(error))
            assert held(reopened(table)) == "1 a | 2 c | 3 d"
            again = reopened(table)
            again.rewrite_file_index()
            assert skipped(again, "v = 'b'") == 1
            call += 1
            continue
        break
    assert call > 5
    # The first failure is raised, not that of a deletion after it.
    assert not [text for text in failures if "delete" in text]


def test_compaction_of_others_makes_it_plan_again() -> None:
    store = MemoryStore()
    table = new_table(store=store, write_only="true")
    put(table, "1 a | 2 c")
    put(table, "1 b")
    table = indexed(table, **INDEXED)
    other = reopened(table)
    meddled = MeddledStore(store, lambda: other.compact(full=True))
    reopened(table, store=meddled).rewrite_file_index()
    (file,) = files_of(reopened(table))

    assert held(reopened(table)) == "1 b | 2 c"
    assert len(file.extra_files) == 1
    assert skipped(reopened(table), "v = 'bb'") == 1
    stray = {name for name in in_directory(table, "bucket-0") if name.endswith(".index")}
    assert len(stray) <= 2, PATH


def test_table_without_rows_has_no_file_to_index() -> None:
    assert new_table().copy(INDEXED).rewrite_file_index() == IndexesRewritten()
