"""pypaimon as a peer: `python -m tests.interop.python_peer [native]`, in the peers' venv.

With `native`, planning, reading, writing and committing must go through paimon-rust. pypaimon
falls back to its Python code without a word where Rust cannot follow; here that is a refusal, so
that no test takes one engine for the other. Verbs: create, write, read.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from pypaimon.common.file_io import FileIO
from pypaimon.common.options.options import (
    Options,
)
from pypaimon.read.table_read import TableRead
from pypaimon.read.table_scan import TableScan
from pypaimon.schema.data_types import (
    DataField,
    DataTypeParser,
    PyarrowFieldParser,
)
from pypaimon.schema.schema import Schema
from pypaimon.schema.schema_manager import (
    SchemaManager,
)
from pypaimon.table.file_store_table import (
    FileStoreTable,
)
from pypaimon.write import native_commit
from pypaimon.write.native_write import (
    NativeTableWrite,
)
from pypaimon.write.table_commit import TableCommit

from tests.interop.arrow_values import from_arrow, to_arrow
from tests.interop.columns import columns_from_json
from tests.interop.protocol import serve

if TYPE_CHECKING:
    from tests.interop.columns import Column, Json
    from tests.interop.values import Row

    # pypaimon has no annotations worth checking against.
    Pypaimon = Any

NATIVE_OPTIONS = {
    "write.native.enabled": "true",
    "commit.native.enabled": "true",
    "scan.native-plan.enabled": "true",
    "read.native.enabled": "true",
}


class FellBack(Exception):
    """pypaimon took its Python path where paimon-rust was asked for."""


class PythonPeer:
    """The verbs, on one of pypaimon's two paths."""

    def __init__(self, *, native: bool) -> None:
        """Choose the path."""
        self._native = native
        if native:
            _forbid_fallback()

    def create(
        self,
        path: str,
        columns: list[dict[str, Json]],
        primary_keys: list[str],
        partition_keys: list[str],
        options: dict[str, str],
    ) -> None:
        """Create the table at `path`."""
        fields = [
            DataField(column["id"], column["name"], DataTypeParser.parse_data_type(column["type"]))
            for column in columns
        ]
        # Created from Arrow a table would lose lengths and precisions; this keeps them.
        schema = Schema(fields, partition_keys, primary_keys, dict(options))
        file_io = _file_io(path)
        SchemaManager(file_io, path).create_table(schema)

    def write(
        self, path: str, rows: list[tuple[str, Row]], options: dict[str, str] | None = None
    ) -> int:
        """Write changes and commit them; return the latest snapshot id.

        pypaimon takes kinds only from a column that `rowkind.field` names.
        """
        table = self._table(path, options)
        columns = _columns(table)
        kinds = {kind for kind, _ in rows}
        if kinds - {"+I"}:
            message = f"pypaimon writes kinds only by rowkind.field: {sorted(kinds)}"
            raise NotImplementedError(message)
        schema = PyarrowFieldParser.from_paimon_schema(table.table_schema.fields)
        data = to_arrow([row for _, row in rows], columns, schema)
        builder = table.new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        try:
            if self._native and not isinstance(write, NativeTableWrite):
                message = "the writer is Python's"
                raise FellBack(message)
            write.write_arrow(data)
            commit.commit(write.prepare_commit())
        finally:
            write.close()
            commit.close()
        return int(table.snapshot_manager().get_latest_snapshot().id)

    def read(
        self,
        path: str,
        options: dict[str, str] | None = None,
        columns: list[str] | None = None,
        where: tuple[str, str, Json] | None = None,
    ) -> list[Row]:
        """Read the merged rows."""
        table = self._table(path, options)
        wanted = _columns(table)
        builder = table.new_read_builder()
        if columns is not None:
            builder = builder.with_projection(columns)
            by_name = {column.name: column for column in wanted}
            wanted = [by_name[name] for name in columns]
        if where is not None:
            builder = builder.with_filter(_predicate(builder, where, _columns(table)))
        splits = builder.new_scan().plan().splits()
        return from_arrow(builder.new_read().to_arrow(splits), wanted)

    def _table(self, path: str, options: dict[str, str] | None) -> Pypaimon:
        table = FileStoreTable.from_path(path)
        dynamic = {**(options or {}), **(NATIVE_OPTIONS if self._native else {})}
        return table.copy(dynamic) if dynamic else table


def _file_io(path: str) -> Pypaimon:
    return FileIO.get(path, Options({}))


def _columns(table: Pypaimon) -> list[Column]:
    return list(columns_from_json([field.to_dict() for field in table.table_schema.fields]))


def _predicate(builder: Pypaimon, where: tuple[str, str, Json], columns: list[Column]) -> Pypaimon:
    name, operator, value = where
    predicates = builder.new_predicate_builder()
    method = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in operator)
    if operator in ("isNull", "isNotNull"):
        return getattr(predicates, method)(name)
    (column,) = (column for column in columns if column.name == name)
    literal = to_arrow([[value]], [column]).column(0)[0].as_py()
    return getattr(predicates, method)(name, literal)


def _forbid_fallback() -> None:
    """Make every silent way back from Rust to Python an error."""
    _refuse_nothing(TableRead, "_try_native_batches", "the reader is Python's")
    _refuse_nothing(TableScan, "_try_native_plan", "the planner is Python's")
    _refuse_nothing(TableScan, "_native_plan_supported", "Rust cannot plan this table")
    _refuse_nothing(TableCommit, "_prepare_native_commit", "the committer is Python's")
    # pypaimon lets Rust commit to REST catalogs only, though Rust can to files as well. Here it
    # does, because the point is to meet another committer.
    native_commit._rest_catalog_supported = lambda _: True  # noqa: SLF001
    _refuse_call(NativeTableWrite, "_switch_to_python", "the writer became Python's")
    logging.getLogger("pypaimon").setLevel(logging.DEBUG)
    logging.basicConfig(stream=sys.stderr)


def _refuse_nothing(owner: type, method: str, message: str) -> None:
    original = getattr(owner, method)

    def checked(*arguments: object, **options: object) -> object:
        reasons: list[str] = []
        handler = _Reasons(reasons)
        logger = logging.getLogger("pypaimon")
        logger.addHandler(handler)
        try:
            result = original(*arguments, **options)
        finally:
            logger.removeHandler(handler)
        if result is None or result is False:
            raise FellBack(": ".join((message, *reasons)))
        return result

    setattr(owner, method, checked)


def _refuse_call(owner: type, method: str, message: str) -> None:
    def refused(*_: object, **__: object) -> None:
        raise FellBack(message)

    setattr(owner, method, refused)


class _Reasons(logging.Handler):
    """Keeps what pypaimon logs about why it fell back."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._reasons = reasons

    def emit(self, record: logging.LogRecord) -> None:
        self._reasons.append(record.getMessage())


if __name__ == "__main__":
    peer = PythonPeer(native="native" in sys.argv[1:])
    serve({"create": peer.create, "write": peer.write, "read": peer.read})
