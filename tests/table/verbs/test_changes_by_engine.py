"""DELETE, UPDATE and MERGE on tables whose rows of a key are put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from lakecore.errors import InvalidRequest, Unsupported
from tests.reading import rows_written
from tests.tables import held, new_table, put, rows

if TYPE_CHECKING:
    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "need": "INT NOT NULL", "a": "INT", "b": "INT"}
GROUPED = {"id": "INT NOT NULL", "g": "INT", "a": "INT", "b": "INT", "c": "INT"}


def partial(**options: Any) -> Table:
    return new_table(COLUMNS, merge_engine="partial-update", **options)


def grouped(**options: Any) -> Table:
    return new_table(
        GROUPED, merge_engine="partial-update", fields__g__sequence_group="a,b", **options
    )


# --- partial-update ------------------------------------------------------------------------------


def test_partial_update_writes_what_it_sets() -> None:
    table = partial()
    put(table, "1 5 1 _ | 2 6 2 2")
    put(table, "1 5 _ 9")
    table.update({"a": pl.col("b") * 2}, "id = 1")

    assert rows_written(table) == [(2, 1, 5, 18, None)]
    assert held(table) == "1 5 18 9 | 2 6 2 2"


def test_null_sets_nothing_in_a_partial_update_table_and_is_refused() -> None:
    table = partial()
    put(table, "1 5 1 1")

    with pytest.raises(InvalidRequest, match=r"null changes nothing.* column=a key=\[1\]"):
        table.update({"a": None})
    assert held(table) == "1 5 1 1"


def test_deletion_leaves_nothing_behind_for_the_next_partial_row() -> None:
    table = partial(partial_update__remove_record_on_delete="true")
    put(table, "1 5 1 1 | 2 6 2 2")
    table.delete("a = 1")
    assert held(table) == "2 6 2 2"

    put(table, "1 7 _ 3")
    assert held(table) == "1 7 _ 3 | 2 6 2 2"


def test_deletion_is_refused_where_rows_stay() -> None:
    table = partial()
    put(table, "1 5 1 1")
    merge = table.merge([{"id": 1}], on="id")

    with pytest.raises(Unsupported, match=r"partial-update\.remove-record-on-delete"):
        table.delete("id = 1")
    with pytest.raises(Unsupported, match=r"partial-update\.remove-record-on-delete"):
        merge.when_matched_delete().execute()


def test_merge_of_partial_rows() -> None:
    table = partial()
    put(table, "1 5 1 1 | 2 6 2 2")
    changes = pl.DataFrame({"id": [1, 3], "a": [10, 30]})
    (
        table.merge(changes, on="id")
        .when_matched_update({"a": pl.col("source.a")})
        .when_not_matched_insert({"id": pl.col("id"), "need": 0, "a": pl.col("a")})
        .execute()
    )

    assert held(table) == "1 5 10 1 | 2 6 2 2 | 3 0 30 _"
    assert sorted(rows_written(table), key=str) == [(0, 3, 0, 30, None), (2, 1, 5, 10, None)]


def test_update_of_a_sequence_group_wins_with_the_sequence_of_its_row() -> None:
    table = grouped()
    put(table, "1 5 1 1 1")
    table.update({"a": None})
    assert rows_written(table) == [(2, 1, 5, None, 1, None)]
    assert held(table) == "1 5 _ 1 1"

    put(table, "1 4 9 9 _")
    assert held(table) == "1 5 _ 1 1"


def test_group_without_a_sequence_takes_no_update() -> None:
    table = grouped()
    put(table, "1 _ _ _ 1")

    with pytest.raises(InvalidRequest, match=r"sequence_columns=\[g\] key=\[1\]"):
        table.update({"a": 5})
    table.update({"a": 5, "g": 1})
    assert held(table) == "1 1 5 _ 1"


def test_sum_of_a_group_is_not_added_to_by_an_update_beside_it() -> None:
    table = grouped(fields__b__aggregate_function="sum")
    put(table, "1 5 1 10 1")
    put(table, "1 6 2 20 _")
    assert held(table) == "1 6 2 30 1"
    table.update({"a": 7, "c": 8})

    assert held(table) == "1 6 7 30 8"
    with pytest.raises(Unsupported, match="column=b aggregate_function=sum"):
        table.update({"b": 7})


def test_deletion_by_a_sequence_group_takes_the_row_away() -> None:
    table = grouped(partial_update__remove_record_on_sequence_group="g")
    put(table, "1 5 1 1 1 | 2 6 2 2 2 | 3 _ _ _ 3")
    table.delete("id < 3")
    assert held(table) == "3 _ _ _ 3"

    put(table, "1 5 _ 7 _")
    assert held(table) == "1 5 _ 7 _ | 3 _ _ _ 3"
    with pytest.raises(InvalidRequest, match=r"change nothing.* sequence_columns=\[g\] key=\[3\]"):
        table.delete("id = 3")


# --- aggregation ---------------------------------------------------------------------------------


def test_deletion_of_an_aggregation_table_leaves_nothing_to_add_to() -> None:
    columns = {"id": "INT NOT NULL", "total": "INT"}
    table = new_table(
        columns,
        merge_engine="aggregation",
        fields__total__aggregate_function="sum",
        aggregation__remove_record_on_delete="true",
    )
    put(table, "1 10 | 2 20")
    put(table, "1 5")
    table.delete("total = 15")
    assert held(table) == "2 20"

    put(table, "1 3")
    assert held(table) == "1 3 | 2 20"


@pytest.mark.parametrize("engine", ["aggregation", "first-row"])
def test_what_an_engine_cannot_do_is_refused(engine: str) -> None:
    table = new_table(COLUMNS, merge_engine=engine)
    given = rows(table.schema, "1 2 3 4")

    with pytest.raises(Unsupported, match=f"merge_engine={engine}"):
        table.delete("id = 1")
    with pytest.raises(Unsupported, match=rf"no UPDATE.* merge_engine={engine}"):
        table.update({"a": 1})
    with pytest.raises(Unsupported, match=rf"no MERGE.* merge_engine={engine}"):
        table.merge(given, on="id").when_not_matched_insert_all().execute()
