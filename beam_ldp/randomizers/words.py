"""64-bit words: the kernels that read them, and how a stated epsilon becomes an exact law of them.

A uniform word is compared with an integer threshold, so every probability of an implemented
mechanism is a known integer over 2**64. Thresholds are rounded toward more privacy: the
implemented ratio never exceeds e**local_epsilon, and wastes less than `MAX_WASTE` of it.

Importing numba takes longer than importing the rest of the library, and a program that only
plans or prices never needs it: `kernel` defers both the import and the compilation to the first
call, and a `short_kernel` to the first call with many entries. Kernels release the GIL and are
cached on disk next to their source.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

WORD_BITS = 64
WORD_VALUES = 1 << WORD_BITS


def multiply_high(word: int, factor: int) -> int:
    """High half of the 128-bit product of two 64-bit words (the same in Python and in kernels).

    For a uniform word this is a number in [0, factor) whose probabilities differ from 1/factor by
    less than 2**-64; the low half, `word * factor` modulo 2**64, is what is left of the word.
    """
    return (int(word) * int(factor)) >> WORD_BITS


def odd_parity(word: int) -> bool:
    """Whether a 64-bit word has an odd number of ones (the same in Python and in kernels).

    `odd_parity(r & c)` is the sign of entry (r, c) of the Hadamard matrix: odd means -1.
    """
    return bool(int(word).bit_count() & 1)


def smallest_uint(num_values: int) -> np.dtype[Any]:
    """The smallest unsigned dtype that holds 0 .. num_values - 1."""
    return np.min_scalar_type(max(0, num_values - 1))


def bits_for(num_values: int) -> int:
    """Bits that tell `num_values` possibilities apart."""
    return max(1, (num_values - 1).bit_length())


_SUBROUTINES: list[Callable[..., Any]] = []


def subroutine(function: F) -> F:
    """A plain Python function that kernels may call too.

    A kernel's cache on disk does not notice when a subroutine in another file changes.
    """
    _SUBROUTINES.append(function)
    return function


def kernel(function: F) -> F:
    """Compile `function` with numba on its first call."""

    @functools.cache
    def compiled() -> Callable[..., Any]:
        try:
            import numba
        except ModuleNotFoundError:  # on a device: one report at a time is quick enough
            return _in_python(function)

        _teach_numba_intrinsics()
        _teach_numba_subroutines()
        try:
            dispatcher = numba.njit(nogil=True, cache=True)(function)
            _name_files_apart(dispatcher)
        except RuntimeError:  # no folder to cache in: compile again in every process
            dispatcher = numba.njit(nogil=True)(function)
        return cast("Callable[..., Any]", dispatcher)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return compiled()(*args)

    return cast("F", call)


def _name_files_apart(dispatcher: Any) -> None:
    """Every file of compiled code has a name that no other ever has.

    numba counts them: of two processes that compile at once, for different types, both may count
    theirs as the first, and then one's index names the other's code, for good. Later calls fail, or
    take signed numbers for unsigned.
    """
    files = dispatcher._cache._cache_file
    files._data_name = lambda _: f"{files._index_name}.{os.urandom(16).hex()}.nbc"


def _in_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same words and results without a compiler; products of words wrap around in both."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*args)

    return call


FEW = 1 << 15  # entries that Python works off in a tenth of the time that numba takes to load


def short_kernel(function: F) -> F:
    """A `kernel` that takes one short step for each entry of its largest array.

    The first `FEW` entries of a process, over all such kernels, are worked off in Python where
    numba is not loaded: the same results sooner.
    """
    in_python, compiled = _in_python(function), kernel(function)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        entries = max((arg.size for arg in args if isinstance(arg, np.ndarray)), default=0)
        return (in_python if _are_few(entries) else compiled)(*args)

    return cast("F", call)


_WORDS_STAY_WORDS = isinstance(np.uint64(1) + 1, np.uint64)  # not so before NumPy 2
_worked_off = 0  # entries, in Python


def _are_few(entries: int) -> bool:
    global _worked_off
    if _worked_off + entries > FEW or "numba" in sys.modules or not _WORDS_STAY_WORDS:
        return False
    _worked_off += entries
    return True


@functools.cache
def _teach_numba_intrinsics() -> None:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic, overload

    @intrinsic
    def widening(typing_context: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            double = ir.IntType(2 * WORD_BITS)
            product = builder.mul(*(builder.zext(x, double) for x in arguments))
            high = builder.lshr(product, ir.Constant(double, WORD_BITS))
            return builder.trunc(high, ir.IntType(WORD_BITS))

        return types.uint64(types.uint64, types.uint64), generate

    @overload(multiply_high, inline="always")
    def compiled_multiply_high(word, factor):  # type: ignore[no-untyped-def]
        return lambda word, factor: widening(word, factor)

    @intrinsic
    def ones(typing_context: Any, a: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.ctpop(arguments[0])

        return types.uint64(types.uint64), generate

    @overload(odd_parity, inline="always")
    def compiled_odd_parity(word):  # type: ignore[no-untyped-def]
        return lambda word: ones(word) & 1 == 1


def _teach_numba_subroutines() -> None:
    from numba.extending import register_jitable

    while _SUBROUTINES:
        register_jitable(_SUBROUTINES.pop())


MAX_WASTE = 1e-8
_LARGEST_EXPONENT = 700.0  # of a finite float


def check_resolution(local_epsilon: float, implemented: float, of: str = "") -> None:
    """A ValueError unless words spend the budget, on something (`of`), to within `MAX_WASTE`."""
    if not (implemented > 0 and local_epsilon - implemented <= MAX_WASTE):
        raise ValueError(
            f"local_epsilon={local_epsilon:g}{of} is beyond the resolution of 64-bit words"
        )


def exp_lower(local_epsilon: float) -> Fraction:
    """A rational just below e**local_epsilon (closer than one part in 2**50)."""
    if local_epsilon > _LARGEST_EXPONENT:
        raise ValueError(
            f"local_epsilon must be at most {_LARGEST_EXPONENT:g}, got {local_epsilon}"
        )
    return Fraction(math.exp(local_epsilon)) * (1 - Fraction(1, 2**51))


@dataclass(frozen=True)
class TwoLevelLaw:
    """`num_favoured` of `num_outputs` outputs are e**local_epsilon times as likely as the others.

    Drawn from one uniform word. `word * num_outputs` has a high half in [0, num_outputs) and a
    low half; the low half lies below `threshold` for exactly `threshold` of the 2**64 words. For
    those the report is a favoured output, else it is the high half. Which favoured output:

    * with one favoured output there is no question;
    * if `reuses_high_half`, its number is the high half modulo `num_favoured`. Both sizes are
      powers of two then, so the two halves are independent uniform bits;
    * otherwise its number is the low half divided by `share`.

    Either way every favoured output gets exactly `share` of those words. The others spread over
    the high halves as evenly as whole words can, (2**64 - threshold) / num_outputs up to one word
    more or less, which the threshold allows for.

    Source: thesis, section 7.2 (two-level channels); the word-exact rounding is our own.

    Raises:
        ValueError: if the sizes make no channel, or if 64 bits cannot spend local_epsilon to
            within `MAX_WASTE`.
    """

    num_outputs: int
    num_favoured: int
    local_epsilon: float

    def __post_init__(self) -> None:
        if not 0 < self.num_favoured < self.num_outputs:
            raise ValueError("num_favoured must lie strictly between 0 and num_outputs")
        if self.threshold == 0 or self.local_epsilon - self.log_ratio_max > MAX_WASTE:
            raise ValueError(
                f"local_epsilon={self.local_epsilon:g} with {self.num_outputs} outputs is beyond "
                "the resolution of 64-bit words; choose a more moderate local_epsilon or a "
                "smaller domain"
            )

    @cached_property
    def threshold(self) -> int:
        """Words for which the report is a favoured output."""
        return two_level_threshold(
            self.num_outputs, self.num_favoured, exp_lower(self.local_epsilon), WORD_VALUES
        )

    @property
    def share(self) -> int:
        """Words of each favoured output among those."""
        return self.threshold // self.num_favoured

    @property
    def reuses_high_half(self) -> bool:
        return reuses_high_half(self.num_outputs, self.num_favoured)

    @property
    def other_probability(self) -> float:
        """Probability of one output outside the favoured set."""
        return float(Fraction(WORD_VALUES - self.threshold, self.num_outputs * WORD_VALUES))

    @property
    def favoured_probability(self) -> float:
        """Probability of one favoured output."""
        return self.other_probability + self.share / WORD_VALUES

    @property
    def log_ratio_max(self) -> float:
        """Log of the largest ratio that the words can show, all rounding included."""
        others = Fraction(WORD_VALUES - self.threshold, self.num_outputs)
        return math.log1p(float((self.share + 2) / (others - 1)))

    @property
    def likelihood_ratio(self) -> float:
        """The same without the logarithm."""
        return math.exp(self.log_ratio_max)


def reuses_high_half(num_outputs: int, num_favoured: int) -> bool:
    """Whether the high half of `word * num_outputs` may also number the favoured outputs."""
    return _is_power_of_two(num_outputs) and _is_power_of_two(num_favoured)


def two_level_threshold(
    num_outputs: int, num_favoured: int, largest_ratio: Fraction, word_values: int
) -> int:
    """The largest threshold of a two-level law whose ratio is at most `largest_ratio`.

    A favoured output gets at most `T/s + (N - T)/v + 1` of the `N` words and any other at least
    `(N - T)/v - 1`. The threshold is a multiple of what makes all favoured outputs equal: low
    halves are the multiples of gcd(v, N), each made by gcd(v, N) words.
    """
    n, v, s = word_values, num_outputs, num_favoured
    slope = Fraction(1, s) + (largest_ratio - 1) / v
    largest = (Fraction(n, v) * (largest_ratio - 1) - (largest_ratio + 1)) / slope
    step = v if reuses_high_half(v, s) else s * math.gcd(v, n)
    return max(0, math.floor(largest)) // step * step


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


@dataclass(frozen=True)
class Coin:
    """A biased coin: heads for exactly `threshold` of the 2**64 words."""

    threshold: int

    @classmethod
    def at_least(cls, probability: Fraction | float) -> Coin:
        return cls(min(WORD_VALUES, math.ceil(Fraction(probability) * WORD_VALUES)))

    @classmethod
    def at_most(cls, probability: Fraction | float) -> Coin:
        return cls(max(0, math.floor(Fraction(probability) * WORD_VALUES)))

    @property
    def probability(self) -> float:
        return self.threshold / WORD_VALUES


@dataclass(frozen=True)
class CoinLaw:
    """Heads: one of `num_favoured` outputs, all alike; tails: one of `num_others`.

    The coin is that whose favoured outputs are e**local_epsilon times as likely as the others, or
    less by what a word cannot resolve. Beyond a budget of 60 it is that of 60.
    """

    num_favoured: int
    num_others: int
    local_epsilon: float

    @cached_property
    def coin(self) -> Coin:
        odds = self.num_favoured * exp_lower(min(self.local_epsilon, 60.0))
        return Coin.at_most(odds / (odds + self.num_others))

    @cached_property
    def ratio(self) -> Fraction:
        """Probability of a favoured output over that of another."""
        heads = Fraction(self.coin.threshold, WORD_VALUES)
        return heads / (1 - heads) * self.num_others / self.num_favoured

    @property
    def log_ratio_max(self) -> float:
        # The ratio is below e**local_epsilon in rational numbers; its logarithm is rounded.
        return min(self.local_epsilon, math.log1p(float(self.ratio - 1)))
