"""Who plays which part: public, even, and the same everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.protocols.user_means import public_words

WORDS_OF_INTEGERS = [13838703451940998176, 1527949376300998497, 7846917082325881748]
WORDS_OF_TEXT = [4590765644322399610, 13412012362514345819]


@pytest.mark.exact
def test_words_are_fixed_for_ever():
    """A change here would let a person of a running release play two parts."""
    assert public_words(np.array([1, 2, -3])).tolist() == WORDS_OF_INTEGERS
    assert public_words(np.array([b"ann", b"bob"], dtype=object)).tolist() == WORDS_OF_TEXT


@pytest.mark.exact
def test_words_do_not_depend_on_the_batch_but_on_id_and_salt():
    ids = np.arange(1000)
    words = public_words(ids)
    assert (words[::-1] == public_words(ids[::-1])).all()
    assert len(set(words.tolist())) == 1000
    assert (words != public_words(ids, "another")).all()


@pytest.mark.statistical
@pytest.mark.parametrize("text", [False, True])
def test_words_are_even(text):
    """100,000 consecutive ids, each of 64 bits a fair coin: 5 sigma, 1 false alarm in 10^4."""
    ids = np.arange(100_000)
    if text:
        ids = np.array([b"%d" % i for i in ids], dtype=object)
    words = public_words(ids)
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 64).mean(axis=0)
    assert np.abs(bits - 0.5).max() <= 5 * 0.5 / np.sqrt(100_000)
    parts = np.bincount((words >> np.uint64(32)) * np.uint64(7) >> np.uint64(32), minlength=7)
    assert np.abs(parts - 100_000 / 7).max() <= 5 * np.sqrt(100_000 / 7)
