"""`lakecore delete`, `update` and `merge`: they change rows of a table."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakecore.catalog.identifier import parse_identifier
from lakecore.cli.confirm import require_consent
from lakecore.cli.imports import STDIN, counted, opened, rows_text, summary
from lakecore.cli.printing import write_record
from lakecore.cli.target import place_of, storage_options, table_of
from lakecore.errors import InvalidRequest, LakecoreError
from lakecore.scalar.values import sql_expr
from lakecore.session import sql_engine
from lakecore.sql.file_rows import kind_of
from lakecore.sql.tokens import quoted, quoted_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakecore.cli.arguments import Format
    from lakecore.cli.imports import Reading
    from lakecore.model.snapshot import CommitResult

__all__ = ["delete", "merge", "update"]

_NAMES = re.compile(r"[\w ]+(,[\w ]+)*")
_SOURCE = "_lakecore_source"
_ACTION = re.compile(r"(UPDATE|DELETE|INSERT)\b", re.IGNORECASE)


def delete(
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    where: str,
    care: tuple[bool, bool],
    form: Format,
) -> None:
    """Delete rows."""
    dry_run, yes = care
    table = table_of(name, warehouse, option)
    count = table.count(where) if dry_run or not yes else None
    if dry_run:
        _only_said("delete", name, count or 0, form)
        return
    if count:
        require_consent(f"delete {rows_text(count)} of {name}?", yes=yes)
    result = table.delete(where)
    _report("deleted", name, result, result.rows_deleted, form)


def update(  # noqa: PLR0913, PLR0917  the parameters of the command
    name: str,
    warehouse: str | None,
    option: list[str] | None,
    values: Sequence[str],
    where: str | None,
    care: tuple[bool, bool],
    form: Format,
) -> None:
    """Set columns of rows."""
    dry_run, yes = care
    table = table_of(name, warehouse, option)
    found: dict[str, object] = {}
    for each in values:
        column, equals, text = each.partition("=")
        if not equals or not column.strip() or not text.strip():
            raise InvalidRequest("--set is written COLUMN=SQL", given=each)
        if column.strip() in found:
            raise InvalidRequest("--set names a column twice", column=column.strip())
        found[column.strip()] = sql_expr(text.strip())
    if dry_run:
        _only_said("update", name, table.count(where), form)
        return
    if where is None:
        require_consent(f"update all rows of {name}?", yes=yes)
    result = table.update(found, where)
    _report("updated", name, result, result.rows_updated, form)


def merge(  # noqa: PLR0913, PLR0917  the parameters of the command
    name: str,
    source: str,
    warehouse: str | None,
    option: list[str] | None,
    on: str,
    clauses: Mapping[str, Sequence[str]],
    reading: Reading,
    form: Format,
) -> None:
    """Run MERGE INTO with a file or a table as its source."""
    session, identifier, own = place_of(name, warehouse, option)
    engine = sql_engine(session)
    target = session.get_table(identifier)
    for key, value in own.items():
        engine.run(f"SET {quoted_text(key)} = {quoted_text(value)}")
    is_file = source == STDIN or reading[0] is not None or kind_of(source) is not None
    text = _statement(identifier, on, clauses)
    if is_file or Path(source).is_file():
        storage = storage_options(option)
        with opened([source], reading, target.schema, storage=storage) as rows:
            failed: list[LakecoreError] = []
            held = pa.RecordBatchReader.from_batches(rows.schema, _noting(counted(rows), failed))
            try:
                found = engine.run(text, scope=lambda _name: held)
            except LakecoreError as error:
                if failed:  # Arrow and DuckDB raise their own error in place of the file's error
                    raise failed[0] from error
                raise
    else:
        other = table_of(source, warehouse, None)
        found = engine.run(text, scope=lambda _name: other)
    record = dict(zip(found.columns, found.fetchall()[0], strict=True))
    counts = ", ".join(
        f"{record.get(f'rows_{what}') or 0:,} {what}" for what in ("inserted", "updated", "deleted")
    )
    snapshot = record["snapshot_id"]
    state = "nothing to commit" if snapshot is None else f"snapshot {snapshot}"
    write_record({"table": name, **record}, form, f"merged into {name}: {counts}: {state}")


def _noting(
    batches: Iterator[pa.RecordBatch], failed: list[LakecoreError]
) -> Iterator[pa.RecordBatch]:
    """The batches. If reading them raises an error, it is also appended to `failed`."""
    try:
        yield from batches
    except LakecoreError as error:
        failed.append(error)
        raise


def _statement(identifier: str, on: str, clauses: Mapping[str, Sequence[str]]) -> str:
    if _NAMES.fullmatch(on):
        columns = [quoted(each.strip()) for each in on.split(",")]
        on = " AND ".join(f"target.{each} = source.{each}" for each in columns)
    named = parse_identifier(identifier)
    table = f"{quoted(named.database)}.{quoted(named.table)}"
    lines = [f"MERGE INTO {table} AS target USING {_SOURCE} AS source ON {on}"]
    for match, texts in clauses.items():
        for text in texts:
            action = text.strip()
            then = "THEN " if _ACTION.match(action) else "" if _starts(action) else "AND "
            lines.append(f"WHEN {match} {then}{action}")
    return "\n".join(lines)


def _starts(text: str) -> bool:
    """Whether a clause begins with AND or THEN, like the text after WHEN MATCHED."""
    return re.match(r"(AND|THEN)\b", text, re.IGNORECASE) is not None


def _only_said(verb: str, name: str, count: int, form: Format) -> None:
    record = {"table": name, "rows": count, "dry_run": True}
    write_record(
        record, form, f"would {verb} {rows_text(count)} of {name}\ndry run: nothing was changed"
    )


def _report(verb: str, name: str, result: CommitResult, count: int | None, form: Format) -> None:
    record = {"table": name, **asdict(result)}
    write_record(record, form, summary(verb, name, result, count or 0))
