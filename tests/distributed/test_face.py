"""What the Spark bridge may import of lakecore is what it does import, and no more."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from lakecore import distributed

FACE = "lakecore.distributed"
ROOT = Path(__file__).parents[2]


def imports_of(tree: ast.AST) -> set[tuple[str, str]]:
    """The module and name of each import of lakecore."""
    found = {
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }
    return {(module, name) for module, name in found if module.partition(".")[0] == "lakecore"}


def test_the_face_offers_what_the_bridge_uses_and_no_more() -> None:
    files = [
        path
        for folder in ("spark_bridge", "pyspark_lakecore")
        for path in (ROOT / folder).glob("**/*.py")
    ]
    imported = set[tuple[str, str]]().union(*(imports_of(ast.parse(p.read_text())) for p in files))

    assert {name for module, name in imported if module == FACE} == {*dir(distributed)}


def test_types_are_checked_as_the_names_are_imported() -> None:
    """The imports for the type checker name the modules that the names are imported from."""
    named = imports_of(ast.parse((ROOT / "lakecore/distributed.py").read_text()))

    assert named - {("lakecore.deferred", "named")} == {
        (home, name) for home, names in distributed.HOMES.items() for name in names.split()
    }


def test_each_name_is_found() -> None:
    assert all(hasattr(distributed, name) for name in dir(distributed))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = distributed.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "names",
    [
        "retype, with_offsets",
        "decoder_for, TargetRows, open_catalog",
        "describe, anchored, TableDescriptor",
        "bucket_ids, conform, hash_rows, read_hashes",
        "read_split, SplitFiles, reader, to_polars",
        "TableContext, of_job, IN_THREADS, reload_context",
        "DataFile, TableSchema, Split, wall_time, BucketFunction",
        "do_work, rescale_part, ColumnSketch",
        "batch_writer, evolution_for, read_start, check_once",
    ],
)
def test_a_task_loads_no_part_of_the_driver(names: str) -> None:
    heavy = ["duckdb", "typer", "lakecore.session", "lakecore.table.handle"]
    code = f"""
        import sys
        from {FACE} import {names}
        print([name for name in {heavy} if name in sys.modules])
    """.replace("\n        ", "\n")

    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
