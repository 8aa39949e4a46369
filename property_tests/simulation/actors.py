"""Actors: each carries out its deeds on the table, one after the other, and keeps a record of each.

An actor whose process ended is started again, with a new handle. A deed with a number it does again
under that number; any other it leaves, for it cannot know what became of it. What it has staged,
the messages of a write in two phases, outlives the process, as the checkpoint of a job does.
"""

from __future__ import annotations

import random
import traceback
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from lakecore.errors import (
    CommitConflict,
    CommitUnknown,
    CorruptTable,
    InvalidRequest,
    NotFound,
    StorageError,
)
from lakecore.format.layout import Layout
from lakecore.io.ambient import Ambient, seeded
from lakecore.io.stores.guarded import unguarded
from lakecore.memory import Budget
from lakecore.model.evolution import evolve
from lakecore.model.schema_change import SchemaChange
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER
from lakecore.model.validation import create_schema
from lakecore.table.handle import Table, load_table
from lakecore.table.publication import write_schema
from property_tests.simulation.scenario import KEEPING, LEADS_BACK, SHAPES
from property_tests.simulation.scheduler import CrashedError
from property_tests.simulation.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakecore.io.stores.store import Store
    from lakecore.model.files import CommitMessage
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from property_tests.simulation.disk import Disk
    from property_tests.simulation.scenario import Actor, Deed, Scenario

PATH = "memory://warehouse/shop.db/t"
BUDGET_BYTES = 1 << 30
_STARTS_MAX = 3
_TRIES_MAX = 3
_CRASHED_WAIT_MS = 20
_PAUSE_MS = 5
READS = ("read", "follow")
"""The verbs that change nothing."""


class Outcome(StrEnum):
    """What an actor knows of what it tried."""

    DONE = "done"
    REFUSED = "refused"  # it changed nothing, for certain
    UNKNOWN = "unknown"
    CRASHED = "crashed"


@dataclass(kw_only=True)
class Attempt:
    """A deed, tried once: as whom, between which snapshots, and what came of it."""

    name: str
    actor: str
    deed: Deed
    user: str
    first_snapshot: int  # the newest one when it began
    began: int = 0  # how many calls came before
    ended: int | None = None
    last_snapshot: int = 0  # the newest one when it ended
    outcome: Outcome = Outcome.CRASHED
    snapshot_ids: tuple[int, ...] = ()
    rows: list[tuple[Any, ...]] | None = None  # of a read
    changes: list[tuple[int, list[tuple[Any, ...]]]] | None = None  # by snapshot, of a stream
    error: str = ""
    unexpected: bool = False  # nothing that went wrong explains the error
    gone: bool = False  # the error says that something is not there
    staged_gone: bool = False  # the error says that the files of its messages are not there
    power_losses: int = 0


def table_schema(scenario: Scenario) -> TableSchema:
    """The first schema of the table."""
    shape = SHAPES[scenario.shape]
    columns = {"k": "INT NOT NULL", "v": "BIGINT", "w": "BIGINT"}
    keys = ["k"] if shape.keyed else []
    if shape.partitioned:
        columns["p"] = "INT NOT NULL"
        keys.append("p")
    return create_schema(
        columns,
        primary_keys=keys,
        partition_keys=["p"] if shape.partitioned else [],
        options={**shape.options, **scenario.options},
        now_ms=0,
    )


def create(scenario: Scenario, store: Store) -> None:
    """Make the table."""
    assert write_schema(store, Layout(root=PATH), table_schema(scenario))


def open_at(store: Store, ambient: Ambient) -> Table:
    """The table as a process sees it."""
    return load_table(store, PATH, ambient=ambient, budget=Budget(BUDGET_BYTES))


def life(actor: Actor, disk: Disk, attempts: list[Attempt]) -> Callable[[], None]:
    """What the thread of an actor runs."""
    return partial(_Life(actor, disk, attempts).run)


class _Life:
    """An actor from its first start to its last deed."""

    def __init__(self, actor: Actor, disk: Disk, attempts: list[Attempt]) -> None:
        self._actor = actor
        self._disk = disk
        self._attempts = attempts
        self._faults = [each for each in disk.scenario.faults if each.actor == actor.name]
        self._tries = 0
        self._staged: dict[str, Sequence[CommitMessage]] = {}

    def run(self) -> None:
        left = list(self._actor.deeds)
        for start in range(_STARTS_MAX):
            task = self._disk.scheduler.task(self._actor.name)
            session = Session(self._disk, task, self._faults)
            ambient = self._ambient(session, start)
            try:
                self._work(session, ambient, left)
            except CrashedError:
                if self._disk.scheduler.failure is not None:
                    raise
                if left and left[0].number is None:
                    left.pop(0)
                self._disk.scheduler.pause(task, _CRASHED_WAIT_MS)
            if not left:
                return

    def _ambient(self, session: Session, start: int) -> Ambient:
        scenario = self._disk.scenario
        chance = random.Random(f"{scenario.seed} {self._actor.name} {start}")
        return Ambient(
            now_ms=lambda: self._disk.scheduler.now_ms,
            local_wall_clock_ms=lambda: self._disk.scheduler.now_ms,
            new_uuid=seeded(chance.getrandbits(64)).new_uuid,
            sleep=lambda seconds: session.wait(seconds * 1000),
            random=chance.random,
        )

    def _work(self, session: Session, ambient: Ambient, left: list[Deed]) -> None:
        table: Table | None = None
        while left:
            deed = left[0]
            if self._actor.waits_ms:
                session.wait(self._actor.waits_ms)
            for _ in range(_TRIES_MAX):
                self._wait_for_rollback(session, deed)
                attempt = self._attempt(deed)
                session.attempt = attempt.name
                try:
                    self._wait_for_writers(session, deed)
                    if table is None or self._actor.reopens:
                        table = open_at(session, ambient)
                    self._carry_out(table, attempt)
                    attempt.outcome = Outcome.DONE
                except Exception as error:  # noqa: BLE001 - what is not expected is a finding
                    _take_in(attempt, error, troubled=attempt.name in self._disk.troubled)
                    if _is_of_old_columns(error):
                        table = None
                finally:
                    self._disk.changing.discard(attempt.name)
                    if deed.verb in LEADS_BACK:
                        self._disk.rolling_back = False
                    attempt.last_snapshot = self._disk.snapshots
                    attempt.ended = len(self._disk.trace)
                    self._disk.note(attempt.name, "ends", "", f"{attempt.outcome} {attempt.error}")
                # What is not numbered must not be done twice; what was refused may be done again.
                if attempt.outcome is Outcome.DONE or (
                    attempt.outcome is Outcome.UNKNOWN and deed.number is None
                ):
                    break
            left.pop(0)
            if attempt.outcome is Outcome.REFUSED and table is not None:
                self._abort(table, deed)

    def _wait_for_rollback(self, session: Session, deed: Deed) -> None:
        """Writers pause during a rollback, as `Table.rollback_to` asks for."""
        others = *READS, *(each for each in KEEPING if each not in LEADS_BACK)
        while self._disk.rolling_back and deed.verb not in others:
            session.wait(_PAUSE_MS)
        if deed.verb in LEADS_BACK:
            self._disk.rolling_back = True

    def _wait_for_writers(self, session: Session, deed: Deed) -> None:
        while deed.verb in LEADS_BACK and self._disk.changing:
            session.wait(_PAUSE_MS)

    def _abort(self, table: Table, deed: Deed) -> None:
        """Remove what was staged for a deed that is given up."""
        with suppress(StorageError), table.new_write() as writer:
            writer.abort(self._staged.get(deed.name, ()))

    def _carry_out(self, table: Table, attempt: Attempt) -> None:
        deed = attempt.deed
        if deed.verb != "staged":
            _carry_out(table, attempt)
            return
        if deed.name not in self._staged:
            with table.new_write() as writer:
                writer.write(data_of(table, deed))
                self._staged[deed.name] = writer.prepare_commit()
        assert deed.number is not None
        messages = self._staged[deed.name]
        done = table.commit(messages, identifier=deed.number, commit_user=attempt.user)
        attempt.snapshot_ids = done.snapshot_ids

    def _attempt(self, deed: Deed) -> Attempt:
        self._tries += 1
        name = f"{self._actor.name}/{deed.name}/{self._tries}"
        attempt = Attempt(
            name=name,
            actor=self._actor.name,
            deed=deed,
            user=name if deed.number is None else self._actor.name,
            first_snapshot=self._disk.snapshots,
            began=len(self._disk.trace),
            power_losses=self._disk.power_losses,
        )
        self._attempts.append(attempt)
        if deed.verb not in READS and deed.verb not in KEEPING:
            self._disk.changing.add(name)
        self._disk.note(name, "begins", "", str(deed))
        return attempt


def _is_of_old_columns(error: Exception) -> bool:
    """Whether a verb asks to open the table again, because it would lose the values of a column."""
    return isinstance(error, InvalidRequest) and "columns were added after" in str(error)


def _take_in(attempt: Attempt, error: Exception, *, troubled: bool) -> None:
    """Keep what an error says of the outcome; one that nobody should see is unexpected."""
    attempt.error = repr(error)
    if isinstance(error, CommitUnknown):
        attempt.outcome = Outcome.UNKNOWN
        attempt.unexpected = not troubled
    else:
        attempt.outcome = Outcome.REFUSED
        fails = isinstance(error, StorageError | OSError)
        attempt.gone = isinstance(error, NotFound | CorruptTable)
        attempt.staged_gone = "files of the messages are not there" in str(error)
        rightly = isinstance(error, CommitConflict) or _is_of_old_columns(error)
        attempt.unexpected = not (rightly or (fails and troubled))
    if attempt.unexpected:
        attempt.error = "".join(traceback.format_exception(error))


def _carry_out(table: Table, attempt: Attempt) -> None:
    """Do what the deed says; the attempt keeps the snapshots it made, or the rows it read."""
    deed = attempt.deed
    match deed.verb:
        case "read":
            attempt.rows = rows_of(table)
        case "follow":
            attempt.changes = _followed(table, deed)
        case verb if verb in KEEPING:
            _keep(table, deed)
        case "compact" | "compact fully":
            table.compact(full=deed.verb == "compact fully")
        case "add a column" | "set an option":
            _alter(table, deed)
        case _:
            attempt.snapshot_ids = _change_rows(table, attempt)


def _followed(table: Table, deed: Deed) -> list[tuple[int, list[tuple[Any, ...]]]]:
    """The changes of the newest snapshots, each row with its kind."""
    ids = table.refresh().context.history.snapshot_ids()
    if not ids:
        return []
    found = []
    for at, frame in table.stream(max(ids[0], ids[-1] - deed.count), "latest"):
        found.append((at, frame.select("_row_kind", "k", "v", "w").collect().rows()))
    return found


def _keep(table: Table, deed: Deed) -> None:
    """Expire, tag, branch, roll back or fast-forward, on what there is."""
    table = table.refresh()
    ids, tags = table.context.history.snapshot_ids(), table.context.history.tag_names()
    if deed.verb == "untag":
        for tag in tags[: deed.count]:
            table.delete_tag(tag)
    elif not ids:
        return
    elif deed.verb == "expire":
        table.expire_snapshots(retain_max=deed.count, retain_min=deed.count, max_deletes=100)
    elif deed.verb == "tag" and deed.name not in tags:
        table.create_tag(deed.name, snapshot_id=ids[max(0, len(ids) - deed.count)])
    elif deed.verb == "rename" and tags and deed.name not in tags:
        table.rename_tag(tags[0], deed.name)
    elif deed.verb == "branch" and tags:
        table.create_branch(deed.name, tags[deed.count % len(tags)])
    elif deed.verb == "fast forward":
        for branch in table.branches()[:1]:
            if branch.schema_id == table.schema.id and branch.latest_snapshot_id is not None:
                newest = table.branch(branch.name).context.history.latest_snapshot()
                _lead_to(table, newest)
                table.fast_forward(branch.name)
    elif deed.verb == "roll back":
        target = ids[max(0, len(ids) - deed.count)]
        _lead_to(table, table.context.history.snapshot(target))
        table.rollback_to(snapshot_id=target)


def _lead_to(table: Table, snapshot: Snapshot | None) -> None:
    """Say that readers may see this snapshot as the newest one, from now on."""
    store = unguarded(table.context.store)
    assert isinstance(store, Session)
    assert snapshot is not None
    assert snapshot.uuid is not None
    store.disk.goals.add(snapshot.uuid)


def _change_rows(table: Table, attempt: Attempt) -> tuple[int, ...]:
    deed, user = attempt.deed, attempt.user
    match deed.verb:
        case "write" | "numbered":
            number = BATCH_COMMIT_IDENTIFIER if deed.number is None else deed.number
            return table.write(
                data_of(table, deed), identifier=number, commit_user=user
            ).snapshot_ids
        case "overwrite":
            return table.overwrite(data_of(table, deed), commit_user=user).snapshot_ids
        case "truncate":
            return table.truncate().snapshot_ids
        case "drop":
            return table.drop_partition({"p": deed.rows[0][0] % 2}).snapshot_ids
        case "delete":
            return table.delete(pl.col("k").is_in(deed.deletes), commit_user=user).snapshot_ids
        case "update":
            where = pl.col("k").is_in(deed.deletes)
            return table.update({"w": pl.col("w") + 1}, where, commit_user=user).snapshot_ids
        case "merge":
            on = ["k", "p"] if "p" in table.schema.names else ["k"]
            values = {"v": pl.col("source.v"), "w": pl.col("target.w") + 1}
            merge = table.merge(data_of(table, deed), on=on).when_matched_update(values)
            inserted = {name: pl.col(name) for name in ("v", "w", *on)}
            return merge.when_not_matched_insert(inserted).execute(commit_user=user).snapshot_ids
    raise AssertionError(deed.verb)


def data_of(table: Table, deed: Deed) -> pa.Table:
    """The rows of a deed, with their kinds if any is a deletion."""
    rows = [*deed.rows, *((key, None, None) for key in deed.deletes)]
    columns: dict[str, pa.Array] = {
        "k": pa.array([row[0] for row in rows], pa.int32()),
        "v": pa.array([row[1] for row in rows], pa.int64()),
        "w": pa.array([row[2] for row in rows], pa.int64()),
    }
    if "p" in table.schema.names:
        columns["p"] = pa.array([row[0] % 2 for row in rows], pa.int32())
    if deed.deletes:
        columns["_row_kind"] = pa.array(["+I"] * len(deed.rows) + ["-D"] * len(deed.deletes))
    return pa.table(columns)


def rows_of(table: Table, snapshot_id: int | None = None) -> list[tuple[Any, ...]]:
    """Key, `v` and `w` of all rows, sorted."""
    found = table.to_arrow(["k", "v", "w"], snapshot_id=snapshot_id)
    rows = zip(*(found.column(name).to_pylist() for name in ("k", "v", "w")), strict=True)
    return sorted(rows, key=repr)


def _alter(table: Table, deed: Deed) -> None:
    """Put the next schema, as the catalog does it."""
    context = table.context
    current = context.history.latest_schema()
    assert current is not None
    change: Any = SchemaChange.add_column(f"c{deed.name}", "STRING")
    if deed.verb == "set an option":
        change = SchemaChange.set_option("num-sorted-run.compaction-trigger", "3")
    changed = evolve(current, [change], now_ms=context.ambient.now_ms(), has_snapshots=True)
    write_schema(context.store, context.layout, changed)
