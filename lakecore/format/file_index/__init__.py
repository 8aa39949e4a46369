"""Converts file indexes to bytes and back: the container, and one module for each index type.

An index is built from the values of one column of one data file, and says which rows of the file
may have a value (https://paimon.apache.org/docs/master/concepts/spec/fileindex/). A reader may
ignore it. All numbers are big-endian, except those inside roaring bitmaps.
"""

from __future__ import annotations
