"""Decodes messages in the usual formats of change data capture to batches of changes. Pure.

Envelopes are read one message at a time, and the rows in bulk: `shapes` reads many JSON objects as
one table. `decoder` combines both.
"""

from __future__ import annotations
