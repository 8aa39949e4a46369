"""Debezium's own messages, made from MariaDB and sent through Kafka, become tables."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from lakecore.catalog.registry import open_catalog
from lakecore.cdc.actions import Arguments
from lakecore.cdc.pipeline import Pipeline, run_pipeline
from lakecore.io.ambient import SYSTEM
from tests.services import servers
from tests.services.kafka import Debezium, address, broker, create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.services.kafka import Event
    from tests.services.servers import Server

FIRST = (
    "CREATE DATABASE shop",
    (
        "CREATE TABLE shop.orders (id BIGINT UNSIGNED PRIMARY KEY, v VARCHAR(20),"
        " price DECIMAL(12,3), at DATETIME(3), stamp TIMESTAMP(6) NULL, day DATE,"
        " kind ENUM('a','b'), doc JSON, raw VARBINARY(8), flag TINYINT(1), bits BIT(9),"
        " parts SET('p','q'), ratio DOUBLE, small FLOAT, year YEAR, clock TIME(3))"
    ),
    "CREATE TABLE shop.items (id INT, line INT, name TEXT, PRIMARY KEY (id, line))",
    (
        "INSERT INTO shop.orders VALUES (1, 'Ünïcode 😀', 1.500, '2020-01-02 03:04:05.678',"
        " '2020-01-02 03:04:05.123456', '2020-02-29', 'b', '{\"a\": 1}', X'00FF', 1, b'100000001',"
        " 'p,q', 0.1, 0.5, 2023, '10:11:12.5'),"
        " (18446744073709551615, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,"
        " NULL, NULL, NULL, NULL)"
    ),
    "INSERT INTO shop.items VALUES (1, 1, 'one'), (1, 2, 'two')",
)
THEN = (
    "UPDATE shop.orders SET v = 'new', price = -2.125 WHERE id = 1",
    "DELETE FROM shop.items WHERE line = 2",
    "ALTER TABLE shop.orders ADD COLUMN note VARCHAR(30)",
    "INSERT INTO shop.orders (id, v, note) VALUES (3, 'x', 'later')",
    "UPDATE shop.items SET id = 7 WHERE line = 1",
)
EVENTS_FIRST, EVENTS_THEN = 4, 7  # a changed key gives a deletion, a tombstone and an insertion


@pytest.fixture(scope="module", params=["true", "false"], ids=["with schema", "without schema"])
def events(request: pytest.FixtureRequest) -> tuple[str, list[Event]]:
    """The events that Debezium reports for the statements."""
    with servers.mariadb(*servers.BINARY_LOG) as database:
        execute(database.port, FIRST)
        handling = "precise" if request.param == "true" else "string"
        engine = Debezium(
            database,
            "shop",
            converter_schemas_enable=request.param,
            include_schema_changes="false",
            decimal_handling_mode=handling,
            bigint_unsigned_handling_mode="precise",
        )
        try:
            found = engine.take(EVENTS_FIRST)
            execute(database.port, THEN)
            found += engine.take(EVENTS_THEN)
        finally:
            engine.close()
    return request.param, found


def execute(port: int, statements: tuple[str, ...]) -> None:
    import pymysql

    connection = pymysql.connect(
        host="127.0.0.1", port=port, user="paimon", password=servers.PASSWORD, autocommit=True
    )
    with connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Server]:
    with broker() as server:
        yield server


def test_debezium_through_kafka(
    events: tuple[str, list[Event]], kafka: Server, tmp_path: Path
) -> None:
    kind, found = events
    by_topic: dict[str, list[Event]] = defaultdict(list)
    for event in found:
        by_topic[event[0]].append(event)
    for topic, sent in by_topic.items():
        create_topic(kafka, f"{topic}-{kind}")
        produce(
            kafka, f"{topic}-{kind}", [each[2] for each in sent], keys=[each[1] for each in sent]
        )
    catalog = open_catalog({"warehouse": str(tmp_path)}, create=True)
    arguments = Arguments(
        database="lake",
        conf={
            "properties.bootstrap.servers": address(kafka),
            "topic": ";".join(f"{topic}-{kind}" for topic in by_topic),
            "value.format": "debezium-json",
            "scan.startup.mode": "earliest-offset",
        },
        table_conf={"bucket": "1"},
        flags={"metadata_column": ["topic,offset"], "metadata_column_prefix": ["k_"]},
    )
    pipeline = Pipeline(action="kafka_sync_database", arguments=arguments)
    run_pipeline(catalog, pipeline, SYSTEM, until_caught_up=True)

    orders = catalog.get_table("lake.orders")
    items = catalog.get_table("lake.items")
    assert orders.context.schema.primary_keys == ("id",)
    assert items.context.schema.primary_keys == ("id", "line")
    assert items.to_polars().select("id", "line", "name").rows() == (
        [(7, 1, "one")] if kind == "true" else [("7", "1", "one")]
    )
    rows = {str(row["id"]): row for row in orders.to_polars().to_dicts()}
    assert set(rows) == {"1", "3", "18446744073709551615"} or kind == "false"
    assert len(rows) == 3
    one = rows["1"] if kind == "true" else next(r for r in rows.values() if r["v"] == "new")
    late = next(row for row in rows.values() if row["v"] == "x")
    assert late["note"] == "later"
    assert one["k_topic"] == f"m.shop.orders-{kind}"
    if kind == "true":
        types = {field.name: str(field.type) for field in orders.context.schema.fields}
        assert types["id"] == "DECIMAL(20, 0) NOT NULL"
        assert types["price"] == "DECIMAL(12, 3)"
        assert (types["at"], types["stamp"], types["day"]) == (
            "TIMESTAMP(3)",
            "TIMESTAMP(6)",
            "DATE",
        )
        assert (types["bits"], types["raw"], types["ratio"]) == ("BINARY(2)", "BYTES", "DOUBLE")
        assert str(one["price"]) == "-2.125"
        assert one["at"].isoformat() == "2020-01-02T03:04:05.678000"
        assert one["day"].isoformat() == "2020-02-29"
        assert (one["raw"], one["bits"]) == (b"\x00\xff", b"\x01\x01")
        assert (one["kind"], one["parts"], one["year"]) == ("b", "p,q", 2023)
        assert (one["ratio"], one["small"], one["doc"]) == (0.1, 0.5, '{"a": 1}')
        assert one["clock"].isoformat() == "10:11:12.500000"
    else:
        assert {str(f.type) for f in orders.context.schema.fields if f.name[:2] != "k_"} <= {
            "STRING",
            "STRING NOT NULL",
        }
        assert (one["price"], one["ratio"], one["kind"]) == ("-2.125", "0.1", "b")
