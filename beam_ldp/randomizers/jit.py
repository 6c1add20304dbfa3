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


def kernel(function: F) -> F:
    """Compile `function` with numba on its first call."""

    @functools.cache
    def compiled() -> Callable[..., Any]:
        import numba

        _teach_numba_multiply_high()
        return cast("Callable[..., Any]", numba.njit(nogil=True, cache=True)(function))

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return compiled()(*args)

    return cast("F", call)


@functools.cache
def _teach_numba_multiply_high() -> None:
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
