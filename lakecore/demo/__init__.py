"""The demo `lakecore demo`: `tour` tells the story, `flights` has the data, `answers` the checks.

`stage` and `pictures` print. The demo of Spark reads the same flights.
"""

from __future__ import annotations
