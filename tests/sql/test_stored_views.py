"""Views that a catalog stores: created, read, renamed and dropped by SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import lakecore as lc
from lakecore.errors import AlreadyExists, CorruptTable, InvalidRequest, NotFound, Unsupported

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    return {
        "metastore": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "warehouse": str(tmp_path / "w"),
    }


@pytest.fixture
def session(options: dict[str, str]) -> lc.Session:
    session = lc.connect(options, create=True)
    for database in ("shop", "other"):
        session.create_database(database)
        table = session.create_table(f"{database}.cups", {"id": "INT", "item": "STRING"})
        table.write([{"id": number, "item": database} for number in (1, 2)])
    return session


def rows(session: lc.Session, text: str) -> list[tuple[object, ...]]:
    return session.sql(text).fetchall()


def test_stored_view_is_read_by_another_session(
    session: lc.Session, options: dict[str, str]
) -> None:
    session.sql("CREATE VIEW shop.late COMMENT 'new ones' AS SELECT id FROM shop.cups WHERE id > 1")
    another = lc.connect(options)

    assert rows(another, "SELECT * FROM shop.late") == [(2,)]
    assert rows(another, "SELECT count(*) FROM shop.late JOIN shop.cups USING (id)") == [(1,)]
    assert rows(another, "SHOW VIEWS IN shop") == [("late",)]
    assert rows(another, "SHOW VIEWS IN other") == []
    assert another.list_tables("shop") == ("cups",)
    session.get_table("shop.cups").write([{"id": 3, "item": "x"}])
    assert rows(another, "SELECT max(id) FROM shop.late") == [(3,)]


def test_view_of_a_view_with_names_of_its_columns(session: lc.Session) -> None:
    session.sql("CREATE VIEW shop.one (n, what) AS SELECT id, item FROM shop.cups")
    session.sql("CREATE VIEW other.two AS WITH few AS (SELECT n FROM shop.one) SELECT * FROM few")

    assert rows(session, "SELECT sum(n) FROM other.two") == [(3,)]


def test_tables_of_a_stored_view_have_their_databases(session: lc.Session) -> None:
    session.sql("USE shop")
    with pytest.raises(InvalidRequest, match="name=cups"):
        session.sql("CREATE VIEW late AS SELECT * FROM cups")
    session.sql("CREATE VIEW late AS SELECT item FROM shop.cups LIMIT 1")
    session.sql("USE other")

    assert rows(session, "SELECT * FROM shop.late") == [("shop",)]
    with pytest.raises(NotFound):
        session.sql("SELECT * FROM late")


def test_view_of_another_catalog_reads_the_tables_of_that_catalog(
    session: lc.Session, tmp_path: Path
) -> None:
    session.sql("CREATE VIEW shop.late AS SELECT item FROM shop.cups")
    session.sql(f"CREATE CATALOG second WITH ('warehouse' = '{tmp_path}/second')")
    session.sql("USE CATALOG second")
    session.sql("CREATE DATABASE shop")
    session.sql("CREATE TABLE shop.cups (item STRING)")
    session.sql("INSERT INTO shop.cups VALUES ('wrong')")

    assert rows(session, "SELECT DISTINCT item FROM paimon.shop.late") == [("shop",)]


def test_stored_view_does_not_say_which_files_descriptors_may_name(
    session: lc.Session, options: dict[str, str], tmp_path: Path
) -> None:
    import sqlite3

    (tmp_path / "secret").write_bytes(b"key")
    evolving = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    session.create_table(
        "shop.scans",
        {"id": "INT", "b": "BLOB"},
        options={"blob-descriptor-field": "b", **evolving},
    ).write([{"id": 1, "b": lc.BlobDescriptor(f"{tmp_path}/secret").to_bytes()}])
    hint = f"/*+ OPTIONS('lakecore.blob-paths' = '{tmp_path}') */"
    assert rows(session, f"SELECT b FROM shop.scans {hint}") == [(b"key",)]
    with pytest.raises(InvalidRequest, match="whoever reads the view"):
        session.sql(f"CREATE VIEW shop.late AS SELECT b FROM shop.scans {hint}")

    session.sql("CREATE VIEW shop.late AS SELECT b FROM shop.scans")
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        database.execute(
            "UPDATE paimon_views SET view_schema = replace(view_schema, 'shop.scans', ?)",
            [f"shop.scans {hint}"],
        )
    database.close()
    with pytest.raises(InvalidRequest, match="whoever reads the view"):
        rows(lc.connect(options), "SELECT * FROM shop.late")


def test_names_are_taken_by_tables_and_views_alike(session: lc.Session) -> None:
    session.sql("CREATE VIEW shop.late AS SELECT 1 AS n")
    with pytest.raises(AlreadyExists):
        session.sql("CREATE VIEW shop.cups AS SELECT 1 AS n")
    with pytest.raises(AlreadyExists):
        session.sql("CREATE VIEW shop.late AS SELECT 2 AS n")
    with pytest.raises(AlreadyExists):
        session.create_table("shop.late", {"id": "INT"})
    session.sql("CREATE VIEW IF NOT EXISTS shop.late AS SELECT 2 AS n")

    assert rows(session, "SELECT n FROM shop.late") == [(1,)]
    with pytest.raises(Unsupported, match="SQL reads it"):
        session.get_table("shop.late")


def test_view_is_renamed_and_dropped(session: lc.Session) -> None:
    session.sql("CREATE VIEW shop.late AS SELECT 1 AS n")
    session.sql("ALTER VIEW shop.late RENAME TO early")
    assert rows(session, "SELECT n FROM shop.early") == [(1,)]
    with pytest.raises(AlreadyExists):
        session.sql("ALTER VIEW shop.early RENAME TO cups")
    with pytest.raises(NotFound, match="no such view"):
        session.sql("ALTER VIEW shop.late RENAME TO x")
    session.sql("ALTER VIEW IF EXISTS shop.late RENAME TO x")
    session.sql("ALTER VIEW shop.early RENAME TO other.moved")
    session.sql("DROP VIEW other.moved")

    assert rows(session, "SHOW VIEWS IN other") == []
    with pytest.raises(NotFound, match="no such view"):
        session.sql("DROP VIEW other.moved")
    session.sql("DROP VIEW IF EXISTS other.moved")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE OR REPLACE VIEW shop.late AS SELECT * FROM shop.late",
        "CREATE OR REPLACE VIEW shop.cups AS SELECT 1",
        "CREATE VIEW shop.late AS SELECT no_such FROM shop.cups",
        "CREATE VIEW shop.late AS SELECT * FROM shop.none",
        "CREATE VIEW nowhere.late AS SELECT 1",
        "CREATE VIEW shop.late$files AS SELECT 1",
    ],
)
def test_view_that_could_not_be_read_is_not_stored(session: lc.Session, text: str) -> None:
    with pytest.raises((lc.LakecoreError, InvalidRequest)):
        session.sql(text)

    assert rows(session, "SHOW VIEWS IN shop") == []


def test_view_has_no_time_travel_and_does_not_read_itself(session: lc.Session) -> None:
    session.sql("CREATE VIEW shop.late AS SELECT 1 AS n")
    with pytest.raises(Unsupported, match="time travel"):
        session.sql("SELECT * FROM shop.late VERSION AS OF 1")
    session.sql("CREATE VIEW shop.outer_one AS SELECT * FROM shop.late")
    session.sql("DROP VIEW shop.late")
    session.sql("ALTER VIEW shop.outer_one RENAME TO late")

    with pytest.raises(InvalidRequest, match="reads itself"):
        session.sql("SELECT * FROM shop.late")


def test_dropped_database_takes_its_views_with_it(session: lc.Session) -> None:
    session.sql("CREATE VIEW shop.late AS SELECT 1 AS n")
    with pytest.raises(InvalidRequest, match="not empty"):
        session.drop_database("shop")
    session.drop_database("shop", cascade=True)
    session.create_database("shop")

    assert rows(session, "SHOW VIEWS IN shop") == []


def test_malformed_view_is_named(session: lc.Session, tmp_path: Path) -> None:
    import sqlite3

    session.sql("CREATE VIEW shop.late AS SELECT 1 AS n")
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        database.execute("UPDATE paimon_views SET view_schema = '{\"query\": 1}'")
    database.close()

    with pytest.raises(CorruptTable, match=r"shop\.late"):
        session.sql("SELECT * FROM shop.late")


# --- replaced and altered -------------------------------------------------------------------------


def facts_of(session: lc.Session) -> dict[str, object]:
    found = rows(session, "DESCRIBE EXTENDED shop.late")
    return {str(name): value for name, value, *_ in found}


def test_view_is_replaced_in_one_statement(session: lc.Session) -> None:
    session.sql("CREATE OR REPLACE VIEW shop.late COMMENT 'c' AS SELECT 1 AS n")
    session.sql("CREATE OR REPLACE VIEW shop.late AS SELECT id, item FROM shop.cups WHERE id = 2")

    assert rows(session, "SELECT * FROM shop.late") == [(2, "shop")]
    assert rows(session, "SHOW VIEWS IN shop") == [("late",)]
    with pytest.raises(InvalidRequest, match="no_such"):
        session.sql("CREATE OR REPLACE VIEW shop.late AS SELECT no_such FROM shop.cups")
    with pytest.raises(AlreadyExists):
        session.sql("CREATE OR REPLACE VIEW shop.cups AS SELECT 1 AS n")
    assert rows(session, "SELECT * FROM shop.late") == [(2, "shop")]


def test_view_never_reads_itself_after_a_replacement(session: lc.Session) -> None:
    session.sql("CREATE VIEW shop.one AS SELECT id FROM shop.cups")
    session.sql("CREATE VIEW shop.two AS SELECT id FROM shop.one")
    for text in ("CREATE OR REPLACE VIEW shop.one AS", "ALTER VIEW shop.one AS"):
        for source in ("shop.one", "shop.two", "paimon.shop.two"):
            with pytest.raises(InvalidRequest, match="reads itself"):
                session.sql(f"{text} SELECT id FROM {source}")

    assert rows(session, "SELECT max(id) FROM shop.two") == [(2,)]


def test_view_gets_another_query_and_keeps_the_rest(session: lc.Session) -> None:
    session.sql("CREATE VIEW shop.late COMMENT 'c' TBLPROPERTIES ('a' = 'b') AS SELECT 1 AS n")
    session.sql("CALL sys.alter_view_dialect('shop.late', 'add', 'flink', 'SELECT 2')")
    session.sql("ALTER VIEW shop.late AS SELECT item FROM shop.cups LIMIT 1")

    assert rows(session, "SELECT * FROM shop.late") == [("shop",)]
    facts = facts_of(session)
    assert facts["item"] == "STRING"
    assert (facts["# comment"], facts["# option a"]) == ("c", "b")
    assert "# dialect flink" not in facts
    with pytest.raises(NotFound, match="no such view"):
        session.sql("ALTER VIEW shop.none AS SELECT 1 AS n")
    session.sql("ALTER VIEW IF EXISTS shop.none AS SELECT 1 AS n")
    with pytest.raises(NotFound, match="no such view"):
        session.sql("ALTER VIEW shop.cups AS SELECT 1 AS n")


def test_properties_of_a_view_are_set_and_removed(session: lc.Session) -> None:
    session.sql("CREATE VIEW shop.late TBLPROPERTIES ('a' = '1', 'b' = '2') AS SELECT 1 AS n")
    session.sql("ALTER VIEW shop.late SET TBLPROPERTIES ('a' = '3', 'comment' = 'new')")
    session.sql("ALTER VIEW shop.late UNSET TBLPROPERTIES IF EXISTS ('b', 'none')")
    facts = facts_of(session)

    assert (facts["# option a"], facts["# comment"]) == ("3", "new")
    assert "# option b" not in facts
    with pytest.raises(NotFound):
        session.sql("ALTER VIEW shop.none SET TBLPROPERTIES ('a' = '3')")
    with pytest.raises(InvalidRequest, match="RENAME TO, AS"):
        session.sql("ALTER VIEW shop.late DROP COLUMN n")


def test_dialect_of_lakecore_is_the_text_that_is_read(session: lc.Session) -> None:
    session.sql("CREATE VIEW shop.late AS SELECT 1 AS n")
    call = "CALL sys.alter_view_dialect('shop.late', {})"
    assert rows(session, call.format("'add', 'spark', 'SELECT 9 AS n'")) == [("Success",)]
    assert rows(session, "SELECT n FROM shop.late") == [(1,)]
    session.sql(call.format("'update', '', 'SELECT 2 AS n'"))
    assert rows(session, "SELECT n FROM shop.late") == [(2,)]
    session.sql(call.format("action => 'drop'"))
    assert rows(session, "SELECT n FROM shop.late") == [(1,)]
    session.sql(call.format("action => 'add', query => 'SELECT 3 AS n'"))
    assert rows(session, "SELECT n FROM shop.late") == [(3,)]

    with pytest.raises(AlreadyExists, match="dialect=spark"):
        session.sql(call.format("'add', 'spark', 'SELECT 9'"))
    with pytest.raises(NotFound, match="dialect=flink"):
        session.sql(call.format("'drop', 'flink'"))
    with pytest.raises(InvalidRequest, match="needs a query"):
        session.sql(call.format("'add', 'flink'"))
    with pytest.raises(InvalidRequest, match="add, update or drop"):
        session.sql(call.format("'explode', 'flink'"))
    with pytest.raises(NotFound, match="no such view"):
        session.sql("CALL sys.alter_view_dialect('shop.none', 'drop', 'flink')")


def test_statement_that_creates_a_view_is_shown(session: lc.Session) -> None:
    session.sql(
        "CREATE VIEW shop.late (n, `a b`) COMMENT 'it''s' TBLPROPERTIES ('k' = 'v')"
        " AS SELECT id, item FROM shop.cups"
    )
    ((text,),) = rows(session, "SHOW CREATE VIEW shop.late")
    session.sql("DROP VIEW shop.late")
    session.sql(str(text))

    assert rows(session, "SHOW CREATE VIEW shop.late") == [(text,)]
    assert rows(session, 'SELECT "a b" FROM shop.late WHERE n = 1') == [("shop",)]
    facts = facts_of(session)
    assert (facts["# comment"], facts["# option k"], facts["n"]) == ("it's", "v", "INT")
    with pytest.raises(NotFound):
        session.sql("SHOW CREATE VIEW shop.none")
    session.sql("CREATE TEMPORARY VIEW brief AS SELECT 1 AS n")
    assert "SELECT 1" in str(rows(session, "SHOW CREATE VIEW brief"))


def test_temporary_view_gets_another_query(session: lc.Session) -> None:
    session.sql("CREATE TEMPORARY VIEW brief AS SELECT 1 AS n")
    session.sql("ALTER VIEW brief AS SELECT 2 AS n")
    with pytest.raises(lc.LakecoreError):
        session.sql("ALTER VIEW brief AS SELECT no_such")
    with pytest.raises(InvalidRequest, match="no properties"):
        session.sql("ALTER VIEW brief SET TBLPROPERTIES ('a' = 'b')")

    assert rows(session, "SELECT n FROM brief") == [(2,)]


def test_catalog_without_views_says_so(tmp_path: Path) -> None:
    session = lc.connect(str(tmp_path / "files"), create=True)
    session.create_database("shop")
    for text in (
        "CREATE VIEW shop.late AS SELECT 1 AS n",
        "CREATE OR REPLACE VIEW shop.late AS SELECT 1 AS n",
        "ALTER VIEW shop.late AS SELECT 1 AS n",
        "ALTER VIEW shop.late SET TBLPROPERTIES ('a' = 'b')",
        "CALL sys.alter_view_dialect('shop.late', 'drop', 'flink')",
        "SHOW CREATE VIEW shop.late",
    ):
        with pytest.raises(Unsupported, match="stores no views"):
            session.sql(text)

    assert rows(session, "SHOW VIEWS IN shop") == []
    session.sql("DROP VIEW IF EXISTS shop.late")


def test_functions_of_a_catalog_that_stores_none_are_an_empty_list(session: lc.Session) -> None:
    assert rows(session, "SHOW FUNCTIONS IN shop") == []
    assert rows(session, "SHOW USER FUNCTIONS FROM shop LIKE 'a%'") == []
    with pytest.raises(NotFound, match="no such function"):
        session.sql("DESCRIBE FUNCTION shop.area")
    with pytest.raises(NotFound, match="no such database"):
        session.sql("SHOW FUNCTIONS IN nowhere")
