"""Below which delta a protocol is as good as a pure one: the printed condition, and its shape."""

from __future__ import annotations

import math

import pytest

from beam_ldp.protocols.interactivity.purification import largest_purifiable_delta


def test_both_parts_of_the_condition_bind_somewhere() -> None:
    """Of the lemma: the first for a small epsilon, the second for a large one."""
    small = 1e-3 * 0.01 / (48 * 1000 * math.log(2000 / 0.01))
    large = 0.01 / (64 * 1000 * math.log(1000 / 0.01) * math.exp(14))
    assert largest_purifiable_delta(1000, 1e-3, 0.01) == pytest.approx(small, rel=1e-12)
    assert largest_purifiable_delta(1000, 2.0, 0.01) == pytest.approx(large, rel=1e-12)


def test_usual_deltas_are_far_too_large() -> None:
    for people in (100, 10**4, 10**6):
        assert largest_purifiable_delta(people, 1.0, 0.05) < 1 / people**1.5
        assert largest_purifiable_delta(people, 1.0, 0.05) > largest_purifiable_delta(
            10 * people, 1.0, 0.05
        )


def test_refusals() -> None:
    for bad in ((0, 1.0, 0.1), (10, 0.0, 0.1), (10, 1.0, 1.0)):
        with pytest.raises(ValueError, match="people|epsilon|beta"):
            largest_purifiable_delta(*bad)
