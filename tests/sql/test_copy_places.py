"""COPY INTO from and to other storage than the local disk."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.io.stores.open import open_store
from lakecore.io.stores.store import MemoryStore
from tests.stores import s3_service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakecore.io.stores.store import Store

NUMBERS = itertools.count()
LOADED = [(1, "a"), (2, "b")]


@pytest.fixture(params=["memory", "memory-without-renames", "s3"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[str, Store, dict[str, str]]]:
    """A directory that does not exist yet, its storage, and the options of the storage."""
    number = next(NUMBERS)
    if request.param != "s3":
        uri = f"memory://copy{number}/files"
        store = open_store(uri, {})
        assert isinstance(store, MemoryStore)
        store.renames_at_once = request.param == "memory"
        yield uri, store, {}
        return
    with s3_service() as service:
        with service.client() as client:
            client.create_bucket(Bucket="lake")
        yield "s3://lake/files", open_store("s3://lake", service.options), service.options


def catalog_of(tmp_path: Path, options: dict[str, str]) -> lc.Session:
    catalog = lc.connect({"warehouse": str(tmp_path / "warehouse"), **options}, create=True)
    catalog.sql("CREATE TABLE t (id INT, name STRING)")
    return catalog


def rows_of(catalog: lc.Session, query: str = "FROM t ORDER BY ALL") -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = catalog.sql(query).fetchall()
    return rows


def test_files_are_exported_replaced_and_loaded(
    tmp_path: Path, place: tuple[str, Store, dict[str, str]]
) -> None:
    uri, store, options = place
    catalog = catalog_of(tmp_path, options)
    catalog.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    export = f"COPY INTO '{uri}' FROM t FILE_FORMAT = (TYPE = CSV, COMPRESSION = GZIP)"
    done = catalog.sql(export).fetchall()
    first = [each.path for each in store.list(uri)]
    with pytest.raises(lc.AlreadyExists):
        catalog.sql(export)
    catalog.sql("DELETE FROM t WHERE id = 3")
    catalog.sql(f"{export} OVERWRITE = TRUE")
    second = [each.path for each in store.list(uri)]
    catalog.sql("CREATE TABLE u LIKE t")
    load = f"COPY INTO u FROM '{uri}' FILE_FORMAT = (TYPE = CSV) PATTERN = 'gz$'"
    loads = [catalog.sql(load).fetchall() for _ in range(2)]

    assert done == [(uri, 1, 3)]
    assert first[0] == second[0] == f"{uri}/_SUCCESS"
    assert len(first) == len(second) == 2
    assert first[1] != second[1]
    name = second[1].rpartition("/")[2]
    assert loads == [[(name, "LOADED", 2, 2, 0, None)], [(name, "SKIPPED", 0, 0, 0, None)]]
    assert rows_of(catalog, "FROM u ORDER BY ALL") == LOADED
    parent = uri.rpartition("/")[0]
    assert [each.path for each in store.list(parent)] == [uri]
    assert list(Path(tempfile.gettempdir()).glob("lakecore-spill-*/*.gz")) == []


@pytest.fixture
def uri() -> str:
    return f"memory://copy{next(NUMBERS)}/files"


def test_messages_name_the_files_and_not_their_copies(tmp_path: Path, uri: str) -> None:
    store = open_store(uri, {})
    store.put(f"{uri}/a.json", b'{"id": 1, "name": "a"}\n')
    store.put(f"{uri}/b.json", b'{"id": 2, "name"\n')
    catalog = catalog_of(tmp_path, {})
    load = f"COPY INTO t FROM '{uri}' FILE_FORMAT = (TYPE = JSON, MULTI_LINE = TRUE)"
    with pytest.raises(lc.InvalidRequest, match=f"{uri}/b.json") as raised:
        catalog.sql(load)
    skipped = catalog.sql(f"{load} ON_ERROR = SKIP_FILE").fetchall()

    assert "lakecore-spill" not in str(raised.value)
    assert skipped[0] == ("a.json", "LOADED", 1, 1, 0, None)
    assert skipped[1][:2] == ("b.json", "LOAD_FAILED")
    assert "lakecore-spill" not in str(skipped[1][5])


def test_one_file_is_loaded_by_its_uri(tmp_path: Path, uri: str) -> None:
    store = open_store(uri, {})
    store.put(f"{uri}/a.csv", b"1,a\n")
    store.put(f"{uri}/b.csv", b"2,b\n")
    catalog = catalog_of(tmp_path, {})
    catalog.sql(f"COPY INTO t FROM '{uri}/b.csv' FILE_FORMAT = (TYPE = CSV)")

    assert rows_of(catalog) == [(2, "b")]


@pytest.mark.parametrize(
    ("copy", "error", "message"),
    [
        ("t FROM '{}/none' FILE_FORMAT = (TYPE = CSV)", lc.NotFound, "no such file or directory"),
        ("t FROM 'ftp://h/x' FILE_FORMAT = (TYPE = CSV)", lc.Unsupported, "unknown kind"),
        ("'memory://top' FROM t FILE_FORMAT = (TYPE = CSV)", lc.InvalidRequest, "not to the root"),
        ("'{}/d' FROM t FILE_FORMAT = (TYPE = CSV)", lc.AlreadyExists, "OVERWRITE"),
        ("'{}' FROM t FILE_FORMAT = (TYPE = CSV) OVERWRITE = TRUE", lc.InvalidRequest, "holds dir"),
        ("'{}/f' FROM t FILE_FORMAT = (TYPE = CSV) OVERWRITE = TRUE", lc.InvalidRequest, "a file"),
    ],
)
def test_a_wrong_place_is_refused(
    tmp_path: Path, uri: str, copy: str, error: type[Exception], message: str
) -> None:
    store = open_store(uri, {})
    store.put(f"{uri}/d/a.csv", b"1,a\n")
    store.put(f"{uri}/f", b"1,a\n")
    catalog = catalog_of(tmp_path, {})

    with pytest.raises(error, match=message):
        catalog.sql("COPY INTO " + copy.replace("{}", uri))
    assert [each.path for each in store.list(uri)] == [f"{uri}/d", f"{uri}/f"]


def test_nothing_is_written_into_a_table_of_an_object_store(tmp_path: Path) -> None:
    warehouse = f"memory://copy{next(NUMBERS)}/warehouse"
    lc.connect(warehouse, create=True).sql("CREATE TABLE t (id INT)")
    target = f"{warehouse}/default.db/t/export"

    with pytest.raises(lc.InvalidRequest, match="directories of a table"):
        catalog_of(tmp_path, {}).sql(
            f"COPY INTO '{target}' FROM (SELECT 1) FILE_FORMAT = (TYPE = CSV)"
        )


def test_nothing_is_written_into_a_table_through_a_link(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "warehouse", create=True)
    session.sql("CREATE TABLE t (id INT)")
    session.sql("INSERT INTO t VALUES (1)")
    (tmp_path / "link").symlink_to(tmp_path / "warehouse/default.db/t/bucket-0")

    with pytest.raises(lc.InvalidRequest, match="directories of a table"):
        session.sql(f"COPY INTO '{tmp_path}/link/export' FROM t FILE_FORMAT = (TYPE = CSV)")
    assert session.sql("SELECT count(*) FROM t").fetchall() == [(1,)]
