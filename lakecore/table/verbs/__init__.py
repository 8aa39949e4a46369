"""What changes rows and files in one call: a file a verb, and what the verbs share."""

from __future__ import annotations
