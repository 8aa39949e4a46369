"""Changes of a schema: lakecore makes those that Java makes, with the same schema after them.

Lists of random changes, each made by both on copies of one table, with rows and without.
"""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import lakecore as lc
from tests.interop import limits
from tests.interop.columns import Column, parse_type
from tests.interop.lakecore_engine import LakecoreEngine
from tests.interop.model import Case
from tests.interop.protocol import PeerRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.columns import Json
    from tests.interop.engines import PeerEngine, SchemaStep

pytestmark = pytest.mark.interop

TYPES = {
    "k": "INT NOT NULL",
    "p": "STRING NOT NULL",
    "v": "INT",
    "w": "BIGINT NOT NULL",
    "s": "STRING",
    "d": "DATE",
    "r": "ROW<a INT, b STRING>",
    "ar": "ARRAY<ROW<a INT, b STRING>>",
    "m": "MAP<STRING, INT>",
    "q": "INT",
}
COLUMNS = tuple(Column(name, parse_type(kind)) for name, kind in TYPES.items())
ROW = {**dict.fromkeys(TYPES), "k": 1, "p": "a", "v": 1, "w": 1, "s": "s", "q": 1}
TABLES = (
    Case(
        name="deduplicate",
        columns=COLUMNS,
        commits=(),
        primary_keys=("k", "p"),
        partition_keys=("p",),
        options={"bucket": "2", "snapshot.num-retained.min": "2"},
    ),
    Case(
        name="append",
        columns=COLUMNS,
        commits=(),
        partition_keys=("p",),
        options={"bucket": "2", "bucket-key": "v"},
    ),
    Case(
        name="aggregation",
        columns=COLUMNS,
        commits=(),
        primary_keys=("k",),
        options={
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
            "fields.s.aggregate-function": "listagg",
        },
    ),
    Case(
        name="partial-update",
        columns=COLUMNS,
        commits=(),
        primary_keys=("k",),
        options={
            "bucket": "1",
            "merge-engine": "partial-update",
            "fields.q.sequence-group": "v,s",
        },
    ),
)
ATOMIC = (
    *("INT", "BIGINT", "STRING", "DOUBLE", "DATE", "TIMESTAMP(3)", "DECIMAL(10, 2)", "BOOLEAN"),
    *("VARCHAR(5)", "SMALLINT", "BYTES", "INT NOT NULL", "STRING NOT NULL", "TINYINT", "TIME(0)"),
    *("CHAR(3)", "FLOAT"),
)
NESTED = ("ARRAY<INT>", "MAP<STRING, INT>", "ROW<a INT, b STRING>", "ARRAY<ROW<a INT, b STRING>>")
PATHS: tuple[tuple[str, ...], ...] = (
    *(("r", "a"), ("r", "b"), ("r", "zz"), ("r", "new")),
    *(("ar", "element", "a"), ("ar", "element", "b"), ("ar", "element"), ("ar", "element", "new")),
    *(("m", "value"), ("m", "key"), ("m", "zz"), ("v", "a")),
)
PLACES = (("first",), ("last",), ("after", "v"), ("before", "s"), ("after", "zz"), ("before", "k"))
OPTIONS = (
    ("write-only", "true"),
    ("bucket", "4"),
    ("bucket", "-1"),
    ("merge-engine", "first-row"),
    ("sequence.field", "v"),
    ("sequence.field", "w"),
    ("changelog-producer", "lookup"),
    ("file.format", "orc"),
    ("fields.v.aggregate-function", "sum"),
    ("target-file-size", "1 mb"),
    ("zz", "1"),
    ("snapshot.num-retained.min", "3"),
    ("primary-key", "k"),
    ("partition", "p"),
    ("path", "/x"),
    ("bucket-key", "k"),
    ("deletion-vectors.enabled", "true"),
    ("rowkind.field", "s"),
    ("full-compaction.delta-commits", "3"),
    ("consumer-id", "c"),
    ("disable-explicit-type-casting", "true"),
    ("add-column-before-partition", "true"),
)
STRICTER = (
    # Java reads its own text of the values, and no change leads back.
    "no change leads from it back to a nested type",
    # Java changes nothing, something else, or the comment of what can have none.
    "only a field of a ROW has a name of its own",
    "the path does not lead into this type",
    "the key type of a MAP cannot change",
    # Rows would be looked for in other buckets.
    "the type of a bucket key cannot change",
    # Java fails with the first rows.
    "the aggregate function does not support the column's type",
    "the default value is not a value of the column's type",
    # They would do nothing.
    "unknown table option",
    "the option needs a primary key",
    "the option cannot change. option=path",
    # Keys are partitioned across, which only dynamic buckets allow.
    "the primary key must contain every partition key",
)
NOTHING_CHANGES = (
    # An option that is not set, keys and types as they are.
    "is not supported yet",
    "on DDL and table options at the same time",
    "Cannot move itself",
    "[DATE] cannot be converted to DATE ",
)
VERBS = (
    *("add", "add", "drop", "rename", "retype", "retype", "retype", "nullable", "comment"),
    *("default", "move", "set", "remove", "describe"),
)
LISTS = 300


@pytest.mark.parametrize("seed", range(3))
def test_both_make_the_same_changes(
    peers: Callable[[str], PeerEngine], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    lists = [[_drawn(chance) for _ in range(chance.choice((1, 1, 1, 2, 3)))] for _ in range(LISTS)]
    templates = [_template(tmp_path / "empty", case) for case in TABLES]
    templates += [_template(tmp_path / "filled", case) for case in TABLES]
    for template in templates[len(TABLES) :]:
        lc.open_table(template).write([ROW])
    ours: list[Path] = []
    theirs: list[Path] = []
    for at in range(LISTS):
        template = chance.choice(templates)
        for side, paths in (("lakecore", ours), ("java", theirs)):
            path = tmp_path / side / f"{at}.db" / "t"
            shutil.copytree(template, path)
            paths.append(path)

    refusals = peers(limits.JAVA).alter_refusals(theirs, lists)

    others = []
    for mine, path, steps, refused in zip(ours, theirs, lists, refusals, strict=True):
        reason = _refusal(mine, steps)
        if reason and refused is None:
            known = reason.startswith("Unsupported") or any(each in reason for each in STRICTER)
        elif refused and reason is None:
            known = any(each in refused for each in NOTHING_CHANGES)
        else:
            known = reason is not None or _schema(mine) == _schema(path)
        if not known:
            schemas = f"  Java: {_schema(path)}\n  lakecore: {_schema(mine)}"
            others.append(f"{steps}\n  Java: {refused}\n  lakecore: {reason}\n{schemas}")
    assert not others, "\n".join(others)
    assert 0 < sum(refused is None for refused in refusals) < LISTS, "some of both"


def _template(warehouse: Path, case: Case) -> Path:
    path = warehouse / "x.db" / case.name
    LakecoreEngine().create(path, case)
    return path


def _refusal(path: Path, steps: list[SchemaStep]) -> str | None:
    try:
        LakecoreEngine().alter(path, steps)
    except PeerRefused as refused:
        return refused.reason
    return None


def _schema(path: Path) -> dict[str, Json]:
    """The newest schema, without what tells who wrote it, and when."""
    newest = max((path / "schema").iterdir(), key=lambda file: int(file.name.split("-")[1]))
    found: dict[str, Any] = json.loads(newest.read_text())
    found["comment"] = found.get("comment") or ""
    return {key: value for key, value in found.items() if key not in ("timeMillis", "version")}


def _drawn(chance: random.Random) -> SchemaStep:
    verb = chance.choice(VERBS)
    name = chance.choice((*TYPES, "new", "zz", "K"))
    path = name if chance.random() < 0.7 else chance.choice(PATHS)
    match verb:
        case "add":
            place = chance.choice((None, *PLACES)) if isinstance(path, str) else None
            added = f"new{chance.randrange(3)}" if chance.random() < 0.4 else path
            return verb, added, chance.choice(ATOMIC + NESTED), place
        case "drop":
            return verb, path
        case "rename":
            return verb, path, chance.choice(("new", "v", "s", "K", "x y", ""))
        case "retype":
            return verb, path, chance.choice((*ATOMIC, "ARRAY<INT>", "ROW<a INT, b STRING>"))
        case "nullable":
            return verb, path, chance.random() < 0.5
        case "comment":
            return verb, path, chance.choice(("c", ""))
        case "default":
            return verb, name, chance.choice(("1", "abc", "true", "2020-01-01", "1.5", None))
        case "move":
            return verb, name, chance.choice(PLACES)
        case "set":
            return verb, *chance.choice(OPTIONS)
        case "remove":
            return verb, chance.choice(OPTIONS)[0]
        case _:
            return verb, chance.choice(("c", None))
