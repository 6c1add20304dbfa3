"""Frequency oracles of the product, word by word, against the specification."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from beam_ldp.randomizers import finite_fields
from beam_ldp.randomizers.frequency import (
    BinaryHadamard,
    HadamardResponse,
    KRandomizedResponse,
    LocalHashing,
    PairwiseIndependentRappor,
    ProjectiveGeometryResponse,
    Rappor,
    RecoverableResponse,
    RecursiveHadamardResponse,
    SubsetSelection,
    UnaryEncoding,
)
from beam_ldp.randomizers.frequency.packed_bits import DIGITS
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion
from spec import frequency
from tests.spec import compare

pytestmark = pytest.mark.exact

KINDS: dict[str, Any] = {
    "k-ary": KRandomizedResponse,
    "hadamard": HadamardResponse,
    "hadamard, one block": lambda k, e: HadamardResponse(k, e, 1),
    "hadamard, two blocks": lambda k, e: HadamardResponse(k, e, 2),
    "recursive": RecursiveHadamardResponse,
    "recursive, one bit": lambda k, e: RecursiveHadamardResponse(k, e, 1),
    "binary": BinaryHadamard,
    "binary, all rows": lambda k, e: BinaryHadamard(k, e, drop_trivial=False),
    "geometry": ProjectiveGeometryResponse,
    "geometry of two": lambda k, e: ProjectiveGeometryResponse(k, e, 2),
    "recoverable": RecoverableResponse,
    "recoverable, k-ary": lambda k, e: RecoverableResponse(k, e, "single"),
    "recoverable, squares": lambda k, e: RecoverableResponse(k, e, f"paley:{paley_from(k)}"),
    "recoverable, planes": lambda k, e: RecoverableResponse(k, e, f"singer:2,{k.bit_length() + 2}"),
    "pairwise": PairwiseIndependentRappor,
    "pairwise, compact": lambda k, e: PairwiseIndependentRappor(k, e, compact=True),
    "unary": UnaryEncoding,
    "unary, symmetric": lambda k, e: UnaryEncoding(k, e, False),
    "rappor": Rappor,
    "rappor, long": lambda k, e: Rappor(k, e, 1.1 * e),
    "subset": SubsetSelection,
    "subset, all but one": lambda k, e: SubsetSelection(k, e, k - 1),
    "hashing": LocalHashing,
    "hashing of two": lambda k, e: LocalHashing(k, e, 2),
}
CAP = 8.0  # of what a device may be asked, see --max-local-epsilon
SYMBOLS = list(KINDS)[: list(KINDS).index("pairwise")]


def paley_from(size: int) -> int:
    """The least prime from `size` on that leaves 3 modulo 4."""
    return next(n for n in range(max(size, 3), 10**6) if n % 4 == 3 and finite_fields.is_prime(n))


def some_values(size: int, count: int, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).integers(0, size, count)
    values[:6] = [0, size - 1, 0, size - 1, 0, size - 1]
    return values


@pytest.mark.parametrize("kind", KINDS)
def test_word_by_word(kind):
    """Two values and many, the least and the largest budget that words of 64 bits resolve, the cap,
    and parameters between. Estimates agree to 1e-12, or to what p - q, next to zero, leaves of the
    digits of a float."""
    generator = np.random.default_rng(17)
    for epsilon in (1e-9, 1e-6, 25.0):
        oracle = KINDS[kind](2, epsilon)
        compare.check(
            oracle, some_values(2, 12, 1), compare.words_for(oracle.words_per_user, 12, 1)
        )
    sizes = [2, 3, 64, 65, *generator.integers(4, 400, 3).tolist()]
    budgets = [1e-3, CAP, *generator.uniform(0.05, 6.0, 2).tolist()]
    for at, size in enumerate(sizes):
        for epsilon in budgets if at < 2 else [budgets[at % 4]]:
            oracle = KINDS[kind](size, epsilon)
            words = compare.words_for(oracle.words_per_user, 24, at)
            compare.check(oracle, some_values(size, 24, at), words)


@pytest.mark.parametrize(
    "kind", ["k-ary", "hadamard", "recursive", "binary", "hashing", "pairwise, compact"]
)
def test_huge_domains(kind):
    size = (1 << 20) + 7
    oracle = KINDS[kind](size, 7.0)
    values, words = some_values(size, 20, 5), compare.words_for(oracle.words_per_user, 20, 5)
    reports, mine = compare.both(oracle, values, words)
    assert reports.tolist() == [report[0] for report in mine]


@pytest.mark.parametrize("kind", SYMBOLS)
def test_the_words_beside_the_threshold(kind):
    """The last word that speaks for the value, and the first that does not."""
    for size, epsilon in ((2, 1.0), (12, 0.3), (100, 4.0)):
        oracle = KINDS[kind](size, epsilon)
        threshold, factor = oracle._law.threshold, oracle.num_symbols
        if kind.startswith("binary"):
            threshold, factor = (compare.WORDS + threshold) // 2, oracle.num_rows
        beside = compare.words_beside(threshold, factor)
        assert [w * factor % compare.WORDS < threshold for w in beside] == [True, False]
        words = np.array(beside * size, dtype=np.uint64)[:, None]
        values = np.repeat(np.arange(size), 2)
        reports, mine = compare.both(oracle, values, words)
        assert reports.tolist() == [report[0] for report in mine]


def test_the_coin_of_seeds_beside_its_threshold():
    """Whether the own bit is one, and the seeds that make it so, the first and the last."""
    for size, compact in ((5, False), (5, True), (300, True)):
        oracle = PairwiseIndependentRappor(size, 1.0, compact)
        heads = oracle._law.coin.threshold
        pairs = [(coin, seed) for coin in (heads - 1, heads) for seed in (1 << 63, (1 << 64) - 1)]
        words, values = np.array(pairs, dtype=np.uint64), np.full(4, size - 1)
        reports, mine = compare.both(oracle, values, words)
        assert reports.tolist() == [report[0] for report in mine]
        spec = compare.specified(oracle)
        assert [spec.read(report, size - 1) for report in mine] == [True, True, False, False]


@pytest.mark.parametrize("optimized", [True, False])
def test_bits_whose_first_digits_are_the_threshold_s(optimized):
    """Then one more word decides, and the last of its digits that counts can."""
    oracle = UnaryEncoding(64, 1.0, optimized)
    own, other = frequency.unary_thresholds(1.0, optimized)
    assert (own, other) == tuple(coin.threshold for coin in oracle._coins)
    spec = compare.specified(oracle)
    digits = [other >> 63 - i & 1 for i in range(DIGITS)]
    words = [compare.WORDS - 1 if digit else 0 for digit in digits]
    for more in ((other << 8) % compare.WORDS - 1, (other << 8) % compare.WORDS):
        reports = np.empty((1, 8), dtype=np.uint8)
        given = np.array([words], dtype=np.uint64)
        ask = lambda rows, _, more=more: np.full(len(rows), more, dtype=np.uint64)  # noqa: E731
        oracle._randomize_block(np.array([5]), given, ask, reports)
        mine = spec.randomize(5, lambda at, more=more: words[at] if at < 8 else more)
        assert np.unpackbits(reports, bitorder="little").tolist() == mine
        assert mine[0] == (more < (other << 8) % compare.WORDS)


def test_several_questions_word_by_word():
    oracles = (
        KRandomizedResponse(2, 1.0), KRandomizedResponse(300, 4.0), UnaryEncoding(70, 1.0),
        SubsetSelection(12, 1.0), SubsetSelection(1000, 6.0), LocalHashing(5, 1.0),
    )  # fmt: skip
    for design in (OneQuestion(oracles), EveryQuestion(oracles)):
        values = np.stack([some_values(o.domain_size, 40, i) for i, o in enumerate(oracles)], 1)
        compare.check(design, values, compare.words_for(design.words_per_user, 40, 3))


ONE_WORD = {
    "k-ary": (3, frequency.KRandomizedResponse(3, 1.0)),
    "hadamard": (6, frequency.HadamardResponse(6, 1.0, 2)),
    "recursive": (6, frequency.RecursiveHadamardResponse(6, 1.0, 2)),
    "binary": (4, frequency.BinaryHadamard(4, 1.0, True)),
    "geometry": (7, frequency.ProjectiveGeometryResponse(7, 1.0, 2)),
    "recoverable": (7, frequency.RecoverableResponse(7, 1.0, "paley:7")),
}


@pytest.mark.parametrize("kind", ONE_WORD)
def test_the_specification_by_itself_is_unbiased_and_private(kind):
    """2**13 words, evenly spread, stand for all of them: whatever is held, its estimate is 1 and
    that of any other value 0, and no report is more than e times as likely as from another value,
    up to what a few words of 2**13 make of a share."""
    size, spec = ONE_WORD[kind]
    spread = [(2 * w + 1) << 50 for w in range(1 << 13)]
    counts = []
    for held in range(size):
        reports = [spec.randomize(held, [word].__getitem__) for word in spread]
        for asked in range(size):
            found = frequency.estimate(spec, reports, asked)
            assert abs(found - (asked == held)) < 0.005, (held, asked)
        counts.append(frequency.statistic(spec, reports, size))
    ratios = [max(of) / min(of) for of in zip(*counts)]
    assert max(ratios) < np.e * 1.02 and max(ratios) > np.e / 1.02


def test_gains_are_those_of_the_probabilities_that_words_have():
    """p and q as whole numbers of words, and what they give: no float between."""
    spec = frequency.KRandomizedResponse(5, 2.0)
    threshold = frequency.two_level_threshold(5, 1, 2.0)
    q = Fraction(frequency.WORDS - threshold, 5 * frequency.WORDS)
    p = q + Fraction(threshold, frequency.WORDS)
    assert spec.gain * p + spec.offset == 1
    assert spec.gain * q + spec.offset == 0
