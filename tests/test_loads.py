"""The table of a load, and the extras that loads by other tools need."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.loads import LoadedTable, opened, table_name

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = pa.schema({"id": pa.int32(), "name": pa.string()})


@pytest.fixture
def session(tmp_path: Path) -> lc.Session:
    return lc.connect(tmp_path, create=True)


def test_the_first_load_creates_the_table_and_later_ones_find_it(session: lc.Session) -> None:
    wanted = LoadedTable(name="shop.t", primary_keys=("id",), options={"bucket": 2})
    for name in ("Ada", "Bob"):
        with opened(session, wanted, SCHEMA) as table:
            table.write([{"id": 1, "name": name}])

    assert session.get_table("shop.t").to_polars().rows() == [(1, "Bob")]
    assert session.get_table("shop.t").options.texts["bucket"] == "2"


def test_two_first_loads_at_once_fill_one_table(
    session: lc.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = LoadedTable(name="shop.t")
    exists = session.table_exists

    def another_is_faster(name: str) -> bool:
        monkeypatch.undo()
        found = exists(name)
        with opened(session, wanted, SCHEMA) as table:
            table.write([{"id": 1, "name": "Ada"}])
        return found

    monkeypatch.setattr(session, "table_exists", another_is_faster)
    with opened(session, wanted, SCHEMA) as table:
        table.write([{"id": 2, "name": "Bob"}])

    assert sorted(table.to_polars()["id"]) == [1, 2]


@pytest.mark.parametrize(
    ("database", "table"),
    [*((each, "t") for each in ("a.b", "..", "a/b", "`a`", "sys")), ("a", "`t`"), ("a", "t$files")],
)
def test_a_name_that_no_table_can_have_is_refused(database: str, table: str) -> None:
    with pytest.raises(lc.InvalidRequest, match="the name"):
        table_name(database, table)


def test_a_first_load_that_fails_leaves_no_table(session: lc.Session) -> None:
    wanted = LoadedTable(name="shop.t", primary_keys=("id",))
    with pytest.raises(lc.InvalidRequest, match="null"), opened(session, wanted, SCHEMA) as table:
        table.write([{"id": None, "name": "Ada"}])

    assert not session.table_exists("shop.t")


def test_a_first_load_that_fails_beside_another_keeps_its_rows(session: lc.Session) -> None:
    wanted = LoadedTable(name="shop.t", primary_keys=("id",))

    def load() -> None:
        with opened(session, wanted, SCHEMA) as table:
            with opened(session, wanted, SCHEMA) as other:
                other.write([{"id": 1, "name": "Bob"}])
            table.write([{"id": None, "name": "Ada"}])

    with pytest.raises(lc.InvalidRequest, match="null"):
        load()

    assert session.get_table("shop.t").to_polars().rows() == [(1, "Bob")]


def test_a_first_load_whose_outcome_is_unknown_keeps_the_table(session: lc.Session) -> None:
    def load() -> None:
        with opened(session, LoadedTable(name="shop.t"), SCHEMA) as table:
            table.write([{"id": 1, "name": "Ada"}])
            raise lc.CommitUnknown("the reply is lost")

    with pytest.raises(lc.CommitUnknown):
        load()

    assert session.get_table("shop.t").count() == 1


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"primary_keys": ("id",)}, "primary key"),
        ({"partition_keys": ("name",)}, "partition keys"),
    ],
)
def test_a_later_load_cannot_change_the_keys(
    session: lc.Session, changed: dict[str, tuple[str, ...]], what: str
) -> None:
    with opened(session, LoadedTable(name="shop.t"), SCHEMA):
        pass
    wanted = LoadedTable(name="shop.t", **changed)  # type: ignore[arg-type]

    with pytest.raises(lc.InvalidRequest, match=what), opened(session, wanted, SCHEMA):
        pass


def test_a_later_load_changes_options(session: lc.Session) -> None:
    for keep in ("30", "40", "40"):
        wanted = LoadedTable(name="shop.t", options={"snapshot.num-retained.max": keep})
        with opened(session, wanted, SCHEMA) as table:
            assert table.options.texts["snapshot.num-retained.max"] == keep

    assert session.get_table("shop.t").context.schema.id == 1


@pytest.mark.parametrize("tool", ["dbt", "dlt"])
def test_a_missing_tool_names_the_extra(tool: str) -> None:
    code = f"import sys; sys.modules[{tool!r}] = None; import lakecore.{tool}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"install=pip install 'lakecore[{tool}]'" in done.stderr
