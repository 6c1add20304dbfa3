"""Tail expectations of sums against what is known of them exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom

from beam_ldp.accounting.divergences import iid_sums
from beam_ldp.accounting.divergences.enumerated import law_of_one
from beam_ldp.accounting.divergences.iid_sums import COARSE, FINE, positive_parts
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from tests.accounting.rdp_curves import positive_part

pytestmark = pytest.mark.exact


def binomial_call(n: int, p: float, up: float, down: float) -> float:
    """E[max(up * k - down * (n - k), 0)] for k ~ Bin(n, p), all terms positive."""
    k = np.arange(n + 1)
    return float(np.sum(binom.pmf(k, n, p) * np.maximum(up * k - down * (n - k), 0.0)))


@given(
    n=st.integers(5, 5000),
    p=st.floats(0.02, 0.98),
    down=st.floats(0.1, 10.0),
    z=st.floats(-2.0, 7.0),
)
@settings(max_examples=60)
def test_two_atoms_are_a_binomial(n, p, down, z):
    """The strike moves z standard deviations away from the mean."""
    share = min(0.999, p + z * math.sqrt(p * (1 - p) / n))
    if share <= 0.01:
        return
    up = down * (1 - share) / share
    known = binomial_call(n, p, up, down)
    if known < 1e-25:
        return
    for smoothings in (FINE, COARSE):
        low, high = positive_part(np.array([up, -down]), np.array([p, 1 - p]), n, smoothings)
        assert low <= known * (1 + 1e-9) and known * (1 - 1e-9) <= high


@pytest.mark.parametrize("z", [0.0, 2.0, 5.0, 8.0])
@pytest.mark.parametrize("n", [10**7, 10**9])
def test_large_sums_are_normal(n, z):
    """Berry and Esseen leave a term of order 1/sqrt(n) z^3; the bounds are closer than that."""
    drift = z / math.sqrt(n)
    values = np.array([1.0 - drift, -1.0 - drift])
    low, high = positive_part(values, np.array([0.5, 0.5]), n)
    density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    known = math.sqrt(n) * (density - z * ndtr(-z))
    assert low <= high <= low * 1.002
    assert high == pytest.approx(known, rel=2e-3)


def test_finer_smoothing_closes_the_bounds():
    values, probability = np.array([3.0, 0.4, -1.1]), np.array([0.1, 0.3, 0.6])
    gaps = []
    for width in (0.03, 0.01, 0.003):
        low, high = positive_part(values, probability, 500, (width,))
        gaps.append((high - low) / high)
    assert gaps[0] > 4 * gaps[1] > 16 * gaps[2] > 0


def test_scale_does_not_matter():
    values, probability = np.array([3.0, 0.4, -1.1]), np.array([0.1, 0.3, 0.6])
    low, high = positive_part(values, probability, 500)
    for scale in (1e-12, 1e12):
        again = positive_part(values * scale, probability, 500)
        assert np.array(again) == pytest.approx(np.array([low, high]) * scale, rel=1e-7)


def test_positive_sums_keep_their_mean():
    """All draws positive: the expectation is n times the mean."""
    values, probability = np.array([1.0, 2.0]), np.array([0.5, 0.5])
    low, high = positive_part(values, probability, 100)
    assert low <= 150.0 <= high and high - low < 0.1


LAWS = {
    "two atoms, apart": ([1.0, -0.3], [0.2, 0.8]),
    "on a lattice": ([2.0, 1.0, -1.0], [0.1, 0.2, 0.7]),
    "equal atoms": ([1.0, 1.0, -0.5], [0.1, 0.1, 0.8]),
    "a rare one": ([5.0, -1e-3, -2e-3], [1e-4, 0.5, 0.4999]),
}


@pytest.mark.parametrize("n", [3, 300, 10**5, 10**8])
@pytest.mark.parametrize("name", LAWS)
def test_nodes_left_out_tell_nothing(name, n, monkeypatch):
    """All nodes give the same bounds, up to rounding; and the bounds without them are wider."""
    values, probability = map(np.array, LAWS[name])
    found = positive_part(values, probability, n)
    monkeypatch.setattr("beam_ldp.accounting.divergences.iid_sums._FLAT", 1e30)
    assert found == pytest.approx(positive_part(values, probability, n), rel=1e-11)


@pytest.mark.parametrize(
    ("values", "probability", "n", "most"),
    [
        ([1.0, 0.0, -1.2], [0.07, 0.86, 0.07], 10**5, 0.1),
        # The second likeliest is next to the first, and says nothing: 93 % were evaluated.
        ([1.0, 0.0, 0.001, -1.2], [0.023, 0.874, 0.08, 0.023], 12_000, 0.3),
    ],
)
def test_few_nodes_are_evaluated(values, probability, n, most, monkeypatch):
    """Of an ordinary release one in ten: what makes a price cheap."""
    evaluated = []
    characteristic = iid_sums._characteristic
    monkeypatch.setattr(
        iid_sums,
        "_characteristic",
        lambda omega, *others: evaluated.append(len(omega)) or characteristic(omega, *others),
    )
    law = np.array([values]), np.array(probability), n
    positive_parts(*law, (0.004,))
    monkeypatch.setattr(iid_sums, "_FLAT", 1e30)
    positive_parts(*law, (0.004,))
    assert evaluated[0] < most * evaluated[1]


@pytest.mark.parametrize("n", [40, 10**4, 10**7])
def test_many_laws_at_once_are_each_by_itself(n, monkeypatch):
    """Also where they are more than are evaluated at once."""
    shifts = np.linspace(0.0, 0.9, 23)
    values = np.array([1.0, 0.2, -0.4]) - shifts[:, None]
    probability = np.array([0.3, 0.1, 0.6])
    monkeypatch.setattr(iid_sums, "_AT_ONCE", 1 << 12)
    low, high = np.exp(positive_parts(values, probability, n))
    for i, law in enumerate(values):
        assert (low[i], high[i]) == pytest.approx(positive_part(law, probability, n), rel=1e-9)


def test_one_law_is_found_where_many_are():
    """Newton's steps from the Gaussian's saddle, or in the bracket of all: the same place."""
    rng = np.random.default_rng(5)
    for _ in range(300):
        kinds, n = int(rng.integers(2, 7)), int(10 ** rng.uniform(0, 12))
        probability = rng.dirichlet(10 ** rng.uniform(-1, 1, kinds))
        values = rng.normal(size=kinds) * 10 ** rng.uniform(-6, 3, kinds)
        values += 10 ** rng.uniform(-3, 1) - values @ probability
        if not (values[probability > 0] > 0).any():
            continue
        each, count = np.array([probability] * 2), np.array([float(n)] * 2)
        one = iid_sums._saddles(values[None], each[:1], count[:1])
        both = iid_sums._saddles(np.array([values, values]), each, count)
        assert both == pytest.approx(float(one[0]), rel=1e-8)
        assert positive_part(values, probability, n) == pytest.approx(
            np.exp(positive_parts(np.array([values] * 2), probability, n))[:, 0], rel=1e-9
        )


def laws_to_leave_out() -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Hockey sticks of clones, and laws of two to six values that nothing ties together."""
    rng, found = np.random.default_rng(11), []
    for budget in (0.5, 2.0, 6.0):
        law = law_of_one(ShufflePair.clones(budget))
        for n in (300, 10**4, 10**6):
            steps = np.expm1(np.array([0.0, 0.3, 3.0, 8.0]) / math.sqrt(n))[:, None]
            found.append((law.difference - steps * law.second, law.probability, n))
    for _ in range(60):
        kinds = int(rng.integers(2, 7))
        values = rng.normal(size=kinds) * 10 ** rng.uniform(-2, 1, kinds)
        probability = rng.dirichlet(np.full(kinds, 0.5))
        values -= values @ probability + 0.02 * np.abs(values).max()
        if (values[probability > 0] > 0).any():
            found.append((values[None], probability, int(10 ** rng.uniform(1, 5))))
    return found


def test_what_is_left_out_is_as_small_as_it_is_counted():
    """Every node that is left out, looked at: the integrand is below e^-40 of that at zero."""
    seen = left = 0
    for values, probability, n in laws_to_leave_out():
        each = np.broadcast_to(probability, values.shape)
        lines = iid_sums._lines(values, each, n)
        tau, spacing = 0.004 * lines.width, 2 * math.pi / (12.0 * lines.width)
        last = np.full(len(values), 3600)
        first, stop, owner = iid_sums._windows(lines, tau, spacing, last)
        for law in range(len(values)):
            evaluated = np.zeros(3601, dtype=bool)
            for begin, end in zip(first[owner == law], stop[owner == law], strict=True):
                assert not evaluated[begin:end].any()  # none twice
                evaluated[begin:end] = True
            omega = np.arange(3601) * spacing[law]
            theta = lines.theta[law]
            powers = theta * values[law]
            tilted = probability * np.exp(powers - powers.max())
            sums = np.exp(1j * omega[:, None] * values[law]) @ (tilted / tilted.sum())
            with np.errstate(divide="ignore"):
                logs = n * np.log(np.abs(sums)) - (omega * tau[law]) ** 2 / 2
            logs -= np.log1p((omega / theta) ** 2)
            assert evaluated[0] and logs[~evaluated].max(initial=-np.inf) <= -40.0 + 1e-6
            seen, left = seen + evaluated.sum(), left + (~evaluated).sum()
    assert left > 2 * seen


@pytest.mark.parametrize("flat", [1.0, 3.0])
def test_bounds_hold_whatever_is_left_out(flat, monkeypatch):
    """Nodes of a third and a twentieth of the first one left out: bounds are wider, both of them.

    Where the most is left out one of the sums by itself is too low, and one too high.
    """
    off = []
    for values, probability, n in laws_to_leave_out():
        monkeypatch.setattr(iid_sums, "_FLAT", 1e30)
        low, high = positive_parts(values, probability, n, (0.004,))
        monkeypatch.setattr(iid_sums, "_FLAT", flat)
        wider_low, wider_high = positive_parts(values, probability, n, (0.004,))
        assert (wider_high >= high - 1e-11).all() and (wider_low <= low + 1e-11).all()
        off += (wider_high - high).tolist()
    assert max(off) > 1e-3


def test_upper_bounds_alone_are_the_same():
    values, probability = np.array([[3.0, 0.4, -1.1], [3.0, 0.2, -1.3]]), np.array([0.1, 0.3, 0.6])
    low, high = positive_parts(values, probability, 500, (0.004,), lower=False)
    assert np.isneginf(low).all()
    assert high.tolist() == positive_parts(values, probability, 500, (0.004,))[1].tolist()


def test_laws_of_other_probabilities_and_numbers_are_each_by_itself():
    """As prices of unlike releases are: a kind that a law lacks has no probability."""
    values = np.array([[1.0, -0.3, -0.3], [2.0, 0.4, -1.1], [0.5, -0.1, -0.7]])
    probability = np.array([[0.2, 0.8, 0.0], [0.1, 0.3, 0.6], [0.2, 0.7, 0.1]])
    n = np.array([40.0, 10**4, 10**8])
    low, high = np.exp(positive_parts(values, probability, n))
    for i in range(3):
        alone = positive_part(values[i], probability[i], int(n[i]))
        assert (low[i], high[i]) == pytest.approx(alone, rel=1e-9)
