"""Many rows of a key become one. Pure: the runs of a window in, their merged rows out.

`MERGE_FUNCTIONS` is the table of them; adding an engine is one entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.merge.deduplicate import Deduplicate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.merge.spec import MergeFunction

MERGE_FUNCTIONS: Mapping[str, MergeFunction] = {"deduplicate": Deduplicate()}
