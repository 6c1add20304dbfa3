"""The accountant keeps its promises of speed."""

from __future__ import annotations

import pytest

from benchmarks.accountant_speed import Case, cases, measure

TARGETS = [case for case in cases() if case.cold_target or case.warm_target]


@pytest.mark.bench
@pytest.mark.parametrize("case", TARGETS, ids=[case.name for case in TARGETS])
def test_prices_are_quick(case: Case) -> None:
    row = measure(case, 3)
    assert case.cold_target is None or row["cold"] <= case.cold_target
    assert case.warm_target is None or row["warm"] <= case.warm_target


@pytest.mark.bench
def test_many_at_once_are_faster_than_one_by_one() -> None:
    at_once, one_by_one = (measure(case, 1)["cold"] for case in cases()[-2:])
    assert at_once < 0.15 * one_by_one
