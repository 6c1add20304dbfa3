"""Every frequency oracle with parameters that make its channel small enough to write down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from beam_ldp.randomizers import FrequencyOracle
from beam_ldp.randomizers.entropy import critical_bits
from beam_ldp.randomizers.finite_fields import next_prime
from beam_ldp.randomizers.frequency import (
    BinaryHadamard,
    HadamardResponse,
    KRandomizedResponse,
    LimitedHadamard,
    LocalHashing,
    PairwiseIndependentRappor,
    ProjectiveGeometryResponse,
    Rappor,
    RecursiveHadamardResponse,
    SubsetSelection,
    UnaryEncoding,
)
from tests.randomizers.published import published_num_blocks

SIZES = (2, 3, 5, 8, 12)
BUDGETS = (0.1, 1.0, 3.0, 6.0)


def oracles_of(size: int, epsilon: float) -> Iterator[tuple[str, FrequencyOracle]]:
    """Name and oracle, every class in each of its forms."""
    yield "k-ary", KRandomizedResponse(size, epsilon)
    yield "unary", UnaryEncoding(size, epsilon)
    yield "unary-symmetric", UnaryEncoding(size, epsilon, optimized=False)
    yield "hashing", LocalHashing(size, epsilon, 3, next_prime(max(5, size)))
    yield "hadamard", HadamardResponse(size, epsilon)
    yield "hadamard-published", HadamardResponse(size, epsilon, published_num_blocks(size, epsilon))
    yield "hadamard-2-blocks", HadamardResponse(size, epsilon, 2)
    yield "binary", BinaryHadamard(size, epsilon)
    yield "binary-all-rows", BinaryHadamard(size, epsilon, drop_trivial=False)
    yield "binary-public", BinaryHadamard(size, epsilon, row="public")
    few = critical_bits(epsilon) / 2
    for mode in ("binary", "ternary", "timeshare"):
        yield f"limited-{mode}", LimitedHadamard(size, epsilon, few, mode)
    yield "limited-public", LimitedHadamard(size, epsilon, few, "timeshare", row="public")
    yield "limited-enough", LimitedHadamard(size, epsilon)
    yield "limited-key", LimitedHadamard(size, epsilon, 12, "uniform_key")
    yield "recursive", RecursiveHadamardResponse(size, epsilon)
    yield "recursive-1-bit", RecursiveHadamardResponse(size, epsilon, 1)
    most = (size - 1).bit_length()
    yield "recursive-most-bits", RecursiveHadamardResponse(size, epsilon, most)
    yield "subset", SubsetSelection(size, epsilon)
    if epsilon < 5:  # its field has about E elements, its seeds the square
        yield "pairwise", PairwiseIndependentRappor(size, epsilon)
    yield "geometry", ProjectiveGeometryResponse(size, epsilon)
    yield "geometry-binary", ProjectiveGeometryResponse(size, epsilon, 2)
    yield "rappor", Rappor(size, epsilon)


def cases(sizes=SIZES, budgets=BUDGETS, names=None):  # type: ignore[no-untyped-def]
    """Parameters for pytest: one oracle each, named after what it is."""
    return [
        pytest.param(oracle, id=f"{name}-{size}-{epsilon}")
        for size in sizes
        for epsilon in budgets
        for name, oracle in oracles_of(size, epsilon)
        if names is None or name in names
    ]
