"""The pages about tables: the list, a table, a snapshot, its files, and the history of its schema.

A page is data, which its JSON shows, and HTML made from the same values. What costs a read is read
for the rows that a page shows, never for all of a long list.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from lakecore.catalog.identifier import Identifier
from lakecore.display import show_bytes
from lakecore.errors import InvalidRequest, LakecoreError, NotFound
from lakecore.io.parallel import read_all
from lakecore.masking import masked, masked_options
from lakecore.metrics import (
    Numbers,
    advice_of,
    consumer_lags,
    knows_pipelines,
    open_data_table,
    pipelines_of,
    table_name,
    upkeep_of,
)
from lakecore.model.manifest import FileKind
from lakecore.table.maintenance.reachable import branch_names, tags_of
from lakecore.table.reads.told import told_snapshot
from lakecore.table.system.overview import SnapshotFacts, bucket_files
from lakecore.ui.drawing import file_map, growth, timeline
from lakecore.ui.html import Html, ago, facts, joined, link, moment, table, tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakecore.catalog.catalog import Catalog
    from lakecore.cdc.pipeline import PipelineStatus
    from lakecore.metrics import Advice, TableNumbers
    from lakecore.model.manifest import ManifestEntry
    from lakecore.model.schema import TableSchema
    from lakecore.model.snapshot import Snapshot
    from lakecore.table.context import TableContext

_TABLES, _SNAPSHOTS, _FILES, _PARTITIONS, _BUCKETS, _VERSIONS = 50, 50, 200, 100, 200, 50
TABS = ("", "files", "schema", "rows", "changes")


@dataclass(frozen=True, slots=True)
class Site:
    """What all pages show: a catalog, and the numbers of its tables."""

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


# --- list of tables ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A row of the list: a table with its numbers and advice, or why it cannot be read."""

    name: str
    numbers: TableNumbers | None = None
    advice: tuple[Advice, ...] = ()
    error: str | None = None

    def cells(self) -> tuple[object, ...]:
        """The cells of the row."""
        name = link(self.name, "t", self.name)
        if self.numbers is None:
            return (name, tag("span", self.error, class_="bad"), *[None] * 5)
        found, counted = self.numbers, self.numbers.counted
        return (
            name,
            _health(self.advice),
            found.rows,
            counted.files,
            _size(counted.size_bytes),
            whole(moment(found.time_ms)),
            found.snapshot_id,
        )


def tables_page(site: Site, asked: Asked) -> Page:
    """The tables of a catalog, 50 a page, by name; `q` is a part of the name."""
    wanted, number = asked.text("q").strip(), max(asked.number("page", 1), 1)
    names = [
        (database, name)
        for database in site.catalog.list_databases()
        for name in site.catalog.list_tables(database)
        if wanted.lower() in f"{database}.{name}".lower()
    ]
    first = (number - 1) * _TABLES
    shown = read_all(partial(_listed, site), names[first : first + _TABLES])
    pipelines, error = pipelines_of(site.catalog) if knows_pipelines(site.catalog) else ([], None)
    data = {
        "warehouse": site.where,
        "matching": len(names),
        "page": number,
        "tables": [asdict(each) for each in shown],
        "pipelines": [asdict(each) for each in pipelines],
        "pipelines_error": None if error is None else str(error),
    }
    heads = ("table", "health", "stored rows", "files", "size", "last commit", "snapshot")
    pages = max(-(-len(names) // _TABLES), 1)
    more = [
        link(text, q=wanted, page=other)
        for text, other in (("← previous", number - 1), ("next →", number + 1))
        if 0 < other <= pages
    ]
    body = joined(
        (
            tag(
                "p",
                f"{len(names):,} tables",
                f" with “{wanted}” in their name" if wanted else None,
                f", page {number} of {pages}" if pages > 1 else None,
                class_="note",
            ),
            table(heads, [each.cells() for each in shown], id="tables"),
            tag("p", *spaced(more)),
            _pipeline_part(pipelines),
            None if error is None else tag("p", f"CDC pipelines: {error}", class_="bad"),
        )
    )
    return Page(title="Tables", data=data, body=body)


def _listed(site: Site, names: tuple[str, str]) -> Listed:
    database, name = names
    shown = str(Identifier(database=database, table=name))
    if "`" in shown.replace(f"`{database}`", ""):
        shown = table_name(database, name)
    try:
        found = open_data_table(site.catalog, table_name(database, name))
        numbers = site.numbers.of(found)
    except LakecoreError as error:
        return Listed(name=shown, error=str(error))
    advice = advice_of(numbers.counted, found.options, shown, site.catalog.warehouse)
    return Listed(name=shown, numbers=numbers, advice=tuple(advice))


def _health(advice: Sequence[Advice]) -> Html:
    if not advice:
        return tag("span", "ok", class_="good")
    return tag("span", "; ".join(each.says for each in advice), class_="warn")


def _pipeline_part(pipelines: Sequence[PipelineStatus]) -> Html | None:
    """The pipelines with their lag, and the tables that they have set aside; None without any."""
    if not pipelines:
        return None
    rows = [
        (
            each.name,
            "caught up" if each.caught_up else "catching up",
            None if each.lag_seconds is None else ago(each.lag_seconds),
            f"{each.checkpoint}, {ago(each.age_seconds)} ago",
            each.rows_total,
            joined(_set_aside(each)),
        )
        for each in pipelines
    ]
    heads = ("pipeline", "state", "lag", "checkpoint", "rows", "quarantine")
    return joined((tag("h2", "CDC pipelines"), table(heads, rows, id="pipelines")))


def _set_aside(pipeline: PipelineStatus) -> Iterable[Html]:
    for each in pipeline.quarantine:
        named = f"{each['database']}.{each['table']}: {each['reason']}"
        yield tag("div", named, class_="bad")


# --- a table -------------------------------------------------------------------------------------


def table_page(site: Site, name: str, asked: Asked) -> Page:
    """The facts of a table, what it needs, and its snapshots, 50 a page; `before` a snapshot id."""
    found = open_data_table(site.catalog, name)
    context, history = found.context, found.context.history
    numbers = site.numbers.of(found)
    ids = history.snapshot_ids()
    lags = consumer_lags(context, numbers.snapshot_id)
    advice = advice_of(numbers.counted, found.options, name, site.catalog.warehouse)
    advice += upkeep_of(context, ids, lags, name, site.catalog.warehouse)
    pipelines, _ = pipelines_of(site.catalog) if knows_pipelines(site.catalog) else ([], None)
    own = [each for each in pipelines if context.identifier in each.targets]
    tags = [(each.name, each.snapshot) for each in tags_of(history)]
    branches = branch_names(context)
    before = asked.number("before", 0)
    below = [number for number in ids if not before or number < before]
    read = read_all(history.snapshot_if_there, below[-_SNAPSHOTS:])
    snapshots = [told_snapshot(each, context) for each in read if each is not None]
    changed = read_all(partial(_files_changed, context), snapshots)
    schema = context.schema
    data = {
        "table": context.identifier,
        "path": masked(context.layout.root),
        "comment": schema.comment,
        "primary_keys": schema.primary_keys,
        "partition_keys": schema.partition_keys,
        "options": masked_options(schema.stated_options),
        "numbers": asdict(numbers),
        "advice": [asdict(each) for each in advice],
        "snapshot_count": len(ids),
        "snapshots": [
            {**_snapshot_data(each), "files_added": added, "files_deleted": deleted}
            for each, (added, deleted) in zip(snapshots, changed, strict=True)
        ],
        "tags": [{"name": tag_name, "snapshot": each.id} for tag_name, each in tags],
        "branches": branches,
        "consumers": [asdict(each) for each in lags],
        "pipelines": [asdict(each) for each in own],
    }
    counted = numbers.counted
    about = [
        ("path", data["path"]),
        ("comment", schema.comment),
        ("primary key", ", ".join(schema.primary_keys)),
        ("partitioned by", ", ".join(schema.partition_keys)),
        ("stored rows", None if numbers.rows is None else f"{numbers.rows:,}"),
        ("live files", f"{counted.files:,} in {counted.buckets:,} buckets"),
        ("size", show_bytes(counted.size_bytes)),
        ("last commit", moment(numbers.time_ms)),
        ("snapshots", f"{len(ids):,}"),
        ("options", _options_text(schema)),
    ]
    seen = [
        SnapshotFacts(
            id=each.id,
            kind=str(each.commit_kind),
            time_ms=each.time_ms,
            rows=each.total_record_count,
            tags=tuple(tag_name for tag_name, tagged in tags if tagged.id == each.id),
            consumers=tuple(lag.consumer for lag in lags if lag.next_snapshot == each.id),
        )
        for each in snapshots
    ]
    body = joined(
        (
            facts(about, id="facts"),
            _advice_part(advice),
            tag("h2", "Snapshots"),
            timeline(seen, name),
            growth(seen) if seen else None,
            _snapshot_table(name, snapshots, changed),
            tag("p", link("older →", "t", name, before=snapshots[0].id))
            if snapshots and snapshots[0].id > ids[0]
            else None,
            _part("Tags", ("tag", "snapshot", "committed"), _tag_rows(name, tags)),
            _part("Branches", ("branch",), [(_branch(context, each),) for each in branches]),
            _part(
                "Consumers",
                ("consumer", "reads next", "snapshots behind", "lag"),
                [(g.consumer, g.next_snapshot, g.snapshots, ago(g.seconds)) for g in lags],
            ),
            _pipeline_part(own),
        )
    )
    return of_table(name, "", data, body)


def of_table(name: str, tab: str, data: Mapping[str, object], body: Html, title: str = "") -> Page:
    """A page of a table, below the links to the other pages of the table."""
    tabs = [
        tag("li", link(each or "overview", "t", name, *([each] if each else [])))
        if each != tab
        else tag("li", tag("span", each or "overview", aria_current="page"))
        for each in TABS
    ]
    return Page(
        title=title or (f"{name}: {tab}" if tab else name),
        data=data,
        body=joined((tag("ul", *tabs, class_="tabs"), body)),
        crumbs=(link(name, "t", name),),
    )


def _options_text(schema: TableSchema) -> str:
    shown = masked_options(dict(sorted(schema.stated_options.items())))
    return ", ".join(f"{key} = {value}" for key, value in shown.items())


def _advice_part(advice: Sequence[Advice]) -> Html:
    if not advice:
        return tag("p", "Health: ok", class_="good", id="health")
    lines = (
        tag("li", tag("span", f"{each.says}: ", class_="warn"), tag("code", each.command))
        for each in advice
    )
    return joined((tag("h2", "Health"), tag("ul", *lines, class_="advice", id="health")))


def _files_changed(context: TableContext, snapshot: Snapshot) -> tuple[int | None, int | None]:
    """How many files the commit of a snapshot added and deleted; None if that cannot be read."""
    try:
        delta = context.history.delta_manifests(snapshot)
    except LakecoreError:
        return None, None
    return sum(each.added_count for each in delta), sum(each.deleted_count for each in delta)


def _snapshot_table(
    name: str, snapshots: Sequence[Snapshot], changed: Sequence[tuple[int | None, int | None]]
) -> Html:
    rows = [
        (
            link(each.id, "t", name, "snapshots", each.id),
            str(each.commit_kind),
            whole(moment(each.time_ms)),
            _signed(each.delta_record_count),
            each.total_record_count,
            added,
            deleted,
            each.commit_user,
        )
        for each, (added, deleted) in zip(snapshots, changed, strict=True)
    ]
    heads = ("id", "kind", "committed", "change", "stored rows", "files +", "files -", "user")
    return table(heads, reversed(rows), id="snapshots")


def _signed(count: int | None) -> Html | None:
    return whole(None if count is None else f"{count:+,}")


def _tag_rows(name: str, tags: Sequence[tuple[str, Snapshot]]) -> list[tuple[object, ...]]:
    return [
        (tag_name, link(each.id, "t", name, "snapshots", each.id), moment(each.time_ms))
        for tag_name, each in tags[:_FILES]
    ]


def _branch(context: TableContext, branch: str) -> Html:
    main = context.identifier.partition("$")[0]
    return link(branch, "t", f"{main}$branch_{branch}")


def _part(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Html | None:
    """A titled table; None without rows."""
    return joined((tag("h2", title), table(heads, rows, id=title.lower()))) if rows else None


# --- a snapshot ----------------------------------------------------------------------------------


def snapshot_page(site: Site, name: str, number: str) -> Page:
    """The facts of a snapshot, its manifests, and the first 200 files that it added or removed."""
    context = open_data_table(site.catalog, name).context
    history = context.history
    wanted = Asked({"snapshot": number}).number("snapshot", 0)
    snapshot = told_snapshot(history.snapshot(wanted), context)
    context.options.require_all_rows()
    manifests = history.delta_manifests(snapshot)
    added, deleted = _files_changed(context, snapshot)
    entries: list[ManifestEntry] = []
    for manifest in manifests:
        if len(entries) < _FILES:
            entries += history.manifest(manifest)
    files = [_entry_data(context, each) for each in entries[:_FILES]]
    about = _snapshot_data(snapshot)
    data = {
        "table": context.identifier,
        **about,
        "files_added": added,
        "files_deleted": deleted,
        "manifests": [
            {
                "name": each.name,
                "bytes": each.size_bytes,
                "added": each.added_count,
                "deleted": each.deleted_count,
            }
            for each in manifests
        ],
        "files": files,
    }
    shown = [(key.replace("_", " ").removesuffix(" ms"), value) for key, value in about.items()]
    lines = [(key, moment(about["time_ms"]) if key == "time" else value) for key, value in shown]  # type: ignore[arg-type]
    more = [
        link(text, "t", name, "snapshots", other)
        for text, other in (("← older", snapshot.id - 1), ("newer →", snapshot.id + 1))
        if history.snapshot_if_there(other) is not None
    ]
    body = joined(
        (
            tag("p", *spaced(more)),
            facts(lines, id="facts"),
            tag("h2", "Files added and removed"),
            tag("p", f"{added or 0:,} added, {deleted or 0:,} removed", class_="note"),
            _file_table(files),
            _shown_of(len(files), (added or 0) + (deleted or 0), "files"),
            _part(
                "Manifests",
                ("manifest", "size", "added", "removed"),
                [(m.name, _size(m.size_bytes), m.added_count, m.deleted_count) for m in manifests],
            ),
        )
    )
    return of_table(name, "snapshots", data, body, f"{name}: snapshot {snapshot.id}")


def _snapshot_data(snapshot: Snapshot) -> dict[str, object]:
    return {
        "id": snapshot.id,
        "kind": str(snapshot.commit_kind),
        "time_ms": snapshot.time_ms,
        "schema_id": snapshot.schema_id,
        "commit_user": snapshot.commit_user,
        "commit_identifier": snapshot.commit_identifier,
        "stored_rows": snapshot.total_record_count,
        "change_of_rows": snapshot.delta_record_count,
        "changelog_rows": snapshot.changelog_record_count,
        "watermark": snapshot.watermark,
    }


def _entry_data(context: TableContext, entry: ManifestEntry) -> dict[str, object]:
    return {
        "change": "added" if entry.kind is FileKind.ADD else "removed",
        "partition": context.partitions.path(entry.partition),
        "bucket": entry.bucket,
        "level": entry.file.level,
        "rows": entry.file.row_count,
        "bytes": entry.file.size_bytes,
        "file": entry.file.name,
    }


def _file_table(files: Sequence[Mapping[str, object]]) -> Html | None:
    if not files:
        return None
    rows = [
        [_size(value) if key == "bytes" else value for key, value in each.items()] for each in files
    ]
    return table([key.replace("bytes", "size") for key in files[0]], rows, id="entries")


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
    wanted = [asked.number("bucket", 0)] if asked.text("bucket") else sums["bucket"].to_list()
    buckets = set(wanted[:_BUCKETS])
    entries = _live(context, snapshot, partitions[place], buckets)
    files = (
        [_entry_data(context, each) for each in entries[:_FILES]] if asked.text("bucket") else []
    )
    for each in files:
        del each["change"]
    heads = ("bucket", "files", "level-0 files", "levels", "rows", "size", "")
    rows = [
        (
            link(each["bucket"], "t", name, "files", partition=chosen, bucket=each["bucket"]),
            *(each[key] for key in ("files", "level0", "levels", "rows")),
            _size(each["bytes"]),
            _bar(each["bytes"], sums["bytes"].max()),
        )
        for each in sums.head(_BUCKETS).to_dicts()
    ]
    if chosen and "partition" not in asked.query:
        chosen = ""
    body = joined(
        (
            tag("p", f"Partition {chosen}") if chosen else None,
            file_map(bucket_files(context, entries)),
            tag("h2", "Buckets"),
            table(heads, rows, id="buckets"),
            _shown_of(len(rows), sums.height, "buckets"),
            tag("h2", f"Files of bucket {wanted[0]}") if files else None,
            _file_table(files),
            _shown_of(len(files), len(entries), "files") if files else None,
        )
    )
    data = {"partition": chosen, "buckets": sums.head(_BUCKETS).to_dicts(), "files": files}
    return of_table(name, "files", data, body)


def _partitions_page(name: str, paths: Sequence[str], live: pl.DataFrame, asked: Asked) -> Page:
    number = max(asked.number("page", 1), 1)
    sums = _sums(live, "partition")
    order = sorted(range(len(paths)), key=lambda place: paths[place], reverse=True)
    shown = order[(number - 1) * _PARTITIONS : number * _PARTITIONS]
    by_place = {each["partition"]: each for each in sums.to_dicts()}
    rows = [
        (
            link(paths[place], "t", name, "files", partition=paths[place]),
            *(by_place[place][key] for key in ("files", "level0", "rows")),
            _size(by_place[place]["bytes"]),
            _bar(by_place[place]["bytes"], sums["bytes"].max()),
        )
        for place in shown
    ]
    more = [
        link(text, "t", name, "files", page=other)
        for text, other in (("← previous", number - 1), ("next →", number + 1))
        if other > 0 and (other - 1) * _PARTITIONS < len(paths)
    ]
    heads = ("partition", "files", "level-0 files", "rows", "size", "")
    body = joined(
        (
            tag("p", f"{len(paths):,} partitions with files", class_="note"),
            table(heads, rows, id="partitions"),
            tag("p", *spaced(more)),
        )
    )
    listed = [{**by_place[place], "partition": paths[place]} for place in shown]
    return of_table(name, "files", {"matching": len(paths), "partitions": listed}, body)


def _sums(live: pl.DataFrame, key: str) -> pl.DataFrame:
    return live.group_by(key).agg(
        files=pl.len(),
        level0=(pl.col("level") == 0).sum(),
        levels=pl.col("level").n_unique(),
        rows=pl.col("row_count").sum(),
        bytes=pl.col("size_bytes").sum(),
    )


def _live(
    context: TableContext, snapshot: Snapshot, partition: bytes, buckets: set[int]
) -> Sequence[ManifestEntry]:
    """The live files of some buckets; of a large table, no other files become objects."""
    history = context.history
    if history.is_small(snapshot):
        every = history.live_entries(snapshot)
        return [each for each in every if each.partition == partition and each.bucket in buckets]
    return history.live_columns(history.manifests(snapshot), {partition: buckets}).entries()


def _bar(value: object, most: object) -> Html:
    return tag("meter", value, min=0, max=max(int(str(most)), 1), value=value)


# --- schema --------------------------------------------------------------------------------------


def schema_page(site: Site, name: str, asked: Asked) -> Page:
    """The columns and options of the newest schema, and what each version changed, 50 a page."""
    context = open_data_table(site.catalog, name).context
    ids = context.history.schema_ids()
    before = asked.number("before", 0) or ids[-1] + 1
    below = [number for number in ids if number < before][-_VERSIONS - 1 :]
    versions = read_all(context.history.schema, below)
    newest = context.schema
    changes = [
        (new, differences(old, new))
        for old, new in zip([None, *versions[:-1]], versions, strict=True)
        if old is not None or new.id == ids[0]
    ]
    columns = [
        {
            "column": each.name,
            "type": str(each.type),
            "key": ", ".join(
                what
                for what, keys in (
                    ("primary key", newest.primary_keys),
                    ("partition key", newest.partition_keys),
                )
                if each.name in keys
            ),
            "default": each.default_value,
            "comment": each.description,
        }
        for each in newest.fields
    ]
    data = {
        "schema_id": newest.id,
        "columns": columns,
        "options": masked_options(newest.stated_options),
        "versions": [
            {"schema_id": each.id, "time_ms": each.time_ms, "changes": lines}
            for each, lines in changes
        ],
    }
    history = [
        (each.id, moment(each.time_ms), joined(tag("div", line) for line in lines))
        for each, lines in reversed(changes)
    ]
    body = joined(
        (
            table(list(columns[0]), [list(each.values()) for each in columns]),
            tag("h2", "Options"),
            facts(sorted(masked_options(newest.stated_options).items()), id="options"),
            tag("h2", "History"),
            table(("schema", "since", "changes"), history, id="history"),
            tag("p", link("older →", "t", name, "schema", before=changes[0][0].id))
            if changes and changes[0][0].id > ids[0]
            else None,
        )
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
    return (joined((part, " ")) for part in parts)


def whole(text: object) -> Html | None:
    """The text on one line; None stays None."""
    return None if text is None else tag("span", text, class_="whole")


def _size(value: object) -> Html:
    return joined((whole(show_bytes(int(str(value)))),))


def _shown_of(shown: int, count: int, what: str) -> Html | None:
    more = shown < count
    return tag("p", f"The first {shown:,} of {count:,} {what}.", class_="note") if more else None
