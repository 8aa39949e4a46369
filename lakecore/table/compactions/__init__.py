"""The files of a bucket -> fewer files."""

from __future__ import annotations
