"""Advice on tables that need it, each for another reason, and on one that needs none."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.core import TyperGroup
from typer.main import get_group

from lakecore.cli.registry import COMMANDS
from lakecore.errors import InvalidRequest
from lakecore.lsm.universal import CompactionPolicy
from lakecore.model.files import CommitMessage, DataFile, IndexFile, VectorRange
from lakecore.options import parse_options
from lakecore.plan.simulation import PRICES, Bucket, Load
from lakecore.table.system.advice import advice_of, facts_of
from tests.stores import FailingStore
from tests.tables import commit_unstored, key, new_table, reopened, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakecore.table.handle import Table

MB = 1_000_000


def lived(
    flush: float,
    keys: float,
    *,
    commits: int = 30,
    interval_s: float = 300,
    sizes: Sequence[float] = (1,),
    user: str = "",
    **options: Any,
) -> Table:
    """A table after some commits of stated sizes, without its data files. It never expires.

    `flush` and `keys` are bytes of each bucket, multiplied by its number in `sizes`.
    """
    columns = {"k": "STRING NOT NULL", "v": "INT"}
    table = new_table(columns, keys=["k"], bucket=str(len(sizes)), **options)
    policy = CompactionPolicy.of(table.options)
    buckets = [
        Bucket(policy, Load(commit_bytes=flush * size, key_bytes=keys * size)) for size in sizes
    ]

    def commit(number: int) -> None:
        table.context.ambient.sleep(interval_s)
        messages = [message(place, bucket, number) for place, bucket in enumerate(buckets)]
        numbered: Any = {"user": f"{user}{number % 2}", "identifier": number} if user else {}
        commit_unstored(table, messages, **numbered)

    def message(place: int, bucket: Bucket, number: int) -> CommitMessage:
        def named(runs: Sequence[DataFile]) -> tuple[DataFile, ...]:
            return tuple(
                replace(
                    run,
                    name=f"data-{place}-{run.name}.parquet",
                    key_min=key("a"),
                    key_max=key("z"),
                )
                for run in runs
            )

        new = named([bucket.flush()] if number else bucket.fill())
        done = None if table.options.write_only else bucket.compact()
        before, after = ((), ()) if done is None else (named(done[0]), named([done[1]]))
        return CommitMessage(
            partition=bytes(12),
            bucket=place,
            total_buckets=len(buckets),
            new_files=new,
            compact_before=before,
            compact_after=after,
        )

    for number in range(commits):
        commit(number)
    return reopened(table, ambient=table.context.ambient)


def test_healthy_table_gets_no_advice() -> None:
    found = advice_of(lived(16 * MB, 400 * MB, sizes=[1, 1, 1]).context, "s3")

    assert found.advice == ()
    assert "nothing to change" in str(found)
    assert (found.commits, found.interval_seconds) == (30, 300)


@pytest.mark.parametrize(("commits", "known"), [(9, False), (10, True)])
def test_interval_needs_some_commits(commits: int, *, known: bool) -> None:
    table = lived(16 * MB, 400 * MB, commits=commits)

    assert (facts_of(table.context, PRICES["s3"]).interval_s is not None) is known


@pytest.mark.parametrize(
    ("user", "interval_s", "advised"),
    [("job", 599, True), ("job", 600, False), ("", 61, False), ("job", 61, True)],
)
def test_job_is_advised_for_frequent_commits(
    user: str, interval_s: float, *, advised: bool
) -> None:
    found = advice_of(lived(16 * MB, 400 * MB, user=user, interval_s=interval_s).context, "s3")

    assert ("job" in {each.subject for each in found.advice}) is advised


def test_usual_file_is_one_above_level_0() -> None:
    two_levels = lived(16 * MB, 400 * MB, num_levels="2")

    assert facts_of(two_levels.context, PRICES["s3"]).file_bytes > 300 * MB


def test_table_without_snapshots_gets_no_advice() -> None:
    assert advice_of(new_table().context).advice == ()


def tagged() -> Table:
    """A table of which all rows changed several times after its tag was made."""
    table = new_table(
        num_sorted_run__compaction_trigger="2",
        snapshot__num_retained__min="2",
        snapshot__num_retained__max="2",
    )
    for turn in range(9):
        table.write(rows(table.schema, " | ".join(f"{number} a{turn}" for number in range(50))))
        if turn == 1:
            table.create_tag("old")
    return reopened(table, ambient=table.context.ambient)


def marked(count: int) -> Table:
    table = new_table(keys=(), deletion_vectors__enabled="true")
    vectors = tuple(
        VectorRange(data_file=f"data-{number}.parquet", offset=number, length=20, cardinality=1)
        for number in range(count)
    )
    index = IndexFile(
        index_type="DELETION_VECTORS", name="index-1", size_bytes=20, row_count=1, vectors=vectors
    )
    commit_unstored(table, [stored([], new_index_files=(index,))])
    return table


def filed(count: int, size_bytes: int) -> Table:
    table = new_table(keys=(), target_file_size="4 mb")
    commit_unstored(table, [stored([size_bytes] * count)])
    return table


def stored(sizes: Sequence[int], prefix: int = 0, **arguments: Any) -> CommitMessage:
    policy = CompactionPolicy.of(new_table().options)
    run = Bucket(policy, Load(commit_bytes=1)).flush()
    files = tuple(
        replace(run, name=f"data-{prefix}-{number}.parquet", size_bytes=size)
        for number, size in enumerate(sizes)
    )
    return CommitMessage(
        partition=bytes(12), bucket=0, total_buckets=-1, new_files=files, **arguments
    )


CASES: Mapping[str, tuple[Callable[[], Table], Mapping[str, str]]] = {
    "small buckets": (
        lambda: lived(8 * MB, 20 * MB, sizes=[1] * 16),
        {"buckets": "lakecore rescale --bucket-num 1"},
    ),
    "a large bucket": (
        lambda: lived(100 * MB, 3000 * MB),
        {"buckets": "lakecore rescale --bucket-num 10"},
    ),
    "skew": (
        lambda: lived(16 * MB, 300 * MB, sizes=[1, 1, 1, 1, 10]),
        {"skew": "a primary key or bucket-key that spreads rows evenly"},
    ),
    "a low trigger": (
        lambda: lived(4 * MB, 400 * MB, num_sorted_run__compaction_trigger="2"),
        {"compaction": "num-sorted-run.compaction-trigger=7"},
    ),
    "frequent commits that compact": (
        lambda: lived(8 * MB, 400 * MB, interval_s=10),
        {"job": "write-only=true and lakecore compact --watch --interval 600"},
    ),
    "several writers that compact": (
        lambda: lived(16 * MB, 400 * MB, user="job"),
        {"job": "write-only=true and lakecore compact --watch --interval 600"},
    ),
    "nobody compacts": (
        lambda: lived(16 * MB, 400 * MB, write_only="true"),
        {"compaction": "lakecore compact --watch --interval 600"},
    ),
    "small commits": (
        lambda: lived(0.1 * MB, 400 * MB, interval_s=10, write_only="true", commits=10),
        {"interval": "a commit each 60 s"},
    ),
    "nobody expires": (
        lambda: lived(16 * MB, 400 * MB, snapshot__num_retained__max="10", commits=70),
        {"retention": "lakecore expire snapshots"},
    ),
    "long retention": (
        lambda: lived(200 * MB, 400 * MB, snapshot__time_retained="7 d", commits=60),
        {"retention": "snapshot.time-retained=1h"},
    ),
    "old tags": (tagged, {"tags": "tag.default-time-retained, or lakecore tag delete"}),
    "many vectors": (lambda: marked(21_000), {"vectors": "lakecore compact --full"}),
    "many runs": (
        lambda: lived(16 * MB, 400 * MB, num_sorted_run__compaction_trigger="14", commits=36),
        {"vectors": "deletion-vectors.enabled=true, with deletion-vectors.modifiable=true"},
    ),
    "many manifests": (
        lambda: lived(16 * MB, 400 * MB, manifest__merge_min_count="500", commits=45),
        {"manifests": "manifest.merge-min-count=30"},
    ),
    "small files": (lambda: filed(200, 4 * MB), {"files": "target-file-size=128mb"}),
}


@pytest.mark.parametrize("name", CASES)
def test_advice_for_a_table_names_one_change_and_its_figures(name: str) -> None:
    made, expected = CASES[name]
    found = advice_of(made().context, "s3").advice

    assert {each.subject: each.change for each in found} == expected
    assert all(re.search(r"\d", each.now) and re.search(r"\d", each.then) for each in found)


@pytest.mark.parametrize("change", sorted({c for _, e in CASES.values() for c in e.values()}))
def test_options_and_commands_that_are_advised_exist(change: str) -> None:
    for name, value in re.findall(r"([a-z.-]+)=(\w+)", change):
        parse_options({name: value}, creating=True)
    for command in re.findall(r"lakecore ([a-z -]+)", change):
        words = command.split()
        module = import_module(f"lakecore.cli.{COMMANDS[words[0]][0]}")
        found = get_group(module.commands.app).commands[words[0]]
        if isinstance(found, TyperGroup):
            found = found.commands[words[1]]
        known = {flag for each in found.params for flag in each.opts}
        assert {word for word in words if word.startswith("--")} <= known


def test_dollars_are_those_of_the_storage() -> None:
    table = lived(8 * MB, 400 * MB, interval_s=10)
    (s3,) = advice_of(table.context, "s3").advice

    assert s3.dollars == pytest.approx(14, abs=3)
    assert f"saves ${s3.dollars:,.0f} a month" in str(advice_of(table.context, "s3"))
    assert advice_of(table.context).advice == ()  # a local table has no prices
    with pytest.raises(InvalidRequest, match="s3-express"):
        advice_of(table.context, "tape")


def test_snapshots_that_a_consumer_keeps_are_not_overdue() -> None:
    table = lived(16 * MB, 400 * MB, snapshot__num_retained__max="10", commits=70)
    table.reset_consumer("reader", 5)

    assert "retention" not in {each.subject for each in advice_of(table.context).advice}


def test_table_without_a_key_is_simulated_without_compactions() -> None:
    table = new_table(keys=())
    for number in range(12):
        table.context.ambient.sleep(5)
        commit_unstored(table, [stored([MB], number)])
    (found,) = advice_of(table.context, "s3").advice

    assert found.subject == "interval"
    assert "7 PUT" in found.now  # one file, five of the commit, one of the expiry


def test_page_shows_the_answer() -> None:
    page = Path(__file__).parents[3] / "docs" / "advise.md"
    answer = str(advice_of(lived(8 * MB, 400 * MB, interval_s=10, commits=40).context, "s3"))

    assert answer in page.read_text(encoding="utf-8")


def test_advice_changes_nothing() -> None:
    table = lived(8 * MB, 20 * MB, sizes=[1] * 3)
    store = FailingStore(table.context.store)
    advice_of(reopened(table, store=store).context)

    assert store.calls == []


@pytest.mark.parametrize(
    ("write_only", "compactions", "every"), [("true", 10, 3), ("true", 28, 2), ("false", 10, 1)]
)
def test_jobs_compact_as_often_as_in_the_history(
    write_only: str, compactions: int, every: int
) -> None:
    table = lived(16 * MB, 400 * MB, write_only=write_only)
    facts = replace(facts_of(table.context, PRICES["s3"]), commits=30, compactions=compactions)

    others = [facts.simulated(every=number) for number in (1, 2, 3, 4)]
    assert len({str(each) for each in others}) == len(others)
    assert facts.simulated() == others[every - 1]
