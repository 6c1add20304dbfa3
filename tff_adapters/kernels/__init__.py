"""What a client runs, in TensorFlow: one kernel per family of mechanisms.

A kernel is built from a mechanism of `beam_ldp.randomizers.mean`, or from its `to_config()`, and
has the same parameters, the same law of reports and the same estimate.
"""

from __future__ import annotations

from typing import Any

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.block_mean import BlockMean
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.priv_unit_gaussian import PrivUnitGaussian
from beam_ldp.randomizers.mean.scalar_mean import ScalarMean
from beam_ldp.randomizers.mean.separated_mean import SeparatedMean
from tff_adapters.kernels.base import ClientKernel, client_generator, seeded_generator
from tff_adapters.kernels.block import BlockKernel
from tff_adapters.kernels.directions import (
    PrivUnitGaussianKernel,
    PrivUnitKernel,
    ScalarKernel,
    SeparatedKernel,
)

__all__ = ["ClientKernel", "client_generator", "kernel_for", "seeded_generator"]

_KERNELS: tuple[tuple[type[MeanRandomizer], type[Any]], ...] = (
    (BlockMean, BlockKernel),
    (PrivUnit, PrivUnitKernel),
    (PrivUnitGaussian, PrivUnitGaussianKernel),
    (ScalarMean, ScalarKernel),
    (SeparatedMean, SeparatedKernel),
)


def kernel_for(mechanism: MeanRandomizer | dict[str, Any]) -> ClientKernel:
    """The kernel of a mechanism, or of the mechanism that `to_config` described.

    Raises:
        ValueError: if the mechanism has no kernel, or not with these parameters.
    """
    if isinstance(mechanism, dict):
        mechanism = LocalRandomizer.from_config(mechanism)  # type: ignore[assignment]
    for kind, kernel in _KERNELS:
        if isinstance(mechanism, kind):
            return kernel(mechanism)
    raise ValueError(
        f"{type(mechanism).__name__} has no TensorFlow kernel; mechanisms that have one: LInfMean, "
        "L2Mean, L1Mean, BinaryVectorMean, PrivUnit, PrivUnitGaussian, ScalarMean, SeparatedMean"
    )
