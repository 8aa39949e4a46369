"""Dead letters: rows that do not fit their table, kept in files next to the state of the pipeline.

Each line is a JSON object: the source table, the target, the kind of the change, the reason, and
the values as text. A checkpoint has at most one file. It is published only after the checkpoint is
stored (`state.py`), so each row is either in its table or here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakecore.model.rows import KIND_TEXTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakecore.cdc.events import ChangeBatch
    from lakecore.cdc.state import StateFiles
    from lakecore.errors import InvalidRequest

__all__ = ["DeadLetters"]


class DeadLetters:
    """Collects dead letters until the next checkpoint. `count` is the total number."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def add(self, target: str, batch: ChangeBatch, rows: Sequence[tuple[int, str]]) -> None:
        """Keep rows of a batch. `rows` has the number of each row, and the reason."""
        for number, reason in rows:
            values = batch.rows.slice(number, 1).to_pylist()[0]
            line = {
                "source": str(batch.table),
                "target": target,
                "kind": KIND_TEXTS[batch.kinds[number].as_py()],
                "reason": reason,
                "row": {name: _text(value) for name, value in values.items()},
            }
            self._keep(line)

    def add_message(self, error: InvalidRequest) -> None:
        """Keep the position of a message that cannot be read, and the reason."""
        facts = {name: _text(value) for name, value in error.facts.items()}
        self._keep({"reason": error.message, **facts})

    def hold(self, files: StateFiles, checkpoint: int) -> str | None:
        """Write the rows that were kept since the previous checkpoint; return the file, if any."""
        if not self.lines:
            return None
        lines, self.lines = self.lines, []
        return files.hold_letters(checkpoint, lines)

    def _keep(self, line: Mapping[str, object]) -> None:
        self.lines.append(json.dumps(line, ensure_ascii=False))
        self.count += 1


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)
