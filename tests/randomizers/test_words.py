"""Two-level laws by enumerating every word of small word sizes, and their 64-bit resolution."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.randomizers import frequency, words
from beam_ldp.randomizers.words import (
    MAX_WASTE,
    WORD_VALUES,
    Coin,
    TwoLevelLaw,
    _name_files_apart,
    exp_lower,
    reuses_high_half,
    two_level_threshold,
)

pytestmark = pytest.mark.exact

RATIOS = (Fraction(11, 10), Fraction(5, 2), Fraction(20))


def enumerate_words(num_outputs: int, num_favoured: int, threshold: int, bits: int):
    """The law as the kernels draw it, for all words: (words per output, per favoured number)."""
    words = np.arange(1 << bits, dtype=np.int64)
    high, low = np.divmod(words * num_outputs, 1 << bits)
    chosen = low < threshold
    assert chosen.sum() == threshold
    others = np.bincount(high[~chosen], minlength=num_outputs)
    if reuses_high_half(num_outputs, num_favoured):
        number = high[chosen] % num_favoured
    else:
        number = low[chosen] // (threshold // num_favoured)
    return others, np.bincount(number, minlength=num_favoured)


@pytest.mark.parametrize("bits", [10, 13, 16])
@pytest.mark.parametrize("ratio", RATIOS)
def test_every_word_of_small_sizes(bits, ratio):
    """Favoured outputs get equal shares, the others differ by a word, the ratio holds."""
    checked = 0
    for num_outputs in (*range(2, 24), 31, 32, 63, 64):
        for num_favoured in {1, num_outputs // 3, num_outputs // 2, num_outputs - 1} - {0}:
            if num_favoured == num_outputs:
                continue
            threshold = two_level_threshold(num_outputs, num_favoured, ratio, 1 << bits)
            if threshold == 0:
                continue
            others, shares = enumerate_words(num_outputs, num_favoured, threshold, bits)
            assert set(shares) == {threshold // num_favoured}
            even = Fraction((1 << bits) - threshold, num_outputs)
            assert all(abs(int(count) - even) <= 1 for count in others)
            # The worst over which outputs are favoured.
            worst = Fraction(int(others.max() + shares[0]), int(others.min()))
            assert worst <= ratio
            claimed = 1 + (threshold // num_favoured + 2) / (even - 1)
            assert worst <= claimed <= ratio
            checked += 1
    assert checked > 40


@pytest.mark.parametrize("bits", [10, 16])
def test_the_threshold_is_the_largest_of_its_step(bits):
    """One step more would allow a ratio beyond the limit: nothing but rounding is wasted."""
    for num_outputs, num_favoured in ((2, 1), (7, 3), (8, 4), (12, 6), (64, 32), (1, 0)):
        if num_favoured == 0:
            continue
        ratio = Fraction(3)
        threshold = two_level_threshold(num_outputs, num_favoured, ratio, 1 << bits)
        step = num_favoured * math.gcd(num_outputs, 1 << bits)
        if reuses_high_half(num_outputs, num_favoured):
            step = num_outputs
        more = threshold + step
        even = Fraction((1 << bits) - more, num_outputs)
        assert 1 + (Fraction(more, num_favoured) + 2) / (even - 1) > ratio


def test_binary_signs_per_row_by_enumeration():
    """Binary Hadamard draws the sign per row: the same bounds hold, for every word of 14 bits."""
    bits = 14
    for rows in (1, 2, 3, 7, 8, 31, 63):
        for ratio in RATIOS:
            threshold = two_level_threshold(2 * rows, rows, ratio, 1 << bits)
            if threshold == 0:
                continue
            truths = ((1 << bits) + threshold) // 2
            row, low = np.divmod(np.arange(1 << bits) * rows, 1 << bits)
            honest = np.bincount(row[low < truths], minlength=rows)
            lies = np.bincount(row[low >= truths], minlength=rows)
            even = Fraction((1 << bits) - threshold, 2 * rows)
            assert all(abs(int(count) - even) <= 1 for count in lies)
            assert Fraction(int(honest.max()), int(lies.min())) <= ratio


@given(
    num_outputs=st.integers(2, 1 << 24),
    share=st.floats(0, 1),
    epsilon=st.floats(1e-6, 12),
)
def test_64_bit_words_spend_the_budget_and_no_more(num_outputs, share, epsilon):
    num_favoured = max(1, min(num_outputs - 1, int(share * num_outputs)))
    try:
        law = TwoLevelLaw(num_outputs, num_favoured, epsilon)
    except ValueError:
        assert num_outputs * (num_favoured + math.exp(epsilon)) > 1 << 34
        return
    assert epsilon - MAX_WASTE <= law.log_ratio_max <= epsilon
    assert law.threshold == law.share * num_favoured
    total = num_favoured * law.favoured_probability
    total += (num_outputs - num_favoured) * law.other_probability
    assert total == pytest.approx(1, abs=1e-12)
    nominal = math.log(law.favoured_probability / law.other_probability)
    assert law.log_ratio_max - MAX_WASTE <= nominal <= law.log_ratio_max + 1e-12


def test_refuses_what_words_cannot_resolve():
    with pytest.raises(ValueError, match="local_epsilon=45 with 1000 outputs is beyond"):
        TwoLevelLaw(1000, 1, 45.0)
    with pytest.raises(ValueError, match="local_epsilon must be at most 700"):
        TwoLevelLaw(2, 1, 1e4)
    with pytest.raises(ValueError, match="beyond the resolution"):
        TwoLevelLaw(2, 1, 1e-300)
    for num_favoured in (0, 5, 6):
        with pytest.raises(ValueError, match="num_favoured must lie"):
            TwoLevelLaw(5, num_favoured, 1.0)


@given(st.floats(1e-9, 700))
def test_exp_lower_is_below_and_close(epsilon):
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        true = mpmath.exp(mpmath.mpf(epsilon))
        rational = exp_lower(epsilon)
        close = mpmath.mpf(rational.numerator) / rational.denominator
        assert close < true
        assert 1 - close / true < mpmath.mpf(2) ** -50


def test_coins_round_toward_their_names():
    third = Fraction(1, 3)
    low, high = Coin.at_most(third), Coin.at_least(third)
    assert high.threshold == low.threshold + 1
    assert Fraction(low.threshold, WORD_VALUES) < third < Fraction(high.threshold, WORD_VALUES)
    assert Coin.at_least(2).threshold == WORD_VALUES and Coin.at_most(-1).threshold == 0
    assert Coin.at_most(0.5).probability == 0.5


def test_processes_that_compile_at_once_take_nobody_elses_code(tmp_path, monkeypatch):
    """Two read an index without entries; the first writes its code after the second wrote all."""
    import numba

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    processes = [numba.njit(cache=True)(enumerate_words) for _ in range(3)]
    for process in processes:
        _name_files_apart(process)
    first, second, later = (process._cache._cache_file for process in processes)
    monkeypatch.setattr(second, "_load_index", dict)
    late = []
    with monkeypatch.context() as patch:
        patch.setattr(first, "_save_data", lambda *code: late.append(code))
        first.save("floats", "code for floats")
    second.save("integers", "code for integers")
    first._save_data(*late[0])
    assert later.load("integers") == "code for integers"
    assert later.load("floats") is None  # compiled anew
    later.save("floats", "code for floats")
    assert later.load("floats") == "code for floats"
    assert later.load("integers") == "code for integers"


@pytest.mark.parametrize(
    "oracle",
    [
        frequency.KRandomizedResponse(9, 1.5),
        frequency.BinaryHadamard(9, 1.5),
        frequency.HadamardResponse(9, 1.5),
        frequency.LimitedHadamard(9, 1.5, 0.3),
        frequency.LimitedHadamard(9, 1.5, 0.3, "ternary"),
        frequency.RecursiveHadamardResponse(9, 1.5),
        frequency.ProjectiveGeometryResponse(9, 1.5),
        frequency.LocalHashing(9, 1.5),
    ],
    ids=lambda oracle: type(oracle).__name__,
)
def test_few_values_are_worked_off_in_python_alike(oracle, monkeypatch):
    def sent():
        rng = np.random.default_rng(5)
        reports = oracle.randomize(rng.integers(0, 9, 500), rng)
        packed = oracle.pack(reports)
        counted = oracle.accumulate(oracle.unpack(packed, 500))
        return reports.tobytes(), bytes(packed), counted.tobytes()

    monkeypatch.setattr(words, "_worked_off", words.FEW)
    compiled = sent()
    monkeypatch.delitem(sys.modules, "numba")
    monkeypatch.setattr(words, "_worked_off", 0)
    assert sent() == compiled
    assert words._worked_off >= (1000 if words._WORDS_STAY_WORDS else 0)


def test_a_process_works_off_so_many_entries_in_python(monkeypatch):
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr(words, "_worked_off", 0)
    monkeypatch.setattr(words, "_WORDS_STAY_WORDS", True)
    half = words.FEW // 2
    assert [words._are_few(half + more) for more in (0, 0, 1)] == [True, True, False]
    monkeypatch.setattr(words, "_worked_off", 0)
    assert not words._are_few(words.FEW + 1) and words._are_few(words.FEW)
    monkeypatch.setattr(words, "_worked_off", 0)
    monkeypatch.setitem(sys.modules, "numba", None)
    assert not words._are_few(1)
