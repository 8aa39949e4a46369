"""Which manifests are opened for a condition on partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, uuid5

import pyarrow as pa
import pytest

from lakecore.format.binary_row import serialize_row
from lakecore.model.files import CommitMessage
from tests.stores import FailingStore
from tests.tables import commit_unstored, files, held, new_table, put, reopened

if TYPE_CHECKING:
    from lakecore.io.stores.store import Store
    from lakecore.model.files import DataFile

COLUMNS = {"id": "INT NOT NULL", "p": "STRING", "v": "INT"}


class Reads(FailingStore):
    """Remembers which manifests were read."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.manifests: set[str] = set()

    def read(self, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if name.startswith("manifest-") and not name.startswith("manifest-list-"):
            self.manifests.add(name)
        return super().read(path)


@pytest.mark.parametrize(
    ("where", "opened", "rows"),
    [
        ("p = 'c'", 1, "3 c 0"),
        ("p IN ('a', 'd')", 2, "1 a 0 | 4 d 0"),
        ("p > 'b' AND v = 0", 2, "3 c 0 | 4 d 0"),
        ("p IS NULL", 0, ""),
        ("p = 'c' OR v = 9", 4, "3 c 0"),
        (None, 4, "1 a 0 | 2 b 0 | 3 c 0 | 4 d 0"),
    ],
)
def test_manifests_of_other_partitions_stay_closed(
    where: str | None, opened: int, rows: str
) -> None:
    table = new_table(COLUMNS, keys=[], partitions=["p"])
    for line in ("1 a 0", "2 b 0", "3 c 0", "4 d 0"):
        put(table, line)
    store = Reads(table.context.store)
    again = reopened(table, store=store)

    assert held(again, where=where) == rows
    assert len(store.manifests) == opened
    assert again.explain(where=where).files_total == 4


def test_deletion_in_a_manifest_of_many_partitions_meets_only_what_was_opened() -> None:
    table = new_table(COLUMNS, keys=[], partitions=["p"], manifest__merge_min_count="4")
    put(table, "1 a 0")
    put(table, "2 b 0")
    put(table, "3 c 0")
    table.delete("id IN (1, 2)")
    store = Reads(table.context.store)

    again = reopened(table, store=store)
    assert held(again, where="p = 'c'") == "3 c 0"
    assert len(store.manifests) == 1
    assert held(reopened(table), where="p = 'a'") == ""
    assert held(reopened(table), where="p = 'b' OR p = 'c'") == "3 c 0"


def test_full_merge_gives_each_manifest_partitions_of_its_own() -> None:
    table = new_table(
        COLUMNS,
        keys=[],
        partitions=["p"],
        bucket="1",
        bucket_key="id",
        manifest__target_file_size="4 kb",
        manifest__full_compaction_threshold_size="100 kb",
    )
    # Each commit goes over all partitions, so its own manifest says nothing of them.
    partitions = [
        serialize_row([pa.array([f"p{part:02}"])], [table.schema.field("p").type])
        for part in range(24)
    ]
    for number in range(7):
        commit_unstored(
            table,
            [
                CommitMessage(
                    partition=partition,
                    bucket=0,
                    total_buckets=1,
                    compact_before=generation(number - 1, part) if number else (),
                    compact_after=generation(number, part),
                    base_snapshot_id=number or None,
                )
                for part, partition in enumerate(partitions)
            ],
        )
    latest = table.context.history.latest_snapshot()
    assert latest is not None
    manifests = table.context.history.manifests(latest)
    merged = [each for each in manifests if not each.deleted_count]
    assert len(merged) >= 4
    for part in (0, 11, 23):
        store = Reads(table.context.store)
        found = reopened(table, store=store).explain(where=f"p = 'p{part:02}'")
        assert (found.files_total, found.files_kept) == (24 * 20, 20)
        assert len(store.manifests) <= 2 + len(manifests) - len(merged)


def generation(number: int, part: int) -> tuple[DataFile, ...]:
    """Twenty files that a compaction makes of those of the generation before."""
    (file,) = files("L0 a-z")
    names = (uuid5(NAMESPACE_OID, f"{number} {part} {at}") for at in range(20))
    return tuple(replace(file, name=f"data-{name}-0.parquet") for name in names)


def test_condition_that_is_never_true_keeps_no_row_of_a_table_without_partitions() -> None:
    table = new_table()
    put(table, "1 a | 2 b")

    for never in ("false", "v = NULL", "1 = 0", "v NOT IN ('a', NULL)"):
        assert held(table, where=never) == ""
        assert table.to_polars(where=never).is_empty()
