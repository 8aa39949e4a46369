"""The names that code running lakecore in many processes may import, with the public ones.

A driver plans a read or commits a write; tasks on other machines read splits or write buckets. The
Spark bridge is such code, and import-linter lets it see nothing else of lakecore. There is one
module for each part, so that a task loads only what it needs:

- `values`, `arrays`: frozen values and Arrow arrays, which cross between processes;
- `descriptor`, `tables`: a table as a frozen value, and as the process that got it sees it;
- `placing`, `writing`: what a task does to write rows;
- `reading`: what a task does to read splits;
- `planning`, `committing`: what the driver does before a read and after a write.
"""

from __future__ import annotations
