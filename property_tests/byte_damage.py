"""Changed bytes of a file, and all ways to read a table that has such a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from lakecore.table.handle import Table

Rows = list[dict[str, Any]]


def compacted(table: Table) -> Rows:
    """The rows after a full compaction."""
    table.compact(full=True)
    rows: Rows = table.to_arrow().to_pylist()
    return rows


FACES: dict[str, Callable[[Table], Rows]] = {
    "to_polars": lambda table: table.to_polars().to_dicts(),
    "scan": lambda table: table.scan().collect().to_dicts(),
    "where": lambda table: table.to_polars(where=_key_range(table)).to_dicts(),
    "to_arrow": lambda table: table.to_arrow().to_pylist(),
    "to_batches": lambda table: [row for batch in table.to_batches() for row in batch.to_pylist()],
    "dataset": lambda table: table.to_arrow_dataset().to_table().to_pylist(),
    "to_duckdb": lambda table: table.to_duckdb().to_arrow_table().to_pylist(),
    "compact": compacted,
}


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes, changed in one place."""
    changed = bytearray(data)
    at = chance.randrange(len(data))
    match chance.choice(["bit", "bit", "bit", "byte", "zeros", "copy", "cut", "more"]):
        case "bit":
            changed[at] ^= 1 << chance.randrange(8)
        case "byte":
            changed[at] = chance.randrange(256)
        case "zeros":
            changed[at : at + 512] = bytes(len(changed[at : at + 512]))
        case "copy":
            source = chance.randrange(len(data))
            piece = data[source : source + 64]
            changed[at : at + len(piece)] = piece
            del changed[len(data) :]
        case "cut":
            del changed[at:]
        case _:
            changed[at:at] = bytes(chance.randrange(256) for _ in range(8))
    return bytes(changed)


def in_order(rows: Rows) -> Rows:
    """The rows by their first column, a number that no two rows share."""
    return sorted(rows, key=lambda row: next(iter(row.values())))


def _key_range(table: Table) -> str:
    key = table.schema.names[0]
    return f"{key} >= 0 AND {key} < 1000"
