"""Row filters and column masks of Java's REST servers: lakecore shows what Java's client shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from lakecore.errors import LakecoreError, StorageError, Unsupported
from tests.services.rest import ruled_rest_server

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from lakecore.session import Session
    from tests.services.rest import RuledServer

TYPES = {
    "id": "INT NOT NULL",
    "owner": "STRING NOT NULL",
    "card": "STRING",
    "n": "BIGINT",
    "d": "DOUBLE",
    "f": "FLOAT",
    "ok": "BOOLEAN",
}
NAN = float("nan")
ROWS = [
    (1, "ann", "Straße", 10, -0.0, 0.5, True),
    (2, "bob", "a\nb", 20, 0.0, NAN, False),
    (3, "ann", None, None, NAN, None, None),
    (4, "éve", "%x_", -4, None, -1.25, True),
    (5, "ann", "", 1 << 40, 1e300, 3.0, False),
]


def ref(name: str) -> dict[str, Any]:
    return {"index": list(TYPES).index(name), "name": name, "type": TYPES[name]}


def column(name: str) -> dict[str, Any]:
    return {"name": "FIELD_REF", "fieldRef": ref(name)}


def text(function: str, *inputs: object) -> dict[str, Any]:
    return {"name": function, "inputs": list(inputs)}


def leaf(transform: dict[str, Any], test: str, *literals: object) -> str:
    return json.dumps(
        {"kind": "LEAF", "transform": transform, "function": test, "literals": list(literals)}
    )


def group(function: str, *parts: str) -> str:
    children = [json.loads(part) for part in parts]
    return json.dumps({"kind": "COMPOUND", "function": function, "children": children})


FILTERS = [
    leaf(column("owner"), "EQUAL", "ann"),
    leaf(column("n"), "NOT_EQUAL", 10),
    leaf(column("id"), "GREATER_OR_EQUAL", 3),
    leaf(column("n"), "LESS_THAN", 20),
    leaf(column("n"), "BETWEEN", -4, 10),
    leaf(column("n"), "NOT_BETWEEN", -4, 10),
    leaf(column("id"), "IN", 1, 4, 9),
    leaf(column("n"), "NOT_IN", 10, 20),
    leaf(column("n"), "NOT_IN", 10, None),
    leaf(column("n"), "IS_NULL"),
    leaf(column("card"), "IS_NOT_NULL"),
    leaf(column("d"), "EQUAL", 0.0),
    leaf(column("d"), "GREATER_THAN", 1.5),
    leaf(column("f"), "LESS_OR_EQUAL", 0.5),
    leaf(column("f"), "IN", 0.5, 3.0),
    leaf(column("ok"), "EQUAL", True),
    leaf(column("card"), "STARTS_WITH", "a"),
    leaf(column("card"), "ENDS_WITH", "_"),
    leaf(column("card"), "CONTAINS", "x"),
    leaf(column("card"), "LIKE", "a_b"),
    leaf(column("card"), "LIKE", "a%b"),
    leaf(column("card"), "LIKE", "%ra_e"),
    leaf(column("card"), "LIKE", "%"),
    leaf(column("card"), "LIKE", ""),
    leaf(column("owner"), "GREATER_THAN", "z"),
    leaf(text("UPPER", ref("card")), "EQUAL", "STRASSE"),
    leaf(text("CONCAT", ref("owner"), "-", ref("card")), "STARTS_WITH", "ann-S"),
    leaf(text("CONCAT_WS", "-", ref("owner"), ref("card")), "EQUAL", "ann"),
    leaf({"name": "CAST", "fieldRef": ref("id"), "type": "STRING"}, "IN", "1", "5"),
    leaf({"name": "NULL"}, "FALSE"),
    leaf({"name": "NULL"}, "TRUE"),
    group(
        "OR",
        group("AND", leaf(column("owner"), "EQUAL", "ann"), leaf(column("n"), "IS_NULL")),
        leaf(column("id"), "EQUAL", 2),
    ),
]
MASKS = [
    ("card", {"name": "NULL"}),
    ("card", text("CONCAT", "*", ref("owner"))),
    ("card", text("CONCAT_WS", "/", ref("card"), ref("owner"))),
    ("owner", text("UPPER", ref("owner"))),
    ("owner", text("LOWER", ref("card"))),
    ("owner", column("card")),
    # Java's client fails if it casts a null.
    ("card", {"name": "CAST", "fieldRef": ref("id"), "type": "STRING"}),
    ("n", {"name": "CAST", "fieldRef": ref("id"), "type": "BIGINT"}),
    ("n", {"name": "NULL"}),
    ("id", {"name": "NULL"}),
]


def made(server: RuledServer, *, keyed: bool) -> Session:
    session = lc.connect(server.options)
    session.create_database("shop", ignore_if_exists=True)
    table = session.create_table(
        "shop.t",
        TYPES,
        primary_keys=["id"] if keyed else [],
        options={"query-auth.enabled": "true", **({"bucket": "1"} if keyed else {})},
    )
    rows = [dict(zip(TYPES, row, strict=True)) for row in ROWS]
    # Two files, which a read of a table with a primary key merges.
    table.write([{**row, "n": 7, "owner": "old"} for row in rows[:2]] if keyed else rows[:2])
    table.write(rows if keyed else rows[2:])
    return session


def shown(value: object) -> str:
    """A value as Java prints it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value).replace("nan", "NaN").replace("1e+300", "1.0E300")


def ours(session: Session, columns: list[str], *, by_sql: bool = True) -> list[str]:
    """The rows as lines, sorted; with `by_sql`, other ways to read them show the same."""
    table = session.get_table("shop.t")
    found = table.to_arrow(columns).to_pylist()
    if by_sql:
        rows = session.sql(f"SELECT {', '.join(columns)} FROM shop.t").fetchall()
        assert sorted(map(str, rows)) == sorted(str(tuple(row.values())) for row in found)
        assert table.count() == len(found)
    lines = "\n".join(sorted("|".join(map(shown, row.values())) for row in found))
    return lines.split("\n") if found else []


@pytest.mark.parametrize(("version", "keyed"), [("1.4.2", True), ("2.0.0", False)])
def test_reader_sees_what_javas_client_sees(version: str, *, keyed: bool, tmp_path: Path) -> None:
    with ruled_rest_server(version, tmp_path) as server:
        session = made(server, keyed=keyed)
        everything = ours(session, list(TYPES))
        assert len(everything) == len(ROWS) + 1  # one value holds a line break
        for number, condition in enumerate(FILTERS):
            server.rule("filter", "shop.t", condition)
            # One in four reads leaves out the columns that the filter needs, and is also by SQL.
            narrow = number % 4 == 0
            columns = ["id"] if narrow else list(TYPES)
            said = server.tell("rows", "shop.t", ",".join(columns))
            assert ours(session, columns, by_sql=narrow) == said, condition
        server.rule("filter", "shop.t", FILTERS[0], FILTERS[2])
        assert ours(session, ["id"]) == server.tell("rows", "shop.t", "id") == ["3", "5"]
        for name, mask in MASKS:
            server.rule("unmask", "shop.t")
            server.rule("mask", "shop.t", name, json.dumps(mask))
            said = server.tell("rows", "shop.t", ",".join(TYPES))
            assert ours(session, list(TYPES), by_sql=name == "card") == said, mask
        server.rule("unmask", "shop.t")
        server.rule("filter", "shop.t")
        assert ours(session, list(TYPES)) == everything


@pytest.mark.parametrize("version", ["1.4.2", "2.0.0"])
@pytest.mark.sampled(2)
def test_forbidden_columns_and_unknown_rules_of_javas_server(version: str, tmp_path: Path) -> None:
    with ruled_rest_server(version, tmp_path) as server:
        session = made(server, keyed=True)
        table = session.get_table("shop.t")
        server.rule("filter", "shop.t", leaf(column("owner"), "EQUAL", "ann"))
        server.rule("allow", "shop.t", "id,n")

        # The filter reads a column that the user may not select.
        assert sorted(table.to_polars(["id"])["id"]) == [1, 3, 5]
        assert table.count("n > 10") == 1
        with pytest.raises(StorageError):
            table.to_polars()
        with pytest.raises(StorageError):
            table.to_arrow(["card"])
        with pytest.raises(LakecoreError):
            table.count("card = 'x'")
        # A date as a literal is a rule that Java cannot read either.
        server.rule("allow", "shop.t", ",".join(TYPES))
        server.rule("filter", "shop.t", leaf(column("card"), "LIKE", "a\\%"))
        with pytest.raises(Unsupported, match="rule"):
            table.to_polars()
        with pytest.raises(Unsupported, match="rule"):
            session.sql("SELECT id FROM shop.t").fetchall()
        for verb in (
            lambda: table.update({"n": 1}),
            lambda: table.delete("id = 2"),
            table.inspect.files,
        ):
            with pytest.raises(Unsupported, match="filters and masks"):
                verb()
        server.rule("filter", "shop.t")
        table.compact(full=True)
        assert len(ours(session, list(TYPES))) == len(ROWS) + 1


@pytest.mark.parametrize("version", ["1.4.2", "2.0.0"])
@pytest.mark.sampled(2)
def test_handles_of_look_ups_and_the_binlog_show_what_reads_show(
    version: str, tmp_path: Path
) -> None:
    """Java's client cannot read `$binlog` if there is a rule."""
    with ruled_rest_server(version, tmp_path) as server:
        session = made(server, keyed=True)
        table, binlog = session.get_table("shop.t"), session.get_table("shop.t$binlog")
        lookup = table.open_lookup(["id", "owner", "card"])
        keys = [{"id": number} for number in range(7)]
        columns = "id,owner,card"
        assert lines_of(lookup.rows(keys)) == server.tell("rows", "shop.t", columns)

        server.rule("filter", "shop.t", FILTERS[0])
        server.rule("mask", "shop.t", "card", json.dumps(MASKS[1][1]))
        lookup.refresh()
        said = server.tell("rows", "shop.t", columns)
        assert lines_of(lookup.rows(keys)) == said
        assert lines_of(lookup.rows(keys)) == lines_of(table.lookup(keys, ["id", "owner", "card"]))
        (failed,) = server.tell("rows", "shop.t$binlog", columns)
        assert "ClassCastException" in failed
        packed = binlog.to_polars(["id", "owner", "card"]).explode(
            "id", "owner", "card", empty_as_null=False
        )
        assert lines_of(packed) == said
        server.rule("allow", "shop.t", "id,owner")
        with pytest.raises(StorageError):
            lookup.refresh()
        with pytest.raises(StorageError):
            binlog.to_arrow()


def lines_of(frame: pl.DataFrame) -> list[str]:
    """The rows as Java prints them, sorted."""
    text = "\n".join(sorted("|".join(map(shown, row)) for row in frame.rows()))
    return text.split("\n")
