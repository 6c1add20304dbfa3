"""People that tests need: the tests of others against enumeration, and the page that is shown."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

from beam_ldp.decisions import BitChannel
from benchmarks import experiment_baselines as others
from benchmarks import experiments

RESULTS = Path(experiments.__file__).parent / "results"
RATES, ALPHA = (0.2, 0.6), 0.1

pytestmark = pytest.mark.exact


def test_the_page_that_is_shown_says_what_was_found():
    """Power at least 0.98 of the best local test, false alarms within 3 sigma, bounds below."""
    found = json.loads((RESULTS / "experiments.json").read_text())
    for row in found["one_rate"]:
        assert 0.98 <= row["share_of_best_power"] <= 1
        assert row["ours"] <= 1.01 * row["best_local"]
        assert row["interactive_bound"] < row["sequential_bound"] < row["ours"]
        assert row["ours"] < min(row["rappor"], row["laplace"], row["gaussian"])
        assert row["central_best"] <= row["central_at_our_price"] < row["ours"]
    for row in found["stars"]:
        assert row["share_of_best_power"] >= (0.98 if row["local_epsilon"] <= 3 else 0.95)
    assert found["runs"] == 100_000 and len(found["false_alarms"]) == 4
    for row in found["false_alarms"]:
        assert row["level"] <= 0.05 and abs(row["sigmas"]) <= 3


def test_the_guide_quotes_the_page():
    found = json.loads((RESULTS / "experiments.json").read_text())
    guide = (RESULTS.parents[1] / "docs" / "experiments.md").read_text()
    names = ("ours", "rappor", "laplace", "sequential_bound", "central_best")
    for row in found["one_rate"]:
        if row["local_epsilon"] in (0.5, 1.0, 2.0, 4.0):
            people = " | ".join(f"{row[name]:,}" for name in names)
            price = f"{row['central_epsilon']:.4f} | {row['central_at_our_price']:,}"
            assert f"| {row['local_epsilon']:g} | {people} | {price} |" in guide
    assert f"outcomes collected as they are, {found['without_noise']:,}:" in guide


def test_the_script_makes_the_numbers_again(monkeypatch, tmp_path):
    monkeypatch.setattr(experiments, "EPSILONS", (6.0,))
    again = experiments.main(["--runs", "20", "--output", str(tmp_path)])
    shown = json.loads((RESULTS / "experiments.json").read_text())
    for table in ("one_rate", "two_arms", "stars"):
        assert again[table] == [pytest.approx(shown[table][-1])]
    assert [row["level"] for row in again["false_alarms"]] == [
        pytest.approx(row["level"]) for row in shown["false_alarms"]
    ]
    assert (tmp_path / "experiments.png").read_bytes().startswith(b"\x89PNG")


def enumerated(people, scores, laws):
    """Power of the least threshold that keeps the level, over all reports of everybody."""
    sums, masses = [], []
    for reports in itertools.product(range(len(scores)), repeat=people):
        sums.append(sum(scores[i] for i in reports))
        masses.append([math.prod(law[i] for i in reports) for law in laws])
    order, mass = np.unique(sums), np.array(masses)
    for bound in order:
        null, changed = mass[np.array(sums) >= bound].sum(axis=0)
        if null <= ALPHA:
            return changed
    raise AssertionError("no threshold keeps the level")


def test_power_of_a_sum_is_that_of_all_reports():
    scores, laws = np.array([-2, 0, 3]), np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]])
    steps = [others.Step.of(scores, law) for law in laws]
    found = others.sum_power(6, (steps[0], steps[1]), ALPHA)
    assert found == pytest.approx(enumerated(6, scores, laws), abs=1e-10)


def test_rappor_and_laplace_by_their_channels():
    keep = 1 / (1 + math.exp(-1.0))  # local epsilon 2, half of it for each bit
    flips = {True: keep, False: 1 - keep}
    laws = []
    for rate in RATES:
        masses = dict.fromkeys((-1, 0, 1), 0.0)
        for bit, (first, second) in itertools.product((0, 1), itertools.product((0, 1), repeat=2)):
            told = flips[first == bit] * flips[second == 1 - bit]
            masses[first - second] += told * (rate if bit else 1 - rate)
        laws.append(list(masses.values()))
    power = others.rappor_power(2.0, RATES, ALPHA)(5)
    assert power == pytest.approx(enumerated(5, [-1, 0, 1], laws), abs=1e-10)
    noise = stats.dlaplace(2.0)
    scores = np.arange(-25, 27)
    laws = [(1 - r) * noise.pmf(scores) + r * noise.pmf(scores - 1) for r in RATES]
    tails = [np.cumsum(np.convolve(np.convolve(law, law), law)[::-1])[::-1] for law in laws]
    expected = tails[1][np.argmax(tails[0] <= ALPHA)]
    assert others.local_laplace_power(2.0, RATES, ALPHA)(3) == pytest.approx(expected, abs=1e-9)


def test_a_noisy_count_against_sums_over_noise():
    noise, people = stats.dlaplace(0.7), 12
    values = np.arange(-60, 61)
    laws = [
        np.convolve(stats.binom.pmf(np.arange(13), people, r), noise.pmf(values)) for r in RATES
    ]
    tails = [np.cumsum(law[::-1])[::-1] for law in laws]
    expected = tails[1][np.argmax(tails[0] <= ALPHA)]
    assert others.central_power(0.7, RATES, ALPHA, "count")(people) == pytest.approx(expected)
    best = others.central_power(0.7, RATES, ALPHA, "best")(people)
    assert expected < best < others.best_bit_power(BitChannel(0.0, 1.0), RATES, ALPHA)(people)


def test_the_best_noise_is_private_to_the_last_bit_and_keeps_the_level():
    """The optimal test's acceptance rates: log-ratios of neighbours reach epsilon on both sides."""
    beyond, at = others.tulap(0.7), np.linspace(-9.3, 9.1, 300)
    here, there = beyond(at), beyond(at - 1)
    assert np.log(there / here).max() == pytest.approx(0.7)
    assert np.log((1 - here) / (1 - there)).max() == pytest.approx(0.7)
    assert np.all(np.diff(here) < 0)
    middle = (at > -0.5) & (at < 0.5)  # the CDF that the paper prints
    b = math.exp(-0.7)
    assert 1 - here[middle] == pytest.approx((b + (at[middle] + 0.5) * (1 - b)) / (1 + b))


def test_normal_noise_adds_up():
    power = others.local_gaussian_power(1.0, 1e-5, RATES, ALPHA)(400)
    spread = math.sqrt(400) / others.gaussian_mu(1.0, 1e-5)
    normal = stats.norm.sf(stats.norm.isf(ALPHA) - 400 * 0.4 / math.hypot(spread, 9))
    assert power == pytest.approx(normal, abs=0.01)


def test_no_test_of_bits_has_more_power():
    """All tests of seven bits, by a linear program over what is decided at each count."""
    channel, counts = BitChannel.implemented(1.0), np.arange(8)
    null, changed = (stats.binom.pmf(counts, 7, channel.rate(rate)) for rate in RATES)
    found = optimize.linprog(-changed, A_ub=[null], b_ub=[ALPHA], bounds=(0, 1), method="highs")
    best = others.best_bit_power(channel, RATES, ALPHA)(7)
    assert best == pytest.approx(-found.fun)


def test_no_channel_tells_more():
    """Of random ones; at a small epsilon it is our bit."""
    rng = np.random.default_rng(2)
    laws = np.array(experiments.BEFORE), np.array(experiments.AFTER)

    def told(channel):
        null, changed = channel @ laws[0], channel @ laws[1]
        return float(changed @ np.log(changed / null))

    for epsilon in (1.0, 4.0):
        best = others.best_channel(laws, epsilon)
        assert best.sum(axis=0) == pytest.approx(1)
        assert np.log(best.max(axis=1) / best.min(axis=1)).max() == pytest.approx(epsilon)
        compared = 0
        for _ in range(150):
            rows = np.exp(epsilon / 2 * rng.integers(0, 2, (4, 5))) * rng.uniform(size=(4, 1))
            rows /= rows.sum(axis=0)
            if np.log(rows.max(axis=1) / rows.min(axis=1)).max() <= epsilon:
                compared += 1
                assert told(rows) <= told(best) + 1e-12
        assert compared > 100
    ratios = np.log(np.divide(*others.best_channel(laws, 1.0)))
    assert np.sign(ratios[-1]) * ratios == pytest.approx([-1, -1, -1, 1, 1])
