"""Writes that Java Paimon played, played by lakecore: the files are described alike.

The plain writes with which a scenario begins, up to the first that Java followed by a compaction,
go through a table of our own. What lakecore's metadata says of each snapshot (record counts; of
each file its bucket, rows, deletions, sequence numbers, key range, statistics; of each index its
rows) must be what Java's said. `tests/golden/test_fixtures.py` is about reading.

Statistics differ in four ways, in each of which ours say less, or the truth (`alike`):

- nulls of nested columns are counted by 0.9 for ORC alone, and not at all by 2.1;
- bounds of binary columns are kept by 2.1 for Avro alone;
- a least value 0.0 is -0.0 in a Parquet footer, and 2.1 does not always take it from there;
- Java's ORC writer adds a second to a time with a fraction before 1970, in data and bounds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.format.binary_row import decode_rows
from lakecore.format.statistics import stats_frame
from lakecore.model.rows import ROW_KIND
from tests.interop import values
from tests.interop.arrow_values import from_arrow, to_arrow
from tests.interop.columns import columns_from_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakecore.model.files import DataFile
    from lakecore.model.manifest import ManifestEntry
    from lakecore.table.handle import Table
    from tests.interop.columns import Column

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED = ("expected.json", "expected-head.json")
OLD_FRACTIONS = "append_all_types_orc"
"""Its rows have timestamps before 1970 with a fraction of a second, which ORC refuses here."""
ONE_INDEX_A_COLUMN = "file_indexes/expected.json"
"""Paimon 0.9 wrote one of the two file indexes that a column asks for."""
PLAYED = [
    f"{file.parent.name}/{file.name}"
    for name in EXPECTED
    for file in sorted(FIXTURES.glob(f"*/{name}"))
    if file.parent.name != OLD_FRACTIONS and f"{file.parent.name}/{file.name}" != ONE_INDEX_A_COLUMN
]


class Scenario:
    """What Java did and saw: the plain writes at the beginning, and the lines of each."""

    def __init__(self, name: str) -> None:
        content = json.loads((FIXTURES / name).read_text("utf-8"))
        self.schema: dict[str, Any] = content["scenario"]["schema"]
        fields = [{"id": 0, **field} for field in self.schema["fields"]]
        self.columns: list[Column] = list(columns_from_json(fields))
        self.writes: list[tuple[dict[str, Any], dict[str, dict[str, Any]]]] = []
        lines = content["results"]
        for number, step in enumerate(content["scenario"]["steps"]):
            start = next(n for n, line in enumerate(lines) if line.get("step") == number)
            own = [line for line in lines[start + 1 : start + 8] if "snapshot" in line]
            if step["op"] != "write" or not own:
                break
            first = {line["line"]: line for line in own if line["snapshot"] == own[0]["snapshot"]}
            self.writes.append((step, first))
            if len(lines[start]["snapshots"]) != number + 1:
                break

    @property
    def keys(self) -> list[Column]:
        """The columns of the key within a partition."""
        names = [n for n in self.schema["primaryKey"] if n not in self.schema["partitionKeys"]]
        return self.named(names)

    @property
    def partitions(self) -> list[Column]:
        """The partition columns."""
        return self.named(self.schema["partitionKeys"])

    def named(self, names: Iterable[str]) -> list[Column]:
        """Columns by name."""
        by_name = {column.name: column for column in self.columns}
        return [by_name[name] for name in names]


def created(scenario: Scenario, path: Path) -> Table:
    """A table of our own, which leaves compaction to others."""
    schema = scenario.schema
    return lc.open_table(
        path,
        create=True,
        schema={column.name: column.type.text for column in scenario.columns},
        primary_keys=schema["primaryKey"],
        partition_keys=schema["partitionKeys"],
        options={**schema["options"], "write-only": "true"},
    )


def play(table: Table, step: dict[str, Any], columns: Sequence[Column]) -> None:
    """One write of the scenario."""
    kinds = [kind for kind, _ in step["rows"]]
    data = to_arrow([row for _, row in step["rows"]], columns, table.schema.arrow)
    if table.schema.primary_keys:
        data = data.append_column(ROW_KIND, pa.array(kinds, pa.string()))
    table.copy(step.get("options", {})).write(data)


def described(entry: ManifestEntry, table: Table, scenario: Scenario) -> dict[str, Any]:
    """A file as Java's lines describe one."""
    file = entry.file
    schema = table.schema
    partition = table.context.partitions.values([entry.partition])
    keys = decode_rows([file.key_min, file.key_max], schema.key_fields)
    low, high, nulls = stats_frame([file], schema, list(schema.names))
    ranges = _rows(keys, scenario.keys) if scenario.keys else [None, None]
    return {
        "partition": _rows(partition, scenario.partitions)[0] if scenario.partitions else [],
        "bucket": entry.bucket,
        "totalBuckets": entry.total_buckets,
        "level": file.level,
        "rows": file.row_count,
        "deletes": file.delete_row_count,
        "schema": file.schema_id,
        "minSeq": file.sequence_min,
        "maxSeq": file.sequence_max,
        "minKey": ranges[0],
        "maxKey": ranges[1],
        "min": _rows(low, scenario.columns)[0],
        "max": _rows(high, scenario.columns)[0],
        "nulls": list(nulls.to_pylist()[0].values()),
        "source": None if file.file_source is None else file.file_source.name,
        "format": file.format,
        "extraFiles": len(file.extra_files),
        "embeddedIndex": _size(file),
    }


def _rows(batch: pa.RecordBatch, columns: Sequence[Column]) -> list[Any]:
    return from_arrow(pa.Table.from_batches([batch]), columns)


def _size(file: DataFile) -> int:
    return 0 if file.embedded_index is None else len(file.embedded_index)


def canonical(line: dict[str, Any], scenario: Scenario) -> dict[str, Any]:
    """Java's description of a file, its values in the written form that ours have."""
    out = dict(line)
    rows = {
        "partition": scenario.partitions,
        "minKey": scenario.keys,
        "maxKey": scenario.keys,
        "min": scenario.columns,
        "max": scenario.columns,
    }
    for name, columns in rows.items():
        if out.get(name) is not None:
            out[name] = values.canonical_rows([out[name]], columns)[0]
    return out


def alike(line: dict[str, Any], scenario: Scenario) -> dict[str, Any]:
    """A description without what may differ; see the top of this file."""
    out = dict(line)
    if "min" in line:
        for name in ("min", "max"):
            out[name] = [
                _bound(value, column, line["format"])
                for value, column in zip(line[name], scenario.columns, strict=True)
            ]
        out["nulls"] = [
            None if column.type.children else count
            for count, column in zip(line["nulls"], scenario.columns, strict=True)
        ]
    return out


def _bound(value: Any, column: Column, file_format: str) -> Any:
    if column.type.root in values.BINARIES:
        return None
    if file_format == "orc" and value == "1970-01-01T00:00:00.999999":
        return "1969-12-31T23:59:59.999999"
    return "0.0" if value == "-0.0" else value


def in_order(found: Iterable[dict[str, Any]]) -> list[str]:
    """Descriptions as text, in one order."""
    return sorted(json.dumps(each, sort_keys=True) for each in found)


def common(ours: list[dict[str, Any]], java: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Both descriptions, in what Java's have."""
    names = set.intersection(*(set(line) for line in java)) if java else set()
    cut = [{key: value for key, value in line.items() if key in names} for line in ours]
    theirs = [{key: value for key, value in line.items() if key in names} for line in java]
    return in_order(cut), in_order(theirs)


def test_every_scenario_is_played() -> None:
    names = {file.parent.name for name in EXPECTED for file in FIXTURES.glob(f"*/{name}")}

    assert names == {name.partition("/")[0] for name in PLAYED} | {OLD_FRACTIONS}
    assert sum(len(Scenario(name).writes) for name in PLAYED) >= 40


@pytest.mark.parametrize("name", PLAYED)
def test_plain_writes_are_described_as_java_describes_its_own(name: str, tmp_path: Path) -> None:
    scenario = Scenario(name)
    table = created(scenario, tmp_path / "t")
    history = table.context.history
    for step, lines in scenario.writes:
        play(table, step, scenario.columns)
        snapshot = history.latest_snapshot()
        assert snapshot is not None
        java, files = lines["snapshot"], lines["files"]
        changelog = history.entries(history.manifest_list(snapshot.changelog_manifest_list))

        assert (snapshot.commit_kind, snapshot.schema_id) == (java["kind"], java["schema"])
        assert snapshot.total_record_count == java["totalRecords"]
        assert snapshot.delta_record_count == java["deltaRecords"]
        assert (snapshot.changelog_record_count or 0) == (java["changelogRecords"] or 0)
        for entries, wanted in (
            (history.live_entries(snapshot), files["data"]),
            (changelog, files["changelog"]),
        ):
            ours, theirs = common(
                [alike(described(entry, table, scenario), scenario) for entry in entries],
                [alike(canonical(line, scenario), scenario) for line in wanted],
            )
            assert ours == theirs
        indexes = [
            {
                "type": entry.file.index_type,
                "partition": _rows(
                    table.context.partitions.values([entry.partition]), scenario.partitions
                )[0]
                if scenario.partitions
                else [],
                "bucket": entry.bucket,
                "rowCount": entry.file.row_count,
            }
            for entry in history.index_entries(snapshot)
        ]
        assert in_order(indexes) == in_order(files["index"])


def test_fractions_of_seconds_before_1970_are_refused_in_orc(tmp_path: Path) -> None:
    scenario = Scenario(f"{OLD_FRACTIONS}/expected-head.json")
    table = created(scenario, tmp_path / "t")
    (first, _), (second, _) = scenario.writes[:2]
    play(table, first, scenario.columns)

    with pytest.raises(lc.Unsupported, match="before 1970"):
        play(table, second, scenario.columns)
