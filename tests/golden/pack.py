"""Packs the golden tables for users of `lakecore.testing`: `python -m tests.golden.pack`.

The archive holds the tables of `fixtures/`, and as Arrow files the rows that Java read of the main
branch. `test_pack.py` fails if the archive is out of date.
"""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pyarrow as pa

import lakecore as lc
from lakecore.testing.suite import ARCHIVE, EXPECTED, TABLE, UNORDERED
from tests.golden.test_fixtures import FIXTURES, READ, bag_columns, columns_of, expected, replay
from tests.interop.arrow_values import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = {"table": "paimon-0.9", "table-head": "paimon-2.1"}


def contents() -> Iterator[tuple[str, bytes]]:
    """The files of the archive, sorted by name, with their bytes."""
    for name in READ:
        fixture, table = name.split("/")
        place = f"{VERSIONS[table]}/{fixture}"
        for file in sorted((FIXTURES / name).rglob("*")):
            if file.is_file():
                yield f"{place}/{TABLE}/{file.relative_to(FIXTURES / name)}", file.read_bytes()
        bags = ",".join(sorted(bag_columns(lc.open_table(FIXTURES / name))))
        main = replay(expected(name)["results"])["main"]
        for snapshot_id, state in main.snapshots.items():
            columns = columns_of(name, state.schema_id)
            rows = to_arrow(state.rows, columns)
            sink = pa.BufferOutputStream()
            rows = rows.replace_schema_metadata({UNORDERED: bags.encode()})
            with pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
            yield f"{place}/{EXPECTED}/{snapshot_id}.arrow", sink.getvalue().to_pybytes()


def pack() -> None:
    """Write the archive."""
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for name, data in contents():
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))


if __name__ == "__main__":
    pack()
