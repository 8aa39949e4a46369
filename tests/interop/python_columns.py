"""pypaimon changes columns by row ids: `python -m tests.interop.python_columns TABLE STEPS`.

It runs in the peers' environment. STEPS is JSON: a list of steps, each with the rows to append, or
with the ids of rows and the new values of some columns. It prints the rows of the table as JSON, in
the order of their ids.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
from pypaimon.common.options.options import Options
from pypaimon.table.file_store_table import FileStoreTable


def _table(path: str) -> Any:
    from pypaimon.common.file_io import FileIO
    from pypaimon.common.identifier import Identifier
    from pypaimon.schema.schema_manager import SchemaManager

    file_io = FileIO.get(path, Options({}))
    schema = SchemaManager(file_io, path).latest()
    return FileStoreTable(file_io, Identifier.create("d", "t"), path, schema)


def _play(path: str, step: dict[str, Any]) -> None:
    table = _table(path)
    builder = table.new_batch_write_builder()
    commit = builder.new_commit()
    if "ids" in step:
        columns = step["columns"]
        ids = pa.array(step["ids"], pa.int64())
        values = {name: _values(table, name, given) for name, given in columns.items()}
        update = builder.new_update().with_update_type(list(columns))
        messages = update.update_by_arrow_with_row_id(pa.table({"_ROW_ID": ids, **values}))
    else:
        writer = builder.new_write()
        columns = step["rows"]
        writer.write_arrow(
            pa.table({name: _values(table, name, given) for name, given in columns.items()})
        )
        messages = writer.prepare_commit()
    commit.commit(messages)
    commit.close()


def _values(table: Any, name: str, given: list[Any]) -> pa.Array:
    from pypaimon.schema.data_types import PyarrowFieldParser

    schema = PyarrowFieldParser.from_paimon_schema(table.table_schema.fields)
    kind = schema.field(name).type
    if pa.types.is_large_binary(kind):
        given = [None if value is None else value.encode() for value in given]
    return pa.array(given, kind)


def _rows(path: str) -> list[list[Any]]:
    table = _table(path)
    names = [field.name for field in table.table_schema.fields]
    builder = table.new_read_builder().with_projection([*names, "_ROW_ID", "_SEQUENCE_NUMBER"])
    splits = builder.new_scan().plan().splits()
    read = builder.new_read().to_arrow(splits)
    rows = [
        [value.decode() if isinstance(value, bytes) else value for value in row.values()]
        for row in read.to_pylist()
    ]
    return sorted(rows, key=lambda row: row[-2])


if __name__ == "__main__":
    _, where, steps = sys.argv
    for each in json.loads(steps):
        _play(where, each)
    print(json.dumps(_rows(where)))
