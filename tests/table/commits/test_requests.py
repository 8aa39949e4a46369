"""How many requests the verbs send to an object store; they cost money and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from lakecore import connect
from lakecore.io.stores.store import MemoryStore
from lakecore.table.commits import commit_change
from tests.stores import RequestCounter, s3_service
from tests.tables import new_table, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakecore.io.stores.store import Store
    from lakecore.session import Session
    from lakecore.table.handle import Table
    from tests.stores import S3Service

COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}
FEW = " | ".join(f"{number} a" for number in range(40))
ROUNDS = 10


def counted() -> tuple[Table, RequestCounter]:
    """A keyed table of 4 buckets with some commits behind it, and the counter of its requests."""
    made = new_table(
        COLUMNS,
        bucket="4",
        snapshot__num_retained__min="3",
        snapshot__num_retained__max="3",
    )
    store = RequestCounter(made.context.store)
    table = reopened(made, store=store)
    for _ in range(8):
        table.write(rows(table.schema, FEW))
    store.requests.clear()
    store.listed.clear()
    return table, store


def of_each(
    store: RequestCounter, verb: Callable[[], object], rounds: int = ROUNDS
) -> Mapping[str, float]:
    """The requests of a call, by kind, on average."""
    for _ in range(rounds):
        verb()
    return {kind: count / rounds for kind, count in store.requests.items()}


VERBS: Mapping[str, tuple[Callable[[Table], object], Mapping[str, float]]] = {
    "write": (
        lambda table: table.write(rows(table.schema, FEW)),
        {"GET": 27.9, "PUT": 12.4, "LIST": 4, "DELETE": 7.9},
    ),
    "write of one bucket": (
        lambda table: table.write(rows(table.schema, "1 b")),
        {"GET": 23.4, "PUT": 8.5, "LIST": 4, "DELETE": 4.9},
    ),
    "delete": (
        lambda table: (table.write(rows(table.schema, "3 c")), table.delete("id = 3")),
        {"GET": 62, "PUT": 16.6, "LIST": 8, "DELETE": 13},
    ),
    "compact, nothing to do": (lambda table: table.compact(), {"GET": 5, "LIST": 1}),
    "create and delete a tag": (
        lambda table: (table.create_tag("t"), table.delete_tag("t")),
        {"GET": 14, "PUT": 2, "LIST": 3, "DELETE": 2},
    ),
    "expire, nothing to do": (lambda table: table.expire_snapshots(), {"GET": 7}),
    "plan": (lambda table: table.explain(), {"GET": 4}),
    "count": (lambda table: table.count(), {"GET": 20}),
}
"""What a call does in a table that compacts and expires, and its most requests by kind."""


UPSERT = {"GET": 6, "PUT": 6}
"""What an upsert of a bucket sends if nothing else happens: LATEST, the snapshot after it and the
snapshot, the mark of a drop, the schema after the newest one, and the snapshot again; data,
manifest, two lists, snapshot, hint."""


def one_bucket(store: Store) -> Table:
    table = new_table(COLUMNS, bucket="1", num_sorted_run__compaction_trigger="50", store=store)
    table.write(rows(table.schema, FEW))
    table.write(rows(table.schema, FEW))
    return table


def test_an_upsert_reads_each_fact_once() -> None:
    store = RequestCounter(MemoryStore())
    table = one_bucket(store)
    for _ in range(3):
        store.requests.clear()
        table.write(rows(table.schema, FEW))
        assert dict(store.requests) == UPSERT


def test_an_upsert_that_compacts_looks_once_for_the_newest_snapshot() -> None:
    store = RequestCounter(MemoryStore())
    table = one_bucket(store).copy({"num-sorted-run.compaction-trigger": "3"})
    table.write(rows(table.schema, FEW))
    table.write(rows(table.schema, FEW))
    store.requests.clear()
    result = table.write(rows(table.schema, FEW))

    assert result.facts["files_compacted"] == 3
    # More than an upsert: the files are read, and a second snapshot is published. LATEST is
    # written once.
    assert dict(store.requests) == {"GET": UPSERT["GET"] + 3 + 1, "PUT": UPSERT["PUT"] + 5}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Service]:
    with s3_service() as service, service.client() as client:
        client.create_bucket(Bucket="warehouse")
        yield service


def on(s3: S3Service) -> Session:
    return connect({"warehouse": "s3://warehouse/w", **s3.options}, create=True)


def sent(s3: S3Service, verb: Callable[[], object]) -> Mapping[str, int]:
    """The requests of a call, as they arrive at the service."""
    s3.requests.clear()
    s3.sent_bytes = 0
    verb()
    return dict(s3.requests)


def test_an_upsert_on_the_wire(s3: S3Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_change, "RECENT_MS", 600_000)  # this machine may be busy
    session = on(s3)
    session.create_database("upserts")
    options = {"bucket": "1", "num-sorted-run.compaction-trigger": "50"}
    table = session.create_table("upserts.t", COLUMNS, primary_keys=["id"], options=options)
    data = [{"id": number, "v": "a"} for number in range(40)]
    table.write(data)
    table.write(data)

    assert [sent(s3, lambda: table.write(data)) for _ in range(2)] == [UPSERT, UPSERT]


@pytest.mark.parametrize("keys", [["id"], None])
def test_a_read_of_two_files_on_the_wire(s3: S3Service, keys: list[str] | None) -> None:
    session, name = on(s3), f"reads.{'k' if keys else 'a'}"
    session.create_database("reads", ignore_if_exists=True)
    table = session.create_table(
        name,
        COLUMNS,
        primary_keys=keys,
        options={"write-only": "true", "bucket": "1" if keys else "-1"},
    )
    for _ in range(2):
        table.write([{"id": 1, "v": "a"}])
    table = on(s3).get_table(name)

    # LATEST, the snapshot after it and the snapshot, the schema, two lists, two manifests, two
    # files; then the snapshot proves that the table is the same.
    assert sent(s3, table.to_arrow) == {"GET": 10}
    assert sent(s3, table.to_arrow) == {"GET": 5}


@pytest.mark.parametrize("keys", [["id"], None])
def test_head_reads_the_first_pages(s3: S3Service, keys: list[str] | None) -> None:
    chance, rows = np.random.default_rng(1), 300_000
    data = pa.table(
        {
            "id": np.arange(rows),
            "a": chance.random(rows),
            "b": chance.integers(0, 1 << 60, rows),
            "c": [str(number) for number in chance.integers(0, 1 << 40, rows)],
            "d": chance.random(rows),
        }
    )
    session, name = on(s3), f"heads.{'k' if keys else 'a'}"
    session.create_database("heads", ignore_if_exists=True)
    session.create_table(
        name, data=data, primary_keys=keys, options={"bucket": "1" if keys else "-1"}
    )
    table = on(s3).get_table(name)
    found = []

    assert sent(s3, lambda: found.append(table.head(5))) == {"GET": 8 + 5}
    assert found[0].equals(pl.DataFrame(data.slice(0, 5)))
    assert s3.sent_bytes <= 1_000_000


@pytest.mark.parametrize("name", VERBS)
def test_requests_of_a_verb(name: str) -> None:
    verb, most = VERBS[name]
    table, store = counted()
    found = of_each(store, lambda: verb(table))

    assert {kind: count for kind, count in found.items() if count > most.get(kind, 0)} == {}


def test_rows_of_a_table_without_keys_are_counted_by_its_snapshot() -> None:
    made = new_table(COLUMNS, keys=())
    for _ in range(3):
        made.write(rows(made.schema, FEW))
    store = RequestCounter(made.context.store)
    table = reopened(made, store=store)
    store.requests.clear()

    assert table.count() == 3 * FEW.count("|") + 3
    assert store.requests == {"GET": 4}
