"""The seeded input: keys with seven value columns, the same bytes for every contender.

Imported by contenders in other environments too: NumPy and pyarrow alone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MILLION = 1_000_000

COLUMNS = {
    "id": "BIGINT NOT NULL",
    "amount": "BIGINT",
    "quantity": "INT",
    "price": "DOUBLE",
    "discount": "DOUBLE",
    "city": "STRING",
    "note": "STRING",
    "at": "TIMESTAMP(6)",
}
"""One key and seven values, by Paimon's types."""


def rows(ids: np.ndarray, seed: int) -> pa.Table:
    """Rows of these keys: numbers, a city of 1 000, a note that is never the same, a time."""
    random = np.random.default_rng(seed)
    count = len(ids)
    cities = pa.array([f"city-{number:03d}" for number in range(1_000)])
    notes = pa.array(random.integers(0, 10**12, count)).cast(pa.string())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "amount": pa.array(random.integers(0, 10**9, count)),
            "quantity": pa.array(random.integers(0, 1_000, count), pa.int32()),
            "price": pa.array(random.random(count)),
            "discount": pa.array(random.random(count)),
            "city": cities.take(pa.array(random.integers(0, 1_000, count))),
            "note": notes,
            "at": pa.array(random.integers(0, 10**15, count), pa.timestamp("us")),
        }
    )


NUMBERS = ["id", "amount", "quantity", "price"]
FOLD_OPTIONS = {
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.amount.aggregate-function": "sum",
        "fields.quantity.aggregate-function": "max",
        "fields.price.aggregate-function": "sum",
        "fields.discount.aggregate-function": "last_non_null_value",
        "fields.city.aggregate-function": "listagg",
        "fields.note.aggregate-function": "last_non_null_value",
        "fields.at.aggregate-function": "max",
    },
}
"""The engines that fold, with functions for the seven values."""


def with_nulls(rows: pa.Table, share: float, seed: int) -> pa.Table:
    """The rows with this share of nulls in every value column."""
    random = np.random.default_rng(seed)
    columns = [rows.column(0)]
    for column in rows.columns[1:]:
        keep = pa.array(random.random(len(column)) >= share)
        columns.append(pc.if_else(keep, column, pa.scalar(None, column.type)))
    return pa.table(columns, names=rows.column_names)


def merge_input(scale: float = 1.0, *, nulls: float = 0.0) -> list[pa.Table]:
    """4 M rows in random order of their keys, then four updates of 0.5 M, a tenth of them new.

    With `nulls`, every value column holds that share of them.
    """
    random = np.random.default_rng(42)
    base, update = int(4 * MILLION * scale), int(0.5 * MILLION * scale)
    parts = [rows(random.permutation(base), seed=1)]
    for seed in range(2, 6):
        ids = random.choice(int(base * 1.1), update, replace=False)
        parts.append(rows(ids, seed))
    if nulls:
        parts = [with_nulls(part, nulls, seed) for seed, part in enumerate(parts)]
    return parts
