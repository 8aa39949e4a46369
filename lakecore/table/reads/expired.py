"""One error for every read of a snapshot that has expired while it was read, or before.

A file that such a read misses was deleted by the expiry, or by a rollback. The error names the
options by which snapshots stay longer. If the snapshot, or a tag of it, is there, a missing file is
damage, and the error stays CorruptTable.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from lakecore.errors import CorruptTable, LakecoreError, NotFound
from lakecore.suggestions import KEPT_LONGER

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

__all__ = ["each_or_expired", "expired_is_not_found", "or_expired"]

P = ParamSpec("P")
T = TypeVar("T")


class _OfSnapshots(Protocol):
    """A source of rows of a table."""

    @property
    def context(self) -> TableContext: ...

    @property
    def snapshots_read(self) -> Iterable[Snapshot]: ...


_Source = TypeVar("_Source", bound=_OfSnapshots)


@contextmanager
def expired_is_not_found(context: TableContext, snapshots: Iterable[Snapshot]) -> Iterator[None]:
    """Raise NotFound for a missing file if one of the snapshots is not there any more."""
    try:
        yield
    except (CorruptTable, NotFound) as error:
        gone = _first_gone(context, snapshots)
        if gone is None:
            raise
        raise NotFound(
            "the snapshot has expired, or was rolled back, before it was read to the end; "
            f"{KEPT_LONGER}",
            snapshot_id=gone.id,
            table=context.identifier,
        ) from error


def or_expired(
    read: Callable[Concatenate[_Source, P], T],
) -> Callable[Concatenate[_Source, P], T]:
    """The method of a source, with the error of `expired_is_not_found`."""

    @wraps(read)
    def called(source: _Source, /, *args: P.args, **named: P.kwargs) -> T:
        with expired_is_not_found(source.context, source.snapshots_read):
            return read(source, *args, **named)

    return called


def each_or_expired(
    read: Callable[Concatenate[_Source, P], Iterator[T]],
) -> Callable[Concatenate[_Source, P], Generator[T, None, None]]:
    """The generator method of a source, with the error of `expired_is_not_found`."""

    @wraps(read)
    def called(source: _Source, /, *args: P.args, **named: P.kwargs) -> Generator[T, None, None]:
        with expired_is_not_found(source.context, source.snapshots_read):
            yield from read(source, *args, **named)

    return called


def _first_gone(context: TableContext, snapshots: Iterable[Snapshot]) -> Snapshot | None:
    """The first of these snapshots that is neither listed, nor tagged, nor a kept changelog."""
    try:
        return next((each for each in snapshots if not _is_kept(context, each)), None)
    except LakecoreError:  # then the first error says more
        return None


def _is_kept(context: TableContext, snapshot: Snapshot) -> bool:
    history = context.history
    if snapshot.is_same(history.listed_snapshot(snapshot.id)):
        return True
    if snapshot.id in history.changelog_ids():
        return True
    names = history.tag_names()
    return any(snapshot.is_same(history.tag(name).snapshot) for name in names)
