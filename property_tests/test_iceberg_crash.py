"""Iceberg metadata after a crash, or another publisher, at any call of a commit.

It is whole at once; after a crash, the next commit repairs it.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import LakecoreError
from lakecore.format.iceberg import manifests
from lakecore.testing.stores import WatchedStore
from property_tests.profile import calls_of
from tests.stores import FailingStore, StoreFailure
from tests.tables import new_table, put, reopened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table

OPTIONS: Any = {
    "metadata__iceberg__storage": "table-location",
    "metadata__iceberg__format_version": "3",
    "metadata__iceberg__compaction__min__file_num": "2",
    "metadata__iceberg__compaction__max__file_num": "2",
    "deletion_vectors__enabled": "true",
    "deletion_vectors__bitmap64": "true",
    "snapshot__num_retained__min": "1",
    "snapshot__num_retained__max": "2",
}


def rows_shown(store: Store, root: str) -> int:
    """The rows that a reader of Iceberg sees; an error if a file that it needs is missing."""
    directory = f"{root}/metadata"
    version = store.read(f"{directory}/version-hint.text").decode()
    document: Any = json.loads(store.read(f"{directory}/v{version}.metadata.json"))
    now = document["current-snapshot-id"]
    (snapshot,) = (each for each in document["snapshots"] if each["snapshot-id"] == now)
    rows = 0
    for line in manifests.decode_list(store.read(snapshot["manifest-list"]), ""):
        for each in manifests.decode_manifest(store.read(line["manifest_path"]), ""):
            record = each["data_file"]

            assert store.exists(record["file_path"])
            rows += record["record_count"] * (-1 if record["content"] else 1)
    return rows


def prepared() -> Table:
    table = new_table(**OPTIONS)
    put(table, "1 a | 2 b | 3 c")
    put(table, "2 x")
    put(table, "4 d | 1 y")
    return table


@pytest.mark.parametrize("after", [False, True])
def test_crash_leaves_whole_metadata_that_the_next_commit_repairs(*, after: bool) -> None:
    for call in calls_of(str(after)):
        table = prepared()
        alive = table.context.store
        failing = FailingStore(alive, call, after=after)
        with suppress(LakecoreError, OSError, StoreFailure):
            put(reopened(table, store=failing), "3 z | 5 e")

        assert rows_shown(alive, table.path) in {4, 5}, call
        put(reopened(table, store=alive), "6 f")
        rows = 6 if reopened(table, store=alive).count() == 6 else 5

        assert rows_shown(alive, table.path) == rows == reopened(table, store=alive).count(), call
        if not failing.is_dead:
            break


class _Interrupted(WatchedStore):
    """Lets another process work just before a call."""

    def __init__(self, inner: Store, deed: Callable[[], object], call: int) -> None:
        super().__init__(inner)
        self.deed, self.calls_left = deed, call

    @contextmanager
    def call(self, name: str, path: str) -> Iterator[None]:  # noqa: ARG002 - as the base
        self.calls_left -= 1
        if self.calls_left == 0:
            self.deed()
        yield


DEEDS: dict[str, Callable[[Table], object]] = {
    "one commit": lambda table: put(table, "5 e"),
    "many commits": lambda table: [put(table, f"{number} e") for number in range(5, 9)],
    "rollback and commit": lambda table: (table.rollback_to(snapshot_id=5), put(table, "9 z")),
    "export": lambda table: table.export_iceberg(),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_another_publisher_at_any_call_leaves_whole_metadata(deed: str) -> None:
    for call in calls_of(deed):
        table = prepared()
        alive = table.context.store
        other = reopened(table, store=alive)
        between = _Interrupted(alive, partial(DEEDS[deed], other), call)
        reopened(table, store=between).export_iceberg()
        found = reopened(table, store=alive)

        assert rows_shown(alive, table.path) == found.count(), call
        put(found, "3 z | 10 f")
        assert rows_shown(alive, table.path) == reopened(table, store=alive).count(), call
        if between.calls_left > 0:
            break
