"""When Iceberg metadata is written, what it continues, what it deletes, and what a failure does."""

from __future__ import annotations

import io
import json
import shutil
import threading
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest

import lakecore as lc
from lakecore.cli import main
from lakecore.errors import AlreadyExists, InvalidRequest, StorageError, Unsupported
from lakecore.format.iceberg import manifests
from lakecore.format.iceberg.documents import IDENTITY, is_own

if TYPE_CHECKING:
    from collections.abc import Mapping

GOLDEN = Path(__file__).parents[2] / "golden" / "iceberg"
VECTORS = {
    "bucket": "1",
    "deletion-vectors.enabled": "true",
    "deletion-vectors.bitmap64": "true",
    "metadata.iceberg.format-version": "3",
}

KEEP_FEW = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "3"}


def new_table(
    warehouse: Path,
    keys: tuple[str, ...] = (),
    given: Mapping[str, str] | None = None,
    **options: str,
) -> lc.Table:
    catalog = lc.connect(warehouse, create=True)
    catalog.create_database("db", ignore_if_exists=True)
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return catalog.create_table(
        "db.t",
        {"id": "INT NOT NULL", "v": "STRING"},
        primary_keys=keys,
        options={"metadata.iceberg.storage": "table-location", **stated, **(given or {})},
    )


def put(table: lc.Table, *ids: int) -> Any:
    return table.write([{"id": number, "v": "x"} for number in ids])


def directory(table: lc.Table) -> Path:
    return Path(table.path) / "metadata"


def document(table: lc.Table, place: Path | None = None) -> Any:
    place = directory(table) if place is None else place
    version = (place / "version-hint.text").read_text()
    return json.loads((place / f"v{version}.metadata.json").read_text())


def shown(table: lc.Table) -> dict[int, dict[str, int]]:
    """The rows of each visible data file, by snapshot."""
    found = {}
    for snapshot in document(table)["snapshots"]:
        path = directory(table) / Path(snapshot["manifest-list"]).name
        rows: dict[str, int] = {}
        for line in manifests.decode_list(path.read_bytes(), ""):
            inner = directory(table) / Path(line["manifest_path"]).name
            for each in manifests.decode_manifest(inner.read_bytes(), ""):
                record = each["data_file"]
                sign = -1 if record["content"] else 1
                name = Path(record["file_path"]).name
                rows[name] = rows.get(name, 0) + sign * record["record_count"]
        found[snapshot["snapshot-id"]] = rows
    return found


def rows_shown(table: lc.Table) -> int:
    return sum(shown(table)[document(table)["current-snapshot-id"]].values())


# --- commits -------------------------------------------------------------------------------------


def test_each_commit_adds_its_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1, 2)
    put(table, 3)
    found = document(table)

    assert [each["snapshot-id"] for each in found["snapshots"]] == [1, 2]
    assert [sum(rows.values()) for rows in shown(table).values()] == [2, 3]
    assert found["snapshots"][1]["parent-snapshot-id"] == 1
    assert found["snapshots"][1]["summary"]["added-records"] == "1"
    assert found["snapshots"][1]["summary"]["total-records"] == "3"
    assert found["current-snapshot-id"] == found["last-sequence-number"] == 2


def test_table_without_the_option_has_no_metadata_until_it_is_exported(tmp_path: Path) -> None:
    table = new_table(tmp_path, metadata__iceberg__storage="disabled")
    assert table.export_iceberg().metadata_path is None
    put(table, 1)
    assert not directory(table).exists()
    done = table.export_iceberg()

    assert done.metadata_path == f"{directory(table)}/v1.metadata.json"
    assert (done.snapshot_id, done.snapshots_added, done.rebuilt) == (1, 1, True)
    put(table, 2)
    put(table, 3)

    assert table.export_iceberg().snapshots_added == 2
    assert rows_shown(table) == 3
    assert "v3.metadata.json" in str(table.export_iceberg())


def test_procedure_and_command_do_what_the_method_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = new_table(tmp_path, metadata__iceberg__storage="disabled")
    put(table, 1)
    called = lc.connect(tmp_path).sql("CALL sys.export_iceberg('db.t')").fetchall()
    put(table, 2)
    with pytest.raises(SystemExit):
        main(["iceberg", "db.t", "--warehouse", str(tmp_path), "--json"])
    printed = json.loads(capsys.readouterr().out)
    put(table, 3)

    paths = [f"{directory(table)}/v{number}.metadata.json" for number in (1, 2, 3)]
    assert called == [(paths[0], 1)]
    assert (printed["metadata_path"], printed["snapshots_added"]) == (paths[1], 1)
    assert table.export_iceberg().metadata_path == paths[2]
    assert [sum(rows.values()) for rows in shown(table).values()] == [1, 2, 3]


def test_write_only_commits_are_published_too(tmp_path: Path) -> None:
    table = new_table(tmp_path, write_only="true")
    put(table, 1)

    assert rows_shown(table) == 1


def test_operations_are_those_of_the_changes(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1, 2)
    put(table, 3)
    table.compact(full=True)
    table.delete("id = 1")
    operations = [each["summary"]["operation"] for each in document(table)["snapshots"]]

    assert operations == ["append", "append", "replace", "overwrite"]
    assert rows_shown(table) == 2


def test_repeated_export_changes_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    before = {path.name: path.stat().st_mtime_ns for path in directory(table).iterdir()}
    table.export_iceberg()

    assert {path.name: path.stat().st_mtime_ns for path in directory(table).iterdir()} == before


def test_only_the_last_level_of_a_keyed_table_is_visible(tmp_path: Path) -> None:
    table = new_table(tmp_path, ("id",), {"bucket": "1", "write-only": "true"})
    put(table, 1, 2)
    assert rows_shown(table) == 0
    table.compact(full=True)
    put(table, 2, 3)

    assert rows_shown(table) == 2
    table.compact(full=True)

    assert rows_shown(table) == 3
    last = document(table)["snapshots"][-1]["summary"]
    assert (last["operation"], last["total-data-files"]) == ("overwrite", "1")


def test_vectors_hide_the_replaced_rows_of_a_keyed_table(tmp_path: Path) -> None:
    table = new_table(tmp_path, ("id",), VECTORS)
    put(table, 1, 2, 3)
    table.compact(full=True)
    put(table, 2, 9)
    last = document(table)["snapshots"][-1]["summary"]

    assert last["operation"] == "overwrite"
    assert (last["total-delete-files"], last["total-position-deletes"]) == ("1", "1")
    assert rows_shown(table) == table.count() == 4
    put(table, 10)

    assert rows_shown(table) == 5
    table.compact(full=True)
    assert document(table)["snapshots"][-1]["summary"]["total-delete-files"] == "0"
    assert rows_shown(table) == 5


def test_many_manifests_are_merged(tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        metadata__iceberg__compaction__min__file_num="2",
        metadata__iceberg__compaction__max__file_num="3",
    )
    for number in range(9):
        put(table, number)
    last = document(table)["snapshots"][-1]
    lines = manifests.decode_list(Path(last["manifest-list"]).read_bytes(), "")

    assert len(lines) <= 4
    assert sum(line["existing_files_count"] for line in lines) >= 3
    assert rows_shown(table) == 9


def test_schema_changes_keep_the_ids(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    catalog = lc.connect(tmp_path)
    catalog.alter_table("db.t", [lc.SchemaChange.rename_column("v", "w")])
    table = table.refresh()
    table.write([{"id": 2, "w": "y"}])
    found = document(table)
    names = [[field["name"] for field in each["fields"]] for each in found["schemas"]]

    assert names == [["id", "v"], ["id", "w"]]
    assert found["current-schema-id"] == 1
    assert [each["schema-id"] for each in found["snapshots"]] == [0, 1]


def test_type_that_iceberg_does_not_widen_stops_the_publication(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    catalog = lc.connect(tmp_path)
    catalog.alter_table("db.t", [lc.SchemaChange.update_column_type("id", "STRING")])
    table = table.refresh()
    done = table.write([{"id": "2", "v": "y"}])

    assert done.facts.get("iceberg_failed") is None  # the new file is of the new schema
    with pytest.raises(Unsupported, match="old type of a column"):
        table.export_iceberg(rebuild=True)


# --- tags, expiry, rollback ----------------------------------------------------------------------


def test_tags_are_refs(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    put(table, 2)
    table.create_tag("a", 1)
    table.create_tag("b", 2)
    table.rename_tag("a", "c")
    table.delete_tag("b")
    refs = document(table)["refs"]

    assert {name: (ref["snapshot-id"], ref["type"]) for name, ref in refs.items()} == {
        "c": (1, "tag")
    }


def test_expired_snapshots_leave_the_metadata_unless_tagged(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(5):
        put(table, number)
    table.create_tag("kept", 2)
    table.expire_snapshots(retain_max=2, retain_min=1)

    assert [each["snapshot-id"] for each in document(table)["snapshots"]] == [2, 4, 5]


def test_rollback_cuts_the_metadata_back(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(4):
        put(table, number)
    uuid = document(table)["table-uuid"]
    table.rollback_to(snapshot_id=2)

    assert (directory(table) / "version-hint.text").read_text() == "2"
    assert rows_shown(table) == 2
    assert not (directory(table) / "v4.metadata.json").exists()
    put(table, 7, 8, 9)
    found = document(table)

    assert [each["snapshot-id"] for each in found["snapshots"]] == [1, 2, 3]
    assert rows_shown(table) == 5
    assert found["table-uuid"] == uuid


def test_number_that_another_commit_took_is_published_again(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    put(table, 2)
    silent = table.copy({"metadata.iceberg.storage": "disabled"})
    silent.rollback_to(snapshot_id=1)
    put(silent, 3, 4, 5)
    identity = document(table)["snapshots"][-1]["summary"][IDENTITY]
    table.export_iceberg()

    assert document(table)["snapshots"][-1]["summary"][IDENTITY] != identity
    assert rows_shown(table) == 4


def test_damaged_document_of_the_next_snapshot_is_replaced(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    (directory(table) / "v2.metadata.json").write_text("{")
    put(table, 2, 3)

    assert [each["snapshot-id"] for each in document(table)["snapshots"]] == [1, 2]
    assert rows_shown(table) == 3


@pytest.mark.parametrize("number", [1, 2])
def test_manifest_of_other_files_stays_as_it_is(number: int, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    put(table, 2)

    def manifests_of_latest() -> list[str]:
        name = Path(document(table)["snapshots"][-1]["manifest-list"]).name
        lines = manifests.decode_list((directory(table) / name).read_bytes(), "")
        return [line["manifest_path"] for line in lines]

    before = manifests_of_latest()
    table.delete(f"id = {number}")
    after = manifests_of_latest()
    assert rows_shown(table) == 1
    assert len(set(before) & set(after)) == 1


@pytest.mark.parametrize(
    ("asked", "written"),
    [(None, "snappy"), ("deflate", "deflate"), ("zstd", "zstandard"), ("none", "null")],
)
def test_manifests_and_lists_are_compressed_as_asked(
    asked: str | None, written: str, tmp_path: Path
) -> None:
    stated = {} if asked is None else {"metadata.iceberg.manifest-compression": asked}
    table = new_table(tmp_path, ("id",), {**VECTORS, **stated})
    put(table, 1, 2)
    table.compact(full=True)
    put(table, 2)
    files = [path.read_bytes() for path in directory(table).glob("*.avro")]
    found = [fastavro.reader(io.BytesIO(data)) for data in files]

    assert {each.metadata["avro.codec"] for each in found} == {written}
    assert {each.metadata.get("content") for each in found} == {"data", "deletes", None}


def test_renamed_table_begins_again_with_its_own_paths(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    catalog = lc.connect(tmp_path)
    catalog.rename_table("db.t", "db.u")
    table = catalog.get_table("db.u")
    done = table.export_iceberg()

    assert done.rebuilt
    assert document(table)["location"] == table.path


# --- files ---------------------------------------------------------------------------------------


def test_old_files_are_deleted_and_all_named_files_are_there(tmp_path: Path) -> None:
    table = new_table(tmp_path, ("id",), {**VECTORS, **KEEP_FEW})
    for number in range(12):
        put(table, number % 4, number % 3)
    table.compact(full=True)
    put(table, 1)
    versions = sorted(path.name for path in directory(table).glob("v*.metadata.json"))
    named = set(versions) | {"version-hint.text"}
    for version in versions:
        for snapshot in json.loads((directory(table) / version).read_text())["snapshots"]:
            path = Path(snapshot["manifest-list"])
            named.add(path.name)
            for line in manifests.decode_list(path.read_bytes(), ""):
                inner = Path(line["manifest_path"])
                named.add(inner.name)
                for each in manifests.decode_manifest(inner.read_bytes(), ""):
                    if each["data_file"]["content"] == manifests.DELETES:
                        named.add(Path(each["data_file"]["file_path"]).name)

    assert len(versions) == 2
    assert {path.name for path in directory(table).iterdir()} == named


def test_list_that_is_gone_does_not_end_the_clean_up(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for number in range(3):
        put(table, number)
    lists = [Path(each["manifest-list"]) for each in document(table)["snapshots"]]
    lists[0].unlink()
    for least in (3, 2):
        table.expire_snapshots(retain_max=least, retain_min=1)
        put(table, 10 + least)

    assert [each["snapshot-id"] for each in document(table)["snapshots"]] == [3, 4, 5]
    put(table, 20)
    assert [path.exists() for path in lists] == [False, False, True]
    assert rows_shown(table) == 6


def test_previous_versions_are_kept_as_asked(tmp_path: Path) -> None:
    table = new_table(tmp_path, metadata__iceberg__previous_versions_max="3")
    for number in range(6):
        put(table, number)

    assert len(list(directory(table).glob("v*.metadata.json"))) == 4
    kept = table.copy({"metadata.iceberg.delete-after-commit.enabled": "false"})
    put(kept, 9)

    assert len(list(directory(table).glob("v*.metadata.json"))) == 5


def test_hadoop_catalog_is_a_folder_of_the_warehouse(tmp_path: Path) -> None:
    table = new_table(tmp_path, metadata__iceberg__storage="hadoop-catalog")
    put(table, 1)
    place = tmp_path / "iceberg" / "db" / "t" / "metadata"

    assert document(table, place)["location"] == table.path
    assert not directory(table).exists()


@pytest.mark.parametrize("in_warehouse", [True, False], ids=["catalog", "table"])
def test_directory_is_chosen_apart_from_the_storage(in_warehouse: object, tmp_path: Path) -> None:
    options = {
        "metadata.iceberg.storage": "table-location" if in_warehouse else "hadoop-catalog",
        "metadata.iceberg.storage-location": (
            "catalog-location" if in_warehouse else "table-location"
        ),
    }
    table = new_table(tmp_path, (), options)
    put(table, 1)
    warehouse = tmp_path / "iceberg" / "db" / "t"

    assert document(table, warehouse / "metadata" if in_warehouse else None)["snapshots"]
    assert (warehouse.exists(), directory(table).exists()) == (in_warehouse, not in_warehouse)
    lc.connect(tmp_path).drop_table("db.t")

    assert not warehouse.exists()


@pytest.mark.parametrize("verb", ["drop", "rename"])
def test_metadata_in_the_warehouse_goes_with_its_table(verb: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, metadata__iceberg__storage="hadoop-catalog")
    put(table, 1)
    place = tmp_path / "iceberg" / "db" / "t"
    for foreign in ("own", "metadata/notes.txt", "metadata/data/part.avro", "metadata/v.avro"):
        (place / foreign).parent.mkdir(exist_ok=True)
        (place / foreign).write_text("of somebody else")
    catalog = lc.connect(tmp_path)
    catalog.drop_table("db.t") if verb == "drop" else catalog.rename_table("db.t", "db.u")

    left = {path.name for path in place.rglob("*") if path.is_file()}
    assert left == {"own", "notes.txt", "part.avro", "v.avro"}


def test_metadata_directory_without_foreign_files_goes(tmp_path: Path) -> None:
    table = new_table(tmp_path, ("id",), VECTORS, metadata__iceberg__storage="hadoop-catalog")
    put(table, 1, 2)
    put(table, 2)
    table.compact(full=True)
    place = tmp_path / "iceberg" / "db" / "t" / "metadata"
    assert all(is_own(path.name) for path in place.iterdir())
    lc.connect(tmp_path).drop_table("db.t")

    assert not (tmp_path / "iceberg" / "db" / "t").exists()


def test_clean_up_deletes_no_foreign_file_that_a_document_names(tmp_path: Path) -> None:
    table = new_table(tmp_path, metadata__iceberg__previous_versions_max="1")
    put(table, 1)
    first = directory(table) / "v1.metadata.json"
    listed = next(directory(table).glob("snap-1-*.avro"))
    listed.rename(directory(table) / "mine.avro")
    first.write_text(first.read_text().replace(listed.name, "mine.avro"))
    for number in range(2, 6):
        put(table, number)

    assert not first.exists()
    assert (directory(table) / "mine.avro").exists()


def test_metadata_of_another_table_in_the_warehouse_is_not_touched(tmp_path: Path) -> None:
    table = new_table(tmp_path, metadata__iceberg__storage="hadoop-catalog")
    put(table, 1)
    place = tmp_path / "iceberg" / "db" / "t" / "metadata"
    for path in place.glob("*.json"):
        path.write_text(path.read_text().replace(f'"location": "{table.path}"', '"location": "/x"'))
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    done = put(table, 2)
    for rebuild in (False, True):
        with pytest.raises(AlreadyExists, match="another table"):
            table.export_iceberg(rebuild=rebuild)
    lc.connect(tmp_path).drop_table("db.t")

    assert done.facts["iceberg_failed"] == 1
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


@pytest.mark.parametrize("link", ["iceberg", "iceberg/db", "iceberg/db/t", "iceberg/db/t/metadata"])
def test_nothing_is_deleted_through_a_link_in_the_warehouse(link: str, tmp_path: Path) -> None:
    root = tmp_path / "warehouse"
    root.mkdir()
    table = new_table(
        root,
        metadata__iceberg__storage="hadoop-catalog",
        metadata__iceberg__previous_versions_max="1",
        metadata__iceberg__delete_after_commit__enabled="true",
    )
    put(table, 1)
    place, victim = root / link, tmp_path / "victim"
    place.rename(victim)
    place.symlink_to(victim)
    before = {path for path in victim.rglob("*") if path.is_file()}
    for number in range(2, 6):
        put(table, number)
    lc.connect(root).drop_table("db.t")

    assert before <= {path for path in victim.rglob("*") if path.is_file()}


def test_table_in_place_of_a_dropped_one_is_another_table(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    uuid = document(table)["table-uuid"]
    shutil.copytree(directory(table), tmp_path / "aside")
    lc.connect(tmp_path).drop_table("db.t")
    table = new_table(tmp_path)
    shutil.copytree(tmp_path / "aside", directory(table))
    put(table, 2, 3)

    assert document(table)["table-uuid"] != uuid
    assert rows_shown(table) == 2


def test_hadoop_catalog_needs_a_warehouse(tmp_path: Path) -> None:
    options = {"metadata.iceberg.storage": "hadoop-catalog"}
    table = lc.open_table(tmp_path / "t", schema={"id": "INT"}, create=True, options=options)
    with pytest.raises(InvalidRequest, match="in none"):
        table.write([{"id": 1}])


def test_properties_of_the_table_are_written(tmp_path: Path) -> None:
    table = new_table(tmp_path, (), {"metadata.iceberg.table-properties.owner": "me"})
    put(table, 1)

    assert document(table)["properties"] == {"owner": "me"}


def test_only_files_that_were_written_without_the_option_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = lc.connect(tmp_path, create=True)
    catalog.create_database("db")
    key, value = "metadata.iceberg.storage", "table-location"
    for name, options in (("always", {key: value}), ("late", {})):
        columns = {"at": "TIMESTAMP(3)", "us": "TIMESTAMP(6)"}
        catalog.create_table(f"db.{name}", columns, options=options)
        for _ in range(2):
            table = catalog.get_table(f"db.{name}")
            table.write([{"at": datetime(2024, 3, 1), "us": None}])
            catalog.alter_table(f"db.{name}", [lc.SchemaChange.set_option(key, value)])
        table.refresh().export_iceberg(rebuild=True)

    assert "table=db.always" not in caplog.text
    assert caplog.text.count("table=db.late columns=at\n") == 2


# --- failures ------------------------------------------------------------------------------------


def test_failed_publication_leaves_the_commit_and_the_next_one_repairs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    shutil.move(directory(table), tmp_path / "aside")
    directory(table).write_text("no directory")
    done = put(table, 2)

    assert done.facts["iceberg_failed"] == 1
    assert table.count() == 2
    assert "its Iceberg metadata was not written" in caplog.text
    directory(table).unlink()
    shutil.move(tmp_path / "aside", directory(table))

    assert put(table, 3).facts.get("iceberg_failed") is None
    assert [each["snapshot-id"] for each in document(table)["snapshots"]] == [1, 2, 3]
    assert rows_shown(table) == 3


def test_export_raises_what_a_commit_only_logs(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    directory(table).write_text("no directory")
    put(table, 1)
    with pytest.raises(StorageError):
        table.export_iceberg()


@pytest.mark.parametrize("damage", ["hint", "document", "manifest list"])
def test_damaged_metadata_is_replaced(tmp_path: Path, damage: str) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    hint, name = directory(table) / "version-hint.text", "v1.metadata.json"
    listed = Path(document(table)["snapshots"][0]["manifest-list"])
    {"hint": hint, "document": directory(table) / name, "manifest list": listed}[damage].unlink()
    put(table, 2)

    assert rows_shown(table) == 2


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"snapshots": 1}', "[1]", '{"format-version": 1e999}']
)
def test_document_that_is_none_fails_no_commit_and_is_replaced(tmp_path: Path, text: str) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    (directory(table) / "v1.metadata.json").write_text(text)
    put(table, 2)

    assert rows_shown(table) == 2


@pytest.mark.parametrize(
    ("types", "options", "error"),
    [
        ({"v": "VARIANT"}, {}, "column=v"),
        ({"v": "TIMESTAMP(9)"}, {}, "column=v"),
        ({"v": "INT"}, {"file.format": "orc"}, "file.format"),
        ({"v": "INT"}, {"deletion-vectors.enabled": "true"}, "deleted rows"),
    ],
)
def test_table_without_an_iceberg_form_is_refused_before_the_commit(
    types: dict[str, str], options: dict[str, str], error: str, tmp_path: Path
) -> None:
    table = lc.open_table(
        tmp_path / "t",
        schema={"id": "INT", **types},
        create=True,
        options={"metadata.iceberg.storage": "table-location", **options},
    )
    with pytest.raises((InvalidRequest, Unsupported), match=error):
        table.write([{"id": 1, "v": None}])

    assert table.inspect.snapshots().is_empty()
    assert not list(Path(table.path).rglob("data-*"))


def test_format_cannot_go_back(tmp_path: Path) -> None:
    table = new_table(tmp_path, metadata__iceberg__format_version="3")
    put(table, 1)
    with pytest.raises(InvalidRequest, match="cannot go back"):
        table.copy({"metadata.iceberg.format-version": "2"}).export_iceberg()


def test_branches_are_not_published(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    table.create_tag("a")
    table.create_branch("b", tag="a")
    put(table.branch("b"), 2)

    assert document(table)["current-snapshot-id"] == 1
    with pytest.raises(Unsupported, match="branch"):
        table.branch("b").export_iceberg()


# --- metadata of Java ----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rows"), [("append", 2), ("vectors", 2)])
def test_metadata_of_java_is_continued(name: str, rows: int, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / name, tmp_path / "t")
    table = lc.open_table(tmp_path / "t")
    for path in directory(table).glob("*.json"):  # the table has moved since Java wrote it
        path.write_text(path.read_text().replace(document(table)["location"], str(tmp_path / "t")))
    before = document(table)
    row = {column.name: None for column in table.schema.arrow}
    if name == "append":
        table.write([row | {"a": 9}])
    else:
        table.write([row | {"k": 9, "p": "x"}])
    found = document(table)

    assert found["table-uuid"] == before["table-uuid"]
    assert found["snapshots"][: len(before["snapshots"])] == before["snapshots"]
    assert found["refs"] == before["refs"]
    assert rows_shown(table) == rows + 1


@pytest.mark.parametrize(
    ("part", "of_snapshot"),
    [
        *((name, False) for name in ("schemas", "last-column-id", "location", "snapshots")),
        *((name, True) for name in ("schema-id", "timestamp-ms", "manifest-list", "snapshot-id")),
    ],
)
def test_a_commit_over_metadata_that_lacks_a_part_begins_it_again(
    part: str, tmp_path: Path, *, of_snapshot: bool
) -> None:
    options = {"metadata.iceberg.storage": "table-location"}
    table = lc.open_table(
        tmp_path / "w" / "d.db" / "t", create=True, schema={"a": "INT"}, options=options
    )
    table.write([{"a": 1}])
    first = tmp_path / "w" / "d.db" / "t" / "metadata" / "v1.metadata.json"
    document = json.loads(first.read_text())
    del (document["snapshots"][0] if of_snapshot else document)[part]
    first.write_text(json.dumps(document))

    done = table.write([{"a": 2}])

    assert "iceberg_failed" not in done.facts
    newest = json.loads(first.with_name("v2.metadata.json").read_text())
    assert [each["snapshot-id"] for each in newest["snapshots"]] == [2]
    assert newest["snapshots"][0]["summary"]["total-records"] == "2"


@pytest.mark.parametrize(("before", "after"), [("6", "4"), ("4", "8")])
def test_a_full_compaction_is_shown_though_the_number_of_levels_has_changed(
    tmp_path: Path, before: str, after: str
) -> None:
    table = new_table(
        tmp_path, ("id",), {"bucket": "1", "write-only": "true", "num-levels": before}
    )
    put(table, 1, 2)
    table.compact(full=True)
    session = lc.connect(tmp_path)
    session.alter_table("db.t", [lc.SchemaChange.set_option("num-levels", after)])
    table = session.get_table("db.t")
    assert session.get_table("db.t$ro").count() == rows_shown(table) == 2
    table.export_iceberg(rebuild=True)
    assert rows_shown(table) == 2

    put(table, 3)
    table.compact(full=True)
    put(table, 4)
    assert session.get_table("db.t$ro").count() == rows_shown(table) == 3
    table.export_iceberg(rebuild=True)
    assert rows_shown(table) == 3


def test_a_dry_run_publishes_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put(table, 1)
    put(table, 2)
    for path in directory(table).iterdir():
        path.unlink()
    table.expire_snapshots(retain_max=1, retain_min=1, dry_run=True)
    assert list(directory(table).iterdir()) == []


def test_no_error_of_a_publication_makes_a_commit_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("content")

    table = new_table(tmp_path)
    monkeypatch.setattr("lakecore.table.maintenance.iceberg_hooks.publish", fail)
    result = put(table, 1)

    assert result.facts == {"iceberg_failed": 1}
    assert "the commit succeeded, but its Iceberg metadata was not written" in caplog.text


def test_times_that_iceberg_cannot_hold_are_refused_by_name(tmp_path: Path) -> None:
    catalog = lc.connect(tmp_path, create=True)
    catalog.create_database("db")
    table = catalog.create_table("db.t", {"at": "TIMESTAMP(3)"})
    late = pa.array([10**16], pa.int64()).cast(pa.timestamp("ms"))
    table.write(pa.table({"at": late}))
    with pytest.raises(Unsupported, match="beyond the year 294246"):
        table.export_iceberg()


def test_an_expiry_in_the_background_is_published(tmp_path: Path) -> None:
    table = new_table(tmp_path, given=KEEP_FEW, snapshot__expire__execution_mode="async")
    for number in range(6):
        put(table, number)
    for thread in threading.enumerate():
        if thread.name == "lakecore-housekeeping":
            thread.join()
    kept = [each["snapshot-id"] for each in document(table)["snapshots"]]

    assert kept == list(table.context.history.snapshot_ids())
    assert len(kept) <= 3
