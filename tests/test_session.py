from __future__ import annotations

import json
import pickle
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.io.ambient import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA = {"id": "BIGINT NOT NULL", "name": "STRING"}


# --- connect --------------------------------------------------------------------------------------


def test_warehouse_that_is_not_there_is_not_found_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(lc.NotFound, match=r"create=True.*warehouse=.*typo"):
        lc.connect(tmp_path / "typo")

    assert not (tmp_path / "typo").exists()


def test_warehouse_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "load.py").touch()

    with pytest.raises(lc.InvalidRequest, match="a warehouse must be a directory"):
        lc.connect(tmp_path / "load.py")


def test_warehouse_is_made_on_request(tmp_path: Path) -> None:
    session = lc.connect(str(tmp_path / "a" / "w"), create=True)

    assert (tmp_path / "a" / "w").is_dir()
    assert session.list_databases() == ()
    assert lc.connect(tmp_path / "a" / "w", create=True).warehouse == session.warehouse


def test_warehouse_may_be_a_path_a_text_or_options(tmp_path: Path) -> None:
    sessions = [
        lc.connect(tmp_path),
        lc.connect(f"{tmp_path}/"),
        lc.connect({"warehouse": str(tmp_path), "metastore": "filesystem"}),
    ]

    assert {session.warehouse for session in sessions} == {str(tmp_path)}
    assert repr(sessions[0]) == f"Session({str(tmp_path)!r})"


def test_warehouse_in_memory_is_shared_by_name() -> None:
    uri = f"memory://{SYSTEM.new_uuid()}/w"
    lc.connect(uri, create=True).create_database("shop")

    assert lc.connect(uri).list_databases() == ("shop",)


def test_session_is_pickled_and_sees_the_same_tables(tmp_path: Path) -> None:
    session = lc.connect(tmp_path)
    session.create_database("shop")
    copy = pickle.loads(pickle.dumps(session))
    copy.create_table("shop.t", SCHEMA).write([{"id": 1, "name": "a"}])

    assert session.get_table("shop.t").to_arrow().to_pylist() == [{"id": 1, "name": "a"}]


def test_session_in_memory_is_not_pickled() -> None:
    session = lc.connect(f"memory://{SYSTEM.new_uuid()}/w", create=True)

    with pytest.raises(lc.Unsupported, match=r"exists only in its own process.*warehouse on disk"):
        pickle.dumps(session)


FLAGS: dict[str, Callable[[Any, Path], object]] = {
    "create of a warehouse": lambda _, path: lc.connect(path, create="no"),  # type: ignore[arg-type]
    "create": lambda _, path: lc.open_table(path, create=1),  # type: ignore[arg-type]
    "ignore_if_exists": lambda session, _: session.create_database("shop", ignore_if_exists=1),
    "cascade": lambda session, _: session.drop_database("shop", cascade="no"),
    "database": lambda session, _: session.drop_database("shop", ignore_if_not_exists=None),
    "new table": lambda session, _: session.create_table("shop.t", SCHEMA, ignore_if_exists=0),
    "renamed": lambda session, _: session.rename_table("shop.t", "shop.u", ignore_if_not_exists=1),
    "dropped": lambda session, _: session.drop_table("shop.t", ignore_if_not_exists="false"),
    "altered": lambda session, _: session.alter_table("shop.t", [], ignore_if_not_exists=[]),
}


@pytest.mark.parametrize("what", FLAGS)
def test_flag_that_is_neither_true_nor_false_is_refused(what: str, tmp_path: Path) -> None:
    session = lc.connect(tmp_path, create=True)
    session.create_database("shop")

    with pytest.raises(lc.InvalidRequest, match="is True or False"):
        FLAGS[what](session, tmp_path / "new")
    assert session.list_databases() == ("shop",)
    assert not (tmp_path / "new").exists()


def test_unknown_option_and_storage_are_refused(tmp_path: Path) -> None:
    with pytest.raises(lc.InvalidRequest, match="unknown catalog option"):
        lc.connect({"warehouse": str(tmp_path), "wharehouse": "x"})
    with pytest.raises(lc.Unsupported, match="scheme=ftp"):
        lc.connect("ftp://host/w")


def with_option(path: Path, key: str, text: str) -> Path:
    """The table at the path, with an option that a newer release wrote into its schema."""
    newest = max((path / "schema").iterdir())
    schema = json.loads(newest.read_text())
    schema["options"][key] = text
    newest.write_text(json.dumps(schema))
    return path


def test_table_with_an_unknown_option_is_opened_once_that_is_to_be_ignored(tmp_path: Path) -> None:
    lc.open_table(tmp_path / "t", create=True, schema=SCHEMA).write([{"id": 1, "name": "a"}])
    path = with_option(tmp_path / "t", "shiny.mode", "on")
    with pytest.raises(lc.Unsupported, match=r"lakecore\.ignore-options=shiny\.mode"):
        lc.open_table(path)

    table = lc.open_table(path, options={"lakecore.ignore-options": "shiny.*"})
    table.copy({"write-only": "true"}).write([{"id": 2, "name": "b"}])

    assert sorted(table.refresh().to_polars()["id"]) == [1, 2]
    with pytest.raises(lc.InvalidRequest, match="needs a primary key"):
        lc.open_table(path, options={"lakecore.ignore-options": "shiny.*", "sequence.field": "id"})


def test_unknown_dynamic_option_is_ignored_if_the_options_say_so(tmp_path: Path) -> None:
    path = tmp_path / "t"
    lc.open_table(path, create=True, schema=SCHEMA)
    both = {"shiny.mode": "on", "lakecore.ignore-options": "shiny.*"}

    table = lc.open_table(path, options=both)
    assert "shiny.mode" not in table.options.texts
    assert table.copy({"shiny.size": "1"}).refresh().options.lakecore_ignore_options == ("shiny.*",)
    assert lc.open_table(path).copy(both).to_polars().height == 0
    for others in ({"shiny.mode": "on"}, {"dull.mode": "on", "lakecore.ignore-options": "shiny.*"}):
        with pytest.raises(lc.InvalidRequest, match="unknown table option"):
            lc.open_table(path, options=others)
        with pytest.raises(lc.InvalidRequest, match="unknown table option"):
            lc.open_table(path).copy(others)


def test_schema_that_names_another_branch_is_unsupported(tmp_path: Path) -> None:
    lc.open_table(tmp_path / "t", create=True, schema=SCHEMA)
    path = with_option(tmp_path / "t", "branch", "b1")

    with pytest.raises(lc.Unsupported, match=r"another branch.*value=b1.*branch=main"):
        lc.open_table(path)


def test_unknown_option_of_a_table_goes_or_is_ignored_by_all(tmp_path: Path) -> None:
    session = lc.connect(tmp_path)
    session.create_database("shop")
    for name in ("a", "b"):
        session.create_table(f"shop.{name}", SCHEMA)
        with_option(tmp_path / "shop.db" / name, "shiny.mode", "on")
    ignored = lc.SchemaChange.set_option("lakecore.ignore-options", "shiny.mode")
    session.alter_table("shop.a", [lc.SchemaChange.remove_option("shiny.mode")])
    session.alter_table("shop.b", [ignored])

    assert "shiny.mode" not in session.get_table("shop.a").schema.options
    assert session.get_table("shop.b").schema.options["shiny.mode"] == "on"
    session.alter_table("shop.b", [lc.SchemaChange.add_column("note", "STRING")])
    assert session.get_table("shop.b").schema.names == ("id", "name", "note")


# --- a session, verb by verb ----------------------------------------------------------------------


def test_session_creates_finds_changes_and_drops(tmp_path: Path) -> None:
    session = lc.connect(tmp_path)
    session.create_database("shop")
    session.create_database("shop", ignore_if_exists=True)
    created = session.create_table(
        "shop.orders",
        SCHEMA,
        primary_keys=["id"],
        options={"bucket": "1"},
        comment="what was sold",
    )
    session.alter_table("shop.orders", [lc.SchemaChange.add_column("note", "STRING")])
    session.rename_table("shop.orders", "shop.sales")
    found = session.get_table("shop.sales")

    assert isinstance(created, lc.Table)
    assert created.schema.comment == "what was sold"
    assert found.schema.names == ("id", "name", "note")
    assert session.list_databases() == ("shop",)
    assert session.list_tables("shop") == ("sales",)
    assert session.table_exists("shop.sales")
    assert not session.table_exists("shop.orders")
    assert session.get_table("shop.sales$schemas").to_polars()["schema_id"].to_list() == [0, 1]

    session.drop_table("shop.sales")
    session.drop_table("shop.sales", ignore_if_not_exists=True)
    session.drop_database("shop")
    session.drop_database("shop", ignore_if_not_exists=True)

    assert not session.database_exists("shop")


def test_schema_of_a_frame_makes_its_table(tmp_path: Path) -> None:
    session = lc.connect(tmp_path)
    session.create_database("shop")
    frame = pl.DataFrame({"id": [1, 2], "when": [None, None]}, schema_overrides={"when": pl.Date})
    table = session.create_table("shop.events", frame.schema)
    table.write(frame)

    assert table.to_polars().sort("id").equals(frame)


def test_a_table_takes_the_defaults_of_its_catalog(tmp_path: Path) -> None:
    session = lc.connect({"warehouse": str(tmp_path), "table-default.file.format": "avro"})
    session.create_database("shop")

    assert session.create_table("shop.a", SCHEMA).schema.options == {"file.format": "avro"}


# --- open_table -----------------------------------------------------------------------------------


def test_table_is_opened_by_its_directory(tmp_path: Path) -> None:
    session = lc.connect(tmp_path)
    session.create_database("shop")
    created = session.create_table("shop.orders", SCHEMA)

    for path in (tmp_path / "shop.db" / "orders", f"{tmp_path}/shop.db/orders/"):
        assert lc.open_table(path).schema == created.schema


def test_branch_of_an_opened_table_is_an_argument_or_an_option(tmp_path: Path) -> None:
    table = lc.open_table(tmp_path / "t", create=True, schema={"id": "INT"})
    (tmp_path / "t/branch").mkdir()
    shutil.copytree(tmp_path / "t/schema", tmp_path / "t/branch/branch-b1/schema")
    by_argument = lc.open_table(tmp_path / "t", branch="b1")
    by_option = lc.open_table(tmp_path / "t", options={"branch": "b1"})
    by_option.write(pl.DataFrame({"id": pl.Series([1], dtype=pl.Int32)}))

    assert (by_argument.to_arrow().num_rows, table.to_arrow().num_rows) == (1, 0)
    assert by_option.copy({"branch": "b1"}).to_arrow().num_rows == 1
    with pytest.raises(lc.InvalidRequest, match=r"stays on its branch.*branch=main"):
        table.copy({"branch": "b1"})


def test_directory_without_a_table_is_not_found_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(lc.NotFound, match=r"create=True, schema=.*path="):
        lc.open_table(tmp_path)


def test_table_is_made_where_there_is_none_and_opened_where_there_is(tmp_path: Path) -> None:
    path = tmp_path / "t"
    made = lc.open_table(
        path, create=True, schema=SCHEMA, primary_keys=["id"], options={"bucket": "1"}
    )
    made.write(pa.table({"id": [1], "name": ["a"]}))
    again = lc.open_table(path, create=True, schema={"other": "INT"})

    assert made.schema.options == {"bucket": "1"}
    assert again.schema == made.schema
    assert again.to_arrow().num_rows == 1


def test_option_auto_create_makes_a_table_and_is_not_stored(tmp_path: Path) -> None:
    options = {"auto-create": "true", "bucket": "1", "bucket-key": "id"}
    table = lc.open_table(tmp_path / "t", schema=SCHEMA, options=options)

    assert table.schema.options == {"bucket": "1", "bucket-key": "id"}
    with pytest.raises(lc.NotFound):
        lc.open_table(tmp_path / "u", schema=SCHEMA, options={"auto-create": "false"})


def test_creation_without_a_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(lc.InvalidRequest, match="schema"):
        lc.open_table(tmp_path / "t", create=True)

    assert not (tmp_path / "t").exists()


def test_options_of_an_opened_table_hold_for_this_object_only(tmp_path: Path) -> None:
    lc.open_table(tmp_path, create=True, schema=SCHEMA)
    table = lc.open_table(tmp_path, options={"snapshot.num-retained.max": "77"})

    assert table.options.snapshot_num_retained_max == 77
    assert lc.open_table(tmp_path).schema.options == {}
    with pytest.raises(lc.LakecoreError, match="snapshot"):
        lc.open_table(tmp_path, options={"snapshot.num-retained.mx": "77"})


@pytest.mark.parametrize("changes", [["x"], [None], lc.SchemaChange.drop_column("v"), "x"])
def test_what_is_no_schema_change_is_refused(tmp_path: Path, changes: Any) -> None:
    session = lc.connect(str(tmp_path))
    session.create_database("d")
    session.create_table("d.t", {"id": "INT", "v": "INT"})

    with pytest.raises(lc.InvalidRequest, match="alter_table takes a list"):
        session.alter_table("d.t", changes)


def test_comment_that_is_no_text_makes_no_table(tmp_path: Path) -> None:
    session = lc.connect(str(tmp_path))
    session.create_database("d")

    with pytest.raises(lc.InvalidRequest, match="the comment of a table is a string"):
        session.create_table("d.t", {"id": "INT"}, comment=5)  # type: ignore[arg-type]

    assert not session.table_exists("d.t")
    table = session.create_table("d.t", {"id": "INT"})
    with pytest.raises(lc.InvalidRequest, match="a comment is a text"):
        session.alter_table("d.t", [lc.SchemaChange.update_comment(5)])  # type: ignore[arg-type]
    assert table.refresh().schema.comment is None


def test_handle_of_a_dropped_table_neither_reads_nor_writes(tmp_path: Path) -> None:
    session = lc.connect(str(tmp_path))
    session.create_database("d")
    table = session.create_table("d.t", {"id": "INT"})
    table.write([{"id": 1}])
    session.drop_table("d.t")

    for verb in (table.to_arrow, table.truncate, lambda: table.write([{"id": 2}])):
        with pytest.raises(lc.NotFound, match="not there any more"):
            verb()
    assert not (tmp_path / "d.db" / "t").exists()


def test_home_directory_is_found_behind_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    session = lc.connect("~/warehouse", create=True)
    session.create_database("d")
    table = session.create_table("d.t", {"id": "INT"})
    table.write([{"id": 1}])

    assert (tmp_path / "warehouse" / "d.db" / "t" / "schema").is_dir()
    for there in (table, lc.open_table("~/warehouse/d.db/t")):
        assert there.scan().collect().rows() == there.to_duckdb().fetchall() == [(1,)]


@pytest.mark.parametrize(
    "options", [{"merge-engine": "first-row"}, {"sequence.field": "nope"}, {"write-only": b"true"}]
)
def test_options_of_one_object_follow_the_rules_of_a_copy(
    tmp_path: Path, options: dict[str, str]
) -> None:
    columns = {"id": "INT", "v": "INT"}
    made = {"bucket": "1"}
    path = tmp_path / "t"
    lc.open_table(path, create=True, schema=columns, primary_keys=["id"], options=made)

    with pytest.raises(lc.InvalidRequest):
        lc.open_table(path, options=options)


@pytest.mark.parametrize("given", [None, 7, b"w", ["w"], "a\0b", "\ud800", {"warehouse": "a\0b"}])
def test_what_is_no_place_is_refused(given: Any) -> None:
    with pytest.raises(lc.InvalidRequest):
        lc.connect(given)
    with pytest.raises(lc.InvalidRequest):
        lc.open_table(given)


@pytest.mark.parametrize("name", [None, 7, b"a", "", " ", "a\0b", "a/b", "../other", "\ud800"])
def test_name_that_no_database_or_table_can_have_is_refused(tmp_path: Path, name: Any) -> None:
    other = lc.connect(tmp_path / "other", create=True)
    other.create_database("kept")
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("shop")

    for verb in (
        session.create_database,
        session.database_exists,
        session.list_tables,
        lambda given: session.drop_database(given, cascade=True),
        session.get_table,
        session.table_exists,
        session.drop_table,
        lambda given: session.create_table(given, SCHEMA),
        lambda given: session.rename_table("shop.a", given),
    ):
        with pytest.raises(lc.InvalidRequest):
            verb(name)


def test_database_outside_of_the_warehouse_cannot_be_dropped(tmp_path: Path) -> None:
    lc.connect(tmp_path / "other", create=True).create_database("kept")
    session = lc.connect(tmp_path / "w", create=True)

    with pytest.raises(lc.InvalidRequest, match="must not hold"):
        session.drop_database("../other/kept", cascade=True)
    assert (tmp_path / "other" / "kept.db").is_dir()


@pytest.mark.parametrize(
    "named",
    [
        {"primary_keys": 7},
        {"partition_keys": "id"},
        {"options": 0},
        {"options": ["bucket"]},
        {"comment": "\ud800"},
    ],
)
def test_part_of_a_new_table_that_is_no_such_part_is_refused(tmp_path: Path, named: Any) -> None:
    session = lc.connect(tmp_path)
    session.create_database("shop")

    with pytest.raises(lc.InvalidRequest):
        session.create_table("shop.a", SCHEMA, **named)
    assert session.list_tables("shop") == ()


@pytest.mark.parametrize("named", [{"options": 0}, {"options": ""}, {"branch": ""}, {"branch": 0}])
def test_argument_of_an_opened_table_is_not_passed_over(tmp_path: Path, named: Any) -> None:
    lc.open_table(tmp_path / "t", create=True, schema=SCHEMA)

    with pytest.raises(lc.InvalidRequest):
        lc.open_table(tmp_path / "t", **named)


def test_unknown_option_of_a_caller_names_what_may_be_meant(tmp_path: Path) -> None:
    path = tmp_path / "t"
    lc.open_table(path, create=True, schema={"id": "INT"})

    with pytest.raises(lc.InvalidRequest, match=r"did_you_mean=scan\.snapshot-id"):
        lc.open_table(path, options={"scan.snapshotId": "1"})
    with pytest.raises(lc.InvalidRequest, match=r"did_you_mean=write-only"):
        lc.open_table(path).copy({"write_only": "true"})
