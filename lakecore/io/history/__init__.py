"""The history of a table: snapshots, schemas, manifests and commits, read from its store."""

from __future__ import annotations
