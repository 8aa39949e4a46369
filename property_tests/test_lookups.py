"""Look-ups find what reads show: by key, by a part of it, by other columns, with and without cache.

The model is one of look-ups, not of writes: a read of all rows and a plain loop over the keys.
Histories write, delete, compact and change columns; handles that were opened at the beginning
follow them.
"""

from __future__ import annotations

import threading
from datetime import date
from decimal import Decimal
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakecore.io.ambient import SYSTEM
from lakecore.io.files.file_format import WriteFormat
from lakecore.io.stores.store import MemoryStore
from tests.tables import new_table, reopened

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from lakecore.table.handle import Table
    from lakecore.table.lookups.lookup import Lookup

SHAPES: dict[str, dict[str, Any]] = {
    "one number": {"columns": {"k": "BIGINT NOT NULL"}, "keys": ["k"]},
    "texts": {"columns": {"k": "STRING NOT NULL"}, "keys": ["k"]},
    "two columns": {"columns": {"k": "INT NOT NULL", "l": "STRING NOT NULL"}, "keys": ["l", "k"]},
    "partitions": {
        "columns": {"k": "DECIMAL(20, 0) NOT NULL", "p": "DATE NOT NULL"},
        "keys": ["k", "p"],
        "partitions": ["p"],
    },
    "floats": {"columns": {"k": "DOUBLE NOT NULL"}, "keys": ["k"]},
}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "sequence": {"sequence.field": "n"},
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update", "ignore-delete": "true"},
    "aggregation": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "lookup": {"changelog-producer": "lookup"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "vectors, merged": {
        "deletion-vectors.enabled": "true",
        "deletion-vectors.merge-on-read": "true",
    },
}
POOLS: dict[str, list[Any]] = {
    "BIGINT": [-(1 << 62), *range(-3, 12), 1 << 62],
    "INT": [*range(-2, 5)],
    "STRING": ["", "a", "aa", "b", "é", "zz"],
    "DECIMAL(20, 0)": [Decimal(n) for n in (-(10**19), -1, 0, 1, 2, 3, 10**19)],
    "DATE": [date(2024, 1, day) for day in (1, 2, 3)],
    "DOUBLE": [0.0, -0.0, 1.5, -1.5, float("inf")],
}
TYPES = {"v": "STRING", "n": "BIGINT"}


def kind_of(shape: dict[str, Any], name: str) -> str:
    kind: str = {**shape["columns"], **TYPES}[name]
    return kind.removesuffix(" NOT NULL")


def drawn(random: Random, shape: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: random.choice(POOLS[kind_of(shape, name)]) for name in names}


def expected(rows: pl.DataFrame, keys: Sequence[dict[str, Any]]) -> list[list[tuple[Any, ...]]]:
    """For each key, its rows."""
    held = rows.to_dicts()
    return [
        sorted(
            (tuple(row.values()) for row in held if all(row[n] == v for n, v in key.items())),
            key=repr,
        )
        if None not in key.values()
        else []
        for key in keys
    ]


def grouped(found: pl.DataFrame, sizes: Sequence[int]) -> list[list[tuple[Any, ...]]]:
    rows, out, at = found.rows(), [], 0
    for size in sizes:
        out.append(sorted(rows[at : at + size], key=repr))
        at += size
    assert at == len(rows)
    return out


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of two rows, so that blocks have bounds."""
    in_twos = partial(WriteFormat, row_group_rows=2)
    monkeypatch.setattr("lakecore.table.run_writer.file_shape.WriteFormat", in_twos)


def check(table: Table, shape: dict[str, Any], lookups: Sequence[Lookup], random: Random) -> None:
    rows = table.to_polars()
    columns = [shape["keys"], shape["keys"][:1], ["n"], ["v"]]
    for names in (columns[0], random.choice(columns[1:])):
        keys = [drawn(random, shape, names) for _ in range(6)]
        keys += [keys[0], dict.fromkeys(names)]
        wanted = expected(rows, keys)
        sizes = [len(each) for each in wanted]

        assert grouped(table.lookup(keys), sizes) == wanted, (names, keys)
        for lookup in lookups:
            if set(lookup._columns.on) == set(names):  # noqa: SLF001
                lookup.refresh()
                assert grouped(lookup.rows(keys), sizes) == wanted, (lookup, keys)


@pytest.mark.usefixtures("small_pieces")
@given(
    engine=st.sampled_from([*ENGINES]),
    shape=st.sampled_from([*SHAPES]),
    file_format=st.sampled_from(["parquet", "parquet", "orc", "avro"]),
    bucket=st.sampled_from(["1", "3", "-1"]),
    seed=st.integers(0, 1 << 20),
)
@settings(max_examples=settings().max_examples // 4)
def test_lookups_find_what_reads_show(
    engine: str, shape: str, file_format: str, bucket: str, seed: int
) -> None:
    made, random = SHAPES[shape], Random(seed)
    stated = {"bucket": bucket, "file.format": file_format, **ENGINES[engine]}
    options: dict[str, Any] = {
        key.replace(".", "__").replace("-", "_"): text for key, text in stated.items()
    }
    table = new_table(
        {**made["columns"], **TYPES},
        keys=made["keys"],
        partitions=made.get("partitions", ()),
        **options,
    )
    cached = [
        table.open_lookup(),
        table.open_lookup(on=made["keys"][:1]),
        table.open_lookup(on="n"),
        table.copy({"lookup.cache": "FULL"}).open_lookup(),
        table.copy({"lookup.cache-max-memory-size": "1 b"}).open_lookup(),
    ]
    deletes = engine not in ("first-row", "partial-update", "aggregation")
    for _ in range(4):
        batch = []
        for _ in range(random.randrange(1, 9)):
            row = drawn(random, made, made["keys"])
            for name in TYPES:
                row[name] = None if random.random() < 0.3 else random.choice(POOLS[TYPES[name]][:6])
            if engine == "aggregation" and row["n"] is not None:
                row["n"] %= 7
            row["_row_kind"] = "-D" if deletes and random.random() < 0.2 else "+I"
            batch.append(row)
        table.write(batch)
        if random.random() < 0.3:
            table.compact(full=random.random() < 0.5)
        check(table, made, cached, random)
    for lookup in cached:
        lookup.close()


def test_lookups_of_threads_see_a_snapshot_while_others_commit() -> None:
    """Each snapshot holds the same number in all rows, so a look-up must return one number."""
    store = MemoryStore()
    table = new_table(
        {"id": "INT NOT NULL", "v": "INT"},
        store=store,
        ambient=SYSTEM,
        continuous__discovery_interval="1 ms",
        num_sorted_run__compaction_trigger="3",
        snapshot__num_retained__min="1",
        snapshot__num_retained__max="2",
        snapshot__time_retained="1 ms",
    )
    ids = list(range(50))
    table.write({"id": ids, "v": [0] * 50})
    lookup = table.open_lookup()
    errors: list[BaseException] = []
    seen: list[int] = []
    stop = threading.Event()

    def look() -> None:
        last = -1
        try:
            while not stop.is_set():
                rows = lookup.rows({"id": ids})
                assert rows["id"].to_list() == ids
                (number,) = rows["v"].unique().to_list()
                assert number >= last - 1
                last = number
                seen.append(number)
        except BaseException as error:  # noqa: BLE001  shown by the test
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    writer = reopened(table, store=store, ambient=SYSTEM)
    for number in range(1, 12):
        writer.write({"id": ids, "v": [number] * 50})
    stop.set()
    for thread in threads:
        thread.join()
    lookup.refresh()

    assert errors == []
    assert lookup.rows({"id": [3]})["v"].to_list() == [11]
    assert len(seen) > 10
