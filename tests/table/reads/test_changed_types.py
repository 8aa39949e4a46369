"""A table handle that was opened before the schema was changed cuts and loses no values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BIG = 2**40
CHANGED = "type of a column was changed"


def connected(place: Path) -> lc.Session:
    session = lc.connect(place, create=True)
    session.create_database("default")
    return session


@pytest.fixture(params=["key", "append"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> lc.Session:
    session = connected(tmp_path)
    keyed = request.param == "key"
    session.create_table(
        "default.t",
        {"k": "INT NOT NULL", "v": "INT", "w": "STRING"},
        primary_keys=["k"] if keyed else [],
        options={"bucket": "1" if keyed else "-1"},
    )
    session.get_table("default.t").write([{"k": 1, "v": 1, "w": "a"}])
    return session


def widened(session: lc.Session) -> None:
    """Another process makes INT to BIGINT, and writes a value that INT does not hold."""
    change = lc.SchemaChange.update_column_type("v", "BIGINT")
    session.alter_table("default.t", [change])
    session.get_table("default.t").write([{"k": 2, "v": BIG, "w": "b"}])


@pytest.mark.parametrize(
    "verb",
    [
        lambda table: table.to_arrow(),
        lambda table: table.to_arrow(["k"], where="v > 5"),
        lambda table: table.count("v = 0"),
        lambda table: table.scan(["v"]).collect(),
        lambda table: table.changes(1, 2).collect(),
        lambda table: table.delete("v < 5"),
        lambda table: table.update({"w": "wrong"}, "v < 5"),
    ],
)
def test_the_changed_column_is_refused(
    session: lc.Session, verb: Callable[[lc.Table], object]
) -> None:
    table = session.get_table("default.t")
    widened(session)
    with pytest.raises(lc.InvalidRequest, match=CHANGED):
        verb(table)

    found = table.refresh().to_arrow().sort_by("k").to_pylist()
    assert found == [{"k": 1, "v": 1, "w": "a"}, {"k": 2, "v": BIG, "w": "b"}]


def test_other_columns_are_read(session: lc.Session) -> None:
    table = session.get_table("default.t")
    widened(session)

    assert table.to_arrow(["w"], where="k = 2").to_pylist() == [{"w": "b"}]
    assert table.count() == 2


@pytest.mark.parametrize(
    "verb",
    [
        lambda table: table.update({"w": "x"}, "k = 2"),
        lambda table: table.delete("k = 2"),
        lambda table: (
            table.merge([{"k": 2, "w": "x"}], on=["k"])
            .when_matched_update({"w": lc.sql_expr("source.w")})
            .execute()
        ),
    ],
)
def test_a_verb_that_would_lose_an_added_column_is_refused(
    session: lc.Session, verb: Callable[[lc.Table], object]
) -> None:
    table = session.get_table("default.t")
    session.alter_table("default.t", [lc.SchemaChange.add_column("n", "INT")])
    session.get_table("default.t").write(
        [{"k": 2, "v": 2, "w": "b", "n": 22}, {"k": 3, "v": 3, "w": "c", "n": 33}]
    )
    with pytest.raises(lc.InvalidRequest, match="columns were added"):
        verb(table)
    verb(table.refresh())

    found = session.get_table("default.t").to_arrow(["k", "n"], where="n > 0").to_pylist()
    assert {"k": 3, "n": 33} in found


def test_a_rescale_that_would_lose_an_added_column_is_refused(tmp_path: Path) -> None:
    session = connected(tmp_path)
    table = session.create_table(
        "default.t", {"k": "INT NOT NULL"}, primary_keys=["k"], options={"bucket": "1"}
    )
    session.alter_table("default.t", [lc.SchemaChange.add_column("n", "INT")])
    session.get_table("default.t").write([{"k": 1, "n": 11}])
    with pytest.raises(lc.InvalidRequest, match="columns were added"):
        table.rescale(bucket_num=2)
    table.refresh().rescale(bucket_num=2)

    assert session.get_table("default.t").to_arrow().to_pylist() == [{"k": 1, "n": 11}]


def test_an_open_look_up_is_refused(tmp_path: Path) -> None:
    session = connected(tmp_path)
    session.create_table("default.t", {"k": "INT NOT NULL", "v": "INT"}, primary_keys=["k"])
    table = session.get_table("default.t")
    table.write([{"k": 1, "v": 1}])
    with table.open_lookup() as lookup:
        session.alter_table("default.t", [lc.SchemaChange.update_column_type("v", "BIGINT")])
        session.get_table("default.t").write([{"k": 2, "v": BIG}])
        with pytest.raises(lc.InvalidRequest, match=CHANGED):
            lookup.refresh()


def test_fields_and_nulls_may_change(tmp_path: Path) -> None:
    session = connected(tmp_path)
    session.create_table("default.t", {"k": "INT NOT NULL", "r": "ROW<a INT, b STRING>"})
    table = session.get_table("default.t")
    changes = [
        lc.SchemaChange.update_column_nullability("k", nullable=True),
        lc.SchemaChange.add_column(["r", "c"], "INT"),
    ]
    session.alter_table("default.t", changes)
    session.get_table("default.t").write([{"k": 1, "r": {"a": 1, "b": "x", "c": 3}}])

    assert table.to_arrow().to_pylist() == [{"k": 1, "r": {"a": 1, "b": "x"}}]

    change = lc.SchemaChange.update_column_type(["r", "a"], "BIGINT")
    session.alter_table("default.t", [change])
    session.get_table("default.t").write([{"k": 2, "r": {"a": BIG, "b": "x", "c": 3}}])
    with pytest.raises(lc.InvalidRequest, match=CHANGED):
        table.to_arrow()


ALTERED = "a stored value cannot be cast to the column's type"
FACES: dict[str, Callable[[lc.Session, lc.Table], object]] = {
    "to_polars": lambda _, table: table.to_polars(),
    "to_arrow": lambda _, table: table.to_arrow(),
    "scan": lambda _, table: table.scan().collect(),
    "to_batches": lambda _, table: table.to_batches().read_all(),
    "to_pandas": lambda _, table: table.to_pandas(),
    "dataset": lambda _, table: table.to_arrow_dataset().to_table(),
    "sql": lambda session, table: session.sql(f"SELECT * FROM {table.identifier}").fetchall(),
    "sql where": lambda session, table: session.sql(
        f"SELECT k FROM {table.identifier} WHERE w > 0"
    ).fetchall(),
    "count": lambda _, table: table.count("w > 0"),
    "changes": lambda _, table: table.changes(0, 1).collect(),
    "stream": lambda _, table: [rows.collect() for _id, rows in table.stream(until=1)],
    "update": lambda _, table: table.update({"w": lc.sql_expr("w + 1")}),
    "delete": lambda _, table: table.delete("w = 3"),
    "merge": lambda _, table: (
        table.merge([{"k": 1, "w": 3}], on=["k"])
        .when_matched_update({"w": lc.sql_expr("target.w + 1")})
        .execute()
    ),
}


def narrowed(session: lc.Session) -> tuple[lc.Table, str]:
    """The table with 'a' in a column that is INT by now, and the name of its file."""
    session.alter_table("default.t", [lc.SchemaChange.update_column_type("w", "INT")])
    table = session.get_table("default.t")
    [path] = table.inspect.files()["file_path"].to_list()
    return table, path.rpartition("/")[2]


@pytest.mark.parametrize("face", FACES)
def test_value_that_has_no_cast_is_one_sentence(session: lc.Session, face: str) -> None:
    table, file = narrowed(session)
    with pytest.raises(lc.InvalidRequest) as caught:
        FACES[face](session, table)
    said = str(caught.value)
    assert said.startswith(ALTERED)
    assert "column=w stored=STRING wanted=INT value='a'" in said
    assert said.endswith(f"file={file}")


def test_value_that_has_no_cast_is_short_in_duckdb(session: lc.Session) -> None:
    table, file = narrowed(session)
    with pytest.raises(duckdb.Error) as caught:
        table.to_duckdb().fetchall()
    assert f"column=w stored=STRING wanted=INT value='a' file={file}" in str(caught.value)
    assert str(caught.value).count("File ") == 1


def test_look_up_of_a_value_that_has_no_cast_is_one_sentence(tmp_path: Path) -> None:
    session = connected(tmp_path)
    columns = {"k": "INT NOT NULL", "w": "STRING"}
    session.create_table("default.t", columns, primary_keys=["k"], options={"bucket": "1"})
    session.get_table("default.t").write([{"k": 1, "w": "a"}, {"k": 2, "w": "2"}])
    table, _ = narrowed(session)
    with pytest.raises(lc.InvalidRequest, match=ALTERED):
        table.lookup([{"k": 1}])
    assert table.to_arrow(where="k = 2").to_pylist() == [{"k": 2, "w": 2}]


def test_change_that_narrows_is_logged(
    session: lc.Session, caplog: pytest.LogCaptureFixture
) -> None:
    session.alter_table("default.t", [lc.SchemaChange.update_column_type("v", "BIGINT")])
    assert not caplog.messages
    narrowed(session)
    [said] = caplog.messages
    assert "w: STRING to INT" in said
    assert "disable-explicit-type-casting=true" in said


def test_type_without_a_cast_from_what_files_hold_is_refused(session: lc.Session) -> None:
    session.alter_table("default.t", [lc.SchemaChange.update_column_type("v", "STRING")])
    later = [lc.SchemaChange.update_column_type("v", "DATE")]
    with pytest.raises(lc.InvalidRequest, match=r"older type.*stored=INT wanted=DATE"):
        session.alter_table("default.t", later)
    session.get_table("default.t").overwrite([{"k": 1, "v": "2024-01-31", "w": "a"}])
    session.alter_table("default.t", later)
    found = session.get_table("default.t").to_arrow(["v"]).to_pylist()
    assert [str(each["v"]) for each in found] == ["2024-01-31"]


@pytest.mark.parametrize("stored", ["ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT>"])
def test_nested_column_does_not_become_text(tmp_path: Path, stored: str) -> None:
    session = connected(tmp_path)
    session.create_table("default.t", {"k": "INT", "c": stored})
    with pytest.raises(lc.InvalidRequest, match="no change leads from it back"):
        session.alter_table("default.t", [lc.SchemaChange.update_column_type("c", "STRING")])
