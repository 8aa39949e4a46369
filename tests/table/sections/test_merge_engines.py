"""What each merge engine makes of the rows of a key, in one flush and over several."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.merge import MERGE_FUNCTIONS
from lakecore.merge.aggregators import AGGREGATORS
from lakecore.model.merge_rules import AGGREGATE_FUNCTIONS
from lakecore.model.rows import ROW_KIND
from lakecore.options import MergeEngine
from tests.tables import held, new_table, put, reopened

if TYPE_CHECKING:
    from lakecore.table.handle import Table

VALUES = {"id": "INT NOT NULL", "a": "INT", "b": "STRING"}
GROUPED = {"id": "INT NOT NULL", "s": "INT", "a": "INT", "t": "INT", "b": "INT", "c": "STRING"}


def partial(columns: dict[str, str] = VALUES, **options: Any) -> Table:
    return new_table(columns, merge_engine="partial-update", **options)


def grouped(**options: Any) -> Table:
    return partial(
        GROUPED, **{"fields__s__sequence_group": "a", "fields__t__sequence_group": "b", **options}
    )


def aggregated(columns: dict[str, str] = VALUES, **options: Any) -> Table:
    return new_table(columns, merge_engine="aggregation", **options)


def after(table: Table, *commits: str) -> str:
    """What the table holds after these commits."""
    for text in commits:
        put(table, text)
    return held(table)


def test_every_engine_and_function_is_there() -> None:
    assert set(MERGE_FUNCTIONS) == {str(engine) for engine in MergeEngine}
    assert set(AGGREGATORS) == set(AGGREGATE_FUNCTIONS)


# --- partial-update -----------------------------------------------------------------------------


def test_null_never_replaces_a_value() -> None:
    assert after(partial(), "1 5 _", "1 _ x | 2 _ _", "1 _ _") == "1 5 x | 2 _ _"
    assert after(partial(), "1 5 _ | 1 _ x | 2 _ _ | 1 _ _") == "1 5 x | 2 _ _"


def test_sequence_field_orders_the_rows() -> None:
    table = partial({**VALUES, "s": "INT"}, sequence__field="s")

    assert after(table, "1 5 x 2", "1 6 _ 1", "1 _ y 2") == "1 5 y 2"


def test_group_takes_the_columns_of_its_newest_row_even_null() -> None:
    assert after(grouped(), "1 2 20 2 20 x", "1 1 10 3 _ y") == "1 2 20 3 _ y"


def test_group_whose_sequence_is_null_is_left_alone() -> None:
    assert after(grouped(), "1 2 20 2 20 x", "1 _ 99 3 30 _") == "1 2 20 3 30 x"


def test_later_row_of_an_equal_sequence_wins() -> None:
    assert after(grouped(), "1 2 20 _ _ _", "1 2 21 _ _ _") == "1 2 21 _ _ _"


def test_sequence_of_several_columns_moves_as_one() -> None:
    table = partial(GROUPED, **{"fields__s,t__sequence_group": "a,b"})

    assert after(table, "1 2 20 5 50 _", "1 2 21 4 40 _", "1 3 _ _ 30 _") == "1 3 _ _ 30 _"


def test_maps_with_times_that_come_early_are_folded_one_by_one() -> None:
    columns = {"id": "INT NOT NULL", "s": "INT", "m": "MAP<STRING, ROW<v INT, at STRING>>"}
    table = partial(
        columns,
        fields__s__sequence_group="m",
        fields__m__aggregate_function="merge_map_with_keytime",
    )
    newest, middle, oldest = ([("a", {"v": v, "at": "1"})] for v in (9, 5, 2))

    # The newest takes `b` from the middle, which has none, before the oldest comes.
    rows = {
        "id": [1, 1, 1],
        "s": [9, 5, 2],
        "m": [[*newest, ("b", None)], middle, [*oldest, ("b", None)]],
    }
    table.write(pa.table(rows, schema=table.schema.arrow))

    assert table.to_arrow().column("m").to_pylist() == [[("a", {"v": 2, "at": "1"}), ("b", None)]]


@pytest.mark.parametrize("column", ["s", "t", "a"])
def test_any_column_of_a_group_alone_is_as_among_all(column: str) -> None:
    table = partial(GROUPED, **{"fields__s,t__sequence_group": "a,b"})
    whole = {"s": "3", "t": "5", "a": "30"}

    after(table, "1 3 30 5 50 _", "1 3 21 4 40 _", "1 2 20 9 _ _")

    assert held(table, columns=[column]) == whole[column]


def test_function_in_a_group_heeds_older_rows_as_if_they_had_come_first() -> None:
    columns = {"id": "INT NOT NULL", "s": "INT", "a": "INT", "f": "STRING", "l": "STRING"}
    table = partial(
        columns,
        fields__s__sequence_group="a,f,l",
        fields__a__aggregate_function="sum",
        fields__f__aggregate_function="first_value",
        fields__l__aggregate_function="listagg",
    )

    assert after(table, "1 5 1 m m | 1 3 2 k k | 1 4 3 q q | 1 6 4 z z") == "1 6 10 q q,k,m,z"


def test_deletion_takes_the_columns_of_its_group_back() -> None:
    table = grouped(fields__b__aggregate_function="sum")

    assert after(table, "1 1 10 1 10 x", "-D 1 2 _ _ _ _") == "1 2 _ 1 10 x"
    assert after(table, "-D 1 _ _ 0 4 _") == "1 2 _ 1 6 x"


def test_deletions_alone_take_back_each_of_them_later() -> None:
    table = grouped(fields__b__aggregate_function="sum")
    put(table, "1 1 10 1 10 x")

    assert after(table, "-U 1 _ _ 2 3 _ | -D 1 _ _ 3 4 _") == "1 1 10 3 3 x"


def test_update_before_and_after_in_one_flush_keep_the_sum_right() -> None:
    table = grouped(fields__b__aggregate_function="sum")
    put(table, "1 _ _ 1 10 x")

    assert after(table, "-U 1 _ _ 2 10 _ | 1 _ _ 3 12 _") == "1 _ _ 3 12 x"


def test_lone_row_keeps_what_its_null_sequence_would_have_skipped() -> None:
    assert after(grouped(), "1 _ 7 _ 8 x") == "1 _ 7 _ 8 x"


def test_deletion_removes_the_record_and_later_rows_begin_with_its_values() -> None:
    table = partial(partial_update__remove_record_on_delete="true")

    assert after(table, "1 5 x | 2 6 y", "-D 1 _ z") == "2 6 y"
    assert after(table, "1 _ _ | 1 7 _") == "1 7 z | 2 6 y"
    assert after(table, "-U 2 _ _") == "1 7 z | 2 6 y"


def test_deletion_by_the_group_that_removes() -> None:
    table = grouped(partial_update__remove_record_on_sequence_group="s")

    assert after(table, "1 2 20 2 20 x", "-D 1 1 _ _ _ _") == "1 2 20 2 20 x"
    assert after(table, "-D 1 _ _ 3 _ _") == "1 2 20 3 _ x"
    assert after(table, "-D 1 2 _ _ _ _") == ""
    assert after(table, "1 1 10 1 10 _ | 2 _ _ _ _ _") == "1 2 _ 1 10 _ | 2 _ _ _ _ _"


def test_columns_read_alone_are_merged_by_what_is_not_read() -> None:
    table = grouped(partial_update__remove_record_on_sequence_group="s")
    for text in ("1 2 20 2 20 x | 2 2 20 2 20 x", "1 1 10 3 30 y", "-D 2 3 _ _ _ _"):
        put(table, text)

    for columns, wanted in ((["a"], "20"), (["b"], "30"), (["c"], "y"), (["c", "a"], "y 20")):
        assert held(table, columns=columns) == wanted


@pytest.mark.parametrize("kind", ["-U", "-D"])
def test_partial_update_refuses_what_it_cannot_take_back(kind: str) -> None:
    table = partial()
    with pytest.raises(InvalidRequest, match=rf"ignore-delete.*kind={kind} key=.*1"):
        put(table, f"{kind} 1 _ _")

    assert after(partial(ignore_delete="true"), "1 5 x", f"{kind} 1 _ _") == "1 5 x"


# --- aggregation --------------------------------------------------------------------------------


def test_column_without_a_function_keeps_the_last_value() -> None:
    assert after(aggregated(), "1 5 x", "1 _ y") == "1 5 y"


def test_default_function_is_for_every_column_but_keys_and_sequences() -> None:
    columns = {"id": "INT NOT NULL", "p": "INT NOT NULL", "s": "INT", "a": "INT"}
    table = new_table(
        columns,
        keys=("p", "id"),
        partitions=("p",),
        merge_engine="aggregation",
        sequence__field="s",
        fields__default_aggregate_function="sum",
    )

    assert after(table, "1 7 2 10", "1 7 1 5") == "1 7 2 15"


def test_deletion_is_taken_back_and_leaves_the_record() -> None:
    table = aggregated(fields__a__aggregate_function="sum")

    assert after(table, "1 10 x", "-U 1 10 _ | 1 12 _", "-D 1 2 _") == "1 10 x"
    assert after(table, "-D 2 4 z") == "1 10 x", "a lone deletion is a deletion"
    assert after(table, "2 9 _") == "1 10 x | 2 5 _"


def test_deletion_removes_the_record_if_it_should() -> None:
    table = aggregated(
        fields__a__aggregate_function="sum", aggregation__remove_record_on_delete="true"
    )

    assert after(table, "1 10 x | 2 1 y", "-D 1 3 _") == "2 1 y"
    assert after(table, "1 4 z") == "1 7 z | 2 1 y"


def test_function_that_cannot_take_back_refuses_unless_it_ignores() -> None:
    with pytest.raises(InvalidRequest, match=r"column=a function=max kind=-U"):
        put(aggregated(fields__a__aggregate_function="max"), "1 5 x | -U 1 5 x")
    table = aggregated(fields__a__aggregate_function="max", fields__a__ignore_retract="true")

    assert after(table, "1 5 x", "-D 1 5 x") == "1 5 _"


def test_function_that_can_take_back_ignores_what_it_should() -> None:
    table = aggregated(
        fields__a__aggregate_function="sum",
        fields__a__ignore_retract="true",
        fields__b__aggregate_function="last_value",
    )

    assert after(table, "1 5 x", "-U 1 3 y", "-D 1 4 z", "1 2 w") == "1 7 w"


def test_sum_that_leaves_its_type_is_an_error_that_names_the_column() -> None:
    table = aggregated({"id": "INT NOT NULL", "a": "TINYINT"}, fields__a__aggregate_function="sum")
    put(table, "1 100")
    put(table, "1 100")

    with pytest.raises(InvalidRequest, match=r"column=a function=sum type=TINYINT"):
        held(table)


# --- first-row ----------------------------------------------------------------------------------


def test_first_row_is_not_seen_before_a_compaction() -> None:
    table = new_table(VALUES, merge_engine="first-row", write_only="true")

    assert after(table, "1 5 x | 1 6 y | 2 7 z") == ""
    assert table.inspect.files()["record_count"].to_list() == [2]


@pytest.mark.parametrize("kind", ["-U", "-D"])
def test_first_row_refuses_deletions_it_does_not_ignore(kind: str) -> None:
    table = new_table(VALUES, merge_engine="first-row", write_only="true")
    with pytest.raises(InvalidRequest, match=rf"first-row.*kind={kind}"):
        put(table, f"{kind} 1 _ _")


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [("INT", 1), ("ARRAY<INT>", [1]), ("MAP<STRING, INT>", [("a", 1)]), ("ROW<x INT>", {"x": 1})],
)
def test_null_that_is_left_in_a_not_null_column_is_refused(
    kind: str, value: object, file_format: str
) -> None:
    table = aggregated(
        {"id": "INT NOT NULL", "v": f"{kind} NOT NULL"},
        fields__v__aggregate_function="last_value",
        file__format=file_format,
    )
    taken_back = pa.table(
        {"id": [1, 1], "v": [value, value], ROW_KIND: ["-U", "-U"]},
        schema=table.schema.arrow.append(pa.field(ROW_KIND, pa.string())),
    )

    with pytest.raises(InvalidRequest, match="leaves null in a NOT NULL column"):
        table.write(taken_back)


def test_aggregate_function_that_is_not_known_is_named() -> None:
    table = new_table({"id": "INT NOT NULL", "v": "INT"}, merge_engine="aggregation")
    put(table, "1 1")
    put(table, "1 2")
    path = table.context.layout.schema(0)
    schema = json.loads(table.context.store.read(path))
    schema["options"]["fields.v.aggregate-function"] = "median"
    table.context.store.put(path, json.dumps(schema).encode())

    with pytest.raises(Unsupported, match=r"column=v function=median known=\[.*sum"):
        reopened(table).to_arrow()
