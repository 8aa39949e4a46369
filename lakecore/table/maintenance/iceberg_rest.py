"""The entry of a table in an Iceberg REST catalog, whose server keeps documents of its own.

A new entry registers the table's document as it is. After that the entry gets what the newest
document has more or less: schemas, snapshots, tags and properties, in one commit of the server,
which refuses it if its current snapshot is another one than was read. If a rollback, or metadata
that begins again, has taken the current id for something else, the server cannot follow. Then the
entry is dropped and registered again, as in Java; between the two calls readers find no table.

Only this module uses PyIceberg, the client. NOTE: PyIceberg makes the reader of files that a table
names by a property, so it gets none (`_load_file_io`).
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from lakecore.errors import (
    AlreadyExists,
    CommitConflict,
    InvalidRequest,
    StorageError,
    Unsupported,
    optional,
)
from lakecore.format.iceberg.documents import IDENTITY, Json
from lakecore.format.layout import canonical
from lakecore.masking import masked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import TableUpdate as Update
    from requests import Session

    from lakecore.table.context import TableContext
    from lakecore.table.maintenance.iceberg_entries import Named, Newest

SETTINGS = frozenset(
    ("uri", "warehouse", "prefix", "token", "credential", "scope", "audience", "resource")
)
"""The settings of Iceberg's client that are passed on. Others could load code or read files."""
OPTION = "metadata.iceberg.rest."
_TIMEOUT_S = 60
_ATTEMPTS_MAX = 5
_MAIN = "main"


def rest_entries(context: TableContext, settings: Mapping[str, str], named: Named) -> RestEntries:
    """The entries of a table in a REST catalog. Raises Unsupported without its client."""
    other = next((key for key in settings if key not in SETTINGS), None)
    if other is not None:
        raise Unsupported(
            "this setting of a REST catalog is not supported",
            option=f"{OPTION}{other}",
            supported=sorted(SETTINGS),
        )
    if len(named.databases) > 1:
        raise InvalidRequest(
            "a REST catalog lists a table in one database",
            option="metadata.iceberg.database",
            value=named.databases,
        )
    _imported("catalog.rest")
    options = context.options
    kept = max(1, options.metadata_iceberg_previous_versions_max)
    deletes = options.metadata_iceberg_delete_after_commit_enabled
    own = {
        "write.metadata.delete-after-commit.enabled": str(deletes).lower(),
        "write.metadata.previous-versions-max": str(kept),
    }
    return RestEntries(settings=dict(settings), named=named, own_properties=own)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestEntries:
    """`Entries` in an Iceberg REST catalog (`iceberg_entries.py`)."""

    settings: dict[str, str]
    named: Named
    own_properties: Mapping[str, str]

    def point(self, newest: Newest) -> bool:
        with self._catalog() as catalog:
            for _ in range(_ATTEMPTS_MAX):
                # First the entry: what it shows was published before the newest document is read.
                entry = self._entry(catalog)
                found = newest()
                if found is None:
                    return False
                path, document = found
                if entry is None:
                    self._register(catalog, path)
                    continue
                self._require_own(entry.metadata, document)
                properties = {**document["properties"], **self.own_properties}
                updates = _updates(entry.metadata, {**document, "properties": properties})
                if updates is None:
                    catalog.drop_table(self._name)
                    self._register(catalog, path)
                elif not updates or self._commit(
                    catalog, entry, updates, document["current-snapshot-id"]
                ):
                    return newest() == found
        raise CommitConflict(
            "other publishers change the table's entry in the REST catalog", table=self._name
        )

    def forget(self) -> None:
        with self._catalog() as catalog:
            entry = self._entry(catalog)
            if entry is not None and canonical(entry.metadata.location) == self.named.root:
                catalog.drop_table(self._name)

    @property
    def _name(self) -> tuple[str, str]:
        return self.named.databases[0], self.named.table

    @contextmanager
    def _catalog(self) -> Iterator[RestCatalog]:
        try:
            catalog = _client()("lakecore", **self.settings)
            try:
                yield catalog
            finally:
                catalog.close()
        except _errors() as error:
            raise StorageError(
                "the Iceberg REST catalog did not do what it was asked",
                server=self.settings["uri"],
                why=masked(" ".join(str(error).split()))[:500],
            ) from error

    def _entry(self, catalog: RestCatalog) -> Table | None:
        try:
            return catalog.load_table(self._name)
        except _error("NoSuchTableError"):
            return None

    def _register(self, catalog: RestCatalog, path: str) -> None:
        try:
            catalog.create_namespace_if_not_exists(self._name[0])
            catalog.register_table(self._name, path)
        except _error("TableAlreadyExistsError"):
            return  # by another publisher

    def _commit(
        self, catalog: RestCatalog, entry: Table, updates: Sequence[Update], current: int
    ) -> bool:
        """Whether the server took the updates: not so if another publisher came in between."""
        update, metadata = _imported("table.update"), entry.metadata
        # Of a registered document, a server knows the current snapshot, but not yet the branch.
        branch = update.SetSnapshotRefUpdate(ref_name=_MAIN, type="branch", snapshot_id=current)
        for expected, more in ((metadata.current_snapshot_id, ()), (None, (branch,))):
            requirements = (
                update.AssertTableUUID(uuid=metadata.table_uuid),
                update.AssertRefSnapshotId(ref=_MAIN, snapshot_id=expected),
            )
            with suppress(_error("CommitFailedException")):
                catalog.commit_table(entry, requirements, (*updates, *more))
                return True
        return False

    def _require_own(self, metadata: TableMetadata, document: Json) -> None:
        same = str(metadata.table_uuid) == document["table-uuid"]
        if not same and canonical(metadata.location).rstrip("/") != self.named.root:
            raise AlreadyExists(
                "the Iceberg REST catalog has another table of that name; drop it there, or set "
                "metadata.iceberg.table",
                table=".".join(self._name),
                location=metadata.location,
            )


def _updates(entry: TableMetadata, document: Json) -> list[Update] | None:
    """What makes the entry show what the document shows; None if no commit can."""
    update = _imported("table.update")
    shown = {each.snapshot_id: each for each in entry.snapshots}
    wanted = {int(each["snapshot-id"]): each for each in document["snapshots"]}
    same = {each for each in shown.keys() & wanted.keys() if not _differ(shown[each], wanted[each])}
    # A server takes no number twice: an earlier snapshot that it lacks, or has in another form, is
    # left out.
    last = entry.last_sequence_number
    added = [each for each in document["snapshots"] if each["sequence-number"] > last]
    kept = same | {each["snapshot-id"] for each in added}
    if (
        str(entry.table_uuid) != document["table-uuid"]
        or entry.format_version > document["format-version"]
        or document["current-snapshot-id"] not in kept
    ):
        return None
    found: list[Update] = []
    if entry.format_version < document["format-version"]:
        found.append(update.UpgradeFormatVersionUpdate(format_version=document["format-version"]))
    found += _properties(entry.properties, document["properties"])
    schemas, ids = _schemas(entry, document)
    found += schemas
    if entry.current_schema_id != ids[document["current-schema-id"]]:
        current = ids[document["current-schema-id"]]
        found.append(update.SetCurrentSchemaUpdate(schema_id=current))
    snapshot = _imported("table.snapshots").Snapshot
    found += [
        update.AddSnapshotUpdate(
            snapshot=snapshot.model_validate({**each, "schema-id": ids[each["schema-id"]]})
        )
        for each in added
    ]
    found += _refs(entry, document, kept)
    if gone := sorted(shown.keys() - kept):
        found.append(update.RemoveSnapshotsUpdate(snapshot_ids=gone))
    return found


def _differ(shown: Snapshot, wanted: Json) -> bool:
    summary = shown.summary
    identity = None if summary is None else summary.get(IDENTITY)
    return bool(
        identity != wanted["summary"].get(IDENTITY)
        or canonical(shown.manifest_list) != canonical(wanted["manifest-list"])
    )


def _properties(shown: Mapping[str, str], wanted: Mapping[str, str]) -> list[Update]:
    update, found = _imported("table.update"), []
    changed = {key: text for key, text in wanted.items() if shown.get(key) != text}
    if changed:
        found.append(update.SetPropertiesUpdate(updates=changed))
    if gone := sorted(shown.keys() - wanted.keys()):
        found.append(update.RemovePropertiesUpdate(removals=gone))
    return found


def _schemas(entry: TableMetadata, document: Json) -> tuple[list[Update], dict[int, int]]:
    """The schemas to add, and the id that each of the document's schemas has on the server.

    A server numbers a new schema after those that it has, and knows an equal one again.
    """
    update, schema = _imported("table.update"), _imported("schema").Schema
    known = [(each.schema_id, each) for each in entry.schemas]
    found, ids = [], {}
    for each in document["schemas"]:
        wanted = schema.model_validate(each)
        number = next((number for number, one in known if one == wanted), None)
        if number is None:
            number = max(number for number, _ in known) + 1
            known.append((number, wanted))
            found.append(
                update.AddSchemaUpdate(schema=schema.model_validate({**each, "schema-id": number}))
            )
        ids[each["schema-id"]] = number
    return found, ids


def _refs(entry: TableMetadata, document: Json, kept: set[int]) -> list[Update]:
    """What moves the branch `main` and the tags."""
    update, found = _imported("table.update"), []
    current = document["current-snapshot-id"]
    if entry.current_snapshot_id != current:
        found.append(
            update.SetSnapshotRefUpdate(ref_name=_MAIN, type="branch", snapshot_id=current)
        )
    tags = {
        name: each
        for name, each in document["refs"].items()
        if each["type"] == "tag" and each["snapshot-id"] in kept
    }
    shown = {name: each.snapshot_id for name, each in entry.refs.items() if name != _MAIN}
    for name, each in tags.items():
        if shown.get(name) != each["snapshot-id"]:
            found.append(
                update.SetSnapshotRefUpdate(
                    ref_name=name,
                    type="tag",
                    snapshot_id=each["snapshot-id"],
                    max_ref_age_ms=each["max-ref-age-ms"],
                )
            )
    found += [
        update.RemoveSnapshotRefUpdate(ref_name=name) for name in sorted(shown.keys() - tags.keys())
    ]
    return found


# --- client --------------------------------------------------------------------------------------


@cache
def _client() -> type[RestCatalog]:
    """PyIceberg's client, which waits for no server without end, and touches no files."""

    class Client(_imported("catalog.rest").RestCatalog):  # type: ignore[misc]
        def _load_file_io(self, *_arguments: object, **_named: object) -> None:
            return None

        def _create_session(self) -> Session:
            session: Session = super()._create_session()
            session.max_redirects = 0
            send = partial(session.request, timeout=_TIMEOUT_S)
            session.request = send  # type: ignore[method-assign]
            return session

    return Client


def _errors() -> tuple[type[Exception], ...]:
    """What PyIceberg raises: of itself, of `requests` (OSError), of Pydantic, of odd answers."""
    found = vars(_imported("exceptions")).values()
    own = (each for each in found if isinstance(each, type) and issubclass(each, Exception))
    return (OSError, ValueError, LookupError, TypeError, NotImplementedError, *own)


def _error(name: str) -> type[Exception]:
    kind: type[Exception] = getattr(_imported("exceptions"), name)
    return kind


def _imported(module: str) -> ModuleType:
    return optional(f"pyiceberg.{module}", extra="iceberg-rest", what="an Iceberg REST catalog")
