"""How long the long tests are: in full by `make props`, shorter in the `quick` profile of CI."""

from __future__ import annotations

from hypothesis import settings


def sized(full: int, *, quick: int) -> int:
    """The number of seeds, rounds or commits of a test under the profile of this run."""
    return quick if settings.get_current_profile_name() == "quick" else full
