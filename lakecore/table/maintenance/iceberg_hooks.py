"""What a commit, and each verb that changes snapshots or tags, does for Iceberg metadata.

Nothing, unless `metadata.iceberg.storage` asks for it: only then is `iceberg.py` imported.
"""

from __future__ import annotations

import logging
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar, cast

from lakecore.deferred import deferred
from lakecore.format.layout import MAIN_BRANCH
from lakecore.options.choices import IcebergStorage
from lakecore.table.maintenance.iceberg_catalogs import entries_of
from lakecore.table.reads.told import FAILURES, told_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakecore.table.context import TableContext
    from lakecore.table.maintenance.iceberg import check_publishable, publish
else:
    _ENGINE = "lakecore.table.maintenance.iceberg"
    check_publishable = deferred(_ENGINE, "check_publishable")
    publish = deferred(_ENGINE, "publish")

log = logging.getLogger("lakecore.iceberg")

P = ParamSpec("P")
T = TypeVar("T")


class _HasContext(Protocol):
    @property
    def _context(self) -> TableContext:
        """The table as the verbs see it."""


_Owner = TypeVar("_Owner", bound=_HasContext)


def publish_if_asked(context: TableContext, what: str) -> bool:
    """Bring the metadata up to date after `what`, if an option asks for it.

    Returns False, after a warning, if that failed.
    """
    if not _is_asked(context):
        return True
    try:
        check_publishable(context)
        publish(context)
    except FAILURES as error:  # the commit stands, whatever its publication met
        log.warning(
            "%s succeeded, but its Iceberg metadata was not written; the next commit tries again, "
            "and so does export_iceberg: table=%s reason=%s",
            what,
            context.identifier,
            told_by(error, context),
        )
        return False
    return True


def republished(verb: Callable[Concatenate[_Owner, P], T]) -> Callable[Concatenate[_Owner, P], T]:
    """A method of a table that changes snapshots or tags, followed by their publication.

    Nothing is published if the method's argument `dry_run` is true.
    """

    @wraps(verb)
    def call(self: _Owner, *args: P.args, **kwargs: P.kwargs) -> T:
        result = verb(self, *args, **kwargs)
        if not kwargs.get("dry_run"):
            publish_if_asked(self._context, verb.__name__)
        return result

    return cast("Callable[Concatenate[_Owner, P], T]", call)


def require_publishable(context: TableContext) -> None:
    """Raise an error before a commit whose Iceberg metadata could never be written."""
    if _is_asked(context):
        check_publishable(context)


def forget_entries(context: TableContext) -> None:
    """Remove the entries of a table that is dropped or renamed; a failure leaves them behind."""
    try:
        if (entries := entries_of(context)) is not None:
            entries.forget()
    except FAILURES as error:  # the table is gone, whatever its entry met
        log.warning(
            "the entry in the Iceberg catalog stays, and points to no table: table=%s reason=%s",
            context.identifier,
            told_by(error, context),
        )


def _is_asked(context: TableContext) -> bool:
    asked = context.options.metadata_iceberg_storage is not IcebergStorage.DISABLED
    return asked and context.layout.branch == MAIN_BRANCH
