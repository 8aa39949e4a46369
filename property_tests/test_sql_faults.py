"""Whichever store call of a statement fails, the table is at a whole snapshot.

A statement makes one snapshot; two in a table whose writes compact. A query sees the rows of
before, or those of a snapshot that the statement makes, and nothing between.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from lakecore.errors import LakecoreError
from lakecore.sql.engine import SqlEngine
from property_tests.deeds import PAST, PATH, Scene, copy_of, rows_of, snapshot_ids, write
from property_tests.profile import calls_of
from tests.stores import FailingStore, StoreFailure

if TYPE_CHECKING:
    from pathlib import Path

    from lakecore.io.stores.store import Store
    from lakecore.table.handle import Table

T = f'"{PATH}"'
ROWS = "VALUES ('mon', 'a', 'late'), ('mon', 'z', 'new')"
STATEMENTS = {
    "insert": f"INSERT INTO {T} (day, id, status) {ROWS}",
    "overwrite": f"INSERT OVERWRITE {T} (day, id, status) {ROWS}",
    "update": f"UPDATE {T} SET status = 'paid' WHERE id < 'c'",
    "update by query": f"UPDATE {T} SET status = (SELECT 'x') WHERE id IN (SELECT 'b')",
    "delete": f"DELETE FROM {T} WHERE id >= 'b'",
    "delete by query": f"DELETE FROM {T} WHERE id IN (SELECT 'b')",
    "merge": f"MERGE INTO {T} AS t USING ({ROWS}) AS s(day, id, status) ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET status = s.status WHEN NOT MATCHED THEN INSERT * "
    "WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "truncate": f"TRUNCATE TABLE {T}",
    "copy": f"COPY INTO {T} FROM '{{files}}' FILE_FORMAT = (TYPE = CSV)",
}
SCENES = {
    "keyed": Scene(options={"bucket": "1"}, past=PAST, deed=write(())),
    "with vectors": Scene(
        options={"bucket": "1", "deletion-vectors.enabled": "true"}, past=PAST, deed=write(())
    ),
    "append": Scene(keyed=False, past=PAST[:1], deed=write(())),
}


def run(scene: Scene, store: Store, text: str) -> None:
    def opened(_path: str, **_options: object) -> Table:
        return scene.open(store)

    SqlEngine(None, opened).run(text, scope=lambda _name: None).fetchall()


CASES = [
    *(("keyed", verb) for verb in STATEMENTS),
    *(("append", verb) for verb in ("update", "delete by query", "merge")),
    *(("with vectors", verb) for verb in ("overwrite", "delete", "merge")),
]


@pytest.mark.parametrize(("name", "verb"), CASES)
def test_a_failed_statement_leaves_a_whole_snapshot(name: str, verb: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("mon,a,late\nmon,z,new\n")
    scene, text = SCENES[name], STATEMENTS[verb].replace("{files}", str(tmp_path))
    store = scene.build()
    healthy = copy_of(store)
    run(scene, healthy, text)
    first, last = (snapshot_ids(scene.open(each))[-1] for each in (store, healthy))
    whole = [rows_of(scene.open(healthy), each) for each in range(first, last + 1)]
    assert whole[0] == rows_of(scene.open(store))
    assert whole[0] != whole[-1]
    for replied in (False, True):
        for call in calls_of(name, verb, str(replied)):
            left = copy_of(store)
            failing = FailingStore(left, fail_at=call, after=not replied)
            with suppress(StoreFailure, LakecoreError):
                run(scene, failing, text)
            ids = snapshot_ids(scene.open(left))

            assert ids == tuple(range(1, ids[-1] + 1))
            assert first <= ids[-1] <= last
            assert rows_of(scene.open(left)) == whole[ids[-1] - first]
            if not failing.is_dead:
                assert ids[-1] == last
                break
