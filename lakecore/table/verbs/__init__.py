"""The verbs that change rows and files in one call: one file for each, and shared parts."""

from __future__ import annotations
