"""`$ro`: only what full compaction has written."""

from __future__ import annotations

from tests.tables import held, new_table, put, shown


def test_rows_are_those_of_the_last_full_compaction() -> None:
    table = new_table(write_only="true")
    put(table, "1 a | 2 b")
    compacted = table.copy({"write-only": "false"}).compact(full=True).snapshot_id
    put(table, "1 A | -D 2 b | 3 c")
    ro = table.inspect.system_table("ro")

    assert shown(ro.to_arrow()) == "1 a | 2 b"
    assert shown(ro.to_arrow(snapshot_id=1)) == ""
    assert shown(ro.to_arrow(snapshot_id=compacted, where="id = 2")) == "2 b"
    assert held(table) == "1 A | 3 c"


def test_table_without_a_key_has_all_its_rows() -> None:
    table = new_table(keys=())
    put(table, "1 a")

    assert shown(table.inspect.system_table("ro").to_arrow()) == "1 a"


def test_scan_options_of_the_table_choose_the_snapshot() -> None:
    table = new_table(keys=())
    put(table, "1 a")
    put(table, "2 b")
    then = table.copy({"scan.snapshot-id": "1"}).inspect

    assert shown(then.system_table("ro").to_arrow()) == "1 a"
    assert then.ro().collect().height == 1


def test_columns_are_those_of_the_table_and_its_name_is_shown() -> None:
    table = new_table()
    ro = table.inspect.system_table("ro")

    assert ro.schema == table.schema
    assert repr(ro) == f"SystemTable('{table.context.identifier}$ro')"
