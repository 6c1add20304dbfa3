"""The last stage: the crowd that is priced is the one in which a report really hides."""

from __future__ import annotations

import numpy as np
import pytest
from apache_beam.coders import registry

from beam_ldp.accounting import event_epsilon, shuffled_event
from beam_ldp.accounting.shuffle.one_release import mean_epsilon
from beam_ldp.randomizers.frequency import BinaryHadamard
from beam_ldp.randomizers.mean import LInfMean
from beam_ldp.transforms import (
    Aggregate,
    EstimateFrequencies,
    EstimateMean,
    Release,
    ShuffledBlock,
)
from beam_ldp.transforms.elements.blocks import StatisticBlock
from tests.transforms.helpers import ORACLE, blocks_of, run

pytestmark = pytest.mark.pipeline

PUBLIC = BinaryHadamard(8, 1.0, row="public")


def released(oracle, block, **how):
    (release,) = run(lambda p: blocks_of(p, [block]) | EstimateFrequencies(oracle, **how))
    return release


@pytest.mark.parametrize("smallest", [1, 300, 1000])
def test_each_report_hides_in_the_smallest_batch_only(smallest):
    block = StatisticBlock(np.full(5, 200), 1000, smallest, ORACLE.config_digest())
    assert released(ORACLE, block).event.num_reports == smallest


def test_batches_of_the_shuffler_are_priced_by_the_smallest():
    def build(pipeline):
        sizes = {700: 700, 300: 300}
        batches = [
            ShuffledBlock(np.zeros(part, np.uint8), ORACLE.config_digest(), batch)
            for part, batch in sizes.items()
        ]
        total = blocks_of(pipeline, batches) | Aggregate(ORACLE)
        return total | EstimateFrequencies(ORACLE)

    (release,) = run(build)
    assert (release.num_reports, release.event.num_reports) == (1000, 300)


@pytest.mark.parametrize("smallest", [1400, 700])
def test_public_rows_split_a_batch_once(smallest):
    """Not once more where the release is stored."""
    statistic = np.repeat([100, 90, 120, 80, 110, 105, 95], 2)
    block = StatisticBlock(statistic, 1400, smallest, PUBLIC.config_digest())
    release = released(PUBLIC, block)
    assert release.event == shuffled_event(PUBLIC, smallest)
    assert release.event.crowd == smallest / 7
    coder = registry.get_coder(Release)
    assert coder.decode(coder.encode(release)).event == release.event


def test_several_messages_are_priced_by_column_and_by_the_smallest_batch():
    mechanism = LInfMean(6, 8.0)
    assert mechanism.messages_per_user > 1
    reports = mechanism.randomize(np.zeros((1000, 6)))
    digest = mechanism.config_digest()
    block = StatisticBlock(mechanism.accumulate(reports), 1000, 600, digest)
    (release,) = run(lambda p: blocks_of(p, [block]) | EstimateMean(mechanism))
    assert release.event == shuffled_event(mechanism, 600)
    assert event_epsilon(release.event, 1e-6) == mean_epsilon(mechanism, 600, 1e-6)
    coder = registry.get_coder(Release)
    back = coder.decode(coder.encode(release))
    assert back.event == release.event
    assert back.estimate.mean_squared_error == release.estimate.mean_squared_error
    assert np.array_equal(back.estimate.value, release.estimate.value)
