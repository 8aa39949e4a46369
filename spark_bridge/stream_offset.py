"""The position of a Spark stream, as its checkpoint stores it.

| key | is |
|---|---|
| `snapshot` | everything up to this snapshot was returned; 0: nothing is committed yet |
| `schema` | the schema that the stream read with |
| `commit` | identifies the commit of the snapshot, to detect a rollback |
| `full` | true: the stream begins with the whole state of this snapshot |
| `split` | how many splits of the state were returned |
| `splits` | how many splits the state has |
| `plan` | identifies the splits of the state |
| `since` | only files of the state that were created since then are read |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Offset", "StateOffset", "parse_offset"]


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
    """The position that Spark stored. Raises InvalidRequest if it is not one of these."""
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
