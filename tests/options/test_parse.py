from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.options import (
    BucketFunction,
    ChangelogProducer,
    MergeEngine,
    ScanMode,
    TableOptions,
    find_option,
    parse_options,
)

ROOT = Path(__file__).parents[2]
SCHEMAS = sorted((ROOT / "tests" / "golden" / "fixtures").glob("*/table*/schema/schema-*"))


def refused(kind: type[Exception], options: dict[str, str], **how: bool) -> str:
    with pytest.raises(kind) as caught:
        parse_options(options, table="shop.orders", **how)
    return str(caught.value)


def test_no_options_mean_paimons_defaults() -> None:
    options = parse_options({})

    assert options == TableOptions()
    assert options.bucket == -1
    assert options.bucket_key == ()
    assert options.bucket_function_type is BucketFunction.DEFAULT
    assert options.merge_engine is MergeEngine.DEDUPLICATE
    assert options.changelog_producer is ChangelogProducer.NONE
    assert options.file_format == "parquet"
    assert options.file_compression == "zstd"
    assert options.file_compression_zstd_level == 1
    assert options.metadata_stats_mode == "truncate(16)"
    assert options.commit_max_retries == 10
    assert options.commit_min_retry_wait_ms == 10
    assert options.commit_max_retry_wait_ms == 10_000
    assert options.snapshot_time_retained_ms == 3_600_000
    assert options.lakecore_memory_budget_bytes == 1 << 30
    assert options.snapshot_ignore_empty_commit is None


def test_values_of_every_kind_are_read() -> None:
    options = parse_options(
        {
            "bucket": " 4 ",
            "bucket-key": "a, b",
            "merge-engine": "PARTIAL-UPDATE",
            "write-only": "TRUE",
            "target-file-size": "64 MB",
            "snapshot.time-retained": "2h",
            "file.format.per.level": "0:avro, 3:Parquet",
            "metadata.stats-mode": "TRUNCATE( 8 )",
            "compaction.small-file-ratio": "0.5",
            "rowkind.field": "kind",
            "scan.mode": "from-snapshot",
        }
    )

    assert options.bucket == 4
    assert options.bucket_key == ("a", "b")
    assert options.merge_engine is MergeEngine.PARTIAL_UPDATE
    assert options.write_only is True
    assert options.target_file_size_bytes == 64 << 20
    assert options.snapshot_time_retained_ms == 7_200_000
    assert options.file_format_per_level == {0: "avro", 3: "parquet"}
    assert options.metadata_stats_mode == "truncate(8)"
    assert options.compaction_small_file_ratio == 0.5
    assert options.rowkind_field == "kind"
    assert options.scan_mode is ScanMode.FROM_SNAPSHOT


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("7", 7), ("7b", 7), ("1 kb", 1024), ("2k", 2048), ("3 MebiBytes", 3 << 20), ("1g", 1 << 30)],
)
def test_sizes_are_powers_of_1024(text: str, size_bytes: int) -> None:
    assert parse_options({"write-buffer-size": text}).write_buffer_size_bytes == size_bytes


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("5", 5), ("5 ms", 5), ("10 s", 10_000), ("3min", 180_000), ("1 d", 86_400_000), ("9 µs", 0)],
)
def test_durations_are_milliseconds(text: str, duration_ms: int) -> None:
    assert parse_options({"commit.timeout": text}).commit_timeout_ms == duration_ms


def test_families_map_columns_to_values() -> None:
    options = parse_options(
        {
            "fields.g1,g2.sequence-group": "a,b",
            "fields.a.aggregate-function": "sum",
            "fields.b.x.ignore-retract": "true",
            "fields.default-aggregate-function": "last_value",
            "fields.a.stats-mode": "none",
            "fields.n.nested-key": "k1,k2",
        }
    )

    assert options.fields_sequence_group == {"g1,g2": ("a", "b")}
    assert options.fields_aggregate_function == {"a": "sum"}
    assert options.fields_ignore_retract == {"b.x": True}
    assert options.fields_default_aggregate_function == "last_value"
    assert options.stats_modes == {"a": "none"}
    assert options.fields_nested_key == {"n": ("k1", "k2")}


def test_older_keys_mean_the_same_and_todays_goes_first() -> None:
    assert parse_options({"write.compaction-skip": "true"}).write_only is True
    assert parse_options({"deduplicate.ignore-delete": "true"}).ignore_delete is True

    both = parse_options({"write.compaction-skip": "true", "write-only": "false"})
    assert both.write_only is False


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("bucket", "0"),
        ("bucket", "-3"),
        ("bucket", "1.5"),
        ("bucket", "99999999999"),
        ("merge-engine", "newest"),
        ("write-only", "yes"),
        ("target-file-size", "128 megs"),
        ("target-file-size", "-1"),
        ("commit.timeout", "a while"),
        ("file.format", "xlsx"),
        ("file.compression", "zip"),
        ("file.format.per.level", "avro"),
        ("metadata.stats-mode", "truncate(0)"),
        ("compaction.small-file-ratio", "2"),
        ("num-levels", "1"),
        ("compaction.offpeak.start.hour", "25"),
        ("compaction.offpeak-ratio", "-1"),
        ("fields.a.distinct", "maybe"),
        ("sink.parallelism", "many"),
    ],
)
def test_value_outside_the_domain_is_refused(key: str, text: str) -> None:
    message = refused(InvalidRequest, {key: text})

    assert f"option={key}" in message
    assert f"value={text}" in message
    assert "allowed=" in message
    assert "table=shop.orders" in message


def test_unknown_key_of_a_new_table_is_refused_with_the_nearest() -> None:
    message = refused(InvalidRequest, {"merge-engin": "deduplicate"}, creating=True)

    assert "unknown table option" in message
    assert "did_you_mean=merge-engine" in message


def test_unknown_key_of_an_existing_table_is_unsupported_until_ignored() -> None:
    message = refused(Unsupported, {"shiny.mode": "on"})

    assert "lakecore.ignore-options=shiny.mode" in message
    ignored = parse_options({"shiny.mode": "on", "lakecore.ignore-options": "shiny.*, x"})
    assert ignored.lakecore_ignore_options == ("shiny.*", "x")
    assert "shiny.mode" not in ignored.texts


def test_option_that_does_nothing_any_more_may_stay_and_not_come() -> None:
    options = {"fields.v.default-value": "5"}
    stored = parse_options(options)
    stored.require_readable()
    stored.require_writable(primary_keys=("k",))

    message = refused(InvalidRequest, options, creating=True)
    assert "does nothing any more. option=fields.v.default-value" in message
    assert "columns have default values" in message


def test_option_that_decides_rows_cannot_be_ignored() -> None:
    message = refused(
        InvalidRequest, {"merge-engine": "first-row", "lakecore.ignore-options": "merge-*"}
    )

    assert "option=merge-engine" in message


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: "-".join(path.parts[-4:]))
def test_options_of_every_golden_table_are_known(path: Path) -> None:
    stored = json.loads(path.read_text())["options"]

    options = parse_options(stored, table=path.parts[-4])

    assert options.texts == stored
    assert all(find_option(key) for key in stored)
