"""`lakecore.sql`: SQL over paths, files and frames, without a catalog."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest

import lakecore as lc

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The path of a table with two snapshots and two rows."""
    found = lc.open_table(
        tmp_path / "orders", create=True, data=pa.table({"id": [1, 2]}), primary_keys=["id"]
    )
    found.delete("id = 2")
    found.write({"id": [3]})
    return found.path


def test_a_table_is_named_by_its_path(path: str) -> None:
    assert lc.sql(f"SELECT id FROM '{path}' ORDER BY id").fetchall() == [(1,), (3,)]
    assert lc.sql(f"SELECT sum(id) FROM '{path}' VERSION AS OF 1").fetchall() == [(3,)]
    assert lc.sql(f"SELECT count(*) FROM `{path}$snapshots`").fetchall() == [(3,)]
    hint = "/*+ OPTIONS('scan.snapshot-id' = '2') */"
    assert lc.sql(f'SELECT id FROM "{path}" {hint}').fetchall() == [(1,)]


def test_statements_that_write_take_a_path(path: str) -> None:
    lc.sql(f'INSERT INTO "{path}" SELECT 4; DELETE FROM "{path}" WHERE id = 1')
    lc.sql(
        f"MERGE INTO `{path}` AS t USING (SELECT 9 AS id) AS s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    assert lc.sql(f"FROM '{path}' ORDER BY id").fetchall() == [(3,), (4,), (9,)]


def test_procedures_take_a_path_with_dots(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path)

    for name in (path, "../orders", "./../orders"):
        lc.sql(f"CALL sys.create_tag('{name}', 'one', 1)")
        lc.sql(f"CALL sys.delete_tag('{name}', 'one')")


def test_files_frames_and_parameters(tmp_path: Path, path: str) -> None:
    frame = pl.DataFrame({"id": [3], "name": ["three"]})
    frame.write_parquet(tmp_path / "names.parquet")
    for source in ("frame", f"'{tmp_path / 'names.parquet'}'"):
        rows = lc.sql(f"SELECT name FROM '{path}' JOIN {source} USING (id) WHERE id > ?", [2])
        assert rows.fetchall() == [("three",)]


def test_a_catalog_can_be_created(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    name = f"made_{tmp_path.name.replace('-', '_')}"
    lc.sql(f"CREATE CATALOG {name} WITH ('warehouse' = '{warehouse}')")
    lc.sql(f"CREATE DATABASE {name}.d; CREATE TABLE {name}.d.t (i INT)")
    assert lc.sql(f"SELECT count(*) FROM {name}.d.t").fetchall() == [(0,)]
    with ThreadPoolExecutor(1) as other, pytest.raises(lc.NotFound):
        other.submit(lambda: lc.sql(f"SELECT count(*) FROM {name}.d.t")).result()


def test_what_is_not_there_is_named(path: str) -> None:
    # A thread of its own has a session of its own, without the catalogs of other tests.
    def failed(text: str) -> str:
        with pytest.raises(lc.LakecoreError) as error:
            lc.sql(text)
        return str(error.value)

    with ThreadPoolExecutor(1) as other:
        assert "there is no catalog" in other.submit(failed, "FROM nowhere").result()
        assert "there is no catalog" in other.submit(failed, "SHOW TABLES").result()
        assert "no table in this directory" in other.submit(failed, f"FROM '{path}_no'").result()
        dropped = other.submit(failed, f'DROP TABLE "{path}"').result()
        assert "in a catalog, not by its path" in dropped


def test_the_function_stays_when_modules_of_its_package_are_loaded() -> None:
    from lakecore.sql.tokens import split

    assert split("a; b") == ["a", "b"]
    assert callable(lc.sql)
