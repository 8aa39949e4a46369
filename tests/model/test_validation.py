from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.schema import TableSchema
from lakecore.model.types import Field, parse_field, parse_type
from lakecore.model.validation import check_dynamic_rules, create_schema, validate_schema
from lakecore.options.choices import ROW_TABLES, TableType
from lakecore.options.parse import parse_options

SCHEMAS = sorted(
    (Path(__file__).parents[1] / "golden" / "fixtures").glob("*/table*/schema/schema-*")
)
COLUMNS = {
    "k": "INT",
    "p": "STRING",
    "v": "BIGINT",
    "s": "STRING",
    "c": "VARCHAR(3)",
    "t": "TIMESTAMP(3)",
    "b": "BOOLEAN",
    "a": "ARRAY<INT>",
    "m": "MAP<STRING, INT>",
    "r": "ROW<x INT>",
    "u": "MULTISET<INT>",
    "ar": "ARRAY<ROW<x INT>>",
}


def make(
    keys: str = "",
    partitions: str = "",
    columns: dict[str, str] | None = None,
    **options: str,
) -> TableSchema:
    """A schema; in the names of options `__` is `.` and `_` is `-`."""
    return create_schema(
        columns if columns is not None else COLUMNS,
        primary_keys=keys.split(),
        partition_keys=partitions.split(),
        options={key.replace("__", ".").replace("_", "-"): text for key, text in options.items()},
        now_ms=0,
        table="shop.orders",
    )


def given(text: str) -> dict[str, str]:
    """Options written `key=value key=value`."""
    return dict(part.split("=", 1) for part in text.split())


def check(keys: str, partitions: str, options: str) -> TableSchema:
    return create_schema(
        COLUMNS,
        primary_keys=keys.split(),
        partition_keys=partitions.split(),
        options=given(options),
        now_ms=0,
        table="shop.orders",
    )


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: "-".join(path.parts[-4:]))
def test_every_golden_schema_keeps_the_rules(path: Path) -> None:
    stored = json.loads(path.read_text())
    schema = TableSchema(
        id=stored["id"],
        fields=tuple(parse_field(field) for field in stored["fields"]),
        highest_field_id=stored["highestFieldId"],
        partition_keys=tuple(stored["partitionKeys"]),
        primary_keys=tuple(stored["primaryKeys"]),
        options=stored["options"],
        version=stored["version"],
    )

    validate_schema(schema)


@pytest.mark.parametrize(
    ("keys", "partitions", "options"),
    [
        ("", "", ""),
        ("", "p", ""),
        ("", "p", "bucket=2 bucket-key=k,v"),
        ("k", "", "bucket=1"),
        ("k p", "p", "bucket=4 bucket-key=k"),
        ("k", "p", ""),
        ("k", "", "bucket=-2"),
        ("k", "", "bucket=2 bucket-function.type=mod"),
        ("k v", "", "bucket=2 bucket-function.type=hive"),
        ("k", "", "sequence.field=v,t sequence.field.sort-order=descending"),
        ("k", "", "rowkind.field=s changelog-producer=input"),
        ("k", "", "merge-engine=first-row changelog-producer=lookup"),
        ("k", "", "merge-engine=partial-update fields.v.sequence-group=s,b ignore-delete=true"),
        ("k", "", "merge-engine=aggregation fields.v.aggregate-function=sum"),
        ("k", "", "deletion-vectors.enabled=true changelog-producer=lookup"),
        ("", "", "row-tracking.enabled=true"),
        ("k", "", "record-level.expire-time=1d record-level.time-field=t"),
        ("", "", "scan.snapshot-id=3 scan.mode=from-snapshot-full"),
        ("", "", "scan.mode=latest"),
        ("k", "", "file.format.per.level=0:avro,5:orc"),
    ],
)
def test_right_tables_are_right(keys: str, partitions: str, options: str) -> None:
    check(keys, partitions, options)


@pytest.mark.parametrize(
    ("keys", "partitions", "options", "sentence"),
    [
        ("x", "", "", "the primary key is not a column"),
        ("", "x", "", "the partition key is not a column"),
        ("k k", "", "", "the primary key names a column twice"),
        ("k p", "p p", "", "the partition key names a column twice"),
        ("p", "p", "", "the primary key consists only of partition keys"),
        ("k", "p", "bucket=2", "must contain every partition key"),
        ("a", "", "", "a column of this type cannot be a primary key"),
        ("m", "", "", "a column of this type cannot be a primary key"),
        ("r", "", "", "a column of this type cannot be a primary key"),
        ("u", "", "", "a column of this type cannot be a primary key"),
        ("", "a", "", "a column of this type cannot be a partition key"),
        ("", "", "bucket=2 bucket-key=m", "a column of this type cannot be a bucket-key"),
        ("k", "", "sequence.field=r", "a column of this type cannot be a sequence.field"),
        ("", "", "bucket=2", "needs bucket-key"),
        ("", "", "bucket=-2", "the option needs a primary key"),
        ("", "", "bucket-key=k", "bucket-key needs a fixed number of buckets"),
        ("", "", "bucket=2 bucket-key=x", "the bucket-key is not a column"),
        ("", "", "bucket=2 bucket-key=k,k", "the bucket-key names a column twice"),
        ("", "p", "bucket=2 bucket-key=p", "a partition key cannot be in bucket-key"),
        ("k", "", "bucket=2 bucket-key=v", "bucket-key must be part of the primary key"),
        ("s", "", "bucket=2 bucket-function.type=mod", "bucket-function.type=mod needs one"),
        ("k v", "", "bucket=2 bucket-function.type=mod", "bucket-function.type=mod needs one"),
        ("k", "", "sequence.field=x", "the sequence.field is not a column"),
        ("k", "", "sequence.field=v,v", "the sequence.field names a column twice"),
        ("", "", "sequence.field=v", "the option needs a primary key"),
        ("k", "p", "sequence.field=v", "sequence.field needs a primary key"),
        ("k", "", "merge-engine=first-row sequence.field=v", "takes no sequence.field"),
        (
            "k",
            "",
            "merge-engine=aggregation sequence.field=v fields.v.aggregate-function=sum",
            "a sequence field cannot have an aggregate function",
        ),
        ("k", "", "rowkind.field=x", "the rowkind.field is not a column"),
        ("k", "", "rowkind.field=v", "the rowkind.field must be a STRING column"),
        ("", "", "rowkind.field=s", "the option needs a primary key"),
        ("", "", "merge-engine=first-row", "the option needs a primary key"),
        ("", "", "changelog-producer=input", "the option needs a primary key"),
        ("k", "", "merge-engine=first-row changelog-producer=input", "none and lookup"),
        (
            "k",
            "",
            "merge-engine=first-row deletion-vectors.enabled=true",
            "does not support deletion vectors",
        ),
        (
            "k",
            "",
            "changelog-producer=full-compaction deletion-vectors.enabled=true",
            "deletion vectors need changelog",
        ),
        (
            "k",
            "",
            "changelog-producer=lookup streaming-read-overwrite=true",
            "would emit changes twice",
        ),
        ("", "", "streaming-read-overwrite=true", "the option needs a primary key"),
        (
            "k",
            "",
            "changelog-producer=lookup full-compaction.delta-commits=3",
            "full-compaction.delta-commits cannot be combined",
        ),
        ("", "", "full-compaction.delta-commits=3", "the option needs a primary key"),
        (
            "k",
            "",
            "changelog-producer.row-deduplicate-ignore-fields=v,x",
            "names a column that does not exist",
        ),
        ("", "", "primary-key.nullable=true", "the option needs a primary key"),
        ("k", "", "fields.x.aggregate-function=sum", "names a column that does not exist"),
        ("k", "", "fields.v,x.sequence-group=s", "names a column that does not exist"),
        ("", "", "fields.x.stats-mode=none", "names a column that does not exist"),
        ("", "", "target-file-size=0", "the size must be more than 0"),
        ("", "", "commit.min-retry-wait=1h", "commit.min-retry-wait is longer"),
        (
            "k",
            "",
            "num-levels=3 file.format.per.level=3:avro",
            "a level that the table does not have",
        ),
        ("", "", "snapshot.num-retained.max=9", "snapshot.num-retained.min is greater"),
        ("", "", "changelog.num-retained.max=9", "changelog.num-retained.min is greater"),
        ("", "", "partition.expiration-time=1d", "needs a table with partitions"),
        ("k", "", "record-level.expire-time=1d", "needs record-level.time-field"),
        ("", "", "record-level.expire-time=1d record-level.time-field=t", "needs a primary key"),
        ("k", "", "record-level.time-field=x", "the record-level.time-field is not a column"),
        ("k", "", "record-level.time-field=s", "the record-level.time-field must be INT"),
        ("k", "", "row-tracking.enabled=true", "row-tracking.enabled needs a table without"),
        ("", "", "row-tracking.enabled=true bucket=1 bucket-key=k", "row-tracking.enabled needs"),
        ("k", "", "sequence.snapshot-ordering=true", "needs write-only=true"),
        ("", "", "sequence.snapshot-ordering=true", "the option needs a primary key"),
        ("", "", "scan.snapshot-id=1 scan.tag-name=t", "more than one start"),
        ("", "", "scan.snapshot-id=1 scan.timestamp-millis=5", "more than one start"),
        ("", "", "scan.mode=from-snapshot", "the scan mode needs one more option"),
        ("", "", "scan.mode=from-timestamp scan.snapshot-id=1", "needs one more option"),
        ("", "", "scan.mode=latest scan.snapshot-id=1", "cannot be combined with the scan mode"),
    ],
)
def test_each_rule_has_its_own_error(
    keys: str, partitions: str, options: str, sentence: str
) -> None:
    with pytest.raises(InvalidRequest, match=sentence) as caught:
        check(keys, partitions, options)

    assert "table=shop.orders" in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "option"),
    [
        ("deduplicate", "fields.v.aggregate-function=sum"),
        ("first-row", "fields.default-aggregate-function=sum"),
        ("deduplicate", "fields.s.sequence-group=v"),
        ("aggregation", "fields.s.sequence-group=v"),
    ],
)
def test_an_option_that_the_merge_engine_ignores_is_refused(engine: str, option: str) -> None:
    with pytest.raises(InvalidRequest, match="the merge engine of the table ignores the option"):
        check("k", "", f"merge-engine={engine} {option}")


@pytest.mark.parametrize(
    ("storage", "key"),
    [
        ("table-location", "database"),
        ("hadoop-catalog", "table"),
        ("table-location", "uri"),
        ("hadoop-catalog", "rest.uri"),
        ("hive-catalog", "rest.token"),
        ("rest-catalog", "uri"),
        ("rest-catalog", "hive-skip-update-stats"),
    ],
)
def test_an_option_of_another_iceberg_catalog_is_refused(storage: str, key: str) -> None:
    option = f"metadata.iceberg.{key}=true"
    with pytest.raises(InvalidRequest, match=rf"ignores the option.*option=metadata.iceberg.{key}"):
        check("", "", f"metadata.iceberg.storage={storage} {option}")
    check("", "", option)


ENGINE = "merge-engine=partial-update "
REMOVING = "merge-engine=aggregation aggregation.remove-record-on-delete=true "
NESTED = "fields.ar.aggregate-function="
GROUPS = ENGINE + "fields.v.sequence-group=s "


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (GROUPS + "fields.t.sequence-group=s", "a column is in two sequence groups"),
        (ENGINE + "fields.v.sequence-group=s,s", "a column is .* twice in one"),
        (GROUPS + "fields.t.sequence-group=k", "a primary-key column cannot be in a sequence"),
        (GROUPS + "fields.t.sequence-group=x", "names a column that does not exist"),
        (GROUPS + "partial-update.remove-record-on-delete=true", "contradict each other"),
        (
            ENGINE + "ignore-delete=true partial-update.remove-record-on-delete=true",
            "contradict each other",
        ),
        (
            GROUPS + "ignore-delete=true partial-update.remove-record-on-sequence-group=v",
            "contradict each other",
        ),
        (GROUPS + "partial-update.remove-record-on-sequence-group=s", "names no sequence column"),
        ("merge-engine=aggregation fields.v.aggregate-function=avg", "unknown aggregate function"),
        (
            "merge-engine=aggregation fields.default-aggregate-function=avg",
            "unknown aggregate function",
        ),
        (
            "merge-engine=aggregation fields.k.aggregate-function=sum",
            "a primary-key column cannot have an aggregate function",
        ),
        (
            "merge-engine=aggregation fields.s.aggregate-function=sum",
            "does not support the column's",
        ),
        ("merge-engine=aggregation fields.default-aggregate-function=sum", "support .* column=p"),
        (
            ENGINE + "fields.default-aggregate-function=sum "
            "fields.v.sequence-group=p,s,c,t,b,a,m,r,u,ar",
            "support .* column=p",
        ),
        (
            "merge-engine=aggregation fields.m.aggregate-function=merge_map_with_keytime",
            "does not support the column's",
        ),
        ("merge-engine=aggregation " + NESTED + "nested_partial_update", "needs fields .* missing"),
        (
            "merge-engine=aggregation fields.ar.nested-key=zz " + NESTED + "nested_update",
            r"needs fields .*nested-key missing=\[zz\]",
        ),
        (
            "merge-engine=aggregation fields.ar.nested-key=x "
            "fields.ar.nested-sequence-field=y " + NESTED + "nested_update",
            r"needs fields .*nested-sequence-field missing=\[y\]",
        ),
        ("merge-engine=aggregation fields.v.aggregate-function=listagg", "does not support"),
        ("merge-engine=aggregation fields.c.aggregate-function=listagg", "does not support"),
        (
            REMOVING + "fields.v.ignore-retract=true",
            "contradict each other",
        ),
        ("merge-engine=aggregation fields.v.aggregate-function=bool_or", "does not support"),
        ("merge-engine=aggregation fields.s.aggregate-function=collect", "does not support"),
        ("merge-engine=aggregation fields.a.aggregate-function=merge_map", "does not support"),
        ("merge-engine=aggregation fields.a.aggregate-function=nested_update", "does not support"),
        ("merge-engine=aggregation fields.a.aggregate-function=max", "does not support"),
        ("merge-engine=aggregation fields.s.aggregate-function=rbm32", "does not support"),
    ],
)
def test_merging_fields_has_rules(options: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        check("k", "", options)


@pytest.mark.parametrize(
    ("column", "function"),
    [
        ("v", "sum"),
        ("v", "max"),
        ("s", "listagg"),
        ("b", "bool_and"),
        ("a", "collect"),
        ("m", "merge_map"),
        ("ar", "nested_update"),
        ("r", "last_value"),
    ],
)
def test_aggregate_functions_take_their_types(column: str, function: str) -> None:
    check("k", "", f"merge-engine=aggregation fields.{column}.aggregate-function={function}")


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({}, "a table needs at least one column"),
        ({" ": "INT"}, "a column name is blank"),
        ({"": "INT"}, "a column name is blank"),
        ({"a": "ARRAY<ROW<>>"}, r"a ROW needs at least one field\. column=a"),
        ({"r": "ROW<x INT, x INT>"}, r"two columns have the same name\. column=r\.x"),
        ({"a": "ARRAY<ROW<x ROW<y INT, y INT>>>"}, r"the same name\. column=a\.x\.y"),
        ({"_KEY_a": "INT"}, "the column name is reserved"),
        ({"_SEQUENCE_NUMBER": "BIGINT"}, "the column name is reserved"),
        ({"_VALUE_KIND": "TINYINT"}, "the column name is reserved"),
        ({"_row_kind": "STRING"}, "the column name is reserved"),
        ({"_ROW_ID": "BIGINT"}, "the column name is reserved"),
        ({"_LEVEL": "INT"}, "the column name is reserved"),
        ({"rowkind": "STRING"}, "the column name is reserved"),
    ],
)
def test_column_names_have_rules(columns: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        make(columns=columns)


@pytest.mark.parametrize("name", ["*", "^v$", "^a.*$", "^$"])
def test_name_that_polars_reads_as_a_pattern_is_not_supported(name: str) -> None:
    with pytest.raises(Unsupported, match="a pattern of names"):
        make(columns={"v": "INT", name: "INT"})
    for near in ("**", "^v", "v$", "a*", " *"):
        assert make(columns={"v": "INT", near: "INT"}).names == ("v", near)


@pytest.mark.parametrize("options", ["path=/elsewhere", "branch=b1", "auto-create=TRUE"])
def test_what_says_where_a_table_is_is_not_stored_in_it(options: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be stored in a table"):
        check("", "", options)


def test_column_twice_is_refused() -> None:
    field = Field(id=0, name="a", type=parse_type("INT"))

    with pytest.raises(InvalidRequest, match="two columns have the same name"):
        create_schema([field, field], now_ms=0)


@pytest.mark.parametrize(
    ("fine", "refused"),
    [
        ("TIMESTAMP(6)", "TIMESTAMP(9)"),
        ("ARRAY<TIMESTAMP(6)>", "ARRAY<TIMESTAMP(9)>"),
        ("ROW<a INT, b MAP<TIME(3), INT>>", "ROW<a INT, b MAP<TIME(6), INT>>"),
    ],
)
def test_avro_holds_no_finer_times(fine: str, refused: str) -> None:
    make(columns={"t": fine}, file__format="avro")
    make(columns={"t": refused})
    with pytest.raises(InvalidRequest, match=r"avro stores time.* at most [36]"):
        make(columns={"t": refused}, file__format="avro")


@pytest.mark.parametrize("kind", ["TIMESTAMP(3)", "TIMESTAMP(6) WITH LOCAL TIME ZONE"])
def test_hive_hashes_no_timestamps(kind: str) -> None:
    options = {"bucket": "2", "bucket-function.type": "hive"}
    make("d", columns={"d": "TIME NOT NULL"}, **options)
    with pytest.raises(InvalidRequest, match="hive supports neither timestamps"):
        make("d", columns={"d": f"{kind} NOT NULL"}, **options)


@pytest.mark.parametrize("kind", sorted({*TableType} - ROW_TABLES))
def test_a_table_without_rows_of_paimon_is_not_created(kind: str) -> None:
    with pytest.raises(Unsupported, match=f"creates no table of this kind.*value={kind}"):
        make(type=kind)


def test_unknown_option_of_a_new_table_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="did_you_mean=bucket"):
        make(bucke="2")


def test_default_of_another_type_is_refused() -> None:
    def column(type_text: str, default: str) -> Field:
        return Field(id=0, name="a", type=parse_type(type_text), default_value=default)

    create_schema([column("DATE", "2024-01-31")], now_ms=0)
    with pytest.raises(InvalidRequest, match="not a value of the column's type"):
        create_schema([column("DATE", "2024-02-31")], now_ms=0)
    with pytest.raises(Unsupported, match="nested types"):
        create_schema([column("ARRAY<INT>", "[1]")], now_ms=0)


@pytest.mark.parametrize("around", ["ARRAY<{}>", "MAP<STRING, {}>", "MULTISET<{}>", "ROW<a {}>"])
def test_type_nested_too_deep_is_refused(around: str) -> None:
    kind = "INT"
    for _ in range(32):
        kind = around.format(kind)
    create_schema({"id": "INT NOT NULL", "v": kind}, options={}, now_ms=0)

    with pytest.raises(InvalidRequest, match=r"nested too deep.*column=v depth=33 most=32"):
        create_schema({"id": "INT NOT NULL", "v": around.format(kind)}, options={}, now_ms=0)


@pytest.mark.parametrize("around", ["ARRAY<{}>", "ROW<a {}>"])
def test_type_nested_without_end_is_no_recursion_error(around: str) -> None:
    kind = "INT"
    for _ in range(5_000):
        kind = around.format(kind)

    with pytest.raises(Unsupported, match=r"nested too deep.*most=100"):
        parse_type(kind)


def test_type_of_json_nested_without_end_is_no_recursion_error() -> None:
    kind: object = "INT"
    for _ in range(900):
        kind = {"type": "ARRAY", "element": kind}

    with pytest.raises(Unsupported, match="nested too deep"):
        parse_type(kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["CHAR({})", "DECIMAL({}, 2)", "TIMESTAMP({})"])
def test_length_of_many_digits_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest, match="invalid length, precision or scale"):
        parse_type(kind.format("9" * 5_000))


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"write-buffer-size": "8 mb"}, ""),
        ({"bucket": "2"}, "bucket cannot be a dynamic option"),
        ({"force-lookup": "true"}, "make compaction look up rows cannot be dynamic"),
        ({"sequence.field": "nope"}, "sequence.field is not a column"),
    ],
)
def test_dynamic_options_keep_the_rules_that_stored_ones_keep(
    given: dict[str, str], error: str
) -> None:
    engine = {"merge-engine": "partial-update"}
    for stored in ({}, {"sequence.field": "gone"}):  # that of another engine breaks a rule itself
        schema = replace(make(keys="k p", bucket="1"), options={"bucket": "1", **engine, **stored})
        options = parse_options({**schema.options, **given})
        if not error or (stored and "sequence.field" in given):
            check_dynamic_rules(schema, options)
            continue
        with pytest.raises(InvalidRequest, match=error):
            check_dynamic_rules(schema, options)
