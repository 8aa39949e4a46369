"""Tables that DuckDB scans itself: the rows of lakecore's own reader, and views that are reused."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

import lakecore as lc
from lakecore.errors import CorruptTable
from lakecore.sql import native_views
from lakecore.sql.native_views import NativeViews
from lakecore.sql.statement_views import compared_columns, stops_early
from lakecore.table.splits import survivors

if TYPE_CHECKING:
    from lakecore.frames.duckdb_face import Merges
    from lakecore.frames.source import BatchSource
    from lakecore.sql.statement_views import NativeView
    from lakecore.table.handle import Table

COLUMNS = {"id": "INT NOT NULL", "s": "STRING", "n": "INT"}
OPTIONS = {"bucket": "1", "write-only": "true"}


@pytest.fixture
def catalog(tmp_path: Path) -> lc.Session:
    """A session whose current database is `shop`; its directory has a quote in its name."""
    session = lc.connect(tmp_path / "it's here", create=True)
    session.create_database("shop")
    session.sql("USE shop")
    return session


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    """No test knows the bits that another one computed."""
    survivors.forget()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, NativeView | None]]:
    """The views that statements make, by `merges`."""
    found: list[tuple[str, NativeView | None]] = []
    create = NativeViews.create

    def noted(views: NativeViews, source: BatchSource, *merges: Merges) -> NativeView | None:
        view = create(views, source, *merges)
        found.append((merges[0].name if merges else "KNOWN", view))
        return view

    monkeypatch.setattr(NativeViews, "create", noted)
    return found


def table(catalog: lc.Session, columns: dict[str, str] | None = None, **options: str) -> Table:
    dynamic = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return catalog.create_table(
        "shop.t", columns or COLUMNS, primary_keys=["id"], options={**OPTIONS, **dynamic}
    )


def overlapping(catalog: lc.Session, **options: str) -> Table:
    """A table of two runs: the second replaces the texts of keys 2 and 3, which are no numbers."""
    found = table(catalog, None, **options)
    found.write([{"id": key, "s": "none", "n": key} for key in (2, 3)])
    found.write([{"id": 1, "s": "10", "n": 1}])
    found.write([{"id": key, "s": str(10 * key), "n": key} for key in (2, 3, 4)])
    return found


def rows(catalog: lc.Session, text: str = "FROM t") -> list[tuple[Any, ...]]:
    return sorted(catalog.sql(text).fetchall())


def test_a_view_is_used_again_until_a_commit(
    catalog: lc.Session, made: list[tuple[str, NativeView | None]]
) -> None:
    own = overlapping(catalog)
    for _ in range(3):
        assert rows(catalog, "SELECT sum(n) FROM t") == [(10,)]
    assert [(merges, view is not None) for merges, view in made] == [
        ("KNOWN", False),
        ("COMPUTED", True),
    ]
    own.write([{"id": 4, "s": "x", "n": 0}])
    assert rows(catalog, "SELECT sum(n) FROM t") == [(6,)]
    assert len(made) == 4
    assert rows(catalog, "SELECT sum(n) FROM t VERSION AS OF 3") == [(10,)]


def test_a_table_in_the_place_of_another_has_its_own_view(catalog: lc.Session) -> None:
    table(catalog).write([{"id": 1, "s": "a", "n": 1}])
    assert rows(catalog) == [(1, "a", 1)]
    catalog.drop_table("shop.t")
    table(catalog).write([{"id": 2, "s": "b", "n": 2}])
    assert rows(catalog) == [(2, "b", 2)]


def test_a_condition_is_not_computed_on_a_replaced_row(catalog: lc.Session) -> None:
    overlapping(catalog)
    for _ in range(2):
        assert rows(catalog, "SELECT id FROM t WHERE CAST(s AS INT) > 15") == [(2,), (3,), (4,)]


def test_a_condition_on_a_value_does_not_uncover_a_replaced_row(catalog: lc.Session) -> None:
    overlapping(catalog)
    for _ in range(2):
        assert rows(catalog, "FROM t WHERE s = 'none'") == []
        assert rows(catalog, "SELECT id FROM t WHERE s = '20'") == [(2,)]


def test_deleted_rows_stay_away(catalog: lc.Session) -> None:
    own = overlapping(catalog)
    own.delete("id = 2")
    assert rows(catalog, "SELECT id FROM t") == [(1,), (3,), (4,)]
    own.write([{"id": 2, "s": "back", "n": 7}])
    assert rows(catalog, "SELECT n FROM t") == [(1,), (3,), (4,), (7,)]


def test_sequence_fields_decide(catalog: lc.Session) -> None:
    own = table(catalog, sequence__field="n")
    own.write([{"id": 1, "s": "newest", "n": 9}, {"id": 2, "s": "null is oldest", "n": None}])
    own.write([{"id": 1, "s": "late", "n": 3}, {"id": 2, "s": "kept", "n": 0}])
    assert rows(catalog, "SELECT id, s FROM t") == [(1, "newest"), (2, "kept")]


@pytest.mark.parametrize(
    ("engine", "native"),
    [("deduplicate", True), ("partial-update", False), ("aggregation", False)],
)
def test_only_engines_that_choose_rows_have_bits(
    catalog: lc.Session,
    made: list[tuple[str, NativeView | None]],
    engine: str,
    *,
    native: bool,
) -> None:
    own = table(catalog, merge_engine=engine)
    own.write([{"id": 1, "s": "a", "n": 1}])
    own.write([{"id": 1, "s": "b", "n": None}])
    expected = [(1, "b", None if native else 1)]
    assert rows(catalog) == expected
    assert rows(catalog) == expected
    assert (made[-1][1] is not None) == native


def test_vectors_and_a_merge_on_read(catalog: lc.Session) -> None:
    own = table(catalog, deletion_vectors__enabled="true")
    own.write([{"id": key, "s": "old", "n": key} for key in range(6)])
    compacting = own.copy({"write-only": "false"})
    compacting.compact(full=True)
    own.write([{"id": 2, "s": "new", "n": 0}])
    compacting.compact()
    own.write([{"id": 3, "s": "hidden", "n": 0}])
    for options, expected in (("", "old"), ("'deletion-vectors.merge-on-read'='true'", "hidden")):
        hint = f"/*+ OPTIONS({options}) */" if options else ""
        for _ in range(2):
            found = dict(rows(catalog, f"SELECT id, s FROM t {hint}"))
            assert found == {0: "old", 1: "old", 2: "new", 3: expected, 4: "old", 5: "old"}


def test_files_of_two_schemas_are_left_to_lakecore(
    catalog: lc.Session, made: list[tuple[str, NativeView | None]]
) -> None:
    overlapping(catalog)
    catalog.sql("ALTER TABLE t ADD COLUMN more BIGINT")
    assert rows(catalog, "SELECT id, more FROM t") == [(key, None) for key in (1, 2, 3, 4)]
    catalog.sql("INSERT INTO t VALUES (1, '11', 1, 5)")
    catalog.sql("ALTER TABLE t RENAME COLUMN s TO text")
    catalog.sql("ALTER TABLE t ALTER COLUMN n TYPE BIGINT")
    assert rows(catalog, "SELECT id, text, more FROM t WHERE n < 3") == [
        (1, "11", 5),
        (2, "20", None),
    ]
    assert not any(view for _, view in made)


TYPES: dict[str, tuple[str, Any, Any]] = {
    "dec": ("DECIMAL(30, 4)", Decimal("12345678901234567890.1234"), Decimal("-0.0001")),
    "day": ("DATE", date(1, 1, 1), date(9999, 12, 31)),
    "ms": ("TIMESTAMP(3)", datetime(1969, 12, 31, 23, 59, 59, 999000), datetime(2026, 1, 1)),
    "us": ("TIMESTAMP(6)", datetime(1500, 1, 1, 0, 0, 0, 1), datetime(2026, 1, 1)),
    "zoned": (
        "TIMESTAMP_LTZ(6)",
        datetime(2026, 7, 1, 12, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
    ),
    "bin": ("BINARY(2)", b"\x00\xff", b"ab"),
    "raw": ("BYTES", b"\x00\xff'", b""),
    "x": ("DOUBLE", float("inf"), -0.0),
    "b": ("BOOLEAN", True, False),
    "tiny": ("TINYINT", -128, 127),
}


@pytest.mark.parametrize("name", TYPES)
def test_values_and_types_are_those_of_lakecores_reader(
    catalog: lc.Session, name: str, request: pytest.FixtureRequest
) -> None:
    kind, one, other = TYPES[name]
    own = table(catalog, {"id": "INT NOT NULL", "v": kind})
    own.write([{"id": 1, "v": other}, {"id": 2, "v": None}])
    own.write([{"id": 1, "v": one}, {"id": 3, "v": other}])
    scanned = catalog.sql("FROM t ORDER BY id")
    natively = scanned.fetchall(), list(map(str, scanned.types))
    request.getfixturevalue("by_lakecore")
    merged = catalog.sql("FROM t ORDER BY id")

    assert natively == (merged.fetchall(), list(map(str, merged.types)))


@pytest.mark.parametrize("kind", ["ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT>", "TIMESTAMP(9)"])
def test_types_that_duckdb_reads_otherwise_are_left_to_lakecore(
    catalog: lc.Session, made: list[tuple[str, NativeView | None]], kind: str
) -> None:
    own = table(catalog, {"id": "INT NOT NULL", "v": kind})
    own.write([{"id": 1, "v": None}])
    own.write([{"id": 1, "v": None}])
    assert rows(catalog) == [(1, None)]
    assert not any(view for _, view in made)


def _damaged(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4] + b"PAR2")


def _shortened(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


@pytest.mark.parametrize("damage", [Path.unlink, _shortened, _damaged])
def test_a_file_that_changed_is_found_by_the_next_statement(
    catalog: lc.Session, damage: Any
) -> None:
    own = overlapping(catalog)
    assert len(rows(catalog)) == 4
    newest = own.inspect.files().sort("max_sequence_number")["file_path"][-1]
    file = Path(newest)
    before = file.stat()
    damage(file)
    if file.exists():
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(CorruptTable):
        rows(catalog)


def test_a_key_or_a_few_rows_are_read_without_the_keys_of_all_rows(
    catalog: lc.Session, made: list[tuple[str, NativeView | None]]
) -> None:
    overlapping(catalog)
    for text in (
        "FROM t WHERE id = 2",
        "FROM t WHERE id IN (2, 3)",
        "FROM t WHERE id BETWEEN 2 AND 3",
        "FROM t WHERE id IN (VALUES (2), (9))",
        "FROM t LIMIT 1",
    ):
        catalog.sql(text).fetchall()
    assert {merges for merges, _ in made} == {"KNOWN"}
    assert rows(catalog, "SELECT max(s) FROM t") == [("40",)]
    assert made[-1][0] == "COMPUTED"
    assert rows(catalog, "SELECT s FROM t WHERE id = 2") == [("20",)]


def test_explain_computes_nothing_and_shows_no_bits(
    catalog: lc.Session, made: list[tuple[str, NativeView | None]]
) -> None:
    overlapping(catalog)
    assert "ARROW" in str(catalog.sql("EXPLAIN FROM t").fetchall())
    assert not made
    rows(catalog)
    shown = str(catalog.sql("EXPLAIN FROM t").fetchall())
    assert "READ_PARQUET" in shown.upper()
    assert "getvariable" not in shown


def test_under_a_small_budget_lakecore_merges(
    catalog: lc.Session, made: list[tuple[str, NativeView | None]]
) -> None:
    own = overlapping(catalog)
    own.context.budget.set_size(8)
    try:
        assert len(rows(catalog)) == 4
    finally:
        own.context.budget.set_size(1 << 30)
    assert not any(view for _, view in made)


def test_old_views_are_dropped(catalog: lc.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_views, "_VIEWS_MAX", 2)
    own = overlapping(catalog)
    for number in range(4):
        own.write([{"id": 1, "s": "x", "n": number}])
        assert rows(catalog, "SELECT n FROM t WHERE s = 'x'") == [(number,)]
    views = "SELECT count(*) FROM duckdb_views() WHERE view_name LIKE '_lakecore%'"
    assert catalog.sql(views).fetchall()[0][0] <= 2 + 5
    assert catalog.sql("SELECT count(*) FROM duckdb_variables()").fetchall()[0][0] <= 2 * 6


def test_two_states_in_one_statement(catalog: lc.Session) -> None:
    own = overlapping(catalog)
    own.write([{"id": 1, "s": "now", "n": 1}])
    text = "SELECT a.s, b.s FROM t a, t VERSION AS OF 2 b WHERE a.id = b.id"
    for _ in range(2):
        assert ("now", "10") in rows(catalog, text)
    assert rows(catalog, "SELECT count(*) FROM t a JOIN t b USING (id)") == [(4,)]


def test_partitions_and_buckets(catalog: lc.Session) -> None:
    own = catalog.create_table(
        "shop.p",
        {"day": "DATE NOT NULL", "id": "INT NOT NULL", "s": "STRING"},
        primary_keys=["day", "id"],
        partition_keys=["day"],
        options={"bucket": "3", "write-only": "true"},
    )
    days = [date(2026, 1, number) for number in (1, 2)]
    for text in "ab":
        own.write([{"day": day, "id": key, "s": text} for day in days for key in range(20)])
    for _ in range(2):
        assert rows(catalog, "SELECT s, count(*) FROM p GROUP BY s") == [("b", 40)]
        assert rows(catalog, f"SELECT count(*) FROM p WHERE day = DATE '{days[0]}'") == [(20,)]


def _parsed(text: str) -> object:
    ((answer,),) = duckdb.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    return json.loads(answer)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("FROM t WHERE a = 1 AND 2 < B", {"a", "b"}),
        ("FROM t WHERE a BETWEEN 1 AND 2 OR t.c IN (1, 2)", {"a", "c"}),
        ("FROM t WHERE a IN (SELECT x FROM u)", {"a"}),
        ("FROM t JOIN u ON t.a = u.b WHERE t.d + 1 = 3", set()),
        ("WITH w AS (FROM t WHERE a >= $1) FROM w", {"a"}),
    ],
)
def test_columns_that_are_compared(text: str, columns: set[str]) -> None:
    assert compared_columns(_parsed(text)) == columns


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("FROM t LIMIT 3", True),
        ("FROM t LIMIT 10%", True),
        ("FROM t ORDER BY a LIMIT 3", False),
        ("SELECT a FROM (FROM t LIMIT 1) ORDER BY a", True),
        ("FROM t", False),
    ],
)
def test_queries_that_stop_early(text: str, *, stops: bool) -> None:
    assert stops_early(_parsed(text)) == stops


def test_frames_of_the_caller_join_a_scanned_table(catalog: lc.Session) -> None:
    overlapping(catalog)
    wanted = pl.DataFrame({"id": [2, 9]})
    for _ in range(2):
        assert rows(catalog, "SELECT s FROM t JOIN wanted USING (id)") == [("20",)]
    assert wanted.height == 2


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (duckdb.IOException("IO Error: no such file"), None),
        (duckdb.InterruptException("INTERRUPT Error: Interrupted!"), KeyboardInterrupt),
    ],
)
def test_a_view_that_fails_leaves_nothing(
    catalog: lc.Session,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    raised: type[BaseException] | None,
) -> None:
    overlapping(catalog)

    def fail(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr(NativeViews, "_view", fail)
    if raised is None:
        assert len(rows(catalog)) == 4
        assert catalog.sql("SELECT count(*) FROM duckdb_variables()").fetchall() == [(0,)]
    else:
        with pytest.raises(raised):
            rows(catalog)
