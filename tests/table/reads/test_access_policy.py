from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

import lakecore as lc
from lakecore.errors import StorageError, Unsupported
from lakecore.plan.predicate import from_polars
from lakecore.rows.read_rules_json import StatedRules
from lakecore.table.handle import Table
from lakecore.table.publication import ExclusiveCreate
from lakecore.table.reads import readable
from lakecore.table.reads.time_travel import Travel
from tests.guarded_tables import (
    COLUMNS,
    NULL,
    ROWS,
    SHOWN,
    Access,
    equal,
    guarded_session,
    guarded_table,
    rows_of,
    with_rules,
)
from tests.tables import new_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.table.reads.readable import Readable

READS: dict[str, Callable[[Readable], Any]] = {
    "scan": lambda t: t.scan().collect(),
    "streaming scan": lambda t: t.scan().collect(engine="streaming"),
    "to_polars": lambda t: t.to_polars(),
    "to_arrow": lambda t: t.to_arrow(),
    "to_batches": lambda t: t.to_batches().read_all(),
    "to_arrow_dataset": lambda t: t.to_arrow_dataset().to_table(),
    "to_duckdb": lambda t: t.to_duckdb().pl(),
    "to_duckdb on a connection": lambda t: t.to_duckdb(duckdb.connect()).pl(),
    "head": lambda t: t.head(10),
    "c stream": pl.DataFrame,
}


@pytest.mark.parametrize("keys", [("id",), ()])
@pytest.mark.parametrize("read", READS)
def test_every_read_filters_and_masks(read: str, keys: Sequence[str]) -> None:
    table = guarded_table(Access(), keys=keys)

    assert rows_of(READS[read](table)) == SHOWN
    assert rows_of(READS[read](table.inspect.system_table("audit_log")))[0] == {
        "rowkind": "+I",
        **SHOWN[0],
    }
    if keys:
        table.compact(full=True)
    assert rows_of(READS[read](table.inspect.system_table("ro"))) == SHOWN


@pytest.mark.parametrize("keys", [("id",), ()])
def test_filter_holds_for_columns_that_are_not_selected(keys: Sequence[str]) -> None:
    access = Access()
    table = guarded_table(access, keys=keys)

    assert table.to_polars(["id"]).sort("id")["id"].to_list() == [1, 3, 4]
    assert access.asked[-1] == ("main", ("id",))
    assert table.to_polars("card")["card"].to_list() == ["*ann"] * 3
    assert table.scan().select("n").collect()["n"].sum() == 40
    assert table.count() == len(table) == 3
    assert table.to_arrow_dataset().count_rows() == 3
    assert table.count("n > 10") == 1
    assert table.scan().select(pl.len()).collect().item() == 3


def test_conditions_see_masked_values_only() -> None:
    table = guarded_table(Access())

    for where in ("card = '1111'", pl.col("card") == "1111"):
        assert table.count(where) == 0
        assert table.to_polars(where=where).is_empty()
        assert table.to_arrow(where=where).num_rows == 0
        assert table.to_duckdb(where=where).fetchall() == []
    assert table.scan().filter(pl.col("card") == "2222").collect().is_empty()
    assert table.to_duckdb().filter("card = '1111'").fetchall() == []
    assert table.count("card = '*ann'") == 3
    assert table.count("owner = 'bob'") == 0
    # An error of a condition on a hidden row would tell that it is there.
    fails = "CASE WHEN owner = 'bob' THEN CAST(owner AS INT) ELSE 1 END = 1"
    assert table.count(fails) == table.to_duckdb().filter(fails).pl().height == 3


def test_limit_counts_rows_of_all_files() -> None:
    table = new_table(COLUMNS, keys=(), query_auth__enabled="true")
    for number in range(3):
        table.write([{**ROWS[0], "id": 2 * number + each, "owner": "ann"} for each in range(2)])
    shown = with_rules(table, Access())

    assert [shown.to_arrow(limit=limit).num_rows for limit in range(8)] == [*range(7), 6]


def test_limit_counts_rows_that_are_shown() -> None:
    table = guarded_table(Access())

    for limit in (1, 2, 3, 9):
        wanted = min(limit, 3)
        assert table.to_polars(limit=limit).height == wanted
        assert table.to_arrow(limit=limit).num_rows == wanted
        assert table.head(limit).height == wanted
        assert table.scan().head(limit).collect().height == wanted
        assert len(table.to_duckdb().limit(limit).fetchall()) == wanted
    assert table.to_polars(limit=0).is_empty()
    masked = guarded_table(Access(StatedRules((), {"card": NULL})))
    assert masked.to_arrow(limit=2).num_rows == 2


def test_mask_of_a_column_that_is_not_null() -> None:
    table = guarded_table(Access(StatedRules((), {"id": NULL, "owner": NULL})))

    found = table.to_arrow(["id", "owner", "n"])
    assert found.column("id").null_count == found.column("owner").null_count == 4
    assert table.count("id IS NULL") == 4
    assert table.count("id = 1") == 0


def test_changes_and_streams_are_filtered_and_masked() -> None:
    table = guarded_table(Access(), producer="input")
    shown = [{"_row_kind": "+I", **row} for row in SHOWN]

    changed = table.changes(1).sort("id").collect()
    assert changed.to_dicts() == shown
    assert table.changes(1, columns=["id"]).collect()["id"].sort().to_list() == [1, 3, 4]
    streamed = [frame.collect() for _, frame in table.stream(from_snapshot=2, until="latest")]
    assert pl.concat(streamed).sort("id").to_dicts() == shown
    between = table.copy({"incremental-between": "1,2"})
    assert rows_of(between.to_polars()) == SHOWN
    log: Any = table.inspect.system_table("audit_log")
    batches = [frame.collect() for _, frame in log.stream(from_snapshot=2, until="latest")]
    assert pl.concat(batches).sort("id").rename({"rowkind": "_row_kind"}).to_dicts() == shown


def test_lookup_is_filtered_and_masked() -> None:
    table = guarded_table(Access())

    assert table.lookup({"id": [1, 2, 3]}).to_dicts() == [SHOWN[0], SHOWN[1]]
    assert table.lookup({"id": 2}, ["id"]).is_empty()
    assert table.lookup({"card": "1111"}).is_empty()
    assert table.lookup({"card": "*ann"}, ["id"])["id"].sort().to_list() == [1, 3, 4]


def test_past_states_are_filtered_and_masked() -> None:
    table = guarded_table(Access())
    table.create_tag("first", snapshot_id=1)
    table.create_branch("b", tag="first")

    first = [{**SHOWN[0], "n": 0}]
    assert rows_of(table.to_polars(snapshot_id=1)) == first
    assert rows_of(table.to_polars(tag="first")) == first
    assert rows_of(table.copy({"scan.tag-name": "first"}).to_arrow()) == first
    assert rows_of(table.branch("b").to_arrow()) == first
    assert table.count(snapshot_id=1) == 1


def test_fallback_branch_is_filtered_and_masked() -> None:
    table = guarded_table(Access())
    table.create_branch("b")
    both = table.copy({"scan.fallback-branch": "b"})

    assert rows_of(both.to_polars()) == SHOWN
    assert both.count() == 3
    assert both.lookup({"id": 2}).is_empty()


def test_sql_is_filtered_and_masked(tmp_path: Any) -> None:
    session = lc.connect(str(tmp_path), create=True)
    session.create_database("shop")
    table = session.create_table(
        "shop.t",
        COLUMNS,
        primary_keys=["id"],
        options={"bucket": "1", "query-auth.enabled": "true"},
    )
    table.write(ROWS)
    with pytest.raises(Unsupported, match="REST catalog"):
        session.sql("SELECT * FROM shop.t").fetchall()
    access = Access()
    seen = guarded_session(session, access)

    def rows(text: str) -> list[tuple[object, ...]]:
        return list(seen.sql(text).fetchall())

    assert rows("SELECT * FROM shop.t ORDER BY id") == [tuple(row.values()) for row in SHOWN]
    assert rows("SELECT count(*), sum(n), min(card), max(id) FROM shop.t") == [(3, 40, "*ann", 4)]
    assert rows("SELECT id FROM shop.t WHERE card = '2222' OR owner = 'bob'") == []
    assert rows("SELECT count(*) FROM shop.t a JOIN shop.t b USING (card)") == [(9,)]
    assert rows("SELECT id FROM shop.t WHERE id IN (SELECT id FROM shop.t WHERE n > 10)") == [(3,)]
    assert rows("SELECT id FROM shop.t VERSION AS OF 1 ORDER BY 1") == [(1,), (3,), (4,)]
    seen.sql("CREATE TABLE shop.copied AS SELECT * FROM shop.t")
    assert rows_of(session.get_table("shop.copied").to_polars()) == SHOWN
    for refused in (
        "SELECT *, __paimon_file_path FROM shop.t",
        "SELECT * FROM shop.t$files",
        "SELECT * FROM shop.t$partitions",
        "UPDATE shop.t SET n = 1 WHERE id = 1",
        "DELETE FROM shop.t WHERE id = 1",
        "ANALYZE TABLE shop.t COMPUTE STATISTICS",
    ):
        with pytest.raises(Unsupported):
            seen.sql(refused).fetchall()
    assert len(session.get_table("shop.copied").to_polars()) == 3


def test_attached_tables_are_filtered_and_masked(tmp_path: Any) -> None:
    session = lc.connect(str(tmp_path), create=True)
    session.create_database("shop")
    table = session.create_table(
        "shop.t", COLUMNS, primary_keys=["id"], options={"query-auth.enabled": "true"}
    )
    table.write(ROWS)
    access = Access()
    connection = duckdb.connect()
    guarded_session(session, access).attach(connection, name="lake")

    assert rows_of(connection.sql("FROM lake.shop.t").pl()) == SHOWN
    # A mask may be null, also that of a column that is not.
    access.stated = StatedRules((), {"id": NULL})
    assert connection.sql("SELECT count(*), count(id) FROM lake.shop.t").fetchall() == [(4, 0)]


REFUSED: dict[str, Callable[[Table], Any]] = {
    "explain": lambda t: t.explain(),
    "update": lambda t: t.update({"n": 1}),
    "delete": lambda t: t.delete("id = 1"),
    "merge": lambda t: t.merge(ROWS[:1], on=["id"]).when_matched_delete().execute(),
    "analyze": lambda t: t.analyze(),
    "rescale": lambda t: t.rescale(bucket_num=2),
    "inspect.files": lambda t: t.inspect.files(),
}


VALUES_SHOWN = (
    *("files", "manifests", "partitions", "buckets", "file_key_ranges"),
    *("table_indexes", "statistics"),
)


@pytest.mark.parametrize("name", VALUES_SHOWN)
def test_system_table_with_values_of_rows_is_refused(name: str) -> None:
    inspect = guarded_table(Access()).inspect

    with pytest.raises(Unsupported, match="filters and masks"):
        inspect.system_table(name)
    with pytest.raises(Unsupported, match="filters and masks"):
        getattr(inspect, name)()


@pytest.mark.parametrize("verb", REFUSED)
def test_what_cannot_be_filtered_is_refused(verb: str) -> None:
    table = guarded_table(Access())
    before = table.inspect.snapshots().height

    with pytest.raises(Unsupported, match=r"filters and masks|query-auth"):
        REFUSED[verb](table)
    assert table.inspect.snapshots().height == before


@pytest.mark.parametrize(
    "read", [*READS, "changes", "stream", "lookup", "open_lookup", "count", "binlog", "log stream"]
)
def test_table_without_such_a_catalog_is_not_read(read: str) -> None:
    table = new_table(COLUMNS, query_auth__enabled="true")
    table.write(ROWS)
    reads: dict[str, Callable[[Table], Any]] = {
        **READS,
        "changes": lambda t: t.changes(),
        "stream": lambda t: list(t.stream(until="latest")),
        "lookup": lambda t: t.lookup({"id": 1}),
        "open_lookup": lambda t: t.open_lookup(),
        "binlog": lambda t: t.inspect.system_table("binlog").to_arrow(),
        "log stream": lambda t: list(t.inspect.system_table("binlog").stream(until="latest")),
        "count": lambda t: t.count(),
    }

    with pytest.raises(Unsupported, match="REST catalog"):
        reads[read](table)


def test_rules_are_asked_at_each_read() -> None:
    access = Access()
    table = guarded_table(access)
    frame = table.scan(["id"])
    dataset = table.to_arrow_dataset()
    assert access.asked == []

    assert frame.collect().height == dataset.count_rows() == 3
    access.stated = StatedRules((equal("owner", "bob"),))
    assert frame.collect()["id"].to_list() == [2]
    assert dataset.count_rows() == 1
    access.forbidden = ("card",)
    assert table.to_polars(["id"]).height == 1
    with pytest.raises(StorageError, match="forbids"):
        table.to_arrow()
    access.forbidden, access.stated = (), StatedRules(("{}",))
    for name, read in READS.items():
        if name != "c stream":  # its consumer wraps all errors
            with pytest.raises(Unsupported, match="rule"):
                read(table)


def test_rule_on_a_renamed_column_is_refused_for_older_states(tmp_path: Any) -> None:
    session = lc.connect(str(tmp_path), create=True)
    session.create_database("shop")
    session.create_table("shop.t", COLUMNS, options={"query-auth.enabled": "true"}).write(ROWS)
    session.alter_table("shop.t", [lc.SchemaChange.rename_column("card", "number")])
    context = session.get_table("shop.t").context
    access = Access(StatedRules((), {"number": NULL}))
    table = Table(replace(context, publication=ExclusiveCreate(access)))

    assert table.to_arrow(["number"]).column(0).null_count == 4
    # At that time the masked column had another name.
    with pytest.raises(Unsupported, match="renamed"):
        table.to_arrow(["card"], snapshot_id=1)
    access.stated = StatedRules((), {"card": NULL})
    with pytest.raises(Unsupported, match="renamed"):
        table.to_arrow(["number"])


def test_older_state_asks_for_the_present_names_of_its_columns(tmp_path: Any) -> None:
    session = lc.connect(str(tmp_path), create=True)
    session.create_database("shop")
    session.create_table("shop.t", COLUMNS, options={"query-auth.enabled": "true"}).write(ROWS)
    session.alter_table("shop.t", [lc.SchemaChange.rename_column("card", "number")])
    context = session.get_table("shop.t").context
    access = Access(StatedRules(), forbidden=("number",))
    table = Table(replace(context, publication=ExclusiveCreate(access)))

    with pytest.raises(StorageError, match="forbids"):
        table.to_arrow(["card"], snapshot_id=1)
    assert access.asked == [("main", ("number",))]
    assert table.to_arrow(["id"], snapshot_id=1).num_rows == 4


def test_rule_is_refused_if_its_column_got_the_name_of_another_since(tmp_path: Any) -> None:
    session = lc.connect(str(tmp_path), create=True)
    session.create_database("shop")
    columns = {"id": "INT", "card": "STRING", "note": "STRING"}
    options = {"query-auth.enabled": "true"}
    table = session.create_table("shop.t", columns, options=options)
    table.write([{"id": 1, "card": "1111", "note": "-"}])
    opened = with_rules(table, Access(StatedRules((), {"note": NULL})))
    assert opened.to_arrow().to_pylist() == [{"id": 1, "card": "1111", "note": None}]
    for before, after in (("card", "old"), ("note", "card"), ("old", "note")):
        session.alter_table("shop.t", [lc.SchemaChange.rename_column(before, after)])

    # The rule now means the column that this reader knows as `card`.
    with pytest.raises(Unsupported, match="renamed"):
        opened.to_arrow()


def test_rules_are_asked_for_the_columns_of_a_predicate() -> None:
    access = Access()
    source = readable.rows_of(guarded_table(access), Travel())

    list(source.batches(["id"], from_polars(pl.col("n") == 10, source.schema)))
    assert access.asked == [("main", ("id", "n"))]


def test_states_and_branches_older_than_the_option_are_filtered(tmp_path: Any) -> None:
    session = lc.connect(str(tmp_path), create=True)
    session.create_database("shop")
    older = session.create_table("shop.t", COLUMNS)
    older.write(ROWS)
    older.create_tag("first")
    older.create_branch("b", tag="first")
    session.alter_table("shop.t", [lc.SchemaChange.set_option("query-auth.enabled", "true")])
    context = session.get_table("shop.t").context
    table = Table(replace(context, publication=ExclusiveCreate(Access())))

    assert rows_of(table.to_arrow(tag="first")) == SHOWN
    assert rows_of(table.branch("b").to_arrow()) == SHOWN
    with pytest.raises(lc.InvalidRequest, match="switched off"):
        table.copy({"query-auth.enabled": "false"})


def test_writes_and_compaction_keep_hidden_rows() -> None:
    access = Access()
    table = guarded_table(access)
    table.write([{"id": 5, "owner": "bob", "card": "5555", "n": 50}])
    table.compact(full=True)
    access.stated = StatedRules()

    assert table.to_polars().sort("id")["card"].to_list() == ["1111", "2222", "3333", None, "5555"]
    table.overwrite(ROWS[:1])
    assert table.count() == 1
