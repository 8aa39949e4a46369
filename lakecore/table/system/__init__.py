"""The system tables (`$` tables): metadata of a table as rows."""

from __future__ import annotations
