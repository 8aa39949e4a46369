"""Procedures of tags and branches."""

from __future__ import annotations

from contextlib import nullcontext, suppress

from lakecore.errors import AlreadyExists, NotFound
from lakecore.sql.procedures.procedure import Call, Procedure, flag, number, text
from lakecore.table.maintenance.expire_tags import maintain_tags

__all__ = ["PROCEDURES"]

_DONE: list[tuple[object, ...]] = [("Success",)]
_TABLE = text("table", required=True)
_TAG = text("tag", required=True)


def _create_tag(call: Call) -> list[tuple[object, ...]]:
    call.table().create_tag(
        call.text("tag") or "",
        snapshot_id=call.number("snapshot_id"),
        time_retained=call.text("time_retained"),
    )
    return _DONE


def _create_tag_from_timestamp(call: Call) -> list[tuple[object, ...]]:
    call.table().create_tag(
        call.text("tag") or "",
        timestamp=call.number("timestamp"),
        time_retained=call.text("time_retained"),
    )
    return _DONE


def _create_tag_from_watermark(call: Call) -> list[tuple[object, ...]]:
    """Tag the oldest snapshot whose watermark is above the given one."""
    table, limit = call.table(), call.number("watermark")
    assert limit is not None, "the argument is required"
    history = table.context.history
    for snapshot_id in history.snapshot_ids():
        snapshot = history.snapshot(snapshot_id)
        if snapshot.watermark is not None and snapshot.watermark > limit:
            table.create_tag(
                call.text("tag") or "",
                snapshot_id=snapshot_id,
                time_retained=call.text("time_retained"),
            )
            return [(call.text("tag"), snapshot_id, snapshot.time_ms, snapshot.watermark)]
    raise NotFound("no snapshot has a larger watermark", table=table.identifier, watermark=limit)


def _delete_tag(call: Call) -> list[tuple[object, ...]]:
    table = call.table()
    for name in filter(None, map(str.strip, (call.text("tag") or "").split(","))):
        table.delete_tag(name)
    return _DONE


def _rename_tag(call: Call) -> list[tuple[object, ...]]:
    call.table().rename_tag(call.text("tag") or "", call.text("target_tag") or "")
    return _DONE


def _replace_tag(call: Call) -> list[tuple[object, ...]]:
    call.table().replace_tag(
        call.text("tag") or "",
        snapshot_id=call.number("snapshot_id"),
        time_retained=call.text("time_retained"),
    )
    return _DONE


def _create_branch(call: Call) -> list[tuple[object, ...]]:
    with suppress(AlreadyExists) if call.flag("ignore_if_exists") else nullcontext():
        call.table().create_branch(call.text("branch") or "", call.text("tag"))
    return _DONE


def _trigger_automatic_tags(call: Call) -> list[tuple[object, ...]]:
    table = call.table()
    maintain_tags(table.context, batch=False)
    return _DONE


def _delete_branch(call: Call) -> list[tuple[object, ...]]:
    table = call.table()
    for name in filter(None, map(str.strip, (call.text("branch") or "").split(","))):
        table.delete_branch(name)
    return _DONE


def _rename_branch(call: Call) -> list[tuple[object, ...]]:
    call.table().rename_branch(call.text("from_branch") or "", call.text("to_branch") or "")
    return _DONE


def _fast_forward(call: Call) -> list[tuple[object, ...]]:
    call.table().fast_forward(call.text("branch") or "")
    return _DONE


PROCEDURES = (
    Procedure(
        name="create_tag",
        arguments=(
            _TABLE,
            _TAG,
            number("snapshot_id", "the latest"),
            text("time_retained", "`tag.default-time-retained`"),
        ),
        run=_create_tag,
        about="give a snapshot a name that keeps it",
    ),
    Procedure(
        name="create_tag_from_timestamp",
        arguments=(
            _TABLE,
            _TAG,
            number("timestamp", required=True),
            text("time_retained", "`tag.default-time-retained`"),
        ),
        run=_create_tag_from_timestamp,
        about="give the snapshot of a time a name",
    ),
    Procedure(
        name="create_tag_from_watermark",
        arguments=(
            _TABLE,
            _TAG,
            number("watermark", required=True),
            text("time_retained", "`tag.default-time-retained`"),
        ),
        columns=("tag", "snapshot", "commit_time", "watermark"),
        run=_create_tag_from_watermark,
        about="tag the oldest snapshot with a larger watermark",
    ),
    Procedure(
        name="delete_tag",
        arguments=(_TABLE, _TAG),
        run=_delete_tag,
        about="delete tags; several are parted by commas",
    ),
    Procedure(
        name="rename_tag",
        arguments=(_TABLE, _TAG, text("target_tag", required=True)),
        run=_rename_tag,
        about="rename a tag",
    ),
    Procedure(
        name="replace_tag",
        arguments=(_TABLE, _TAG, number("snapshot_id"), text("time_retained")),
        run=_replace_tag,
        about="let a tag name another snapshot, or keep it another time",
    ),
    Procedure(
        name="create_branch",
        arguments=(_TABLE, text("branch", required=True), text("tag"), flag("ignore_if_exists")),
        run=_create_branch,
        about="make a branch, from a tag or empty",
    ),
    Procedure(
        name="trigger_tag_automatic_creation",
        arguments=(_TABLE,),
        run=_trigger_automatic_tags,
        about="make the automatic tags that are due, and delete the expired ones",
    ),
    Procedure(
        name="delete_branch",
        arguments=(_TABLE, text("branch", required=True)),
        run=_delete_branch,
        about="delete branches; several are parted by commas",
    ),
    Procedure(
        name="rename_branch",
        arguments=(
            _TABLE,
            text("from_branch", required=True),
            text("to_branch", required=True),
        ),
        run=_rename_branch,
        about="rename a branch",
    ),
    Procedure(
        name="fast_forward",
        arguments=(_TABLE, text("branch", required=True)),
        run=_fast_forward,
        about="let main become what a branch is",
    ),
)
