"""The model: what each verb and merge engine makes of the rows, and its snapshots and changes."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, NotFound
from lakecore.testing import Model, Refused, assert_same_rows
from tests.tables import new_table, shown

COLUMNS = {"id": "INT NOT NULL", "a": "INT", "b": "STRING"}


def model_of(rows: list[list[dict[str, Any]]], **options: str) -> Model:
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    model = Model(COLUMNS, ["id"], {"bucket": "1", **stated})
    for batch in rows:
        model.write(batch)
    return model


def row(key: int, a: int | None = None, b: str | None = None, kind: str = "+I") -> dict[str, Any]:
    return {"id": key, "a": a, "b": b, "_row_kind": kind}


PAST = [[row(1, 1, "x"), row(2, 2)], [row(1, 5), row(2, 7, "y"), row(3, 3)]]


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ({}, "1 5 _ | 2 7 y | 3 3 _"),
        ({"merge_engine": "first-row"}, "1 1 x | 2 2 _ | 3 3 _"),
        ({"merge_engine": "partial-update"}, "1 5 x | 2 7 y | 3 3 _"),
        (
            {"merge_engine": "aggregation", "fields__a__aggregate_function": "sum"},
            "1 6 x | 2 9 y | 3 3 _",
        ),
        (
            {"sequence__field": "a", "sequence__field__sort_order": "descending"},
            "1 1 x | 2 2 _ | 3 3 _",
        ),
    ],
    ids=str,
)
def test_rows_of_a_key_are_merged_by_the_engine(options: dict[str, Any], held: str) -> None:
    model = model_of(PAST, **options)
    table = new_table(COLUMNS, **options)
    for batch in PAST:
        table.write(model.arrow(batch))

    assert shown(model.rows()) == held
    assert_same_rows(table, model)


def test_snapshots_keep_their_rows_and_a_rollback_forgets_later_ones() -> None:
    model = model_of([*PAST, [row(1, kind="-D")]])
    assert [shown(model.rows(n)) for n in (0, 1, 3)] == [
        "",
        "1 1 x | 2 2 _",
        "2 7 y | 3 3 _",
    ]
    model.rollback_to(1)

    assert model.latest == 1
    assert model.write([row(9)]) == 2
    assert shown(model.rows()) == "1 1 x | 2 2 _ | 9 _ _"
    with pytest.raises(NotFound, match="no such snapshot"):
        model.rows(3)


def test_rollback_brings_back_what_an_overwrite_cleared() -> None:
    model = model_of(PAST)
    model.overwrite([row(7)])
    assert shown(model.rows()) == "7 _ _"
    model.rollback_to(2)

    assert shown(model.rows()) == "1 5 _ | 2 7 y | 3 3 _"


@pytest.mark.parametrize("where", ["a > 4", pl.col("a") > 4, lambda row: row["a"] > 4])
@pytest.mark.parametrize("keyed", [True, False])
def test_deleted_rows_are_those_that_match(where: Any, *, keyed: bool) -> None:
    model = Model(COLUMNS, ["id"] if keyed else [])
    model.write([{"id": 1, "a": 5}, {"id": 2, "a": 1}, {"id": 3, "a": 9}])
    assert model.delete(where) == 2
    assert model.delete(where) is None

    assert shown(model.rows()) == "2 1 _"


def test_engine_that_deletes_nothing_refuses() -> None:
    model = model_of(PAST, merge_engine="first-row")
    with pytest.raises(Refused):
        model.delete("id = 1")
    model.write([row(1, kind="-D")])
    with pytest.raises(Refused, match="takes nothing back"):
        model.rows()


def test_overwrite_replaces_the_partitions_of_the_rows_or_the_named_one() -> None:
    def fresh() -> Model:
        model = Model({"p": "STRING", "v": "INT"}, partition_keys=["p"])
        model.write([{"p": p, "v": n} for p in ("a", "b") for n in (1, 2)])
        return model

    dynamic, named, whole = fresh(), fresh(), fresh()
    dynamic.overwrite([{"p": "a", "v": 9}])
    named.overwrite([], {"p": "b"})
    whole.overwrite([{"p": "c", "v": 9}], dynamic=False)

    assert shown(dynamic.rows()) == "a 9 | b 1 | b 2"
    assert shown(named.rows()) == "a 1 | a 2"
    assert shown(whole.rows()) == "c 9"
    assert fresh().overwrite([]) is None
    with pytest.raises(InvalidRequest, match="no partition column"):
        fresh().overwrite([], {"v": 1})


@pytest.mark.parametrize("keyed", [True, False])
def test_changes_lead_from_one_snapshot_to_the_other(*, keyed: bool) -> None:
    model = Model(COLUMNS, ["id"] if keyed else [])
    model.write([{"id": 1, "a": 1}, {"id": 2, "a": 1}])
    model.write([{"id": 3, "a": 3}, *([{"id": 1, "a": 2}] if keyed else [])])
    model.delete("id = 2")
    kinds = [tuple(each.values())[:3] for each in model.changes(1, 3).to_pylist()]

    if keyed:
        assert kinds == [("-U", 1, 1), ("+U", 1, 2), ("-D", 2, 1), ("+I", 3, 3)]
    else:
        assert kinds == [("-D", 2, 1), ("+I", 3, 3)]
    assert model.changes(3, 3).num_rows == 0


def test_changes_are_those_that_lakecore_computes_with_a_lookup() -> None:
    table = new_table(COLUMNS, changelog_producer="lookup")
    model = Model(table.schema)
    for batch in [*PAST, [row(1, kind="-D"), row(4, 4)]]:
        before = table.context.history.latest_snapshot_id() or 0
        made = table.write(model.arrow(batch)).snapshot_ids[-1]
        model.write(batch)

        changes = table.changes(before, made).collect()
        assert_same_rows(changes, model.changes(model.latest - 1, model.latest))


def test_schema_may_change_and_old_snapshots_keep_theirs() -> None:
    model = model_of(PAST)
    model.alter(lc.SchemaChange.add_column("c", "INT"))
    model.alter(lc.SchemaChange.rename_column("a", "n"))
    assert model.rows().column_names == ["id", "n", "b", "c"]
    assert model.rows(2).column_names == ["id", "a", "b"]
    model.write([{"id": 1, "n": 4, "c": 1}])

    assert shown(model.rows()) == "1 4 _ 1 | 2 7 y _ | 3 3 _ _"


def test_rows_come_as_frames_too_and_wrong_ones_are_named() -> None:
    model = Model(pa.schema([("v", pa.int64())]))
    model.write(pl.DataFrame({"v": [1]}))
    model.write(pa.table({"v": [2]}))
    assert shown(model.rows()) == "1 | 2"
    assert model.write([]) is None
    assert repr(model) == "Model(v; 2 snapshots)"
    with pytest.raises(InvalidRequest, match="no such column"):
        model.write([{"w": 1}])
    with pytest.raises(InvalidRequest, match="no row kinds"):
        model.write([{"v": 1, "_row_kind": "-D"}])
