"""The operations that change rows and files in one call: one module for each, and shared parts."""

from __future__ import annotations
