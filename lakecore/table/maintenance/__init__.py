"""What happens to snapshots over time: tags, branches, rollback, expiry and clean-up.

Writes and verbs call this package after their commit. Lower packages never expire anything.
"""

from __future__ import annotations
