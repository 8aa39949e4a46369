"""A table in quarantine is read again on request, and then equals its source."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakecore.cdc.events import Altered, Cleared, SourceTable, Step
from lakecore.cdc.pipeline import request_resync, status_of
from lakecore.cdc.quarantine import OnTableError
from lakecore.cdc.state import Requests, StateFiles
from lakecore.errors import InvalidRequest, LakecoreError, NotFound, StorageError, Unsupported
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from property_tests.profile import calls_of
from tests.cdc.sources import ListSource, PlainRules, batch, schema
from tests.cdc.test_quarantine import A_STEPS
from tests.cdc.test_sink import ONE, A, B, parts, rows
from tests.stores import FailingStore, StoreFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lakecore.cdc.events import Position, SourceSchema
    from lakecore.cdc.sink_parts import Progress
    from lakecore.io.stores.store import Store

QUARANTINE = OnTableError.QUARANTINE
MORE = [
    *A_STEPS,
    [batch(A, ONE, ("+I", 5, "x")), batch(B, ONE, ("+I", 5, "b"))],
    [batch(A, ONE, ("+I", 6, "x"))],
]
BACK = [(2, "new"), (5, "b"), (7, "n")]


class Again(ListSource):
    """A source that can read B again: it has two rows then."""

    of: SourceSchema = ONE
    kind = "mysql"
    lost: bool = False

    def describe(self) -> Mapping[str, str]:
        return {"kind": self.kind}

    def can_read_again(self, after: Position | None) -> bool:
        return after is not None

    def read_again(
        self, table: SourceTable, after: Position, start: int | None = None
    ) -> Iterator[Step]:
        assert start is None, "the table is one range"
        if table != B:
            raise NotFound("the source has no such table", table=str(table))
        yield Step(batches=(batch(B, self.of),), position=after)
        if self.lost:
            self.lost = False
            raise StorageError("the source went away")
        for row in ((2, "new"), (7, "n")):
            yield Step(batches=(batch(B, self.of, ("+I", *row)),), position=after)
        keys = pa.table({"id": pa.array([2, 7], self.of.arrow.field("id").type)})
        yield Step(cleared=Cleared(table=B, keys=keys), position={**after, "mark": "b"})


def files(store: Store, seed: int = 3) -> StateFiles:
    return StateFiles(store, "w/.cdc/p", seeded(seed))


def set_aside(rules: PlainRules | None = None) -> MemoryStore:
    """A warehouse whose pipeline `p` has set B aside."""
    store = MemoryStore()
    _, sink = parts(store, rules, on_table_error=QUARANTINE)
    sink.run(Again(A_STEPS), until_caught_up=True)
    return store


def copied(store: MemoryStore, to: MemoryStore, directory: str = "w") -> MemoryStore:
    """The second store, with the files of the first."""
    for each in store.list(directory):
        if each.is_directory:
            copied(store, to, each.path)
        else:
            to.put(each.path, store.read(each.path))
    return to


def run(store: Store, source: Again, seed: int = 2, rules: PlainRules | None = None) -> Progress:
    _, sink = parts(store, rules, seed, on_table_error=QUARANTINE)
    return sink.run(source, until_caught_up=True)


def test_at_the_end_the_target_equals_the_source() -> None:
    store = set_aside()
    files(store).request([B])
    files(store, seed=4).request([B])
    progress = run(store, Again(MORE))

    catalog, _ = parts(store)
    assert rows(catalog, "d.b") == BACK
    assert [row[0] for row in rows(catalog, "d.a")] == [1, 2, 3, 4, 5, 6]
    assert (progress.quarantine, progress.newly_set_aside) == ((), ())
    assert not files(store).requests()
    assert "mark" not in (run(store, Again(MORE)).position or {})


def test_a_running_pipeline_does_it_at_its_next_checkpoint() -> None:
    store = set_aside()
    _, sink = parts(store, seed=2, on_table_error=QUARANTINE)
    reported: list[int] = []

    def reports(progress: Progress) -> None:
        if not reported:
            files(store).request([B])
        reported.append(len(progress.quarantine))

    sink.run(Again(MORE), until_caught_up=True, reports=reports)

    assert reported == [1, 0]
    assert rows(parts(store)[0], "d.b") == [(2, "new"), (7, "n")], "step 5 came before the request"


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_every_step_is_harmless(*, after: bool) -> None:
    begun = set_aside()
    files(begun).request([B])
    for fail_at in calls_of("resync", str(after)):
        inner = copied(begun, MemoryStore())
        failing = FailingStore(inner, fail_at, after=after)
        with suppress(StoreFailure, LakecoreError):
            run(failing, Again(MORE))
        progress = run(inner, Again(MORE), seed=5)

        assert rows(parts(inner)[0], "d.b") == BACK, fail_at
        assert progress.quarantine == (), fail_at
        assert not files(inner).requests(), fail_at
        if not failing.is_dead:
            break
    assert fail_at > 10


def test_a_target_that_is_gone_is_made_anew() -> None:
    store = set_aside()
    parts(store)[0].drop_table("d.b")
    files(store).request([B])
    run(store, Again(MORE))

    assert rows(parts(store)[0], "d.b") == BACK


@pytest.mark.parametrize(
    ("rules", "of", "reason"),
    [
        (PlainRules(options={"bucket": "1", "ignore-delete": "true"}), ONE, "does not remove"),
        (PlainRules(), schema({"id": "BIGINT NOT NULL", "v": "STRING"}, key=()), "another key"),
    ],
)
def test_a_target_that_cannot_take_the_table_stays_as_it_was(
    rules: PlainRules, of: SourceSchema, reason: str
) -> None:
    store = set_aside(rules)
    before = rows(parts(store)[0], "d.b")
    files(store).request([B])
    source = Again(A_STEPS)
    source.of = of
    progress = run(store, source, rules=rules)

    (entry,) = progress.quarantine
    assert entry.reason.startswith("it could not be read again: ")
    assert reason in entry.reason
    assert progress.newly_set_aside == ("s.b",)
    assert rows(parts(store)[0], "d.b") == before
    assert not files(store).requests()
    assert run(store, Again(MORE), seed=6, rules=rules).quarantine == progress.quarantine


def test_a_source_that_goes_away_is_asked_again_later() -> None:
    store = set_aside()
    files(store).request([B])
    source = Again(MORE)
    source.lost = True
    run(store, source)

    assert rows(parts(store)[0], "d.b") == [(2, "new"), (7, "n")]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Requests a resync of a pipeline whose table B is in quarantine."""
    store = set_aside()
    catalog, _ = parts(store)
    monkeypatch.setattr("lakecore.cdc.pipeline.state_store", lambda *_: (store, "w/.cdc"))
    ambient = seeded(7)
    return lambda name, *tables: request_resync(catalog, name, tables, None, ambient)


def test_a_request_names_tables_of_the_pipeline_or_new_ones_in_full(
    ask: Callable[..., list[str]],
) -> None:

    with pytest.raises(NotFound, match="no such pipeline"):
        ask("q", "b")
    with pytest.raises(InvalidRequest, match="no such table"):
        ask("p", "b", "c")
    with pytest.raises(InvalidRequest, match="name the tables"):
        ask("p")
    assert ask("p", "b", "s.b", "a", "s.new") == ["s.b", "s.b", "s.a", "s.new"]


def followed() -> MemoryStore:
    """A warehouse whose pipeline `p` follows both tables."""
    store = MemoryStore()
    _, sink = parts(store, on_table_error=QUARANTINE)
    sink.run(Again(A_STEPS[:2]), until_caught_up=True)
    return store


def test_a_table_that_is_followed_becomes_equal_to_its_source_too() -> None:
    store = followed()
    files(store).request([B])
    progress = run(store, Again([*A_STEPS[:2], *MORE[4:]]))

    assert rows(parts(store)[0], "d.b") == BACK
    assert (progress.quarantine, progress.not_read_again) == ((), {})


@pytest.mark.parametrize("after", [False, True])
def test_a_kill_while_a_followed_table_is_read_is_harmless(*, after: bool) -> None:
    begun = followed()
    files(begun).request([B])
    steps = [*A_STEPS[:2], *MORE[4:]]
    ended, fail_at = False, 0
    while not ended:
        fail_at += 1
        inner = copied(begun, MemoryStore())
        try:
            run(FailingStore(inner, fail_at, after=after), Again(steps))
            ended = True
        except (StoreFailure, LakecoreError):
            pass
        run(inner, Again(steps), seed=5)

        assert rows(parts(inner)[0], "d.b") == BACK, fail_at
        assert not files(inner).requests(), fail_at
    assert fail_at > 10


def test_a_followed_table_that_cannot_be_read_goes_on_and_the_result_says_why() -> None:
    store = followed()
    files(store).request([B, SourceTable("s", "typo")])
    source = Again([*A_STEPS[:2], *MORE[4:]])
    source.of = schema({"id": "BIGINT NOT NULL", "v": "STRING"}, key=("v",))
    progress = run(store, source)

    assert rows(parts(store)[0], "d.b") == [(1, "b"), (2, "b"), (5, "b")]
    assert list(progress.not_read_again) == ["s.b", "s.typo"]
    told = progress.not_read_again["s.typo"]
    assert "no such table" in told
    assert "Next step: `lakecore cdc resync` with the name of a table that the source has" in told
    assert (progress.quarantine, files(store).requests()) == ((), {})
    assert list(run(store, Again(MORE), seed=5).not_read_again) == ["s.b"], "a wrong name is gone"


class Late(Again):
    """A source that finds B after a step, by default the second: its rows are not in the log."""

    at: int = 2

    def steps(self, after: Position | None) -> Iterator[Step]:
        for step in super().steps(after):
            unread = step.position["step"] == self.at and "mark" not in (after or {})
            yield replace(step, unread=(B,)) if unread else step


def test_a_table_that_the_source_must_read_and_cannot_is_set_aside() -> None:
    store = followed()
    source = Late([*A_STEPS[:2], MORE[5], *MORE[4:]])
    source.at = 3
    source.of = schema({"id": "BIGINT NOT NULL", "v": "STRING"}, key=("v",))
    progress = run(store, source)

    assert [each.table for each in progress.quarantine] == [B]
    assert rows(parts(store)[0], "d.b") == [(1, "b"), (2, "b")]


@pytest.mark.parametrize("asked", [False, True])
def test_that_a_source_must_read_a_table_outlives_its_process(*, asked: bool) -> None:
    store = followed()
    if asked:
        files(store).request([B])
    Requests(files(store)).add([B])
    source = Again([*A_STEPS[:2], *MORE[4:]])
    source.of = schema({"id": "BIGINT NOT NULL", "v": "STRING"}, key=("v",))
    progress = run(store, source)

    assert [each.table for each in progress.quarantine] == [B]
    assert (progress.not_read_again, files(store).requests()) == ({}, {})


def test_a_table_that_the_source_finds_later_is_read_and_followed() -> None:
    store = MemoryStore()
    steps = [[batch(A, ONE, ("+I", each, "x"))] for each in (1, 2, 3)]
    steps[2].append(batch(B, ONE, ("+I", 5, "b")))
    _, sink = parts(store, on_table_error=QUARANTINE, takes_new_tables=True)
    progress = sink.run(Late(steps), until_caught_up=True)

    assert rows(parts(store)[0], "d.b") == BACK
    assert len(rows(parts(store)[0], "d.a")) == 3
    assert (progress.quarantine, files(store).requests()) == ((), {})


class Keyed(Again):
    """A source that says that B has a key, after the step before the last one."""

    def steps(self, after: Position | None) -> Iterator[Step]:
        for step in super().steps(after):
            is_it = step.position["step"] == len(self.batches) - 1
            yield replace(step, altered=(Altered(table=B, has_key=True),)) if is_it else step


@pytest.mark.parametrize("stated", [False, True])
def test_a_table_that_gets_its_key_while_it_runs_is_read_at_once(*, stated: bool) -> None:
    """A row shows the key, or a statement, after which no row follows."""
    store = MemoryStore()
    keyless = schema({"id": "INT NOT NULL", "v": "STRING"}, key=())
    steps = [
        [batch(A, ONE, ("+I", 1, "x"))],
        [batch(A, ONE, ("+I", 2, "x")), batch(B, keyless, ("+I", 2, "old"), ("+I", 7, "n"))],
        [batch(A, ONE, ("+I", 3, "x")), *([] if stated else [batch(B, ONE, ("+I", 5, "b"))])],
        [batch(A, ONE, ("+I", 4, "x"))],
        [batch(A, ONE, ("+I", 5, "x"))],
    ]
    chosen: dict[str, Any] = {
        "on_table_error": QUARANTINE,
        "takes_new_tables": True,
        "needs_key": True,
    }
    _, sink = parts(store, **chosen)
    kind = Keyed if stated else Again
    progress = sink.run(kind(steps, known={A: ONE}), until_caught_up=True)

    assert rows(parts(store)[0], "d.b") == [(2, "new"), (7, "n")]
    assert len(rows(parts(store)[0], "d.a")) == 5
    assert (progress.left_out, progress.quarantine) == ({}, ())
    assert files(store).requests() == {}


@pytest.mark.parametrize("fail_at", [0, 1, 2, 3, 5, 8, 13, 21])
def test_a_table_that_gets_its_key_later_is_read_and_followed(fail_at: int) -> None:
    """Rows were passed over while it had none, and the position is behind them."""
    store = MemoryStore()
    keyless = schema({"id": "INT NOT NULL", "v": "STRING"}, key=())
    steps = [
        [batch(A, ONE, ("+I", 1, "x"))],
        [batch(A, ONE, ("+I", 2, "x")), batch(B, keyless, ("+I", 2, "old"), ("+I", 7, "n"))],
        [batch(A, ONE, ("+I", 3, "x")), batch(B, ONE, ("+I", 5, "b"))],
    ]
    chosen: dict[str, Any] = {
        "on_table_error": QUARANTINE,
        "takes_new_tables": True,
        "needs_key": True,
    }
    _, sink = parts(store, **chosen)
    progress = sink.run(Again(steps[:2], known={A: ONE}), until_caught_up=True)
    assert list(progress.left_out) == ["s.b"]

    if fail_at:  # the next process is killed, and a third one goes on
        _, sink = parts(FailingStore(store, fail_at), seed=2, **chosen)
        with suppress(StoreFailure, LakecoreError):
            sink.run(Again(steps, known={A: ONE, B: ONE}), until_caught_up=True)
    _, sink = parts(store, seed=3, **chosen)
    progress = sink.run(Again(steps, known={A: ONE, B: ONE}), until_caught_up=True)

    assert rows(parts(store)[0], "d.b") == BACK
    assert (progress.left_out, files(store).requests()) == ({}, {})


def test_a_source_that_cannot_do_it_is_named(
    ask: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakecore.cdc.pipeline._READS_AGAIN", ("other",))
    with pytest.raises(Unsupported, match="source=mysql"):
        ask("p", "b")


class Failing(Again):
    """A source that cannot read B again, and counts how often it was asked."""

    error: LakecoreError = InvalidRequest("a value that no type holds")
    asked = 0

    def read_again(
        self, table: SourceTable, after: Position, start: int | None = None
    ) -> Iterator[Step]:
        del table, after, start
        self.asked += 1
        yield from ()
        raise self.error


def test_a_read_that_failed_is_an_error_with_a_next_step_and_is_in_the_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    parts(store)[1].run(Again(A_STEPS[:2]), until_caught_up=True)
    files(store).request([B])
    source = Failing(A_STEPS[:2])
    run(store, source)

    state = files(store).latest()
    assert state is not None
    (told,) = state.metrics["not_read_again"].values()  # type: ignore[union-attr]
    assert told == (
        "it could not be read again: a value that no type holds. Next step: once the cause is "
        "solved, `lakecore cdc resync p --tables s.b`, with --warehouse and --state as the pipeline"
    )
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.getMessage() == f"table not read again. table=s.b reason={told}"
    assert source.asked == 1
    again = run(store, Failing(A_STEPS[:2]), seed=5)
    assert again.not_read_again == {"s.b": told}, "it is still not read"
    files(store, seed=6).request([B])
    assert run(store, Again(MORE), seed=7).not_read_again == {}
    state = files(store).latest()
    assert state is not None
    assert state.metrics["not_read_again"] == {}


def test_a_source_that_fails_for_one_table_is_not_asked_in_a_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    parts(store)[1].run(Again(A_STEPS[:2]), until_caught_up=True)
    files(store).request([B])
    _, sink = parts(store, seed=2)
    ambient = sink._ambient  # noqa: SLF001
    source, begun_ms = Failing(A_STEPS[:2]), ambient.now_ms()
    source.error = StorageError("the table is locked")

    def stops() -> bool:
        ambient.sleep(0.5)
        return ambient.now_ms() - begun_ms > 300_000

    sink.run(source, stops=stops)
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert 5 < source.asked < 9
    assert len(errors) == source.asked
    assert "table=s.b reason=the table is locked. Next step: none, it is tried again" in errors[0]
    state = files(store).latest()
    assert state is not None
    assert "the table is locked" in str(state.metrics["not_read_again"])
    assert files(store).requests(), "the request is still open"


def test_targets_of_the_status_are_those_that_are_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = set_aside()
    monkeypatch.setattr("lakecore.cdc.pipeline.state_store", lambda *_: (store, "w/.cdc"))

    def targets() -> tuple[str, ...]:
        found = status_of(parts(store)[0], "p", None, seeded(8))
        assert found is not None
        return found.targets

    assert targets() == ("d.a",)
    files(store).request([B])
    run(store, Again(MORE))
    assert targets() == ("d.a", "d.b")
    empty = [*MORE, [batch(SourceTable("s", "c"), ONE)]]
    _, sink = parts(store, seed=9, takes_new_tables=True, on_table_error=QUARANTINE)
    sink.run(Again(empty), until_caught_up=True)
    assert targets() == ("d.a", "d.b", "d.c")
