"""The options of `spark.readStream.format("lakecore")`.

| option | also written | is |
|---|---|---|
| `path`, `branch`, `where` | | as for a batch read |
| `read.changelog` | | true: columns `_row_kind` and `_snapshot_id`; false: only rows +I and +U |
| `startingVersion` | `scan.snapshot-id` | the first snapshot whose changes are read, or `latest` |
| `startingTimestamp` | `scan.timestamp`, `scan.timestamp-millis` | the first time |
| `scan.mode` and other options of the table | | for this stream |
| `consumer-id` | | the consumer that records progress |
| `maxSnapshotsPerTrigger` | `read.stream.maxSnapshotsPerTrigger` | the most snapshots of a batch |
| `maxFilesPerTrigger` | `read.stream.maxFilesPerTrigger` | the most files of a batch |
| `maxBytesPerTrigger` | `read.stream.maxBytesPerTrigger` | the most bytes of a batch |
| `maxRowsPerTrigger` | `read.stream.maxRowsPerTrigger` | the most rows of a batch |

A name in the second column means the same as the name in the first; both at once are an error.
Whatever the limits are, a batch has at least one snapshot, or one split of a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore import InvalidRequest, Unsupported
from lakecore.distributed import START_OPTIONS, StreamRequest
from spark_bridge.options import SourceOptions, parse_options, parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping

CHANGELOG = "read.changelog"
_PREFIX = "read.stream."
_LIMITS = {
    "maxsnapshotspertrigger": "snapshots",
    "maxfilespertrigger": "files",
    "maxbytespertrigger": "bytes",
    "maxrowspertrigger": "rows",
}
_VERSION, _TIME = "startingversion", "startingtimestamp"
_ELSEWHERE = {
    "ignoredeletes": "read.changelog=false leaves out deletions",
    "ignorechanges": "read.changelog=false returns +I and +U rows",
    "skipchangecommits": "read.changelog=false leaves out deletions",
    "readchangefeed": "it is read.changelog",
    "readchangedata": "it is read.changelog",
    "startingoffsets": "it is startingVersion",
    "endingversion": "a stream has no end; Trigger.AvailableNow stops at the latest snapshot",
    "endingtimestamp": "a stream has no end; Trigger.AvailableNow stops at the latest snapshot",
    "read.stream.minrowspertrigger": "a batch has what there is; set the interval of the trigger",
    "read.stream.maxtriggerdelayms": "a batch has what there is; set the interval of the trigger",
}
"""Options of other connectors, and what to do in their place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one batch; None: no limit."""

    snapshots: int | None = None
    files: int | None = None
    bytes: int | None = None
    rows: int | None = None

    @property
    def any(self) -> bool:
        return self != Limits()

    def hold(self, snapshots: int, files: int, size_bytes: int, rows: int) -> bool:
        """Whether a batch of this size is within all limits."""
        pairs = (
            (self.snapshots, snapshots),
            (self.files, files),
            (self.bytes, size_bytes),
            (self.rows, rows),
        )
        return all(limit is None or given <= limit for limit, given in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The parsed options. `changelog` is None if it was not stated.

    `start`: table options that name a start. The table is opened without these options, because the
    start of a query that has a checkpoint may have expired.
    """

    source: SourceOptions
    request: StreamRequest
    start: Mapping[str, str]
    changelog: bool | None
    limits: Limits


def is_stream_option(key: str) -> bool:
    """Whether the option is only valid for streams."""
    name = key.lower()
    return name.startswith(_PREFIX) or name in {CHANGELOG, _VERSION, _TIME, *_LIMITS, *_ELSEWHERE}


def parse_stream_options(
    options: Mapping[str, str], *, location: str | None, storage: Mapping[str, str]
) -> StreamOptions:
    """The parsed options. Raises InvalidRequest or Unsupported, naming the option."""
    own: dict[str, str] = {}
    others: dict[str, str] = {}
    for key, value in options.items():
        (own if is_stream_option(key) else others)[key.lower()] = value
    for key, advice in _ELSEWHERE.items():
        if key in own:
            raise Unsupported(f"lakecore has no such option of a stream: {advice}", option=key)
    start = {key: others.pop(key) for key in list(others) if key in START_OPTIONS}
    source = parse_options(others, location=location, storage=storage)
    _refuse_states(source, others)
    return StreamOptions(
        source=source,
        request=_request(own, start),
        start=start,
        changelog=_changelog(own.pop(CHANGELOG, None)),
        limits=_limits(own),
    )


def _refuse_states(source: SourceOptions, others: Mapping[str, str]) -> None:
    if source.system is not None:
        raise Unsupported(
            "a system table has no stream; read it by spark.read",
            table=f"{source.path}${source.system}",
        )
    states = {"snapshot-id", "tag", "timestamp", "timestampasof", "versionasof"} & others.keys()
    if states:
        raise InvalidRequest(
            "the option names a state to read once; a stream begins by startingVersion, "
            "startingTimestamp, or scan.mode with scan.snapshot-id or scan.tag-name",
            options=sorted(states),
        )


def _request(own: Mapping[str, str], start: Mapping[str, str]) -> StreamRequest:
    version, time = own.get(_VERSION), own.get(_TIME)
    if (version is not None) + (time is not None) + bool(start) > 1:
        named = [key for key in (_VERSION, _TIME) if key in own]
        raise InvalidRequest("name the start of a stream in one way only", options=[*named, *start])
    if version is None:
        return StreamRequest(from_timestamp=None if time is None else parse_time(time))
    if version.lower() == "latest":
        return StreamRequest(scan_mode="latest")
    return StreamRequest(from_snapshot=_whole(_VERSION, version, 0))


def _changelog(text: str | None) -> bool | None:
    if text is None:
        return None
    if text.lower() not in {"true", "false"}:
        raise InvalidRequest("the option is true or false", option=CHANGELOG, value=text)
    return text.lower() == "true"


def _limits(own: Mapping[str, str]) -> Limits:
    found: dict[str, int] = {}
    for key, text in own.items():
        name = key.removeprefix(_PREFIX)
        if name in {_VERSION, _TIME}:
            continue
        if name not in _LIMITS:
            known = [f"{_PREFIX}{each}" for each in _LIMITS]
            raise InvalidRequest("unknown option of a stream", option=key, known=known)
        if _LIMITS[name] in found:
            raise InvalidRequest("the limit is given twice", option=key)
        found[_LIMITS[name]] = _whole(key, text, 1)
    return Limits(**found)


def _whole(key: str, text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise InvalidRequest(
            f"the option is a whole number, {least} or more", option=key, value=text
        )
    return int(text)


# --- stream offset -------------------------------------------------------------------------------
# The position of a Spark stream, as its checkpoint stores it.
#
# | key | is |
# |---|---|
# | `snapshot` | everything up to this snapshot was returned; 0: nothing is committed yet |
# | `schema` | the schema that the stream read with |
# | `commit` | identifies the commit of the snapshot, to detect a rollback |
# | `full` | true: the stream begins with the whole state of this snapshot |
# | `split` | how many splits of the state were returned |
# | `splits` | how many splits the state has |
# | `plan` | identifies the splits of the state |
# | `since` | only files of the state that were created since then are read |


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOffset:
    """How much of a state was returned: `done` of its `count` splits (None: not planned yet).

    `since`: only files that were created at this time or later, in milliseconds.
    """

    done: int = 0
    count: int | None = None
    plan: str = ""
    since: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the whole state was returned."""
        return self.done == self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """A position of a stream: after a snapshot, or within the state of a snapshot."""

    snapshot: int
    schema: int
    commit: str = ""
    state: StateOffset | None = None

    def to_json(self) -> dict[str, object]:
        """The position as Spark stores it."""
        found: dict[str, object] = {"snapshot": self.snapshot, "schema": self.schema}
        if self.commit:
            found["commit"] = self.commit
        if self.state is not None:
            found |= {"full": True, "split": self.state.done}
            if self.state.count is not None:
                found |= {"splits": self.state.count, "plan": self.state.plan}
            if self.state.since is not None:
                found["since"] = self.state.since
        return found


def parse_offset(stored: Mapping[str, object]) -> Offset:
    """The position that Spark stored. Raises InvalidRequest for anything else."""
    try:
        state = None
        if stored.get("full") is True:
            count, since = stored.get("splits"), stored.get("since")
            state = StateOffset(
                done=_number(stored["split"]),
                count=None if count is None else _number(count),
                plan=str(stored.get("plan", "")),
                since=None if since is None else _number(since),
            )
        return Offset(
            snapshot=_number(stored["snapshot"]),
            schema=_number(stored["schema"]),
            commit=str(stored.get("commit", "")),
            state=state,
        )
    except (KeyError, TypeError) as error:
        raise InvalidRequest(
            "the checkpoint holds an offset that lakecore did not write; use a new checkpoint "
            "directory for this query",
            offset=dict(stored),
        ) from error


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(value)
    return value
