"""Many rows of a key become one. Pure: the runs of a window in, their merged rows out.

`MERGE_FUNCTIONS` is the table of them; adding an engine is one entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecore.merge.aggregation import fold_aggregation
from lakecore.merge.deduplicate import Deduplicate
from lakecore.merge.first_row import FirstRow
from lakecore.merge.fold import FoldEngine
from lakecore.merge.keep_all import KEEP_ALL
from lakecore.merge.partial_update import fold_partial_update

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakecore.merge.spec import MergeFunction

MERGE_FUNCTIONS: Mapping[str, MergeFunction] = {
    "deduplicate": Deduplicate(),
    "first-row": FirstRow(),
    "partial-update": FoldEngine(fold_partial_update),
    "aggregation": FoldEngine(fold_aggregation),
}


def interim_function(merge: MergeFunction) -> MergeFunction:
    """What to merge rows with that `merge` will merge again, together with others."""
    return merge if merge.associative else KEEP_ALL
