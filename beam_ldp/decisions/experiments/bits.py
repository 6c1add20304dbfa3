"""What a device sends in an experiment: one randomized bit of a score in [0, 1]."""

from __future__ import annotations

import hashlib
import json

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_ldp.randomizers.base import Rng
from beam_ldp.randomizers.randomness import word_source
from beam_ldp.randomizers.words import TwoLevelLaw

_WORDS = 1 << 64


def bit_thresholds(local_epsilon: float) -> tuple[int, int]:
    """Of 2**64 words, how many make the report of a zero, and of a one, a one.

    Both they and what is left over have a ratio of e**local_epsilon at most.

    >>> zero, one = bit_thresholds(1.0)
    >>> print(f"{zero / 2**64:.4f} {one / 2**64:.4f}")
    0.2689 0.7311
    """
    law = TwoLevelLaw(num_outputs=2, num_favoured=1, local_epsilon=local_epsilon)
    one = (law.threshold + _WORDS) // 2
    return _WORDS - one, one


def randomize_scores(local_epsilon: float, scores: ArrayLike, rng: Rng = None) -> NDArray[np.uint8]:
    """One bit per person, which is one with probability `BitChannel.rate(score)`.

    Randomized response of a bit that is one with probability `score`, drawn in one step: by one
    word and an integer threshold, rounded to 2**-32 of the score. A score of 0 or 1 is a plain bit.
    Protects the score, and so the value that it belongs to, against everybody who sees the bit.

    Args:
        local_epsilon: of the bit, > 0.
        scores: (n,), within [0, 1].
        rng: as for `LocalRandomizer.randomize`: None draws fresh secure words.

    Raises:
        ValueError: if a score lies outside (it is never quoted).

    >>> randomize_scores(1.0, [0.0, 0.5, 1.0]).shape
    (3,)
    """
    told = np.asarray(scores, dtype=np.float64)
    if told.ndim != 1 or not bool(np.all((told >= 0) & (told <= 1))):
        raise ValueError("scores must be numbers within [0, 1], one for each person")
    zero, one = bit_thresholds(local_epsilon)
    steps = np.round(told * 2**32).astype(np.uint64)
    step = np.uint64((one - zero) >> 32)
    thresholds = np.uint64(zero) + steps * step
    thresholds = np.where(steps == 2**32, np.uint64(one), thresholds)
    named = json.dumps(["experiment bit", local_epsilon]).encode()
    digest = hashlib.sha256(named).digest()[:16]
    words = word_source(rng, digest, told).words(0, told.size, 1)[:, 0]
    return (words < thresholds).astype(np.uint8)
