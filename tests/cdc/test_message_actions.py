"""Recorded messages -> tables, by the actions on folders of files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.cdc.actions import Arguments
from lakecore.cdc.pipeline import Pipeline, run_pipeline
from lakecore.cdc.quarantine import OnTableError
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.io.ambient import seeded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.sink_parts import Progress


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog({"warehouse": str(tmp_path / "warehouse")}, create=True)


def put(folder: Path, name: str, *events: object) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(event) + "\n" for event in events))


def run(
    catalog: Catalog, folder: Path, value_format: str, table: str | None = None, **flags: Any
) -> Progress:
    letters = flags.pop("dead_letters", False)
    on_table_error = flags.pop("on_table_error", None)
    conf = flags.pop("table_conf", {"bucket": "1"})
    texts: dict[str, Sequence[str]] = {
        name: value if isinstance(value, list) else [str(value)] for name, value in flags.items()
    }
    arguments = Arguments(
        database="lake",
        table=table,
        conf={"path": str(folder), "value.format": value_format},
        table_conf=conf,
        flags=texts,
    )
    action = "files_sync_database" if table is None else "files_sync_table"
    pipeline = Pipeline(
        action=action,
        arguments=arguments,
        keeps_dead_letters=letters,
        on_table_error=on_table_error,
    )
    return run_pipeline(catalog, pipeline, seeded(1), until_caught_up=True)


def rows(catalog: Catalog, table: str) -> list[dict[str, Any]]:
    found = catalog.get_table(f"lake.{table}").to_polars()
    return found.sort(found.columns[0]).to_dicts()


def canal(kind: str, rows: list[dict[str, Any]], types: dict[str, str], **more: Any) -> object:
    event = {"database": "shop", "table": "orders", "isDdl": False, "pkNames": ["id"]}
    return {**event, "type": kind, "data": rows, "mysqlType": types, "old": None, **more}


def test_a_topic_becomes_a_table_and_its_schema_follows(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    old = {"id": "int(11)", "price": "decimal(5,2)"}
    new = {"id": "int(11)", "price": "decimal(8,2)", "note": "varchar(20)"}
    put(
        folder,
        "1.json",
        canal("INSERT", [{"id": "1", "price": "1.50"}, {"id": "2", "price": "2.50"}], old),
        canal("UPDATE", [{"id": "1", "price": "9.00"}], old, old=[{"price": "1.50"}]),
        canal("INSERT", [{"id": "3", "price": "123456.78", "note": "x"}], new),
        canal("DELETE", [{"id": "2", "price": "2.50", "note": None}], new),
    )

    progress = run(catalog, folder, "canal-json", "orders")

    assert progress.caught_up
    table = catalog.get_table("lake.orders")
    assert table.context.schema.primary_keys == ("id",)
    assert {f.name: str(f.type) for f in table.context.schema.fields} == {
        "id": "INT NOT NULL",
        "price": "DECIMAL(8, 2)",
        "note": "VARCHAR(20)",
    }
    assert [(r["id"], str(r["price"]), r["note"]) for r in rows(catalog, "orders")] == [
        (1, "9.00", None),
        (3, "123456.78", "x"),
    ]


def test_a_second_run_goes_on_where_the_first_ended(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    types = {"id": "int", "v": "int"}
    put(folder, "1.json", canal("INSERT", [{"id": "1", "v": "1"}], types))
    run(catalog, folder, "canal-json", "t")
    update = canal("UPDATE", [{"id": "1", "v": "2"}], types, old=[{"v": "1"}])
    put(folder, "2.json", update, canal("INSERT", [{"id": "5", "v": "5"}], types))

    run(catalog, folder, "canal-json", "t")
    run(catalog, folder, "canal-json", "t")

    assert rows(catalog, "t") == [{"id": 1, "v": 2}, {"id": 5, "v": 5}]


def test_a_database_action_routes_messages(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "messages"

    def maxwell(database: str, table: str, number: int) -> object:
        about = {"database": database, "table": table, "primary_key_columns": ["id"]}
        return {**about, "type": "insert", "data": {"id": number}}

    put(
        folder,
        "1.json",
        maxwell("a", "t", 1),
        maxwell("b", "t", 2),
        maxwell("a", "other", 3),
        maxwell("a", "tmp_x", 4),
        maxwell("secret", "t", 5),
    )
    run(
        catalog,
        folder,
        "maxwell-json",
        excluding_tables="tmp_.*",
        excluding_dbs="secret",
        table_prefix="p_",
        table_mapping=["other=mapped"],
    )

    assert sorted(catalog.list_tables("lake")) == ["mapped", "p_t"]
    assert rows(catalog, "p_t") == [{"id": "1"}, {"id": "2"}]
    assert rows(catalog, "mapped") == [{"id": "3"}]


def test_computed_columns_may_be_keys(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    put(folder, "1.json", {"id": 1, "at": "2023-05-06 10:00:00"}, {"id": 2, "at": "2024-01-01"})
    run(
        catalog,
        folder,
        "json",
        "t",
        computed_column=["day=date_format(at,yyyyMMdd)", "kind=cast(7,INT)"],
        primary_keys="id,day",
        partition_keys="day",
    )

    assert catalog.get_table("lake.t").context.schema.partition_keys == ("day",)
    assert [(r["id"], r["day"], r["kind"]) for r in rows(catalog, "t")] == [
        ("1", "20230506", 7),
        ("2", "20240101", 7),
    ]


def test_messages_without_keys_are_appended(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    put(folder, "1.json", {"v": 1}, {"v": 1})

    run(catalog, folder, "json", "t", table_conf={"bucket": "-1"})

    assert rows(catalog, "t") == [{"v": "1"}, {"v": "1"}]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"primary_keys": "nope"}, "nope"),
        ({"computed_column": ["y=year(nope)"]}, "nope"),
        ({"metadata_column": ["topic"]}, "metadata column"),
        ({"type_mapping": ["no-change"]}, "no-change"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    catalog: Catalog, tmp_path: Path, flags: dict[str, object], message: str
) -> None:
    put(tmp_path / "messages", "1.json", {"v": 1})

    with pytest.raises(InvalidRequest, match=message):
        run(catalog, tmp_path / "messages", "json", "t", **flags)


def test_a_message_that_cannot_be_read_stops_the_pipeline_or_is_kept_aside(
    catalog: Catalog, tmp_path: Path
) -> None:
    folder = tmp_path / "messages"
    put(folder, "1.json", {"v": 1}, [1], {"v": 2})

    with pytest.raises(InvalidRequest, match=r"1\.json"):
        run(catalog, folder, "json", "t", table_conf={"bucket": "-1"})
    progress = run(catalog, folder, "json", "t", table_conf={"bucket": "-1"}, dead_letters=True)

    assert progress.rows_left_out == 1
    assert rows(catalog, "t") == [{"v": "1"}, {"v": "2"}]
    (kept,) = (tmp_path / "warehouse" / ".cdc").rglob("*dead*")
    assert json.loads(kept.read_text())["value"] == "[1]"


def test_plain_json_has_no_database_action(catalog: Catalog, tmp_path: Path) -> None:
    put(tmp_path / "messages", "1.json", {"v": 1})

    with pytest.raises(Unsupported, match="for one table"):
        run(catalog, tmp_path / "messages", "json")


def test_a_mapping_without_an_equals_sign_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    put(tmp_path / "messages", "1.json", {"v": 1})

    with pytest.raises(InvalidRequest, match="key=value"):
        run(catalog, tmp_path / "messages", "maxwell-json", table_mapping=["a"])


def maxwell(kind: str, table: str, row: dict[str, Any], *key: str, **more: Any) -> object:
    event = {"database": "shop", "table": table, "primary_key_columns": key or ("id",)}
    return {**event, "type": kind, "data": row, **more}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_source_that_gets_another_key_is_refused(
    catalog: Catalog, tmp_path: Path, *, restarts: bool
) -> None:
    folder = tmp_path / "messages"
    put(folder, "1.json", maxwell("insert", "t", {"id": 1, "n": 1}))
    if restarts:
        run(catalog, folder, "maxwell-json")
    put(folder, "2.json", maxwell("insert", "t", {"id": 1, "n": 2}, "id", "n"))

    with pytest.raises(InvalidRequest, match="another primary key") as refusal:
        run(catalog, folder, "maxwell-json", on_table_error=OnTableError.STOP)
    assert refusal.value.facts["source_table"] == "shop.t"

    put(folder, "3.json", maxwell("insert", "u", {"id": 1}))
    progress = run(catalog, folder, "maxwell-json")

    assert [str(each.table) for each in progress.quarantine] == ["shop.t"]
    assert rows(catalog, "t") == [{"id": "1", "n": "1"}]
    assert rows(catalog, "u") == [{"id": "1"}]


def test_an_update_without_the_partition_column_moves_the_row(
    catalog: Catalog, tmp_path: Path
) -> None:
    folder = tmp_path / "messages"
    put(
        folder,
        "1.json",
        maxwell("insert", "t", {"id": 1, "day": "a", "n": 1}),
        maxwell("update", "t", {"id": 1, "n": 2}, old={"n": 1}),
    )
    put(folder, "2.json", maxwell("update", "t", {"id": 1, "n": 3}, old={"n": 2}))
    run(catalog, folder, "maxwell-json", "t", partition_keys="day", table_conf={"bucket": "-1"})

    assert rows(catalog, "t") == [{"id": "1", "day": None, "n": "3"}]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "int32", "name": "io.debezium.time.Date"}, 2**31),
        ({"type": "struct", "name": "io.debezium.data.geometry.Point"}, [1]),
        ({"type": "struct", "name": "io.debezium.data.geometry.Point"}, {"wkb": None}),
    ],
)
def test_a_value_that_no_type_holds_is_a_bad_message(
    catalog: Catalog, tmp_path: Path, kind: dict[str, Any], value: object
) -> None:
    folder = tmp_path / "messages"
    fields = [{"field": "id", "type": "int32"}, {"field": "d", **kind}]
    put(
        folder,
        "1.json",
        {
            "schema": {"fields": [{"field": "after", "fields": fields}]},
            "payload": {"op": "c", "after": {"id": 1, "d": value}},
        },
    )

    with pytest.raises(InvalidRequest, match=r"a value (does not fit|is not a)") as refusal:
        run(catalog, folder, "debezium-json", "t")

    assert refusal.value.facts["column"] == "d"


@pytest.mark.parametrize("letters", [False, True])
@pytest.mark.parametrize("more", [{}, {"n": 5}])
def test_a_row_that_moves_between_shards_ends_in_the_last_one(
    catalog: Catalog, tmp_path: Path, *, letters: bool, more: dict[str, int]
) -> None:
    folder = tmp_path / "messages"
    put(
        folder,
        "1.json",
        maxwell("insert", "b", {"id": 1, "v": "b", **more}),
        maxwell("insert", "a", {"id": 2, "v": "a"}),
        maxwell("delete", "a", {"id": 2, "v": "a"}),
        maxwell("insert", "b", {"id": 2, "v": "now b", **more}),
    )
    run(catalog, folder, "maxwell-json", "t", dead_letters=letters)

    assert [(row["id"], row["v"]) for row in rows(catalog, "t")] == [("1", "b"), ("2", "now b")]


def test_a_row_without_members_is_a_bad_message(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    put(folder, "1.json", {}, {})

    with pytest.raises(InvalidRequest, match="no members"):
        run(catalog, folder, "json", "t")
    assert run(catalog, folder, "json", "t", dead_letters=True).rows_left_out == 2


@pytest.mark.parametrize(
    ("old", "value", "new", "wanted"),
    [
        ("char(2)", "a", "char(8)", "a"),
        ("varchar(2)", "a", "char(8)", "a"),
        ("bit(8)", "5", "bit(16)", b"\x05"),
        ("int(11)", "-1234567", "varchar(11)", "-1234567"),
    ],
)
def test_old_values_stay_when_a_type_grows(
    catalog: Catalog, tmp_path: Path, old: str, value: str, new: str, wanted: object
) -> None:
    folder = tmp_path / "messages"
    put(folder, "1.json", canal("INSERT", [{"id": "1", "d": value}], {"id": "int", "d": old}))
    for number in ("2", "3"):
        grown = {"id": "int", "d": new}
        put(folder, f"{number}.json", canal("INSERT", [{"id": number, "d": "7"}], grown))
    run(catalog, folder, "canal-json", "t", type_mapping="allow-non-string-to-string")

    assert rows(catalog, "t")[0] == {"id": 1, "d": wanted}


def test_a_number_does_not_become_a_text_that_is_too_short(
    catalog: Catalog, tmp_path: Path
) -> None:
    folder = tmp_path / "messages"
    put(folder, "1.json", canal("INSERT", [{"id": "1", "d": "123456"}], {"id": "int", "d": "int"}))
    types = {"id": "int", "d": "varchar(5)"}
    put(folder, "2.json", canal("INSERT", [{"id": "2", "d": "x"}], types))

    with pytest.raises(InvalidRequest, match="cannot follow"):
        run(catalog, folder, "canal-json", "t", type_mapping="allow-non-string-to-string")


def test_a_row_that_a_computed_column_refuses_is_a_dead_letter(
    catalog: Catalog, tmp_path: Path
) -> None:
    folder = tmp_path / "messages"
    given = [{"id": str(n), "d": text} for n, text in enumerate(("abc", "a", "abd", "b"))]
    put(folder, "1.json", canal("INSERT", given, {"id": "int", "d": "varchar(9)"}))
    progress = run(
        catalog,
        folder,
        "canal-json",
        "t",
        computed_column="part=substring(d,2)",
        dead_letters=True,
    )

    assert progress.rows_left_out == 2
    assert [row["part"] for row in rows(catalog, "t")] == ["c", "d"]


def test_a_shard_with_one_more_column_joins_an_open_target(
    catalog: Catalog, tmp_path: Path
) -> None:
    folder = tmp_path / "messages"
    put(folder, "1.json", maxwell("insert", "a", {"id": 1, "v": "a"}))
    put(folder, "2.json", maxwell("insert", "b", {"id": 2, "v": "b", "w": 5}))
    run(catalog, folder, "maxwell-json", "t")

    assert rows(catalog, "t") == [
        {"id": "1", "v": "a", "w": None},
        {"id": "2", "v": "b", "w": "5"},
    ]


@pytest.mark.parametrize("value_format", ["json", "debezium-bson"])
def test_json_that_is_too_deep_is_a_bad_message(
    catalog: Catalog, tmp_path: Path, value_format: str
) -> None:
    folder = tmp_path / "messages"
    folder.mkdir()
    deep = f'{{"_id": 1, "v": {"[" * 3000}{"]" * 3000}}}'
    message = json.dumps({"op": "c", "after": deep}) if "bson" in value_format else deep
    (folder / "1.json").write_text(message)

    with pytest.raises(InvalidRequest, match="cannot be read"):
        run(catalog, folder, value_format, "t")


def test_a_prefix_of_no_metadata_column_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", {"id": 1})
    with pytest.raises(InvalidRequest, match="metadata_column_prefix names no column"):
        run(catalog, tmp_path / "in", "json", "t", metadata_column_prefix="m_")


def inserted(table: str, **data: Any) -> object:
    return maxwell("insert", table, data)


def test_tables_have_partition_keys_of_their_own(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    put(
        folder,
        "1.json",
        *(inserted(table, id=1, day="d", hour="h") for table in ("a", "b")),
        inserted("c", id=1),
    )

    run(
        catalog,
        folder,
        "maxwell-json",
        partition_keys="day",
        primary_keys="id,day,hour",
        multiple_table_partition_keys=["a=day,hour", "c=day"],
    )

    keys = {
        name: catalog.get_table(f"lake.{name}").context.schema.partition_keys
        for name in ("a", "b", "c")
    }
    assert keys == {"a": ("day", "hour"), "b": ("day",), "c": ()}
    for text in ("a", "a=", "=day"):
        with pytest.raises(InvalidRequest, match="write key=a,b"):
            run(catalog, folder, "maxwell-json", multiple_table_partition_keys=[text])


def test_eager_tables_get_snapshots_without_rows(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    put(folder, "1.json", inserted("a", id=1))
    forced = {"bucket": "-1", "commit.force-create-snapshot": "true"}
    catalog.create_database("lake")
    for name in ("x_quiet", "quiet", "x_tmp"):
        catalog.create_table(f"lake.{name}", {"id": "INT"}, options=forced)

    run(
        catalog,
        folder,
        "maxwell-json",
        table_prefix="x_",
        excluding_tables="tmp",
        eager_init="true",
    )

    made = {
        name: catalog.get_table(f"lake.{name}").context.history.latest_snapshot() is not None
        for name in ("x_a", "x_quiet", "quiet", "x_tmp")
    }
    assert made == {"x_a": True, "x_quiet": True, "quiet": False, "x_tmp": False}


def test_type_mapping_without_effect_is_refused(catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "messages"
    put(folder, "1.json", inserted("a", id=1))

    with pytest.raises(InvalidRequest, match=r"options=\[tinyint1-not-bool\]"):
        run(catalog, folder, "maxwell-json", "a", type_mapping="tinyint1-not-bool,to-string")
    run(catalog, folder, "maxwell-json", "a", type_mapping="to-string,to-nullable")


def test_a_table_with_a_bad_value_is_set_aside_and_the_others_go_on(
    catalog: Catalog, tmp_path: Path
) -> None:
    def change(table: str, number: object) -> object:
        row = {"id": str(number), "n": str(number)}
        types = {"id": "int", "n": "int"}
        return canal("INSERT", [row], types, table=table, pkNames=["id"])

    put(tmp_path / "f", "1", change("good", 1), change("bad", 1))
    run(catalog, tmp_path / "f", "canal-json")
    put(tmp_path / "f", "2", change("good", 2), change("bad", "two"), change("good", 3))
    progress = run(catalog, tmp_path / "f", "canal-json")
    assert [row["id"] for row in rows(catalog, "good")] == [1, 2, 3]
    assert [row["id"] for row in rows(catalog, "bad")] == [1]
    (entry,) = progress.quarantine
    assert entry.table.name == "bad"
    assert "two" in entry.reason

    put(tmp_path / "f", "3", change("bad", "again"), change("good", 4))
    later = run(catalog, tmp_path / "f", "canal-json")
    assert [row["id"] for row in rows(catalog, "good")] == [1, 2, 3, 4]
    assert later.newly_set_aside == ()
    put(tmp_path / "f", "4", change("good", "five"))
    with pytest.raises(InvalidRequest, match="five"):
        run(catalog, tmp_path / "f", "canal-json", on_table_error=OnTableError.STOP)
