"""Tags, branches and rollbacks of a table on a REST server. Each method sends one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakecore.catalog.rest.http_client import encoded

if TYPE_CHECKING:
    from lakecore.catalog.rest.served_table import ServedTable

__all__ = ["ServedReferences"]


@dataclass(frozen=True, slots=True)
class ServedReferences:
    """Asks the server for changes of tags, branches and the newest snapshot."""

    table: ServedTable

    def create_tag(self, branch: str, name: str, snapshot_id: int, retained: str | None) -> None:
        """Create a tag of a snapshot."""
        body = {"tagName": name, "snapshotId": snapshot_id, "timeRetained": retained}
        self.table.on_branch(branch).ask("POST", "tags", body)

    def delete_tag(self, branch: str, name: str) -> None:
        """Delete a tag."""
        self.table.on_branch(branch).ask("DELETE", f"tags/{encoded(name)}")

    def create_branch(self, name: str, tag: str | None) -> None:
        """Create a branch from a tag, or without rows."""
        self.table.ask("POST", "branches", {"branch": name, "fromTag": tag})

    def delete_branch(self, name: str) -> None:
        """Delete a branch."""
        self.table.ask("DELETE", f"branches/{encoded(name)}")

    def fast_forward(self, name: str) -> None:
        """Replace `main` by the branch."""
        self.table.ask("POST", f"branches/{encoded(name)}/forward", {})

    def rollback(self, branch: str, snapshot_id: int, tag: str | None) -> None:
        """Make an earlier snapshot the newest one again; `tag` is the tag that keeps it, if any."""
        instant: dict[str, object] = {"type": "snapshot", "snapshotId": snapshot_id}
        if tag is not None:
            # The snapshot may have expired: only the tag names it then.
            instant = {"type": "tag", "tagName": tag}
        self.table.on_branch(branch).ask("POST", "rollback", {"instant": instant})
