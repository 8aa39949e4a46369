"""What is remembered of tables: enough not to read definitions again, and no dropped tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from lakecore.cdc.mysql.binlog import Definition, LogPlace, TableMapSeen
from lakecore.cdc.mysql.log_batches import LogBatches

if TYPE_CHECKING:
    import pytest

HERE = LogPlace.of("b.000001", 4)


def seen(name: str, table_id: int) -> TableMapSeen:
    """The map of a table of the database `d`."""
    number = table_id.to_bytes(6, "little")
    text = name.encode()
    body = number + bytes(2) + b"\x01d\0" + bytes([len(text)]) + text + b"\0"
    return TableMapSeen(table_id=number, packet=bytes(20) + body)


def test_tables_that_were_dropped_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakecore.cdc.mysql.log_batches._KEPT", 10)
    asked: list[str] = []

    def takes(database: str, name: str) -> bool:
        asked.append(f"{database}.{name}")
        return False

    settings = cast("Any", SimpleNamespace(takes=takes))
    batches = LogBatches(settings, cast("Any", None), lambda _: True, str, {})
    for number in range(100):
        batches.see_map(seen("kept", 7), HERE)
        batches.see_map(seen(f"t{number}", 10 + number), HERE)
        batches.see_statement(Definition("ALTER TABLE t"), HERE)

    assert sorted(asked) == sorted(["d.kept", *(f"d.t{number}" for number in range(100))])
    assert len(batches._known) <= 11  # noqa: SLF001
    assert len(batches._current) <= 11  # noqa: SLF001
