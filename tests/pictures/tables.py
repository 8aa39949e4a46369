"""Pictures of small real tables: a bucket, merge engines, snapshots over time, and a read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import lakecore as lc
from tests.pictures.drawing import WIDTH, Drawing

if TYPE_CHECKING:
    from lakecore.table.handle import Table

KEY, KEYS = 42, 120
_LEFT, _RIGHT = 96, 616


def bucket(place: Path) -> str:
    """The LSM tree of a bucket before and after a full compaction, and one key in it."""
    table = lc.open_table(
        place / "bucket",
        create=True,
        schema={"id": "INT NOT NULL", "status": "STRING"},
        primary_keys=["id"],
        options={"bucket": "1", "write-only": "true"},
    )
    for first, last, status in (
        (0, 120, "new"),
        (20, 80, "paid"),
        (35, 70, "sent"),
        (3, 30, "new"),
    ):
        table.write([{"id": each, "status": status} for each in range(first, last)])
        if status == "new" and first == 0:
            table.compact(full=True)
    before = _runs(table)
    status = table.to_polars(["status"], f"id = {KEY}").item()
    table.compact(full=True)
    after = _runs(table)
    drawing = Drawing(
        34 * (len(before) + len(after)) + 182,
        f"A bucket of {len(before)} sorted runs, and of {len(after)} after a full compaction.",
    )
    drawing.text(20, 30, "One bucket: each bar is a file, from its first key to its last", "strong")
    y = _drawn(drawing, 44, "before", before)
    drawing.text(_LEFT, y + 20, f"A read of key {KEY} takes the newest row: {status}.", "dim")
    drawing.arrow(WIDTH / 2, y + 34, WIDTH / 2, y + 62)
    drawing.text(WIDTH / 2 + 14, y + 54, "table.compact(full=True)", "mono")
    y = _drawn(drawing, y + 70, "after", after)
    drawing.text(_LEFT, y + 20, "A read merges nothing: each key has one row.", "dim")
    return drawing.svg()


def _runs(table: Table) -> list[tuple[int, int, int, str | None]]:
    """Each file, newest first: level, first and last key, and the status that it has for KEY."""
    found = []
    files = table.inspect.files().sort("level", -pl.col("max_sequence_number"))
    for row in files.iter_rows(named=True):
        rows = pl.read_parquet(row["file_path"]).filter(id=KEY)["status"].to_list()
        keys = [int(row[name].strip("[]")) for name in ("min_key", "max_key")]
        found.append((row["level"], keys[0], keys[1], rows[0] if rows else None))
    return found


def _drawn(
    drawing: Drawing, y: float, name: str, runs: list[tuple[int, int, int, str | None]]
) -> float:
    """Draw the runs below `y`, and return the bottom."""
    drawing.text(20, y + 18, name, "dim")
    for level, first, last, status in runs:
        y += 30 if level == runs[0][0] else 34
        start, end = (_LEFT + (_RIGHT - _LEFT) * key / KEYS for key in (first, last + 1))
        drawing.text(20, y + 17, f"level {level}", "strong")
        drawing.box(start, y, end - start, 24, "run")
        drawing.text(start + 6, y + 17, f"{first}", "on")
        drawing.text(end - 6, y + 17, f"{last}", "on", "end")
        if status is not None:
            x = _LEFT + (_RIGHT - _LEFT) * (KEY + 0.5) / KEYS
            newest = next(each for each in runs if each[3] is not None)
            drawing.dot(x, y + 12, "win" if newest[0] == level and newest[1] == first else "old", 7)
            drawing.text(x + 12, y + 17, status, "on strong")
    return y + 24


ENGINES: dict[str, tuple[str, dict[str, str]]] = {
    "deduplicate": ("the newest row", {}),
    "partial-update": ("the newest non-null values", {}),
    "aggregation": (
        "sum(qty), last status, all notes",
        {
            "fields.qty.aggregate-function": "sum",
            "fields.status.aggregate-function": "last_non_null_value",
            "fields.note.aggregate-function": "listagg",
        },
    ),
    "first-row": ("the oldest row", {}),
}
ROWS: tuple[dict[str, Any], ...] = (
    {"id": 1, "qty": 1, "status": "new", "note": None},
    {"id": 1, "qty": 2, "status": None, "note": "gift"},
    {"id": 1, "qty": None, "status": "paid", "note": "red"},
    {"id": 1, "qty": 4, "status": "sent", "note": None},
)
_COLUMNS = {"qty": 300, "status": 380, "note": 480}


def engines(place: Path) -> str:
    """The row that each merge engine makes of the same four rows."""
    drawing = Drawing(440, "The rows that the four merge engines make of the same four rows.")
    drawing.text(20, 30, "Four rows of one key, written one after another", "strong")
    _row(drawing, 56, "", {name: name for name in _COLUMNS}, "dim")
    for number, row in enumerate(ROWS):
        _row(drawing, 84 + 28 * number, f"row {number + 1}", row, "mono")
    drawing.arrow(WIDTH / 2, 182, WIDTH / 2, 208)
    drawing.text(20, 232, "What a read returns", "strong")
    for number, (engine, (rule, options)) in enumerate(ENGINES.items()):
        table = lc.open_table(
            place / engine,
            create=True,
            schema={"id": "INT NOT NULL", "qty": "INT", "status": "STRING", "note": "STRING"},
            primary_keys=["id"],
            options={"bucket": "1", "merge-engine": engine, **options},
        )
        for row in ROWS:
            table.write([row])
        y = 244 + 46 * number
        drawing.box(12, y, WIDTH - 24, 42)
        _row(drawing, y + 19, engine, table.to_polars().row(0, named=True), "mono strong")
        drawing.text(24, y + 36, rule, "dim")
    return drawing.svg()


def _row(drawing: Drawing, y: float, name: str, row: dict[str, Any], kind: str) -> None:
    drawing.text(24, y, name, "strong")
    for column, x in _COLUMNS.items():
        value = row[column]
        drawing.text(x, y, "-" if value is None else str(value), kind)


def snapshots(place: Path) -> str:
    """Snapshots over time: which of them expire, and which files stay for whom."""
    options = {"bucket": "1", "write-only": "true", "snapshot.num-retained.min": "1"}
    table = lc.open_table(
        place / "snapshots",
        create=True,
        schema={"id": "INT NOT NULL", "day": "INT"},
        primary_keys=["id"],
        options=options,
    )
    for day in range(1, 7):
        table.write([{"id": day, "day": day}])
        if day in {2, 4}:
            table.compact(full=True)
        if day == 2:
            table.create_tag("monthly")
    table.create_branch("trial", "monthly")
    table.reset_consumer("reader", 6)
    count = table.inspect.snapshots().height
    seen: dict[str, list[int]] = {}
    for number in range(1, count + 1):
        then = table.copy({"scan.snapshot-id": number}).inspect.files()
        for path in then["file_path"]:
            seen.setdefault(path, []).append(number)
    table.expire_snapshots(retain_max=2, retain_min=1)
    left = table.inspect.snapshots()["snapshot_id"].to_list()
    files = [(min(ids), max(ids), Path(path).exists()) for path, ids in seen.items()]
    return _timeline(count, left, table.tags()[0].snapshot_id, files)


def _timeline(count: int, left: list[int], tagged: int, files: list[tuple[int, int, bool]]) -> str:
    drawing = Drawing(250 + 24 * len(files), "Snapshots over time, and the files that each keeps.")

    def x_of(number: float) -> float:
        return 130 + (WIDTH - 170) * (number - 1) / (count - 1)

    drawing.text(20, 30, "Snapshots after an expiry that keeps the newest 2", "strong")
    drawing.box(x_of(count - 1) - 22, 52, x_of(count) - x_of(count - 1) + 44, 72, "lost")
    drawing.text(x_of(count) + 22, 144, "retained", "dim", "end")
    drawing.text(20, 102, "snapshot", "dim")
    drawing.line(x_of(1), 97, x_of(count), 97)
    for number in range(1, count + 1):
        drawing.dot(x_of(number), 97, "run" if number in left else "page")
        if number not in left:
            drawing.dot(x_of(number), 97, "lost")
        drawing.text(x_of(number), 122, str(number), "" if number in left else "dim", "middle")
    drawing.text(x_of(tagged), 64, "tag monthly,", "strong", "middle")
    drawing.text(x_of(tagged), 82, "branch trial", "strong", "middle")
    drawing.text(x_of(6), 64, "consumer", "strong", "middle")
    drawing.text(x_of(6), 82, "reader", "strong", "middle")
    drawing.text(20, 176, "Files: live from one snapshot to another", "strong")
    y = 192.0
    for first, last, there in files:
        wide = x_of(last) - x_of(first) + 16
        drawing.box(x_of(first) - 8, y, wide, 16, "run" if there else "lost")
        drawing.text(20, y + 13, "kept" if there else "deleted", "" if there else "dim")
        y += 24
    drawing.text(
        20, y + 24, "A file stays while a snapshot, tag, branch or consumer needs it.", "dim"
    )
    return drawing.svg()


def read(place: Path) -> str:
    """How many files of a table are left after each step of a plan."""
    table = lc.open_table(
        place / "read",
        create=True,
        schema={"day": "STRING NOT NULL", "id": "INT NOT NULL", "v": "INT"},
        primary_keys=["day", "id"],
        partition_keys=["day"],
        options={"bucket": "4", "write-only": "true"},
    )
    for first in range(0, 400, 100):
        ids = range(first, first + 100)
        table.write([{"day": day, "id": n, "v": n} for day in ("mon", "tue", "wed") for n in ids])
    plan = table.explain(where="day = 'mon' AND id = 250")
    steps = (
        ("all files of the snapshot", 0),
        ("less other partitions", plan.files_skipped_by_partition),
        ("less other buckets", plan.files_skipped_by_bucket),
        ("less keys out of range", plan.files_skipped_by_statistics),
    )
    drawing = Drawing(250, "The files that a read leaves out, step by step.")
    drawing.text(20, 30, "explain(where=\"day = 'mon' AND id = 250\")", "mono strong")
    kept = plan.files_total
    for number, (name, skipped) in enumerate(steps):
        kept -= skipped
        y = 50 + 40 * number
        drawing.text(20, y + 19, name)
        wide = (WIDTH - 320) * kept / plan.files_total
        drawing.box(230, y, wide, 28, "run" if number < len(steps) - 1 else "win")
        drawing.text(230 + wide + 10, y + 19, f"{kept} files" if kept > 1 else "1 file", "strong")
    assert kept == plan.files_kept, "each file is kept or left out by one step"
    drawing.text(
        20, 230, "Only the files that are left are opened; then their rows are filtered.", "dim"
    )
    return drawing.svg()
