"""dbt's own cases for adapters: models in a Paimon warehouse, seeds in DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dbt.tests import util
from dbt.tests.adapter.basic import test_ephemeral as ephemeral
from dbt.tests.adapter.basic import test_generic_tests as generic
from dbt.tests.adapter.basic import test_incremental as incremental
from dbt.tests.adapter.basic import test_singular_tests as singular
from dbt.tests.adapter.basic import test_singular_tests_ephemeral as singular_ephemeral
from dbt.tests.adapter.basic import test_table_materialization as tables
from dbt.tests.adapter.dbt_show import test_dbt_show as show
from dbt.tests.adapter.empty import test_empty as empty
from dbt.tests.adapter.incremental import test_incremental_on_schema_change as schema_change
from dbt.tests.adapter.incremental import test_incremental_unique_id as unique_key
from dbt.tests.adapter.store_test_failures_tests import test_store_test_failures as failures
from dbt.tests.adapter.unit_testing import test_case_insensitivity as unit_case
from dbt.tests.adapter.unit_testing import test_invalid_input as unit_input

from lakecore.dbt import macros

if TYPE_CHECKING:
    from dbt.adapters.base.relation import BaseRelation

pytest_plugins = ["dbt.tests.fixtures.project"]

_CASES = (util, incremental, empty, ephemeral, tables)


@pytest.fixture(scope="class")
def dbt_profile_target(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    config = {"warehouse": str(warehouse)}
    plugin = {"module": "lakecore.dbt", "alias": "paimon", "config": config}
    return {"type": "duckdb", "path": ":memory:", "threads": 2, "plugins": [plugin]}


class Stored:
    """The models of a case are in the warehouse, and its relations are found there."""

    @pytest.fixture(scope="class")
    def macros(self) -> dict[str, str]:
        return {"paimon.sql": macros()}

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, object]:
        view = {"+database": "memory"}  # a view stays in DuckDB
        models = {"+database": "paimon", "+materialized": "table", "cases": {"view_model": view}}
        return {"name": "cases", "models": models}

    @pytest.fixture(autouse=True)
    def relations(self, project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        plain = util.relation_from_name

        def found(adapter: Any, name: str) -> BaseRelation:
            model = plain(adapter, f"paimon.{project.test_schema}.{name}")
            stored = "select 1 from duckdb_views() where (database_name, schema_name, view_name) = "
            where = f"('paimon', '{project.test_schema}', '{name}')"
            return model if project.run_sql(stored + where, fetch="one") else plain(adapter, name)

        for module in _CASES:
            if hasattr(module, "relation_from_name"):
                monkeypatch.setattr(module, "relation_from_name", found)


class TestIncremental(Stored, incremental.BaseIncremental):
    pass


class TestIncrementalWithoutChange(Stored, incremental.BaseIncrementalNotSchemaChange):
    pass


class TestOnSchemaChange(Stored, schema_change.BaseIncrementalOnSchemaChange):
    pass


class TestEmptyFlag(Stored, empty.BaseTestEmpty):
    pass


class TestEmptyFlagInline(Stored, empty.BaseTestEmptyInlineSourceRef):
    pass


class TestTables(Stored, tables.BaseTableMaterialization):
    pass


class TestEphemeral(Stored, ephemeral.BaseEphemeral):
    pass


class TestGenericTests(Stored, generic.BaseGenericTests):
    pass


class TestSingularTests(Stored, singular.BaseSingularTests):
    pass


class TestSingularTestsEphemeral(Stored, singular_ephemeral.BaseSingularTestsEphemeral):
    pass


class TestShowLimit(Stored, show.BaseShowLimit):
    pass


class TestUnitTestCase(Stored, unit_case.BaseUnitTestCaseInsensivity):
    pass


class TestUnitTestInput(Stored, unit_input.BaseUnitTestInvalidInput):
    pass


class TestStoreFailures(Stored, failures.BaseStoreTestFailures):
    """The rows that fail a test of a stored model are kept in DuckDB."""

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, object]:
        audit = failures.TEST_AUDIT_SCHEMA_SUFFIX
        models = {"+database": "paimon", "+materialized": "table"}
        return {
            "data_tests": {"+schema": audit},
            "models": models,
            "seeds": {"quote_columns": False},
        }


class TestUniqueKey(Stored, unique_key.BaseIncrementalUniqueKey):
    """The keys of the seed are made unique and not null: here, `unique_key` is a primary key."""

    @staticmethod
    def unique(text: str) -> str:
        for old, new in (
            ("NY,New York", "VT,New York"),
            ("'NY','New York'", "'VT','New York'"),
            ("CO,Denver,,", "CO,Denver,Aspen,"),
            ("'CO','Denver',null", "'CO','Denver','Aspen'"),
        ):
            text = text.replace(old, new)
        return text

    @pytest.fixture(scope="class")
    def seeds(self) -> dict[str, str]:
        return {
            "duplicate_insert.sql": unique_key.seeds__duplicate_insert_sql,
            "seed.csv": self.unique(unique_key.seeds__seed_csv),
            "add_new_rows.sql": unique_key.seeds__add_new_rows_sql,
        }

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            f"{name.removeprefix('expected__').removesuffix('_sql')}.sql": self.unique(text)
            for name, text in (
                (name.removeprefix("models__"), text)
                for name, text in vars(unique_key).items()
                if name.startswith("models__")
            )
        }

    def fail_to_build_inc_missing_unique_key_column(self, name: str = "", **named: str) -> Any:
        """A key that is no column fails in the first run, not in the second."""
        model = name or named["incremental_model_name"]
        util.run_dbt(["seed", "--select", "seed", "--full-refresh"])
        result = util.run_dbt(["run", "--select", model, "--full-refresh"], expect_pass=False)
        return result.results[0].status, result.results[0].message
