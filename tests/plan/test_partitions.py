from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.format.binary_row import encode_rows
from lakecore.model.files import EMPTY_ROW, Split
from lakecore.model.validation import create_schema
from lakecore.plan.partitions import Partitions, bucket_key_fields, hash_is_settled

if TYPE_CHECKING:
    from lakecore.model.schema import TableSchema

COLUMNS = {"id": "INT", "dt": "DATE", "region": "STRING", "v": "STRING"}


def schema_of(**options: str) -> TableSchema:
    return create_schema(
        COLUMNS,
        partition_keys=["region", "dt"],
        options={key.replace("_", "-"): text for key, text in options.items()},
        now_ms=0,
    )


def serialized(schema: TableSchema, *values: tuple[str | None, date | None]) -> list[bytes]:
    columns = [
        pa.array([value[index] for value in values], schema.arrow.field(field.name).type)
        for index, field in enumerate(schema.partition_fields)
    ]
    return encode_rows(columns, [f.type for f in schema.partition_fields]).serialized()


def test_values_are_a_column_each() -> None:
    schema = schema_of()
    rows = [("eu", date(2026, 1, 2)), (None, None)]
    found = Partitions(schema, schema.parsed_options()).values(serialized(schema, *rows))

    assert found.to_pydict() == {"region": ["eu", None], "dt": [date(2026, 1, 2), None]}


def test_path_is_a_directory_for_each_key_in_order() -> None:
    schema = schema_of()
    partitions = Partitions(schema, schema.parsed_options())
    eu, none = serialized(schema, ("e/u", date(1970, 1, 3)), (None, None))

    # NOTE: dates are day numbers there, unless `partition.legacy-name` is off.
    assert partitions.path(eu) == "region=e%2Fu/dt=2"
    assert partitions.path(none) == "region=__DEFAULT_PARTITION__/dt=__DEFAULT_PARTITION__"
    assert partitions.path(eu) is partitions.path(eu)


def test_unpartitioned_table_has_no_directory() -> None:
    schema = create_schema({"id": "INT"}, options={}, now_ms=0)

    assert Partitions(schema, schema.parsed_options()).path(EMPTY_ROW) == ""


def test_options_name_the_directories() -> None:
    schema = create_schema(
        COLUMNS,
        partition_keys=["region", "dt"],
        options={"partition.legacy-name": "false", "partition.default-name": "none"},
        now_ms=0,
    )
    (partition,) = serialized(schema, (None, date(2026, 1, 2)))

    assert (
        Partitions(schema, schema.parsed_options()).path(partition) == "region=none/dt=2026-01-02"
    )


def test_texts_are_for_people() -> None:
    schema = schema_of()
    (partition,) = serialized(schema, ("eu", date(2026, 1, 2)))

    found = Partitions(schema, schema.parsed_options()).texts(partition)
    assert dict(found) == {"region": "eu", "dt": "2026-01-02"}


@pytest.mark.parametrize(
    ("keys", "options", "wanted"),
    [
        (["id"], {"bucket": "4"}, ("id",)),
        (["id", "v"], {"bucket": "4", "bucket-key": "v"}, ("v",)),
        (["dt", "id", "region"], {"bucket": "4"}, ("id",)),
        (["id"], {"bucket": "1"}, ("id",)),
        (["id"], {"bucket": "-1"}, ()),
        ([], {"bucket": "4", "bucket-key": "v,id"}, ("v", "id")),
        ([], {}, ()),
    ],
)
def test_bucket_is_chosen_by_its_key_or_the_primary_key_less_the_partition(
    keys: list[str], options: dict[str, str], wanted: tuple[str, ...]
) -> None:
    partition_keys = ["region", "dt"] if "dt" in keys else []
    schema = create_schema(
        COLUMNS, primary_keys=keys, partition_keys=partition_keys, options=options, now_ms=0
    )

    found = bucket_key_fields(schema, schema.parsed_options())
    assert tuple(field.name for field in found) == wanted


@pytest.mark.parametrize(
    ("now", "before", "settled"),
    [
        ("INT", [], True),
        ("INT NOT NULL", ["INT", "INT NOT NULL"], True),
        ("BIGINT", ["BIGINT", "INT"], False),
        ("DECIMAL(20, 2)", ["DECIMAL(10, 2)"], False),
        ("VARCHAR(5)", ["VARCHAR(5)"], True),
        ("CHAR(5)", [], False),
    ],
)
def test_buckets_tell_of_values_that_hash_as_they_always_did(
    now: str, before: list[str], *, settled: bool
) -> None:
    def schema(kind: str) -> TableSchema:
        options = {"bucket": "2", "bucket-key": "k"}
        return create_schema({"v": "INT", "k": kind}, options=options, now_ms=0)

    newest = schema(now)
    keys = bucket_key_fields(newest, newest.parsed_options())

    assert hash_is_settled(keys, [newest, *map(schema, before)]) is settled


def test_partitions_are_scanned_in_the_order_of_their_values_if_asked_for() -> None:
    schema = schema_of(**{"scan.plan-sort-partition": "true"})
    rows = [
        ("eu", date(2026, 1, 2)),
        (None, date(2026, 1, 9)),
        ("asia", date(2026, 1, 3)),
        ("eu", date(2026, 1, 1)),
        ("asia", None),
    ]
    splits = [
        Split(partition=each, partition_path="", bucket=n, total_buckets=9, runs=(), raw=True)
        for n, each in enumerate(serialized(schema, *rows))
    ]
    splits.append(replace(splits[0], bucket=9))
    seen = [split.partition for split in reversed(splits)]

    def buckets(**options: str) -> list[int]:
        partitions = Partitions(schema, schema.parsed_options(options))
        return [split.bucket for split in partitions.in_scan_order(splits, seen)]

    assert buckets() == [1, 4, 2, 3, 0, 9]
    assert buckets(**{"scan.plan-sort-partition": "false"}) == [0, 9, 4, 3, 2, 1]
    stored = [split.partition for split in splits]
    asked = Partitions(schema, schema.parsed_options())
    assert [stored.index(each) for each in asked.scan_order(stored[:5])] == [1, 4, 2, 3, 0]
    unsorted = Partitions(schema, schema_of().parsed_options())
    assert unsorted.scan_order(stored[:5]) == sorted(stored[:5])
    assert unsorted.in_scan_order(splits) == splits
    assert unsorted.in_scan_order([], []) == []
