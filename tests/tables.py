"""Tables and files for tests, written and shown as one readable line.

- rows: `"1 a | -D 2 b"`, the columns in order, `_` for null, before them a row kind if it is not
  +I; `held(table)` shows a table the same way, sorted, and `changed` changes in their order;
- files: `"L0 a-m | L5 a-z"`, from the newest to the oldest: level, first key, last key, and at wish
  the sequence numbers, `"L0 a-m 5..9"`, and the rows that delete, `"L0 a-m -2"`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakecore.format.binary_row import serialize_row
from lakecore.format.layout import Layout
from lakecore.io.ambient import seeded
from lakecore.io.stores.store import MemoryStore
from lakecore.memory import Budget
from lakecore.model.files import CommitMessage, DataFile
from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.model.rows import KIND_TEXTS, ROW_KIND
from lakecore.model.snapshot import BATCH_COMMIT_IDENTIFIER, CommitResult
from lakecore.model.types import Atomic, Field, Root, parse_type
from lakecore.model.validation import create_schema
from lakecore.table.commits.commit import CommitRequest, commit
from lakecore.table.handle import Table, load_table
from lakecore.table.publication import write_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl
    import pytest

    from lakecore.io.ambient import Ambient
    from lakecore.io.stores.store import Store
    from lakecore.model.schema import TableSchema

PATH = "memory://warehouse/shop.db/orders"
COLUMNS = {"id": "INT NOT NULL", "v": "STRING"}
KEY = Field(id=0, name="k", type=parse_type("STRING NOT NULL"))
BUDGET_BYTES = 1 << 30


def new_table(
    columns: Mapping[str, str] = COLUMNS,
    *,
    keys: Sequence[str] = ("id",),
    partitions: Sequence[str] = (),
    store: Store | None = None,
    path: str = PATH,
    ambient: Ambient | None = None,
    budget_bytes: int = BUDGET_BYTES,
    **options: str,
) -> Table:
    """A new, empty table; options with `_` for `-` and `__` for `.`; one bucket if keyed."""
    ambient = seeded(1) if ambient is None else ambient
    store = MemoryStore(ambient) if store is None else store
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    schema = create_schema(
        dict(columns),
        primary_keys=keys,
        partition_keys=partitions,
        options={"bucket": "1", **stated} if keys else stated,
        now_ms=ambient.now_ms(),
    )
    assert write_schema(store, Layout(root=path), schema)
    return load_table(store, path, ambient=ambient, budget=Budget(budget_bytes))


def reopened(
    table: Table,
    *,
    store: Store | None = None,
    ambient: Ambient | None = None,
    budget_bytes: int = BUDGET_BYTES,
) -> Table:
    """The table as another process sees it, perhaps through another store."""
    context = table.context
    drawn = int(context.ambient.new_uuid().replace("-", ""), 16)
    return load_table(
        context.store if store is None else store,
        table.path,
        ambient=seeded(drawn) if ambient is None else ambient,
        budget=Budget(budget_bytes),
    )


def rolled_back(table: Table, snapshot_id: int) -> Table:
    """The table gone back to a snapshot, as another process sees it: the later ones are not there.

    Their data files stay, as those of a rollback that died half-way.
    """
    context = table.context
    for later in context.history.snapshot_ids():
        if later > snapshot_id:
            context.store.delete(context.layout.snapshot(later))
    context.store.put(context.layout.latest_hint, str(snapshot_id).encode())
    return reopened(table)


def with_options(table: Table, **options: str | None) -> None:
    """Give the table other options, whatever forbids it; None takes one away."""
    context = reopened(table).context
    stated = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    texts = {**context.schema.options, **stated}
    changed = replace(
        context.schema,
        id=context.schema.id + 1,
        options={key: text for key, text in texts.items() if text is not None},
    )
    assert write_schema(context.store, Layout(root=table.path), changed)


def in_directory(table: Table, directory: str) -> set[str]:
    """The names of what lies in a directory of the table."""
    found = table.context.store.list(f"{table.path}/{directory}")
    return {status.path.rpartition("/")[2] for status in found}


# --- rows ---------------------------------------------------------------------------------------


def rows(schema: TableSchema, text: str) -> pa.Table:
    """The rows of a line, with their kinds if any is named."""
    kinds: list[str] = []
    columns: list[list[Any]] = [[] for _ in schema.fields]
    for words in [row.split() for row in text.split("|") if row.strip()]:
        kinds.append(words.pop(0) if words[0] in KIND_TEXTS else "+I")
        for field, column, word in zip(schema.fields, columns, words, strict=True):
            column.append(_value(word, field))
    table = pa.Table.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, schema.arrow.types, strict=True)],
        names=list(schema.names),
    )
    if set(kinds) <= {"+I"}:
        return table
    return table.append_column(ROW_KIND, pa.array(kinds, pa.string()))


def shown(table: pa.Table) -> str:
    """The rows as a line, sorted."""
    lines = [
        " ".join("_" if value is None else str(value) for value in row.values())
        for row in table.to_pylist()
    ]
    return " | ".join(sorted(lines))


def put(table: Table, text: str, **arguments: Any) -> int | None:
    """Write the rows of a line in one commit; the snapshot it made."""
    return table.write(rows(table.schema, text), **arguments).snapshot_id


def name_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, data files have names of other engines, whose metadata is not trusted."""

    def name(prefix: str, writer: str, counter: int, kind: str, _: object) -> str:
        return f"{prefix}{writer}-{counter}.{kind}"

    monkeypatch.setattr("lakecore.table.run_writer.file_shape.data_file_name", name)


def commit_unstored(
    table: Table,
    messages: Sequence[CommitMessage],
    *,
    user: str = "job",
    identifier: int = BATCH_COMMIT_IDENTIFIER,
) -> CommitResult:
    """Commit messages whose files nobody stored, which `Table.commit` would look for."""
    request = CommitRequest(messages=messages, user=user, identifier=identifier)
    return commit(table.context, request)


def held(table: Table, **arguments: Any) -> str:
    """All rows of the table as a line."""
    return shown(table.to_arrow(**arguments))


def changed(frame: pl.LazyFrame) -> str:
    """Changes as a line of rows with their kinds, in the order in which they come."""
    lines = [
        " ".join("_" if value is None else str(value) for value in row)
        for row in frame.collect().rows()
    ]
    return " | ".join(lines)


def _value(word: str, field: Field) -> Any:
    kind = field.type
    assert isinstance(kind, Atomic)
    match kind.root:
        case _ if word == "_":
            return None
        case Root.CHAR | Root.VARCHAR:
            return word
        case Root.DECIMAL:
            return Decimal(word)
        case Root.FLOAT | Root.DOUBLE:
            return float(word)
        case Root.DATE:
            return date.fromisoformat(word)
        case Root.BOOLEAN:
            return word == "True"
        case _:
            return int(word)


# --- files --------------------------------------------------------------------------------------

_FILE = re.compile(r"L(\d+) (\w+)-(\w+)(?: (\d+)\.\.(\d+))?(?: -(\d+|\?))?(?: @(\d+))?")


def files(text: str) -> list[DataFile]:
    """The files of a line, named after their text; without numbers, each older than the one before.

    `-2` gives it two rows that delete, `-?` an unknown number of them; `@100` its bytes.
    """
    parts = [part.strip() for part in text.split("|") if part.strip()]
    found: list[DataFile] = []
    for index, part in enumerate(parts):
        match = _FILE.fullmatch(part)
        assert match, part
        level, low, high, first, last, deletes, size = match.groups()
        place = 10 * (len(parts) - index)
        found.append(
            DataFile(
                name=part,
                size_bytes=int(size or 1),
                row_count=10,
                key_min=key(low),
                key_max=key(high),
                sequence_min=place if first is None else int(first),
                sequence_max=place + 9 if last is None else int(last),
                schema_id=0,
                level=int(level),
                delete_row_count=None if deletes == "?" else int(deletes or 0),
            )
        )
    return found


def names(found: Sequence[DataFile]) -> str:
    """The line that files came from."""
    return " | ".join(file.name for file in found)


def ranks(found: Sequence[DataFile]) -> tuple[np.ndarray, np.ndarray]:
    """The first and last keys of the files, as numbers in their order."""
    lows = np.array([_letters(file, 1) for file in found], np.int64)
    highs = np.array([_letters(file, 2) for file in found], np.int64)
    return lows, highs


def key(text: str) -> bytes:
    """A serialized key of one text column."""
    return serialize_row([pa.array([text], pa.string())], [KEY.type])


def entry(
    file: DataFile,
    kind: FileKind = FileKind.ADD,
    *,
    partition: bytes = bytes(12),
    bucket: int = 0,
    total_buckets: int = 1,
) -> ManifestEntry:
    """A manifest entry of a file."""
    return ManifestEntry(
        kind=kind, partition=partition, bucket=bucket, total_buckets=total_buckets, file=file
    )


def entries(text: str, kind: FileKind = FileKind.ADD) -> list[ManifestEntry]:
    """Entries of one bucket for the files of a line."""
    return [entry(file, kind) for file in files(text)]


def compaction(message: CommitMessage, before: str, after: str) -> CommitMessage:
    """The message, with a compaction of files that are named by lines."""
    return replace(message, compact_before=tuple(files(before)), compact_after=tuple(files(after)))


def _letters(file: DataFile, group: int) -> int:
    match = _FILE.fullmatch(file.name)
    assert match
    return int.from_bytes(match[group + 1].ljust(4, "\0").encode())
