"""The partitions that an overwrite clears, and the level of the files that replace them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakecore.errors import InvalidRequest
from lakecore.model.types import arrow_type
from lakecore.options import POSTPONE_BUCKET
from lakecore.table.reads.scan import hides_level_0, key_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakecore.model.files import CommitMessage
    from lakecore.table.commits.commit import PartitionFilter
    from lakecore.table.context import TableContext


def everything(partitions: Sequence[bytes]) -> Sequence[bool]:
    """A filter that selects every partition: the whole table is cleared."""
    return [True] * len(partitions)


def nothing(partitions: Sequence[bytes]) -> Sequence[bool]:
    """A filter that selects no partition: the messages name the files to remove."""
    return [False] * len(partitions)


def written_by(messages: Sequence[CommitMessage]) -> PartitionFilter:
    """A filter of the partitions that the messages write: `dynamic-partition-overwrite`."""
    written = {message.partition for message in messages}
    return lambda partitions: [partition in written for partition in partitions]


def matching(context: TableContext, specs: Sequence[Mapping[str, object]]) -> PartitionFilter:
    """A filter of the partitions that match any of the specs; a spec may omit partition keys.

    Values have the column's type, or are strings of it; None is null.
    """
    wanted = [spec_values(context, spec) for spec in specs]

    def choose(partitions: Sequence[bytes]) -> Sequence[bool]:
        if not partitions:
            return []
        values = context.partitions.values(partitions)
        chosen = pa.array([False] * len(partitions))
        for spec in wanted:
            match = pa.array([True] * len(partitions))
            for name, value in spec.items():
                match = pc.and_(match, _is(values.column(name), value))
            chosen = pc.or_(chosen, match)
        result: list[bool] = chosen.to_pylist()
        return result

    return choose


def at_last_level(
    context: TableContext, messages: Sequence[CommitMessage]
) -> Sequence[CommitMessage]:
    """The messages; files of a bucket that do not overlap are placed at the last level.

    The bucket will hold only these files. At level 0 they would be invisible in a table whose reads
    skip level 0, and a later compaction would report them as new rows in the changelog.
    """
    if not context.schema.primary_keys or not context.options.overwrite_upgrade:
        return messages
    found: dict[tuple[bytes, int], list[CommitMessage]] = defaultdict(list)
    lifted: list[CommitMessage] = []
    for message in messages:
        if message.bucket == POSTPONE_BUCKET:
            lifted.append(message)
        else:
            found[message.partition, message.bucket].append(message)
    for together in found.values():
        level = context.options.level_count - 1 if _is_one_run(context, together) else None
        lifted += together if level is None else [_at(level, message) for message in together]
    return lifted


def in_one_snapshot(
    context: TableContext, messages: Sequence[CommitMessage]
) -> Sequence[CommitMessage]:
    """The messages; if reads skip level 0, the results of their compactions become new files.

    Otherwise a read between the snapshot of the overwrite and that of the compaction would find no
    rows. The files that the compactions replaced are then left out of the messages.
    """
    if not hides_level_0(context.schema, context.options):
        return messages
    return [_compacted(message) for message in messages]


def _compacted(message: CommitMessage) -> CommitMessage:
    replaced = {file.name for file in message.compact_before}
    if not replaced <= {file.name for file in message.new_files}:
        return message
    assert not message.compact_changelog_files, "the compactions of an overwrite tell no changes"
    kept = (file for file in message.new_files if file.name not in replaced)
    return replace(
        message,
        new_files=(*kept, *message.compact_after),
        new_index_files=(*message.new_index_files, *message.compact_index_files),
        compact_before=(),
        compact_after=(),
        compact_index_files=(),
        vectors_read=None,
        compact_unchanged=None,
        compact_schema_id=None,
    )


def _is_one_run(context: TableContext, messages: Sequence[CommitMessage]) -> bool:
    if any(message.compact_before for message in messages):
        return False
    files = [file for message in messages for file in message.new_files]
    lows, highs = key_ranks(files, context.schema)
    order = np.argsort(lows)
    return bool((lows[order][1:] > highs[order][:-1]).all())


def _at(level: int, message: CommitMessage) -> CommitMessage:
    return replace(
        message, new_files=tuple(replace(file, level=level) for file in message.new_files)
    )


def _is(column: pa.Array, value: pa.Scalar) -> pa.Array:
    """A mask of values equal to `value`: NaN equals NaN, and 0.0 and -0.0 differ."""
    if not value.is_valid:
        return pc.is_null(column)
    if not pa.types.is_floating(column.type):
        return pc.fill_null(pc.equal(column, value), False)
    if math.isnan(value.as_py()):
        return pc.fill_null(pc.is_nan(column), False)
    bits = pa.int32() if pa.types.is_float32(column.type) else pa.int64()
    wanted = pa.array([value], column.type).view(bits)[0]
    return pc.fill_null(pc.equal(column.view(bits), wanted), False)


def spec_values(context: TableContext, spec: Mapping[str, object]) -> Mapping[str, pa.Scalar]:
    """The values of a partition spec, converted to the types of their columns.

    Raises InvalidRequest for a column that is not a partition key and a value of a wrong type.
    """
    keys = context.schema.partition_keys
    if not isinstance(spec, Mapping):
        raise InvalidRequest(
            "a partition is a mapping of its keys to their values",
            given=type(spec).__name__,
            partition_keys=keys,
        )
    if not spec:
        raise InvalidRequest("a partition needs at least one value", partition_keys=keys)
    values: dict[str, pa.Scalar] = {}
    for name, value in spec.items():
        if name not in keys:
            raise InvalidRequest(
                "not a partition key", column=name, table=context.identifier, partition_keys=keys
            )
        wanted = arrow_type(context.schema.field(name).type)
        try:
            values[name] = pa.array([value]).cast(wanted)[0]
        except (
            pa.ArrowInvalid,
            pa.ArrowNotImplementedError,
            pa.ArrowTypeError,
            OverflowError,
            UnicodeEncodeError,
        ) as error:
            raise InvalidRequest(
                "the value is not of the partition key's type",
                column=name,
                value=value,
                type=context.schema.field(name).type,
            ) from error
    return values
