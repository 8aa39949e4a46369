"""The file formats of manifests: records in Avro containers, or rows in Parquet or ORC files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakecore.errors import Unsupported
from lakecore.format.avro import read_container, write_container
from lakecore.format.manifest_tables import is_table, read_records, write_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

DEFAULT_COMPRESSION = "zstd"
DEFAULT_FORMAT = "avro"


def decoded(data: bytes, path: str, schema: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The records of a file. Each is a tuple of its values, in the order of the schema."""
    read = read_records if is_table(data) else read_container
    return read(data, path, schema)


def encoded(
    schema: dict[str, Any], records: Iterable[dict[str, Any]], compression: str, file_format: str
) -> bytes:
    """The records as a file of that format."""
    if file_format == DEFAULT_FORMAT:
        return write_container(schema, records, compression)
    return write_records(schema, records, compression, file_format)


def check_version(version: int, known: int, path: str) -> None:
    """Raise Unsupported if the version of a file is not the known one."""
    if version != known:
        raise Unsupported(
            "the file was written by another format", version=version, known=known, path=path
        )


def listed(values: Sequence[object] | None) -> list[object] | None:
    """The values as a list for fastavro, which would read a tuple in a union as (type, value)."""
    return None if values is None else list(values)


def as_tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    """A list field of a record, as a tuple."""
    return None if values is None else tuple(values)
