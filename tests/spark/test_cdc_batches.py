"""Batches of messages by the calls of Spark: each change once, whatever dies, in every format."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.errors import InvalidRequest
from property_tests.profile import sized
from spark_bridge.job_commit import publish
from tests.spark.frames import files_of, held, live_files_of
from tests.spark.messages import POINTS, Crash, Log, Queue, Stream, change, settings_of

if TYPE_CHECKING:
    from pathlib import Path

RUNS = int(os.environ.get("LAKECORE_STREAM_RUNS", sized(12, quick=4)))


def table(warehouse: Path, name: str) -> lc.Table:
    return lc.connect(warehouse).get_table(f"shop.{name}")


def rows(warehouse: Path, name: str) -> list[dict[str, Any]]:
    return sorted(table(warehouse, name).to_polars().to_dicts(), key=lambda row: str(row["id"]))


def test_tables_are_made_and_follow_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, log = Queue(), Log("q")
    queue.put(change("a", None, {"id": 1, "v": "x"}))
    queue.put(change("b", None, {"id": 7}))
    queue.put(change("a", None, {"id": 2, "v": "y"}))
    first = Stream(queue, log, settings_of(tmp_path)).run(monkeypatch)
    queue.put(change("a", {"id": 1, "v": "x"}, {"id": 1, "v": "z", "note": "new"}))
    queue.put(change("a", {"id": 2, "v": "y"}, None))
    queue.put(change("c", None, {"id": 3}))
    second = Stream(queue, log, settings_of(tmp_path)).run(monkeypatch)

    assert rows(tmp_path, "a") == [{"id": "1", "v": "z", "note": "new"}]
    assert rows(tmp_path, "b") == [{"id": "7"}]
    assert rows(tmp_path, "c") == [{"id": "3"}]
    assert (first[0].tables, first[0].schemas_changed) == ({"shop.a": 2, "shop.b": 1}, 2)
    assert (second[0].batch, second[0].schemas_changed, second[0].messages) == (1, 2, 3)
    assert table(tmp_path, "a").last_identifier("spark-q") == 1
    assert table(tmp_path, "b").last_identifier("spark-q") == 0
    for name in "abc":
        assert files_of(table(tmp_path, name)) == live_files_of(table(tmp_path, name))


@pytest.mark.parametrize("point", POINTS)
def test_batch_is_written_once_wherever_the_driver_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    log_conf = {"bucket": "-1"}
    queue, log = Queue(2), Log("q")
    settings = settings_of(tmp_path, table_conf=log_conf, format="debezium-json")
    settings = replace(
        settings,
        arguments=replace(
            settings.arguments, flags={"sync_primary_keys_from_source_schema": ("false",)}
        ),
    )
    for number in range(6):
        queue.put(change("ab"[number % 2], None, {"id": number}), number)
    with pytest.raises(Crash):
        Stream(queue, log, settings, crash=point).run(monkeypatch)
    queue.put(change("a", None, {"id": 6}), 6)
    done = Stream(queue, log, settings).run(monkeypatch)

    assert [row["id"] for row in rows(tmp_path, "a")] == ["0", "2", "4", "6"]
    assert [row["id"] for row in rows(tmp_path, "b")] == ["1", "3", "5"]
    if point == "first commit":
        assert done[0].already_committed == ("shop.a",)
        assert done[0].tables == {"shop.b": 3}
    if point not in {"written", "first commit"}:
        for name in "ab":
            assert files_of(table(tmp_path, name)) == live_files_of(table(tmp_path, name))


@pytest.mark.parametrize("seed", range(RUNS))
def test_random_run_ends_as_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Two queries into one database, with crashes, new columns, shards and lost checkpoints."""
    random = Random(seed)
    conf = {"bucket": random.choice(["1", "3", "-1"])}
    settings = settings_of(
        tmp_path, table_conf=conf, tasks=random.randint(1, 3), compact_every=random.choice([0, 2])
    )
    queues = {"one": Queue(random.randint(1, 3)), "two": Queue(2)}
    logs = {name: Log(name) for name in queues}
    model: dict[tuple[str, int], dict[str, object]] = {}
    columns = ["v"]
    for step in range(random.randint(3, 7)):
        if random.random() < 0.4:
            columns.append(f"c{step}")
        for _ in range(random.randint(0, 12)):
            name, key = random.choice("ab"), random.randint(0, 8)
            query = "one" if key % 2 else "two"
            old = model.get((name, key))
            new: dict[str, object] | None = {"id": key, random.choice(columns): str(step)}
            if old is not None and random.random() < 0.3:
                new = None
            db = random.choice(["shard1", "shard2"])
            queues[query].put(change(name, old, new, db), key)
            model.pop((name, key), None)
            if new is not None:
                model[name, key] = new
        for query, queue in queues.items():
            if random.random() < 0.2:
                # A lost checkpoint: all changes come again, and end in the same rows.
                logs[query] = Log(f"{query}-{step}")
            crash = random.choice(["", "", *POINTS])
            try:
                Stream(queue, logs[query], settings, random, crash).run(monkeypatch)
            except Crash:
                Stream(queue, logs[query], settings, random).run(monkeypatch)
    for name in "ab":
        wanted = {str(key): row for (of, key), row in model.items() if of == name}
        if not lc.connect(tmp_path).table_exists(f"shop.{name}"):
            assert not wanted
            continue
        found = {
            row["id"]: {k: v for k, v in row.items() if v is not None}
            for row in rows(tmp_path, name)
        }
        assert found == {key: {**row, "id": key} for key, row in wanted.items()}


MESSAGES: dict[str, list[dict[str, Any]]] = {
    "canal-json": [
        {
            "database": "d", "table": "a", "isDdl": False, "type": "INSERT", "pkNames": ["id"],
            "mysqlType": {"id": "int", "v": "varchar(9)"}, "sqlType": {"id": 4, "v": 12},
            "data": [{"id": "1", "v": "x"}, {"id": "2", "v": "y"}], "old": None,
        }
    ],
    "maxwell-json": [
        {
            "database": "d", "table": "a", "type": "insert", "data": {"id": 1, "v": "x"},
            "primary_key_columns": ["id"],
        }
    ],
    "ogg-json": [
        {"table": "d.a", "op_type": "I", "primary_keys": ["id"], "after": {"id": "1", "v": "x"}}
    ],
    "aws-dms-json": [
        {
            "data": {"id": "1", "v": "x"},
            "metadata": {
                "operation": "insert", "schema-name": "d", "table-name": "a",
                "record-type": "data",
            },
        }
    ],
    "json": [{"id": 1, "v": "x"}, {"id": 2, "v": "y"}],
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_formats_give_the_rows_that_the_action_on_files_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from lakecore.catalog.registry import open_catalog
    from lakecore.cdc.actions import Arguments
    from lakecore.cdc.pipeline import Pipeline, run_pipeline
    from lakecore.io.ambient import SYSTEM

    lines = [json.dumps(each).encode() for each in MESSAGES[name]]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1").write_bytes(b"\n".join(lines) + b"\n")
    catalog = open_catalog({"warehouse": str(tmp_path / "files")}, create=True)
    arguments = Arguments(
        database="shop",
        table="a",
        conf={"path": str(tmp_path / "in"), "value.format": name},
        flags={"primary_keys": ("id",)},
        table_conf={"bucket": "2"},
    )
    action = Pipeline(action="files_sync_table", arguments=arguments)
    run_pipeline(catalog, action, SYSTEM, until_caught_up=True)
    queue = Queue()
    for line in lines:
        queue.put(line)
    settings = settings_of(
        tmp_path / "spark", table="a", format=name, flags={"primary_keys": ["id"]}
    )
    Stream(queue, Log("q"), settings).run(monkeypatch)

    found, wanted = table(tmp_path / "spark", "a"), table(tmp_path / "files", "a")
    assert held(found) == held(wanted) != []
    assert found.schema.fields == wanted.schema.fields


def test_messages_and_rows_that_do_not_fit_become_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, log = Queue(2), Log("q")
    queue.put(b"no message", 1)
    queue.put(change("a", None, {"id": 1, "v": "x"}), 0)
    queue.put(change("a", None, {"v": "no key"}), 1)
    with pytest.raises(InvalidRequest, match=r"cannot be read.*topic=t partition=1 offset=0"):
        Stream(queue, log, settings_of(tmp_path)).run(monkeypatch)
    keeps = settings_of(tmp_path, keeps_letters=True)
    for _ in range(2):
        log = Log("q")
        done = Stream(queue, log, keeps).run(monkeypatch)
        assert done[0].left_out == 2
    (path,) = (tmp_path / ".cdc" / "spark-q").iterdir()
    letters = [json.loads(line) for line in path.read_text().splitlines()]

    assert rows(tmp_path, "a") == [{"id": "1", "v": "x"}]
    assert path.name == "dead-letters-0.jsonl"
    assert [letter.get("offset", letter.get("target")) for letter in letters] == ["0", "shop.a"]


def canal(table: str, key: int, value: str, kind: str = "decimal(4,2)") -> bytes:
    """A message that states the types of its columns."""
    event = {
        "type": "INSERT",
        "database": "src",
        "table": table,
        "isDdl": False,
        "ts": 1,
        "data": [{"id": key, "v": value}],
        "mysqlType": {"id": "int", "v": kind},
        "pkNames": ["id"],
    }
    return json.dumps(event).encode()


def test_dead_letters_of_a_committed_target_survive_its_widening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row was left out, and the repeated batch does not write the target again."""
    queue, log = Queue(), Log("q")
    queue.put(b"no message")
    queue.put(canal("a", 1, "1.5"))
    queue.put(canal("a", 2, "12345.67", "decimal(9,2)"))
    queue.put(canal("b", 3, "1.5"))
    flags = {"type_mapping": ["decimal-no-change"]}
    settings = settings_of(tmp_path, format="canal-json", keeps_letters=True, flags=flags)
    with pytest.raises(Crash):
        Stream(queue, log, settings, crash="first commit").run(monkeypatch)
    wider = lc.SchemaChange.update_column_type("v", "DECIMAL(9, 2)")
    lc.connect(tmp_path).alter_table("shop.a", [wider])
    done = Stream(queue, log, settings).run(monkeypatch)

    (path,) = (tmp_path / ".cdc" / "spark-q").iterdir()
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    assert done[0].already_committed == ("shop.a",)
    assert done[0].left_out == 2
    assert [row["id"] for row in rows(tmp_path, "a")] == [1]
    assert [row["id"] for row in rows(tmp_path, "b")] == [3]
    assert [each["row"]["id"] for each in letters if "row" in each] == ["2"]


def test_row_that_does_not_fit_ends_the_batch_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, log = Queue(), Log("q")
    queue.put(change("b", None, {"id": 1}))
    queue.put(change("a", None, {"id": 1}))
    queue.put(change("a", None, {"v": "no key"}))
    with pytest.raises(InvalidRequest, match=r"does not fit.*source=src.a target=shop.a"):
        Stream(queue, log, settings_of(tmp_path)).run(monkeypatch)

    for name in "ab":
        assert files_of(table(tmp_path, name)) == set()
        assert table(tmp_path, name).context.history.latest_snapshot() is None


def messages_of(*offsets: int, partition: int = 0) -> pa.Table:
    queue = Queue(9)
    for at in range(max(offsets) + 1):
        queue.held[partition].append(change("a", None, {"id": 1, "v": str(at)}))
    (found,) = queue.tasks({}, queue.ends())
    return found.take(pa.array(offsets))


@pytest.mark.parametrize(
    "tasks",
    [[messages_of(0, 2, 1)], [messages_of(0, 1, 1)], [messages_of(0, 2), messages_of(1, 3)]],
    ids=["sorted otherwise", "twice", "dealt out"],
)
def test_messages_out_of_order_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: list[pa.Table]
) -> None:
    with pytest.raises(InvalidRequest, match=r"order.*topic=t partition=0 offset="):
        played(tmp_path, monkeypatch, tasks)
    assert not lc.connect(tmp_path).table_exists("shop.a") or not rows(tmp_path, "a")


def test_range_of_offsets_in_two_tasks_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(tmp_path, monkeypatch, [messages_of(2, 3), messages_of(0, 1), messages_of(4)])

    assert rows(tmp_path, "a") == [{"id": "1", "v": "4"}]


def test_messages_without_offsets_come_in_one_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = frozenset({"value"})
    with pytest.raises(InvalidRequest, match="nothing tells their order"):
        played(tmp_path, monkeypatch, [messages_of(0), messages_of(1)], given=given)
    played(tmp_path, monkeypatch, [messages_of(0, 1)], given=given)

    assert rows(tmp_path, "a") == [{"id": "1", "v": "1"}]


def played(home: Path, monkeypatch: pytest.MonkeyPatch, tasks: list[pa.Table], **more: Any) -> None:
    """One batch of these tasks."""
    stream = Stream(Queue(), Log("q", [{0: 1}]), settings_of(home, **more))
    with monkeypatch.context() as patch:
        patch.setattr(Queue, "tasks", lambda *_: tasks)
        patch.setattr(Queue, "ends", lambda *_: {0: 1})
        stream.run(patch)


def test_replay_with_another_schema_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the crash and the restart, somebody adds a column and widens none."""
    queue, log = Queue(), Log("q")
    queue.put(change("a", None, {"id": 1, "v": "x"}))
    queue.put(change("b", None, {"id": 1, "v": "x"}))
    with pytest.raises(Crash):
        Stream(queue, log, settings_of(tmp_path), crash="first commit").run(monkeypatch)
    for name in "ab":
        more = lc.SchemaChange.add_column(["extra"], "INT")
        lc.connect(tmp_path).alter_table(f"shop.{name}", [more])
    done = Stream(queue, log, settings_of(tmp_path)).run(monkeypatch)

    assert done[0].already_committed == ("shop.a",)
    for name in "ab":
        assert rows(tmp_path, name) == [{"id": "1", "v": "x", "extra": None}]


def test_older_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, log = Queue(), Log("q")
    for number in range(3):
        queue.put(change("a", None, {"id": number}))
        Stream(queue, log, settings_of(tmp_path)).run(monkeypatch)
    with pytest.raises(InvalidRequest, match="checkpoint is older than the table"):
        Stream(queue, Log("q"), settings_of(tmp_path)).run(monkeypatch)
    assert len(rows(tmp_path, "a")) == 3
    assert files_of(table(tmp_path, "a")) == live_files_of(table(tmp_path, "a"))


def test_target_that_cannot_be_committed_leaves_no_files_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, log = Queue(), Log("q")
    for name in "abc":
        queue.put(change(name, None, {"id": 1}))

    def fails(context: Any, *given: Any) -> Any:
        if context.identifier.endswith("b"):
            raise lc.CommitConflict("somebody else")
        return publish(context, *given)

    with monkeypatch.context() as patch:
        patch.setattr("spark_bridge.cdc_batches.publish", fails)
        with pytest.raises(lc.CommitConflict):
            Stream(queue, log, settings_of(tmp_path)).run(patch)
    assert (len(rows(tmp_path, "a")), files_of(table(tmp_path, "c"))) == (1, set())
    done = Stream(queue, log, settings_of(tmp_path)).run(monkeypatch)

    assert done[0].already_committed == ("shop.a",)
    assert [len(rows(tmp_path, name)) for name in "abc"] == [1, 1, 1]


def test_table_with_another_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = lc.connect(tmp_path, create=True)
    session.create_database("shop")
    session.create_table(
        "shop.a",
        {"id": "STRING NOT NULL", "v": "STRING NOT NULL"},
        primary_keys=["v"],
        options={"bucket": "1"},
    )
    queue = Queue()
    queue.put(change("a", None, {"id": 1, "v": "x"}))
    with pytest.raises(InvalidRequest, match="another primary key"):
        Stream(queue, Log("q"), settings_of(tmp_path)).run(monkeypatch)


def test_metadata_columns_are_those_of_kafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue()
    queue.put(change("a", None, {"id": 1}))
    flags = {"metadata_column": ["topic,partition,offset,timestamp,timestamp_type"]}
    Stream(queue, Log("q"), settings_of(tmp_path, flags=flags)).run(monkeypatch)
    (row,) = table(tmp_path, "a").to_polars().rows()

    assert row[:4] == ("1", "t", 0, 0)
    assert row[5] == "CreateTime"
    other = settings_of(tmp_path, flags=flags, given=frozenset({"value"}))
    with pytest.raises(InvalidRequest, match="unknown metadata column"):
        Stream(queue, Log("r"), other).run(monkeypatch)
