"""Compiled kernels, compiled when first called.

Importing numba takes longer than importing the rest of the library, and a program that only
plans or prices never needs it: `kernel` defers both the import and the compilation to the first
call. Kernels release the GIL and are cached on disk next to their source.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

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
        import numba

        _teach_numba_intrinsics()
        _teach_numba_subroutines()
        try:
            dispatcher = numba.njit(nogil=True, cache=True)(function)
        except RuntimeError:  # no folder to cache in: compile again in every process
            dispatcher = numba.njit(nogil=True)(function)
        return cast("Callable[..., Any]", dispatcher)

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return compiled()(*args)

    return cast("F", call)


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
