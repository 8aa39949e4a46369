"""Data files that lack columns, as those that a migration from Hive moved into a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

from lakecore.errors import CorruptTable
from lakecore.io.files.file_format import WriteFormat
from lakecore.io.stores.local import LocalStore
from lakecore.model.files import NO_STATS
from lakecore.table.file_reader.split_files import SplitFiles
from lakecore.table.reads.source import TableSource
from tests.conditions import from_sql
from tests.tables import commit_unstored, held, new_table, put, reopened, rows

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "p": "STRING", "q": "INT", "v": "INT"}


def migrated(
    path: Path, text: str, lost: tuple[str, ...] = ("p", "q"), sequence_max: int = 0
) -> Table:
    """An append table whose files lost some columns, as if Hive had written them."""
    store = LocalStore()
    table = new_table(COLUMNS, keys=(), partitions=("p", "q"), store=store, path=str(path))
    write = table.new_write()
    write.write(rows(table.schema, text))
    messages = []
    for message in write.prepare_commit():
        files = []
        for file in message.new_files:
            partition = table.context.partitions.path(message.partition)
            place = table.context.layout.data_file(partition, message.bucket, file)
            data = pq.read_table(place, partitioning=None).drop_columns(list(lost))
            pq.write_table(data, place)
            files.append(
                replace(
                    file,
                    size_bytes=store.size(place),
                    value_stats=NO_STATS,
                    sequence_min=0,
                    sequence_max=sequence_max,
                )
            )
        messages.append(replace(message, new_files=tuple(files)))
    commit_unstored(table, messages)
    return reopened(table)


def test_columns_of_the_partition_that_a_file_lacks_are_its_partitions_values(
    tmp_path: Path,
) -> None:
    table = migrated(tmp_path / "t", "1 x 7 4 | 2 x 7 5 | 3 y _ 6")

    assert held(table) == "1 x 7 4 | 2 x 7 5 | 3 y _ 6"
    assert held(table, columns=["q"]) == "7 | 7 | _"
    assert held(table, where="p = 'x' and id > 1") == "2 x 7 5"
    assert table.to_polars(["p", "q"], "q is null").rows() == [("y", None)]
    assert sorted(table.to_duckdb().select("p, id").fetchall()) == [("x", 1), ("x", 2), ("y", 3)]
    assert table.to_polars(["id"])["id"].sort().to_list() == [1, 2, 3]


def test_files_with_and_without_such_columns_lie_in_one_table(tmp_path: Path) -> None:
    table = migrated(tmp_path / "t", "1 x 7 0 | 2 x 7 0", lost=("q",))
    put(table, "5 x 7 0 | 6 z 8 0")
    table.delete("id = 2")

    assert held(table) == "1 x 7 0 | 5 x 7 0 | 6 z 8 0"
    table.compact(full=True)
    assert held(reopened(table)) == "1 x 7 0 | 5 x 7 0 | 6 z 8 0"


def test_other_columns_that_a_file_lacks_are_null_if_they_may_be(tmp_path: Path) -> None:
    table = migrated(tmp_path / "t", "1 x 7 9", lost=("v", "q"))
    put(table, "2 x 7 8")

    assert held(table) == "1 x 7 _ | 2 x 7 8"
    assert held(table, where="v is null") == "1 x 7 _"
    assert held(table, where="v = 8") == "2 x 7 8"
    assert sorted(table.to_duckdb().select("id, v").fetchall()) == [(1, None), (2, 8)]
    with pytest.raises(CorruptTable, match=r"lacks a column. .*column=id"):
        held(migrated(tmp_path / "u", "1 x 7 9", lost=("id",)))


def test_file_that_has_sequence_numbers_lacks_nothing_but_its_partition(tmp_path: Path) -> None:
    table = migrated(tmp_path / "t", "1 x 7 9 | 2 x 7 9", lost=("v", "q"), sequence_max=1)

    assert held(table, columns=["id", "q"]) == "1 7 | 2 7"
    with pytest.raises(CorruptTable, match=r"lacks a column. .*column=v"):
        held(table)


def test_file_of_another_size_is_not_taken_for_one_that_lacks_columns(tmp_path: Path) -> None:
    table = migrated(tmp_path / "t", "1 x 7 9 | 2 x 7 8", lost=("v", "q"))
    other = migrated(tmp_path / "u", "1 x 7 9 | 2 x 7 8", lost=("v", "q", "p"))
    (place,) = (tmp_path / "t").rglob("data-*")
    (donor,) = (tmp_path / "u").rglob("data-*")
    place.write_bytes(donor.read_bytes())

    assert held(other, columns=["id"]) == "1 | 2"
    with pytest.raises(CorruptTable, match=r"differs from the manifest. path=.*data-"):
        table.to_arrow()


# --- row groups ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selected", "where", "groups"),
    [
        (None, None, None),
        (None, "id > 18", [1, 2]),
        ([0, 9], None, [0]),
        ([10, 24], None, [1, 2]),
        ([9, 10], None, [0, 1]),
        ([20], None, [2]),
        ([0, 20], "id > 12", [2]),
        ([], None, []),
    ],
)
def test_row_groups_are_those_that_match_and_have_a_selected_row(
    selected: list[int] | None,
    where: str | None,
    groups: list[int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "lakecore.table.run_writer.file_shape.WriteFormat",
        lambda **given: WriteFormat(**given, row_group_rows=10),
    )
    table = new_table({"id": "INT", "v": "INT"}, keys=())
    put(table, " | ".join(f"{number} 0" for number in range(25)))
    context = table.context
    source = TableSource(
        context=context, snapshot=context.history.snapshot(1), table_schema=table.schema
    )
    (split,) = source.plan().splits
    (file,) = split.files
    if selected is not None:
        split = replace(split, selected={file.name: BitMap(selected)})
    predicate = None if where is None else from_sql(where, table.schema)
    plan = source.read_plan([split], None, predicate)

    assert SplitFiles(split, plan, context.store).wanted_row_groups(file) == groups
