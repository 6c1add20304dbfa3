"""k-ary, Hadamard, binary and recursive Hadamard, and projective geometry responses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from beam_ldp.randomizers.frequency import (
    BinaryHadamard,
    HadamardResponse,
    KRandomizedResponse,
    ProjectiveGeometryResponse,
    RecursiveHadamardResponse,
)
from beam_ldp.randomizers.frequency.hadamard_response import best_num_blocks
from beam_ldp.randomizers.frequency.projective_geometry_response import best_prime
from beam_ldp.randomizers.frequency.recursive_hadamard_response import best_message_bits
from beam_ldp.randomizers.frequency.symbol_oracle import SymbolOracle
from beam_ldp.randomizers.shuffle_pair import ShufflePair, witness_from_channel
from beam_ldp.randomizers.words import bits_for
from tests.randomizers.frequency import exact_checks as checks
from tests.randomizers.frequency.all_oracles import cases
from tests.randomizers.published import published_message_bits, published_num_blocks

SYMBOLS = [case for case in cases() if isinstance(case.values[0], SymbolOracle)]
SMALL = [case for case in SYMBOLS if case.values[0].domain_size in (2, 3, 5, 12)]
BUDGETS = (math.log(2), 1.0, 2.0, 3.0, 4.0, 5.0)


# The family -------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("oracle", SYMBOLS)
def test_sizes_of_sets_and_what_they_share(oracle):
    sets = [set(row) for row in oracle.favoured(np.arange(oracle.domain_size)).tolist()]
    assert {len(s) for s in sets} == {oracle.num_favoured}
    assert set().union(*sets) <= set(range(oracle.num_symbols))
    shared = [len(a & b) for a, b in itertools.combinations(sets, 2)]
    assert min(shared) == oracle.overlap
    triples = {
        len(a & b & c)
        for a, b, c in itertools.combinations(sets, 3)
        if len(a & b) == len(a & c) == len(b & c) == oracle.overlap
    }
    if isinstance(oracle, ProjectiveGeometryResponse):  # looks at triples with 0 and 1 only
        assert set(oracle.triple_overlaps) <= triples
        assert len(oracle.triple_overlaps) >= (len(sets) > 2)
    else:
        assert set(oracle.triple_overlaps) == triples


@pytest.mark.exact
@pytest.mark.parametrize("oracle", SMALL)
def test_pairs_are_those_of_the_channel(oracle):
    """The pair of two values that share the least; witnesses of values that exist."""
    if getattr(oracle, "row", "sent") == "public":
        oracle = BinaryHadamard(oracle.domain_size, oracle.local_epsilon)
    channel, size = oracle.channel(), oracle.num_symbols
    pair = oracle.dominating_pair()
    uniform = np.full(size, 1 / size)
    assert (pair.blanket_mass * uniform <= channel.min(axis=1) * (1 + 1e-9)).all()
    values = range(oracle.domain_size)
    seen = [
        ShufflePair(
            pair.blanket_mass,
            tuple(map(tuple, channel[:, [x, y]] * size)),
            tuple(uniform),
        )
        for x, y in itertools.permutations(values, 2)
    ]
    assert any(checks.same_law(pair, other) for other in seen)
    if oracle.domain_size > 5:
        return
    possible = [
        witness_from_channel(channel, x, y, z)
        for x, y in itertools.permutations(values, 2)
        for z in values
    ]
    for witness in oracle.witness_pairs():
        assert any(checks.same_law(witness, other) for other in possible)


@pytest.mark.exact
@pytest.mark.parametrize("oracle", [c for c in SMALL if c.values[0].local_epsilon == 1.0])
def test_spread_argument(oracle):
    """Values that share less are told apart better, at every threshold: one report in a crowd."""
    channel, size = oracle.channel(), oracle.num_symbols
    for t in np.exp(np.linspace(-1, 1, 9)):
        by_overlap: dict[int, float] = {}
        for x, y in itertools.combinations(range(oracle.domain_size), 2):
            high = channel > 1 / size
            overlap = int((high[:, x] & high[:, y]).sum())
            gaps = (channel[:, x] - t * channel[:, y]) * size
            two = np.maximum(gaps[:, None] + gaps[None, :], 0).mean()
            by_overlap.setdefault(overlap, two)
            assert by_overlap[overlap] == pytest.approx(two, abs=1e-9)
        ordered = [by_overlap[o] for o in sorted(by_overlap)]
        assert all(a >= b - 1e-12 for a, b in itertools.pairwise(ordered))


@pytest.mark.exact
@pytest.mark.parametrize("oracle", SMALL)
@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_kernels_agree_with_the_law_word_by_word(oracle, dtype):
    """For given words the report is what the two-level law says it is, in exact integers."""
    rng = np.random.default_rng(9)
    count = 500
    values = rng.integers(0, oracle.domain_size, count).astype(dtype)
    words = rng.integers(0, 2**64, (count, 1), dtype=np.uint64)
    reports = np.empty(count, dtype=oracle.report_dtype)
    oracle._randomize_block(values, words, lambda rows, positions: 1 / 0, reports)
    law = oracle._law
    sets = oracle.favoured(values)
    for word, report, favoured in zip(words[:, 0].tolist(), reports.tolist(), sets.tolist()):
        high, low = divmod(word * oracle.num_symbols, 1 << 64)
        if isinstance(oracle, BinaryHadamard):
            row, low = divmod(word * oracle.num_rows, 1 << 64)
            true = [s for s in favoured if s >> 1 == row]
            assert (report in true) == (low < ((1 << 64) + law.threshold) // 2)
            assert report >> 1 == row
        elif low >= law.threshold:
            assert report == high
        else:
            assert report in favoured
            if not law.reuses_high_half and not isinstance(oracle, ProjectiveGeometryResponse):
                assert report == favoured[low // law.share]


@pytest.mark.exact
@pytest.mark.parametrize("oracle", SMALL)
def test_favoured_number_is_uniform_over_the_high_half(oracle):
    """Where the high half is used again, each favoured symbol gets equally many of its values."""
    law = oracle._law
    if isinstance(oracle, BinaryHadamard) or not law.reuses_high_half:
        return
    shift = 64 - (oracle.num_symbols.bit_length() - 1)
    words = (np.arange(oracle.num_symbols, dtype=np.uint64) << np.uint64(shift))[:, None]
    for value in range(oracle.domain_size):
        reports = np.empty(oracle.num_symbols, dtype=oracle.report_dtype)
        values = np.full(oracle.num_symbols, value)
        oracle._randomize_block(values, words, lambda rows, positions: 1 / 0, reports)
        symbols, counts = np.unique(reports, return_counts=True)
        assert sorted(oracle.favoured(np.array([value]))[0].tolist()) == symbols.tolist()
        assert set(counts.tolist()) == {oracle.num_symbols // oracle.num_favoured}


@pytest.mark.exact
@pytest.mark.parametrize(
    "oracle",
    [
        KRandomizedResponse(1000, 6.0),
        HadamardResponse(1000, 1.0),
        HadamardResponse(100_000, 6.0),
        BinaryHadamard(1 << 20, 1.0),
        RecursiveHadamardResponse(1 << 20, 4.0),
        ProjectiveGeometryResponse(22_000, 5.0),
        ProjectiveGeometryResponse(1_000_000, 1.0),
    ],
)
def test_budget_is_spent_to_within_1e_8_on_large_domains(oracle):
    assert oracle.local_epsilon - 1e-8 <= oracle.log_ratio_max() <= oracle.local_epsilon
    assert oracle.bits_per_report == bits_for(oracle.num_symbols)
    with pytest.raises(NotImplementedError):
        type(oracle)(oracle.domain_size * 4, oracle.local_epsilon).channel()


@pytest.mark.statistical
@pytest.mark.parametrize(
    "oracle",
    [
        KRandomizedResponse(50, 3.0),
        HadamardResponse(1000, 1.0),
        HadamardResponse(1000, 4.0),
        BinaryHadamard(1000, 1.0),
        BinaryHadamard(1000, 1.0, drop_trivial=False),
        RecursiveHadamardResponse(1000, 3.0),
        ProjectiveGeometryResponse(1000, 3.0),
    ],
    ids=lambda oracle: f"{type(oracle).__name__}-{oracle.domain_size}-{oracle.local_epsilon}",
)
def test_secure_runs_hit_the_truth(oracle):
    """Fresh secure words, 300,000 users, skewed truth; about 1e-6 false alarms per oracle.

    Largest of k errors below 6.5 sigma; mean square of the errors in units of the *estimated*
    standard errors within 6 sd of one.
    """
    k, users = oracle.domain_size, 300_000
    values = np.minimum(np.random.default_rng(1).geometric(0.05, users) - 1, k - 1)
    truth = np.bincount(values, minlength=k) / users
    reports = oracle.randomize(values)
    estimate = oracle.estimate(oracle.accumulate(reports), users)
    errors = (estimate.value - truth) / estimate.standard_error
    assert np.abs(errors).max() < 6.5
    assert abs((errors**2).mean() - 1) < 6 * math.sqrt(2 / k) + 0.02
    np.testing.assert_allclose(
        estimate.standard_error, np.sqrt(oracle.variance(users, truth)), rtol=0.03
    )


@pytest.mark.exact
def test_histograms_refuse_foreign_reports():
    oracle = KRandomizedResponse(5, 1.0)
    for reports in (np.array([5]), np.array([-1]), np.full(100, 5, dtype=np.uint8)):
        with pytest.raises(ValueError, match=r"reports must lie in \[0, 5\)"):
            oracle.accumulate(reports)
    for reports in (np.zeros((2, 2), dtype=int), np.array([0.0])):
        with pytest.raises(ValueError, match="one-dimensional integer"):
            oracle.accumulate(reports)
    wide = KRandomizedResponse(100_000, 1.0)
    with pytest.raises(ValueError, match="reports must lie"):
        wide.accumulate(np.array([100_000]))
    rng = np.random.default_rng(0)
    for size in (3, 1000, 40_000):
        for count in (0, 1, 7, 50_001):
            reports = rng.integers(0, size, count)
            expected = np.bincount(reports, minlength=size)
            got = KRandomizedResponse(size, 1.0).accumulate(reports)
            np.testing.assert_array_equal(got, expected)


# Hadamard response ------------------------------------------------------------------------


@pytest.mark.exact
def test_hadamard_golden_noise():
    """n Var at f = 0: C**2 with one block; blocked, at a truth spread evenly over the blocks."""
    for epsilon, noise in zip(BUDGETS, (9.0, 4.6827, 1.7241, 1.2206, 1.0760, 1.0273)):
        oracle = HadamardResponse(1000, epsilon, num_blocks=1)
        assert oracle.variance(1, np.zeros(1000))[0] == pytest.approx(noise, abs=6e-5)
    oracle = HadamardResponse(1024, 4.0, num_blocks=32)
    assert oracle.variance(1, np.zeros(1024))[0] == pytest.approx(0.15044, rel=5e-5)
    golden = {1.0: (5.5375, 2), 2.0: (1.268, 4), 3.0: (0.44778, 16)}
    golden |= {math.log(2): (9.0, 1), 4.0: (0.15044, 32), 5.0: (0.058508, 128)}
    for epsilon, (noise, blocks) in golden.items():
        assert published_num_blocks(1000, epsilon) == blocks
        oracle = HadamardResponse(1024, epsilon, num_blocks=blocks)
        uniform = np.full(1024, 1 / 1024)
        assert (oracle.variance(1, uniform) + 1 / 1024)[0] == pytest.approx(noise, rel=5e-5)


@pytest.mark.exact
@pytest.mark.parametrize("k", [2, 3, 5, 12, 100, 1000, 22_000])
def test_best_blocks_are_best_and_outputs_fewer_than_4k(k):
    uniform = np.full(k, 1 / k)
    for epsilon in (0.1, 1.0, 2.5, 4.0, 6.0, 9.0):
        best = HadamardResponse(k, epsilon)
        assert best.num_blocks == best_num_blocks(k, epsilon)
        assert best.num_symbols < 4 * k
        least = best.variance(1, uniform).mean()
        for blocks in (1 << i for i in range(k.bit_length())):
            other = HadamardResponse(k, epsilon, blocks)
            assert least <= other.variance(1, uniform).mean() * (1 + 1e-9)


@pytest.mark.exact
def test_hadamard_refusals():
    for blocks in (0, 3, 64, 1.5, True, "2"):
        with pytest.raises(ValueError, match="num_blocks must"):
            HadamardResponse(10, 1.0, blocks)


# Recursive Hadamard response --------------------------------------------------------------


@pytest.mark.exact
def test_recursive_golden_noise():
    golden = ((9.0, 1), (4.6827, 1), (1.2680, 3), (0.42243, 4), (0.15044, 6), (0.05454, 7))
    for epsilon, (noise, bits) in zip(BUDGETS, golden):
        oracle = RecursiveHadamardResponse(1024, epsilon)
        assert oracle.message_bits == bits
        uniform = np.full(1024, 1 / 1024)
        assert (oracle.variance(1, uniform) + 1 / 1024)[0] == pytest.approx(noise, rel=1e-4)
    rule = RecursiveHadamardResponse(1024, 1.0, published_message_bits(1024, 1.0))
    assert rule.message_bits == 2
    assert rule.variance(1, np.full(1024, 1 / 1024))[0] == pytest.approx(5.54, rel=1e-3)


@pytest.mark.exact
def test_bits_are_free_and_budgets_are_kept():
    for bits in range(1, 11):
        assert RecursiveHadamardResponse(1000, 2.0, bits).bits_per_report == 11
    assert [best_message_bits(1000, 5.0, most) for most in (1, 3, 7, 10, 64)] == [1, 3, 7, 7, 7]
    assert best_message_bits(2, 6.0) == 1
    for bits in (0, 11, 1.5, False, "3"):
        with pytest.raises(ValueError, match="message_bits must be an integer from 1 to 10"):
            RecursiveHadamardResponse(1000, 2.0, bits)


@pytest.mark.exact
def test_one_message_bit_is_binary_hadamard():
    one, other = RecursiveHadamardResponse(9, 1.0, 1), BinaryHadamard(9, 1.0, drop_trivial=False)
    np.testing.assert_allclose(one.channel(), other.channel(), rtol=1e-12)
    truth = np.full(9, 1 / 9)
    np.testing.assert_allclose(one.variance(7, truth), other.variance(7, truth), rtol=1e-9)
    assert checks.same_law(one.dominating_pair(), other.dominating_pair())


# Binary Hadamard --------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("k", [2, 3, 5, 12, 1000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_binary_golden_variances(k, epsilon):
    square = (math.tanh(epsilon / 2)) ** -2
    order = 1 << (k - 1).bit_length()
    all_rows = BinaryHadamard(k, epsilon, drop_trivial=False)
    fewer = BinaryHadamard(k, epsilon)
    for share in (0.0, 0.3, 1.0):
        truth = np.full(k, share)
        assert all_rows.variance(1, truth)[0] == pytest.approx(square - share, rel=1e-7)
        factor = ((order - 1) / order) ** 2
        expected = share * factor * (square - 1)
        expected += (1 - share) * factor * (square - 1 / (order - 1) ** 2)
        assert fewer.variance(1, truth)[0] == pytest.approx(expected, rel=1e-7)
        for sampling in ("fixed", "iid"):
            less, more = (o.variance(1, truth, sampling)[0] for o in (fewer, all_rows))
            assert less < more


@pytest.mark.exact
def test_without_the_trivial_row_frequencies_of_the_full_order_sum_to_one():
    oracle = BinaryHadamard(16, 1.0)
    rng = np.random.default_rng(2)
    statistic = oracle.accumulate(oracle.randomize(rng.integers(0, 16, 500), rng))
    assert oracle.estimate(statistic, 500).value.sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.exact
def test_two_categories_take_one_bit():
    oracle = BinaryHadamard(2, 1.0)
    assert (oracle.bits_per_report, oracle.num_symbols) == (1, 2)
    np.testing.assert_allclose(oracle.channel(), KRandomizedResponse(2, 1.0).channel(), rtol=1e-12)


@pytest.mark.exact
def test_public_rows_split_the_crowd():
    sent = BinaryHadamard(1000, 1.0)
    public = BinaryHadamard(1000, 1.0, row="public")
    assert (sent.public_groups, sent.telling_groups, sent.crowd_size(100_000)) == (1, 1, 100_000)
    assert (public.public_groups, public.telling_groups) == (1023, 512)
    assert public.crowd_size(100_000) == 98
    assert public.crowd_size(5) == 1 and public.crowd_size(0) == 0


@pytest.mark.exact
@pytest.mark.parametrize("drop_trivial", [True, False])
def test_two_values_differ_on_as_many_rows_as_are_said_to_tell(drop_trivial):
    oracle = BinaryHadamard(7, 1.0, "public", drop_trivial)
    rows = oracle.channel().reshape(oracle.num_rows, 2, 7)
    differ = (np.abs(rows[..., :, None] - rows[..., None, :]) > 1e-12).any(axis=1).sum(axis=0)
    assert set(differ[np.triu_indices(7, 1)]) == {oracle.telling_groups} == {4}


@pytest.mark.exact
@pytest.mark.parametrize("k", [2, 5])
def test_public_rows_are_priced_like_one_bit(k):
    """Within a row: two reports of that row, all values, by brute force."""
    oracle = BinaryHadamard(k, 1.0, row="public")
    pair = oracle.dominating_pair()
    reference = KRandomizedResponse(2, 1.0).dominating_pair()
    assert checks.same_law(pair, reference)
    assert checks.same_law(
        oracle.witness_pairs()[0], KRandomizedResponse(2, 1.0).witness_pairs()[0]
    )
    channel = oracle.channel().reshape(oracle.num_rows, 2, k)
    within = channel / channel.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(channel.sum(axis=1), 1 / oracle.num_rows, rtol=1e-9)
    assert np.log(within.max() / within.min()) == pytest.approx(oracle.log_ratio_max(), abs=1e-9)


@pytest.mark.exact
def test_binary_refusals():
    for row in ("private", None, 1):
        with pytest.raises(ValueError, match='row must be "sent" or "public"'):
            BinaryHadamard(10, 1.0, row=row)
    with pytest.raises(ValueError, match="drop_trivial must be True or False"):
        BinaryHadamard(10, 1.0, drop_trivial="no")


# Projective geometry response -------------------------------------------------------------


@pytest.mark.exact
def test_geometry_goldens():
    golden = ((3, 7, 1093), (3, 7, 1093), (7, 5, 2801), (23, 4, 12720), (53, 3, 2863))
    for epsilon, expected in zip(BUDGETS, (*golden, (149, 3, 22351))):
        oracle = ProjectiveGeometryResponse(1000, epsilon)
        assert (oracle.prime, oracle.dimension, oracle.num_symbols) == expected


@pytest.mark.exact
@pytest.mark.parametrize("k", [2, 3, 7, 100, 1000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 6.0, 9.0])
def test_best_prime_is_best(k, epsilon):
    best = ProjectiveGeometryResponse(k, epsilon)
    assert best.prime == best_prime(k, epsilon)
    assert best.num_symbols <= max(32 * k, 3)
    nobody = np.zeros(k)
    for prime in (2, 3, 5, 7, 11, 13, 23, 53, 149):
        other = ProjectiveGeometryResponse(k, epsilon, prime)
        if other.num_symbols <= 32 * k and prime <= 4 * (math.exp(epsilon) + 1):
            assert best.variance(1, nobody)[0] <= other.variance(1, nobody)[0] * (1 + 1e-7)


@pytest.mark.exact
def test_geometry_of_points_and_lines():
    """Orthogonality over the field: the same design as the translates, so the same variances."""
    q, points = 3, []
    for vector in itertools.product(range(q), repeat=3):
        lead = next((c for c in vector if c), 0)
        if lead == 1:
            points.append(vector)
    incidence = (np.array(points) @ np.array(points).T % q) == 0
    oracle = ProjectiveGeometryResponse(13, 1.0, 3)
    translates = np.zeros((13, 13), dtype=bool)
    translates[np.arange(13)[:, None], oracle.favoured(np.arange(13))] = True
    for table in (incidence, translates):
        common = table.astype(int) @ table.T.astype(int)
        assert (np.diag(common) == 4).all() and (common[~np.eye(13, dtype=bool)] == 1).all()


@pytest.mark.exact
def test_geometry_refusals():
    for prime in (1, 4, 9, 2.5, True, "3"):
        with pytest.raises(ValueError, match="prime must be"):
            ProjectiveGeometryResponse(10, 1.0, prime)
    with pytest.raises(ValueError, match="choose another prime"):
        ProjectiveGeometryResponse(10**8, 1.0, 1009)
