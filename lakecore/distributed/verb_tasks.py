"""Verbs whose work runs in other processes: what a task does, without anything of the driver."""

from __future__ import annotations

from lakecore.table.compactions.compact_work import Work, do_work

__all__ = ["Work", "do_work"]
