"""`$audit_log` and `$binlog`: rows with their kinds, as a table and as a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lakecore.errors import InvalidRequest, NotFound, Unsupported
from tests.tables import new_table, put, rows

if TYPE_CHECKING:
    import lakecore as lc


def log(table: lc.Table, name: str, **options: str) -> Any:
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return table.copy(stated).inspect.system_table(name)


def lines(found: list[dict[str, Any]]) -> list[str]:
    return sorted(" ".join(map(str, row.values())) for row in found)


def changed(**options: Any) -> lc.Table:
    table = new_table(changelog_producer="input", **options)
    put(table, "1 a | 2 b")
    put(table, "-U 1 a | +U 1 A | -D 2 b | 3 c")
    return table


def test_state_has_the_kind_of_each_merged_row_and_tombstones() -> None:
    table = changed()

    assert lines(log(table, "audit_log").to_arrow().to_pylist()) == ["+I 3 c", "+U 1 A", "-D 2 b"]
    assert lines(log(table, "binlog").to_arrow().to_pylist()) == [
        "+I [3] ['c']",
        "+U [1] ['A']",
        "-D [2] ['b']",
    ]


def test_columns_condition_limit_and_snapshot_are_those_of_a_table() -> None:
    audit = log(changed(), "audit_log")

    assert audit.schema.names == ("rowkind", "id", "v")
    assert audit.to_polars(["v"], "rowkind = '-D'").rows() == [("b",)]
    assert audit.to_polars("rowkind", "id = 3").rows() == [("+I",)]
    assert audit.to_polars(limit=2).height == 2
    assert lines(audit.to_arrow(snapshot_id=1).to_pylist()) == ["+I 1 a", "+I 2 b"]
    with pytest.raises(NotFound):
        audit.to_arrow(snapshot_id=9)
    assert audit.scan(["rowkind"]).collect().height == 3


def test_changes_between_snapshots_pair_updates_in_the_binlog() -> None:
    table = changed()

    assert lines(log(table, "audit_log", incremental_between="1,2").to_arrow().to_pylist()) == [
        "+I 3 c",
        "+U 1 A",
        "-D 2 b",
        "-U 1 a",
    ]
    binlog = log(table, "binlog", incremental_between="1,2")
    assert lines(binlog.to_arrow().to_pylist()) == [
        "+I [3] ['c']",
        "+U [1, 1] ['a', 'A']",
        "-D [2] ['b']",
    ]
    assert binlog.to_arrow(["v"]).to_pylist()[0] == {"v": ["a", "A"]}
    assert binlog.to_arrow(["rowkind"]).column("rowkind").to_pylist() == ["+U", "-D", "+I"]


def test_stream_has_each_snapshot_in_the_form_of_the_log() -> None:
    table = changed()
    pairs = {
        name: [
            (number, lines(frame.collect().to_dicts()))
            for number, frame in log(table, name).stream(1, "latest")
        ]
        for name in ("audit_log", "binlog")
    }

    assert pairs["audit_log"] == [
        (1, ["+I 1 a", "+I 2 b"]),
        (2, ["+I 3 c", "+U 1 A", "-D 2 b", "-U 1 a"]),
    ]
    assert pairs["binlog"] == [
        (1, ["+I [1] ['a']", "+I [2] ['b']"]),
        (2, ["+I [3] ['c']", "+U [1, 1] ['a', 'A']", "-D [2] ['b']"]),
    ]


def test_updates_are_paired_across_batches_and_files() -> None:
    table = new_table(changelog_producer="input", target_file_size="1 b", bucket="2")
    put(table, " | ".join(f"{key} a" for key in range(50)))
    put(table, " | ".join(f"-U {key} a | +U {key} b" for key in range(50)))

    found = log(table, "binlog", incremental_between="1,2").to_arrow().to_pylist()
    assert sorted((row["rowkind"], *row["id"], *row["v"]) for row in found) == [
        ("+U", key, key, "a", "b") for key in range(50)
    ]


def test_lone_update_rows_stay_alone() -> None:
    table = new_table(changelog_producer="input", bucket="4")
    put(table, "-U 1 a | +U 2 b | -U 3 c | +U 4 d | -U 5 e | +U 6 f")

    found = log(table, "binlog", incremental_between="0,1").to_arrow(["rowkind", "id"]).to_pylist()
    assert all(len(set(row["id"])) == 1 for row in found if len(row["id"]) > 1 and len(found) == 6)
    assert sum(len(row["id"]) for row in found) == 6


def test_sequence_numbers_follow_the_kind() -> None:
    table = changed(table_read__sequence_number__enabled="true")
    audit = log(table, "audit_log")

    assert [(f.name, str(f.type)) for f in audit.schema.fields][:2] == [
        ("rowkind", "STRING"),
        ("_SEQUENCE_NUMBER", "BIGINT NOT NULL"),
    ]
    assert lines(audit.to_arrow().to_pylist()) == ["+I 5 3 c", "+U 3 1 A", "-D 4 2 b"]
    between = log(table, "binlog", incremental_between="1,2").to_arrow()
    assert lines(between.to_pylist()) == [
        "+I 5 [3] ['c']",
        "+U 2 [1, 1] ['a', 'A']",
        "-D 4 [2] ['b']",
    ]


def test_rows_that_an_overwrite_removes_have_sequence_numbers_and_tombstones_are_none() -> None:
    table = changed(table_read__sequence_number__enabled="true")
    table.overwrite(rows(table.schema, "4 d"))

    stream = log(table, "audit_log", streaming_read_overwrite="true").stream(3, "latest")
    assert [lines(frame.collect().to_dicts()) for _, frame in stream] == [
        ["+I 0 4 d", "-D 3 1 A", "-D 5 3 c"]
    ]


def test_what_has_no_sequence_numbers_is_unsupported() -> None:
    enabled: dict[str, Any] = {"table_read__sequence_number__enabled": "true"}
    append = new_table(keys=(), **enabled)
    put(append, "1 a")
    with pytest.raises(Unsupported, match="without a primary key"):
        log(append, "audit_log").to_arrow()
    diff = {"incremental_between_scan_mode": "diff", "incremental_between": "1,2"}
    with pytest.raises(Unsupported, match="difference of two states"):
        log(changed(**enabled), "audit_log", **diff).to_arrow()


def test_table_without_snapshots_has_an_empty_log() -> None:
    for name in ("audit_log", "binlog", "ro"):
        assert new_table().inspect.system_table(name).to_arrow().num_rows == 0


def test_append_table_has_the_kind_of_an_insert() -> None:
    table = new_table(keys=())
    put(table, "1 a | 1 a")

    assert lines(log(table, "audit_log").to_arrow().to_pylist()) == ["+I 1 a", "+I 1 a"]


def test_log_cannot_be_written() -> None:
    audit: Any = log(changed(), "audit_log")

    with pytest.raises(InvalidRequest, match="can only be read"):
        audit.write([])


def test_inspect_has_lazy_frames_of_them() -> None:
    inspect = changed().inspect

    assert inspect.audit_log().collect().height == inspect.binlog().collect().height == 3
    assert inspect.ro().collect().height == 0


@pytest.mark.parametrize("name", ["audit_log", "binlog"])
def test_option_that_readers_do_not_do_is_refused(name: str) -> None:
    table = changed()

    with pytest.raises(Unsupported, match="option=incremental-to-auto-tag"):
        log(table, name, incremental_to_auto_tag="t").to_arrow()
