"""One mechanism twice, in the product and in the specification, on the same random words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean import ScalarMean
from spec import frequency, wire
from spec.frequency import Spec
from tests.randomizers.make_wire_vectors import mechanism_of

WORDS = 1 << 64
EXACT = 1e-12  # of estimates, relative to the largest that one report can say
_ROUNDING = 2.0**-52  # of p and q, which estimates divide by the difference of
_ENDS = (0, 1, WORDS // 2 - 1, WORDS // 2, WORDS - 2, WORDS - 1)


def specified(randomizer: LocalRandomizer) -> Spec:
    """What the specification makes of the same configuration."""
    config = json.loads(json.dumps(randomizer.to_config()))
    if isinstance(randomizer, ScalarMean):  # chosen by an error that the specification leaves out
        config["cells"] = config["cells"] or len(randomizer.points) - 1
    return mechanism_of(config)


def extra_word(row: int, position: int) -> int:
    """A further word of a row, by its position: any will do that both sides share."""
    return (row + 1) * (position + 3) * 0x9E3779B97F4A7C15 % WORDS


def words_of(words: list[int], row: int = 0) -> Callable[[int], int]:
    """The words of a row by their positions, as the specification asks for them."""
    return lambda at: words[at] if at < len(words) else extra_word(row, at)


def extra_words(rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    pairs = zip(rows.tolist(), positions.tolist())
    return np.array([extra_word(*pair) for pair in pairs], dtype=np.uint64)


def words_for(per_user: int, count: int, seed: int) -> np.ndarray:
    """Random words; the first rows are all of one extreme kind."""
    words = np.random.default_rng(seed).integers(0, WORDS, (count, per_user), dtype=np.uint64)
    for row, word in enumerate(_ENDS[:count]):
        words[row] = word
    return words


def words_beside(threshold: int, factor: int) -> list[int]:
    """Words whose product with `factor` has a low half just below, and just at, a threshold."""
    step = factor & -factor  # low halves are its multiples
    inverse = pow(factor // step, -1, WORDS)
    first = -(-threshold // step)
    return [
        low * inverse % (WORDS // step) for low in (first - 1, first) if 0 <= low * step < WORDS
    ]


def both(
    randomizer: Any, values: np.ndarray, words: np.ndarray, spec: Spec | None = None
) -> tuple[Any, list[list[int]]]:
    """The reports of the product and of the specification."""
    spec = spec or specified(randomizer)
    assert spec.words == randomizer.words_per_user
    reports = np.empty((len(values), *randomizer.report_shape), dtype=randomizer.report_dtype)
    randomizer._randomize_block(values, words, extra_words, reports)
    mine = [
        spec.randomize(value, words_of(row, i))
        for i, (value, row) in enumerate(zip(values.tolist(), words.tolist()))
    ]
    return reports, mine


def check(randomizer: Any, values: np.ndarray, words: np.ndarray, spec: Spec | None = None) -> None:
    """Every report, bit by bit; what is summed; what is estimated, to 1e-12."""
    spec, count = spec or specified(randomizer), len(values)
    reports, mine = both(randomizer, values, words, spec)
    assert wire.num_bits(spec) == randomizer.bits_per_report
    packed = [wire.pack(spec, report) for report in mine]
    assert b"".join(packed) == randomizer.pack_each(reports).tobytes()
    assert [wire.unpack(spec, data) for data in packed] == mine
    if "oracles" in randomizer.to_config():
        return
    statistic = randomizer.accumulate(reports)
    estimate = randomizer.estimate(statistic, count).value
    if randomizer.task == "frequency" and spec.counts[0] < 1 << 12 and statistic.ndim == 1:
        told = frequency.statistic(spec, mine, randomizer.domain_size)
        assert told == statistic.tolist()
    for at in {*range(min(len(estimate), 12)), len(estimate) - 1}:
        exact = frequency.estimate(spec, mine, at)
        most = max(abs(spec.gain * spec.read(report, at)) for report in mine) + abs(spec.offset)
        slack = max(EXACT, _ROUNDING * float(spec.gain) / scale_of(randomizer))
        assert abs(float(exact) - estimate[at]) <= slack * float(most), (at, float(exact))


def scale_of(randomizer: Any) -> float:
    """The unit of the data, in which means are."""
    return float(getattr(randomizer, "radius", 1.0))
