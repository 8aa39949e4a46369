from __future__ import annotations

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from tests.tables import PATH, held, in_directory, new_table, put, reopened


@pytest.mark.parametrize("folder", ["data/all", "data//all/", " data/all "])
def test_data_files_lie_in_the_folder_that_the_option_names(folder: str) -> None:
    table = new_table(data_file__path_directory=folder)
    put(table, "1 a | 2 b")
    put(table, "2 c")
    table.compact(full=True)

    assert held(reopened(table)) == "1 a | 2 c"
    assert len(in_directory(table, "data/all/bucket-0")) == 3
    assert not in_directory(table, "bucket-0")


@pytest.mark.parametrize("folder", ["/data", "../data", "a/../b", "./data", "s3://b/data"])
def test_folder_of_data_files_lies_inside_the_table(folder: str) -> None:
    with pytest.raises(InvalidRequest, match=r"option=data-file.path-directory .*a path inside"):
        new_table(data_file__path_directory=folder)


def test_index_files_lie_beside_the_data_if_the_option_says_so() -> None:
    columns = {"p": "STRING NOT NULL", "id": "INT NOT NULL", "v": "STRING"}
    table = new_table(
        columns,
        keys=("p", "id"),
        partitions=("p",),
        bucket="-1",
        index_file_in_data_file_dir="true",
    )
    put(table, "x 1 a | x 2 b | y 1 c")
    put(reopened(table), "x 1 d | x 3 e")

    assert held(reopened(table)) == "x 1 d | x 2 b | x 3 e | y 1 c"
    assert not in_directory(table, "index")
    beside = [name.partition("-")[0] for name in in_directory(table, "p=x/bucket-0")]
    assert sorted(beside) == ["data", "data", "index", "index"]


def test_where_files_lie_is_fixed_once_there_are_snapshots() -> None:
    table = new_table()
    put(table, "1 a")
    for option in ("data-file.path-directory", "index-file-in-data-file-dir"):
        with pytest.raises(InvalidRequest, match="cannot change once the table has snapshots"):
            table.copy({option: "true"})


def test_table_with_a_name_that_polars_reads_as_a_pattern_is_not_opened() -> None:
    table = new_table({"id": "INT NOT NULL", "w": "INT", "v": "INT"})
    put(table, "1 3 1")
    path = f"{PATH}/schema/schema-0"
    store = table._context.store  # noqa: SLF001
    text = store.read(path).decode().replace('"w"', '"^v$"')
    store.delete(path)
    assert store.put_if_absent(path, text.encode())

    with pytest.raises(Unsupported, match=r"a pattern of names .*column=\^v\$"):
        reopened(table)
