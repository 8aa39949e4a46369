from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakecore.catalog.catalog import Catalog
from lakecore.catalog.filesystem import DirectoryNames
from lakecore.catalog.options import parse_catalog_options
from lakecore.cdc.events import ChangeBatch, SourceTable, Step
from lakecore.cdc.sink import Sink
from lakecore.cdc.sink_parts import SinkSettings
from lakecore.cdc.state import PipelineState, StateFiles
from lakecore.errors import CorruptTable, InvalidRequest, LakecoreError, StorageError
from lakecore.io.ambient import Ambient, seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.model.schema_change import SchemaChange
from tests.cdc.sources import ListSource, PlainRules, batch, schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakecore.cdc.events import Position
    from lakecore.io.stores.store import Store

A, B = SourceTable("s", "a"), SourceTable("s", "b")
ONE = schema({"id": "INT NOT NULL", "v": "STRING"})
TWO = schema({"id": "INT NOT NULL", "v": "STRING", "w": "BIGINT"})
OPTIONS = parse_catalog_options({"warehouse": "w"})


def parts(
    store: Store, rules: PlainRules | None = None, seed: int = 1, **settings: object
) -> tuple[Catalog, Sink]:
    ambient: Ambient = seeded(seed)
    catalog = Catalog(DirectoryNames("w", store, OPTIONS, ambient))
    catalog.create_database("d", ignore_if_exists=True)
    files = StateFiles(store, "w/.cdc/p", ambient)
    chosen = SinkSettings(**{"interval_seconds": 0, **settings})  # type: ignore[arg-type]
    return catalog, Sink(catalog, rules or PlainRules(), files, chosen, ambient)


def rows(catalog: Catalog, name: str) -> list[tuple[object, ...]]:
    found = catalog.get_table(name).to_arrow().to_pylist()
    return sorted(tuple(each.values()) for each in found)


def play(
    store: Store, steps: Sequence[Sequence[ChangeBatch]], seed: int = 1, **settings: object
) -> Catalog:
    catalog, sink = parts(store, seed=seed, **settings)  # type: ignore[arg-type]
    sink.run(ListSource(steps), until_caught_up=True)
    return catalog


STEPS = [
    [batch(A, ONE, ("+I", 1, "x"), ("+I", 2, "y")), batch(B, ONE, ("+I", 1, "b"))],
    [batch(A, ONE, ("-U", 1, "x"), ("+U", 1, "z"), ("-D", 2, "y"))],
    [batch(A, TWO, ("+I", 3, "c", 7)), batch(B, ONE, ("-D", 1, "b"), ("+I", 9, "k"))],
    [batch(A, TWO, ("-U", 3, "c", 7), ("+U", 4, "c", 7)), batch(B, TWO, ("+I", 5, "n", 1))],
]
A_AT_THE_END: list[tuple[object, ...]] = [(1, "z", None), (4, "c", 7)]
B_AT_THE_END: list[tuple[object, ...]] = [(5, "n", 1), (9, "k", None)]


def test_tables_hold_what_the_source_holds_after_schema_changes() -> None:
    catalog = play(MemoryStore(), STEPS)

    assert rows(catalog, "d.a") == A_AT_THE_END
    assert rows(catalog, "d.b") == B_AT_THE_END


def test_changes_within_one_step_are_applied_with_their_schema_changes() -> None:
    catalog = play(MemoryStore(), [[each for step in STEPS for each in step]])

    assert rows(catalog, "d.a") == A_AT_THE_END
    assert rows(catalog, "d.b") == B_AT_THE_END


def test_second_run_continues_after_the_first() -> None:
    store = MemoryStore()
    play(store, STEPS[:2])
    catalog = play(store, STEPS, seed=2)

    assert rows(catalog, "d.a") == A_AT_THE_END
    snapshots = catalog.get_table("d.a").inspect.snapshots()
    assert len(set(snapshots["commit_user"])) == 1
    latest = catalog.get_table("d.a").context.history.latest_snapshot()
    again = play(store, STEPS, seed=3).get_table("d.a").context.history.latest_snapshot()
    assert again == latest, "nothing is committed twice"


def test_snapshot_states_the_position_of_the_source() -> None:
    catalog = play(MemoryStore(), STEPS)

    snapshot = catalog.get_table("d.a").context.history.latest_snapshot()
    assert snapshot is not None
    assert json.loads((snapshot.properties or {})["lakecore.cdc.position"]) == {"step": 4}


def test_source_that_went_away_is_asked_again_from_the_last_step() -> None:
    catalog, sink = parts(MemoryStore())
    sink.run(ListSource(STEPS, fails_at={2, 4}), until_caught_up=True)

    assert rows(catalog, "d.a") == A_AT_THE_END


def test_row_that_does_not_fit_ends_the_pipeline() -> None:
    steps = [[batch(A, ONE, ("+I", 1, "x"), ("+I", None, "y"))]]

    with pytest.raises(InvalidRequest, match="does not fit the target"):
        play(MemoryStore(), steps)


def test_row_that_does_not_fit_goes_to_the_dead_letters() -> None:
    store = MemoryStore()
    good = [("+I", number, "x") for number in range(20)]
    steps = [[batch(A, ONE, *good, ("+I", None, "y"), ("+I", 40, "z"))]]
    catalog = play(store, steps, keeps_dead_letters=True)

    assert len(rows(catalog, "d.a")) == 21
    (letters,) = [each.path for each in store.list("w/.cdc/p") if "dead" in each.path]
    (line,) = store.read(letters).decode().splitlines()
    assert json.loads(line)["row"] == {"id": None, "v": "y"}
    assert "id" in json.loads(line)["reason"]


@pytest.mark.parametrize("follows", [False, True])
def test_new_source_table_is_followed_if_asked(*, follows: bool) -> None:
    catalog, sink = parts(MemoryStore(), takes_new_tables=follows)
    sink.run(ListSource(STEPS, known={A: ONE}), until_caught_up=True)

    assert catalog.table_exists("d.b") is follows
    assert rows(catalog, "d.a") == A_AT_THE_END


def test_incompatible_table_is_left_out_if_asked() -> None:
    bad = SourceTable("s", "bad")
    steps = [[batch(bad, ONE, ("+I", 1, "x")), batch(A, ONE, ("+I", 1, "x"))]]
    with pytest.raises(InvalidRequest, match="the target does not fit"):
        play(MemoryStore(), steps)
    catalog, sink = parts(MemoryStore(), ignores_incompatible=True)
    progress = sink.run(ListSource(steps), until_caught_up=True)

    assert rows(catalog, "d.a") == [(1, "x")]
    assert list(progress.left_out) == ["s.bad"]


def test_shards_go_to_one_table() -> None:
    catalog, sink = parts(MemoryStore(), PlainRules(shards={"a": "all", "b": "all"}))
    sink.run(ListSource(STEPS), until_caught_up=True)

    assert [row[0] for row in rows(catalog, "d.all")] == [4, 5, 9]


def test_second_process_of_one_pipeline_is_refused() -> None:
    store = MemoryStore()
    _, first = parts(store)
    _, second = parts(store, seed=2)

    class Meeting(ListSource):
        def steps(self, after: Position | None) -> Iterator[Step]:
            second.run(ListSource(STEPS), until_caught_up=True)
            yield from super().steps(after)

    with pytest.raises(LakecoreError, match="another process runs this pipeline"):
        first.run(Meeting(STEPS), until_caught_up=True)


def test_update_of_one_key_is_written_once_and_a_change_of_keys_twice() -> None:
    catalog, sink = parts(MemoryStore())
    steps = [
        [batch(A, ONE, *[("+I", n, "x") for n in range(3)])],
        [batch(A, ONE, ("-U", 1, "x"), ("+U", 1, "y"), ("-D", 2, "x"), ("+I", 5, "x"))],
    ]
    sink.run(ListSource(steps), until_caught_up=True)

    assert rows(catalog, "d.a") == [(0, "x"), (1, "y"), (5, "x")]
    assert catalog.get_table("d.a").context.history.latest_snapshot().delta_record_count == 3  # type: ignore[union-attr]


def test_restart_commits_nothing_again_after_the_snapshots_expired() -> None:
    store = MemoryStore()
    rules = PlainRules(
        options={
            "bucket": "-1",
            "snapshot.num-retained.min": "1",
            "snapshot.num-retained.max": "1",
        }
    )
    steps = [[batch(A, schema({"id": "INT", "v": "STRING"}, ()), ("+I", 1, "x"))]]
    catalog, sink = parts(store, rules)
    sink.run(ListSource(steps), until_caught_up=True)
    table = catalog.get_table("d.a")
    for number in range(3):
        table.write(pa.table({"id": pa.array([number], pa.int32()), "v": ["other"]}))
    table.compact(full=True)
    before = rows(catalog, "d.a")

    _, again = parts(store, rules, seed=2)
    again.run(ListSource(steps), until_caught_up=True)

    assert rows(catalog, "d.a") == before
    assert len(before) == 4


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_target_that_is_gone_ends_the_pipeline(*, is_made_again: bool) -> None:
    store = MemoryStore()
    catalog = play(store, STEPS[:2])
    catalog.drop_table("d.b")
    if is_made_again:
        catalog.create_table("d.b", {"id": "INT NOT NULL"}, primary_keys=["id"])

    with pytest.raises(InvalidRequest, match="is gone") as refusal:
        play(store, STEPS, seed=2)

    assert refusal.value.facts["table"] == "d.b"
    assert catalog.table_exists("d.b") is is_made_again


def test_first_position_is_stored_at_once() -> None:
    store = MemoryStore()
    ambient = seeded(1)
    catalog, _ = parts(store)
    files = StateFiles(store, "w/.cdc/p", ambient)
    settings = SinkSettings(interval_seconds=1_000_000)

    class Failing(ListSource):
        def steps(self, after: Position | None) -> Iterator[Step]:
            steps = super().steps(after)
            yield next(steps)
            yield next(steps)
            raise RuntimeError("the process ends")

    with pytest.raises(RuntimeError):
        Sink(catalog, PlainRules(), files, settings, ambient).run(Failing(STEPS))

    found = files.latest()
    assert found is not None
    assert found.position == {"step": 1}


def test_a_pipeline_stops_while_its_source_is_away() -> None:
    store = MemoryStore()
    catalog, sink = parts(store)
    source = ListSource(STEPS[:1])
    asked: list[int] = []

    def steps(after: Position | None) -> Iterator[Step]:
        yield from (each for each in ListSource.steps(source, after) if after is None)
        raise StorageError("the server is away")

    source.steps = steps  # type: ignore[method-assign]

    def stops() -> bool:
        asked.append(1)
        return len(asked) > 3

    progress = sink.run(source, stops=stops)

    assert progress.rows == 3
    assert rows(catalog, "d.a") == [(1, "x"), (2, "y")]


def test_a_source_without_tables_is_refused_unless_new_ones_are_followed() -> None:
    _, sink = parts(MemoryStore())
    source = ListSource([])
    source.tables = dict  # type: ignore[method-assign]
    with pytest.raises(InvalidRequest, match="no table to follow"):
        sink.run(source, until_caught_up=True)


@pytest.mark.parametrize("later", [False, True])
def test_a_table_that_lost_its_key_ends_the_pipeline(*, later: bool) -> None:
    """`later`: the pipeline saw the table first in the log."""
    without = replace(ONE, primary_key=(), states_key=True)
    store = MemoryStore()
    steps = [*STEPS[:1], [batch(A, without, ("+I", 1, "again"))]]
    source = ListSource(steps[:1])
    if later:
        source.tables = lambda: {B: ONE}  # type: ignore[method-assign]
    catalog, sink = parts(store, needs_key=True, takes_new_tables=True)
    sink.run(source, until_caught_up=True)
    _, sink = parts(store, seed=2, needs_key=True, takes_new_tables=True)
    source = ListSource(steps)
    source.tables = lambda: {B: ONE}  # type: ignore[method-assign]

    with pytest.raises(InvalidRequest, match="lost its primary key"):
        sink.run(source, until_caught_up=True)
    assert rows(catalog, "d.a") == [(1, "x"), (2, "y")]


def test_a_table_that_never_had_a_key_is_left_out() -> None:
    without = replace(ONE, primary_key=(), states_key=True)
    steps = [*STEPS[:1], [batch(SourceTable("s", "c"), without, ("+I", 1, "again"))]]
    source = ListSource(steps)
    keyless = SourceTable("s", "k")
    source.tables = lambda: {A: ONE, B: ONE, keyless: without}  # type: ignore[method-assign]
    catalog, sink = parts(MemoryStore(), needs_key=True, takes_new_tables=True)

    progress = sink.run(source, until_caught_up=True)

    assert catalog.list_tables("d") == ("a", "b")
    assert list(progress.left_out) == ["s.k", "s.c"]


def test_tables_that_force_snapshots_get_one_at_each_checkpoint() -> None:
    store = MemoryStore()
    catalog, sink = parts(store, opened_at_start=("d.quiet",))
    catalog.create_table(
        "d.quiet",
        {"id": "INT"},
        options={"bucket": "-1", "commit.force-create-snapshot": "true"},
    )
    sink.run(ListSource(STEPS), until_caught_up=True)

    quiet = catalog.get_table("d.quiet").context.history.latest_snapshot()
    assert quiet is not None
    assert quiet.id == sink.progress.checkpoint
    play(store, STEPS, seed=3)


class DyingStore(MemoryStore):
    """Fails once before a file of a checkpoint is stored."""

    dies_at = -1

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if path.endswith(f"checkpoint-{self.dies_at}.json"):
            self.dies_at = -1
            raise RuntimeError("the process ends")
        return super().put_if_absent(path, data)


def letters_of(store: Store) -> list[str]:
    lines = []
    for each in store.list("w/.cdc/p"):
        if "dead-letters" in each.path:
            lines += store.read(each.path).decode().splitlines()
    return lines


def test_row_that_fits_when_it_comes_again_is_no_dead_letter() -> None:
    store = DyingStore()
    short = schema({"id": "INT NOT NULL", "v": "VARCHAR(2)"})
    steps = [[batch(A, short, ("+I", 1, "x"))], [batch(A, short, ("+I", 2, "long"))]]
    catalog = play(store, steps[:1], keeps_dead_letters=True)
    store.dies_at = 2
    with pytest.raises(RuntimeError):
        play(store, steps, seed=2, keeps_dead_letters=True)
    assert letters_of(store) == []

    catalog.alter_table("d.a", [SchemaChange.update_column_type("v", "VARCHAR(9)")])
    play(store, steps, seed=3, keeps_dead_letters=True)

    assert rows(catalog, "d.a") == [(1, "x"), (2, "long")]
    assert letters_of(store) == []
    assert not [each.path for each in store.list("w/.cdc/p") if "held" in each.path]


def test_process_that_is_refused_leaves_the_dead_letters_of_the_other() -> None:
    store = MemoryStore()
    steps = [[batch(A, ONE, ("+I", None, "y"), ("+I", 1, "x"))]]
    _, first = parts(store, keeps_dead_letters=True)
    _, second = parts(store, seed=2, keeps_dead_letters=True)

    class Meeting(ListSource):
        def steps(self, after: Position | None) -> Iterator[Step]:
            assert after is None
            second.run(ListSource(steps), until_caught_up=True)
            yield Step(batches=(batch(A, ONE, ("+I", None, "z")),), position={"step": 1})

    with pytest.raises(LakecoreError, match="another process runs this pipeline"):
        first.run(Meeting(steps), until_caught_up=True)

    (line,) = letters_of(store)
    assert json.loads(line)["row"] == {"id": None, "v": "y"}


def test_dead_letters_are_published_by_the_process_that_goes_on() -> None:
    class Dying(MemoryStore):
        dies = True

        def put(self, path: str, data: bytes) -> None:
            if self.dies and "dead-letters" in path:
                self.dies = False
                raise RuntimeError("the process ends")
            super().put(path, data)

    store = Dying()
    steps = [[batch(A, ONE, ("+I", None, "y"), ("+I", 1, "x"))]]
    with pytest.raises(RuntimeError):
        play(store, steps, keeps_dead_letters=True)
    catalog = play(store, steps, seed=2, keeps_dead_letters=True)

    assert rows(catalog, "d.a") == [(1, "x")]
    assert len(letters_of(store)) == 1
    assert not [each.path for each in store.list("w/.cdc/p") if "held" in each.path]


def test_dead_letters_of_a_step_are_stored_with_its_position() -> None:
    """A later batch of the step changes the schema, which needs a checkpoint before the step."""

    class Computing(PlainRules):
        def rows(self, given: ChangeBatch) -> ChangeBatch:
            if "odd" in given.rows.column("v").to_pylist():
                raise InvalidRequest("no value of the computed column")
            return given

    store = DyingStore()
    step = [batch(A, ONE, ("+I", 2, "odd"), ("+I", 3, "x")), batch(A, TWO, ("+I", 4, "y", 1))]
    steps = [[batch(A, ONE, ("+I", key, "x"))] for key in (0, 1)] + [step]
    store.dies_at = 3
    for seed in (1, 2):
        catalog, sink = parts(store, Computing(), seed=seed, keeps_dead_letters=True)
        sink._settings = replace(sink._settings, interval_seconds=1000)  # noqa: SLF001
        if seed == 1:
            with pytest.raises(RuntimeError):
                sink.run(ListSource(steps), until_caught_up=True)
            assert letters_of(store) == []
        else:
            sink.run(ListSource(steps), until_caught_up=True)

    assert [row[0] for row in rows(catalog, "d.a")] == [0, 1, 3, 4]
    assert [json.loads(line)["row"]["id"] for line in letters_of(store)] == ["2"]


def test_dead_letters_may_hold_any_character() -> None:
    files = StateFiles(MemoryStore(), "w/.cdc/p", seeded(1))
    lines = [json.dumps({"v": text}, ensure_ascii=False) for text in ("a\u2028b\x85", "", "\n")]
    files.put_letters(3, lines)

    assert files.letters(3) == lines
    assert files.letters(4) == []


@pytest.mark.parametrize(
    "name", ["../../secret", "/etc/passwd", "s3://b/x", "held-rows-1-/../x.jsonl", 7]
)
def test_a_state_publishes_only_files_of_its_own_directory(name: object) -> None:
    files = StateFiles(MemoryStore(), "w/.cdc/p", seeded(1))
    files.put(PipelineState(checkpoint=1, commit_user="me", letters=name))  # type: ignore[arg-type]

    with pytest.raises(CorruptTable, match="no file of dead letters"):
        files.latest()
