"""dbt models in a Paimon warehouse, beyond dbt's own cases."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from dbt.cli.main import dbtRunner

import lakecore as lc
from lakecore import dbt as plugin


@dataclass
class Project:
    """A dbt project: its models as SQL, its DuckDB file, and its warehouse."""

    root: Path
    session: lc.Session

    def model(self, name: str, sql: str, **config: object) -> None:
        settings = ", ".join(f"{key}={each!r}" for key, each in config.items())
        ending = "py" if sql.startswith("def ") else "sql"
        text = "{{ config(" + settings + ") }}\n" + sql if config else sql
        (self.root / "models" / f"{name}.{ending}").write_text(text)

    def run(self, *arguments: str) -> dict[str, str]:
        """The message of each node."""
        flags = ["--project-dir", str(self.root), "--profiles-dir", str(self.root), "--quiet"]
        done = dbtRunner().invoke([*(arguments or ["run"]), *flags])
        if done.exception is not None:
            raise done.exception
        # `docs generate` gives a catalog, which has no results of nodes.
        results: Any = getattr(done.result, "results", ())
        return {each.node.name: f"{each.status.value}: {each.message}" for each in results}

    def table(self, name: str = "m") -> lc.Table:
        return self.session.get_table(f"shop.{name}")

    def rows(self, name: str = "m") -> list[tuple[object, ...]]:
        return sorted(self.table(name).to_polars().rows(), key=repr)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "project"
    for folder in ("models", "macros", "seeds", "snapshots"):
        (root / folder).mkdir(parents=True)
    session = lc.connect(tmp_path / "warehouse", create=True)
    (root / "macros" / "paimon.sql").write_text(plugin.macros())
    stored = {"+database": "paimon", "+materialized": "incremental"}
    files = {
        "dbt_project.yml": {"name": "p", "profile": "p", "models": stored},
        "profiles.yml": {
            "p": {
                "target": "dev",
                "outputs": {
                    "dev": {
                        "type": "duckdb",
                        "path": str(root / "dev.duckdb"),
                        "schema": "shop",
                        "threads": 4,
                        "settings": {"preserve_insertion_order": True},
                        "plugins": [
                            {
                                "module": "lakecore.dbt",
                                "alias": "paimon",
                                "config": {"warehouse": session.warehouse},
                            }
                        ],
                    }
                },
            }
        },
    }
    for name, content in files.items():
        (root / name).write_text(yaml.safe_dump(content))
    return Project(root, session)


def test_rows_of_a_key_are_updated_and_the_model_sees_its_own_table(project: Project) -> None:
    project.model(
        "m",
        "select 1 as id, {% if is_incremental() %} 1 + (select max(n) from {{ this }}) {% else %} 0"
        " {% endif %} as n union all select 2, 7",
        unique_key="ID",
        options={"bucket": 2},
    )

    assert project.run() == {"m": "success: OK"}
    assert project.run() == {"m": "success: OK"}
    assert project.rows() == [(1, 8), (2, 7)]
    assert project.table().schema.primary_keys == ("id",)
    assert project.table().options.texts["bucket"] == "2"


def test_a_run_with_a_stated_user_counts_once(project: Project) -> None:
    project.model("m", "select 1 as id")
    for day in ("28", "28", "29"):
        project.run("run", "--vars", json.dumps({"lakecore_commit_user": f"load-{day}"}))

    assert project.rows() == [(1,), (1,)]
    assert project.table().inspect.snapshots()["commit_user"].to_list() == ["load-28", "load-29"]


def test_a_user_that_is_null_is_refused_before_a_second_run_counts_for_nothing(
    project: Project,
) -> None:
    project.model("m", "select 1 as id")

    message = project.run("run", "--vars", "lakecore_commit_user: null")["m"]
    assert "lakecore_commit_user is null" in message


@pytest.mark.parametrize(
    "config", [{"materialized": "table"}, {"unique_key": "id", "on_schema_change": "fail"}]
)
def test_a_column_in_another_case_is_the_column_of_the_table(
    project: Project, config: dict[str, Any]
) -> None:
    project.model("m", 'select 1 as id, 1 as "v"', **config)
    project.run()
    project.model("m", 'select 1 as ID, 2 as "V"', **config)

    assert project.run() == {"m": "success: OK"}
    assert project.rows() == [(1, 2)]
    assert [field.name for field in project.table().schema.fields] == ["id", "v"]


def test_each_run_is_a_commit_of_its_invocation(project: Project) -> None:
    project.model("m", "select 1 as id")
    for _ in range(2):
        project.run()

    users = project.table().inspect.snapshots()["commit_user"].to_list()
    assert len(set(users)) == len(users) == 2
    assert project.rows() == [(1,), (1,)]


def test_partitions_are_overwritten_one_by_one(project: Project) -> None:
    project.model(
        "m",
        "select unnest({{ var('days') }}) as day, {{ var('n') }} as n",
        partition_by=["day"],
        incremental_strategy="insert_overwrite",
    )
    project.run("run", "--vars", "{days: [1, 2], n: 0}")
    project.run("run", "--vars", "{days: [2, 3], n: 9}")

    assert project.rows() == [(1, 0), (2, 9), (3, 9)]
    assert project.table().schema.partition_keys == ("day",)


def test_a_table_is_replaced_with_its_columns_in_one_table_of_many_snapshots(
    project: Project,
) -> None:
    project.model("m", "select 1 as id, 'x' as gone", materialized="table")
    project.run()
    project.model("m", "select 'two' as id, date '2026-01-01' as day", materialized="table")
    project.run()

    assert [field.name for field in project.table().schema.fields] == ["id", "day"]
    assert project.table().to_polars()["id"].to_list() == ["two"]
    assert project.table().scan(snapshot_id=1).collect().rows() == [(1, "x")]


def test_a_full_refresh_gives_a_table_other_keys_and_nothing_else_does(project: Project) -> None:
    project.model("m", "select 1 as id, 2 as part")
    project.run()
    project.model("m", "select 1 as id, 2 as part", unique_key=["id"])

    assert "the table has another primary key" in project.run()["m"]
    assert project.table().schema.primary_keys == ()
    assert project.run("run", "--full-refresh") == {"m": "success: OK"}
    assert project.table().schema.primary_keys == ("id",)

    wrong = {"options": {"merge-engine": "none"}}
    project.model("m", "select 1 as id, 2 as part", unique_key=["id", "part"], **wrong)
    assert "merge-engine" in project.run("run", "--full-refresh")["m"]
    assert project.table().schema.primary_keys == ("id",), "the old table stays"
    assert project.table().count() == 1


@pytest.mark.parametrize(
    ("old", "new", "config"),
    [
        ("true", "date '2026-01-01'", {"materialized": "table"}),
        ("1", "'1'", {"unique_key": "v"}),
        ("1", "'1'", {"partition_by": ["v"]}),
    ],
)
def test_a_full_refresh_gives_a_column_a_type_that_it_cannot_become(
    project: Project, old: str, new: str, config: dict[str, Any]
) -> None:
    project.model("m", f"select {old} as v, 1 as n", **config)
    project.run()
    project.model("m", f"select {new} as v, 2 as n", **config)

    assert project.run()["m"].startswith("error")
    assert project.run("run", "--full-refresh") == {"m": "success: OK"}
    assert [row[1] for row in project.rows()] == [2]


def test_a_table_whose_refresh_was_killed_between_its_renames_has_its_name_back(
    project: Project,
) -> None:
    project.session.create_database("shop")
    for name, number in (("m__lakecore_old", 1), ("m__lakecore_new", 2)):
        project.session.create_table(f"shop.{name}", {"id": "INT"}).write([{"id": number}])
    project.model("m", "select 3 as id")

    assert project.run() == {"m": "success: OK"}
    assert project.rows() == [(1,), (3,)]


def test_two_refreshes_at_once_leave_the_old_table(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.model("m", "select 1 as id")
    project.run()
    project.model("m", "select 2 as id", unique_key="id")
    load = plugin._load  # noqa: SLF001 - the other run begins here

    def another_begins(session: lc.Session, table: lc.Table, *rest: Any) -> None:
        load(session, table, *rest)
        session.drop_table("shop.m__lakecore_new")
        columns = {"id": "INT NOT NULL"}
        session.create_table("shop.m__lakecore_new", columns, primary_keys=["id"])

    monkeypatch.setattr(plugin, "_load", another_begins)

    assert "another run replaces the table now" in project.run("run", "--full-refresh")["m"]
    assert project.rows() == [(1,)]


def test_an_empty_model_has_columns_and_no_rows_and_its_next_run_is_a_first_one(
    project: Project,
) -> None:
    project.model(
        "m",
        "select * from (values (1, 2)) t(id, n) where "
        "{% if is_incremental() %} n > (select max(n) from {{ this }}) {% else %} "
        "{{ var('all', 'false') }} {% endif %}",
        unique_key="id",
    )
    project.run()

    assert project.rows() == []
    assert [str(field.type) for field in project.table().schema.fields] == ["INT NOT NULL", "INT"]

    project.run("run", "--vars", "all: 'true'")

    assert project.rows() == [(1, 2)]


@pytest.mark.parametrize(
    ("sql", "config", "message"),
    [
        ("select 1 as id union all select 1", {"unique_key": "id"}, "unique_key is not unique"),
        ("select null::int as id", {"unique_key": "id"}, "unique_key is null"),
        ("select 1 as id", {"unique_key": "key"}, "names a column that the model lacks"),
        ("select 1 as id", {"options": {"buckets": 1}}, "buckets"),
        ("select 1 as id", {"incremental_strategy": "microbatch_"}, "incremental_strategy"),
        ("select 1 as id", {"incremental_strategy": "merge"}, "merge and delete+insert need a"),
        ("select 1 as id", {"merge_update_columns": ["id"]}, "merge_update_columns"),
        ("select 1 as id", {"merge_exclude_columns": ["id"]}, "merge_exclude_columns"),
        ("select 1 as id", {"incremental_predicates": ["id > 0"]}, "incremental_predicates"),
        ("select 1 as id", {"on_schema_change": "evolve"}, "unknown on_schema_change"),
        ("select 1 as id", {"materialized": "view"}, "a view cannot be kept in the warehouse"),
        (
            "select 1 as id",
            {"materialized": "table_function"},
            "a table function cannot be kept in the warehouse",
        ),
        ("select interval 1 day as i", {}, "column=i"),
        ("select nope as id", {}, "Binder Error"),
    ],
)
def test_a_refused_model_says_why_and_leaves_no_table(
    project: Project, sql: str, config: dict[str, object], message: str
) -> None:
    project.model("m", sql, **config)

    assert message in project.run()["m"]
    assert not project.session.table_exists("shop.m")


def test_batches_of_dbt_are_refused_by_their_name(
    project: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    batches = {"event_time": "id", "batch_size": "year", "begin": "2026-01-01"}
    project.model("m", "select 1 as id", incremental_strategy="microbatch", **batches)

    assert project.run()["m"].startswith("error")
    assert "unknown incremental_strategy. value=microbatch" in capfd.readouterr().out


def test_rows_of_a_key_are_the_tables_to_merge_if_its_options_or_their_kinds_say_so(
    project: Project,
) -> None:
    project.model(
        "newest",
        "select 1 as id, unnest([5, 9, 7]) as at",
        unique_key="id",
        options={"sequence.field": "at", "bucket": "1"},
    )
    project.model(
        "kinds",
        "select * from (values (1, '+I'), (2, '+I'), (1, '-D')) t(id, _row_kind)",
        unique_key="id",
        options={"bucket": "1"},
    )
    project.run()

    assert project.rows("newest") == [(1, 9)]
    assert project.rows("kinds") == [(2,)]


def test_seeds_and_snapshots_stay_in_duckdb_and_models_read_them(project: Project) -> None:
    (project.root / "seeds" / "s.csv").write_text("id,name\n1,Ada\n")
    project.model("m", "select * from {{ ref('s') }}")

    assert project.run("build") == {"s": "success: INSERT 1", "m": "success: OK"}
    assert project.rows() == [(1, "Ada")]

    text = (project.root / "dbt_project.yml").read_text()
    (project.root / "dbt_project.yml").write_text(text + "seeds: {+database: paimon}\n")

    assert "a seed cannot be kept in the warehouse" in project.run("seed")["s"]


def test_after_a_model_no_other_table_is_opened(project: Project) -> None:
    project.model("a", "select 1 as id")
    project.model(
        "b",
        "def model(dbt, session):\n"
        "    import lakecore as lc\n"
        f"    shop = lc.connect({project.session.warehouse!r})\n"
        "    shop.create_table('shop.other', {'id': 'INT'})\n"
        "    return dbt.ref('a')\n",
    )
    project.model(
        "c",
        "select count(*) as views from duckdb_views() where schema_name = 'shop' -- {{ ref('b') }}",
    )

    assert set(project.run().values()) == {"success: OK"}
    assert project.rows("c") == [(2,)], "a and b"


def test_odd_names_many_threads_python_models_tests_docs_and_comments(project: Project) -> None:
    odd = "Or-d er"  # dbt itself does not escape quotes in a name
    docs = {"relation": True, "columns": True}
    project.model("a", "select 1 as id", alias=odd, unique_key="id", persist_docs=docs)
    for name in "bcde":
        project.model(name, "select id, '" + name + "' as x from {{ ref('a') }}")
    project.model(
        "py",
        "def model(dbt, session):\n"
        "    dbt.config(materialized='incremental', unique_key='id')\n"
        "    return dbt.ref('b').distinct()\n",
    )
    described = {
        "models": [
            {
                "name": "a",
                "description": "The orders.",
                "columns": [{"name": "id", "description": "Its number.", "data_tests": ["unique"]}],
            }
        ]
    }
    (project.root / "models" / "m.yml").write_text(yaml.safe_dump(described))

    for _ in range(2):
        assert set(project.run("build").values()) == {"success: OK", "pass: None"}

    table = project.session.get_table(f"shop.{odd}")
    assert (table.schema.comment, table.schema.fields[0].description) == (
        "The orders.",
        "Its number.",
    )
    assert project.rows("py") == [(1, "b")]
    assert [len(project.rows(name)) for name in "bcde"] == [2, 2, 2, 2]

    project.run("docs", "generate")
    catalog = json.loads((project.root / "target" / "catalog.json").read_text())["nodes"]
    assert catalog["model.p.a"]["metadata"]["comment"] == "The orders."
    assert catalog["model.p.py"]["columns"].keys() == {"id", "x"}


def test_macros_of_another_version_are_not_used(project: Project) -> None:
    text = plugin.macros().replace("'macros': 1", "'macros': 0")
    (project.root / "macros" / "paimon.sql").write_text(text)
    project.model("m", "select 1 as id")

    assert "python -m lakecore.dbt > macros/paimon.sql" in project.run()["m"]
    assert not project.session.table_exists("shop.m")


def test_a_warehouse_that_is_not_there_is_an_error_of_dbt(project: Project) -> None:
    text = (project.root / "profiles.yml").read_text()
    (project.root / "profiles.yml").write_text(text.replace("/warehouse", "/nowhere"))
    project.model("m", "select 1 as id")

    with pytest.raises(Exception, match="nowhere"):
        project.run()


def test_the_files_of_the_page_make_a_project(project: Project, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "loaders.md").read_text()
    profile, settings = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[:2]
    (sql,) = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    profile = profile.replace("/data/warehouse", project.session.warehouse)
    (project.root / "profiles.yml").write_text(
        profile.replace("dev.duckdb", str(tmp_path / "d.db"))
    )
    (project.root / "dbt_project.yml").write_text(settings)
    orders = tmp_path / "orders.csv"
    (project.root / "models" / "orders.sql").write_text(sql.replace("orders.csv", str(orders)))

    for price in (5, 6):
        orders.write_text(f"id,day,price\n1,2026-11-28,1\n2,2026-11-29,{price}\n")
        assert project.run() == {"orders": "success: OK"}

    assert [row[2] for row in project.rows("orders")] == [1, 6]
