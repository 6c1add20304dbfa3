"""Split-and-mix sums through Beam: columns are shuffled apart, and no stage prices them wrongly."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pytest

from beam_ldp.accounting.shuffle.split_and_mix import split_and_mix_epsilon
from beam_ldp.randomizers.mean import SplitAndMixMean
from beam_ldp.settings import Privacy, SettingError
from beam_ldp.transforms import Aggregate, EstimateMean, PrivateMean, Randomize, Shuffle
from tests.transforms.helpers import run

PEOPLE = 500
MECHANISM = SplitAndMixMean.for_shuffle(16, 1.0, 1e-6, PEOPLE, honest_fraction=0.9)


@pytest.mark.pipeline
def test_devices_shuffler_and_collector_run_in_beam_and_the_sum_is_read_by_the_mechanism():
    """Secure randomness, every column by itself; 6 sigma in 16 components."""
    vector = np.full(16, 0.25) * np.where(np.arange(16) % 3, 1.0, -0.5)

    def sums(pipeline):
        values = pipeline | beam.Create([vector] * PEOPLE)
        reports = values | Randomize(MECHANISM) | Shuffle(MECHANISM, min_reports=PEOPLE)
        return reports | Aggregate(MECHANISM)

    (block,) = run(sums)
    found = MECHANISM.estimate(block.statistic, block.num_reports)
    assert block.num_reports == PEOPLE and block.output == "reports"
    assert (np.abs(found.value - vector) < 6 * found.standard_error).all()
    assert found.failure_probability < 1e-8
    assert split_and_mix_epsilon(MECHANISM, 450, 1e-6) <= 1.0


@pytest.mark.exact
def test_no_stage_releases_a_price_that_nobody_proved():
    """Neither with a declared trust in the shuffler nor without; when the pipeline is built."""
    with pytest.raises(ValueError, match="split_and_mix_epsilon"):
        EstimateMean(MECHANISM)
    with pytest.raises(SettingError, match=r"must be at most 8, got inf.*privacy\.trust_shuffler"):
        PrivateMean(MECHANISM, expected_users=PEOPLE)
    trusted = Privacy(expected_users=PEOPLE, delta=1e-6, trust_shuffler=True)
    pipeline = beam.Pipeline(runner="DirectRunner")
    vectors = pipeline | beam.Create([np.zeros(16)])
    with pytest.raises(ValueError, match="split_and_mix_epsilon"):
        vectors | PrivateMean(MECHANISM, privacy=trusted)
