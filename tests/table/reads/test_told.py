"""What is told of a table whose catalog hides rows, through every public name.

A public method without an entry here fails `test_every_public_name_has_a_decision`.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.rows.read_rules_json import StatedRules
from lakecore.session import Session
from lakecore.table.handle import Table
from lakecore.table.reads.told import gated
from lakecore.table.system.inspect import Inspect
from tests.guarded_tables import Access, equal, guarded_session, with_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COLUMNS = {"id": "STRING NOT NULL", "owner": "STRING", "c": "STRING", "p": "STRING NOT NULL"}
SECRETS = ("k3y", "s3cret", "patient")
"""Texts of the hidden row: its key, a value that cannot be cast, and its partition."""
SHOWN = [{"id": "a", "owner": "ann", "c": "1", "p": "2020-01-01"}]
HIDDEN = [{"id": "k3y", "owner": "bob", "c": "s3cret", "p": "patient"}]

Calls = dict[str, "Callable[[Table], Any]"]


def _looked_up(table: Table) -> object:
    with table.open_lookup(on=["id"]) as lookup:
        return lookup.rows({"id": ["k3y", "a"]}), repr(lookup)


def _two_phases(table: Table) -> object:
    with table.new_write() as write:
        write.write(SHOWN)
        return table.commit(write.prepare_commit())


def _streamed(table: Table) -> object:
    with closing(table.new_stream_write("u")) as write:
        write.write(SHOWN)
        return write.commit(1, write.prepare_commit(1))


READS: Calls = {
    **{
        name: lambda t, name=name: getattr(t, name)()  # type: ignore[misc]
        for name in ("to_arrow", "to_polars", "to_pandas", "head", "count")
    },
    "to_batches": lambda t: t.to_batches().read_all(),
    "scan": lambda t: t.scan().collect(),
    "to_arrow_dataset": lambda t: t.to_arrow_dataset().to_table(),
    "to_duckdb": lambda t: t.to_duckdb().fetchall(),
    "changes": lambda t: t.changes().collect(),
    "stream": lambda t: [each.collect() for _, each in t.stream(until="latest")],
    "lookup": lambda t: t.lookup({"id": ["k3y", "a"]}),
    "open_lookup": _looked_up,
}
REFUSED: Calls = {
    "explain": lambda t: t.explain(),
    "update": lambda t: t.update({"owner": "x"}, "c = 1"),
    "delete": lambda t: t.delete("c = 1"),
    "merge": lambda t: t.merge(SHOWN, on=["id"]).when_matched_delete().execute(),
    "analyze": lambda t: t.analyze(),
    "rescale": lambda t: t.rescale(bucket_num=2),
    "expire_partitions": lambda t: t.expire_partitions(
        expiration_time="1 d", timestamp_formatter="yyyy-MM-dd", dry_run=True
    ),
    "mark_partition_done": lambda t: t.mark_partition_done({"p": "patient"}),
    "remove_unexisting_files": lambda t: t.remove_unexisting_files(dry_run=True),
}
GATED: Calls = {
    "write": lambda t: t.write(SHOWN),
    "overwrite": lambda t: t.overwrite(SHOWN),
    "truncate": lambda t: t.truncate(),
    "drop_partition": lambda t: t.drop_partition({"p": "2020-01-01"}),
    "purge_files": lambda t: t.purge_files(),
    "compact": lambda t: t.compact(full=True),
    "compact ": lambda t: t.compact(dry_run=True, full=True),
    "compact_manifests": lambda t: t.compact_manifests(),
    "rewrite_file_index": lambda t: t.rewrite_file_index(),
    "ingest": lambda t: t.ingest([pl.DataFrame(SHOWN)]),
    "new_write": _two_phases,
    "commit": lambda t: t.commit([]),
    "new_stream_write": _streamed,
    "expire_snapshots": lambda t: t.expire_snapshots(retain_max=1, retain_min=1, dry_run=True),
    "expire_snapshots ": lambda t: t.expire_snapshots(retain_max=1, retain_min=1),
    "expire_changelogs": lambda t: t.expire_changelogs(delete_all=True),
    "expire_tags": lambda t: t.expire_tags("2999-01-01"),
    "remove_orphan_files": lambda t: t.remove_orphan_files("0 s", force=True, dry_run=True),
    "remove_orphan_files ": lambda t: t.remove_orphan_files("0 s", force=True),
    "rollback_to": lambda t: t.rollback_to(1),
    "tags": lambda t: [(each, each.snapshot) for each in t.tags()],
    "create_tag": lambda t: t.create_tag("new").snapshot,
    "replace_tag": lambda t: t.replace_tag("old").snapshot,
    "rename_tag": lambda t: t.rename_tag("old", "new").snapshot,
    "delete_tag": lambda t: t.delete_tag("old"),
    "create_branch": lambda t: t.create_branch("new"),
    "rename_branch": lambda t: t.rename_branch("b", "new"),
    "delete_branch": lambda t: t.delete_branch("b"),
    "fast_forward": lambda t: t.fast_forward("b"),
    "export_iceberg": lambda t: t.export_iceberg(),
    "repair_hints": lambda t: t.repair_hints(),
    "repair_earliest_snapshot": lambda t: t.repair_earliest_snapshot(1),
}
NAMES_ONLY: Calls = {
    "branch": lambda t: t.branch("b"),
    "branches": lambda t: t.branches(),
    "consumers": lambda t: t.consumers(),
    "reset_consumer": lambda t: t.reset_consumer("c", 1),
    "clear_consumers": lambda t: t.clear_consumers(),
    "copy": lambda t: t.copy({"scan.snapshot-id": "1"}),
    "refresh": lambda t: t.refresh(),
    "last_identifier": lambda t: t.last_identifier("u"),
    "identifier": lambda t: t.identifier,
    "path": lambda t: t.path,
    "options": lambda t: t.options,
    "schema": lambda t: (t.schema, str(t), repr(t), t._repr_html_()),
    "inspect": lambda t: t.inspect,
}
CALLS = READS | GATED | NAMES_ONLY | REFUSED
INTERNAL = {"context"}
SYSTEM_REFUSED = (
    *("files", "manifests", "partitions", "buckets", "file_key_ranges"),
    *("table_indexes", "statistics"),
)
SYSTEM_READS = ("audit_log", "binlog", "ro")
SYSTEM_NAMES = (
    *("snapshots", "schemas", "options", "tags", "branches", "consumers"),
    "aggregation_fields",
)


def _attached(session: lc.Session, name: str) -> object:
    with duckdb.connect() as connection:
        session.attach(connection)
        return connection.sql(f"SELECT * FROM paimon.{name}").fetchall()


SESSION: dict[str, Callable[[lc.Session, str], Any]] = {
    "attach": _attached,
    "get_table": lambda s, t: s.get_table(t),
    "table_exists": lambda s, t: s.table_exists(t),
    "alter_table": lambda s, t: s.alter_table(
        t, [lc.SchemaChange.set_option("partition.legacy-name", "false")]
    ),
    "alter_table ": lambda s, t: s.alter_table(
        t, [lc.SchemaChange.set_option("deletion-vectors.enabled", "true")]
    ),
    "rename_table": lambda s, t: s.rename_table(t, "d.renamed"),
    "compact_database": lambda s, t: s.compact_database(including_tables=t, full=True),
    "remove_orphan_files": lambda s, _: s.remove_orphan_files("d", "0 s", dry_run=True, force=True),
    "drop_table": lambda s, t: s.drop_table(t),
    "repair": lambda s, _: s.repair("d"),
}
SESSION_REASONS = {
    "sql": "test_no_statement_tells_of_hidden_rows",
    "create_table": "the table is new, or it is not touched",
    **dict.fromkeys(("list_databases", "database_exists", "list_tables", "warehouse"), "names"),
    **dict.fromkeys(("create_database", "drop_database"), "names"),
}
"""Public names of a session that are not called here, each with the reason."""


def test_every_public_name_of_a_session_has_a_decision() -> None:
    public = {name for name in dir(Session) if not name.startswith("_")}

    assert {name.strip() for name in SESSION} | SESSION_REASONS.keys() == public


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("table", ["keyed", "plain"])
@pytest.mark.parametrize("name", SESSION)
def test_a_session_tells_nothing_of_hidden_rows(
    name: str,
    table: str,
    made: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    damaged: bool,
) -> None:
    session = lc.connect(str(shutil.copytree(made, tmp_path / "w")))
    if damaged:
        _damage(session.get_table(f"d.{table}"))
    seen: Any = guarded_session(session, Access(StatedRules((equal("owner", "ann"),))))
    caplog.set_level(logging.DEBUG)

    told = "\n".join([*_texts(lambda: SESSION[name](seen, f"d.{table}")), *caplog.messages])
    assert [secret for secret in SECRETS if secret in told] == []


def test_an_option_that_renames_partitions_is_refused_without_their_names(tmp_path: Path) -> None:
    session = lc.connect(str(tmp_path), create=True)
    session.create_database("d")
    columns = {"id": "INT", "p": "DATE"}
    options = {"query-auth.enabled": "true"}
    table = session.create_table("d.t", columns, partition_keys=["p"], options=options)
    table.write([{"id": 1, "p": date(2020, 1, 2)}])
    renamed = lc.SchemaChange.set_option("partition.legacy-name", "false")

    with pytest.raises(InvalidRequest, match="directories") as raised:
        session.alter_table("d.t", [renamed])
    assert "p=" not in str(raised.value)


def test_verbs_on_all_rows_are_gated() -> None:
    @gated
    def any_verb(self: Table) -> None:
        del self

    own = {
        name
        for name in dir(Table)
        if getattr(getattr(Table, name), "__code__", None) is any_verb.__code__
    }
    by_others = {"compact": "compact_table", "new_write": "TableWrite"}

    named = {name.strip() for name in GATED} - by_others.keys()
    assert own == named | {"expire_partitions", "mark_partition_done", "remove_unexisting_files"}


def test_every_public_name_has_a_decision() -> None:
    decided = {name.strip() for name in CALLS} | INTERNAL
    public = {name for name in dir(Table) if not name.startswith("_")}
    tables = {name for name in vars(Inspect) if not name.startswith("_")} - {"system_table"}

    assert decided == public
    assert {*SYSTEM_REFUSED, *SYSTEM_READS, *SYSTEM_NAMES} == tables


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a table whose hidden row cannot be cast."""
    place = tmp_path_factory.mktemp("told") / "warehouse"
    session = lc.connect(str(place), create=True)
    session.create_database("d")
    for name, keys in (("keyed", ["p", "id"]), ("plain", [])):
        table = session.create_table(
            f"d.{name}",
            COLUMNS,
            primary_keys=keys,
            partition_keys=["p"],
            options={"query-auth.enabled": "true"} | ({"bucket": "1"} if keys else {}),
        )
        table.write([*SHOWN, *HIDDEN])
        table.create_tag("old")
        table.create_branch("b", tag="old")
        table.write([*SHOWN, *HIDDEN])
        session.alter_table(f"d.{name}", [lc.SchemaChange.update_column_type("c", "INT")])
    return place


@pytest.fixture(params=["keyed", "plain"])
def copied(request: pytest.FixtureRequest, made: Path, tmp_path: Path) -> Table:
    """The table of a copy of the warehouse, as someone sees it who may not see the row."""
    return _table(shutil.copytree(made, tmp_path / "w"), request.param)


def _table(place: Path, name: str) -> Table:
    table = lc.connect(str(place)).get_table(f"d.{name}")
    return with_rules(table, Access(StatedRules((equal("owner", "ann"),))))


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_told_of_hidden_rows(
    name: str, copied: Table, caplog: pytest.LogCaptureFixture, *, damaged: bool
) -> None:
    if damaged:
        _damage(copied)
    caplog.set_level(logging.DEBUG)
    call = CALLS[name]

    told = "\n".join([*_texts(lambda: call(copied)), *caplog.messages])
    assert [secret for secret in SECRETS if secret in told] == []


@pytest.mark.parametrize("name", REFUSED)
def test_what_names_partitions_or_rows_is_refused(name: str, copied: Table) -> None:
    with pytest.raises((Unsupported, InvalidRequest), match=r"filters and masks|bucket is -1"):
        REFUSED[name](copied)


@pytest.mark.parametrize("damaged", [False, True])
def test_system_tables_tell_nothing_of_hidden_rows(copied: Table, *, damaged: bool) -> None:
    if damaged:
        _damage(copied)
    for name in (*SYSTEM_REFUSED, *SYSTEM_READS, *SYSTEM_NAMES):

        def read(name: str = name) -> Any:
            found = getattr(copied.inspect, name)()
            return found.collect() if isinstance(found, pl.LazyFrame) else found

        told = "\n".join(_texts(read))
        assert [secret for secret in SECRETS if secret in told] == [], name


def test_numbers_of_stored_rows_are_not_told(copied: Table) -> None:
    counts = ("total_record_count", "delta_record_count", "changelog_record_count", "next_row_id")
    shown = copied.inspect.snapshots().select(counts)

    assert shown.null_count().row(0) == (shown.height,) * 4
    assert copied.inspect.tags()["record_count"].to_list() == [None]
    assert [tag.snapshot.total_record_count for tag in copied.tags()] == [None]
    assert copied.compact(dry_run=True, full=True).rows_before == 0


STATEMENTS = (
    "SELECT * FROM d.t",
    "SELECT count(*), max(c) FROM d.t",
    "SELECT * FROM d.t WHERE c > 0 ORDER BY c LIMIT 1",
    "SELECT * FROM d.t JOIN d.t AS o USING (id)",
    "SELECT * FROM d.t$audit_log",
    "SELECT * FROM d.t$files",
    "SELECT * FROM d.t$snapshots",
    "SELECT *, __paimon_file_path FROM d.t",
    "EXPLAIN SELECT * FROM d.t WHERE c = 1",
    "EXPLAIN ANALYZE SELECT * FROM d.t WHERE c = 1",
    "SHOW PARTITIONS d.t",
    "SHOW CREATE TABLE d.t",
    "DESCRIBE d.t",
    "UPDATE d.t SET owner = 'x' WHERE c = 1",
    "DELETE FROM d.t WHERE c = 1",
    "MERGE INTO d.t USING d.t AS s ON d.t.id = s.id WHEN MATCHED THEN DELETE",
    "ANALYZE TABLE d.t COMPUTE STATISTICS",
    "CREATE TABLE d.copied AS SELECT * FROM d.t",
    "INSERT INTO d.t SELECT * FROM d.t",
    "CALL sys.compact(`table` => 'd.t')",
    "CALL sys.expire_snapshots('d.t', 1)",
    "CALL sys.expire_partitions(`table` => 'd.t', expiration_time => '1 d')",
    "CALL sys.remove_orphan_files(`table` => 'd.t', dry_run => true)",
    "CALL sys.remove_unexisting_files(`table` => 'd.t')",
    "CALL sys.mark_partition_done('d.t', 'p=2020-01-01')",
    "CALL sys.rollback_to('d.t', 'old')",
)


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("name", ["keyed", "plain"])
def test_no_statement_tells_of_hidden_rows(
    name: str, made: Path, tmp_path: Path, *, damaged: bool
) -> None:
    session = lc.connect(str(shutil.copytree(made, tmp_path / "w")))
    if damaged:
        _damage(session.get_table(f"d.{name}"))
    seen = guarded_session(session, Access(StatedRules((equal("owner", "ann"),))))
    for statement in STATEMENTS:
        asked = statement.replace("d.t", f"d.{name}")

        def ask(asked: str = asked) -> object:
            return seen.sql(asked).fetchall()

        told = "\n".join(_texts(ask))
        assert [secret for secret in SECRETS if secret in told] == [], statement


def _damage(table: Table) -> None:
    """Cut the data files of the hidden partition, and remove one."""
    cut, *removed = Path(table.path).glob("p=patient/*/*.parquet")
    cut.write_bytes(b"PAR1")
    for path in removed:
        path.unlink()


def _texts(call: Callable[[], object]) -> Iterator[str]:
    """All texts of the result of a call, or of its error with causes and contexts."""
    try:
        with pl.Config(tbl_rows=-1, tbl_cols=-1, fmt_str_lengths=1000):
            result = call()
            yield repr(result)
            yield str(result)
            yield str(getattr(result, "_repr_html_", str)())
    except Exception as error:  # noqa: BLE001 - engines have errors of their own
        seen: BaseException | None = error
        while seen is not None:
            yield f"{seen!r} {seen} {getattr(seen, 'facts', '')}"
            seen = seen.__cause__ or seen.__context__
