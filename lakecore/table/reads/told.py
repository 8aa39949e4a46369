"""What errors and results may tell of a table whose catalog hides rows (`query-auth.enabled`).

The text, the facts and the causes of an error may hold values, keys, partitions and paths of hidden
rows. `told` returns an error of the same class that holds none of them. `told_each` replaces the
errors of a read, `told_call` errors of work on stored rows, `gated` errors of verbs, and `told_by`
errors in a log. `told_result` keeps the numbers of files in a result, and removes numbers of stored
rows, and paths, which name partitions.

INVARIANT: a replaced error has no cause and no context, so it is raised after the `except` block.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar, cast

from polars.exceptions import PanicException

from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    CommitUnknown,
    CorruptTable,
    InvalidRequest,
    LakecoreError,
    NotFound,
    StorageError,
    Uncomputable,
    Unsupported,
)
from lakecore.model.compaction import CompactionResult
from lakecore.model.retention import OrphanFiles
from lakecore.model.snapshot import Snapshot, Tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakecore.table.context import TableContext

P = ParamSpec("P")
T = TypeVar("T")

FAILURES = (Exception, PanicException)
"""All errors but those that end the program: errors of a library may hold values, too."""

_SENTENCES = {
    Uncomputable: "rows of a key of this table cannot be merged",
    InvalidRequest: "a stored value of this table cannot be read with the type of its column; if "
    "the table was altered since it was opened, open it again",
    NotFound: "a snapshot or a file of this table is not there any more",
    Unsupported: "a part of this table needs a feature that is not supported",
    CommitConflict: "another commit changed the same part of this table; repeat the work",
    AlreadyExists: "a file or a snapshot of this table exists already",
    CommitUnknown: "it is not known whether the commit was made: look for it before a retry",
    StorageError: "the storage refused a file of this table",
    CorruptTable: "files of this table are missing or contradict each other",
}
_OF_STORED_ROWS = (Uncomputable, CommitConflict, CorruptTable, StorageError)
_WHY = "the catalog hides rows of the table from its readers, so the error does not name the place"


class _OfTable(Protocol):
    @property
    def _context(self) -> TableContext: ...


Owner = TypeVar("Owner", bound=_OfTable)


def told(error: BaseException, context: TableContext) -> LakecoreError:
    """An error of the same class, or CorruptTable, that tells nothing of the table's rows."""
    kind = next((kind for kind in _SENTENCES if isinstance(error, kind)), CorruptTable)
    return kind(f"{_SENTENCES[kind]}; {_WHY}", table=context.identifier)


def told_result(result: T) -> T:
    """The result of a verb, without row counts and paths."""
    shown: object = result
    match result:
        case Snapshot():
            shown = replace(
                result,
                total_record_count=None,
                delta_record_count=None,
                changelog_record_count=None,
                next_row_id=None,
            )
        case Tag():
            shown = replace(result, snapshot=told_result(result.snapshot))
        case OrphanFiles():
            shown = replace(result, paths=())
        case CompactionResult():
            shown = replace(result, rows_before=0, rows_after=0)
        case tuple():
            shown = tuple(map(told_result, result))
    return cast("T", shown)


def told_snapshot(snapshot: Snapshot, context: TableContext) -> Snapshot:
    """The snapshot, without its numbers of rows if the catalog hides rows."""
    return told_result(snapshot) if context.options.query_auth_enabled else snapshot


def told_by(error: BaseException, context: TableContext) -> BaseException:
    """The error in a form that a log may show."""
    return told(error, context) if context.options.query_auth_enabled else error


def told_each(items: Iterator[T], context: TableContext) -> Iterator[T]:
    """The items; errors of the iterator are replaced by `told`."""
    failure: LakecoreError | None = None
    try:
        yield from items
    except MemoryError:
        raise
    except FAILURES as error:
        failure = told(error, context)
    if failure is not None:
        raise failure


def told_call(
    work: Callable[[], T], context: TableContext, kinds: tuple[type[BaseException], ...] = FAILURES
) -> T:
    """The result of work on stored rows; errors are replaced by `told`."""
    failure: LakecoreError | None = None
    try:
        return work()
    except MemoryError:
        raise
    except kinds as error:
        failure = told(error, context)
    raise failure


def gated(verb: Callable[Concatenate[Owner, P], T]) -> Callable[Concatenate[Owner, P], T]:
    """A method of a table whose errors and results tell nothing of rows that the catalog hides.

    Errors that concern the arguments (InvalidRequest, NotFound, ...) stay as they are. A test
    requires that each public method is gated, or listed with the reason why it need not be.
    """

    @wraps(verb)
    def call(self: Owner, *args: P.args, **kwargs: P.kwargs) -> T:
        return _gated(partial(verb, self, *args, **kwargs), self._context)

    return cast("Callable[Concatenate[Owner, P], T]", call)


def gated_verb(
    verb: Callable[Concatenate[TableContext, P], T],
) -> Callable[Concatenate[TableContext, P], T]:
    """Like `gated`, for a function whose first argument is the table."""

    @wraps(verb)
    def call(context: TableContext, *args: P.args, **kwargs: P.kwargs) -> T:
        return _gated(partial(verb, context, *args, **kwargs), context)

    return cast("Callable[Concatenate[TableContext, P], T]", call)


def _gated(work: Callable[[], T], context: TableContext) -> T:
    if not context.options.query_auth_enabled:
        return work()
    return told_result(told_call(work, context, _OF_STORED_ROWS))
