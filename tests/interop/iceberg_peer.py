"""Readers of Iceberg, in an environment of their own: `python -m tests.interop.iceberg_peer`.

PyIceberg, Polars, DuckDB with its extension, and Iceberg's own Java library. They get the path of a
metadata document, and answer with rows as `iceberg_rows` writes them.
"""

from __future__ import annotations

import os
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.iceberg_rows import plain_rows
from tests.interop.protocol import serve
from tests.interop.setup_peers import iceberg_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"

Where = tuple[str, str, str]
"""A column, a type of SQL, and the text of the least value."""


def main() -> None:
    """Answer requests."""
    serve({"read": read, "tags": tags, "listed": listed, "shown": shown, "remote": remote})


def read(
    path: str, snapshot_id: int | None = None, where: Where | None = None
) -> dict[str, list[str] | str]:
    """The rows by each reader, or what it says instead."""
    found: dict[str, list[str] | str] = {}
    for name, reader in READERS.items():
        try:
            found[name] = plain_rows(reader(path, snapshot_id, where))
        except Exception as error:  # noqa: BLE001 - the test decides which refusals are right
            found[name] = f"{type(error).__name__}: {error}"
    return found


def remote(path: str, endpoint: str, where: Where) -> dict[str, list[str]]:
    """The rows that match, of a table on S3, by each reader that a user would point to it."""
    import polars as pl
    from pyiceberg.expressions import GreaterThanOrEqual
    from pyiceberg.table import StaticTable

    settings = {
        "s3.endpoint": endpoint,
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.region": "us-east-1",
    }
    name, value = where[0], _value(where)
    table = StaticTable.from_metadata(path, settings)
    frame = pl.scan_iceberg(path, storage_options=settings).filter(pl.col(name) >= value)
    con, query = _duckdb(), f"FROM iceberg_scan('{path}') WHERE \"{name}\" >= {where[2]}"
    con.execute(
        "CREATE OR REPLACE SECRET (TYPE s3, KEY_ID 'key', SECRET 'secret', REGION 'us-east-1', "
        f"ENDPOINT '{endpoint.partition('://')[2]}', USE_SSL false, URL_STYLE 'path')"
    )
    found: dict[str, Any] = {
        "pyiceberg": table.scan(row_filter=GreaterThanOrEqual(name, value)).to_arrow(),
        "polars": frame.collect().to_arrow(),
        "duckdb": con.execute(query).to_arrow_table(),
    }
    return {reader: plain_rows(rows.to_pylist()) for reader, rows in found.items()}


def tags(path: str) -> dict[str, int]:
    """The tags, by PyIceberg."""
    from pyiceberg.table import StaticTable

    refs = StaticTable.from_metadata(path).refs()
    return {name: ref.snapshot_id for name, ref in refs.items() if name != "main"}


def listed(catalog: Mapping[str, str], name: str) -> dict[str, Any]:
    """The document, the snapshot and the rows of a table that PyIceberg finds in a catalog."""
    from pyiceberg.catalog import load_catalog

    table = load_catalog("c", **catalog).load_table(name)
    current = table.current_snapshot()
    return {
        "metadata": table.metadata_location,
        "snapshot": None if current is None else current.snapshot_id,
        "refs": {name: ref.snapshot_id for name, ref in table.refs().items()},
        "rows": plain_rows(table.scan().to_arrow().to_pylist()),
    }


def shown(reader: str, snippet: str) -> list[str]:
    """The rows that a snippet of the documentation shows."""
    import polars as pl
    from pyiceberg.table import StaticTable

    if reader == "DuckDB":
        found: Any = _duckdb().execute(snippet).to_arrow_table()
    elif reader == "Polars":
        found = eval(snippet, {"pl": pl}).collect().to_arrow()  # noqa: S307 - ours
    else:
        found = eval(snippet, {"StaticTable": StaticTable}).scan().to_arrow()  # noqa: S307 - ours
    return plain_rows(found.to_pylist())


def _by_pyiceberg(path: str, snapshot_id: int | None, where: Where | None) -> list[Any]:
    from pyiceberg.expressions import AlwaysTrue, GreaterThanOrEqual
    from pyiceberg.table import StaticTable

    row_filter = AlwaysTrue() if where is None else GreaterThanOrEqual(where[0], _value(where))
    table = StaticTable.from_metadata(path)
    found = table.scan(row_filter=row_filter, snapshot_id=snapshot_id).to_arrow()
    rows: list[Any] = found.to_pylist()
    return rows


def _by_polars(path: str, snapshot_id: int | None, where: Where | None) -> list[Any]:
    import polars as pl

    frame = pl.scan_iceberg(path, snapshot_id=snapshot_id)
    if where is not None:
        frame = frame.filter(pl.col(where[0]) >= _value(where))
    rows: list[Any] = frame.collect().to_arrow().to_pylist()
    return rows


def _by_duckdb(path: str, snapshot_id: int | None, where: Where | None) -> list[Any]:
    at = "" if snapshot_id is None else f", snapshot_from_id={snapshot_id}"
    query = f"SELECT * FROM iceberg_scan('{path}'{at})"
    if where is not None:
        query += f""" WHERE "{where[0]}" >= CAST('{where[2]}' AS {where[1]})"""
    found: Any = _duckdb().execute(query).to_arrow_table()
    rows: list[Any] = found.to_pylist()
    return rows


def _value(where: Where) -> Any:
    _, kind, text = where
    if kind.startswith("TIMESTAMP"):
        return datetime.fromisoformat(text)
    if kind == "TIME":
        return time.fromisoformat(text)
    numbers = {"INT": int, "BIGINT": int, "DOUBLE": float, "DECIMAL(20,2)": Decimal}
    return date.fromisoformat(text) if kind == "DATE" else numbers.get(kind, str)(text)


@cache
def _duckdb() -> Any:
    import duckdb
    import duckdb_extension_avro
    import duckdb_extension_httpfs
    import duckdb_extension_iceberg

    packages = {
        "httpfs": duckdb_extension_httpfs,
        "avro": duckdb_extension_avro,
        "iceberg": duckdb_extension_iceberg,
    }
    con = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1"})
    for name, package in packages.items():
        folder = Path(package.__file__).parent / "extensions" / f"v{duckdb.__version__}"
        con.execute(f"LOAD '{folder / name}.duckdb_extension'")
    return con


def _by_java(path: str, snapshot_id: int | None, where: Where | None) -> list[Any]:
    java = _jvm()
    io = java.JClass("org.apache.iceberg.hadoop.HadoopFileIO")(
        java.JClass("org.apache.hadoop.conf.Configuration")()
    )
    operations = java.JClass("org.apache.iceberg.StaticTableOperations")(path, io)
    table = java.JClass("org.apache.iceberg.BaseTable")(operations, "t")
    scan = java.JClass("org.apache.iceberg.data.IcebergGenerics").read(table)
    if snapshot_id is not None:
        scan = scan.useSnapshot(java.JLong(snapshot_id))
    if where is not None:
        boxes = {"INT": "lang.Integer", "BIGINT": "lang.Long", "DOUBLE": "lang.Double"}
        box = boxes.get(where[1], "math.BigDecimal" if "DECIMAL" in where[1] else "lang.String")
        expressions = java.JClass("org.apache.iceberg.expressions.Expressions")
        least = java.JClass(f"java.{box}")(where[2])
        scan = scan.where(expressions.greaterThanOrEqual(where[0], least))
    rows = scan.build()
    try:
        return [_python(each) for each in rows]
    finally:
        rows.close()


def _jvm() -> Any:
    import jpype

    if not jpype.isJVMStarted():
        jpype.startJVM(
            "-Xmx1g",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            classpath=[str(jar) for jar in iceberg_jars()],
            convertStrings=True,
        )
    return jpype


def _python(value: Any) -> Any:
    """A value of Iceberg's generic records in Python."""
    import jpype

    def is_a(name: str) -> bool:
        return isinstance(value, jpype.JClass(name))

    if value is None or isinstance(value, str | bytes):
        return value
    if is_a("org.apache.iceberg.data.Record"):
        names = [str(field.name()) for field in value.struct().fields()]
        # With deletion vectors, a record also has the position of its row.
        return {name: _python(value.getField(name)) for name in names if name != "_pos"}
    if is_a("java.util.List"):
        return [_python(each) for each in value]
    if is_a("java.util.Map"):
        return [(_python(each.getKey()), _python(each.getValue())) for each in value.entrySet()]
    if is_a("java.nio.ByteBuffer"):
        return bytes(value.array()[value.arrayOffset() + value.position() :][: value.remaining()])
    for name, convert in CONVERTED.items():
        if is_a(name):
            return convert(value)
    message = f"no Python value for {type(value)}"
    raise TypeError(message)


CONVERTED: Mapping[str, Callable[[Any], Any]] = {
    "java.math.BigDecimal": lambda value: Decimal(str(value.toPlainString())),
    "java.lang.Boolean": bool,
    "java.lang.Float": float,
    "java.lang.Double": float,
    "java.lang.Number": int,
    "java.time.LocalDate": lambda value: date.fromisoformat(str(value.toString())),
    "java.time.LocalTime": lambda value: time.fromisoformat(str(value.toString())),
    "java.time.LocalDateTime": lambda value: datetime.fromisoformat(str(value.toString())),
    "java.time.OffsetDateTime": lambda value: datetime.fromisoformat(str(value.toString())),
}
READERS = {
    "pyiceberg": _by_pyiceberg,
    "polars": _by_polars,
    "duckdb": _by_duckdb,
    "java": _by_java,
}


if __name__ == "__main__":
    main()
