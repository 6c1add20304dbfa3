"""Aggregation factories: clients send randomized reports, only their sum is read.

client: update --flatten--> vector --clip, randomize--> report --accumulate--> integers
server: sum of integers --decode--> mean --unflatten--> update
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from beam_ldp.randomizers.mean import (
    L1Mean,
    L2Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    SeparatedMean,
)
from beam_ldp.randomizers.mean.base import MeanRandomizer
from tff_adapters.compat import language, tff
from tff_adapters.kernels import client_generator, kernel_for

MechanismFor = Callable[[int], MeanRandomizer]

# By norm; the first is the default.
_MECHANISMS: dict[str, tuple[type[MeanRandomizer], ...]] = {
    "l2": (PrivUnit, PrivUnitGaussian, SeparatedMean, L2Mean),
    "linf": (LInfMean,),
    "l1": (L1Mean,),
}


class LocallyPrivateMeanFactory(tff.aggregators.UnweightedAggregationFactory):
    """The mean of clients' values, each randomized by its client before anything is sent.

    Values are floats of any dtype in any nesting. A client takes its entries, in order, as one
    vector, clips it to the mechanism's ball, randomizes it and hands the integers of its report to
    the inner sum: counts, or fixed point. With the default sum the runtime that adds up sees each
    client's report, which the mechanism's `local_epsilon` protects. With a secure sum nobody sees
    less than the sum, which does not depend on the order of clients: what shuffled reports cost
    bounds what it costs.

    Zero clients give zeros. Measurements: `reports`, the number of clients; `bits_per_client`,
    handed to the sum by each; `report_bits`, what its report would take by itself; and
    `predicted_error`, the root of the mean squared error of the whole vector that the mechanism
    promises for worst values (clipping not included), infinite for zero clients; `sum`, the
    measurements of the inner sum.

    Args:
        mechanism: a mean mechanism that has a kernel, its `to_config()`, or a function that makes
            it for a number of entries.
        sum_factory: factory for sums of integers; by default `tff.aggregators.SumFactory()`.
            A secure one needs bounds: `kernel_for(mechanism).statistic_limit` and its negative.

    Raises:
        ValueError: from `create`, if the mechanism's dimension is not the number of entries.
        TypeError: from `create`, if values are not structures of floats.
    """

    def __init__(
        self,
        mechanism: MeanRandomizer | dict[str, Any] | MechanismFor,
        sum_factory: Any | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._sum_factory = tff.aggregators.SumFactory() if sum_factory is None else sum_factory
        if not isinstance(self._sum_factory, tff.aggregators.UnweightedAggregationFactory):
            raise TypeError(
                "sum_factory must be a tff.aggregators.UnweightedAggregationFactory, got "
                f"{type(sum_factory).__name__}"
            )

    def create(self, value_type: Any) -> Any:
        """The aggregation process for values of this type."""
        specs = _float_specs(value_type)
        kernel = self._kernel(sum(spec.shape.num_elements() for spec in tf.nest.flatten(specs)))
        mechanism = kernel.mechanism
        statistic_type = language.TensorType(
            kernel.statistic_dtype.as_numpy_dtype, kernel.statistic_shape
        )
        inner = self._sum_factory.create(statistic_type)
        bits = math.prod(kernel.statistic_shape) * kernel.statistic_dtype.size * 8
        squared_error = float(mechanism.mean_squared_error(1))

        @tff.tensorflow.computation(value_type)
        def report(value: Any) -> Any:
            vector = flatten(value)[None, :]
            return kernel.accumulate(kernel.randomize(vector, client_generator()))

        @tff.tensorflow.computation(inner.next.type_signature.result.result.member, np.int32)
        def read(statistic: Any, num_reports: Any) -> Any:
            return unflatten(kernel.decode(statistic, num_reports), specs)

        @tff.tensorflow.computation(np.int32)
        def measure(num_reports: Any) -> Any:
            users = tf.cast(num_reports, tf.float64)
            error = tf.sqrt(tf.where(users > 0, squared_error / users, math.inf))
            return OrderedDict(
                reports=num_reports,
                bits_per_client=tf.constant(bits, tf.int64),
                report_bits=tf.constant(mechanism.bits_per_report, tf.int64),
                predicted_error=error,
            )

        @language.federated_computation()
        def initialize() -> Any:
            return inner.initialize()

        @language.federated_computation(
            initialize.type_signature.result, language.FederatedType(value_type, language.CLIENTS)
        )
        def advance(state: Any, values: Any) -> Any:
            summed = inner.next(state, language.federated_map(report, values))
            ones = language.federated_value(1, language.CLIENTS)
            num_reports = language.federated_sum(ones)
            mean = language.federated_map(read, (summed.result, num_reports))
            measured = language.federated_zip(
                OrderedDict(
                    mean=language.federated_map(measure, num_reports), sum=summed.measurements
                )
            )
            return tff.templates.MeasuredProcessOutput(summed.state, mean, measured)

        return tff.templates.AggregationProcess(initialize, advance)

    def _kernel(self, num_entries: int) -> Any:
        mechanism = self._mechanism
        if callable(mechanism):
            mechanism = mechanism(num_entries)
        kernel = kernel_for(mechanism)
        if kernel.mechanism.dimension != num_entries:
            raise ValueError(
                f"values have {num_entries} entries, but the mechanism's dimension is "
                f"{kernel.mechanism.dimension}"
            )
        return kernel


def shuffled_ldp_aggregator(
    *,
    norm: str,
    clip: float,
    local_epsilon: float,
    mechanism: str | None = None,
    sum_factory: Any | None = None,
    **options: Any,
) -> LocallyPrivateMeanFactory:
    """Aggregator for `tff.learning.algorithms.build_unweighted_fed_avg` and its kin.

    Every client's update is clipped to a ball, and what it sends is `local_epsilon`-LDP towards
    everybody. Only the sum is used, so `beam_ldp.accounting` may price rounds as shuffled against
    readers of sums and models.

    Args:
        norm: of the ball: "l2", "linf" or "l1".
        clip: its radius, public.
        local_epsilon: budget of one client's one update.
        mechanism: name of the mechanism; for "l2" `PrivUnit` (the default: the least error),
            `PrivUnitGaussian`, `SeparatedMean` or `L2Mean` (the fewest bits).
        sum_factory: as for `LocallyPrivateMeanFactory`.
        **options: parameters of the mechanism.

    Raises:
        ValueError: if a parameter is out of range.
    """
    if norm not in _MECHANISMS:
        raise ValueError(f"norm must be one of {', '.join(_MECHANISMS)}, got {norm!r}")
    by_name = {kind.__name__: kind for kind in _MECHANISMS[norm]}
    kind = by_name.get(mechanism or next(iter(by_name)))
    if kind is None:
        raise ValueError(
            f"mechanism must be one of {', '.join(by_name)} for norm {norm!r}, got {mechanism!r}"
        )
    for name, number in [("clip", clip), ("local_epsilon", local_epsilon)]:
        if not (math.isfinite(number) and number > 0):
            raise ValueError(f"{name} must be a finite number > 0, got {number}")

    def for_entries(num_entries: int) -> MeanRandomizer:
        return kind(num_entries, local_epsilon, radius=clip, **options)

    return LocallyPrivateMeanFactory(for_entries, sum_factory)


def flatten(value: Any) -> Any:
    """The entries of a structure of float tensors, in order, as one vector of float64."""
    parts = [tf.reshape(tf.cast(part, tf.float64), [-1]) for part in tf.nest.flatten(value)]
    return tf.concat(parts, axis=0)


def unflatten(vector: Any, specs: Any) -> Any:
    """The structure of `specs` whose entries are those of the vector, each in its own dtype."""
    leaves = tf.nest.flatten(specs)
    parts = tf.split(vector, [spec.shape.num_elements() for spec in leaves])
    shaped = [tf.cast(tf.reshape(p, s.shape), s.dtype) for p, s in zip(parts, leaves)]
    return tf.nest.pack_sequence_as(specs, shaped)


def _float_specs(value_type: Any) -> Any:
    allowed = isinstance(value_type, (language.TensorType, language.StructWithPythonType))
    if not (allowed and tff.types.is_structure_of_floats(value_type)):
        raise TypeError(f"value_type must be a tensor or a structure of floats, got {value_type}")
    specs = tff.types.type_to_tf_tensor_specs(value_type)
    if not all(spec.shape.is_fully_defined() for spec in tf.nest.flatten(specs)):
        raise TypeError(f"value_type must have shapes that are fully known, got {value_type}")
    return specs
