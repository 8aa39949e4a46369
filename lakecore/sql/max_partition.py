"""`sys.max_pt('table')`: the largest value of the first partition key, among partitions with files.

The call is replaced in the text by its value, before DuckDB parses it
(https://paimon.apache.org/docs/master/spark/sql-functions/#max_pt).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.deferred import deferred
from lakecore.errors import InvalidRequest
from lakecore.sql.cursor import Cursor
from lakecore.sql.tokens import Kind, quoted_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyarrow.compute import max as largest_of

    from lakecore.sql.statements import Chain
    from lakecore.table.handle import Table
    from lakecore.table.reads.source import TableSource
    from lakecore.table.reads.travel import Travel, resolve
else:
    largest_of = deferred("pyarrow.compute", "max")
    TableSource = deferred("lakecore.table.reads.source", "TableSource")
    Travel = deferred("lakecore.table.reads.travel", "Travel")
    resolve = deferred("lakecore.table.reads.travel", "resolve")

__all__ = ["largest_partition", "with_largest_partitions"]


def with_largest_partitions(text: str, value_of: Callable[[Chain], str]) -> str:
    """The text with each call of `sys.max_pt` replaced by its value, as `value_of` computes it."""
    if "max_pt" not in text.lower():
        return text
    cursor = Cursor(text)
    pieces: list[str] = []
    copied = 0
    while not cursor.done():
        token = cursor.take()
        if token.word != "SYS" or not (
            cursor.at_symbol(".")
            and cursor.ahead(1).word == "MAX_PT"
            and cursor.ahead(2).value == "("
        ):
            continue
        cursor.take()
        cursor.take()
        cursor.expect_symbol("(")
        if cursor.token.kind is not Kind.STRING:
            raise cursor.expected("the name of a table, in quotes")
        chain = Cursor(cursor.string()).chain()
        cursor.expect_symbol(")")
        pieces += [text[copied : token.start], value_of(chain)]
        copied = cursor.tokens_before(0)[-1].end
    return "".join([*pieces, text[copied:]])


def largest_partition(table: Table, type_of: Callable[[str], str]) -> str:
    """The value, as an expression of the type that DuckDB gives to the partition key.

    Raises InvalidRequest if the table has no partition keys or no partition with a value.
    """
    keys = table.schema.partition_keys
    if not keys:
        raise InvalidRequest("max_pt needs a partitioned table", table=table.identifier)
    context = table.context
    context.options.require_all_rows()
    snapshot, schema = resolve(context, Travel())
    source = TableSource(context=context, snapshot=snapshot, table_schema=schema)
    values = context.partitions.values(sorted(source.partitions())).column(0)
    largest = largest_of(values)
    if not largest.is_valid:
        raise InvalidRequest("max_pt finds no partition with data files", table=table.identifier)
    return f"CAST({quoted_text(str(largest.cast(pa.string())))} AS {type_of(keys[0])})"
