"""The files of a pipeline's state: what is read is what was stored, and a checkpoint is small."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.cdc.events import SourceTable
from lakecore.cdc.pipeline import request_resync, state_store, statuses
from lakecore.cdc.quarantine import SetAside
from lakecore.cdc.retry import Outage
from lakecore.cdc.state import PipelineState, StateFiles
from lakecore.errors import CorruptTable, LakecoreError
from lakecore.io.ambient import SYSTEM, seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.metrics import pipelines_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakecore.model.types import Json


def state_of(tables: dict[str, Json], checkpoint: int = 1) -> PipelineState:
    """A state that says something about each table."""
    names = tuple(sorted(tables))
    return PipelineState(
        checkpoint=checkpoint,
        commit_user="u",
        position={"lsn": checkpoint, "columns": tables},
        targets=names,
        source_tables=names,
        metrics={"time_ms": checkpoint, "tables": {name: {"+I": 1} for name in names}},
    )


def columns(number: int) -> Json:
    return {f"column_{each}": [each, number] for each in range(10)}


def wrote(store: MemoryStore) -> int:
    """The bytes of all files of the pipeline."""
    return sum(len(store.read(each.path)) for each in store.list("p"))


def test_a_checkpoint_costs_what_has_changed() -> None:
    store = MemoryStore()
    files = StateFiles(store, "p", seeded(1))
    tables: dict[str, Json] = {f"s.t{number}": columns(number) for number in range(1000)}
    files.put(state_of(tables))
    whole = wrote(store)
    assert whole > 200_000
    for checkpoint in range(2, 50):
        tables = {**tables, f"s.t{checkpoint}": columns(-checkpoint)}
        state = state_of(tables, checkpoint)
        before = wrote(store)
        files.put(state)
        assert wrote(store) - before < 4_096 + whole // 4
        files.put_committed(state)
        files.forget_before(checkpoint)
        assert StateFiles(store, "p", seeded(2)).latest() == state
    assert wrote(store) < 1.3 * whole


@pytest.mark.parametrize("seed", range(5))
def test_what_is_read_is_what_was_stored(seed: int) -> None:
    chance = random.Random(seed)
    store = MemoryStore()
    files = StateFiles(store, "p", seeded(seed))
    tables: dict[str, Json] = {}
    for checkpoint in range(1, 60):
        tables = dict(tables)
        for _ in range(chance.choice((0, 1, 30, 200))):
            name = f"s.t{chance.randrange(300)}"
            if chance.random() < 0.3:
                tables.pop(name, None)
            else:
                tables[name] = columns(chance.randrange(9))
        state = state_of(tables, checkpoint)
        files.put(state)
        if chance.random() < 0.5:
            files.forget_before(checkpoint)
        if chance.random() < 0.3:
            files = StateFiles(store, "p", seeded(checkpoint))
            assert files.latest() == state
        assert StateFiles(store, "p", seeded(1)).latest() == state


def test_a_slow_process_deletes_no_newer_base() -> None:
    store = MemoryStore()
    slow, quick = (StateFiles(store, "p", seeded(number)) for number in (1, 2))
    slow.put(state_of({f"s.t{number}": columns(1) for number in range(100)}))
    assert quick.latest() is not None
    newer = state_of({f"s.t{number}": columns(2) for number in range(200)}, 2)
    quick.put(newer)
    slow.forget_before(1)

    assert StateFiles(store, "p", seeded(3)).latest() == newer


def test_a_state_of_an_earlier_version_is_read() -> None:
    store = MemoryStore()
    files = StateFiles(store, "p", seeded(1))
    state = state_of({"s.t": columns(1)})
    files.put(state)
    found = json.loads(store.read("p/checkpoint-1.json"))
    changed = found.pop("changed")
    del found["base"]
    found |= {"format": 1, "targets": ["s.t"], "source_tables": ["s.t"]}
    found["position"]["columns"] = changed["columns"]
    found["metrics"]["tables"] = changed["tables"]
    store.put("p/checkpoint-1.json", json.dumps(found).encode())
    again = StateFiles(store, "p", seeded(1))

    assert again.latest() == state
    later = replace(state, checkpoint=2)
    again.put(later)
    assert StateFiles(store, "p", seeded(1)).latest() == later


DAMAGE: tuple[Json, ...] = (
    None,
    True,
    -1,
    10**400,
    1 << 70,
    "x",
    [],
    [[]],
    [[1]],
    [["x"]],
    {},
    {"x": {"y": 1}},
    [{}],
)


def _places(value: Json, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    listed = [*enumerate(value)] if isinstance(value, list) else []
    for key, each in value.items() if isinstance(value, dict) else listed:
        yield from _places(each, (*place, key))


def _damaged(value: Json, place: tuple[Any, ...], new: Json) -> Json:
    if not place:
        return new
    found: Any = json.loads(json.dumps(value))
    inside = found
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = new
    return cast("Json", found)


def test_a_state_with_any_damaged_value_is_read_or_is_one_error(tmp_path: Path) -> None:
    catalog = open_catalog({"warehouse": str(tmp_path)}, create=False)
    catalog.create_database("d")
    table = catalog.create_table("d.t", {"id": "INT"})
    writer = table.new_write()
    writer.write([{"id": 1}])
    store, root = state_store(catalog, None)
    files = StateFiles(store, f"{root}/p", SYSTEM)
    aside = SetAside(table=SourceTable("s", "q"), reason="r", time_ms=5, position={"x": 1})
    state = replace(
        state_of({"s.t": columns(1)}),
        position={"time_ms": 1, "columns": {"s.t": columns(1)}},
        messages={"d.t": tuple(writer.prepare_commit())},
        quarantine=(aside,),
        source={"kind": "mysql", "database": "s"},
        metrics={
            "time_ms": 1,
            "took_ms": 2,
            "bytes_after": 3,
            "rows_total": 4,
            "recent": [[1, 2]],
            "left_out": {"a": "b"},
            "tables": {"s.t": {"+I": 1}},
        },
    )
    files.put(state)
    files.request([SourceTable("s", "t")])
    (status,) = statuses(catalog, None, SYSTEM)
    assert status.checkpoint_seconds == 0.002
    (request,) = files.requests()
    for path in (f"{root}/p/checkpoint-{state.checkpoint}.json", f"{root}/p/{request}"):
        whole = json.loads(store.read(path))
        for place in _places(whole):
            for new in DAMAGE:
                store.put(path, json.dumps(_damaged(whole, place, new)).encode())
                pipelines, error = pipelines_of(catalog)
                assert len(pipelines) == (error is None), (place, new)
                with pytest.raises(LakecoreError):
                    request_resync(catalog, "p", ["nothing"], None, SYSTEM)
        store.put(path, json.dumps(whole).encode())
    assert statuses(catalog, None, SYSTEM)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"base": null', b'"base": "../x"'), (b'"changed": {', b'"changed": 1, "x": {')],
)
def test_a_damaged_state_is_told(old: bytes, new: bytes) -> None:
    store = MemoryStore()
    files = StateFiles(store, "p", seeded(1))
    files.put(state_of({"s.t": columns(1)}))
    store.put("p/checkpoint-1.json", store.read("p/checkpoint-1.json").replace(old, new))

    with pytest.raises(CorruptTable, match="the state of the pipeline is damaged"):
        files.latest()


def test_an_outage_goes_on_through_the_runs_of_a_supervisor() -> None:
    store = MemoryStore()
    first = Outage(contact_ms=1_000, attempt_ms=2_000, retries=3, reason="refused")
    again = Outage(contact_ms=5_000, attempt_ms=6_000, retries=1, reason="timeout")
    StateFiles(store, "p", seeded(1)).put_outage(first)
    files = StateFiles(store, "p", seeded(2))  # of another run
    files.put_outage(again)

    assert files.outage() == replace(again, contact_ms=1_000)

    files.put_outage(None)
    files.put_outage(again)

    assert files.outage() == again


def test_an_outage_that_cannot_be_read_is_replaced() -> None:
    store = MemoryStore()
    files = StateFiles(store, "p", seeded(1))
    outage = Outage(contact_ms=1_000, attempt_ms=2_000, retries=3, reason="refused")
    files.put_outage(outage)
    (name,) = [each.path for each in store.list("p")]
    store.put(name, b"[")
    files.put_outage(outage)

    assert files.outage() == outage
