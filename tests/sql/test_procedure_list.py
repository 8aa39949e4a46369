"""Which procedures of Paimon there are, and which of them lakecore has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lakecore as lc
from lakecore.options import find_option
from lakecore.sql.procedures.registry import PROCEDURES, UNSUPPORTED
from tests.reference_pages import procedures_page

PAGE = Path(__file__).parents[2] / "docs" / "procedures.md"
OF_PAIMON = frozenset(
    """
    alter_column_default_value alter_function alter_view_dialect clear_consumers clone compact
    compact_chain_table compact_database compact_manifest copy copy_files create_branch
    create_function create_global_index create_privileged_user create_tag create_tag_from_timestamp
    create_tag_from_watermark data_evolution_merge_into delete_branch delete_tag drop_function
    drop_global_index drop_partition drop_privileged_user expire_changelogs expire_partitions
    expire_snapshots expire_tags fast_forward full_text_search grant_privilege_to_user
    init_file_based_privilege mark_partition_done materialize_deletion_vectors merge_branch
    merge_into migrate_database migrate_file migrate_table purge_files query_service reassign_row_id
    remove_orphan_files remove_unexisting_files remove_unexisting_manifests rename_branch rename_tag
    repair repair_earliest_snapshot replace_tag rescale reset_consumer revoke_privilege_from_user
    rewrite_file_index rollback rollback_to rollback_to_as_latest rollback_to_timestamp
    rollback_to_watermark trigger_tag_automatic_creation vector_search
    """.split()  # noqa: SIM905  one name a word
)
"""The procedures of Flink and Spark in Paimon 1.4 and 2.0."""
OWN = {"export_iceberg"}


def test_each_procedure_of_paimon_is_supported_or_refused_with_a_reason() -> None:
    assert set(PROCEDURES) | set(UNSUPPORTED) == OF_PAIMON | OWN
    assert not set(PROCEDURES) & set(UNSUPPORTED)


def test_page_of_procedures_is_up_to_date() -> None:
    remedy = "python -m tests.reference_pages procedures > docs/procedures.md"

    assert PAGE.read_text() == procedures_page(), f"write it again: {remedy}"


def test_each_default_that_is_an_option_is_one() -> None:
    named = [
        key
        for procedure in PROCEDURES.values()
        for argument in procedure.arguments
        for key in re.findall(r"`([a-z.-]+[a-z])`", argument.default)
    ]

    assert len(named) > 10
    assert [key for key in named if find_option(key) is None] == []


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_a_call_says_why_it_is_refused(name: str) -> None:
    with pytest.raises(lc.Unsupported) as raised:
        lc.sql(f"CALL sys.{name}('t')")

    assert UNSUPPORTED[name] in str(raised.value)
