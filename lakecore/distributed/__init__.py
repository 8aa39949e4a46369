"""The internal names that distributed code, such as the Spark bridge, may import.

In distributed code, a driver plans a read or commits a write, and tasks on other machines read
splits or write buckets. It may import these names and the public ones; import-linter enforces this.
There is one module for each part, so that a task loads only what it needs:

- `values`, `arrays`: frozen values and Arrow arrays, which cross between processes;
- `descriptor`, `tables`: a table as a frozen value, and the table that a process opens from it;
- `placing`, `writing`: what a task does to write rows;
- `reading`: what a task does to read splits;
- `verb_tasks`, `verbs`: what a task of a compaction or a row change does, and what its driver does;
- `planning`, `key_ranges`: what the driver does before a read, and how it cuts a bucket by keys;
- `committing`: what the driver does after a write.

A step that needs several internal names is one function here (`commit_append`, `committed_before`,
`keys_between`, `without_statistics`). The other internal names are public here for these reasons:

- a third of them are the types of columns and the parts of a schema: another engine maps each type
  to its own, so it must see all of them;
- values that tasks are sent (`Split`, `ReadPlan`, `WriteStart`, `Condition`) are named where they
  are annotated;
- steps between which the other engine does its own work stay separate: bucket and hash of a row (it
  shuffles by them), the state to read and the splits (it shows and caches them).
"""

from __future__ import annotations
