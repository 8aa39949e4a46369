"""A MariaDB -> a table: the initial snapshot beside SELECT, and the log beside plain readers of it.

Each contender reads the same server:

- the snapshot of a table with 8 columns, beside `SELECT *` of PyMySQL, which streams the rows;
- its changes from the log to a committed table, beside mysql-replication, which only prints the
  rows, and beside Debezium's embedded engine, whose JSON pypaimon writes to a table. Debezium's
  changes are made while it reads. pypaimon gets the first of its events only, in one commit; its
  time is scaled to all events.

Needs a MariaDB server, and Java and Maven for Debezium; the extra `cdc-mysql`. pypaimon is in the
environment of the peers.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.report import Figures, console, promise
from tests.interop import setup_peers
from tests.services import servers
from tests.services.kafka import Debezium

if TYPE_CHECKING:
    from tests.services.servers import Server

ROWS = 400_000
CHANGES = 300_000
EVENTS = 20_000
"""How many events of Debezium pypaimon writes."""
COLUMNS = (
    "id bigint primary key, name varchar(100), price decimal(12,2), note text, "
    "created datetime(3), flag tinyint(1), quantity int, city varchar(50)"
)
CHILD = """
import json, resource, sys, time
from lakecore.catalog.registry import open_catalog
from lakecore.cdc.actions import Arguments
from lakecore.cdc.pipeline import Pipeline, run_pipeline
from lakecore.io.ambient import SYSTEM
warehouse, conf = sys.argv[1], json.loads(sys.argv[2])
catalog = open_catalog({"warehouse": warehouse}, create=True)
given = Arguments(database="d", table="t", conf=conf, table_conf={"bucket": "1"})
began, worked = time.perf_counter(), time.process_time()
progress = run_pipeline(catalog, Pipeline(action="mysql_sync_table", arguments=given), SYSTEM,
    until_caught_up=True)
print(json.dumps({"rows": progress.rows, "seconds": time.perf_counter() - began,
    "cpu_seconds": time.process_time() - worked,
    "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""
SELECT = """
import json, sys, time
import pymysql
from pymysql.cursors import SSCursor
began, worked = time.perf_counter(), time.process_time()
cursor = pymysql.connect(**json.loads(sys.argv[1]), cursorclass=SSCursor).cursor()
cursor.execute("SELECT * FROM bench.t")
rows = sum(1 for _ in cursor)
print(json.dumps({"rows": rows, "seconds": time.perf_counter() - began,
    "cpu_seconds": time.process_time() - worked}))
"""
READER = """
import json, sys, time
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
given, file, place, count = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
began, worked = time.perf_counter(), time.process_time()
stream = BinLogStreamReader(connection_settings=given, server_id=901, blocking=False,
    log_file=file, log_pos=place, resume_stream=True,
    only_tables=["t"], only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent])
rows = 0
with open("/dev/null", "w") as shown:
    for event in stream:
        for row in event.rows:
            print(row, file=shown)
            rows += 1
assert rows == count, rows
print(json.dumps({"rows": rows, "seconds": time.perf_counter() - began,
    "cpu_seconds": time.process_time() - worked}))
"""
PYPAIMON = """
import json, sys, time
from decimal import Decimal
import pyarrow as pa
from pypaimon import CatalogFactory, Schema
columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()),
    ("price", pa.decimal128(12, 2)), ("note", pa.string()), ("created", pa.timestamp("ms")),
    ("flag", pa.bool_()), ("quantity", pa.int32()), ("city", pa.string()), ("kind", pa.string())])
catalog = CatalogFactory.create({"warehouse": sys.argv[1]})
catalog.create_database("d", True)
schema = Schema.from_pyarrow_schema(columns, primary_keys=["id"],
    options={"bucket": "1", "rowkind.field": "kind"})
catalog.create_table("d.t", schema, False)
lines = open(sys.argv[2], "rb").read().splitlines()
began, worked = time.perf_counter(), time.process_time()
builder = catalog.get_table("d.t").new_batch_write_builder()
write, commit = builder.new_write(), builder.new_commit()
kinds = {"c": "+I", "u": "+U", "d": "-D"}
for start in range(0, len(lines), 5_000):
    rows = []
    for line in lines[start : start + 5_000]:
        event = json.loads(line)
        event = event.get("payload", event)
        row = event["before"] if event["op"] == "d" else event["after"]
        rows.append({**row, "kind": kinds[event["op"]], "price": Decimal(row["price"]),
            "flag": bool(row["flag"])})
    write.write_arrow(pa.Table.from_pylist(rows, schema=columns))
commit.commit(write.prepare_commit())
seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - worked
print(json.dumps({"rows": len(lines), "seconds": seconds, "cpu_seconds": cpu_seconds}))
"""


def main(settings: list[str]) -> int:
    """Measure with settings such as `rows=1000000`; 0 if every promise was kept."""
    if shutil.which("mariadbd") is None and not Path("/usr/sbin/mariadbd").exists():
        console.print("cdc_mysql needs a MariaDB server: apt-get install mariadb-server")
        return 2
    given = dict(each.split("=", 1) for each in settings)
    return 0 if run(**{name: int(value) for name, value in given.items()}) else 1


def run(rows: int = ROWS, changes: int = CHANGES, runs: int = 3) -> bool:
    """Measure. Returns whether every promise was kept."""
    with servers.mariadb(*servers.BINARY_LOG, "--innodb-buffer-pool-size=256M") as server:
        servers.eventually(lambda: _cursor(server), server.name)
        cursor = _cursor(server)
        cursor.execute("CREATE DATABASE bench")
        cursor.execute(f"CREATE TABLE bench.t ({COLUMNS})")
        for start in range(0, rows, 5_000):
            cursor.execute(f"INSERT INTO bench.t {_generated(start, min(start + 5_000, rows))}")
        kept = _snapshot(server, rows, runs)
        return _log(server, rows, changes, runs) and kept


def _snapshot(server: Server, rows: int, runs: int) -> bool:
    figures = Figures(f"snapshot of {rows:,} rows", rows=rows)
    peak = 0.0
    for _ in range(runs):
        found = _child(SELECT, json.dumps(_settings(server)))
        figures.add("SELECT by PyMySQL", found["seconds"], found["cpu_seconds"])
        with tempfile.TemporaryDirectory() as folder:
            found = _mirror(server, folder, {"scan.startup.mode": "snapshot"})
        assert found["rows"] == rows, found
        figures.add("lakecore, to a committed table", found["seconds"], found["cpu_seconds"])
        peak = max(peak, found["peak_mib"])
    figures.show("lakecore, to a committed table")
    console.print(f"  peak memory of lakecore: {peak:.0f} MiB")
    ratio = figures.ratio("SELECT by PyMySQL", "lakecore, to a committed table")
    return promise("speed of SELECT that is reached", ratio, 0.7, at_least=True)


def _log(server: Server, rows: int, changes: int, runs: int) -> bool:
    """Each run reads the log since the same place."""
    cursor = _cursor(server)
    cursor.execute("SHOW MASTER STATUS")
    file, place = cursor.fetchone()[:2]
    figures = Figures(f"log of {changes:,} changed rows", rows=changes)
    seconds, cpu_seconds, events = _debezium(server, cursor, rows, changes)
    figures.add("Debezium, to JSON", seconds, cpu_seconds)
    written = _pypaimon(events)
    scale = changes / written["rows"]
    name = f"Debezium, then pypaimon (from {written['rows']:,} events)"
    figures.add(
        name, seconds + scale * written["seconds"], cpu_seconds + scale * written["cpu_seconds"]
    )
    start = {
        "scan.startup.mode": "specific-offset",
        "scan.startup.specific-offset.file": str(file),
        "scan.startup.specific-offset.pos": str(place),
    }
    for _ in range(runs):
        stated = json.dumps(_settings(server, key="passwd"))
        found = _child(READER, stated, str(file), str(place), str(changes))
        figures.add("mysql-replication, printing rows", found["seconds"], found["cpu_seconds"])
        with tempfile.TemporaryDirectory() as folder:
            found = _mirror(server, folder, start)
        figures.add("lakecore, to a committed table", found["seconds"], found["cpu_seconds"])
    figures.show("lakecore, to a committed table")
    rate = changes / median(figures.seconds["lakecore, to a committed table"])
    return promise("changes per second, from the log to a table", rate, 30_000, at_least=True)


def _debezium(
    server: Server, cursor: Any, rows: int, changes: int
) -> tuple[float, float, list[bytes]]:
    """The seconds between its first and its last event, those of the processor, and some events.

    It starts at the end of the log, so the changes are made now.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    engine = Debezium(
        server,
        "bench",
        snapshot_mode="no_data",
        tombstones_on_delete="false",
        decimal_handling_mode="string",
    )
    cursor.execute("CREATE TABLE bench.signal_of_start (id int primary key)")
    for number in range(600):  # its events come as soon as it has started
        cursor.execute(f"INSERT INTO bench.signal_of_start VALUES ({number})")
        try:
            engine.take(1, within=0.5)
            break
        except AssertionError:
            continue
    time.sleep(2)
    cursor.execute("DROP TABLE bench.signal_of_start")
    _change(cursor, rows, changes)
    events = (event for event in iter(lambda: engine.take(1)[0], None) if event[0].endswith(".t"))
    kept = [next(events)[2] or b""]
    began = time.perf_counter()
    for number in range(1, changes):
        value = next(events)[2] or b""
        if number < EVENTS:
            kept.append(value)
    seconds = time.perf_counter() - began
    engine.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, worked, kept


def _pypaimon(events: list[bytes]) -> dict[str, Any]:
    """What pypaimon takes to write events to a table."""
    setup_peers.set_up()
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "events.json"
        lines.write_bytes(b"\n".join(events))
        return _child(PYPAIMON, f"{folder}/w", str(lines), python=str(setup_peers.python()))


def _change(cursor: Any, rows: int, changes: int) -> None:
    """A third of insertions, of updates and of deletions, in transactions of 1,000 rows."""
    part = changes // 3
    for start in range(0, part, 1_000):
        stop = min(start + 1_000, part)
        cursor.execute("BEGIN")
        cursor.execute(f"INSERT INTO bench.t {_generated(rows + start, rows + stop)}")
        cursor.execute(
            "UPDATE bench.t SET price = price + 1, note = 'changed' "
            f"WHERE id >= {start} AND id < {stop}"
        )
        first = rows // 2 + start
        cursor.execute(f"DELETE FROM bench.t WHERE id >= {first} AND id < {first + stop - start}")
        cursor.execute("COMMIT")


def _generated(start: int, stop: int) -> str:
    return (
        "SELECT seq, concat('name of row ', seq), seq / 7, concat('a note of row ', seq * 31), "
        "'2024-01-01' + interval seq second, seq % 2, seq % 1000, concat('city ', seq % 500) "
        f"FROM bench.seq_{start}_to_{stop - 1}"
    )


def _mirror(server: Server, folder: str, more: dict[str, str]) -> dict[str, Any]:
    conf = {
        "hostname": "127.0.0.1",
        "port": str(server.port),
        "username": "paimon",
        "password": servers.PASSWORD,
        "database-name": "bench",
        "table-name": "t",
        **more,
    }
    return _child(CHILD, folder, json.dumps(conf))


def _child(program: str, *arguments: str, python: str = sys.executable) -> dict[str, Any]:
    """The answer of a process of its own."""
    ran = subprocess.run(
        [python, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def _settings(server: Server, *, key: str = "password") -> dict[str, Any]:
    return {"host": "127.0.0.1", "port": server.port, "user": "paimon", key: servers.PASSWORD}


def _cursor(server: Server) -> Any:
    return import_module("pymysql").connect(**_settings(server), autocommit=True).cursor()
