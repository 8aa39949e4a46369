"""The methods of a table that concern its tags and branches."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from lakecore.model.arguments import check_flags
from lakecore.model.times import to_milliseconds
from lakecore.table.context import reload_context
from lakecore.table.maintenance import branches, tags
from lakecore.table.maintenance.branches import fast_forward
from lakecore.table.maintenance.expire_tags import expire_tags
from lakecore.table.maintenance.iceberg_hooks import republished
from lakecore.table.maintenance.reachable import tags_of
from lakecore.table.reads.told import gated
from lakecore.table.reads.travel import Travel

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Self

    from lakecore.model.retention import TagDeletion
    from lakecore.model.snapshot import Branch, FastForwardResult, Tag
    from lakecore.model.times import Time
    from lakecore.table.context import TableContext


class TagVerbs:
    """The methods of a table for tags and branches."""

    _bound: TableContext

    @abstractmethod
    def __init__(self, context: TableContext) -> None: ...

    @property
    @abstractmethod
    def _context(self) -> TableContext:
        """The table as the verbs see it."""

    # --- tags ------------------------------------------------------------------------------------

    @gated
    @republished
    def create_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        timestamp: Time | None = None,
        time_retained: str | timedelta | None = None,
    ) -> Tag:
        """Give a snapshot a name; its rows can be read by that name after the snapshot expires.

        The snapshot is the latest, that of `snapshot_id`, or the first that was committed at
        `timestamp` or later. It may have expired if another tag keeps it. `time_retained` is the
        time to live of the tag: a duration such as `"7 d"`, or a timedelta. The default is the
        option `tag.default-time-retained`; if that is not set, the tag stays until it is deleted
        (https://paimon.apache.org/docs/master/maintenance/manage-tags/).

        Returns the tag. Raises AlreadyExists if the tag exists, NotFound if there is no such
        snapshot, InvalidRequest for a name that is blank or not a valid file name.

            table.create_tag("before-migration", time_retained="30 d")
        """
        at = Travel(snapshot_id=snapshot_id, timestamp=timestamp)
        return tags.create_tag(self._context, name, at, time_retained)

    @gated
    @republished
    def replace_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        timestamp: Time | None = None,
        time_retained: str | timedelta | None = None,
    ) -> Tag:
        """Let an existing tag name another snapshot; arguments as in `create_tag`.

        Without `time_retained` the tag stays until it is deleted, even if the old one had a time to
        live.

        Returns the new tag. Raises NotFound if the tag or the snapshot does not exist.

            table.replace_tag("stable", snapshot_id=2)
        """
        at = Travel(snapshot_id=snapshot_id, timestamp=timestamp)
        return tags.replace_tag(self._context, name, at, time_retained)

    @gated
    @republished
    def rename_tag(self, old: str, new: str) -> Tag:
        """Give a tag another name. Returns the tag.

        Raises NotFound if there is no tag `old`, AlreadyExists if there is a tag `new`.

            table.rename_tag("before-migration", "old-layout")
        """
        return tags.rename_tag(self._context, old, new)

    @gated
    @republished
    def delete_tag(self, name: str, *, dry_run: bool = False) -> TagDeletion:
        """Delete a tag, and the files that only the tag kept. With `dry_run`, nothing changes.

        While the snapshot of the tag is alive, its files stay. Files that a snapshot, another tag,
        a branch or a long-lived changelog needs always stay. If one of these cannot be read, all
        files stay.

        Returns what was deleted. Raises NotFound, naming the known tags, if the tag does not exist.

            table.delete_tag("old-layout")
        """
        check_flags(dry_run=dry_run)
        return tags.delete_tag(self._context, name, dry_run=dry_run)

    @gated
    def tags(self) -> tuple[Tag, ...]:
        """The tags of the table, by snapshot, then by name. `inspect.tags()` gives a frame.

        [tag.name for tag in table.tags()]
        """
        return tags_of(self._context.history)

    @gated
    @republished
    def expire_tags(
        self, older_than: Time | None = None, *, dry_run: bool = False
    ) -> tuple[TagDeletion, ...]:
        """Delete the tags past their time to live. With `dry_run`, nothing changes.

        A tag expires when it is older than its `time_retained`. With `older_than`, tags created
        before that time are deleted, too; for a tag without a creation time, the modification time
        of its file is used. A commit also deletes expired tags, unless `tag.time-expire-enabled` is
        false (https://paimon.apache.org/docs/master/maintenance/manage-tags/).

        Returns what was deleted, by snapshot. Files are treated as in `delete_tag`.

            table.expire_tags(older_than="2024-01-01")
        """
        check_flags(dry_run=dry_run)
        before_ms = None if older_than is None else to_milliseconds(older_than)
        return expire_tags(self._context, before_ms, dry_run=dry_run)

    # --- branches --------------------------------------------------------------------------------

    @gated
    def create_branch(self, name: str, tag: str | None = None) -> Branch:
        """Create a branch: a state that readers of the table do not see until `fast_forward`.

        The branch starts with the rows and the schema of `tag`. Without `tag`, it starts with no
        rows and the newest schema. It shares data files with the table; nothing is copied
        (https://paimon.apache.org/docs/master/maintenance/manage-branches/).

        Returns the branch. Raises AlreadyExists if the branch exists, NotFound if there is no such
        tag, InvalidRequest for a name that is blank, all digits, `main` or not a valid file name.

            table.create_tag("today")
            table.create_branch("trial", tag="today")
        """
        return branches.create_branch(self._context, name, tag)

    @gated
    def rename_branch(self, old: str, new: str) -> Branch:
        """Give a branch another name. Returns the branch.

        Raises NotFound if there is no branch `old`, AlreadyExists if there is a branch `new`, and
        Unsupported on an object store, unless `commit.single-writer` is set.

            table.rename_branch("trial", "experiment")
        """
        return branches.rename_branch(self._context, old, new)

    @gated
    def delete_branch(self, name: str, *, dry_run: bool = False) -> Branch:
        """Delete a branch with its snapshots, tags and consumers. With `dry_run`, nothing changes.

        Data files that only the branch used become orphans.

        Returns the deleted branch. Raises NotFound, naming the known branches, if the branch does
        not exist; InvalidRequest for the branch of `scan.fallback-branch`.

            table.delete_branch("experiment")
        """
        check_flags(dry_run=dry_run)
        return branches.delete_branch(self._context, name, dry_run=dry_run)

    def branches(self) -> tuple[Branch, ...]:
        """The branches of the table by name, without `main`.

        [branch.name for branch in table.branches()]
        """
        return branches.list_branches(self._context)

    def branch(self, name: str) -> Self:
        """The table on a branch, with the newest schema of the branch; `main` is the table itself.

        The returned table reads and writes the branch, and keeps the dynamic options of this
        object. Raises NotFound, naming the known branches, if the branch does not exist.

            trial = table.branch("trial")
            trial.write(rows)
        """
        return type(self)(branches.branch_context(self._context, name))

    @gated
    @republished
    def fast_forward(self, name: str, *, dry_run: bool = False) -> FastForwardResult:
        """Give this table the state of a branch. With `dry_run`, nothing changes.

        From the earliest snapshot of the branch on, the table gets the snapshots, schemas and tags
        of the branch and loses its own. Everything written to the table since the branch was
        created is lost. The branch stays. This object then uses the new schema.

        No other writer may write the table during the call. If the call is interrupted, repeat it:
        until then readers see an older state of the table or of the branch.

        Returns what was done. Raises NotFound if there is no such branch; InvalidRequest if the
        branch has no snapshot, or is the branch of this table object; CommitConflict if another
        writer commits during the call.

            table.fast_forward("trial")
        """
        check_flags(dry_run=dry_run)
        result = fast_forward(self._context, name, dry_run=dry_run)
        if not dry_run:
            self._bound = reload_context(self._context)
        return result
