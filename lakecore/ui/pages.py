"""The pages about tables: the list, a table, a snapshot, its files, and the history of its schema.

A page is data, which its JSON shows; its tables are made from the same records. Facts that cost a
read are read only for the rows that a page shows, never for all of a long list.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

from lakecore.catalog.identifier import Identifier, quoted_name
from lakecore.display import show_bytes
from lakecore.errors import InvalidRequest, LakecoreError, NotFound
from lakecore.io.parallel import read_all
from lakecore.masking import masked, masked_options
from lakecore.metrics import (
    TABLES_AT_ONCE,
    Advice,
    Numbers,
    names_of,
    needs_of,
    open_data_table,
    pipelines_of,
    watch,
    watched,
)
from lakecore.model.manifest import FileKind, ManifestEntry
from lakecore.table.maintenance.reachable import branch_names, tags_of
from lakecore.table.reads.told import told_snapshot
from lakecore.table.system.overview import SnapshotFacts, bucket_files
from lakecore.ui.drawing import file_map, growth, timeline
from lakecore.ui.html import Html, facts, joined, link, records, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.pipeline import PipelineStatus
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

Record: TypeAlias = "dict[str, object]"
_TABLES, _SNAPSHOTS, _FILES, _PARTITIONS, _BUCKETS, _VERSIONS = 50, 50, 200, 100, 200, 50
_TABS = ("", "files", "schema", "rows", "changes")


@dataclass(frozen=True, slots=True)
class Site:
    """The common data of all pages: a catalog, and the numbers of its tables."""

    catalog: Catalog
    numbers: Numbers = field(default_factory=Numbers)

    @property
    def where(self) -> str:
        """The warehouse, without secrets."""
        return masked(self.catalog.warehouse)


@dataclass(frozen=True, slots=True)
class Asked:
    """The query of a request."""

    query: Mapping[str, str]

    def text(self, name: str) -> str:
        """A parameter; empty if it is not given."""
        return self.query.get(name, "")

    def number(self, name: str, default: int) -> int:
        """A parameter that is a whole number. Raises InvalidRequest for another text."""
        text = self.text(name).strip()
        if text and not (text.isascii() and text.isdecimal() and len(text) <= 18):
            raise InvalidRequest("the parameter must be a whole number", name=name, value=text)
        return int(text) if text else default


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page: its title, the links that lead to it, its data, and its HTML."""

    title: str
    data: Mapping[str, object]
    body: Html
    crumbs: tuple[Html, ...] = ()
    status: int = 200


def of_table(name: str, tab: str, data: Mapping[str, object], body: Html, title: str = "") -> Page:
    """A page of a table, below the links to the other pages of the table."""
    tabs = [
        tag("li", link(each or "overview", "t", name, *([each] if each else [])))
        if each != tab
        else tag("li", tag("span", each or "overview", aria_current="page"))
        for each in _TABS
    ]
    return Page(
        title=title or (f"{name}: {tab}" if tab else name),
        data=data,
        body=joined(tag("ul", *tabs, class_="tabs"), body),
        crumbs=(link(name, "t", name),),
    )


# --- list of tables ------------------------------------------------------------------------------


def tables_page(site: Site, asked: Asked) -> Page:
    """The tables of a catalog, 50 a page, by name; `q` is a part of the name."""
    wanted, number = asked.text("q").strip(), max(asked.number("page", 1), 1)
    # Only the directories on this page are tested for being a table.
    names = [each for each in names_of(site.catalog) if wanted.lower() in ".".join(each).lower()]
    first = (number - 1) * _TABLES
    listed = read_all(partial(_listed, site), names[first : first + _TABLES], TABLES_AT_ONCE)
    shown = [each for each in listed if each is not None]
    pipelines, error = pipelines_of(site.catalog)
    data = {
        "warehouse": site.where,
        "matching": len(names),
        "page": number,
        "tables": shown,
        "pipelines": [asdict(each) for each in pipelines],
        "pipelines_error": None if error is None else str(error),
    }
    said = f"{len(names):,} tables" + (f" with “{wanted}” in their name" if wanted else "")
    body = joined(
        tag("p", said, class_="note"),
        records(shown, place="tables", table=_table_link, health=_health, advice=None, error=None),
        _pages(number, _TABLES, len(names), q=wanted),
        _pipeline_part(pipelines),
        None if error is None else tag("p", f"CDC pipelines: {error}", class_="bad"),
    )
    return Page(title="Tables", data=data, body=body)


def _listed(site: Site, names: tuple[str, str]) -> Record | None:
    """A table with its numbers and advice, or with the error why it cannot be read.

    Returns None for a directory that is no table.
    """
    shown = str(Identifier(database=names[0], table=names[1]))
    if "`" in names[0] or "`" in names[1]:
        shown = quoted_name(*names)
    row: Record = {"table": shown, "health": "error", "error": None}
    seen = watched(site.catalog, site.numbers, names)
    if seen is None:
        return None
    try:
        if isinstance(seen, LakecoreError):
            raise seen
        advice = needs_of(seen, shown, site.catalog.warehouse)
    except LakecoreError as error:
        return {**row, "error": str(error), "advice": []}
    found = seen.numbers
    return {
        **row,
        "health": "advice" if advice else "ok",
        "advice": [asdict(each) for each in advice],
        "stored_rows": found.rows,
        "files": found.counted.files,
        "size_bytes": found.counted.size_bytes,
        "last_commit_ms": found.time_ms,
        "snapshot": found.snapshot_id,
    }


def _table_link(row: Record) -> Html:
    return link(row["table"], "t", row["table"])


def _health(row: Record) -> Html:
    if row["error"] is not None:
        return tag("span", row["error"], class_="bad")
    advice = row["advice"]
    assert isinstance(advice, list), "as listed"
    if not advice:
        return tag("span", "ok", class_="good")
    return tag("span", "; ".join(each["says"] for each in advice), class_="warn")


def _pipeline_part(pipelines: Sequence[PipelineStatus]) -> Html | None:
    """The pipelines with their lag, and the tables that they have set aside; None without any."""
    rows: list[Record] = [
        {
            "pipeline": each.name,
            "state": each.state,
            "lag_seconds": each.lag_seconds,
            "checkpoint": each.checkpoint,
            "checkpoint_age_seconds": each.age_seconds,
            "rows": each.rows_total,
            "quarantine": [
                f"{it['database']}.{it['table']}: {it['reason']}" for it in each.quarantine
            ],
        }
        for each in pipelines
    ]
    return _part("CDC pipelines", rows, place="pipelines")


# --- a table -------------------------------------------------------------------------------------


def table_page(site: Site, name: str, asked: Asked) -> Page:
    """The facts of a table, what it needs, and its snapshots, 50 a page; `before` a snapshot id."""
    table = open_data_table(site.catalog, name)
    context, history, schema = table.context, table.context.history, table.schema
    seen, ids = watch(table, site.numbers), history.snapshot_ids()
    numbers, lags = seen.numbers, seen.lags
    advice = needs_of(seen, name, site.catalog.warehouse)
    pipelines = [p for p in pipelines_of(site.catalog)[0] if context.identifier in p.targets]
    tags = [(each.name, each.snapshot) for each in tags_of(history)]
    before = asked.number("before", 0)
    below = [number for number in ids if not before or number < before]
    read = read_all(history.snapshot_if_there, below[-_SNAPSHOTS:])
    snapshots = [told_snapshot(each, context) for each in read if each is not None]
    rows = read_all(partial(_snapshot_row, context), snapshots)
    about: Record = {
        "path": masked(context.layout.root),
        "comment": schema.comment,
        "primary_key": schema.primary_keys,
        "partitioned_by": schema.partition_keys,
        "stored_rows": numbers.rows,
        "files": numbers.counted.files,
        "buckets": numbers.counted.buckets,
        "size_bytes": numbers.counted.size_bytes,
        "last_commit_ms": numbers.time_ms,
        "snapshots": len(ids),
        "options": masked_options(dict(sorted(schema.stated_options.items()))),
    }
    tagged: list[Record] = [
        {"tag": each, "snapshot": own.id, "committed_ms": own.time_ms} for each, own in tags
    ]
    branches = branch_names(context)
    behind = [asdict(each) for each in lags]
    data = {
        "table": context.identifier,
        **about,
        "numbers": asdict(numbers),
        "advice": [asdict(each) for each in advice],
        "snapshot_count": len(ids),
        "snapshots": rows,
        "tags": tagged,
        "branches": branches,
        "consumers": behind,
        "pipelines": [asdict(each) for each in pipelines],
    }
    points = [
        SnapshotFacts(
            id=each.id,
            kind=str(each.commit_kind),
            time_ms=each.time_ms,
            rows=each.total_record_count,
            tags=tuple(tag_name for tag_name, own in tags if own.id == each.id),
            consumers=tuple(lag.consumer for lag in lags if lag.next_snapshot == each.id),
        )
        for each in snapshots
    ]
    main = context.identifier.partition("$")[0]
    older = bool(snapshots) and snapshots[0].id > ids[0]

    def to_snapshot(row: Record) -> Html:
        return link(row["snapshot"], "t", name, "snapshots", row["snapshot"])

    body = joined(
        facts(about, place="facts"),
        _advice_part(advice),
        tag("h2", "Snapshots"),
        timeline(points, name),
        growth(points) if points else None,
        records(rows[::-1], place="snapshots", snapshot=to_snapshot),
        tag("p", link("older →", "t", name, before=snapshots[0].id)) if older else None,
        _part("Tags", tagged[:_FILES], place="tags", snapshot=to_snapshot),
        _part(
            "Branches",
            [{"branch": each} for each in branches],
            place="branches",
            branch=lambda row: link(row["branch"], "t", f"{main}$branch_{row['branch']}"),
        ),
        _part("Consumers", behind, place="consumers"),
        _pipeline_part(pipelines),
    )
    return of_table(name, "", data, body)


def _snapshot_row(context: TableContext, snapshot: Snapshot) -> Record:
    """A snapshot, and how many files it added and removed (None: that cannot be read)."""
    try:
        delta = context.history.delta_manifests(snapshot)
    except LakecoreError:
        added = removed = None
    else:
        added = sum(each.added_count for each in delta)
        removed = sum(each.deleted_count for each in delta)
    return {
        "snapshot": snapshot.id,
        "kind": str(snapshot.commit_kind),
        "committed_ms": snapshot.time_ms,
        "change_of_rows": snapshot.delta_record_count,
        "stored_rows": snapshot.total_record_count,
        "files_added": added,
        "files_removed": removed,
        "user": snapshot.commit_user,
    }


def _advice_part(advice: Sequence[Advice]) -> Html:
    if not advice:
        return tag("p", "Health: ok", class_="good", id="health")
    lines = (
        tag("li", tag("span", f"{each.says}: ", class_="warn"), tag("code", each.command))
        for each in advice
    )
    return joined(tag("h2", "Health"), tag("ul", *lines, class_="advice", id="health"))


# --- a snapshot ----------------------------------------------------------------------------------


def snapshot_page(site: Site, name: str, number: str) -> Page:
    """The facts of a snapshot, its manifests, and the first 200 files that it added or removed."""
    context = open_data_table(site.catalog, name).context
    context.options.require_all_rows()
    history = context.history
    snapshot = history.snapshot(Asked({"snapshot": number}).number("snapshot", 0))
    delta = history.delta_manifests(snapshot)
    entries: list[ManifestEntry] = []
    for each in delta:
        if len(entries) < _FILES:
            entries += history.manifest(each)
    about = {
        **_snapshot_row(context, snapshot),
        "schema": snapshot.schema_id,
        "identifier": snapshot.commit_identifier,
        "changelog_rows": snapshot.changelog_record_count,
        "watermark": snapshot.watermark,
    }
    count = sum(each.added_count + each.deleted_count for each in delta)
    files = [_file_row(context, each) for each in entries[:_FILES]]
    manifests: list[Record] = [
        {
            "manifest": each.name,
            "size_bytes": each.size_bytes,
            "added": each.added_count,
            "removed": each.deleted_count,
        }
        for each in delta
    ]
    more = [
        link(text, "t", name, "snapshots", other)
        for text, other in (("← older", snapshot.id - 1), ("newer →", snapshot.id + 1))
        if history.snapshot_if_there(other) is not None
    ]
    body = joined(
        tag("p", *spaced(more)),
        facts(about, place="facts"),
        _part("Files added and removed", files, place="entries"),
        _shown_of(len(files), count, "files"),
        _part("Manifests", manifests, place="manifests"),
    )
    data = {"table": context.identifier, **about, "files": files, "manifests": manifests}
    return of_table(name, "snapshots", data, body, f"{name}: snapshot {snapshot.id}")


def _file_row(context: TableContext, entry: ManifestEntry) -> Record:
    return {
        "change": "added" if entry.kind is FileKind.ADD else "removed",
        "partition": context.partitions.path(entry.partition),
        "bucket": entry.bucket,
        "level": entry.file.level,
        "rows": entry.file.row_count,
        "size_bytes": entry.file.size_bytes,
        "file": entry.file.name,
    }


# --- files ---------------------------------------------------------------------------------------


def files_page(site: Site, name: str, asked: Asked) -> Page:
    """The live files: by partition, then by bucket and level, then one by one."""
    context = open_data_table(site.catalog, name).context
    context.options.require_all_rows()
    snapshot = context.history.latest_snapshot()
    if snapshot is None:
        return of_table(name, "files", {"partitions": []}, tag("p", "There is no file yet."))
    partitions, live = context.history.live_facts(snapshot)
    paths = [context.partitions.path(each) for each in partitions]
    chosen = asked.query.get("partition", None if context.schema.partition_keys else "")
    if chosen is None:
        return _partitions_page(name, paths, live, asked)
    if chosen not in paths:
        raise NotFound("no such partition with files", table=context.identifier, partition=chosen)
    place = paths.index(chosen)
    sums = _sums(live.filter(pl.col("partition") == place), "bucket").sort("bucket")
    buckets = sums.head(_BUCKETS).to_dicts()
    single = asked.number("bucket", 0) if asked.text("bucket") else None
    wanted = {each["bucket"] for each in buckets} if single is None else {single}
    entries = _live(context, snapshot, partitions[place], wanted)
    files = [] if single is None else [_file_row(context, each) for each in entries[:_FILES]]

    def to_bucket(row: Record) -> Html:
        return link(row["bucket"], "t", name, "files", partition=chosen, bucket=row["bucket"])

    body = joined(
        tag("p", f"Partition {chosen}") if chosen else None,
        file_map(bucket_files(context, entries)),
        _part("Buckets", buckets, place="buckets", bucket=to_bucket, size_bytes=_bar(sums)),
        _shown_of(len(buckets), sums.height, "buckets"),
        _part(f"Files of bucket {single}", files, place="entries", change=None),
        _shown_of(len(files), len(entries), "files") if files else None,
    )
    data = {"partition": chosen, "buckets": buckets, "files": files}
    return of_table(name, "files", data, body)


def _partitions_page(name: str, paths: Sequence[str], live: pl.DataFrame, asked: Asked) -> Page:
    number = max(asked.number("page", 1), 1)
    sums = _sums(live, "partition")
    named = [{**each, "partition": paths[each["partition"]]} for each in sums.to_dicts()]
    named.sort(key=lambda row: str(row["partition"]), reverse=True)
    shown = named[(number - 1) * _PARTITIONS : number * _PARTITIONS]

    def to_partition(row: Record) -> Html:
        return link(row["partition"], "t", name, "files", partition=row["partition"])

    body = joined(
        tag("p", f"{len(paths):,} partitions with files", class_="note"),
        records(shown, place="partitions", partition=to_partition, size_bytes=_bar(sums)),
        _pages(number, _PARTITIONS, len(paths), "t", name, "files"),
    )
    return of_table(name, "files", {"matching": len(paths), "partitions": shown}, body)


def _sums(live: pl.DataFrame, key: str) -> pl.DataFrame:
    return live.group_by(key).agg(
        files=pl.len(),
        level_0_files=(pl.col("level") == 0).sum(),
        levels=pl.col("level").n_unique(),
        rows=pl.col("row_count").sum(),
        size_bytes=pl.col("size_bytes").sum(),
    )


def _bar(sums: pl.DataFrame) -> Callable[[Record], Html]:
    """Shows a size, with a bar whose full length is the largest of the sizes."""
    most = int(str(sums["size_bytes"].max() or 1))

    def shown(row: Record) -> Html:
        size_bytes = int(str(row["size_bytes"]))
        bar = tag("meter", min=0, max=max(most, 1), value=size_bytes)
        return tag("span", bar, " ", show_bytes(size_bytes), class_="whole")

    return shown


def _live(
    context: TableContext, snapshot: Snapshot, partition: bytes, buckets: set[int]
) -> Sequence[ManifestEntry]:
    """The live files of some buckets; of a large table, no other files become objects."""
    history = context.history
    if history.is_small(snapshot):
        every = history.live_entries(snapshot)
        return [each for each in every if each.partition == partition and each.bucket in buckets]
    return history.live_columns(history.manifests(snapshot), {partition: buckets}).entries()


# --- schema --------------------------------------------------------------------------------------


def schema_page(site: Site, name: str, asked: Asked) -> Page:
    """The columns and options of the newest schema, and what each version changed, 50 a page."""
    context = open_data_table(site.catalog, name).context
    ids, newest = context.history.schema_ids(), context.schema
    before = asked.number("before", 0) or ids[-1] + 1
    below = [number for number in ids if number < before][-_VERSIONS - 1 :]
    versions = read_all(context.history.schema, below)
    history: list[Record] = [
        {"schema": new.id, "since_ms": new.time_ms, "changes": differences(old, new)}
        for old, new in zip([None, *versions[:-1]], versions, strict=True)
        if old is not None or new.id == ids[0]
    ]
    keys = {"primary key": newest.primary_keys, "partition key": newest.partition_keys}
    columns: list[Record] = [
        {
            "column": each.name,
            "type": str(each.type),
            "key": [key for key, names in keys.items() if each.name in names],
            "default": each.default_value,
            "comment": each.description,
        }
        for each in newest.fields
    ]
    options = masked_options(dict(sorted(newest.stated_options.items())))
    data = {"schema": newest.id, "columns": columns, "options": options, "versions": history}
    older = bool(history) and versions[0].id > ids[0]
    body = joined(
        records(columns, place="columns"),
        joined(tag("h2", "Options"), facts(options, place="options")) if options else None,
        _part("History", history[::-1], place="history"),
        tag("p", link("older →", "t", name, "schema", before=history[0]["schema"]))
        if older
        else None,
    )
    return of_table(name, "schema", data, body)


def differences(old: TableSchema | None, new: TableSchema) -> list[str]:
    """What a version of a schema changed, one line each. Columns are compared by their ids."""
    if old is None:
        return [f"created with {len(new.fields)} columns"]
    lines = []
    for each in new.fields:
        before = old.by_id.get(each.id)
        if before is None:
            lines.append(f"added {each.name} {each.type}")
            continue
        if before.name != each.name:
            lines.append(f"renamed {before.name} to {each.name}")
        lines += _changed(f"type of {each.name}", before.type, each.type)
        lines += _changed(f"comment of {each.name}", before.description, each.description)
        lines += _changed(f"default of {each.name}", before.default_value, each.default_value)
    lines += [f"dropped {each.name}" for each in old.fields if each.id not in new.by_id]
    kept = [each.id for each in old.fields if each.id in new.by_id]
    if kept != [each.id for each in new.fields if each.id in old.by_id]:
        lines.append(f"order of columns: {', '.join(new.names)}")
    was, now = (masked_options(each.options) for each in (old, new))
    lines += [
        f"option {key}: {was.get(key, 'unset')} → {now.get(key, 'unset')}"
        for key in sorted({*old.options, *new.options})
        if old.options.get(key) != new.options.get(key)
    ]
    lines += _changed("comment", old.comment, new.comment)
    lines += _changed("primary key", old.primary_keys, new.primary_keys)
    return lines or ["nothing that this page shows"]


def _changed(what: str, was: object, now: object) -> list[str]:
    return [] if was == now else [f"{what}: {was} → {now}"]


# --- parts ---------------------------------------------------------------------------------------


def spaced(parts: Iterable[Html]) -> Iterable[Html]:
    """The parts, with a space after each."""
    return (joined(part, " ") for part in parts)


def _part(
    title: str,
    rows: Sequence[Record],
    *,
    place: str,
    **shown: Callable[[Record], Html] | None,
) -> Html | None:
    """Records below a title; None without records."""
    return joined(tag("h2", title), records(rows, place=place, **shown)) if rows else None


def _pages(number: int, size: int, count: int, *parts: object, **query: object) -> Html | None:
    """The links to the pages around this one; None if there is only one page."""
    pages = -(-count // size)
    if pages <= 1:
        return None
    around = (("← previous", number - 1), ("next →", number + 1))
    links = [link(text, *parts, **query, page=at) for text, at in around if 0 < at <= pages]
    return tag("p", f"page {number} of {pages} ", *spaced(links), class_="note")


def _shown_of(shown: int, count: int, what: str) -> Html | None:
    more = shown < count
    return tag("p", f"The first {shown:,} of {count:,} {what}.", class_="note") if more else None
