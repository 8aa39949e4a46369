from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from lakecore.errors import Unsupported
from lakecore.options import (
    Effect,
    Option,
    TableOptions,
    parse_options,
)
from tests.reference_pages import describe_options

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"type": "format-table"}, "type"),
        ({"vector.file.format": "vortex"}, "vector.file.format"),
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
        ({"data-file.external-paths": "s3://b/x"}, "data-file.external-paths"),
        ({"metadata.iceberg.hive-conf-dir": "/etc"}, "metadata.iceberg.hive-conf-dir"),
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
        {"deletion-vectors.enabled": "true"},
        {"data-file.thin-mode": "true"},
        {"row-tracking.enabled": "false"},
        {"file-index.bitmap.columns": "a", "lakecore.ignore-options": "file-index.*"},
        {"file-index.bitmap.columns": "a", "file-index.bitmap.a.version": "1"},
        {"sink.parallelism": "4", "parquet.page.size": "1", "snapshot.num-retained.max": "3"},
    ],
)
def test_what_lakecore_does_is_writable(options: dict[str, str]) -> None:
    parsed = parse_options(options)

    parsed.require_readable()
    parsed.require_writable(primary_keys=("k",))


def test_key_without_the_partition_keys_needs_dynamic_buckets() -> None:
    parse_options({}).require_writable(primary_keys=("k", "p"), partition_keys=("p",))
    parse_options({}).require_writable(primary_keys=(), partition_keys=("p",))

    with pytest.raises(Unsupported, match=r"lacks partition keys .*missing=\[p\]"):
        parse_options({"bucket": "2"}).require_writable(primary_keys=("k",), partition_keys=("p",))
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


FAMILIES = {
    "blob_descriptor_storage",
    "metadata_iceberg_rest",
    "metadata_iceberg_table_properties",
}


def test_attributes_are_keys_with_their_unit() -> None:
    for name in TableOptions.__dataclass_fields__:
        if name in {"texts", "table", "stats_modes", "file_index_columns", "file_index_settings"}:
            continue
        if name in FAMILIES:
            continue
        bare = name.removesuffix("_bytes").removesuffix("_ms")
        spelled = {
            each.key.replace("fields.#.", "fields.").replace(".", "_").replace("-", "_")
            for each in describe_options()
        }

        assert bare in spelled, name


REFUSED = [known for known in describe_options() if not known.supported]
TEXTS = ("true", "false", "7", "7 h", "7 kb", "0:none", "x", "snapshot", "drop")


def another_value(known: Option) -> str:
    """A text of the option's domain that is not its default."""
    for text in TEXTS:
        try:
            if known.kind.parse(text) != known.default:
                return text
        except ValueError:
            continue
    raise AssertionError(known.key)


@pytest.mark.parametrize("known", REFUSED, ids=lambda known: known.key)
def test_every_option_said_to_be_refused_is(known: Option) -> None:
    key = known.key.replace("#", "a")
    parsed = parse_options({key: another_value(known)})

    with pytest.raises(Unsupported, match=f"option={re.escape(key)} "):
        parsed.require_writable(primary_keys=("k",))
    if known.effect is Effect.READ:
        with pytest.raises(Unsupported, match=f"option={re.escape(key)} "):
            parsed.require_readable()


@pytest.mark.parametrize("file_format", ["csv", "json", "text"])
def test_table_of_text_files_is_known_and_not_written(file_format: str) -> None:
    options = {"csv.field-delimiter": ";", "csv.escape-character": "|", "json.line-delimiter": "\n"}

    parsed = parse_options({"file.format": file_format, **options})

    parsed.require_readable()
    with pytest.raises(Unsupported, match=r"option=file.format "):
        parsed.require_writable(primary_keys=("k",))


def test_secrets_are_not_shown() -> None:
    texts = {"blob-descriptor.s3.secret-key": "hunter2", "bucket": "2"}
    options = parse_options(texts)

    for shown in (str(options), repr(options), options._repr_html_()):
        assert "hunter2" not in shown
        assert "blob-descriptor.s3.secret-key" in shown
    assert options.shown == {"blob-descriptor.s3.secret-key": "***", "bucket": "2"}
    assert options.blob_descriptor_storage == {"s3.secret-key": "hunter2"}
