"""What happens to snapshots over time: tags, branches, rollback, expiry and clean-up.

Writes and verbs call this package after their commit; nothing below it knows that a snapshot ages.
"""

from __future__ import annotations
