"""The methods of a table that concern its tags and branches."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from lakecore.model.arguments import check_flags
from lakecore.table.maintenance import tags
from lakecore.table.reads.travel import Travel

if TYPE_CHECKING:
    from datetime import timedelta

    from lakecore.model.snapshot import Tag, TagDeletion
    from lakecore.model.times import Time
    from lakecore.table.context import TableContext

__all__ = ["TagVerbs"]


class TagVerbs:
    """What a table can do with its tags and branches."""

    @property
    @abstractmethod
    def _context(self) -> TableContext:
        """The table as the verbs see it."""

    # --- tags ------------------------------------------------------------------------------------

    def create_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        timestamp: Time | None = None,
        time_retained: str | timedelta | None = None,
    ) -> Tag:
        """Give a snapshot a name; its rows can be read by that name after the snapshot expires.

        The snapshot is the latest, that of `snapshot_id`, or the first that was committed at
        `timestamp` or later. It may have expired if another tag keeps it. `time_retained` is how
        long the tag stays: a duration such as `"7 d"`, or a timedelta. Without it the option
        `tag.default-time-retained` holds; if that is not set, the tag stays until it is deleted
        (https://paimon.apache.org/docs/master/maintenance/manage-tags/).

        Returns the tag. Raises AlreadyExists if the tag exists, NotFound if there is no such
        snapshot, InvalidRequest for a name that is blank or no file name.

            table.create_tag("before-migration", time_retained="30 d")
        """
        at = Travel(snapshot_id=snapshot_id, timestamp=timestamp)
        return tags.create_tag(self._context, name, at, time_retained)

    def replace_tag(
        self,
        name: str,
        snapshot_id: int | None = None,
        timestamp: Time | None = None,
        time_retained: str | timedelta | None = None,
    ) -> Tag:
        """Let an existing tag name another snapshot; arguments as in `create_tag`.

        Without `time_retained` the tag stays until it is deleted, whatever the old one said.

        Returns the new tag. Raises NotFound if the tag or the snapshot does not exist.

            table.replace_tag("stable", snapshot_id=2)
        """
        at = Travel(snapshot_id=snapshot_id, timestamp=timestamp)
        return tags.replace_tag(self._context, name, at, time_retained)

    def rename_tag(self, old: str, new: str) -> Tag:
        """Give a tag another name. Returns the tag.

        Raises NotFound if there is no tag `old`, AlreadyExists if there is a tag `new`.

            table.rename_tag("before-migration", "old-layout")
        """
        return tags.rename_tag(self._context, old, new)

    def delete_tag(self, name: str, *, dry_run: bool = False) -> TagDeletion:
        """Delete a tag. With `dry_run`, nothing changes.

        Returns what was deleted. Raises NotFound, naming the known tags, if there is none of that
        name.

            table.delete_tag("old-layout")
        """
        check_flags(dry_run=dry_run)
        return tags.delete_tag(self._context, name, dry_run=dry_run)

    def tags(self) -> tuple[Tag, ...]:
        """The tags of the table, by snapshot, then by name. `inspect.tags()` gives a frame.

        [tag.name for tag in table.tags()]
        """
        return tags.all_tags(self._context)
