"""The statistics file of a table: converts it to a value and back.

See https://paimon.apache.org/docs/master/spark/sql-write/. The JSON is that of Java, including the
order of fields.
"""

from __future__ import annotations

from typing import Any

from lakecore.errors import CorruptTable
from lakecore.format.json_record import Record, json_bytes, json_lines
from lakecore.model.statistics import ColumnStatistics, TableStatistics

_COLUMN_STATISTICS = {
    "distinctCount": "distinct_count",
    "min": "min",
    "max": "max",
    "nullCount": "null_count",
    "avgLen": "average_length",
    "maxLen": "max_length",
}
"""The optional fields of the statistics of a column, and their names in the model."""


def encode_statistics(statistics: TableStatistics) -> bytes:
    """The bytes of a statistics file; fields that are None are left out."""
    out: dict[str, Any] = {
        "snapshotId": statistics.snapshot_id,
        "schemaId": statistics.schema_id,
        "mergedRecordCount": statistics.merged_record_count,
        "mergedRecordSize": statistics.merged_record_size_bytes,
    }
    known = {name: value for name, value in out.items() if value is not None}
    return json_bytes({**known, "colStats": _column_fields(statistics)})


def column_statistics_text(statistics: TableStatistics) -> str:
    """The statistics of all columns as JSON, as they are in the file."""
    return "".join(json_lines(_column_fields(statistics), ""))


def _column_fields(statistics: TableStatistics) -> dict[str, Any]:
    found = {}
    for name, column in statistics.columns.items():
        values = {key: getattr(column, own) for key, own in _COLUMN_STATISTICS.items()}
        known = {key: value for key, value in values.items() if value is not None}
        found[name] = {"colId": column.column_id, **known}
    return found


def decode_statistics(data: bytes, path: str) -> TableStatistics:
    """The statistics that a statistics file holds."""
    record = Record.parse(data, path, "statistics")
    columns: dict[str, ColumnStatistics] = {}
    stated = record.source.get("colStats") or {}
    if not isinstance(stated, dict):
        raise CorruptTable("the statistics file has no columns", path=path, field="colStats")
    for name, source in stated.items():
        if not isinstance(source, dict):
            raise CorruptTable("the statistics file has a bad column", path=path, field=name)
        column = Record(source, path, "statistics")
        columns[name] = ColumnStatistics(
            column_id=column.number("colId"),
            distinct_count=column.optional_number("distinctCount"),
            min=column.optional_text("min"),
            max=column.optional_text("max"),
            null_count=column.optional_number("nullCount"),
            average_length=column.optional_number("avgLen"),
            max_length=column.optional_number("maxLen"),
        )
    return TableStatistics(
        snapshot_id=record.number("snapshotId"),
        schema_id=record.number("schemaId"),
        merged_record_count=record.optional_number("mergedRecordCount"),
        merged_record_size_bytes=record.optional_number("mergedRecordSize"),
        columns=columns,
    )
