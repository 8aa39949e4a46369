"""What a table costs under a steady load, simulated on sizes and counts, without rows and files.

The rules of the engine decide: `lsm.universal.pick` which runs are compacted, `plan.manifests`
which manifests are merged, `plan.retention` which snapshots expire. This module adds

1. the sizes: keys are drawn evenly, so that runs with the shares a and b of the keys of a bucket
   hold 1 - (1 - a)(1 - b) of them together;
2. the requests of each step of a commit, as measured (`Units`);
3. the prices of requests and storage (`PRICES`).

Buckets with the same load are simulated once and counted several times.

Not modelled: keys in order (their files move without being rewritten), skew within a bucket,
schema changes, changelogs, repeated requests, and the network. `bench/simulate_scale.py` runs the
simulation; `lakecore advise` compares options by it. `tests/plan/test_simulation.py` replays real
tables.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import count, zip_longest
from math import prod
from operator import mul
from typing import TYPE_CHECKING

from lakecore.lsm.levels import SortedRun
from lakecore.lsm.universal import CompactionPolicy, CompactionUnit, Moment, Reason, pick
from lakecore.model.files import DataFile
from lakecore.model.manifest import ManifestFile
from lakecore.plan.manifests import full_merge_is_due, must_change, neighbours_to_merge
from lakecore.plan.retention import Retention, end_of_snapshots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakecore.options import TableOptions

    SizeOf = Callable[[CompactionUnit | None], float]
    """The size of the run of a compaction, or of a flush (None)."""

MONTH_S = 30 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars for a million requests of a kind, and for a terabyte of storage a month."""

    put: float
    get: float
    list: float
    storage: float

    def month(self, requests: Mapping[str, float], interval_s: float) -> float:
        """Dollars a month for these requests (by kind) in each interval. Deletions are free."""
        each = {"PUT": self.put, "GET": self.get, "LIST": self.list}
        price = sum(each.get(kind, 0) * count for kind, count in requests.items())
        return price / 1e6 * MONTH_S / interval_s

    def stored(self, size_bytes: float) -> float:
        """Dollars a month for these bytes."""
        return self.storage * size_bytes / 1e12


PRICES = {
    "s3": Prices(put=5, get=0.4, list=5, storage=23),
    "s3-express": Prices(put=1.13, get=0.03, list=1.13, storage=110),
    "gcs": Prices(put=5, get=0.4, list=5, storage=20),
    "local": Prices(put=0, get=0, list=0, storage=0),
}
"""List prices in one region of each provider; `local` is also HDFS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Measured costs of single operations on a table of 12 columns.

    `python -m bench simulate_scale --calibrate` measures the costs for a table of two columns.

    - `file_bytes`: bytes of a data file in addition to its rows;
    - `entry_bytes`, `manifest_bytes`: bytes of a manifest for each entry, and its other bytes;
    - `plan_us`, `vector_us`: microseconds per live file of a first plan, and per vector of the
      table of a commit that changes vectors;
    - the rest: requests of a commit, of the compaction and the housekeeping in it, of an expiry,
      and of each snapshot that expires.
    """

    file_bytes: float = 1_500
    entry_bytes: float = 321
    manifest_bytes: float = 1_400
    plan_us: float = 46
    vector_us: float = 12.5
    write_gets: int = 6
    compact_gets: int = 1
    keep_gets: int = 0
    keep_lists: int = 0
    look_gets: int = 4
    expire_gets: int = 13
    expire_lists: int = 4
    expired_gets: int = 2


UNITS = Units()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Identical buckets: each commit writes `commit_bytes` to each, for keys that fill `key_bytes`.

    If `key_bytes` is None, all keys are new.
    """

    commit_bytes: float
    key_bytes: float | None = None
    buckets: int = 1


class Bucket:
    """The sorted runs of a bucket, newest first. To `pick`, each run is one file."""

    def __init__(
        self,
        policy: CompactionPolicy,
        load: Load,
        units: Units = UNITS,
        *,
        numbers: Iterator[int] | None = None,
        size_of: SizeOf | None = None,
    ) -> None:
        """`numbers`: the names of the runs, counting up. `size_of`: the size of a run.

        Without `size_of`, sizes follow from the load.
        """
        self.load = load
        self.runs: list[DataFile] = []
        self._policy = policy
        self._file_bytes = units.file_bytes
        self._numbers = count(1) if numbers is None else numbers
        self._size_of = self._size if size_of is None else size_of
        self._idle_picks = 0
        self._last_full_ms: int | None = None

    def fill(self) -> list[DataFile]:
        """Put all keys into the last level, as after a full compaction. Returns the new runs."""
        keys = self.load.key_bytes
        if keys is not None:
            self.runs = [self._run(keys + self._file_bytes, self._policy.level_count - 1)]
        return list(self.runs)

    def flush(self) -> DataFile:
        """Add the run of a commit."""
        self.runs.insert(0, self._run(self._size_of(None), 0))
        return self.runs[0]

    def compact(self, now_ms: int = 0) -> tuple[Sequence[DataFile], DataFile] | None:
        """Pick once and compact. Returns the replaced runs and the new one; None if nothing is due.

        A single run only moves to another level.
        """
        hour = now_ms // 3_600_000 % 24
        moment = Moment(
            now_ms=now_ms, hour=hour, last_full_ms=self._last_full_ms, idle_picks=self._idle_picks
        )
        unit = pick([SortedRun(files=(run,)) for run in self.runs], self._policy, moment)
        if unit is None:
            self._idle_picks += 1
            return None
        self._idle_picks = 0 if unit.reason is Reason.LEVEL_0 else self._idle_picks
        self._last_full_ms = now_ms if unit.is_full else self._last_full_ms
        output = self._run(self._size_of(unit), unit.level_output)
        self.runs = [output, *self.runs[len(unit.runs) :]]
        return unit.files, output

    def _size(self, unit: CompactionUnit | None) -> float:
        if unit is None:
            return self.load.commit_bytes + self._file_bytes
        sizes = [run.size_bytes - self._file_bytes for run in unit.files]
        keys = self.load.key_bytes
        merged = (
            sum(sizes) if keys is None else keys * (1 - prod(1 - size / keys for size in sizes))
        )
        return merged + self._file_bytes

    def _run(self, size_bytes: float, level: int) -> DataFile:
        return DataFile(
            name=str(next(self._numbers)),
            size_bytes=round(size_bytes),
            row_count=0,
            sequence_min=0,
            sequence_max=0,
            schema_id=0,
            level=level,
            delete_row_count=0,
        )


_Manifest = tuple[ManifestFile, tuple[int, ...]]
"""A manifest and its entries: the number of a file that is added, negative if it is deleted."""


@dataclass(frozen=True, slots=True)
class _State:
    time_ms: int
    manifests: frozenset[str]
    deleted: int
    deleted_bytes: float


class Metadata:
    """The manifests and snapshots of a table. An entry may stand for several identical files."""

    def __init__(self, options: TableOptions, units: Units = UNITS) -> None:
        self.manifests: list[_Manifest] = []
        self.snapshots: deque[_State] = deque()
        self.latest = 0
        self._options = options
        self._units = units
        self._weights: dict[int, int] = {}
        self._count = 0

    def commit(
        self,
        added: Mapping[int, int],
        deleted: Sequence[int],
        *,
        deleted_bytes: float = 0,
        now_ms: int = 0,
    ) -> tuple[int, int]:
        """Add a snapshot. `added`: for each new file, by number, how many files it stands for.

        Returns the numbers of PUT and GET requests.
        """
        self._weights.update(added)
        written, before = self._count, [manifest for manifest, _ in self.manifests]
        target = self._options.manifest_target_file_size_bytes
        threshold = self._options.manifest_full_compaction_threshold_size_bytes
        read = 0
        if full_merge_is_due(before, target_bytes=target, threshold_bytes=threshold):
            read = sum(manifest.deleted_count > 0 for manifest in before)  # once more, at first
            self.manifests = self._fully_merged(target)
        else:
            self.manifests = self._merged(before, target)
        read += len({each.name for each in before} - {each.name for each, _ in self.manifests})
        self.manifests += self._written([*(-number for number in deleted), *added])
        self.latest += 1
        self.snapshots.append(
            _State(
                now_ms,
                frozenset(manifest.name for manifest, _ in self.manifests),
                sum(self._weights[number] for number in deleted),
                deleted_bytes,
            )
        )
        # Two lists, the snapshot and the hint.
        return self._count - written + 4, read

    def expire(self, now_ms: int = 0) -> tuple[int, int]:
        """Expire snapshots. Returns how many expired, and the number of DELETE requests."""
        options = self._options
        keep = Retention(
            retain_max=options.snapshot_num_retained_max,
            retain_min=options.snapshot_num_retained_min,
            older_than_ms=now_ms - options.snapshot_time_retained_ms,
            max_deletes=options.snapshot_expire_limit,
        )
        earliest = self.latest - len(self.snapshots) + 1
        end = end_of_snapshots(
            earliest,
            self.latest,
            keep,
            None,
            lambda ids: [self.snapshots[number - earliest].time_ms for number in ids],
        )
        gone = [self.snapshots.popleft() for _ in range(end - earliest)]
        if not gone:
            return 0, 0
        names = frozenset[str]().union(*(state.manifests for state in gone))
        # Only expired snapshots show the files that were replaced by the deltas after the first
        # one, up to and including the delta of the first kept snapshot.
        files = sum(state.deleted for state in [*gone[1:], self.snapshots[0]])
        return len(gone), 3 * len(gone) + len(names - self.snapshots[0].manifests) + files

    @property
    def kept_bytes(self) -> float:
        """The bytes of files that the latest snapshot no longer has."""
        return sum(state.deleted_bytes for state in list(self.snapshots)[1:])

    def _merged(self, files: Sequence[ManifestFile], target: int) -> list[_Manifest]:
        entries = {manifest.name: each for manifest, each in self.manifests}
        merged: list[_Manifest] = []
        for group in neighbours_to_merge(
            files, target_bytes=target, count_min=self._options.manifest_merge_min_count
        ):
            if len(group) == 1:
                merged.append((group[0], entries[group[0].name]))
            else:
                merged += self._written(
                    _live(each for manifest in group for each in entries[manifest.name])
                )
        return merged

    def _fully_merged(self, target: int) -> list[_Manifest]:
        """The manifests without deletions; large ones that lose no file stay."""
        gone = {-each for _, entries in self.manifests for each in entries if each < 0}
        merged: list[_Manifest] = []
        gathered: list[int] = []
        for manifest, entries in self.manifests:
            if must_change(manifest, target) or not gone.isdisjoint(entries):
                gathered += [each for each in entries if each > 0 and each not in gone]
            else:
                merged += self._written(gathered)
                merged.append((manifest, entries))
                gathered = []
        return merged + self._written(gathered)

    def _written(self, entries: Sequence[int]) -> list[_Manifest]:
        """The entries as new manifests of the target size."""
        units, parts = self._units, list[list[int]]()
        size_bytes = float("inf")
        for entry in entries:
            if size_bytes >= self._options.manifest_target_file_size_bytes:
                parts.append([])
                size_bytes = units.manifest_bytes
            parts[-1].append(entry)
            size_bytes += units.entry_bytes * self._weights[abs(entry)]
        return [(self._described(part), tuple(part)) for part in parts]

    def _described(self, entries: Sequence[int]) -> ManifestFile:
        self._count += 1
        added = sum(self._weights[each] for each in entries if each > 0)
        deleted = sum(self._weights[-each] for each in entries if each < 0)
        size_bytes = self._units.manifest_bytes + self._units.entry_bytes * (added + deleted)
        return ManifestFile(
            name=str(self._count),
            size_bytes=int(size_bytes),
            added_count=added,
            deleted_count=deleted,
            schema_id=0,
        )


def _live(entries: Iterable[int]) -> list[int]:
    """The entries without each pair of an ADD and its DELETE, in order."""
    left: dict[int, None] = {}
    for each in entries:
        if -each in left:
            del left[-each]
        else:
            left[each] = None
    return list(left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The figures of a simulated table, without the first third of its commits.

    - `write_amplification`: bytes written for each byte received;
    - `runs`: sorted runs that a read of a bucket merges, on average, and `runs_max`;
    - `requests`: requests of a commit by kind, on average;
    - `live_bytes`, `kept_bytes`: bytes of the files of the latest snapshot, and of files that only
      earlier ones have.
    """

    write_amplification: float
    runs: float
    runs_max: int
    requests: Mapping[str, float]
    files: int
    live_bytes: float
    kept_bytes: float
    manifests: int
    manifest_bytes: int
    interval_s: float


class SimulatedTable:
    """A table under a load. `compact_every`: writes between compactions; 0: never compacts."""

    runs_max: int

    def __init__(
        self,
        loads: Sequence[Load],
        options: TableOptions,
        *,
        interval_s: float = 60,
        compact_every: int = 1,
        units: Units = UNITS,
        sizes_of: Sequence[SizeOf] = (),
    ) -> None:
        """`sizes_of`: the true sizes in each bucket, in place of those of the loads."""
        self.metadata = Metadata(options, units)
        policy, numbers = CompactionPolicy.of(options), count(1)
        self.buckets = [
            Bucket(policy, load, units, numbers=numbers, size_of=size_of)
            for load, size_of in zip_longest(loads, sizes_of)
        ]
        self._options = options
        self._every = compact_every
        self._interval_s = interval_s
        self._units = units
        self._commits = 0
        self._clear()

    def run(self, commits: int) -> Outcome:
        """Fill the buckets, make this many commits, and return the figures."""
        self._publish([(b.load, run) for b in self.buckets for run in b.fill()], [], 0)
        for number in range(commits):
            if number == commits // 3:
                self._clear()
            self.commit()
        counted = commits - commits // 3
        manifests = [manifest for manifest, _ in self.metadata.manifests]
        live = [(bucket.load.buckets, run) for bucket in self.buckets for run in bucket.runs]
        return Outcome(
            write_amplification=self.written_bytes / self.received_bytes,
            runs=self._runs / counted,
            runs_max=self.runs_max,
            requests={kind: number / counted for kind, number in sorted(self.requests.items())},
            files=sum(times * self._files(run) for times, run in live),
            live_bytes=sum(times * run.size_bytes for times, run in live),
            kept_bytes=self.metadata.kept_bytes,
            manifests=len(manifests),
            manifest_bytes=sum(manifest.size_bytes for manifest in manifests),
            interval_s=self._interval_s,
        )

    def commit(self) -> None:
        """Flush to all buckets, compact what is due, and expire if the commit compacts."""
        self._commits += 1
        now_ms = int(self._commits * self._interval_s * 1000)
        flushed = [(bucket.load, bucket.flush()) for bucket in self.buckets]
        self.received_bytes += sum(load.buckets * run.size_bytes for load, run in flushed)
        self._publish(flushed, [], now_ms)
        self.requests["GET"] += self._units.write_gets
        if self._every and self._commits % self._every == 0:
            # A write picks once, a job until nothing is due.
            while self._compact(now_ms) and self._every > 1:
                pass
            self._keep_house(now_ms)
        times = [bucket.load.buckets for bucket in self.buckets]
        runs = [len(bucket.runs) for bucket in self.buckets]
        self._runs += sum(map(mul, times, runs)) / sum(times)
        self.runs_max = max(self.runs_max, *runs)

    def _clear(self) -> None:
        self.requests = Counter[str]()
        self.received_bytes = self.written_bytes = self._runs = 0.0
        self.runs_max = 0

    def _compact(self, now_ms: int) -> bool:
        """One pick in each bucket. Returns whether one was compacted."""
        before: list[tuple[Load, DataFile]] = []
        after: list[tuple[Load, DataFile]] = []
        read = 0
        for bucket in self.buckets:
            if (done := bucket.compact(now_ms)) is None:
                continue
            files = [(bucket.load, run) for run in done[0]]
            before += files
            after.append((bucket.load, done[1]))
            if len(files) > 1:
                read += sum(load.buckets * self._files(run) for load, run in files)
            else:  # a file that only moves is neither read nor written
                self.written_bytes -= bucket.load.buckets * done[1].size_bytes
                self.requests["PUT"] -= bucket.load.buckets * self._files(done[1])
        if after:
            self._publish(after, before, now_ms)
            # In the commit of a write, LATEST is written once.
            self.requests["PUT"] -= self._every == 1
            self.requests["GET"] += self._units.compact_gets + read
        return bool(after)

    def _keep_house(self, now_ms: int) -> None:
        units = self._units
        self.requests.update({"GET": units.keep_gets, "LIST": units.keep_lists})
        if self.metadata.latest <= self._options.snapshot_num_retained_min:
            return
        expired, deletes = self.metadata.expire(now_ms)
        if expired:
            gets = units.expire_gets + units.expired_gets * expired
            lists = units.expire_lists
            self.requests.update({"PUT": 1, "GET": gets, "LIST": lists, "DELETE": deletes})
        else:
            self.requests["GET"] += units.look_gets

    def _publish(
        self,
        added: Sequence[tuple[Load, DataFile]],
        deleted: Sequence[tuple[Load, DataFile]],
        now_ms: int,
    ) -> None:
        """Write the `added` runs, and commit them in place of the `deleted` ones."""
        files = {int(run.name): load.buckets * self._files(run) for load, run in added}
        gone = [int(run.name) for _, run in deleted]
        gone_bytes = sum(load.buckets * run.size_bytes for load, run in deleted)
        self.written_bytes += sum(load.buckets * run.size_bytes for load, run in added)
        puts, gets = self.metadata.commit(files, gone, deleted_bytes=gone_bytes, now_ms=now_ms)
        self.requests.update({"PUT": puts + sum(files.values()), "GET": gets})

    def _files(self, run: DataFile) -> int:
        return max(1, round(run.size_bytes / self._options.target_file_size(primary_key=True)))
