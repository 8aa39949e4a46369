"""dbt's own cases for adapters: models in a Paimon warehouse, seeds in DuckDB."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from dbt.tests import util
from dbt.tests.adapter.aliases import fixtures as alias_macros
from dbt.tests.adapter.aliases import test_aliases as aliases
from dbt.tests.adapter.basic import test_ephemeral as ephemeral
from dbt.tests.adapter.basic import test_generic_tests as generic
from dbt.tests.adapter.basic import test_incremental as incremental
from dbt.tests.adapter.basic import test_singular_tests as singular
from dbt.tests.adapter.basic import test_singular_tests_ephemeral as singular_ephemeral
from dbt.tests.adapter.basic import test_snapshot_check_cols as snapshot_columns
from dbt.tests.adapter.basic import test_snapshot_timestamp as snapshot_times
from dbt.tests.adapter.basic import test_table_materialization as tables
from dbt.tests.adapter.caching import test_caching as caching
from dbt.tests.adapter.concurrency import test_concurrency as concurrency
from dbt.tests.adapter.constraints import test_constraints as constraints
from dbt.tests.adapter.dbt_show import test_dbt_show as show
from dbt.tests.adapter.empty import test_empty as empty
from dbt.tests.adapter.ephemeral import test_ephemeral as ephemeral_errors
from dbt.tests.adapter.hooks import test_model_hooks as hooks
from dbt.tests.adapter.incremental import test_incremental_on_schema_change as schema_change
from dbt.tests.adapter.incremental import test_incremental_unique_id as unique_key
from dbt.tests.adapter.persist_docs import test_persist_docs as docs
from dbt.tests.adapter.python_model import test_python_model as python
from dbt.tests.adapter.relations import test_dropping_schema_named as dropped
from dbt.tests.adapter.sample_mode import fixtures as samples
from dbt.tests.adapter.sample_mode import test_sample_mode as sample_mode
from dbt.tests.adapter.simple_copy import test_simple_copy as copies
from dbt.tests.adapter.store_test_failures_tests import basic as failures_as
from dbt.tests.adapter.store_test_failures_tests import test_store_test_failures as failures
from dbt.tests.adapter.unit_testing import test_case_insensitivity as unit_case
from dbt.tests.adapter.unit_testing import test_invalid_input as unit_input
from dbt.tests.adapter.unit_testing import test_quoted_reserved_word_column_names as unit_names
from dbt.tests.adapter.unit_testing import test_types as unit_types

from lakecore.dbt import macros

if TYPE_CHECKING:
    from pathlib import Path

    from dbt.adapters.base.relation import BaseRelation

pytest_plugins = ["dbt.tests.fixtures.project"]

_CASES = (util, incremental, empty, ephemeral, tables, constraints, sample_mode)


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
        return self.config()

    @staticmethod
    def config(**settings: object) -> dict[str, object]:
        view = {"+database": "memory"}  # a view stays in DuckDB
        models = {"+database": "paimon", "+materialized": "table"}
        return {"models": {**models, "test": {"view_model": view, **settings}}}

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


class TestEphemeralErrors(Stored, ephemeral_errors.BaseEphemeralErrorHandling):
    pass


class TestShowHeader(Stored, show.BaseShowSqlHeader):
    pass


class TestShowDoubleLimit(Stored, show.BaseShowDoesNotHandleDoubleLimit):
    pass


class TestUnitTestNames(Stored, unit_names.BaseUnitTestQuotedReservedWordColumnNames):
    pass


class TestUnitTestLongTexts(Stored, unit_types.BaseUnitTestingVarcharFixtureNoTruncation):
    pass


class TestUnitTestTypes(Stored, unit_types.BaseUnitTestingTypes):
    @pytest.fixture
    def data_types(self) -> list[list[str]]:
        """In an order in which each type may become the next."""
        return [
            ["true", "true"],
            ["1", "1"],
            ["'1'::numeric", "1"],
            ["'1'", "1"],
            ["DATE '2020-01-02'", "2020-01-02"],
            ["TIMESTAMP '2013-11-03 00:00:00'", "2013-11-03 00:00:00"],
            ["TIMESTAMPTZ '2013-11-03 00:00:00+00'", "2013-11-03 00:00:00+00"],
        ]


class TestAliases(Stored, aliases.BaseAliases):
    @pytest.fixture(scope="class")
    def macros(self) -> dict[str, str]:
        return {
            "cast.sql": alias_macros.MACROS__CAST_SQL,
            "expect_value.sql": alias_macros.MACROS__EXPECT_VALUE_SQL,
            "paimon.sql": macros(),
        }

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, object]:
        alias = {"alias": "project_alias"}
        return self.config(alias_in_project=alias, alias_in_project_with_override=alias)


class TestAliasErrors(Stored, aliases.BaseAliasErrors):
    pass


class TestConcurrency(Stored, concurrency.BaseConcurrency):
    pass


class TestCacheOfLowerCase(Stored, caching.BaseCachingLowercaseModel):
    pass


class TestCacheOfUpperCase(Stored, caching.BaseCachingUppercaseModel):
    pass


class TestCacheOfOneSchema(Stored, caching.BaseCachingSelectedSchemaOnly):
    pass


class TestNoCache(Stored, caching.BaseNoPopulateCache):
    pass


class TestDroppedSchema(Stored, dropped.BaseDropSchemaNamed):
    pass


class TestSnapshotsOfColumns(Stored, snapshot_columns.BaseSnapshotCheckCols):
    pass


class TestSnapshotsOfTimes(Stored, snapshot_times.BaseSnapshotTimestamp):
    pass


class TestCopies(Stored, copies.SimpleCopyBase):
    test_simple_copy_with_materialized_views = None  # DuckDB has none


class TestEmptyModels(Stored, copies.EmptyModelsArentRunBase):
    pass


class TestPythonModels(Stored, python.BasePythonModelTests):
    pass


class TestSamples(Stored, sample_mode.BaseSampleModeTest):
    @pytest.fixture(scope="class")
    def input_model_sql(self) -> str:
        return str(samples.input_model_sql).replace("-0'", "'")


class Contracts(Stored):
    """Contracts and constraints are checked by DuckDB, before a row is stored."""

    @pytest.fixture
    def string_type(self) -> str:
        return "VARCHAR"

    @pytest.fixture
    def int_type(self) -> str:
        return "INTEGER"

    @pytest.fixture
    def data_types(self, int_type: str, string_type: str) -> list[list[str]]:
        return [
            ["true", "bool", "BOOL"],
            ["1", int_type, int_type],
            ["'1'::numeric", "numeric", "DECIMAL"],
            ["'1'", string_type, string_type],
            ["'2013-11-03 00:00:00'::timestamp", "timestamp", "TIMESTAMP"],
            ["'2013-11-03 00:00:00-07'::timestamptz", "timestamptz", "TIMESTAMP WITH TIME ZONE"],
        ]

    @pytest.fixture(scope="class")
    def expected_error_messages(self) -> list[str]:
        return ["NOT NULL constraint failed"]


class TestContractOfTable(Contracts, constraints.BaseTableConstraintsColumnsEqual):
    pass


class TestContractOfIncremental(Contracts, constraints.BaseIncrementalConstraintsColumnsEqual):
    pass


class TestBrokenConstraint(Contracts, constraints.BaseConstraintsRollback):
    pass


class TestBrokenConstraintOfIncremental(Contracts, constraints.BaseIncrementalConstraintsRollback):
    pass


class TestDocs(Stored, docs.BasePersistDocs):
    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, object]:
        return self.config(**{"+persist_docs": {"relation": True, "columns": True}})


class TestDocsOfQuotedColumn(Stored, docs.BasePersistDocsCommentOnQuotedColumn):
    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, object]:
        return self.config(**{"+persist_docs": {"relation": True, "columns": True}})


class Hooked(Stored):
    """The hooks write to a table in DuckDB, inside and outside of the transaction of a model."""

    @pytest.fixture(scope="class")
    def test_data_dir(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("data")
        names = re.findall(r"\w+", hooks.MODEL_PRE_HOOK.partition("(")[2].partition(")")[0])
        columns = ", ".join(f"{name} VARCHAR" for name in names)
        create = f"CREATE OR REPLACE TABLE {{schema}}.on_model_hook ({columns})"
        (folder / "seed_model.sql").write_text(create)
        return folder

    def check_hooks(self, state: str, project: Any, _host: object, count: int = 1) -> None:
        found = self.get_ctx_vars(state, count=count, project=project)  # type: ignore[attr-defined]
        assert {each["target_type"] for each in found} == {"duckdb"}
        assert all(each["invocation_id"] for each in found)

    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, object]:
        vacuum = {"sql": "vacuum {{ this.schema }}.on_model_hook", "transaction": False}
        before, after = [hooks.MODEL_PRE_HOOK, vacuum], [vacuum, hooks.MODEL_POST_HOOK]
        return self.config(**{"pre-hook": before, "post-hook": after})


class TestHooks(Hooked, hooks.BasePrePostModelHooks):
    pass


class TestHooksOfModelAndProject(Hooked, hooks.BasePrePostModelHooksInConfigWithCount):
    pass


class TestHooksOfModel(Hooked, hooks.BasePrePostModelHooksInConfig):
    @pytest.fixture(scope="class")
    def project_config_update(self) -> dict[str, object]:
        return self.config()


class TestDuplicateHooks(Stored, hooks.BaseDuplicateHooksInConfigs):
    pass


class TestFailuresOfGenericTests(Stored, failures_as.StoreTestFailuresAsGeneric):
    pass


class TestFailuresAsTables(Stored, failures_as.StoreTestFailuresAsInteractions):
    pass


class TestFailureLimit(Stored, failures.BaseStoreTestFailuresLimit):
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
