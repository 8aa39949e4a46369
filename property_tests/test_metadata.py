"""decode(encode(x)) == x for every metadata file; damaged bytes raise nothing but our errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakecore.errors import LakecoreError
from lakecore.format.index_files import decode_hashes, decode_vectors, encode_hashes, encode_vectors
from lakecore.format.manifest_files import decode_entries, encode_entries, entry_identities
from lakecore.format.metadata import (
    decode_consumer,
    decode_hint,
    decode_index_manifest,
    decode_manifest,
    decode_manifest_list,
    decode_schema,
    decode_snapshot,
    decode_tag,
    encode_consumer,
    encode_hint,
    encode_index_manifest,
    encode_manifest,
    encode_manifest_list,
    encode_schema,
    encode_snapshot,
    encode_tag,
)
from lakecore.model.files import (
    DataFile,
    FileSource,
    GlobalIndex,
    IndexFile,
    Stats,
    VectorRange,
)
from lakecore.model.manifest import FileKind, IndexEntry, ManifestEntry, ManifestFile
from lakecore.model.schema import TableSchema
from lakecore.model.snapshot import CommitKind, Snapshot, Tag
from lakecore.model.types import Array, Atomic, Field, Map, Root, Row, parse_type

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
BYTES = st.binary(max_size=40)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def tuples(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, max_size=4).map(tuple)


STATS = st.builds(
    Stats, min_values=BYTES, max_values=BYTES, null_counts=maybe(tuples(maybe(COUNT)))
)
DATA_FILE = st.builds(
    DataFile,
    name=TEXT,
    size_bytes=COUNT,
    row_count=COUNT,
    key_min=BYTES,
    key_max=BYTES,
    key_stats=STATS,
    value_stats=STATS,
    sequence_min=LONG,
    sequence_max=LONG,
    schema_id=COUNT,
    level=INT,
    extra_files=tuples(TEXT),
    creation_time_ms=maybe(LONG),
    delete_row_count=maybe(COUNT),
    embedded_index=maybe(BYTES),
    file_source=maybe(st.sampled_from(FileSource)),
    value_stats_columns=maybe(tuples(TEXT)),
    external_path=maybe(TEXT),
    first_row_id=maybe(COUNT),
    write_columns=maybe(tuples(TEXT)),
    write_columns_sequences=maybe(tuples(LONG)),
)
ENTRY = st.builds(
    ManifestEntry,
    kind=st.sampled_from(FileKind),
    partition=BYTES,
    bucket=INT,
    total_buckets=INT,
    file=DATA_FILE,
)
MANIFEST = st.builds(
    ManifestFile,
    name=TEXT,
    size_bytes=COUNT,
    added_count=COUNT,
    deleted_count=COUNT,
    schema_id=COUNT,
    partition_stats=STATS,
    bucket_min=maybe(INT),
    bucket_max=maybe(INT),
    level_min=maybe(INT),
    level_max=maybe(INT),
    row_id_min=maybe(LONG),
    row_id_max=maybe(LONG),
)
VECTOR = st.builds(VectorRange, data_file=TEXT, offset=INT, length=INT, cardinality=maybe(COUNT))
GLOBAL_INDEX = st.builds(
    GlobalIndex,
    row_range_start=LONG,
    row_range_end=LONG,
    index_field_id=INT,
    extra_field_ids=maybe(tuples(INT)),
    index_meta=maybe(BYTES),
    source_meta=maybe(BYTES),
)
INDEX_ENTRY = st.builds(
    IndexEntry,
    partition=BYTES,
    bucket=INT,
    file=st.builds(
        IndexFile,
        index_type=TEXT,
        name=TEXT,
        size_bytes=COUNT,
        row_count=COUNT,
        vectors=maybe(tuples(VECTOR)),
        external_path=maybe(TEXT),
        global_index=maybe(GLOBAL_INDEX),
    ),
)
SNAPSHOT = st.builds(
    Snapshot,
    id=COUNT,
    schema_id=COUNT,
    base_manifest_list=TEXT,
    delta_manifest_list=TEXT,
    commit_user=TEXT,
    commit_identifier=LONG,
    commit_kind=st.sampled_from(CommitKind),
    time_ms=LONG,
    version=st.integers(1, 3),
    uuid=maybe(TEXT),
    base_manifest_list_size=maybe(COUNT),
    delta_manifest_list_size=maybe(COUNT),
    changelog_manifest_list=maybe(TEXT),
    changelog_manifest_list_size=maybe(COUNT),
    index_manifest=maybe(TEXT),
    writer_version=maybe(TEXT),
    total_record_count=maybe(LONG),
    delta_record_count=maybe(LONG),
    changelog_record_count=maybe(LONG),
    watermark=maybe(LONG),
    statistics=maybe(TEXT),
    properties=maybe(st.dictionaries(TEXT, TEXT, max_size=3)),
    next_row_id=maybe(LONG),
    operation=maybe(TEXT),
)
TYPES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(
        [
            *(parse_type(text) for text in ("INT", "STRING NOT NULL", "DECIMAL(10, 2)", "TIME(3)")),
            Atomic(root=Root.TIMESTAMP_LTZ, precision=9, nullable=False),
        ]
    ),
    lambda inner: st.one_of(
        st.builds(Array, element=inner, nullable=st.booleans()),
        st.builds(Map, key=st.just(parse_type("STRING NOT NULL")), value=inner),
        st.builds(Row, fields=tuples(st.builds(Field, id=INT, name=TEXT, type=inner))),
    ),
    max_leaves=4,
)
FIELDS = st.lists(
    st.builds(
        Field,
        id=INT,
        name=TEXT,
        type=TYPES,
        description=maybe(TEXT),
        default_value=maybe(TEXT),
    ),
    max_size=4,
    unique_by=(lambda field: field.id, lambda field: field.name),
).map(tuple)


def schemas_of(fields: tuple[Field, ...]) -> st.SearchStrategy[TableSchema]:
    """Schemas of these columns, whose keys are some of them."""
    names = [field.name for field in fields]
    keys = tuples(st.sampled_from(names)) if names else st.just(())
    return st.builds(
        TableSchema,
        id=COUNT,
        fields=st.just(fields),
        highest_field_id=INT,
        partition_keys=keys,
        primary_keys=keys,
        options=st.dictionaries(TEXT, TEXT, max_size=3),
        comment=maybe(TEXT),
        time_ms=LONG,
    )


SCHEMA = FIELDS.flatmap(schemas_of)


@given(st.lists(ENTRY, max_size=4), st.sampled_from(["zstd", "none", "snappy"]))
def test_manifests_survive(entries: list[ManifestEntry], compression: str) -> None:
    assert decode_manifest(encode_manifest(entries, compression), "") == entries


@given(st.lists(ENTRY, min_size=1, max_size=4), st.sampled_from(["zstd", "none"]))
def test_manifests_survive_as_columns(entries: list[ManifestEntry], compression: str) -> None:
    columns = decode_entries(encode_manifest(entries, compression), "")
    (written,) = encode_entries(columns, compression, 1 << 20)

    assert decode_manifest(written.data, "") == entries
    identities = entry_identities(columns).to_list()
    equal = [[a == b for b in identities] for a in identities]
    assert equal == [[a.identity == b.identity for b in entries] for a in entries]


@given(st.lists(MANIFEST, max_size=4))
def test_manifest_lists_survive(manifests: list[ManifestFile]) -> None:
    assert decode_manifest_list(encode_manifest_list(manifests), "") == manifests


@given(st.lists(INDEX_ENTRY, max_size=4))
def test_index_manifests_survive(entries: list[IndexEntry]) -> None:
    assert decode_index_manifest(encode_index_manifest(entries), "") == entries


@given(SCHEMA)
def test_schemas_survive(schema: TableSchema) -> None:
    assert decode_schema(encode_schema(schema), "") == schema


@given(
    SNAPSHOT,
    maybe(st.lists(st.integers(0, 10**9), min_size=7, max_size=7).map(tuple)),
    maybe(st.floats(0, 1e12)),
)
def test_snapshots_and_tags_survive(
    snapshot: Snapshot, create_time: tuple[int, ...] | None, retained_seconds: float | None
) -> None:
    tag = Tag(
        name="t", snapshot=snapshot, create_time=create_time, retained_seconds=retained_seconds
    )

    assert decode_snapshot(encode_snapshot(snapshot), "") == snapshot
    assert decode_tag(encode_tag(tag), "t", "") == tag


@given(COUNT)
def test_hints_and_consumers_survive(number: int) -> None:
    assert decode_hint(encode_hint(number)) == number
    assert decode_consumer(encode_consumer(number), "") == number


@given(
    st.lists(ENTRY, min_size=1, max_size=2),
    st.sampled_from(["zstd", "none"]),
    st.randoms(use_true_random=False),
)
def test_a_damaged_manifest_decodes_or_says_so(
    entries: list[ManifestEntry], compression: str, random: Any
) -> None:
    data = bytearray(encode_manifest(entries, compression))
    for _ in range(random.randint(1, 4)):
        data[random.randrange(len(data))] = random.randrange(256)
    data = data[: random.randrange(len(data) + 1)] if random.random() < 0.3 else data

    for decode in (decode_manifest, decode_entries):
        try:
            decode(bytes(data), "m")
        except LakecoreError as error:
            assert error.facts["path"] == "m"  # noqa: PT017  raised or not, both are right


@given(
    st.dictionaries(
        TEXT, st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 100), max_size=50), max_size=3
    ),
    st.booleans(),
)
def test_deletion_vectors_survive(
    vectors: dict[str, list[int]],
    bitmap64: bool,  # noqa: FBT001  drawn
) -> None:
    given_positions = {name: np.array(found, dtype=np.int64) for name, found in vectors.items()}

    data, ranges = encode_vectors(given_positions, bitmap64=bitmap64)
    found = decode_vectors(data, ranges, "")

    assert {name: positions.tolist() for name, positions in found.items()} == {
        name: sorted(set(positions)) for name, positions in vectors.items()
    }


@given(st.lists(INT))
def test_hash_indexes_survive(hashes: list[int]) -> None:
    stored = np.array(hashes, dtype=np.int32)

    data, file = encode_hashes(stored, "w")

    assert decode_hashes(data, file, "").tolist() == hashes
