"""Pipelines of dlt into a Paimon warehouse."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dlt
import pytest
from dlt.pipeline.exceptions import PipelineStepFailed

import lakecore as lc
from lakecore.dlt import destination

if TYPE_CHECKING:
    from collections.abc import Callable

    Load = Callable[..., Any]


@pytest.fixture
def session(tmp_path: Path) -> lc.Session:
    return lc.connect(tmp_path / "w", create=True)


@pytest.fixture
def load(tmp_path: Path, session: lc.Session, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads rows into the table `t`, in a pipeline of its own for each set of arguments."""
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))

    def run(rows: object, hints: dict[str, Any] | None = None, **arguments: Any) -> None:
        made = destination(session.warehouse, "shop", **arguments)
        pipeline = dlt.pipeline("p", destination=made, pipelines_dir=str(tmp_path / "pipelines"))
        pipeline.run(dlt.resource(rows, name="t", **(hints or {})))

    return run


def rows(session: lc.Session, table: str = "t") -> list[dict[str, Any]]:
    return session.get_table(f"shop.{table}").to_polars().sort("id").to_dicts()


MERGE = {"write_disposition": "merge", "primary_key": "id"}


def test_rows_are_appended_and_new_columns_are_added(session: lc.Session, load: Load) -> None:
    load([{"id": 1}, {"id": 2, "name": "Bob"}], {"primary_key": "id"})
    load([{"id": 2, "Price Net": Decimal("1.5"), "at": dt.date(2026, 1, 1)}])

    assert rows(session) == [
        {"id": 1, "name": None, "price_net": None, "at": None},
        {"id": 2, "name": "Bob", "price_net": None, "at": None},
        {"id": 2, "name": None, "price_net": Decimal("1.500000000"), "at": dt.date(2026, 1, 1)},
    ]
    assert session.get_table("shop.t").schema.primary_keys == ()


def test_merged_rows_are_updated_and_deleted_by_key(session: lc.Session, load: Load) -> None:
    hints = {**MERGE, "columns": {"gone": {"hard_delete": True, "data_type": "bool"}}}
    load([{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 3}], hints)
    load([{"id": 2, "n": 9}, {"id": 3, "gone": True}, {"id": 4, "n": 4, "gone": False}], hints)

    assert [(row["id"], row["n"]) for row in rows(session)] == [(1, 1), (2, 9), (4, 4)]
    assert session.get_table("shop.t").schema.primary_keys == ("id",)


def test_a_load_replaces_all_rows_by_all_of_its_files(
    session: lc.Session, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_WRITER__FILE_MAX_ITEMS", "2")
    replace = {"write_disposition": "replace"}
    load([{"id": number} for number in range(5)], replace)

    assert [row["id"] for row in rows(session)] == [0, 1, 2, 3, 4]

    load([{"id": number} for number in range(7, 12)], replace)

    assert [row["id"] for row in rows(session)] == [7, 8, 9, 10, 11]
    kinds = session.get_table("shop.t").inspect.snapshots()["commit_kind"].to_list()
    assert kinds.count("OVERWRITE") == 2

    load([], replace)

    assert rows(session) == []


def test_a_merged_table_is_replaced_with_its_keys(session: lc.Session, load: Load) -> None:
    load([{"id": 1}, {"id": 2}], MERGE)
    load([{"id": 3}, {"id": 3}], {"write_disposition": "replace"})

    assert rows(session) == [{"id": 3}]


def test_partitions_and_options_are_those_of_the_hints(session: lc.Session, load: Load) -> None:
    columns = {"day": {"partition": True, "data_type": "bigint"}}
    load(
        [{"id": 1, "day": 5}],
        {"columns": columns},
        options={"t": {"bucket": 2, "bucket-key": "id"}},
    )

    table = session.get_table("shop.t")
    assert (table.schema.partition_keys, table.options.texts["bucket"]) == (("day",), "2")


def test_nested_data_is_json(session: lc.Session, load: Load) -> None:
    load([{"id": 1, "tags": ["a", "b"], "place": {"x": 1}}])

    assert rows(session) == [{"id": 1, "tags": '["a","b"]', "place": '{"x":1}'}]


def test_nested_data_has_tables_if_the_columns_of_dlt_are_kept(
    session: lc.Session, load: Load
) -> None:
    load([{"id": 1, "tags": ["a", "b"]}], dlt_columns=True, max_table_nesting=1)

    (parent,) = rows(session)
    children = session.get_table("shop.t__tags").to_polars()
    assert sorted(children["value"].to_list()) == ["a", "b"]
    assert set(children["_dlt_parent_id"].to_list()) == {parent["_dlt_id"]}
    assert set(session.list_tables("shop")) == {"t", "t__tags"}


@pytest.mark.parametrize(
    ("hints", "message"),
    [
        ({"write_disposition": "merge"}, "the disposition merge needs a primary_key"),
        (
            {
                "write_disposition": {"disposition": "merge", "strategy": "scd2"},
                "primary_key": "id",
            },
            "unknown merge strategy",
        ),
        ({**MERGE, "columns": {"n": {"dedup_sort": "desc"}}}, "hint=dedup_sort"),
        ({**MERGE, "merge_key": "n"}, "hint=merge_key"),
        ({"columns": {"n": {"data_type": "wei"}}}, "column=n"),
    ],
)
def test_a_hint_without_effect_ends_the_load(
    session: lc.Session, load: Load, hints: dict[str, Any], message: str
) -> None:
    with pytest.raises(PipelineStepFailed, match=message):
        load([{"id": 1, "n": 1}], hints)

    assert not session.table_exists("shop.t")


def test_a_column_of_the_data_says_no_row_kind(session: lc.Session, load: Load) -> None:
    load([{"id": 1}, {"id": 2}], MERGE)
    with pytest.raises(PipelineStepFailed, match="reserved"):
        load([{"id": 1, "_row_kind": "-D"}], MERGE)

    assert rows(session) == [{"id": 1}, {"id": 2}]


@pytest.mark.usefixtures("load")
def test_a_database_with_a_dot_is_no_other_database(session: lc.Session) -> None:
    pipeline = dlt.pipeline("q", destination=destination(session.warehouse, "shop.x"))
    with pytest.raises(PipelineStepFailed, match="must not hold"):
        pipeline.run(dlt.resource([{"id": 1}], name="t"))

    assert session.list_databases() == ()


def test_options_of_a_name_that_dlt_writes_otherwise_are_refused(session: lc.Session) -> None:
    with pytest.raises(lc.InvalidRequest, match="dlt_writes=my_table"):
        destination(session.warehouse, "shop", options={"MyTable": {"bucket": 1}})


def test_a_table_that_is_dropped_during_a_load_is_loaded_again(
    session: lc.Session, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    load([{"id": 1}])
    kind = type(session.get_table("shop.t"))
    write = kind.write

    def dropping(*arguments: Any, **named: Any) -> object:
        monkeypatch.setattr(kind, "write", write)
        session.drop_table("shop.t")
        return write(*arguments, **named)

    monkeypatch.setattr(kind, "write", dropping)
    load([{"id": 2}])

    assert rows(session) == [{"id": 2}]


@pytest.mark.parametrize("hints", [{"primary_key": "id"}, MERGE])
def test_a_load_without_rows_changes_nothing(
    session: lc.Session, load: Load, hints: dict[str, Any]
) -> None:
    load([{"id": 1}], hints)
    before = session.get_table("shop.t").inspect.snapshots().height
    load([], hints)

    assert rows(session) == [{"id": 1}]
    assert session.get_table("shop.t").inspect.snapshots().height == before


def test_values_of_each_type_come_back(session: lc.Session, load: Load) -> None:
    at = dt.datetime(2026, 11, 29, 12, 30, 0, 123456, dt.UTC)
    row = {
        "id": 1,
        "whole": 2**40,
        "real": 0.1,
        "yes": True,
        "text": "ü",
        "bytes": b"\x00\xff",
        "money": Decimal("12345678901234567890.123456789"),
        "at": at,
        "plain": at.replace(tzinfo=None),
        "day": at.date(),
        "clock": dt.time(1, 2, 3, 456000),
    }
    hints = {"columns": {"plain": {"data_type": "timestamp", "timezone": False}}}
    nothing = {"id": 2, **dict.fromkeys(list(row)[1:])}
    load([row, nothing], hints)

    assert rows(session) == [row, nothing]


def test_a_column_that_is_null_in_every_row_comes_with_its_first_value(
    session: lc.Session, load: Load
) -> None:
    load([{"id": 1, "later": None}], MERGE)
    assert rows(session) == [{"id": 1}]
    load([{"id": 2, "later": "now"}, {"id": 3, "later": None}], MERGE)

    assert [row["later"] for row in rows(session)] == [None, "now", None]


def test_a_value_of_another_type_gets_a_column_of_its_own(session: lc.Session, load: Load) -> None:
    load([{"id": 1, "n": 5}], MERGE)
    load([{"id": 1, "n": "five"}, {"id": 2, "n": 6}], MERGE)

    assert rows(session) == [
        {"id": 1, "n": None, "n__v_text": "five"},
        {"id": 2, "n": 6, "n__v_text": None},
    ]


def test_a_row_is_deleted_by_a_time_and_comes_back(session: lc.Session, load: Load) -> None:
    hints = {**MERGE, "columns": {"gone_at": {"hard_delete": True, "data_type": "timestamp"}}}
    at = dt.datetime(2026, 11, 29, tzinfo=dt.UTC)
    load([{"id": 1}, {"id": 2}], hints)
    load([{"id": 1, "gone_at": at}, {"id": 9, "gone_at": at}], hints)
    assert [row["id"] for row in rows(session)] == [2]
    load([{"id": 1}], hints)

    assert [row["id"] for row in rows(session)] == [1, 2]


def test_rows_are_merged_by_a_key_of_two_columns_and_upsert(
    session: lc.Session, load: Load
) -> None:
    merge = {"disposition": "merge", "strategy": "upsert"}
    hints = {"write_disposition": merge, "primary_key": ["id", "shop"]}
    load([{"id": 1, "shop": "a", "n": 1}, {"id": 1, "shop": "b", "n": 2}], hints)
    load([{"id": 1, "shop": "b", "n": 3}, {"id": 1, "shop": "c", "n": 4}], hints)

    assert sorted((row["shop"], row["n"]) for row in rows(session)) == [
        ("a", 1),
        ("b", 3),
        ("c", 4),
    ]


def test_of_rows_of_a_key_in_one_load_the_newest_by_the_sequence_field_stays(
    session: lc.Session, load: Load
) -> None:
    options = {"t": {"sequence.field": "version"}}
    load([{"id": 1, "version": 3}, {"id": 1, "version": 2}], MERGE, options=options)
    load([{"id": 1, "version": 1}, {"id": 2, "version": 1}], MERGE, options=options)

    assert rows(session) == [{"id": 1, "version": 3}, {"id": 2, "version": 1}]


def test_nested_tables_need_the_columns_of_dlt(load: Load) -> None:
    with pytest.raises(lc.InvalidRequest, match="dlt_columns=True"):
        load([{"id": 1}], max_table_nesting=1)


@pytest.mark.parametrize("disposition", ["append", "replace"])
def test_a_file_that_is_loaded_again_after_a_lost_reply_counts_once(
    session: lc.Session, load: Load, monkeypatch: pytest.MonkeyPatch, disposition: str
) -> None:
    load([{"id": 0}])
    table = type(session.get_table("shop.t"))
    write, overwrite = table.write, table.overwrite
    lost: list[object] = []

    def losing(verb: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            result = verb(*arguments, **named)
            if len(lost) < 2:
                lost.append(result)
                raise lc.CommitUnknown("the reply is lost")
            return result

        return call

    monkeypatch.setattr(table, "write", losing(write))
    monkeypatch.setattr(table, "overwrite", losing(overwrite))
    monkeypatch.setenv("DATA_WRITER__FILE_MAX_ITEMS", "1")
    load([{"id": 1}, {"id": 2}, {"id": 3}], {"write_disposition": disposition})

    assert len(lost) == 2
    expected = [1, 2, 3] if disposition == "replace" else [0, 1, 2, 3]
    assert [row["id"] for row in rows(session)] == expected


def test_the_pipeline_of_the_page_loads_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "loaders.md").read_text()
    (code,) = re.findall(r"^```py3\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    exec(code.replace("/data/warehouse", str(tmp_path / "w")), {"__name__": "__main__"})  # noqa: S102 - ours

    assert rows(lc.connect(tmp_path / "w"), "orders") == [
        {"id": 1, "status": "shipped", "gone": None}
    ]
