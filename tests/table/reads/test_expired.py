"""An expired snapshot is NotFound from every face; a damaged table is CorruptTable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import lakecore as lc

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Read = "Callable[[lc.Table, lc.Session], Callable[[], object]]"


def _streamed(table: lc.Table, _: lc.Session) -> Callable[[], object]:
    stream = table.stream(2, 4)
    frames = [frame for _, frame in zip(range(1), (frame for _, frame in stream), strict=False)]
    return frames[0].collect


FACES: dict[str, Any] = {
    "scan": lambda table, _: table.scan(snapshot_id=2).collect,
    "scan with a filter": lambda table, _: (
        table.scan(snapshot_id=2).filter(pl.col("v") > 0).collect
    ),
    "to_polars": lambda table, _: lambda: table.to_polars(snapshot_id=2),
    "to_arrow": lambda table, _: lambda: table.to_arrow(snapshot_id=2),
    "to_batches": lambda table, _: table.to_batches(snapshot_id=2).read_all,
    "to_arrow_dataset": lambda table, _: table.to_arrow_dataset(snapshot_id=2).to_table,
    "count": lambda table, _: lambda: table.count(snapshot_id=2),
    "count with a condition": lambda table, _: lambda: table.count("v >= 0", snapshot_id=2),
    "explain": lambda table, _: lambda: table.explain(snapshot_id=2),
    "SQL": lambda _, session: session.sql("SELECT * FROM d.t VERSION AS OF 2").fetchall,
    "SQL later": lambda _, session: lambda: session.sql("SELECT * FROM d.t VERSION AS OF 2"),
    "changes": lambda table, _: table.changes(1, 2).collect,
    "changes later": lambda table, _: lambda: table.changes(1, 2),
    "stream": _streamed,
    "inspect": lambda table, _: table.copy({"scan.snapshot-id": "2"}).inspect.files,
    "lookup": lambda table, _: lambda: table.copy({"scan.snapshot-id": "2"}).lookup([{"id": 1}]),
}


@pytest.fixture
def session(tmp_path: Path) -> lc.Session:
    session = lc.connect(str(tmp_path), create=True)
    session.create_database("d")
    table = session.create_table(
        "d.t",
        {"id": "INT NOT NULL", "v": "INT"},
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true"},
    )
    for number in range(4):
        table.write([{"id": each, "v": number} for each in range(3)])
    table.compact(full=True)
    return session


@pytest.mark.parametrize("face", FACES)
def test_an_expired_snapshot_is_not_found(face: str, session: lc.Session) -> None:
    table = session.get_table("d.t")
    read = FACES[face](table, session)
    lc.open_table(table.path).expire_snapshots(
        retain_max=1, retain_min=1, older_than="2100-01-01", max_deletes=100
    )

    with pytest.raises(lc.NotFound, match=r"expired.*snapshot\.time-retained or a consumer"):
        read()


def test_a_missing_file_of_a_live_snapshot_or_a_tag_is_damage(session: lc.Session) -> None:
    table = session.get_table("d.t")
    table.create_tag("kept", snapshot_id=2)
    frames = [table.scan(snapshot_id=2), table.scan(tag="kept")]
    for file in (table.context.layout.bucket_dir("", 0),):
        table.context.store.delete_directory(file)

    for frame in frames:
        with pytest.raises(lc.CorruptTable, match="is missing"):
            frame.collect()


def test_a_missing_file_of_a_kept_changelog_is_damage(session: lc.Session) -> None:
    table = session.get_table("d.t")
    store, layout = table.context.store, table.context.layout
    _, frame = next(table.stream(1, 1))
    store.put(layout.changelog(1), store.read(layout.snapshot(1)))
    store.delete(layout.snapshot(1))
    store.delete_directory(layout.bucket_dir("", 0))

    with pytest.raises(lc.CorruptTable, match="is missing"):
        frame.collect()
