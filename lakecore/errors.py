"""Every error that lakecore raises on purpose, as one tree, drawn by what the caller can do.

```
LakecoreError
├── InvalidRequest    fix the call: a bad argument, schema, option or row
│   └── Uncomputable  the rows of one key cannot be merged; other keys can
├── NotFound          the name, snapshot or file is not there
├── AlreadyExists     the name is taken
├── Unsupported       valid Paimon, not in lakecore
├── CommitConflict    somebody else changed the table: read again and redo
├── CommitUnknown     the commit may or may not be there: look before a retry
├── CorruptTable      stored bytes contradict each other: stop
└── StorageError      the storage refused: permission, space, network
```

A message is a lower-case sentence, then facts: `run overlaps. level=3 file=...`.
"""

from __future__ import annotations

from lakecore.masking import masked, masked_facts

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


class LakecoreError(Exception):
    """An error that lakecore raises on purpose; `facts` are what the message states."""

    def __init__(self, message: str, **facts: object) -> None:
        self.message = message
        self.facts = masked_facts(facts)
        stated = " ".join(f"{name}={_show(value)}" for name, value in self.facts.items())
        super().__init__(f"{message}. {stated}" if stated else message)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Survive a process border: executors and pools raise these across one."""
        return (_rebuild, (type(self), self.message, self.facts))


class InvalidRequest(LakecoreError, ValueError):
    """The call cannot be right: fix an argument, a schema, an option or a row."""


class Uncomputable(InvalidRequest):
    """The rows of one key cannot be merged into one, which `facts["key"]` holds: mend that key."""


class NotFound(LakecoreError, LookupError):
    """A name, a snapshot or a file that was asked for is not there."""


class AlreadyExists(LakecoreError):
    """The name is taken."""


class Unsupported(LakecoreError, NotImplementedError):
    """Valid Paimon that lakecore does not do; nothing was changed."""


class CommitConflict(LakecoreError):
    """Another commit changed what this one was computed from; read again and redo."""


class CommitUnknown(LakecoreError):
    """The outcome of a commit is unknown: look for it before a retry. Nothing was deleted."""


class CorruptTable(LakecoreError):
    """Stored bytes contradict each other, or are not what their name says. Stop and look."""


class StorageError(LakecoreError, OSError):
    """The storage refused: permission, space, network. What was visible before still is."""


def _rebuild(kind: type[LakecoreError], message: str, facts: dict[str, object]) -> LakecoreError:
    return kind(message, **facts)


def _show(value: object) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ", ".join(_show(item) for item in value) + "]"
    # A text that is not Unicode could not be printed.
    text = str(value).encode(errors="backslashreplace").decode()
    return masked(text) if isinstance(value, BaseException) or "://" in text else text
