"""Where the warehouses of these tests are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.io.ambient import SYSTEM

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def warehouse_options(request: pytest.FixtureRequest, storage: str, root: Path) -> dict[str, str]:
    """The catalog options of a fresh warehouse on memory, local disk or S3."""
    name = f"warehouse-{SYSTEM.new_uuid()}"
    match storage:
        case "memory":
            return {"warehouse": f"memory://{name}/w"}
        case "local":
            return {"warehouse": str(root / "w")}
        case _:
            return {"warehouse": f"s3://bucket/{name}", **request.getfixturevalue("s3").options}
