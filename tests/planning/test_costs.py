"""The cost model: its data are whole, its predictions behave, and hold where it was not fitted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.planning import costs
from beam_ldp.planning.costs import SIZES, STEPS, coefficients, is_fitted, job_cost, sizes
from beam_ldp.randomizers import frequency, mean, registry
from beam_ldp.transforms.elements import portable
from beam_ldp.transforms.shuffler import batches, exchange
from beam_ldp.transforms.shuffler.exchange import PieceFormat
from benchmarks.costs import WITHIN, fit_steps, held_out, kernels, least, mechanism, points

ORACLE = frequency.KRandomizedResponse(266, 4.0)


@pytest.mark.exact
def test_data_are_whole() -> None:
    found = coefficients()
    assert found["sizes"] == list(SIZES)
    assert {name for name, _, _ in points(False)} == set(found["steps"])
    for steps in found["steps"].values():
        assert set(steps) == set(STEPS)
        for numbers in steps.values():
            assert len(numbers) == len(SIZES)
            assert all(math.isfinite(n) and n >= 0 for n in numbers)
            assert any(n > 0 for n in numbers)
    assert all(number > 0 for number in found["job"].values())


@pytest.mark.exact
def test_every_oracle_is_fitted_and_what_is_not_is_timed_here() -> None:
    assert set(frequency.__all__) <= set(coefficients()["steps"])
    for kind in registry.offered("mean"):
        if kind.__name__ in ("ScalarMean", "KashinMean", "MinimalRandomCoding", "SeparatedMean"):
            mechanism = kind(1 if kind.__name__ == "ScalarMean" else 16, 2.0)
            assert not is_fitted(mechanism)
            steps = {step: costs.step_nanoseconds(mechanism, step) for step in STEPS}
            assert all(0 < nanoseconds < 1e9 for nanoseconds in steps.values())
            ten, hundred = (job_cost(mechanism, 10**12, workers).seconds for workers in (10, 100))
            assert 5 < ten / hundred <= 10, "starting workers is nothing beside so many reports"


@pytest.mark.exact
def test_another_packages_class_of_a_fitted_name_is_not_taken_for_it(monkeypatch) -> None:
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    fitted = coefficients()["steps"]
    monkeypatch.setitem(fitted, "Mine", fitted["KRandomizedResponse"])
    mine = type("Mine", (frequency.KRandomizedResponse,), {"__module__": "elsewhere"})
    assert not is_fitted(mine(5, 1.0))


@pytest.mark.exact
def test_the_points_of_the_fit_follow_from_the_mechanisms() -> None:
    for held in (False, True):
        assert {name for name, _, _ in points(held)} >= set(frequency.__all__)


@pytest.mark.exact
def test_sizes_are_the_stages_own() -> None:
    """The model stands below the stages and repeats some of their numbers."""
    for randomizer in (ORACLE, frequency.UnaryEncoding(100, 1.0), mean.PrivUnit(50, 4.0)):
        assert costs.report_bytes(randomizer) == portable.report_bytes(randomizer)
        wire = min(randomizer.bits_per_report, 8 * costs.report_bytes(randomizer))
        assert wire <= PieceFormat(randomizer).bits_per_report <= 1.25 * wire
    assert costs.BATCH_REPORTS == batches.BATCH_REPORTS
    assert costs.LEFTOVER_REPORTS == batches.SMALL_REPORTS
    assert costs.SHARD_BYTES == exchange.SHARD_BYTES
    assert costs.BLOCK_BYTES == portable.BLOCK_BYTES
    assert sizes(ORACLE).tolist()[:4] == [1.0, 1.0, 2.0, 266.0]


@pytest.mark.exact
@pytest.mark.parametrize("output", ["statistic", "batch", "global"])
def test_more_reports_cost_more_and_more_workers_take_less_time(output) -> None:
    before = None
    for reports in (10**6, 10**9, 10**12):
        ten, hundred = (job_cost(ORACLE, reports, workers, output) for workers in (10, 100))
        assert hundred.seconds <= 1.01 * ten.seconds  # more sums to add up take a little
        assert hundred.core_seconds >= ten.core_seconds
        assert ten.worker_bytes == hundred.worker_bytes  # flat
        if before is not None:
            assert ten.core_seconds > before.core_seconds
        before = ten


@pytest.mark.exact
def test_each_report_crosses_once_and_only_where_it_must() -> None:
    reports = 10**10
    exchanged = {
        output: job_cost(ORACLE, reports, 10, output).exchanged_bytes
        for output in ("statistic", "batch", "global")
    }
    assert exchanged["global"] == pytest.approx(reports * 9 / 8, rel=1e-3)
    assert exchanged["statistic"] < exchanged["batch"] < exchanged["global"] / 100


@pytest.mark.exact
def test_fit_finds_a_law_that_it_can_express() -> None:
    law = np.array([2.0, 0.0, 0.5, 0.01, 0.0, 0.7, 0.2])
    measured = []
    for point in points(False):
        if point[0] == "UnaryEncoding":
            randomizer = mechanism(point)
            measured.append((randomizer, dict.fromkeys(STEPS, float(law @ sizes(randomizer)))))
    fitted = {"steps": fit_steps(measured)}
    for randomizer, times in measured:
        for step in STEPS:
            predicted = costs.step_nanoseconds(randomizer, step, fitted)
            assert predicted == pytest.approx(times[step], rel=1e-3)


@pytest.mark.exact
@pytest.mark.parametrize(("reports", "workers"), [(0, 1), (1, 0)])
def test_numbers_below_one_are_refused(reports, workers) -> None:
    with pytest.raises(ValueError, match="must be >= 1"):
        job_cost(ORACLE, reports, workers)


@pytest.mark.bench
def test_held_out_kernels_are_predicted() -> None:
    """Fitted here and now, so that the verdict is about the model and not about the machine.

    In processor time, and by turns: what else runs slows both down, and for a while. Of each step
    the least time of all turns counts, and as long as that is off another turn is taken.
    """
    turns = []
    for _ in range(6):
        turns.append([kernels(held, 200_000, 3) for held in (False, True)])
        fit, held = (least(runs) for runs in zip(*turns, strict=True))
        found = list(held_out({"steps": fit_steps(fit)}, held))
        assert len(found) >= 30
        off = {f"{n}, {s}": round(p / t - 1, 2) for n, s, t, p in found if abs(p / t - 1) > WITHIN}
        if not off:
            return
    assert not off
