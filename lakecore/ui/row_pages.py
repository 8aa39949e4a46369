"""The pages that read rows: a sample of a table, its change feed, and the query box.

A page shows at most `ROWS_MAX` rows, and `_BYTES_MAX` bytes of values. A read stops between two
batches if its time is over, and a query is interrupted.
"""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING

from lakecore.deferred import deferred
from lakecore.display import show_bytes, value_text
from lakecore.errors import InvalidRequest
from lakecore.frames.arrow_frames import to_frame
from lakecore.memory import Share, process_budget
from lakecore.metrics import open_data_table
from lakecore.ui.html import Html, address, joined, link, table, tag, verbatim
from lakecore.ui.pages import Page, of_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lakecore.io.history import History
    from lakecore.session import open_table
    from lakecore.sql.engine import SqlEngine
    from lakecore.ui.pages import Asked, Site
else:
    SqlEngine = deferred("lakecore.sql.engine", "SqlEngine")
    open_table = deferred("lakecore.session", "open_table")

ROWS_MAX = 200
_TEXT_MAX = 100_000
_FEED_SNAPSHOTS = 10
_BYTES_MAX = 16 << 20
_INTERRUPT_SECONDS = 0.1


def rows_page(site: Site, name: str, asked: Asked, stopped: Callable[[], bool]) -> Page:
    """Some rows of a table: those that match `where`, at `snapshot` or now."""
    found = open_data_table(site.catalog, name)
    where, number = asked.text("where").strip(), asked.number("snapshot", 0)
    reader = found.to_batches(None, where or None, ROWS_MAX + 1, snapshot_id=number or None)
    names, rows, more = _taken(reader, ROWS_MAX, stopped)
    form = tag(
        "form",
        tag("label", "WHERE", for_="where"),
        tag(
            "input", name="where", id="where", value=where, placeholder="id > 10", maxlength=10_000
        ),
        tag("input", type="hidden", name="snapshot", value=number) if number else None,
        tag("button", "Show", class_="main"),
        class_="line",
        action=address("t", name, "rows"),
    )
    data = {"table": found.context.identifier, "columns": names, "rows": rows, "more": more}
    return of_table(name, "rows", data, joined(form, _result(names, rows, more=more)))


def changes_page(site: Site, name: str, asked: Asked, stopped: Callable[[], bool]) -> Page:
    """The changes of the snapshots after `after`; the script of the page asks for the next ones."""
    found = open_data_table(site.catalog, name)
    history = found.context.history
    latest = history.latest_snapshot_id() or 0
    after = asked.number("after", -1)
    if after < 0:
        after = _before_newest(history, latest)
    names: list[str] = ["snapshot", "_row_kind", *found.schema.names]
    rows: list[list[object]] = []
    until, left_out = min(after, latest), 0
    if latest > after:
        stream = found.stream(from_snapshot=after + 1, until=latest).to_batches()
        for snapshot_id, reader in stream:
            columns, taken, more = _taken(reader, ROWS_MAX, stopped)
            if rows and (more or len(rows) + len(taken) > ROWS_MAX):
                break  # the next page begins with this snapshot
            kinds = columns.index("_row_kind")
            rows += [[snapshot_id, row.pop(kinds), *row] for row in taken]
            until = snapshot_id
            if more:
                left_out = snapshot_id
                break
        else:
            until = latest
    following = address("t", name, "changes", after=until)
    feed = table(names, [[_cell(value) for value in row] for row in rows[::-1]], id="feed")
    body = joined(
        tag(
            "p",
            f"Changes of snapshots {after + 1} to {until}, newest first; new ones appear by "
            "themselves. "
            if until > after
            else "Waiting for the next snapshot. ",
            link("Show only what comes next", "t", name, "changes", after=until),
            class_="note",
            role="status",
        ),
        tag("p", f"Snapshot {left_out} has more rows than this page shows.", class_="warn")
        if left_out
        else None,
        tag("div", feed, data_poll=following),
    )
    data = {"table": found.context.identifier, "after": after, "until": until, "columns": names}
    return of_table(name, "changes", {**data, "rows": rows, "cut_in": left_out or None}, body)


def _before_newest(history: History, latest: int) -> int:
    """The snapshot after which the feed begins, so that the changes of later ones fit a page."""
    after, rows = latest, 0
    while after > 0 and latest - after < _FEED_SNAPSHOTS:
        snapshot = history.snapshot_if_there(after)
        if snapshot is None:
            break
        rows += abs(snapshot.changelog_record_count or snapshot.delta_record_count or 0)
        if rows > ROWS_MAX and after < latest:
            break
        after -= 1
    return after


def query_form(text: str, query_id: str, result: Html | None = None) -> Html:
    """The query box; `query_id` names the query for its cancellation."""
    says = (
        "One SELECT over tables of this warehouse, named database.table. It reads no files and "
        f"changes nothing; the first {ROWS_MAX} rows are shown. Ctrl+Enter runs it."
    )
    form = tag(
        "form",
        tag("label", says, for_="q", class_="note"),
        tag("textarea", verbatim(text), name="q", id="q", spellcheck="false", maxlength=_TEXT_MAX),
        tag("input", type="hidden", name="id", value=query_id),
        tag(
            "p",
            tag("button", "Run", class_="main"),
            " ",
            tag("button", "Cancel", formaction="/sql/cancel", id="cancel"),
        ),
        method="post",
        action="/sql",
        id="sql",
    )
    return joined(form, tag("div", result, id="result", aria_live="polite"))


class Query:
    """A query of the query box, in a DuckDB of its own. `cancel` may be called from any thread."""

    def __init__(self, site: Site, text: str) -> None:
        if len(text) > _TEXT_MAX:
            raise InvalidRequest("the query is too long", most=_TEXT_MAX)
        self._site, self._text = site, text
        self._engine: SqlEngine | None = None
        self._cancelled = False
        self._ended = Event()

    def cancel(self) -> None:
        """Interrupt the query, which then raises InvalidRequest."""
        self._cancelled = True
        Thread(target=self._interrupt, daemon=True).start()

    def _interrupt(self) -> None:
        """Interrupt until the query ends: DuckDB forgets an interrupt between two statements."""
        while not self._ended.wait(_INTERRUPT_SECONDS):
            if self._engine is not None:
                self._engine.interrupt()

    def run(self) -> Page:
        """The first rows of the query, as a page without the form."""
        try:
            return self._run()
        finally:
            self._ended.set()

    def _run(self) -> Page:
        memory_bytes = Share.PAGE_QUERY.of(process_budget().size_bytes)
        self._engine = SqlEngine(self._site.catalog, open_table)
        names: Sequence[str] = ()
        rows: list[list[object]] = []
        more = False
        if not self._cancelled:
            try:
                names, found = self._engine.sealed(
                    self._text, limit=ROWS_MAX + 1, memory_bytes=memory_bytes
                )
                rows, more = _fitting(found)
            except KeyboardInterrupt:
                self._cancelled = True
        if self._cancelled:
            raise InvalidRequest("the query was cancelled")
        data = {"columns": list(names), "rows": rows, "more": more}
        return Page(title="SQL", data=data, body=_result(names, rows, more=more))


def _fitting(found: Sequence[Sequence[object]]) -> tuple[list[list[object]], bool]:
    """The first rows of a result that fit a page, and whether there are more."""
    rows: list[list[object]] = []
    room = _BYTES_MAX
    for row in found:
        room -= _size_bytes(row)
        if len(rows) == ROWS_MAX or (room < 0 and rows):
            return rows, True
        _check_fits(room)
        rows.append(list(row))
    return rows, False


def _size_bytes(value: object) -> int:
    match value:
        case str() | bytes():
            return len(value)
        case list() | tuple():
            return 16 + sum(map(_size_bytes, value))
        case dict():
            return 16 + sum(map(_size_bytes, value)) + sum(map(_size_bytes, value.values()))
    return 16


def _check_fits(room: int) -> None:
    """Raise InvalidRequest for a first row that leaves no room."""
    if room < 0:
        raise InvalidRequest(
            f"one row has more than {show_bytes(_BYTES_MAX)}, the most that a page shows: query "
            "fewer columns, or a part of its values, such as left(TEXT, 1000)"
        )


def _taken(
    reader: pa.RecordBatchReader, most: int, stopped: Callable[[], bool]
) -> tuple[list[str], list[list[object]], bool]:
    """The columns and the first rows of a stream, and whether there are more.

    Raises InvalidRequest if the time of the read is over, or if the first row does not fit
    `_BYTES_MAX`.
    """
    rows: list[list[object]] = []
    room = _BYTES_MAX
    for batch in reader:
        if stopped():
            raise InvalidRequest("the read took too long; name fewer partitions in WHERE")
        part = batch.slice(0, most - len(rows))
        while part.nbytes > room and part.num_rows:
            if not rows and part.num_rows == 1:
                _check_fits(room - part.nbytes)
            part = part.slice(0, part.num_rows // 2)
        room -= part.nbytes
        rows += [list(row) for row in to_frame(part).rows()]
        if part.num_rows < batch.num_rows:
            return list(reader.schema.names), rows, True
    return list(reader.schema.names), rows, False


def _result(names: Sequence[str], rows: Sequence[Sequence[object]], *, more: bool) -> Html:
    most = f"a page shows at most {ROWS_MAX} rows and {show_bytes(_BYTES_MAX)}"
    count = f"The first {len(rows)} rows; {most}." if more else f"{len(rows)} rows."
    shown = ([_cell(value) for value in row] for row in rows)
    return joined(tag("p", count, class_="note"), table(names, shown, class_="data"))


def _cell(value: object) -> Html:
    if value is None:
        return tag("span", "NULL", class_="note")
    return tag("span", value_text(value))
