"""The files of a bucket -> fewer of them."""

from __future__ import annotations
