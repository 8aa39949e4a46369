"""The engines that meet in the suite: the peers, and lakecore in this process, by one protocol."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from tests.interop import limits, values
from tests.interop.columns import parse_type
from tests.interop.protocol import Peer, PeerRefused
from tests.interop.setup_peers import python, set_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.interop.columns import Json
    from tests.interop.limits import Limit
    from tests.interop.model import Case, Commit
    from tests.interop.values import Row

COMMANDS: Mapping[str, tuple[str, ...]] = {
    limits.JAVA: ("tests.interop.java_peer", "1.4.2"),
    limits.JAVA_OLD: ("tests.interop.java_peer", "0.9.0"),
    limits.JAVA_NEW: ("tests.interop.java_peer", "2.0.0"),
    limits.JAVA_SHANGHAI: ("tests.interop.java_peer", "1.4.2", "Asia/Shanghai"),
    limits.PYPAIMON: ("tests.interop.python_peer",),
    limits.RUST: ("tests.interop.python_peer", "native"),
}
# A change of a schema: ("add", NAME, TYPE, PLACE), ("drop", NAME), ("rename", NAME, NEW),
# ("retype", NAME, TYPE), ("nullable", NAME, WHETHER), or ("comment", NAME, TEXT); further
# ("default", NAME, TEXT), ("move", NAME, PLACE), ("set", OPTION, TEXT), ("remove", OPTION), and
# ("describe", TEXT). A place is ("first",), ("last",), ("after", OTHER) or ("before", OTHER); None
# is the last of a new column. The first six take a path, too: a tuple of names, with "element" and
# "value" for parts of lists and maps.
SchemaStep: TypeAlias = "tuple[Json, ...]"
# These take row kinds from a column only.
BY_KIND_COLUMN = frozenset({limits.PYPAIMON, limits.RUST})


class Engine(Protocol):
    """Something that creates, writes and reads tables. Refusals are `PeerRefused`."""

    @property
    def name(self) -> str: ...

    def create(self, path: Path, case: Case) -> None: ...

    def write(self, path: Path, changes: Commit) -> None: ...

    def read(self, path: Path, options: Mapping[str, str] | None = None) -> list[Row]: ...


@dataclass(frozen=True, slots=True)
class PeerEngine:
    """A peer as an engine."""

    peer: Peer

    @property
    def name(self) -> str:
        return self.peer.name

    def create(self, path: Path, case: Case) -> None:
        self.peer.ask("create", path=str(path), **case.schema())

    def write(self, path: Path, changes: Commit) -> None:
        self.peer.ask("write", path=str(path), rows=changes)

    def overwrite(
        self,
        path: Path,
        changes: Commit,
        partition: Mapping[str, str] | None = None,
        *,
        dynamic: bool = False,
    ) -> None:
        """Put rows in the place of those of a partition, of those they lie in, or of all others."""
        self.peer.ask(
            "overwrite", path=str(path), rows=changes, partition=partition, dynamic=dynamic
        )

    def clear(self, path: Path, partitions: Sequence[Mapping[str, str]] | None = None) -> None:
        """Remove the rows of some partitions; of all without any."""
        self.peer.ask("clear", path=str(path), partitions=partitions)

    def alter(self, path: Path, changes: Sequence[SchemaStep]) -> None:
        """Change the schema."""
        self.peer.ask("alter", path=str(path), changes=[_with_json_types(each) for each in changes])

    def alter_refusals(
        self, paths: Sequence[Path], changes: Sequence[Sequence[SchemaStep]]
    ) -> list[str | None]:
        """What is said against the changes of each schema; None where they were made."""
        found = self.peer.ask(
            "alter_refusals",
            paths=[str(path) for path in paths],
            changes=[[_with_json_types(each) for each in steps] for steps in changes],
        )
        return cast("list[str | None]", found)

    def create_tag(self, path: Path, name: str) -> None:
        """Tag the latest snapshot."""
        self.peer.ask("create_tag", path=str(path), name=name)

    def delete_tag(self, path: Path, name: str) -> None:
        """Remove a tag."""
        self.peer.ask("delete_tag", path=str(path), name=name)

    def manage(self, path: Path, method: str, *given: Json, branch: str | None = None) -> None:
        """Call a method of Java's table that manages tags and branches."""
        self.peer.ask("manage", path=str(path), method=method, given=[*given], branch=branch)

    def write_on(
        self, path: Path, changes: Commit, branch: str | None = None, watermark: int | None = None
    ) -> None:
        """Write on a branch, or with a watermark."""
        options = {"branch": branch} if branch else None
        self.peer.ask("write", path=str(path), rows=changes, options=options, watermark=watermark)

    def branch(self, path: Path, name: str) -> None:
        """Create a branch from the tag of its name."""
        self.manage(path, "createBranch", name, name)

    def fast_forward(self, path: Path, branch: str) -> None:
        """Give the table the state of a branch."""
        self.manage(path, "fastForward", branch)

    def expire(self, path: Path, retain: int) -> None:
        """Keep this many snapshots."""
        self.peer.ask("expire", path=str(path), retain=retain)

    def roll_back(self, path: Path, snapshot_id: int) -> None:
        """Make an earlier snapshot the latest."""
        self.peer.ask("roll_back", path=str(path), snapshot_id=snapshot_id)

    def read(self, path: Path, options: Mapping[str, str] | None = None) -> list[Row]:
        rows = self.peer.ask("read", path=str(path), options=options or {})
        return cast("list[Row]", rows)

    def read_where(
        self, path: Path, where: tuple[str, str, Json], options: Mapping[str, str] | None = None
    ) -> list[Row]:
        """Read with a filter, which may only prune."""
        found = self.peer.ask("read", path=str(path), where=where, options=dict(options or {}))
        return cast("list[Row]", found)

    def adopt(self, path: Path, partition: Row, folder: Path, file_format: str) -> None:
        """Move files into a partition, as a migration from Hive does."""
        self.peer.ask(
            "adopt",
            path=str(path),
            partition=partition,
            folder=str(folder),
            file_format=file_format,
        )

    def compact(self, path: Path, *, full: bool) -> None:
        self.peer.ask("compact", path=str(path), full=full)

    def stream(
        self,
        path: Path,
        from_snapshot: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> dict[int, list[tuple[str, Row]]]:
        """What each snapshot changed, up to the latest."""
        found = self.peer.ask(
            "stream", path=str(path), from_snapshot=from_snapshot, options=dict(options or {})
        )
        pairs = cast("list[tuple[int, list[tuple[str, Row]]]]", found)
        return {number: [(kind, row) for kind, row in changes] for number, changes in pairs}

    def changes(self, path: Path, options: Mapping[str, str]) -> list[tuple[str, Row]]:
        """What changed between two points that the options name."""
        found = self.peer.ask("changes", path=str(path), options=dict(options))
        return [(kind, row) for kind, row in cast("list[tuple[str, Row]]", found)]


def _with_json_types(change: SchemaStep) -> list[Json]:
    if change[0] not in ("add", "retype"):
        return list(change)
    return [*change[:2], parse_type(str(change[2])).to_json(count()), *change[3:]]


def start(name: str, logs: Path) -> PeerEngine:
    """A running peer, by its name."""
    command = [str(python()), "-m", *COMMANDS[name]]
    return PeerEngine(Peer(name, command, logs / f"{name}.log"))


@contextmanager
def running_peers(logs: Path) -> Iterator[Callable[[str], PeerEngine]]:
    """The peer of a name; each is started when first asked for, and ended at the end."""
    set_up()
    running: dict[str, PeerEngine] = {}

    def peer(name: str) -> PeerEngine:
        if name not in running:
            assert name in COMMANDS, name
            running[name] = start(name, logs)
        return running[name]

    try:
        yield peer
    finally:
        for engine in running.values():
            engine.peer.close()


def one_in(peer: str) -> int:
    """Of the cases of a test with this peer, `sampled` keeps one in so many."""
    return 3 if peer == limits.JAVA else 9


def for_writer(case: Case, *engines: str) -> Case:
    """The case as all these engines can write it."""
    return case.with_kind_column() if BY_KIND_COLUMN & set(engines) else case


def write_all(engine: Engine, path: Path, case: Case) -> bool:
    """Create and fill the table; false if a limit keeps the engine from it, which is checked."""
    limit = limits.limit(engine.name, "write", case.features)
    try:
        engine.create(path, case)
        for changes in case.commits:
            engine.write(path, changes)
    except PeerRefused as refusal:
        if limit is None or not limit.fits(refusal.reason):
            raise
        shutil.rmtree(path, ignore_errors=True)
        return False
    assert limit is None, f"{engine.name} wrote {case.name}, against its limit: {limit.because}"
    return True


def check_read(
    engine: Engine, path: Path, case: Case, writer: str, expected: Sequence[Row]
) -> None:
    """Assert that the engine reads the expected rows, or fails at it as its limit says."""
    limit = limits.limit(engine.name, "read", case.features, writer)
    try:
        rows = engine.read(path)
    except PeerRefused as refusal:
        if limit is None or not limit.fits(refusal.reason):
            raise
        return
    _judge(engine.name, limit, values.difference(rows, expected, case.columns))


def _judge(name: str, limit: Limit | None, wrong: list[str]) -> None:
    if limit is None:
        assert not wrong, f"{name} reads:\n" + "\n".join(wrong)
    else:
        assert limit.how == "differs", f"{name} reads in spite of its limit: {limit.because}"
        assert wrong, f"{name} reads right in spite of its limit: {limit.because}"
