"""Split-and-mix sums through Beam: columns are shuffled apart, envelopes count whole or not."""

from __future__ import annotations

from dataclasses import replace

import apache_beam as beam
import numpy as np
import pytest

from beam_ldp.accounting import ShuffledSharesDpEvent, event_epsilon
from beam_ldp.accounting.shuffle.split_and_mix import split_and_mix_epsilon
from beam_ldp.ledger import BudgetExceededError, BudgetLedger
from beam_ldp.ledger.auditing import audit
from beam_ldp.randomizers.mean import SplitAndMixMean
from beam_ldp.settings import Noise, People, Privacy, SettingError
from beam_ldp.transforms import (
    Aggregate,
    ChargeTo,
    EstimateMean,
    PrivateMean,
    Randomize,
    Shuffle,
)
from tests.transforms.helpers import run

PEOPLE = 500
MECHANISM = SplitAndMixMean.for_shuffle(16, 1.0, 1e-6, PEOPLE, honest_fraction=0.9)
VECTOR = np.full(16, 0.25) * np.where(np.arange(16) % 3, 1.0, -0.5)
TRUSTED = Privacy(expected_users=PEOPLE, trust_shuffler=True)


def rows(lost: int = 0) -> list[dict[str, float | None]]:
    """A row for each person, of which some lack a number."""
    good = {f"x{i}": float(x) for i, x in enumerate(VECTOR)}
    return [good | {"x7": None} if i < lost else good for i in range(PEOPLE)]


def mean_of(pipeline: beam.Pipeline, data: list[dict[str, float | None]], **how: object):
    found = pipeline | beam.Create(data)
    columns = [f"x{i}" for i in range(16)]
    return found | PrivateMean(MECHANISM, columns=columns, **how)


@pytest.mark.pipeline
@pytest.mark.parametrize("output", ["reports", "statistic"])
def test_devices_shuffler_and_collector_run_in_beam(output):
    """Secure randomness; 6 sigma in 16 components: false alarms below 4e-8."""

    def releases(pipeline):
        values = pipeline | beam.Create([VECTOR] * PEOPLE)
        reports = values | Randomize(MECHANISM) | Shuffle(MECHANISM, PEOPLE, output)
        return reports | Aggregate(MECHANISM) | EstimateMean(MECHANISM)

    (release,) = run(releases)
    found = release.estimate
    assert release.num_reports == PEOPLE and release.output == output
    assert (np.abs(found.value - VECTOR) < 6 * found.standard_error).all()
    assert found.failure_probability < 1e-8
    assert isinstance(release.event, ShuffledSharesDpEvent) and release.event.crowd == PEOPLE
    priced = float(event_epsilon(release.event, 1e-6))
    assert priced == split_and_mix_epsilon(MECHANISM, PEOPLE, 1e-6) < 0.96


@pytest.mark.pipeline
def test_an_envelope_counts_whole_or_not_at_all():
    """Twenty rows lack one number of sixteen: none of their shares is in any sum. 6 sigma.

    With one share of one of them too many or too few, a sum would be a random number.
    """
    (release,) = run(lambda p: mean_of(p, rows(lost=20), privacy=TRUSTED, min_reports=450))
    found = release.estimate
    assert release.num_reports == PEOPLE - 20
    assert (np.abs(found.value - VECTOR) < 6 * found.standard_error).all()
    assert release.event.num_reports == PEOPLE - 20


@pytest.mark.exact
def test_one_share_that_is_another_moves_the_whole_mean():
    """What the last test would see of an envelope that counts in part, or is forged."""
    rng = np.random.default_rng(7)
    mechanism = replace(MECHANISM, rotation_seed=5)
    reports = mechanism.randomize(np.tile(VECTOR, (PEOPLE, 1)), rng)
    whole = mechanism.estimate(mechanism.accumulate(reports), PEOPLE)
    assert (np.abs(whole.value - VECTOR) < 6 * whole.standard_error).all()
    reports[0, 3] ^= mechanism.modulus >> 1
    torn = mechanism.estimate(mechanism.accumulate(reports), PEOPLE)
    assert (np.abs(torn.value - VECTOR) > 10 * torn.standard_error).all()


@pytest.mark.exact
def test_nobody_sends_shares_unless_the_shuffler_is_declared_to_be_trusted(tmp_path):
    with pytest.raises(SettingError, match=r"must be at most 8, got inf.*privacy\.trust_shuffler"):
        PrivateMean(MECHANISM, expected_users=PEOPLE)
    (tmp_path / "key").write_bytes(bytes(32))
    noise = Noise(dataset="d", id="r", key_file=str(tmp_path / "key"))
    with pytest.raises(ValueError, match="noise must not be memoized: shares protect in their sum"):
        PrivateMean(MECHANISM, privacy=TRUSTED, noise=noise)
    with pytest.raises(ValueError, match="noise must not be memoized"):
        PrivateMean(MECHANISM, privacy=TRUSTED, permanent=True)
    log = {"log": str(tmp_path / "log"), "log_key_file": str(tmp_path / "key")}
    with pytest.raises(ValueError, match="noise must keep no log"):
        PrivateMean(MECHANISM, privacy=TRUSTED, noise=Noise(dataset="d", id="r", **log))


@pytest.mark.pipeline
def test_a_budget_is_charged_and_a_limit_on_local_epsilons_refuses(tmp_path):
    url = f"sqlite:///{tmp_path}/privacy.db"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("open", epsilon=4.0, delta=1e-5)
    ledger.set_budget("capped", epsilon=4.0, delta=1e-5, local_epsilon=100.0)
    how = {"privacy": TRUSTED, "min_reports": PEOPLE, "people": People(one_row=True)}
    with pytest.raises(BudgetExceededError, match=r"sum to 100 per user; this run has none"):
        mean_of(
            beam.Pipeline(runner="DirectRunner"), rows(), budget=ChargeTo("capped", url),
            noise=Noise(dataset="capped", id="week"), **how,
        )  # fmt: skip
    budget = ChargeTo("open", url, run_id="monday")
    noise = Noise(dataset="open", id="week")
    (release,) = run(lambda p: mean_of(p, rows(), budget=budget, noise=noise, **how))
    charge = ledger.charge("monday")
    assert charge.status == "settled" and charge.local_epsilon == float("inf")
    assert charge.about["trust_shuffler"] == "yes"
    assert charge.settled["event"]["kind"] == "ShuffledSharesDpEvent"
    assert charge.settled["event"]["num_reports"] == release.num_reports == PEOPLE
    assert 0.9 < ledger.status("open").spent < 1.5 and audit(ledger.rows()).clean
