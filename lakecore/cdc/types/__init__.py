"""Converts types of sources to Paimon's types, by the rules and options of Paimon's actions.

Pure.
"""

from __future__ import annotations
