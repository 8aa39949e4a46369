from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.options import (
    BucketFunction,
    ChangelogProducer,
    Effect,
    MergeEngine,
    ScanMode,
    TableOptions,
    describe_options,
    find_option,
    options_page,
    parse_options,
)

ROOT = Path(__file__).parents[1]
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


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"data-evolution.enabled": "true"}, "data-evolution.enabled"),
        ({"sequence.snapshot-ordering": "true"}, "sequence.snapshot-ordering"),
        ({"type": "format-table"}, "type"),
        ({"blob-field": "b"}, "blob-field"),
        ({"vector-field": "v"}, "vector-field"),
        ({"pk-clustering-override": "true"}, "pk-clustering-override"),
        ({"scan.mode": "latest-delta"}, "scan.mode"),
        ({"incremental-to-auto-tag": "t"}, "incremental-to-auto-tag"),
        ({"fields.m.map.storage-layout": "shared-shredding"}, "fields.m.map.storage-layout"),
        ({"manifest.format": "csv"}, "manifest.format"),
        ({"postpone.merge-on-read": "true"}, "postpone.merge-on-read"),
    ],
)
def test_option_that_readers_do_not_do_is_unsupported(options: dict[str, str], key: str) -> None:
    parsed = parse_options(options, table="shop.orders")

    with pytest.raises(Unsupported, match=f"reading a table .* option={key} .*table=shop.orders"):
        parsed.require_readable()
    with pytest.raises(Unsupported, match=f"writing a table .* option={key} "):
        parsed.require_writable(primary_keys=("k",))


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"bucket": "-2"}, "bucket"),
        ({"row-tracking.enabled": "true"}, "row-tracking.enabled"),
        ({"file-index.bitmap.columns": "a"}, "file-index.bitmap.columns"),
        ({"data-file.external-paths": "s3://b/x"}, "data-file.external-paths"),
        ({"clustering.incremental": "true"}, "clustering.incremental"),
        ({"metadata.iceberg.storage": "table-location"}, "metadata.iceberg.storage"),
        ({"deletion-vectors.enabled": "true"}, "deletion-vectors.enabled"),
        ({"file.format": "csv"}, "file.format"),
    ],
)
def test_option_that_writers_do_not_do_leaves_the_table_readable(
    options: dict[str, str], key: str
) -> None:
    parsed = parse_options(options)

    parsed.require_readable()
    with pytest.raises(Unsupported, match=f"option={key} "):
        parsed.require_writable(primary_keys=("k",))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"changelog-producer": "input"},
        {"changelog-producer": "lookup"},
        {"changelog-producer": "full-compaction"},
        {"merge-engine": "first-row"},
        {"delete.force-produce-changelog": "true"},
        {"deletion-vectors.enabled": "true", "write-only": "true"},
        {"data-file.thin-mode": "true"},
        {"row-tracking.enabled": "false"},
        {"file-index.bitmap.columns": "a", "lakecore.ignore-options": "file-index.*"},
        {"sink.parallelism": "4", "parquet.page.size": "1", "snapshot.num-retained.max": "3"},
    ],
)
def test_what_lakecore_does_is_writable(options: dict[str, str]) -> None:
    parsed = parse_options(options)

    parsed.require_readable()
    parsed.require_writable(primary_keys=("k",))


def test_append_table_with_deletion_vectors_is_writable_once_known_to_be_one() -> None:
    parsed = parse_options({"deletion-vectors.enabled": "true"})

    parsed.require_writable(primary_keys=())
    with pytest.raises(Unsupported, match="write-only=true"):
        parsed.require_writable()


def test_key_without_the_partition_keys_is_not_writable() -> None:
    parse_options({}).require_writable(primary_keys=("k", "p"), partition_keys=("p",))
    parse_options({}).require_writable(primary_keys=(), partition_keys=("p",))

    with pytest.raises(Unsupported, match=r"lacks partition keys .*missing=\[p\]"):
        parse_options({}).require_writable(primary_keys=("k",), partition_keys=("p",))


def test_derived_values_follow_what_is_set() -> None:
    assert TableOptions().target_file_size(primary_key=True) == 128 << 20
    assert TableOptions().target_file_size(primary_key=False) == 256 << 20
    assert parse_options({"target-file-size": "1 kb"}).target_file_size(primary_key=True) == 1024
    assert TableOptions().level_count == 6
    assert parse_options({"num-sorted-run.compaction-trigger": "2"}).level_count == 3
    assert TableOptions().stop_trigger == 8
    assert parse_options({"num-sorted-run.stop-trigger": "1"}).stop_trigger == 5


def test_options_cross_process_borders() -> None:
    options = parse_options({"bucket": "2", "fields.a.aggregate-function": "sum"}, table="t")

    assert pickle.loads(pickle.dumps(options)) == options


def test_every_option_is_declared_once_and_its_default_is_in_its_domain() -> None:
    known = describe_options()
    keys = [each.key for each in known]

    assert len(keys) == len(set(keys))
    for each in known:
        assert each.meaning.endswith("."), each.key
        if each.default_text and each.key != "snapshot.num-retained.max":
            assert each.kind.parse(each.default_text) == each.default, each.key
        assert each.supported or each.effect in {Effect.READ, Effect.WRITE}, each.key


def test_attributes_are_keys_with_their_unit() -> None:
    for name in TableOptions.__dataclass_fields__:
        if name in {"texts", "table", "stats_modes"}:
            continue
        bare = name.removesuffix("_bytes").removesuffix("_ms")
        spelled = {
            each.key.replace("fields.#.", "fields.").replace(".", "_").replace("-", "_")
            for each in describe_options()
        }

        assert bare in spelled, name


def test_page_of_options_is_up_to_date() -> None:
    page = ROOT / "docs" / "options.md"
    remedy = "python -c 'from lakecore.options import *; print(options_page(), end=\"\")'"

    assert page.read_text() == options_page(), f"write it anew: {remedy} > docs/options.md"
