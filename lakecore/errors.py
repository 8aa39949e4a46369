"""Every error that lakecore raises on purpose, as one tree, ordered by what the caller can do.

```
LakecoreError
├── InvalidRequest    fix the call: a bad argument, schema, option or row
│   └── Uncomputable  the rows of one key cannot be merged; other keys can
├── NotFound          the name, snapshot or file is not there
├── AlreadyExists     the name is taken
├── Unsupported       valid Paimon, not in lakecore
├── CommitConflict    another writer changed the table: read it again and repeat the work
├── CommitUnknown     the commit may or may not have happened: look before a retry
├── CorruptTable      stored bytes contradict each other: stop
└── StorageError      the storage refused: permission, space, network
```

A message is a lower-case sentence, then facts: `run overlaps. level=3 file=...`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from lakecore.masking import masked, masked_facts

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

__all__ = [
    "AlreadyExists",
    "CommitConflict",
    "CommitUnknown",
    "CorruptTable",
    "InvalidRequest",
    "LakecoreError",
    "NotFound",
    "StorageError",
    "Uncomputable",
    "Unsupported",
]


_TIMES = (86_400_000 * 365, 253_402_300_800_000)
"""Times from 1971 to 9999, in milliseconds. Durations of a request are shorter."""


class LakecoreError(Exception):
    """Base class of all lakecore errors; `facts` holds the values that the message states.

    try:
        session.get_table("shop.order")
    except lakecore.LakecoreError as error:
        error.message, error.facts["tables"]  # ('no such table', ['orders'])
    """

    def __init__(self, message: str, **facts: object) -> None:
        self.message = message
        self.facts = masked_facts(facts)
        stated = " ".join(_stated(name, value) for name, value in self.facts.items())
        super().__init__(f"{message}. {stated}" if stated else message)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Make the error picklable: executors and process pools send errors to their parent."""
        return (_rebuild, (type(self), self.message, self.facts))


class InvalidRequest(LakecoreError, ValueError):
    """The call is wrong: an argument, a schema, an option or a row must be fixed.

    try:
        table.write([{"id": "seven"}])
    except lakecore.InvalidRequest as error:
        error.facts["column"]  # 'id'
    """


class Uncomputable(InvalidRequest):
    """The rows of one key cannot be merged; `facts["key"]` names the key to repair.

    try:
        table.to_polars()
    except lakecore.Uncomputable as error:
        error.facts["key"]  # {'id': 1}
    """


class NotFound(LakecoreError, LookupError):
    """A requested name, snapshot or file does not exist.

    try:
        table.to_polars(snapshot_id=99)
    except lakecore.NotFound as error:
        error.facts["live"]  # '1..3'
    """


class AlreadyExists(LakecoreError):
    """The name is already taken.

    try:
        session.create_database("shop")
    except lakecore.AlreadyExists as error:
        error.facts  # {'database': 'shop'}
    """


class Unsupported(LakecoreError, NotImplementedError):
    """A valid Paimon feature that lakecore does not implement; nothing was changed.

    try:
        session.sql("CREATE FUNCTION twice AS '...'")
    except lakecore.Unsupported as error:
        print(error)
    """


class CommitConflict(LakecoreError):
    """Another commit changed the data this one was computed from; read again and repeat it.

    try:
        table.commit(messages)
    except lakecore.CommitConflict:
        table.commit(write_again())
    """


class CommitUnknown(LakecoreError):
    """The outcome of a commit is unknown. No file was deleted; look for the commit before a retry.

    `Table.last_identifier` returns the newest committed identifier of a user.

        try:
            table.commit(messages, commit_user="nightly", identifier=7)
        except lakecore.CommitUnknown:
            is_there = (table.last_identifier("nightly") or 0) >= 7
    """


class CorruptTable(LakecoreError):
    """Stored bytes contradict each other or do not match their file name. Inspect the table.

    try:
        table.to_polars()
    except lakecore.CorruptTable as error:
        error.facts["path"]
    """


class StorageError(LakecoreError, OSError):
    """The storage refused a call: permission, space, network. Committed data is not affected.

    try:
        table.write(rows)
    except lakecore.StorageError as error:
        print(error)
    """


def _rebuild(kind: type[LakecoreError], message: str, facts: dict[str, object]) -> LakecoreError:
    return kind(message, **facts)


def _stated(name: str, value: object) -> str:
    """A fact as text. A time in milliseconds since 1970 (`..._ms`) is shown in UTC."""
    if name.endswith("_ms") and isinstance(value, int) and _TIMES[0] <= value < _TIMES[1]:
        moment = datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
        return f"{name.removesuffix('_ms')}={moment.replace('+00:00', 'Z')}"
    return f"{name}={_show(value)}"


def _show(value: object) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ", ".join(_show(item) for item in value) + "]"
    try:
        # A string that is not valid Unicode could not be printed.
        text = str(value).encode(errors="backslashreplace").decode()
    except ValueError:  # Python prints no integer of more digits than sys.get_int_max_str_digits()
        return f"<{type(value).__name__} with too many digits to be shown>"
    return masked(text) if isinstance(value, BaseException) or "://" in text else text


def check_flags(**flags: object) -> None:
    """Raise InvalidRequest for an argument that is neither True nor False; the error names it."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise InvalidRequest(f"{name} is True or False", **{name: flag})


# --- suggestions ---------------------------------------------------------------------------------

KEPT_LONGER = (
    "the option snapshot.time-retained or a consumer keeps snapshots longer, a tag the rows of one"
)
"""What an error about an expired snapshot says."""


def did_you_mean(name: str, known: Iterable[str]) -> dict[str, str]:
    """The known name most similar to `name` as facts of an error; empty if none is similar.

    Upper and lower case do not matter.

        raise NotFound("no such table", table=name, **did_you_mean(name, tables))
    """
    lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), lower, 1)
    return {"did_you_mean": lower[near[0]]} if near else {}


def optional(module: str, *, extra: str, what: str) -> ModuleType:
    """The module of a package that not everybody installs; `what` needs it.

    Raises Unsupported, naming the extra that installs the package, if it is missing.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise Unsupported(
            f"a package is missing for {what}",
            package=module.partition(".")[0],
            install=f"pip install 'lakecore[{extra}]'",
        ) from error
