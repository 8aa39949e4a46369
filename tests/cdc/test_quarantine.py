"""Tables that cannot be followed are set aside; the others go on, and lose no row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lakecore.cdc.events import SourceTable
from lakecore.cdc.mysql.statements import changed_table
from lakecore.cdc.quarantine import OnTableError, Quarantine, SetAside, of_tables
from lakecore.cdc.state import StateFiles
from lakecore.errors import CorruptTable, InvalidRequest
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from tests.cdc.sources import ListSource, PlainRules, batch, schema
from tests.cdc.test_sink import ONE, TWO, A, B, parts, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from lakecore.cdc.events import ChangeBatch, Position, Step

QUARANTINE = OnTableError.QUARANTINE
BAD = ("+I", None, "a key that is null")
A_STEPS = [
    [batch(A, ONE, ("+I", 1, "x")), batch(B, ONE, ("+I", 1, "b"))],
    [batch(A, ONE, ("+I", 2, "x")), batch(B, ONE, ("+I", 2, "b"))],
    [batch(A, ONE, ("+I", 3, "x")), batch(B, ONE, ("+I", 3, "b"), BAD)],
    [batch(A, ONE, ("+I", 4, "x")), batch(B, ONE, ("+I", 4, "b"))],
]


class Refusing(ListSource):
    """A source that cannot read the rows of B from the third step on."""

    left_out: frozenset[SourceTable] = frozenset()

    def leave_out(self, tables: Collection[SourceTable]) -> None:
        self.left_out = frozenset(tables)

    def steps(self, after: Position | None) -> Iterator[Step]:
        for step in super().steps(after):
            if step.position["step"] == 3 and B not in self.left_out:
                with of_tables(B):
                    raise InvalidRequest("a value that no type holds")
            yield step


@pytest.mark.parametrize("interval_seconds", [0, 1_000_000])
@pytest.mark.parametrize("kind", [ListSource, Refusing])
def test_the_others_go_on_without_a_lost_row(
    kind: type[ListSource], interval_seconds: float
) -> None:
    store = MemoryStore()
    catalog, sink = parts(store, on_table_error=QUARANTINE)
    sink._settings = sink._settings.__class__(  # noqa: SLF001
        interval_seconds=interval_seconds, on_table_error=QUARANTINE
    )
    progress = sink.run(kind(A_STEPS), until_caught_up=True)

    assert [row[0] for row in rows(catalog, "d.a")] == [1, 2, 3, 4]
    (entry,) = progress.quarantine
    assert entry.table == B
    assert progress.newly_set_aside == ("s.b",)
    assert entry.position is not None
    reached = int(str(entry.position["step"]))
    assert [row[0] for row in rows(catalog, "d.b")] == list(range(1, reached + 1))
    assert progress.tables == {"d.a": {"+I": 4}, "d.b": {"+I": reached}}


def test_a_table_stays_set_aside_in_later_runs_and_its_target_may_go() -> None:
    store = MemoryStore()
    catalog, sink = parts(store, on_table_error=QUARANTINE)
    sink.run(ListSource(A_STEPS), until_caught_up=True)
    catalog.drop_table("d.b")
    _, again = parts(store, seed=2)
    more = [*A_STEPS, [batch(A, ONE, ("+I", 5, "x")), batch(B, ONE, ("+I", 5, "b"))]]
    progress = again.run(ListSource(more), until_caught_up=True)

    assert [row[0] for row in rows(catalog, "d.a")] == [1, 2, 3, 4, 5]
    assert not catalog.table_exists("d.b")
    assert [each.table for each in progress.quarantine] == [B]
    assert progress.newly_set_aside == ()


def test_the_first_step_is_taken_without_its_bad_table() -> None:
    store = MemoryStore()
    steps = [[batch(A, ONE, ("+I", 1, "x")), batch(B, ONE, BAD)]]
    catalog, sink = parts(store, on_table_error=QUARANTINE)
    progress = sink.run(ListSource(steps), until_caught_up=True)

    assert rows(catalog, "d.a") == [(1, "x")]
    assert rows(catalog, "d.b") == []
    assert [(each.table, each.position) for each in progress.quarantine] == [(B, None)]


def test_of_several_tables_of_one_target_only_the_bad_one_is_set_aside() -> None:
    store = MemoryStore()
    shards = PlainRules(shards={"a": "all", "b": "all"})
    steps: Sequence[Sequence[ChangeBatch]] = [
        [batch(A, ONE, ("+I", 1, "x")), batch(B, ONE, ("+I", 2, "b"))],
        [batch(A, ONE, ("+I", 3, "x")), batch(B, ONE, BAD)],
    ]
    catalog, sink = parts(store, shards, on_table_error=QUARANTINE)
    progress = sink.run(ListSource(steps), until_caught_up=True)

    assert [row[0] for row in rows(catalog, "d.all")] == [1, 2, 3]
    assert [each.table for each in progress.quarantine] == [B]


def test_stop_ends_the_pipeline_and_so_does_the_first_start() -> None:
    catalog, sink = parts(MemoryStore(), on_table_error=OnTableError.STOP)
    with pytest.raises(InvalidRequest, match="does not fit the target"):
        sink.run(ListSource(A_STEPS), until_caught_up=True)
    assert [row[0] for row in rows(catalog, "d.a")] == [1, 2]

    bad = SourceTable("s", "bad")
    _, sink = parts(MemoryStore(), on_table_error=QUARANTINE)
    with pytest.raises(InvalidRequest, match="the target does not fit"):
        sink.run(ListSource([[batch(bad, ONE, ("+I", 1, "x"))]]), until_caught_up=True)


def test_a_new_table_that_does_not_fit_is_set_aside() -> None:
    bad = SourceTable("s", "bad")
    steps = [A_STEPS[0], [batch(bad, ONE, ("+I", 1, "x"))], A_STEPS[1]]
    source = ListSource(steps, known={A: ONE, B: ONE})
    catalog, sink = parts(MemoryStore(), on_table_error=QUARANTINE, takes_new_tables=True)
    progress = sink.run(source, until_caught_up=True)

    assert [each.table for each in progress.quarantine] == [bad]
    assert [row[0] for row in rows(catalog, "d.a")] == [1, 2]


def test_an_error_of_no_single_table_is_not_taken() -> None:
    quarantine = Quarantine(QUARANTINE)
    with pytest.raises(InvalidRequest) as refusal, of_tables(A), of_tables():
        raise InvalidRequest("the user is refused")

    assert quarantine.take(refusal.value, None, 0) == []


def test_damage_of_a_stored_entry_is_reported() -> None:
    store = MemoryStore()
    catalog, sink = parts(store, on_table_error=QUARANTINE)
    del catalog
    sink.run(ListSource(A_STEPS), until_caught_up=True)
    files = StateFiles(store, "w/.cdc/p", seeded(1))
    state = files.latest()
    assert state is not None
    (entry,) = state.quarantine
    assert SetAside.from_json(entry.to_json()) == entry
    path = f"w/.cdc/p/checkpoint-{state.checkpoint}.json"
    store.put(path, store.read(path).replace(b'"reason"', b'"rea"'))

    with pytest.raises(CorruptTable, match="the state of the pipeline is damaged"):
        files.latest()


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("INSERT INTO t VALUES (1)", "d.t"),
        ("insert ignore into `a``b` . `x y` (id) values (1)", "a`b.x y"),
        ("REPLACE t SELECT * FROM u", "d.t"),
        ("UPDATE LOW_PRIORITY e.t SET a = 1", "e.t"),
        ("DELETE FROM t", "d.t"),
        ("DELETE QUICK FROM e.t WHERE id IN (SELECT id FROM u)", "e.t"),
        ("LOAD DATA LOCAL INFILE '/f' REPLACE INTO TABLE `t` FIELDS", "d.t"),
        ("UPDATE t, u SET t.a = 1", None),
        ("UPDATE t JOIN u USING (id) SET t.a = 1", None),
        ("DELETE FROM t USING t JOIN u", None),
        ("DELETE t, u FROM t JOIN u", None),
        ("INSERT /* x */ INTO t VALUES (1)", None),
    ],
)
def test_the_table_of_a_statement(text: str, table: str | None) -> None:
    found = changed_table(text, "d")

    assert (None if found is None else str(found)) == table


def test_a_schema_that_the_table_cannot_follow_is_set_aside_with_what_came_before() -> None:
    class Keyed(PlainRules):
        def changes(self, table: object, given: object) -> Sequence[object]:  # type: ignore[override]
            del table
            if len(given.fields) > 2:  # type: ignore[attr-defined]
                raise InvalidRequest("another primary key")
            return ()

    three = schema({"id": "INT NOT NULL", "v": "STRING", "w": "INT"})
    steps = [A_STEPS[0], [batch(A, ONE, ("+I", 2, "x")), batch(B, three, ("+I", 2, "b", 1))]]
    catalog, sink = parts(MemoryStore(), Keyed(), on_table_error=QUARANTINE)
    progress = sink.run(ListSource(steps), until_caught_up=True)

    assert rows(catalog, "d.b") == [(1, "b")]
    assert [row[0] for row in rows(catalog, "d.a")] == [1, 2]
    assert "another primary key" in progress.quarantine[0].reason


@pytest.mark.parametrize("recreated", [False, True])
def test_a_target_that_is_dropped_between_two_runs_is_set_aside(*, recreated: bool) -> None:
    store = MemoryStore()
    catalog, sink = parts(store, on_table_error=QUARANTINE)
    sink.run(ListSource(A_STEPS[:2]), until_caught_up=True)
    catalog.drop_table("d.b")
    if recreated:
        catalog.create_table("d.b", {"id": "INT", "v": "STRING"}, primary_keys=["id"])
    _, again = parts(store, seed=2, on_table_error=QUARANTINE)
    later = [*A_STEPS[:2], A_STEPS[3]]
    progress = again.run(ListSource(later), until_caught_up=True)

    assert [row[0] for row in rows(catalog, "d.a")] == [1, 2, 4]
    (entry,) = progress.quarantine
    assert (entry.table, entry.position) == (B, {"step": 2})
    assert "is gone" in entry.reason
    assert progress.newly_set_aside == ("s.b",)
    assert catalog.table_exists("d.b") is recreated


class Dropping(ListSource):
    """A source that drops the target of B before a step."""

    drops: Callable[[], object] = bool
    at: int = 3

    def steps(self, after: Position | None) -> Iterator[Step]:
        for step in super().steps(after):
            if step.position["step"] == self.at:
                self.drops()
            yield step


@pytest.mark.parametrize("at", [2, 3, 4])
def test_a_target_that_is_dropped_while_it_is_followed_is_set_aside(at: int) -> None:
    store = MemoryStore()
    catalog, sink = parts(store, on_table_error=QUARANTINE)
    wider = batch(B, TWO, ("+I", 4, "b", 1))
    source = Dropping([*A_STEPS[:2], A_STEPS[3], [A_STEPS[3][0], wider]])
    source.at = at
    source.drops = lambda: catalog.drop_table("d.b", ignore_if_not_exists=True)
    progress = sink.run(source, until_caught_up=True)

    assert [row[0] for row in rows(catalog, "d.a")] == [1, 2, 4]
    assert [each.table for each in progress.quarantine] == [B]
    assert not catalog.table_exists("d.b")


def test_a_reason_names_the_next_step() -> None:
    class ReadsAgain(ListSource):
        def can_read_again(self, after: Position | None) -> bool:
            return after is not None

        def read_again(self, *_: object) -> Iterator[Step]:
            raise NotImplementedError

    def reason(source: ListSource, rules: PlainRules | None = None) -> str:
        _, sink = parts(MemoryStore(), rules, on_table_error=QUARANTINE)
        (entry,) = sink.run(source, until_caught_up=True).quarantine
        return entry.reason.partition(". Next step: ")[2]

    resync = "once the cause is solved, `lakecore cdc resync p --tables s.b`"
    assert reason(ReadsAgain(A_STEPS)) == f"{resync}, with --warehouse and --state as the pipeline"
    assert reason(ListSource(A_STEPS)).startswith("drop its target, and start a pipeline with")
    shards = PlainRules(shards={"a": "all", "b": "all"})
    assert "remove the state of the pipeline" in reason(ReadsAgain(A_STEPS), shards)
