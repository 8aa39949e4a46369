"""No verb raises an error of the storage's own client, for whatever format of data files."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import botocore.exceptions  # type: ignore[import-untyped]
import pytest
import s3fs.core

import lakecore as lc
from lakecore.errors import InvalidRequest, LakecoreError, StorageError
from lakecore.io.stores.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.stores import S3Service

READS: dict[str, Callable[[lc.Session, lc.Table], object]] = {
    "to_arrow": lambda _, t: t.to_arrow(),
    "scan": lambda _, t: t.scan().collect(),
    "to_batches": lambda _, t: list(t.to_batches()),
    "to_arrow_dataset": lambda _, t: t.to_arrow_dataset().to_table(),
    "to_duckdb": lambda _, t: t.to_duckdb().fetchall(),
    "lookup": lambda _, t: t.lookup({"id": 1}),
    "sql": lambda s, t: s.sql(f"SELECT sum(v) FROM {t.identifier}").fetchall(),
    "stream": lambda _, t: [rows.collect() for _, rows in t.stream(1, "latest")],
    "compact": lambda _, t: t.compact(full=True),
    "delete": lambda _, t: t.delete("v = 1"),
    "merge": lambda _, t: (
        t.merge([{"id": 1, "v": 3}], on="id")
        .when_matched_update({"v": lc.sql_expr("source.v")})
        .execute()
    ),
}
WRITES: dict[str, Callable[[lc.Session, lc.Table], object]] = {
    "write": lambda _, t: t.write([{"id": 1, "v": 7}]),
    "insert": lambda s, t: s.sql(f"INSERT INTO {t.identifier} VALUES (1, 2)"),
    **{name: READS[name] for name in ("compact", "delete", "merge")},
}
CASES = [
    *[(verb, "get_object") for verb in READS],
    *[(verb, "put_object") for verb in WRITES],
]


@contextmanager
def client_that_fails(method: str) -> Iterator[None]:
    """S3's client raises its own error at each request of this method for a data file, at once."""
    client = s3fs.core.S3FileSystem
    sent = vars(client)["_call_s3"]

    async def fail(self: Any, wanted: str, *arguments: Any, **named: Any) -> Any:
        if wanted == method and "data-" in str(named.get("Key")):
            raise botocore.exceptions.EndpointConnectionError(endpoint_url=f"x/{named['Key']}")
        return await sent(self, wanted, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakecore.io.stores.services._WAIT_SECONDS", 0)
        patch.setattr(client, "_call_s3", fail)
        yield


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_each_verb_translates_the_errors_of_the_client(s3: S3Service, file_format: str) -> None:
    options = {"warehouse": f"s3://warehouse/errors-{file_format}", **s3.options}
    session = lc.connect(options, create=True)
    session.create_database("d")
    table = session.create_table(
        f"d.{file_format}",
        {"id": "INT NOT NULL", "v": "INT"},
        primary_keys=["id"],
        options={"bucket": "1", "file.format": file_format, "write-only": "true"},
    )
    for v in range(2):
        table.write([{"id": n, "v": v} for n in range(50)])
    raised = {}
    for verb, method in CASES:
        read = session.get_table(f"d.{file_format}")
        with client_that_fails(method):
            try:
                (READS | WRITES)[verb](session, read)
                raised[verb, method] = "nothing"
            except StorageError as error:
                raised[verb, method] = "" if "data-" in str(error) else str(error)
            except LakecoreError as error:
                raised[verb, method] = repr(error)

    assert {case: how for case, how in raised.items() if how} == {}


def test_a_storage_that_falls_silent_is_given_up_in_time(s3: S3Service) -> None:
    store = open_store("s3://warehouse", {**s3.options, "lakecore.answer-timeout": "200 ms"})
    store.put("s3://warehouse/silent/file", b"x")
    s3.silent_seconds = 10
    began = time.monotonic()
    for call in (store.read, store.size, store.list, store.open_input):
        with pytest.raises(StorageError):
            call("s3://warehouse/silent/file")

    assert time.monotonic() - began < 8


@pytest.mark.parametrize("option", ["lakecore.answer-timeout", "lakecore.connect-timeout"])
def test_a_timeout_is_a_duration_above_zero(option: str) -> None:
    for text in ("soon", "0 s"):
        with pytest.raises(InvalidRequest, match=option):
            open_store("s3://warehouse", {option: text})


def test_each_kind_of_request_is_repeated_while_the_storage_is_busy(
    s3: S3Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"warehouse": "s3://warehouse/busy", **s3.options}
    session = lc.connect(options, create=True)
    session.create_database("d")
    table = session.create_table("d.t", {"id": "INT NOT NULL"}, primary_keys=["id"])
    table.write([{"id": 1}])
    table.write([{"id": 2}])
    sent = vars(s3fs.core.S3FileSystem)["_call_s3"]
    refused = set[str]()

    async def busy(self: Any, method: str, *arguments: Any, **named: Any) -> Any:
        if method not in refused:
            refused.add(method)
            reply = {"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}
            error = botocore.exceptions.ClientError(reply, method)
            raise s3fs.core.translate_boto_error(error)
        return await sent(self, method, *arguments, **named)

    monkeypatch.setattr("lakecore.io.stores.services._WAIT_SECONDS", 0)
    monkeypatch.setattr(s3fs.core.S3FileSystem, "_call_s3", busy)

    read = lc.connect(options)
    assert read.list_tables("d") == ("t",)
    assert read.get_table("d.t").count() == 2
    table.compact(full=True)
    table.expire_snapshots(retain_max=1, retain_min=1)
    assert {"get_object", "list_objects_v2", "delete_objects"} <= refused
