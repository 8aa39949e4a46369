"""Tables with a past, and what is done to them next while something goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.memory import Budget
from lakecore.model.validation import create_schema
from lakecore.table.handle import Table, load_table
from lakecore.table.publication import write_schema
from lakecore.testing import stores
from lakecore.testing.stores import files_below
from lakecore.testing.values import Rows, counted_arrow

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.io.stores.store import Store

PATH = "memory://warehouse/shop.db/orders"
WRITER = "writer"
"""The commit user of every deed, and 1 its identifier: done twice, it must count once."""

Deed: TypeAlias = "Callable[[Table], object]"


def orders(keys: str, status: str, kinds: str | None = None) -> pa.Table:
    """A row for each letter of `keys`, with partition `x` or `y` by the letter's place."""
    columns = {
        "day": ["xy"[ord(key) % 2] for key in keys],
        "id": list(keys),
        "status": [status] * len(keys),
    }
    if kinds is not None:
        columns["_row_kind"] = [{"+": "+I", "-": "-D"}[kind] for kind in kinds]
    return pa.table(columns)


def write(data: pa.Table) -> Deed:
    """Write the rows, under the deed's own name."""
    return lambda table: table.write(data, commit_user=WRITER, identifier=1)


def overwrite(data: pa.Table, partition: dict[str, object] | None = None, **how: bool) -> Deed:
    """Overwrite with the rows, under the deed's own name."""
    return lambda table: table.overwrite(data, partition, commit_user=WRITER, identifier=1, **how)


def in_two_phases(table: Table) -> object:
    """Write in pieces with one writer, and commit its messages under the deed's own name."""
    with table.new_write() as writer:
        for keys in ("ab", "bc", "gh"):
            writer.write(orders(keys, "piece"))
        return table.commit(writer.prepare_commit(), commit_user=WRITER, identifier=1)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A table, what was done to it, and the deed that comes next, which `compacts` or does not."""

    deed: Deed
    options: dict[str, str] = field(default_factory=dict)
    keyed: bool = True
    partitioned: bool = False
    past: tuple[Deed, ...] = ()
    budget_bytes: int = 1 << 30
    compacts: bool = False

    def build(self) -> MemoryStore:
        """A store in which the table has its past."""
        store = MemoryStore()
        schema = create_schema(
            {"day": "STRING NOT NULL", "id": "STRING NOT NULL", "status": "STRING"},
            primary_keys=("day", "id") if self.keyed else (),
            partition_keys=("day",) if self.partitioned else (),
            options=self.options,
            now_ms=0,
        )
        write_schema(store, Layout(root=PATH), schema)
        for step, deed in enumerate(self.past):
            deed(load_table(store, PATH, ambient=seeded(step)))
        return store

    def open(self, store: Store, seed: int = 99) -> Table:
        """The table as a new process sees it."""
        return load_table(store, PATH, ambient=seeded(seed), budget=Budget(self.budget_bytes))


def plain_write(data: pa.Table) -> Deed:
    """Write the rows, as somebody else."""
    return lambda table: table.write(data)


PAST = (plain_write(orders("abcd", "new")), plain_write(orders("bcef", "sent", "+-++")))
APPENDED = (plain_write(orders("abc", "new")), plain_write(orders("cd", "sent")))
FRESH = orders("bdgh", "paid", "++-+")

SCENES = {
    "first write": Scene(options={"bucket": "1"}, deed=write(FRESH)),
    "upsert": Scene(options={"bucket": "1"}, past=PAST, deed=write(FRESH)),
    "upsert in buckets and partitions": Scene(
        options={"bucket": "2"}, partitioned=True, past=PAST, deed=write(FRESH)
    ),
    "many files": Scene(
        options={"bucket": "1", "target-file-size": "1 b"},
        past=PAST,
        deed=in_two_phases,
        budget_bytes=100,
        compacts=True,
    ),
    "upsert that compacts": Scene(
        options={"bucket": "1", "num-sorted-run.compaction-trigger": "1"},
        past=PAST,
        deed=write(FRESH),
        compacts=True,
    ),
    "upsert that compacts buckets and partitions": Scene(
        options={"bucket": "2", "num-sorted-run.compaction-trigger": "1", "num-levels": "3"},
        partitioned=True,
        past=(lambda table: PAST[0](table.copy({"write-only": "true"})),),
        deed=write(FRESH),
        compacts=True,
    ),
    "upsert that tells what compaction changes": Scene(
        options={"bucket": "1", "changelog-producer": "lookup"},
        past=PAST,
        deed=write(FRESH),
        compacts=True,
    ),
    "overwrite that compacts": Scene(
        options={"bucket": "1", "force-lookup": "true"},
        past=PAST,
        deed=overwrite(FRESH, dynamic=False),
        compacts=True,
    ),
    "changelog": Scene(
        options={"bucket": "1", "changelog-producer": "input"}, past=PAST, deed=write(FRESH)
    ),
    "merged manifests": Scene(
        options={
            "bucket": "1",
            "manifest.merge-min-count": "2",
            "manifest.target-file-size": "1 b",
            "manifest.full-compaction-threshold-size": "1 b",
        },
        past=(*PAST, lambda table: table.overwrite(orders("ab", "again")), *PAST),
        deed=write(FRESH),
    ),
    "manifests merged at once": Scene(
        options={"bucket": "1"},
        past=(*PAST, lambda table: table.overwrite(orders("ab", "again")), *PAST),
        deed=lambda table: table.compact_manifests(),
    ),
    "dynamic buckets": Scene(
        options={"dynamic-bucket.target-row-num": "2"},
        partitioned=True,
        past=PAST,
        deed=write(FRESH),
    ),
    "append": Scene(keyed=False, partitioned=True, past=APPENDED, deed=write(orders("ac", "x"))),
    "append in buckets": Scene(
        keyed=False,
        options={"bucket": "2", "bucket-key": "id"},
        past=APPENDED,
        deed=write(orders("ac", "x")),
    ),
    "overwrite all": Scene(
        options={"bucket": "2"}, past=PAST, deed=overwrite(FRESH, dynamic=False)
    ),
    "overwrite what is written": Scene(
        options={"bucket": "1"},
        partitioned=True,
        past=PAST,
        deed=overwrite(orders("aceg", "over"), dynamic=True),
    ),
    "overwrite a partition": Scene(
        options={"dynamic-bucket.target-row-num": "1"},
        partitioned=True,
        past=PAST,
        deed=overwrite(orders("aceg", "over"), {"day": "y"}),
    ),
    "truncate": Scene(options={"bucket": "1"}, past=PAST, deed=lambda table: table.truncate()),
    "drop a partition": Scene(
        partitioned=True, past=PAST, deed=lambda table: table.drop_partition({"day": "x"})
    ),
    "compaction": Scene(
        options={"bucket": "2"},
        partitioned=True,
        past=PAST,
        deed=lambda table: table.compact(full=True),
    ),
    "packing": Scene(
        keyed=False,
        partitioned=True,
        past=APPENDED,
        deed=lambda table: table.compact(full=True),
    ),
    "packing in buckets": Scene(
        keyed=False,
        options={"bucket": "2", "bucket-key": "id"},
        past=(*APPENDED, *APPENDED),
        deed=lambda table: table.compact(full=True),
    ),
    "compaction that looks up": Scene(
        options={
            "bucket": "2",
            "changelog-producer": "lookup",
            "write-only": "true",
            "num-sorted-run.compaction-trigger": "9",
        },
        past=(
            # So many that the level they come to stays where it is.
            plain_write(orders("abcdefgh" + "".join(map(chr, range(0x4E00, 0x6000))), "old")),
            lambda table: table.compact(),
            plain_write(orders("abxy", "new")),
        ),
        deed=lambda table: table.compact(),
    ),
    "compaction with a changelog": Scene(
        options={"bucket": "2", "changelog-producer": "full-compaction", "write-only": "true"},
        past=(*PAST, lambda table: table.compact(full=True), plain_write(orders("abxy", "new"))),
        deed=lambda table: table.compact(full=True),
    ),
    "compaction that moves files": Scene(
        options={"bucket": "1", "target-file-size": "1 b", "num-levels": "3"},
        past=(*PAST, plain_write(orders("xyz", "new"))),
        deed=lambda table: table.compact(full=True),
    ),
}


def copy_of(store: Store) -> MemoryStore:
    """A store in memory with the same files."""
    return stores.copy_of(store, PATH)


def stored_in(store: Store) -> frozenset[tuple[str, bytes]]:
    """All that the table has, as a value: equal states need one check."""
    return frozenset((path, store.read(path)) for path in files_below(store, PATH))


def snapshot_ids(table: Table) -> tuple[int, ...]:
    """The snapshots that anybody can see, found by looking, not by hints."""
    directory = table.context.layout.snapshot_dir
    names = (path.rpartition("/")[2] for path in files_below(table.context.store, directory))
    return tuple(
        sorted(int(name.removeprefix("snapshot-")) for name in names if name[-1].isdigit())
    )


def rows_of(table: Table, snapshot_id: int | None = None) -> Rows:
    """The rows at a snapshot, None being the newest."""
    return counted_arrow(table.to_arrow(snapshot_id=snapshot_id))


def changes_of(table: Table, snapshot_id: int) -> Rows:
    """What the snapshot tells those who follow the table."""
    return counted_arrow(table.changes(snapshot_id - 1, snapshot_id).collect().to_arrow())


def commits_of_writer(table: Table) -> int:
    """How many snapshots the deed's own name has."""
    history = table.context.history
    users = [history.snapshot(snapshot_id).commit_user for snapshot_id in snapshot_ids(table)]
    return users.count(WRITER)
