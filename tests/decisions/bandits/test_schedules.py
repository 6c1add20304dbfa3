"""Sizes of batches: the table of the specification, and horizons that are overrun."""

import pytest

from beam_ldp.decisions.bandits.schedules import Schedule

# growth, batches, share of the horizon: specification of linear bandits, section 3.1
TABLE = {
    "real": [(2.9307, 8, 0.826), (2.8870, 10, 0.615), (2.8581, 12, 0.457), (2.8377, 15, 0.962)],
    "floor": [(3.0053, 8, 0.997), (3.0333, 10, 0.984), (3.0528, 12, 0.974), (2.8597, 15, 1.075)],
    "ceil": [(2.6922, 9, 1.182), (2.7654, 11, 1.133), (2.8189, 13, 1.100), (2.6883, 16, 1.185)],
}


@pytest.mark.parametrize("rounding", TABLE)
def test_schedules_of_the_specification(rounding):
    for exponent, (growth, batches, share) in zip((4, 5, 6, 7), TABLE[rounding], strict=True):
        plan = Schedule.of(10**exponent, rounding)
        assert (round(plan.growth, 4), plan.batches, round(plan.share, 3)) == (
            growth, batches, share,
        )  # fmt: skip


@pytest.mark.parametrize("length", range(4, 20))
def test_the_printed_loop_overruns_the_horizon_where_growth_is_below_three(length):
    # Sum of q^i for i < L is (2T - q)/(q - 1) where q^L = 2T: above T if q < 3 - q/T.
    horizon = round(2.71828**length)
    plan = Schedule.of(horizon, "ceil")
    exact = (2 * horizon - plan.growth) / (plan.growth - 1)
    assert plan.share * horizon == pytest.approx(exact)
    assert (plan.share > 1) == (plan.growth < 3 - plan.growth / horizon)


def test_a_batch_fits_up_to_the_last_person():
    plan = Schedule.of(1000)
    assert plan.fits(400, 600)
    assert not plan.fits(401, 600)


def test_refusals():
    with pytest.raises(ValueError, match="rounding must be one of real, floor, ceil, got 'up'"):
        Schedule.of(1000, "up")
    with pytest.raises(ValueError, match="horizon must be an integer from 16"):
        Schedule.of(15)
    with pytest.raises(ValueError, match="batch must be an integer from 1 to 5"):
        Schedule.of(1000).size(6)
