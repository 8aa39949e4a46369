"""`lakecore demo`: `tour` is the story, `flights` its data, `answers` the checks.

`stage` and `pictures` print. The demo of Spark reads the same flights.
"""

from __future__ import annotations
