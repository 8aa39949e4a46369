"""Bits of surviving rows: what they say, when they are known, and what their key names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import CorruptTable
from lakecore.io.stores.local import LocalStore
from lakecore.memory import Budget
from lakecore.table.splits import survivors as module
from lakecore.table.splits.survivors import forget, known_survivors, survivors
from tests.table.splits.test_read import source_of
from tests.tables import new_table

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.io.stores.store import Store
    from lakecore.model.files import Split
    from lakecore.table.file_reader.read_plan import ReadPlan

BUDGET = Budget(1 << 30)


def section(path: Path, store: Store | None = None) -> tuple[Split, ReadPlan, Store]:
    """Three runs of the keys 0 to 5, 3 to 7 and 5."""
    forget()
    table = new_table(
        {"id": "INT NOT NULL", "v": "STRING"},
        store=LocalStore() if store is None else store,
        path=str(path / "t") if store is None else "memory://warehouse/shop.db/t",
        write_only="true",
    )
    for keys in (range(6), range(3, 8), [5]):
        table.write([{"id": key, "v": "x"} for key in keys])
    source = source_of(table)
    (split,) = source.plan().splits
    return split, source.read_plan([split], ["v"]), table.context.store


def test_the_newest_row_of_each_key_survives(tmp_path: Path) -> None:
    split, plan, store = section(tmp_path)
    masks = survivors(split, plan, store, BUDGET)

    assert masks is not None
    flags = [masks[file.name].flags for file in split.files]
    assert [each.tolist() for each in flags] == [[1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 1], [1]]


def test_bits_are_known_until_memory_is_needed(tmp_path: Path) -> None:
    split, plan, store = section(tmp_path)
    assert known_survivors(split, plan, store) is None
    bits = survivors(split, plan, store, BUDGET)
    assert known_survivors(split, plan, store) == bits
    assert known_survivors(split, replace(plan, columns=("id",)), store) == bits
    forget()
    assert known_survivors(split, plan, store) is None


def test_another_state_or_rule_has_other_bits(tmp_path: Path) -> None:
    split, plan, store = section(tmp_path)
    survivors(split, plan, store, BUDGET)
    first, *rest = split.runs
    (file,) = first
    moved = replace(split, runs=((replace(file, level=5),), *rest))
    order = {name: -number for name, number in split.commit_order.items()}

    assert known_survivors(moved, plan, store) is None
    assert known_survivors(replace(split, runs=(*rest, first)), plan, store) is None
    assert known_survivors(replace(split, runs=(first,)), plan, store) is None
    assert known_survivors(replace(split, commit_order=order), plan, store) is None
    assert known_survivors(replace(split, bucket=1), plan, store) is None
    descending = replace(plan.merge, sequence=("v",), sequence_descending=True)
    assert known_survivors(split, replace(plan, merge=descending), store) is None


def test_what_bits_cannot_state_is_left_to_other_readers(tmp_path: Path) -> None:
    split, plan, store = section(tmp_path)
    assert survivors(split, replace(plan, engine="aggregation"), store, BUDGET) is None
    assert survivors(split, plan, store, Budget(64)) is None
    assert survivors(*section(tmp_path, new_table().context.store), BUDGET) is None


def test_damage_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split, plan, store = section(tmp_path)
    monkeypatch.setattr(module, "check_files", lambda *_arguments: None)
    name = next(file.name for file in split.files if file.row_count == 5)
    (path,) = tmp_path.rglob(name)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptTable, match="size"):
        survivors(split, plan, store, BUDGET)


def test_a_file_in_the_place_of_another_has_other_bits(tmp_path: Path) -> None:
    split, plan, store = section(tmp_path)
    survivors(split, plan, store, BUDGET)
    path = next(tmp_path.rglob(split.files[0].name))
    other = tmp_path / "copy"
    other.write_bytes(path.read_bytes())
    other.replace(path)

    assert known_survivors(split, plan, store) is None
    assert survivors(split, plan, store, BUDGET) is not None
    path.unlink()
    assert known_survivors(split, plan, store) is None
