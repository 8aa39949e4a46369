"""The numbers of tables and pipelines, what they advise, and their text for Prometheus."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

import lakecore as lc
from lakecore.catalog.catalog import Catalog
from lakecore.catalog.filesystem import DirectoryNames
from lakecore.catalog.options import parse_catalog_options
from lakecore.catalog.registry import open_catalog
from lakecore.cdc.events import SourceTable
from lakecore.cdc.quarantine import SetAside
from lakecore.cdc.state import PipelineState, StateFiles
from lakecore.io.ambient import SYSTEM, seeded
from lakecore.io.stores.open import open_store
from lakecore.io.stores.store import MemoryStore
from lakecore.metrics import METRICS, Counted, Lag, Numbers, advice_of, prometheus, upkeep_of
from tests.stores import RequestCounter
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Mapping

SAMPLE = re.compile(r'([a-z_]\w*)(?:\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')


def parsed(text: str) -> dict[tuple[str, str], float]:
    """The samples of a text in the format of Prometheus, by name and labels."""
    samples: dict[tuple[str, str], float] = {}
    typed = ""
    assert text == "" or text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            typed = line.split(" ")[2]
        elif not line.startswith("# HELP "):
            found = SAMPLE.fullmatch(line)
            assert found is not None, line
            assert found[1] == typed, "the samples of a metric follow its type"
            assert (found[1], found[2] or "") not in samples
            samples[found[1], found[2] or ""] = float(found[3])
    return samples


def test_the_page_lists_every_metric() -> None:
    page = (Path(__file__).parents[1] / "docs" / "ui.md").read_text(encoding="utf-8")

    assert re.findall(r"^\| `(lakecore_\w+)` \|", page, re.MULTILINE) == list(METRICS)


def catalog_at(place: Path) -> Catalog:
    return open_catalog({"warehouse": str(place)}, create=True)


def test_each_metric_of_a_table_says_what_the_table_holds(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("shop")
    options = {"bucket": "1", "write-only": "true"}
    keyed = session.create_table("shop.k", {"id": "INT"}, primary_keys=["id"], options=options)
    for number in range(3):
        keyed.write([{"id": number}, {"id": number + 1}])
    keyed.reset_consumer("late", 2)
    plain = session.create_table("shop.p", {"id": "INT"})
    plain.write(pl.DataFrame({"id": [1, 2, 3]}))
    session.create_table("shop.e", {"id": "INT"})

    found = parsed(prometheus(catalog_at(tmp_path / "w"), Numbers()))

    def of(table: str) -> dict[str, float]:
        labels = f'database="shop",table="{table}"'
        return {name: value for (name, own), value in found.items() if own.startswith(labels)}

    files = keyed.inspect.files()
    got = {name.removeprefix("lakecore_"): value for name, value in of("k").items()}
    assert got.pop("table_snapshot_age_seconds") >= 0
    assert got.pop("consumer_lag_seconds") >= 0
    assert got == {
        "table_readable": 1,
        "table_snapshot_id": 3,
        "table_stored_rows": 6,
        "table_live_files": 3,
        "table_size_bytes": files["file_size_in_bytes"].sum(),
        "table_buckets": 1,
        "table_bucket_runs_max": 3,
        "table_bucket_level0_files_max": 3,
        "table_deleted_rows_ratio": 0,
        "consumer_lag_snapshots": 2,
    }
    assert of("p")["lakecore_table_bucket_small_files_max"] == 1
    assert "lakecore_table_bucket_runs_max" not in of("p")
    assert of("e")["lakecore_table_live_files"] == 0
    assert "lakecore_table_snapshot_id" not in of("e")
    assert {name for name, _ in found} <= METRICS.keys()


def test_a_later_scrape_reads_only_the_tables_that_have_changed() -> None:
    store = RequestCounter(MemoryStore())
    options = parse_catalog_options({"warehouse": "w"})
    catalog = Catalog(DirectoryNames("w", store, options, seeded(1)))
    catalog.create_database("d")
    tables = [catalog.create_table(f"d.t{number}", {"id": "INT"}) for number in range(20)]
    for table in tables:
        table.write([{"id": 1}])
        table.write([{"id": 2}])
    numbers = Numbers()

    def scraped() -> Mapping[str, int]:
        store.requests.clear()
        prometheus(catalog, numbers, with_pipelines=False)
        return dict(store.requests)

    # Of a table: its schema, its newest snapshot, the list of its consumers; then its manifests.
    known = {"LIST": 2 + 2 * 20, "GET": 4 * 20}
    assert scraped() == {**known, "GET": known["GET"] + 4 * 20}
    assert scraped() == known
    tables[7].write([{"id": 3}])
    assert scraped() == {**known, "GET": known["GET"] + 5}


def test_deletion_vectors_are_a_share_of_the_stored_rows(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("shop")
    table = session.create_table(
        "shop.t", {"id": "INT"}, options={"deletion-vectors.enabled": "true"}
    )
    table.write([{"id": number} for number in range(10)])
    table.delete("id < 3")
    numbers = Numbers().of(session.get_table("shop.t"))

    assert numbers.counted.vector_share == 0.3


def test_a_broken_table_is_not_readable_and_hides_no_other(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("shop")
    for name in ("a", "b"):
        session.create_table(f"shop.{name}", {"id": "INT"}).write([{"id": 1}])
    schema = Path(session.get_table("shop.a").path) / "schema" / "schema-0"
    schema.write_bytes(b"{")
    found = parsed(prometheus(catalog_at(tmp_path / "w"), Numbers()))

    readable = {own: value for (name, own), value in found.items() if name.endswith("readable")}
    assert readable == {
        'database="shop",table="a"': 0,
        'database="shop",table="b"': 1,
        "": 1,
    }


def test_labels_are_escaped(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("shop")
    session.create_table('shop.a"b}x', {"id": "INT"}).write([{"id": 1}])
    found = parsed(prometheus(catalog_at(tmp_path / "w"), Numbers()))

    assert found["lakecore_table_readable", 'database="shop",table="a\\"b}x"'] == 1


def test_numbers_of_a_snapshot_are_counted_once_and_follow_the_table(tmp_path: Path) -> None:
    session = lc.connect(tmp_path / "w", create=True)
    session.create_database("shop")
    table = session.create_table("shop.t", {"id": "INT"})
    table.write([{"id": 1}])
    numbers = Numbers()
    first = numbers.of(session.get_table("shop.t")).counted
    for manifest in (Path(table.path) / "manifest").iterdir():
        manifest.rename(tmp_path / manifest.name)
    again = numbers.of(session.get_table("shop.t")).counted
    for manifest in tmp_path.glob("manifest-*"):
        manifest.rename(Path(table.path) / "manifest" / manifest.name)
    table.write([{"id": 2}])

    assert again is first
    assert numbers.of(session.get_table("shop.t")).counted.files == 2


def test_pipelines_have_a_lag_and_a_damaged_state_is_told(tmp_path: Path) -> None:
    catalog = catalog_at(tmp_path / "w")
    place = f"{catalog.warehouse}/.cdc/mirror"
    aside = SetAside(table=SourceTable("d", "t"), reason="why", time_ms=1)
    now_ms = SYSTEM.now_ms()
    StateFiles(open_store(place, {}), place, SYSTEM).put(
        PipelineState(
            checkpoint=3,
            commit_user="u",
            position={"time_ms": now_ms - 90_000},
            quarantine=(aside,),
            metrics={"time_ms": now_ms - 5_000},
        )
    )
    found = parsed(prometheus(catalog, Numbers()))

    assert found["lakecore_cdc_readable", ""] == 1
    assert 90 <= found["lakecore_cdc_lag_seconds", 'pipeline="mirror"'] < 150
    assert 5 <= found["lakecore_cdc_checkpoint_age_seconds", 'pipeline="mirror"'] < 65
    assert found["lakecore_cdc_quarantine_tables", 'pipeline="mirror"'] == 1
    assert parsed(prometheus(catalog, Numbers(), with_pipelines=False)) == {}

    Path(place, "checkpoint-3.json").write_text("{")
    assert parsed(prometheus(catalog, Numbers())) == {("lakecore_cdc_readable", ""): 0}


@pytest.mark.parametrize(
    ("counted", "options", "command"),
    [
        (Counted(), {}, None),
        (Counted(runs_max=5, level0_max=5), {}, "lakecore compact shop.t -w w"),
        (Counted(runs_max=4, level0_max=4), {}, None),
        (
            Counted(level0_max=1),
            {"deletion_vectors__enabled": "true"},
            "lakecore compact shop.t -w w",
        ),
        (Counted(level0_max=1), {"merge_engine": "first-row"}, "lakecore compact shop.t -w w"),
        (
            Counted(level0_max=1),
            {"deletion_vectors__enabled": "true", "deletion_vectors__merge_on_read": "true"},
            None,
        ),
        (Counted(small_max=5), {}, "lakecore compact shop.t -w w"),
        (Counted(vector_share=0.3), {}, "lakecore compact shop.t -w w --full"),
        (Counted(vector_share=0.2), {}, None),
        (
            Counted(skew=5.0, bucket_bytes_max=1 << 30, buckets=4),
            {"bucket": "4"},
            "lakecore rescale shop.t -w w --bucket-num 8",
        ),
        (Counted(skew=5.0, bucket_bytes_max=1 << 20, buckets=4), {"bucket": "4"}, None),
        (Counted(skew=5.0, bucket_bytes_max=1 << 30, buckets=4), {"bucket": "-1"}, None),
    ],
)
def test_advice_names_the_command(
    counted: Counted, options: dict[str, str], command: str | None
) -> None:
    table = new_table(**options)  # type: ignore[arg-type]  # its options are keywords

    advice = advice_of(counted, table.context, "shop.t", "w")

    assert [each.command for each in advice] == ([] if command is None else [command])


def test_runs_and_skew_are_those_of_the_fullest_bucket() -> None:
    keyed = new_table(bucket="3", write_only="true")
    keyed.write([{"id": number, "v": "x" * 99} for number in range(60)])
    keyed.compact(full=True)
    for _ in range(2):
        keyed.write([{"id": 1, "v": "y"}])
    counted = Numbers().of(keyed).counted
    files = keyed.inspect.files()
    sizes = keyed.inspect.buckets()["file_size_in_bytes"]

    assert (counted.runs_max, counted.level0_max) == (3, 2)
    assert (counted.files, counted.buckets) == (files.height, 3)
    assert counted.bucket_bytes_max == sizes.max()
    assert counted.skew == pytest.approx(sizes.max() / sizes.mean())  # type: ignore[operator]


def test_skew_compares_the_buckets_of_one_partition() -> None:
    table = new_table(partitions=["v"], keys=(), bucket="1", bucket_key="id")
    table.write([{"id": number, "v": "large"} for number in range(9_000)])
    table.write([{"id": 1, "v": "small"}])

    assert Numbers().of(table).counted.skew == 1.0


@pytest.mark.parametrize(
    ("options", "count", "command"),
    [
        ({}, 60, None),
        ({"snapshot.num-retained.max": "59"}, 60, "lakecore expire snapshots shop.t -w w"),
        ({"snapshot.time-retained": "1 ms"}, 60, None),
        ({"snapshot.time-retained": "1 ms"}, 61, "lakecore expire snapshots shop.t -w w"),
    ],
)
def test_old_snapshots_are_told_if_more_than_one_expiry_would_remove_them(
    options: dict[str, str], count: int, command: str | None
) -> None:
    table = new_table(write_only="true")
    for number in range(3):
        table.write([{"id": number}])
        table.context.ambient.sleep(1)
    context = table.copy(options).context
    found = upkeep_of(context, count, [], "shop.t", "w")

    assert [each.command for each in found] == ([] if command is None else [command])


def test_a_consumer_that_is_far_behind_is_told() -> None:
    context = new_table().context
    lags = [
        Lag(consumer=f"behind {number}", next_snapshot=1, snapshots=number, seconds=1.0)
        for number in (50, 51)
    ]
    (found,) = upkeep_of(context, None, lags, "shop.t", "w")

    assert "behind 51" in found.says
    assert found.command == "lakecore consumer list shop.t -w w"


def test_a_command_quotes_names_and_hides_secrets() -> None:
    (advice,) = advice_of(
        Counted(small_max=9), new_table().context, "shop.a b;rm", "s3://user:secret@bucket/w"
    )

    assert advice.command == "lakecore compact 'shop.a b;rm' -w 's3://***@bucket/w'"
