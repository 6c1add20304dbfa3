"""How a crowd splits where reports carry something public that is tied to the user."""

from __future__ import annotations

from functools import lru_cache

SMALLER_GROUP_CHANCE = 1e-12  # that some group is smaller than `smallest_group` says


@lru_cache(maxsize=4096)
def smallest_group(num_reports: int, num_groups: int) -> int:
    """Reports that every one of the groups has, but with a chance of `SMALLER_GROUP_CHANCE`.

    Everybody is in one group, each equally likely, whatever they hold. The victim is in one of
    them, so at least 1.

    >>> smallest_group(100_000, 1), smallest_group(100_000, 1023)
    (100000, 31)
    """
    if num_groups == 1 or num_reports == 0:
        return num_reports
    from scipy import stats  # slow to import, and not needed on devices

    fewest = stats.binom.ppf(SMALLER_GROUP_CHANCE / num_groups, num_reports, 1 / num_groups)
    return max(1, int(fewest))
