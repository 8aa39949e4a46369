"""Which columns of a table get file indexes, from its options.

`file-index.TYPE.columns` lists columns, or `map[key]` for a key of a MAP column with string keys.
`file-index.TYPE.COLUMN.SETTING` is a setting of that type of index; the settings of a MAP column
hold for each of its keys (https://paimon.apache.org/docs/master/concepts/spec/fileindex/).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lakecore.display import ShownFacts
from lakecore.errors import InvalidRequest, Unsupported
from lakecore.model.types import (
    BINARIES,
    INTEGERS,
    STRINGS,
    TIMESTAMPS,
    Atomic,
    DataType,
    Field,
    Map,
    Root,
)
from lakecore.options import TableOptions, file_index_setting
from lakecore.options.kinds import SIZE, fraction, integer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakecore.model.schema import TableSchema

BLOOM_FILTER, BITMAP, RANGE_BITMAP, BSI = "bloom-filter", "bitmap", "range-bitmap", "bsi"

_BITS_MAX = (1 << 31) - 8
_SETTINGS: Mapping[str, Mapping[str, Callable[[str], object]]] = {
    BLOOM_FILTER: {"items": integer(1).parse, "fpp": fraction(1e-9, 1 - 1e-9).parse},
    BITMAP: {"version": integer(1, 2).parse, "index-block-size": SIZE.parse},
    RANGE_BITMAP: {"chunk-size": SIZE.parse},
    BSI: {},
}
_COMPARED = frozenset(Root) - BINARIES
_INDEXED = {
    BLOOM_FILTER: frozenset(Root) - {Root.BOOLEAN, Root.DECIMAL},
    BITMAP: _COMPARED - {Root.DECIMAL},
    RANGE_BITMAP: _COMPARED,
    BSI: frozenset({*INTEGERS, *TIMESTAMPS, Root.DECIMAL, Root.DATE, Root.TIME}),
}
_LONG_DECIMAL_DIGITS = 18
_MICROS_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedColumn:
    """A column, or one key of a map, with the type of its index and the settings of that type."""

    field: Field
    map_key: str | None
    index_type: str
    settings: Mapping[str, object]

    @property
    def name(self) -> str:
        """The name under which the index stores the column."""
        return self.field.name if self.map_key is None else f"{self.field.name}[{self.map_key}]"

    @property
    def value_type(self) -> DataType:
        """The type of the indexed values."""
        kind = self.field.type
        return kind.value if self.map_key is not None and isinstance(kind, Map) else kind


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class IndexesRewritten(ShownFacts):
    """The result of `Table.rewrite_file_index`.

    - `snapshot_id`: the COMPACT snapshot; None if there was nothing to do;
    - `partitions`, `files`: the numbers of partitions and data files whose indexes changed.

        indexed = table.copy({"file-index.bloom-filter.columns": "item"})
        indexed.rewrite_file_index().files  # 3
    """

    _title: ClassVar[str] = "File indexes"

    snapshot_id: int | None = None
    partitions: int = 0
    files: int = 0

    def _shown(self) -> list[tuple[str, object]]:
        if self.snapshot_id is None:
            return [("snapshot", "none: there was nothing to do")]
        return [
            ("snapshot", self.snapshot_id),
            ("partitions", f"{self.partitions:,}"),
            ("files", f"{self.files:,}"),
        ]


def check_file_indexes(schema: TableSchema, options: TableOptions) -> None:
    """Raise InvalidRequest if the options name a column or a setting that no index can have."""
    try:
        indexed_columns(schema, options)
    except Unsupported:
        # Another engine may know this type of index, and lakecore can read the table without it.
        return


def indexed_columns(schema: TableSchema, options: TableOptions) -> tuple[IndexedColumn, ...]:
    """The indexes of each new data file.

    Raises InvalidRequest for a column or setting that does not exist, and for a type of column that
    the index does not take; Unsupported for an unknown type of index.
    """
    columns = options.file_index_columns
    if not columns and not options.file_index_settings:
        return ()
    settings = _settings(options)
    declared = {
        (index_type, part.partition("[")[0] if whole else part)
        for index_type, names in columns.items()
        for part in names
        for whole in (False, True)
    }
    for index_type, column in settings:
        if (index_type, column) not in declared:
            raise InvalidRequest(
                "a setting of a file index names a column without that index",
                option=f"file-index.{index_type}.{column}",
                missing=f"file-index.{index_type}.columns={column}",
                table=options.table,
            )
    return tuple(
        _column(schema, options, index_type, name, settings)
        for index_type, names in columns.items()
        for name in dict.fromkeys(names)
    )


_Settings = dict[tuple[str, str], dict[str, str]]


def _settings(options: TableOptions) -> _Settings:
    found: _Settings = {}
    for rest, text in options.file_index_settings.items():
        parts = file_index_setting(f"file-index.{rest}")
        if parts is None:
            raise InvalidRequest(
                "a setting of a file index is file-index.TYPE.COLUMN.SETTING",
                option=f"file-index.{rest}",
                table=options.table,
            )
        index_type, column, setting = parts
        found.setdefault((index_type, column), {})[setting] = text
    return found


def _column(
    schema: TableSchema, options: TableOptions, index_type: str, name: str, settings: _Settings
) -> IndexedColumn:
    facts: dict[str, object] = {"option": f"file-index.{index_type}.columns", "column": name}
    facts["table"] = options.table
    if index_type not in _SETTINGS:
        raise Unsupported(
            "lakecore does not write this type of file index",
            known=tuple(_SETTINGS),
            way_out=f"set lakecore.ignore-options={facts['option']} to leave it undone",
            **facts,
        )
    top, key = name, None
    if "[" in name and name.endswith("]"):
        top, _, rest = name.partition("[")
        key = rest[:-1]
    if top not in schema.by_name:
        raise InvalidRequest(
            "a column with a file index does not exist", columns=schema.names, **facts
        )
    field = schema.field(top)
    own = {**(settings.get((index_type, top), {})), **settings.get((index_type, name), {})}
    found = IndexedColumn(
        field=field, map_key=key, index_type=index_type, settings=_parsed(index_type, own, facts)
    )
    if key is not None and not _has_text_keys(field.type):
        raise InvalidRequest("`column[key]` needs a MAP with string keys", type=field.type, **facts)
    if not takes(index_type, found.value_type):
        raise InvalidRequest(
            "this type of file index does not take the column's type",
            type=found.value_type,
            **facts,
        )
    return found


def _parsed(
    index_type: str, texts: Mapping[str, str], facts: Mapping[str, object]
) -> Mapping[str, object]:
    known = _SETTINGS[index_type]
    parsed: dict[str, object] = {}
    for setting, text in texts.items():
        if setting not in known:
            raise InvalidRequest(
                "unknown setting of a file index", setting=setting, known=tuple(known), **facts
            )
        try:
            parsed[setting] = known[setting](text)
        except ValueError as error:
            raise InvalidRequest(
                "the setting's value is not allowed",
                setting=setting,
                value=text,
                allowed=str(error),
                **facts,
            ) from error
    if index_type == BLOOM_FILTER:
        items, fpp = parsed.setdefault("items", 1_000_000), parsed.setdefault("fpp", 0.1)
        assert isinstance(items, int)
        assert isinstance(fpp, float)
        if -items * math.log(fpp) / math.log(2) ** 2 > _BITS_MAX:
            raise InvalidRequest("the Bloom filter is too large", items=items, fpp=fpp, **facts)
    return parsed


def _has_text_keys(kind: DataType) -> bool:
    return isinstance(kind, Map) and isinstance(kind.key, Atomic) and kind.key.root in STRINGS


def takes(index_type: str, kind: DataType) -> bool:
    """Whether a type of index can hold values of this type."""
    if not isinstance(kind, Atomic) or kind.root not in _INDEXED[index_type]:
        return False
    if kind.root is Root.DECIMAL:
        return kind.digits <= _LONG_DECIMAL_DIGITS
    too_fine = kind.root in TIMESTAMPS and kind.digits > _MICROS_DIGITS
    return not (index_type == RANGE_BITMAP and too_fine)
