"""Files and tables of remote storage are read by their URI, with the options of the catalog."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.cli.app import main
from lakecore.errors import NotFound, StorageError
from tests.stores import s3_service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stores import S3Service

IN = "s3://warehouse/in"


@pytest.fixture(scope="module")
def service() -> Iterator[S3Service]:
    with s3_service() as running, running.client() as client:
        client.create_bucket(Bucket="warehouse")
        for name, text in (("a.csv", "id,n\n1,10\n"), ("b.csv", "id,n\n2,20\n")):
            client.put_object(Bucket="warehouse", Key=f"in/{name}", Body=text.encode())
        client.put_object(Bucket="warehouse", Key="in/x/c.json.gz", Body=gzip.compress(b'{"id":3}'))
        yield running


@pytest.fixture(scope="module")
def session(service: S3Service) -> lc.Session:
    session = lc.connect({"warehouse": "s3://warehouse/wh", **service.options}, create=True)
    session.create_database("d")
    session.create_table("d.t", {"id": "INT", "n": "INT"}).write([{"id": 7, "n": 70}])
    return session


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        ("'s3://warehouse/wh/d.db/t'", [(7,)]),
        ("'s3a://warehouse/wh/d.db/t'", [(7,)]),
        (f"'{IN}/a.csv'", [(1,)]),
        (f"read_csv('{IN}/*.csv')", [(1,), (2,)]),
        (f"read_csv(['{IN}/b.csv', '{IN}/a.csv'])", [(1,), (2,)]),
        (f"read_json('{IN}/**/*.json.gz')", [(3,)]),
        ("(SELECT * FROM read_parquet('s3://warehouse/wh/d.db/t/bucket-*/*.parquet'))", [(7,)]),
    ],
)
def test_a_query_names_remote_files_and_tables(
    session: lc.Session, source: str, rows: list[tuple[int]]
) -> None:
    assert session.sql(f"SELECT id FROM {source} ORDER BY id").fetchall() == rows


def test_a_missing_remote_file_is_named(session: lc.Session) -> None:
    with pytest.raises((NotFound, StorageError), match=r"none\.csv"):
        session.sql(f"FROM read_csv('{IN}/none.csv')")


def test_a_storage_that_refuses_a_file_is_a_storage_error(
    session: lc.Session, service: S3Service
) -> None:
    service.keys = {"others"}
    try:
        with pytest.raises(StorageError, match="credentials"):
            session.sql(f"FROM read_csv('{IN}/a.csv')")
    finally:
        service.be_well()


@pytest.mark.parametrize("command", ["import", "write", "merge"])
def test_commands_read_remote_files(
    session: lc.Session, service: S3Service, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = f"d.{command}"
    session.create_table(table, {"id": "INT NOT NULL", "n": "INT"}, primary_keys=["id"])
    options = [f"--option={key}={text}" for key, text in service.options.items()]
    place = ["--warehouse", "s3://warehouse/wh", *options]
    more = ["--on", "id", "--when-not-matched", "INSERT *"] if command == "merge" else []

    with pytest.raises(SystemExit) as ended:
        main([command, table, f"{IN}/a.csv", *place, *more])

    assert ended.value.code == 0, capsys.readouterr().err
    assert session.get_table(table).to_arrow().to_pylist() == [{"id": 1, "n": 10}]
