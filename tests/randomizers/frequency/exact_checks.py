"""What can be computed of an oracle with a small channel, checked against what it claims."""

from __future__ import annotations

import json
import math
from collections import defaultdict

import numpy as np
import pytest
from scipy.stats import chi2

from beam_ldp.randomizers import FrequencyOracle, LocalRandomizer, ShufflePair, UserRandomness
from beam_ldp.randomizers.shuffle_pair import witness_from_channel
from tests.identities import identity

ROUNDING = 1e-9


def row_estimates(oracle: FrequencyOracle) -> np.ndarray:
    """The estimate from each single report, in the order of the channel's rows."""
    reports = oracle.channel_reports()
    return np.array(
        [oracle.frequencies(oracle.accumulate(reports[i : i + 1]), 1) for i in range(len(reports))]
    )


def check_channel(oracle: FrequencyOracle) -> None:
    """Privacy, unbiasedness and variances, all from the channel alone."""
    channel, k = oracle.channel(), oracle.domain_size
    assert channel.shape == (len(oracle.channel_reports()), k)
    np.testing.assert_allclose(channel.sum(axis=0), 1.0, rtol=0, atol=1e-9)
    spent = math.log((channel.max(axis=1) / channel.min(axis=1)).max())
    assert spent <= oracle.local_epsilon + 1e-11
    assert oracle.local_epsilon - 1e-8 <= oracle.log_ratio_max() <= oracle.local_epsilon
    assert spent == pytest.approx(oracle.log_ratio_max(), abs=1e-9)

    rows = row_estimates(oracle)
    np.testing.assert_allclose(rows.T @ channel, np.eye(k), rtol=0, atol=ROUNDING)

    squares = (rows**2).T @ channel
    truth = np.arange(1.0, k + 1) / np.arange(1.0, k + 1).sum()
    same = {"rtol": 1e-8, "atol": 1e-8}
    np.testing.assert_allclose(
        oracle.variance(10, truth, "fixed"), (squares @ truth - truth) / 10, **same
    )
    np.testing.assert_allclose(
        oracle.variance(10, truth, "iid"), (squares @ truth - truth**2) / 10, **same
    )
    vertices = np.eye(k)
    worst_fixed = (squares - vertices).max(axis=1)
    np.testing.assert_allclose(oracle.variance(1), worst_fixed, **same)
    worst = oracle.variance(1, None, "iid")
    for share in np.linspace(0, 1, 21):
        # Component x has the given share, the rest sits on one other value.
        for rest in range(k):
            mixed = share * np.diagonal(squares) + (1 - share) * squares[:, rest] - share**2
            others = np.arange(k) != rest
            assert (mixed[others] <= worst[others] * (1 + 1e-9)).all()


def _merged(pair: ShufflePair) -> dict[tuple[float, float], float]:
    table: dict[tuple[float, float], float] = defaultdict(float)
    for (first, second), chance in zip(pair.ratios, pair.probabilities):
        if chance > 1e-12:
            table[(float(f"{first:.7e}"), float(f"{second:.7e}"))] += chance
    return dict(table)


def same_law(first: ShufflePair, second: ShufflePair) -> bool:
    """Whether two pairs are one table, up to order and rounding."""
    a, b = _merged(first), _merged(second)
    return a.keys() == b.keys() and all(a[key] == pytest.approx(b[key], abs=1e-9) for key in a)


def check_blanket(oracle: FrequencyOracle, blanket: np.ndarray) -> None:
    """The dominating pair is what the channel gives against `blanket`, for every pair of values."""
    channel, pair = oracle.channel(), oracle.dominating_pair()
    assert pair.proof_status == "proved"
    np.testing.assert_allclose(blanket.sum(), 1.0, atol=1e-9)
    assert (pair.blanket_mass * blanket <= channel.min(axis=1) * (1 + 1e-9)).all()
    for first in range(oracle.domain_size):
        for second in range(oracle.domain_size):
            if first == second:
                continue
            ratios = channel[:, [first, second]] / blanket[:, None]
            seen = ShufflePair(
                pair.blanket_mass, tuple(map(tuple, ratios)), tuple(blanket / blanket.sum())
            )
            assert same_law(pair, seen)


def check_witnesses(oracle: FrequencyOracle) -> None:
    """The witnesses are those of the values 0 and 1, others holding 1, then 2."""
    channel, witnesses = oracle.channel(), oracle.witness_pairs()
    assert len(witnesses) == (2 if oracle.domain_size > 2 else 1)
    for others, witness in enumerate(witnesses, start=1):
        assert same_law(witness, witness_from_channel(channel, 0, 1, others))


def check_sampling(oracle: FrequencyOracle, num_draws: int, seed: int) -> None:
    """Reports follow the channel: chi-square per value; false alarm below 1e-6 per value.

    Reports with less than five expected draws are pooled.
    """
    rows = {report.tobytes(): i for i, report in enumerate(oracle.channel_reports())}
    channel = oracle.channel()
    rng = np.random.default_rng(seed)
    for value in range(oracle.domain_size):
        reports = oracle.randomize(np.full(num_draws, value), rng)
        assert reports.shape == (num_draws, *oracle.report_shape)
        assert reports.dtype == oracle.report_dtype
        distinct, counts = np.unique(reports, axis=0, return_counts=True)
        seen = np.zeros(len(rows))
        seen[[rows[np.ascontiguousarray(report).tobytes()] for report in distinct]] = counts
        expected = channel[:, value] * num_draws
        rare = expected < 5
        cells = np.append(seen[~rare], seen[rare].sum())
        means = np.append(expected[~rare], expected[rare].sum())
        cells, means = cells[means > 0], means[means > 0]
        statistic = ((cells - means) ** 2 / means).sum()
        assert chi2.sf(statistic, max(1, len(cells) - 1)) > 1e-6


def check_estimates(
    oracle: FrequencyOracle, num_users: int, seed: int, spread: float | None = None
) -> None:
    """Errors of a large run, in units of their standard error.

    For k components: none beyond 6 sigma (false alarm k * 2e-9), their root mean square within
    1 +- `spread`, by default 6 / sqrt(2 k) (about 1e-8 for nearly independent components).
    """
    rng = np.random.default_rng(seed)
    k = oracle.domain_size
    values = np.minimum(rng.geometric(0.2, num_users) - 1, k - 1)
    reports = oracle.randomize(values, np.random.default_rng(seed + 1))
    half = num_users // 3
    statistic = oracle.accumulate(reports[:half]) + oracle.accumulate(reports[half:])
    assert statistic.dtype == np.int64 and statistic.shape == oracle.statistic_shape
    np.testing.assert_array_equal(statistic, oracle.accumulate(reports))
    truth = np.bincount(values, minlength=k) / num_users
    errors = (oracle.estimate(statistic, num_users).value - truth) / np.sqrt(
        oracle.variance(num_users, truth)
    )
    assert np.abs(errors).max() < 6
    spread = 6 / math.sqrt(2 * k) if spread is None else spread
    assert abs(np.sqrt((errors**2).mean()) - 1) < spread


def check_wire(oracle: FrequencyOracle, num_reports: int = 37) -> None:
    """Exactly the declared bits, and back; cut, padded and impossible streams are refused."""
    rng = np.random.default_rng(5)
    reports = oracle.randomize(rng.integers(0, oracle.domain_size, num_reports), rng)
    data = oracle.pack(reports)
    assert len(data) == -(-oracle.bits_per_report * num_reports // 8)
    again = oracle.unpack(data, num_reports)
    assert again.dtype == oracle.report_dtype
    np.testing.assert_array_equal(again, reports)
    for spoiled, count in ((data[:-1], num_reports), (data + b"\0", num_reports)):
        with pytest.raises(ValueError, match="data must hold"):
            oracle.unpack(spoiled, count)
    assert oracle.unpack(b"", 0).shape == (0, *oracle.report_shape)
    assert oracle.pack(reports[:0]) == b""


def check_config(oracle: FrequencyOracle) -> None:
    """Parameters survive JSON, and name the mechanism: same config, same digest."""
    again = LocalRandomizer.from_config(json.loads(json.dumps(oracle.to_config())))
    assert again == oracle
    assert again.config_digest() == oracle.config_digest()


def check_memoized(oracle: FrequencyOracle) -> None:
    """Same user, value and release: same report, however the users are cut into blocks."""
    rng = np.random.default_rng(8)
    values = rng.integers(0, oracle.domain_size, 500)
    users = np.arange(500)

    def reports(rows: slice, release: str = "monday") -> np.ndarray:
        words = UserRandomness(b"k" * 32, users[rows], identity(release))
        return oracle.randomize(values[rows], words)

    whole = reports(slice(None))
    pieces = [reports(slice(start, start + 61)) for start in range(0, 500, 61)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    assert reports(slice(0, 0)).shape == (0, *oracle.report_shape)
    assert (reports(slice(None), "tuesday") != whole).any()


def check_everything_but_the_channel(oracle: FrequencyOracle) -> None:
    check_wire(oracle)
    check_config(oracle)
    check_memoized(oracle)
    empty = oracle.estimate(np.zeros(oracle.statistic_shape, dtype=np.int64), 0)
    assert np.isnan(empty.value).all() and np.isinf(empty.standard_error).all()
    nothing = oracle.accumulate(oracle.randomize(np.zeros(0, dtype=np.int64)))
    assert not nothing.any() and nothing.shape == oracle.statistic_shape
    with pytest.raises(ValueError, match=r"values must lie in \[0, "):
        oracle.randomize(np.array([oracle.domain_size]))
    with pytest.raises(NotImplementedError):
        type(oracle)(5000, oracle.local_epsilon).channel()
