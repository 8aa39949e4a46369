"""A file that cannot be opened, for libraries that require one.

Opening it fails within Arrow's C++ code. A file system written in Python could fail instead, but
Arrow's threads may call it while the interpreter shuts down, which aborts the process.
"""

from __future__ import annotations

from pyarrow.fs import FileSystem, LocalFileSystem

NO_FILES: FileSystem = LocalFileSystem()
"""The file system in which Arrow looks for `NO_FILE`."""
NO_FILE = (
    "/dev/null/pyarrow's own functions cannot read the rows that lakecore merges; give them "
    "dataset.to_table(), or query the dataset by DuckDB or Polars"
)
"""The path, which Arrow's error shows. No such file can exist: /dev/null is no directory."""
