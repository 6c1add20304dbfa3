"""A refused argument is named, with what is allowed, whatever stands in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from beam_ldp.accounting.reconstruction import DiffuseTarget
from beam_ldp.accounting.shuffle.multi_message import multi_message_epsilon
from beam_ldp.planning import plan_frequencies
from beam_ldp.randomizers.checks import check_integer, check_not_negative
from beam_ldp.randomizers.mean import L2Mean, LInfMean
from beam_ldp.randomizers.spherical_caps import SphericalCap

pytestmark = pytest.mark.exact

TAKEN: list[tuple[str, Callable[[Any], Any]]] = [
    ("dimension", lambda number: DiffuseTarget(number, 0.5)),
    ("dimension", lambda number: LInfMean(number, 1.0)),
    ("dimension", lambda number: SphericalCap(number, 0.5)),
    ("expected_users", lambda number: L2Mean(4, 1.0, expected_users=number)),
    ("num_reports", lambda number: multi_message_epsilon([(1, 1.0)], number, 1e-6)),
    ("domain_size", lambda number: plan_frequencies(1000, number, local_epsilon=1.0, delta=1e-6)),
]


@pytest.mark.parametrize("number", [math.nan, math.inf, 2.5, -1, "3", None])
@pytest.mark.parametrize(("name", "taken"), TAKEN)
def test_what_is_no_integer_is_refused_by_name(
    name: str, taken: Callable[[Any], Any], number: Any
) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an integer"):
        taken(number)


def test_integers_of_all_kinds_are_taken() -> None:
    assert check_integer("count", 3.0, 1) == 3 and check_integer("count", 10**40, 1) == 10**40
    for number, most in ((0, None), (True, None), (7, 6)):
        with pytest.raises(ValueError, match="count must be an integer"):
            check_integer("count", number, 1, most)


@pytest.mark.parametrize("number", [-1e-9, math.nan, math.inf])
def test_what_is_negative_or_none_is_refused(number: float) -> None:
    check_not_negative("excess", 0.0)
    with pytest.raises(ValueError, match="excess must be a finite number >= 0, got"):
        check_not_negative("excess", number)
