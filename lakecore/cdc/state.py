"""The state of a pipeline: small JSON files next to the tables, one for each checkpoint.

A checkpoint file holds the position of the source, and the commit messages of every table with rows
before that position. Once the file is written, the checkpoint is valid, and each table is committed
from the messages, after a crash by the next process. Without the file, the checkpoint never
happened, and the source is read again from the previous position.

INVARIANT: `put_if_absent` of the next file is the only step that advances a pipeline. If two
processes run one pipeline, both write a file of the same number, and one process gets an error.

INVARIANT: the file of a checkpoint is deleted only after the next file is written. Until then, no
other place names the checkpoint's messages.

When every table of a checkpoint is committed, the file is written again without the messages, so
that a restart commits nothing twice, even if the snapshots of the first commit have expired.

Entries about single tables are in a separate file, the *base*; a checkpoint names its base, and has
only the entries that differ. If many entries differ, the next checkpoint begins another base. The
cost of a checkpoint therefore depends on the changes, not on the number of tables.

INVARIANT: a base is stored before the checkpoints that name it, and deleted after a later base is
named. The name of a base begins with its checkpoint, so a slow process deletes no newer base.

INVARIANT: the dead letters of a checkpoint are published after its state is stored. Before that,
they are in a file that the state names. If the checkpoint never happens, the source yields the same
rows again, and a table with a new schema may take them: such rows must not be dead letters too.

INVARIANT: a state holds no password: only a position, names and counts of the source.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, cast

from lakecore.cdc.events import ChangeBatch, Position, SourceTable
from lakecore.cdc.quarantine import SetAside
from lakecore.cdc.resync import PartlyRead
from lakecore.cdc.retry import Outage
from lakecore.errors import CommitConflict, CorruptTable, InvalidRequest, LakecoreError, NotFound
from lakecore.model.files import (
    CommitMessage,
    DataFile,
    FileSource,
    GlobalIndex,
    IndexFile,
    Stats,
    VectorRange,
)
from lakecore.model.rows import KIND_TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import Store
    from lakecore.model.types import Json


# --- message texts -------------------------------------------------------------------------------
# Commit messages as JSON values, so that a pipeline can store them and commit them after a crash.
#
# Only classes of `lakecore.model.files` are read back, so a state file cannot run code. A value is
# an object whose `type` names its class; bytes are Base64, and tuples are lists.

_TYPE = "type"
_BYTES = "base64"
_CLASSES: dict[str, type] = {
    each.__name__: each
    for each in (CommitMessage, DataFile, GlobalIndex, IndexFile, Stats, VectorRange)
}


def message_to_json(message: CommitMessage) -> Json:
    """The message as a JSON value."""
    return cast("Json", _encoded(message))


def message_from_json(value: object, path: str) -> CommitMessage:
    """The message of a value that `message_to_json` returned.

    Raises CorruptTable for any other value.
    """
    try:
        decoded = _decoded(value)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise CorruptTable("a commit message is damaged", path=path, cause=error) from error
    if not isinstance(decoded, CommitMessage):
        raise CorruptTable("a commit message was expected", path=path, value=type(decoded).__name__)
    return decoded


def _encoded(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        stated = {
            each.name: _encoded(getattr(value, each.name))
            for each in fields(value)
            if each.default is MISSING or getattr(value, each.name) != each.default
        }
        return {_TYPE: type(value).__name__, **stated}
    match value:
        case bytes():
            return {_BYTES: base64.b64encode(value).decode()}
        case tuple() | list():
            return [_encoded(each) for each in value]
        case FileSource():
            return int(value)
        case None | bool() | int() | str():
            return value
        case _:
            raise AssertionError(f"a commit message holds {type(value).__name__}")


def _decoded(value: object) -> object:
    match value:
        case {"base64": str(text)}:
            return base64.b64decode(text, validate=True)
        case {"type": str(name), **stated}:
            given = {str(key): _decoded(each) for key, each in stated.items()}
            if given.get("file_source") is not None:
                given["file_source"] = FileSource(int(str(given["file_source"])))
            return _CLASSES[name](**given)
        case list():
            return tuple(_decoded(each) for each in value)
        case dict():
            raise ValueError("an object without a type")
        case _:
            return value


# --- dead letters --------------------------------------------------------------------------------
# Dead letters: rows that do not fit their table, kept in files next to the state of the pipeline.
#
# Each line is a JSON object: the source table, the target, the kind of the change, the reason, and
# the values as strings. A checkpoint has at most one file, which is published only after the
# checkpoint is stored, so each row is either in its table or here.


class DeadLetters:
    """Collects dead letters until the next checkpoint. `count` is the total number."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def add(self, target: str, batch: ChangeBatch, rows: Sequence[tuple[int, str]]) -> None:
        """Keep rows of a batch. `rows`: the number of each row, and the reason."""
        for number, reason in rows:
            values = batch.rows.slice(number, 1).to_pylist()[0]
            line = {
                "source": str(batch.table),
                "target": target,
                "kind": KIND_TEXTS[batch.kinds[number].as_py()],
                "reason": reason,
                "row": {name: _text(value) for name, value in values.items()},
            }
            self._keep(line)

    def add_message(self, error: InvalidRequest) -> None:
        """Keep the position of a message that cannot be read, and the reason."""
        facts = {name: _text(value) for name, value in error.facts.items()}
        self._keep({"reason": error.message, **facts})

    def hold(self, files: StateFiles, checkpoint: int) -> str | None:
        """Write the rows that were kept since the previous checkpoint; return the file, if any."""
        if not self.lines:
            return None
        lines, self.lines = self.lines, []
        return files.hold_letters(checkpoint, lines)

    def drop(self) -> None:
        """Forget the rows that were kept since the previous checkpoint."""
        self.count -= len(self.lines)
        self.lines = []

    def _keep(self, line: Mapping[str, object]) -> None:
        self.lines.append(json.dumps(line, ensure_ascii=False))
        self.count += 1


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)


# --- state ---------------------------------------------------------------------------------------


@contextmanager
def stored(path: str, said: str = "the state of the pipeline is damaged") -> Iterator[None]:
    """A context manager in which a stored value of an unexpected form raises CorruptTable."""
    try:
        yield
    except LakecoreError:
        raise
    except (*_UNEXPECTED, RecursionError) as error:
        raise CorruptTable(said, path=path) from error


_UNEXPECTED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


_NAME = re.compile(r"checkpoint-(\d{1,18})\.json")
_HELD = re.compile(r"held-rows-(\d{1,18})-[0-9a-f-]+\.jsonl")
_REQUEST = re.compile(r"(resync|unread)-[0-9a-f-]+\.json")
_UNREAD = "unread-"
"""A request of the source itself: without the read, the table must not be followed."""
_BASE = re.compile(r"tables-(\d{1,18})-[0-9a-f-]+\.json")
_FORMAT = 2
_FORMATS = (1, 2)
_CHANGES_MIN = 4096
_ATTEMPTS = 10
_Tables: TypeAlias = "dict[str, dict[str, Json]]"
"""Entries about single tables, by subject and name of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineState:
    """The stored state of a pipeline after a checkpoint.

    - `commit_user`: the commit user of all its commits; the number of the checkpoint is the
      identifier;
    - `messages`: the commit messages of the checkpoint, by table name;
    - `letters`: the file with the dead letters of the checkpoint, until they are published;
    - `targets`: the tables that were written so far;
    - `source_tables`: the source tables known when the pipeline first started (`divided` mode);
    - `quarantine`: the source tables that are no longer followed;
    - `partly_read`: the source tables of which some ranges are read again;
    - `metrics`: counts and times for users; no decision depends on them.
    """

    checkpoint: int
    commit_user: str
    position: Position | None = None
    messages: Mapping[str, tuple[CommitMessage, ...]] = field(default_factory=dict)
    letters: str | None = None
    targets: tuple[str, ...] = ()
    source_tables: tuple[str, ...] = ()
    quarantine: tuple[SetAside, ...] = ()
    partly_read: tuple[PartlyRead, ...] = ()
    source: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, Json] = field(default_factory=dict)


_OUTAGE = "unreachable.json"
_FAILURE = "failed.json"


class StateFiles:
    """The checkpoint files of one pipeline, in its own directory."""

    def __init__(self, store: Store, directory: str, ambient: Ambient) -> None:
        self._store = store
        self.directory = directory.rstrip("/")
        self._ambient = ambient
        self._base: tuple[str | None, _Tables] = (None, {})
        self._base_size = 0

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self.directory.rpartition("/")[2]

    def checkpoints(self) -> tuple[int, ...]:
        """The numbers of the checkpoints that have a file, in order."""
        found = (_NAME.fullmatch(name) for name in self._names())
        return tuple(sorted(int(match[1]) for match in found if match))

    def _names(self) -> list[str]:
        return [each.path.rpartition("/")[2] for each in self._store.list(self.directory)]

    def latest(self) -> PipelineState | None:
        """The state after the last checkpoint; None if the pipeline has never run here."""
        for _ in range(_ATTEMPTS):
            numbers = self.checkpoints()
            with suppress(NotFound):  # a running pipeline may have gone on meanwhile
                return self.read(numbers[-1]) if numbers else None
        return self.read(numbers[-1])

    def read(self, checkpoint: int) -> PipelineState:
        """The state after a checkpoint. Raises CorruptTable if the file is damaged."""
        path = self._path(checkpoint)
        with stored(path):
            found = json.loads(self._store.read(path))
            if found["format"] not in _FORMATS:
                raise CorruptTable(
                    "the state is of another version of lakecore",
                    path=path,
                    version=found["format"],
                )
            if "changed" in found:
                self._join(found)
            messages = {
                str(table): tuple(message_from_json(each, path) for each in listed)
                for table, listed in found["messages"].items()
            }
            return PipelineState(
                checkpoint=int(found["checkpoint"]),
                commit_user=str(found["commit_user"]),
                position=None if found["position"] is None else _object(found["position"]),
                messages=messages,
                letters=_held(found.get("letters"), path),
                targets=tuple(map(str, found["targets"])),
                source_tables=tuple(map(str, found["source_tables"])),
                quarantine=tuple(map(SetAside.from_json, found.get("quarantine", ()))),
                partly_read=tuple(map(PartlyRead.from_json, found.get("partly_read", ()))),
                source={key: str(each) for key, each in _object(found["source"]).items()},
                metrics=_object(found["metrics"]),
            )

    def put(self, state: PipelineState) -> None:
        """Store the state of the next checkpoint.

        Raises CommitConflict if another process has already stored that checkpoint.
        """
        path = self._path(state.checkpoint)
        whole, tables = _split(state)
        changed = _changes(self._base[1], tables)
        if len(json.dumps(changed)) > _CHANGES_MIN + self._base_size // 4:
            name = f"tables-{state.checkpoint}-{self._ambient.new_uuid()}.json"
            text = json.dumps(tables)
            self._store.put(f"{self.directory}/{name}", text.encode())
            self._base, self._base_size, changed = (name, tables), len(text), {}
        if not self._store.put_if_absent(path, self._text(whole, changed)):
            raise CommitConflict(
                "another process runs this pipeline: end one of the two",
                checkpoint=state.checkpoint,
                path=path,
            )

    def _text(self, whole: Mapping[str, Json], changed: _Tables) -> bytes:
        head = {"format": _FORMAT, "uuid": self._ambient.new_uuid()}
        return json.dumps({**head, **whole, "base": self._base[0], "changed": changed}).encode()

    def _join(self, found: dict[str, Json]) -> None:
        """Put the entries about tables back into a state.

        Raises NotFound if the base is gone, KeyError or TypeError for a damaged state.
        """
        name = found["base"]
        if name is not None and name != self._base[0]:
            if not isinstance(name, str) or not _BASE.fullmatch(name):
                raise TypeError("a base has another name")
            text = self._store.read(f"{self.directory}/{name}")
            self._base, self._base_size = (name, json.loads(text)), len(text)
        before = {} if name is None else self._base[1]
        changed = found["changed"]
        if not isinstance(changed, dict):
            raise TypeError("changes are an object")
        tables: _Tables = {}
        for part in {*before, *changed}:
            entries = {**before.get(part, {}), **changed.get(part, {})}
            tables[part] = {key: each for key, each in entries.items() if each is not None}
        found["targets"] = sorted(tables.get("targets", ()))
        found["source_tables"] = sorted(tables.get("source_tables", ()))
        for whole, part in _PARTS:
            inside = found[whole]
            if isinstance(inside, dict) and inside.get(part) is _SPLIT:
                found[whole] = {**inside, part: tables.get(part, {})}

    def put_committed(self, state: PipelineState) -> None:
        """Store that every table of a checkpoint is committed, and drop its messages.

        Otherwise, a later process could commit them again, if the snapshots of the first commit
        have expired.
        """
        if state.messages or state.letters:
            whole, tables = _split(replace(state, messages={}, letters=None))
            changed = _changes(self._base[1], tables)
            self._store.put(self._path(state.checkpoint), self._text(whole, changed))

    def request(self, tables: Iterable[SourceTable], *, unread: bool = False) -> None:
        """Store the request to read tables again, in a file of its own.

        `unread`: whether the source needs it, because the target lacks rows.
        """
        kind = _UNREAD if unread else "resync-"
        self._put_request(f"{kind}{self._ambient.new_uuid()}.json", tables)

    def _put_request(self, name: str, tables: Iterable[SourceTable]) -> None:
        text = json.dumps([[each.database, each.name] for each in tables])
        self._store.put(f"{self.directory}/{name}", text.encode())

    def requests(self) -> dict[str, tuple[SourceTable, ...]]:
        """The tables of each open request, by the name of its file.

        Raises CorruptTable if a file is damaged.
        """
        found: dict[str, tuple[SourceTable, ...]] = {}
        for name in filter(_REQUEST.fullmatch, self._names()):
            path = f"{self.directory}/{name}"
            with stored(path, "a request of the pipeline is damaged"):
                listed = json.loads(self._store.read(path))
                found[name] = tuple(SourceTable(str(each[0]), str(each[1])) for each in listed)
        return found

    def forget_request(self, name: str, table: SourceTable) -> None:
        """Remove a table from a request, and delete the request if it has no other table."""
        left = [each for each in self.requests().get(name, ()) if each != table]
        if left:
            self._put_request(name, left)
        else:
            self._store.delete(f"{self.directory}/{name}")

    def put_outage(self, outage: Outage | None) -> None:
        """Store that the source cannot be reached, or that it can (None).

        An outage that an earlier run has stored goes on: its last contact stays.
        """
        path = f"{self.directory}/{_OUTAGE}"
        if outage is None:
            self._store.delete(path)
            self._store.delete(f"{self.directory}/{_FAILURE}")
            return
        with suppress(CorruptTable):
            if (before := self.outage()) is not None and before.contact_ms < outage.contact_ms:
                outage = replace(outage, contact_ms=before.contact_ms)
        self._store.put(path, json.dumps(outage.to_json()).encode())

    def outage(self) -> Outage | None:
        """Why the source cannot be reached; None if it can, or if nothing has tried."""
        path = f"{self.directory}/{_OUTAGE}"
        with stored(path):
            try:
                return Outage.from_json(_object(json.loads(self._store.read(path))))
            except NotFound:
                return None

    def put_failure(self, reason: str) -> None:
        """Store why a run has ended with an error, in place of an outage before it."""
        self._store.delete(f"{self.directory}/{_OUTAGE}")
        told = {"time_ms": self._ambient.now_ms(), "reason": reason}
        self._store.put(f"{self.directory}/{_FAILURE}", json.dumps(told).encode())

    def failure(self) -> tuple[int, str] | None:
        """When and why the last run has ended with an error; None if a later one got further."""
        path = f"{self.directory}/{_FAILURE}"
        with stored(path):
            try:
                found = _object(json.loads(self._store.read(path)))
            except NotFound:
                return None
            return int(str(found["time_ms"])), str(found["reason"])

    def hold_letters(self, checkpoint: int, lines: Sequence[str]) -> str:
        """Store dead letters of the next checkpoint under a temporary name. Returns the name."""
        name = f"held-rows-{checkpoint}-{self._ambient.new_uuid()}.jsonl"
        self._store.put(f"{self.directory}/{name}", _joined(lines))
        return name

    def publish_letters(self, state: PipelineState) -> None:
        """Copy the dead letters of a valid checkpoint to their final name."""
        if state.letters is not None:
            data = self._store.read(f"{self.directory}/{state.letters}")
            self._store.put(self._letters_path(state.checkpoint), data)

    def letters(self, checkpoint: int) -> list[str]:
        """The dead letters of a checkpoint; empty if it has none."""
        try:
            text = self._store.read(self._letters_path(checkpoint)).decode()
        except NotFound:
            return []
        # `splitlines` would also split at characters such as U+2028, which JSON leaves as they are.
        return text.removesuffix("\n").split("\n") if text else []

    def put_letters(self, checkpoint: int, lines: Sequence[str]) -> None:
        self._store.put(self._letters_path(checkpoint), _joined(lines))

    def forget_before(self, checkpoint: int) -> None:
        """Delete the state files of earlier checkpoints, and temporary files of dead letters.

        Temporary files are deleted up to this checkpoint, whose tables must all be committed.
        """
        known = _BASE.fullmatch(self._base[0] or "")
        for name in self._names():
            state, held, base = (each.fullmatch(name) for each in (_NAME, _HELD, _BASE))
            is_old = base and known is not None and int(base[1]) < int(known[1])
            if (
                is_old
                or (state and int(state[1]) < checkpoint)
                or (held and int(held[1]) <= checkpoint)
            ):
                self._store.delete(f"{self.directory}/{name}")

    def _letters_path(self, checkpoint: int) -> str:
        return f"{self.directory}/dead-letters-{checkpoint}.jsonl"

    def _path(self, checkpoint: int) -> str:
        return f"{self.directory}/checkpoint-{checkpoint}.json"


_WAIT_MIN, _WAIT_MAX = 10.0, 600.0


class Requests:
    """The open requests of a pipeline. `partly`: the tables that are read in part."""

    def __init__(self, files: StateFiles) -> None:
        self._files = files
        self._waits: dict[SourceTable, tuple[int, float | None, frozenset[str]]] = {}
        self.partly: dict[SourceTable, PartlyRead] = {}

    def restore(self, stored: Iterable[PartlyRead]) -> None:
        """Go back to the progress that is stored with the position."""
        self.partly = {each.table: each for each in stored}

    def postpone(self, table: SourceTable, requests: frozenset[str], now_ms: int) -> float:
        """Wait before a table is read again for these requests; returns the seconds.

        The first attempt after a failure follows at once; then the waits double, up to 10 minutes.
        """
        _, before, known = self._waits.get(table, (0, None, requests))
        is_first = before is None or known != requests
        wait = 0.0 if is_first else min(max((before or 0) * 2, _WAIT_MIN), _WAIT_MAX)
        self._waits[table] = now_ms + round(wait * 1000), wait, requests
        return wait

    def due(self, now_ms: int) -> dict[SourceTable, frozenset[str]]:
        """The open requests that need not wait: by table, the names of its requests."""
        found = self.open()
        for table, (until_ms, _, requests) in self._waits.items():
            if now_ms < until_ms and found.get(table) == requests:
                del found[table]
        return found

    def open(self) -> dict[SourceTable, frozenset[str]]:
        """By table, the names of its requests."""
        found: dict[SourceTable, set[str]] = {}
        for name, tables in self._files.requests().items():
            for table in tables:
                found.setdefault(table, set()).add(name)
        return {table: frozenset(names) for table, names in found.items()}

    @staticmethod
    def is_unread(requests: Iterable[str]) -> bool:
        """Whether one of the requests is of the source, which needs it."""
        return any(name.startswith(_UNREAD) for name in requests)

    def begun(self, table: SourceTable, requests: frozenset[str]) -> PartlyRead | None:
        """The ranges of a table that were read for exactly these requests; None if there are none.

        The reason of another request may be in a range that was read before.
        """
        found = self.partly.get(table)
        return found if found is not None and found.requests == requests else None

    def add(self, tables: Sequence[SourceTable]) -> bool:
        """Store that the source needs a read of these tables; False if stored already.

        A table that is read in part is read from the first range again.
        """
        begun = [each for each in tables if self.partly.pop(each, None) is not None]
        known = self.open()
        missing = [each for each in tables if not self.is_unread(known.get(each, ()))]
        if missing:
            self._files.request(missing, unread=True)
        return bool(begun or missing)

    def done(self, table: SourceTable, names: Iterable[str]) -> None:
        """Remove a table from requests, and delete the requests that have no other table."""
        self._waits.pop(table, None)
        for name in names:
            self._files.forget_request(name, table)


_PARTS = (("position", "columns"), ("metrics", "tables"), ("metrics", "followed"))
"""The members of a state with entries about single tables: their parent and their name."""
_SPLIT = True
"""The placeholder of such a member."""


def _split(state: PipelineState) -> tuple[dict[str, Json], _Tables]:
    """A state as JSON: the part about the whole pipeline, and the entries about single tables."""
    tables: _Tables = {
        "targets": dict.fromkeys(state.targets, 1),
        "source_tables": dict.fromkeys(state.source_tables, 1),
    }
    whole: dict[str, Json] = {
        "checkpoint": state.checkpoint,
        "commit_user": state.commit_user,
        "position": None if state.position is None else {**state.position},
        "letters": state.letters,
        "quarantine": [each.to_json() for each in state.quarantine],
        "source": dict(state.source),
        "metrics": {**state.metrics},
        "messages": {
            table: [message_to_json(each) for each in messages]
            for table, messages in state.messages.items()
        },
    }
    if state.partly_read:
        whole["partly_read"] = [each.to_json() for each in state.partly_read]
    for where, part in _PARTS:
        inside = whole[where]
        if isinstance(inside, dict) and isinstance(entries := inside.get(part), dict):
            tables[part] = entries
            inside[part] = _SPLIT
    return whole, tables


def _changes(before: _Tables, now: _Tables) -> _Tables:
    """The entries that are new or have changed; None for entries that are gone."""
    found: _Tables = {}
    for part in {*before, *now}:
        old, new = before.get(part, {}), now.get(part, {})
        changed: dict[str, Json] = {key: None for key in old if key not in new}
        for key, each in new.items():
            known = old.get(key)
            if known is not each and known != each:
                changed[key] = each
        if changed:
            found[part] = changed
    return found


def _object(value: object) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise TypeError("an object was expected")
    return value


def _held(name: object, path: str) -> str | None:
    """The name of a file of dead letters in the directory of the pipeline, or None.

    Raises CorruptTable for a name that is not from `hold_letters`, because the file is published.
    """
    if name is not None and not (isinstance(name, str) and _HELD.fullmatch(name)):
        raise CorruptTable("the state names no file of dead letters", path=path, name=name)
    return name


def _joined(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
