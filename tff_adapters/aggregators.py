"""Aggregation factories: clients send randomized reports, only their multiset or sum is read.

client: value --flatten--> vectors --clip, randomize--> reports --pack--> messages
shuffler: messages of all clients --strip, permute-->       (or: an inner sum of integers)
server: reports --add up, decode--> mean --unflatten--> value, and one more line in the record
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.federated.collusion import CollusionCheck
from beam_ldp.federated.record import RoundConfig, RoundsRecord
from beam_ldp.federated.samplers import DeclaredSampling
from beam_ldp.randomizers.checks import check_positive
from beam_ldp.randomizers.mean import (
    L1Mean,
    L2Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    SeparatedMean,
    compact_mean,
)
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.failures import failure_vector
from tff_adapters.compat import language, tff
from tff_adapters.flows import mark
from tff_adapters.kernels import ClientKernel, client_generator, kernel_for, seeded_generator
from tff_adapters.transport import ShuffledMessages, Sums, Transport
from tff_adapters.vectors import (
    AdaptiveClip,
    flatten,
    flatten_rows,
    norm_at_most,
    num_entries,
    unflatten,
    value_specs,
)

_SHARE_OF_BIT = 0.1  # of the local budget, for the bit that an adaptive clip asks for

MechanismFor = Callable[[int], MeanRandomizer]

# By norm; the first is the default.
_MECHANISMS: dict[str, tuple[type[MeanRandomizer], ...]] = {
    "l2": (PrivUnit, PrivUnitGaussian, SeparatedMean, L2Mean),
    "linf": (LInfMean,),
    "l1": (L1Mean,),
}


class LocallyPrivateState(NamedTuple):
    """State of the process of `LocallyPrivateMeanFactory`.

    Attributes:
        privacy: what ran so far, see `tff_adapters.privacy_events`.
        clip: clipping norm of the next round, float64; () where it is fixed.
        inner: state of the inner sum; () where messages are shuffled.
    """

    privacy: RoundsRecord
    clip: Any
    inner: Any


class LocallyPrivateMeanFactory(tff.aggregators.UnweightedAggregationFactory):
    """The mean of clients' values, each randomized by its client before anything is sent.

    Values are floats of any dtype in any nesting. A client takes the entries of a value, in order,
    as one vector, clips it to the mechanism's ball and randomizes it; the report is protected by
    the mechanism's `local_epsilon` against everybody. How reports travel is one choice:

    * `sum_factory=None`, shuffled messages: a report is one message of whole bytes, `pack`ed as
      the mechanism does. Whoever runs the aggregation is the shuffler: a step of its own strips
      and permutes the messages of all values of all clients (every message column on its own)
      before the server reads them.
    * `sum_factory` given, sums: a client hands the integers of its reports to it (counts, or fixed
      point). With `tff.aggregators.SumFactory()` the runtime that adds up sees them; with a secure
      sum nobody sees less than the sum, which does not depend on the order of clients: what
      shuffled reports cost bounds what it costs.

    `values_per_client=s`: every leaf of a client's value has a leading dimension s, of s values
    (say, gradients of s of its data points). The client clips and randomizes each by itself, with
    the whole local budget, and sends s messages; the result is the mean of all values, without the
    leading dimension. One value is then what is protected. None: a client holds one value, and
    nothing has a leading dimension.

    The state carries the privacy record: `tff_adapters.privacy_events(state)` gives the events of
    what ran, at any round. With `sampling` the credit of that sampling is in them, and a round that
    receives a number of clients that it does not give fails on the server before it has a result.
    Clients that were dropped count as drawn, and as nobody who hides others (`DeclaredSampling`).
    `privacy_events` credits sampling for everything that a client sends at once: where that is more
    than one message (or `adaptive_clip` adds its bit), only the sum of local epsilons is used.

    A value with an entry that is not finite is a training that failed: its client reports the
    failure vector of the round instead (`beam_ldp.randomizers.mean.failures`), so that the server
    can see, at no further cost, that most clients fail.

    Zero clients give zeros. Measurements, under "mean": `reports`, the clients received, without
    those that were dropped; `failing`, the estimated share of values that were not finite;
    `bits_per_client`, what each handed over; `report_bits`, what the report of one value takes by
    itself; `predicted_error`, the root of the mean squared error of the whole vector that the
    mechanism promises for worst values (clipping not included), infinite for zero clients; `clip`,
    the round's clipping norm, where it adapts. Under "shuffle": `impossible`, the clients that were
    dropped because they sent what no honest client can; with `drop_colluders` also `colluding`, the
    clients that were left out, `agreement` of the others (`Examined`) and, under "mean", `result`:
    0 where too few are left for one. Under "sum", those of
    the inner sum, where there is one: of a sum nobody can tell what its parts were.

    Args:
        mechanism: a mean mechanism that has a kernel, its `to_config()`, or a function that makes
            it for a number of entries.
        sum_factory: factory for sums of integers, as above. A secure one needs bounds:
            `kernel_for(mechanism).statistic_limit` times s, and its negative.
        values_per_client: as above.
        sampling: how the clients of a round are drawn.
        min_reports: fewer clients than this hide nobody well enough: a round that receives fewer
            fails on the server before it has a result, and nothing of it is released.
        adaptive_clip: makes the clipping norm follow a quantile; the mechanism's radius must be 1,
            and is multiplied by the norm.
        drop_colluders: leaves out reports that point one way together further than honest ones do
            (`beam_ldp.federated.collusion`). Whoever is left out hides nobody, and is counted as
            dropped. Where fewer are left than come at least, as `sampling` says, the result is
            zeros, and the round costs what one of that least number does. For shuffled messages,
            one of each client, and a clipping norm that is fixed.
        seed: **for simulation only**: client randomness and permutations are functions of the
            seed, the round and the client's value. Nothing is private then, and
            `privacy_events` gives None. Clients with equal values draw equal noise.

    Raises:
        ValueError: from `create`, if the mechanism's dimension is not the number of entries, or it
            has no such check.
        TypeError: from `create`, if values are not structures of floats, or without the leading
            dimension.
    """

    def __init__(
        self,
        mechanism: MeanRandomizer | dict[str, Any] | MechanismFor,
        sum_factory: Any | None = None,
        *,
        values_per_client: int | None = None,
        sampling: DeclaredSampling | None = None,
        min_reports: int = 0,
        adaptive_clip: AdaptiveClip | None = None,
        drop_colluders: bool = False,
        seed: int | None = None,
    ) -> None:
        if sum_factory is not None and not isinstance(
            sum_factory, tff.aggregators.UnweightedAggregationFactory
        ):
            raise TypeError(
                "sum_factory must be a tff.aggregators.UnweightedAggregationFactory, got "
                f"{type(sum_factory).__name__}"
            )
        if values_per_client is not None and not values_per_client >= 1:
            raise ValueError(f"values_per_client must be >= 1 or None, got {values_per_client}")
        if not min_reports >= 0:
            raise ValueError(f"min_reports must be >= 0, got {min_reports}")
        others = (sum_factory, values_per_client, adaptive_clip)
        if drop_colluders and any(other is not None for other in others):
            raise ValueError(
                "drop_colluders must go without sum_factory (of a sum nobody can tell what it is "
                "of), values_per_client (nobody sees which reports are one client's) and "
                "adaptive_clip (forged bits would still move the norm)"
            )
        self._drop_colluders = drop_colluders
        self._mechanism = mechanism
        self._min_reports = min_reports
        self._sum_factory = sum_factory
        self._values = values_per_client
        self._sampling = sampling
        self._adaptive = adaptive_clip
        self._seed = seed
        if sampling is not None:  # refuses values that do not fit
            sampling.event(LocalRandomizerDpEvent(1.0), values_per_client or 1)

    def create(self, value_type: Any) -> Any:
        """The aggregation process for values of this type."""
        specs = value_specs(value_type, self._values)
        kernels = self._kernels(num_entries(specs))
        values = self._values or 1
        config = RoundConfig(
            tuple(kernel.mechanism.to_config() for kernel in kernels),
            values,
            self._sampling,
            self._seed is not None,
            self._min_reports,
            self._least_left,
        )
        transport: Transport
        if self._sum_factory is None:
            check = CollusionCheck(kernels[0].mechanism) if self._drop_colluders else None
            transport = ShuffledMessages(kernels, values, self._seed, check)
        else:
            transport = Sums(kernels, values, self._sum_factory)
        failure = failure_vector(kernels[0].mechanism, "", 0).astype(np.float32)
        client = self._client(value_type, kernels, transport, failure)
        read = self._reader(specs, kernels, transport, failure)

        @tff.tensorflow.computation
        def start() -> Any:
            clip = tf.constant(self._adaptive.initial, tf.float64) if self._adaptive else ()
            return empty_record(config), clip

        @language.federated_computation()
        def initialize() -> Any:
            privacy, clip = language.federated_eval(start, language.SERVER)
            return language.federated_zip(
                LocallyPrivateState(privacy, clip, transport.initialize())
            )

        public = _public(initialize.type_signature.result.member)

        @language.federated_computation(
            initialize.type_signature.result, language.FederatedType(value_type, language.CLIENTS)
        )
        def advance(state: Any, values: Any) -> Any:
            told = language.federated_map(public, (state.privacy, state.clip))
            sent = language.federated_map(client, (values, language.federated_broadcast(told)))
            inner, came, on_the_way = transport.collect(state.inner, sent)
            found = language.federated_map(read, (state.privacy, state.clip, *came))
            measured = OrderedDict(mean=found.measured, **on_the_way)
            return tff.templates.MeasuredProcessOutput(
                language.federated_zip(LocallyPrivateState(found.privacy, found.clip, inner)),
                found.mean,
                language.federated_zip(measured),
            )

        return tff.templates.AggregationProcess(initialize, advance)

    @property
    def _least_left(self) -> int:
        """Clients without whose reports a checked round has no result; 0 where it always has."""
        sampling = self._sampling
        if sampling is None or not self._drop_colluders:
            return 0
        return sampling.least_received or (0 if sampling.fixed_size else sampling.allowed[0])

    def _kernels(self, entries: int) -> list[ClientKernel]:
        """What a client sends a report of: the vector, and the bit about its norm if any."""
        mechanism = self._mechanism
        if callable(mechanism):
            mechanism = mechanism(entries)
        kernel = kernel_for(mechanism)
        if kernel.mechanism.dimension != entries:
            raise ValueError(
                f"values have {entries} entries, but the mechanism's dimension is "
                f"{kernel.mechanism.dimension}"
            )
        if self._adaptive is None:
            return [kernel]
        if kernel.mechanism.radius != 1 or kernel.mechanism.norm == "binary":
            raise ValueError("mechanism must be for vectors of radius 1 with adaptive_clip")
        return [kernel, kernel_for(self._adaptive.mechanism)]

    def _client(
        self,
        value_type: Any,
        kernels: list[ClientKernel],
        transport: Transport,
        failure: np.ndarray,
    ) -> Any:
        """What runs on a client: `(value, public) -> sent`."""

        @tff.tensorflow.computation(value_type, _PUBLIC)
        def client(value: Any, public: Any) -> Any:
            vectors = flatten_rows(value) if self._values else flatten(value)[None, :]
            asked = [vectors]
            if self._adaptive is not None:
                norm = kernels[0].mechanism.norm
                asked = [vectors / public.clip, norm_at_most(vectors, norm, public.clip)]
            finite = tf.reduce_all(tf.math.is_finite(asked[0]), axis=1, keepdims=True)
            asked[0] = tf.where(finite, asked[0], _of_round(failure, public.round))

            def draw(generator: Any) -> Any:
                return transport.send([k.randomize(a, generator) for k, a in zip(kernels, asked)])

            if self._seed is None:
                return draw(client_generator())
            generator = seeded_generator(self._seed, public.round, vectors)
            return tf.function(lambda: draw(generator), autograph=False)()  # draws in order

        seeded = "" if self._seed is None else "; the noise is a seed's, and protects nobody"
        return mark(client, " and ".join(map(_told, kernels)) + seeded)

    def _reader(
        self, specs: Any, kernels: list[ClientKernel], transport: Transport, failure: np.ndarray
    ) -> Any:
        """What the server makes of statistics: `(record, clip, statistics, reports, dropped)
        -> _Read`."""
        sampling, least_left = self._sampling, self._least_left
        squared_error = float(kernels[0].mechanism.mean_squared_error(1))
        bits, report_bits = transport.bits_per_client, kernels[0].mechanism.bits_per_report
        clip_type = tff.TensorType(np.float64) if self._adaptive else tff.to_type(())
        statistics_type = tuple(
            tff.TensorType(k.statistic_dtype.as_numpy_dtype, k.statistic_shape) for k in kernels
        )

        @tff.tensorflow.computation(record_type(), clip_type, statistics_type, np.int32, np.int32)
        def read(privacy: Any, clip: Any, statistics: Any, reports: Any, dropped: Any) -> Any:
            came = reports
            if sampling is not None and (sampling.fixed_size or least_left):
                came += dropped  # who was left out came too: the record says how many count
            with tf.control_dependencies(_checks(reports, came, sampling, self._min_reports)):
                reports = tf.identity(reports)
            values = reports * (self._values or 1)
            mean = kernels[0].decode(statistics[0], values)
            along = _of_round(failure / (failure @ failure), tf.reduce_sum(privacy.rounds[:, 1]))
            enough = reports >= max(1, least_left)
            if least_left:  # before anything is computed from it
                mean = tf.where(enough, mean, tf.zeros_like(mean))
            many = tf.cast(values, tf.float64)
            error = tf.sqrt(tf.where(enough, squared_error / many, math.inf))
            measured = OrderedDict(
                reports=reports,
                bits_per_client=tf.constant(bits, tf.int64),
                report_bits=tf.constant(report_bits, tf.int64),
                predicted_error=error,
                failing=tf.tensordot(mean, along, 1),
            )
            if least_left:
                measured["result"] = tf.cast(enough, tf.int32)
            if self._adaptive is not None:
                mean, measured["clip"] = mean * clip, clip
                measured["predicted_error"] = error * clip
                share = kernels[1].decode(statistics[1], values)[0]
                clip = self._adaptive.next_norm(clip, share, values)
            return _Read(unflatten(mean, specs), add_round(privacy, reports), clip, measured)

        return read


class FailureReportingFactory(tff.aggregators.WeightedAggregationFactory):
    """Lets clients of `tff.learning.algorithms.build_weighted_fed_avg` report failed trainings.

    TensorFlow Federated replaces an update that is not finite by zeros, and gives it the weight
    zero. Here its client reports the failure vector instead. For
    `client_weighting=tff.learning.ClientWeighting.UNIFORM`: weights have no other use.

    Args:
        aggregator: a `LocallyPrivateMeanFactory`.
    """

    def __init__(self, aggregator: LocallyPrivateMeanFactory) -> None:
        self._aggregator = aggregator

    def create(self, value_type: Any, weight_type: Any) -> Any:
        """The aggregation process for values and weights of these types."""
        inner = self._aggregator.create(value_type)

        @tff.tensorflow.computation(value_type, weight_type)
        def or_failed(value: Any, weight: Any) -> Any:
            return tf.nest.map_structure(
                lambda part: tf.where(weight > 0, part, tf.constant(math.nan, part.dtype)), value
            )

        @language.federated_computation(
            inner.initialize.type_signature.result,
            language.FederatedType(value_type, language.CLIENTS),
            language.FederatedType(weight_type, language.CLIENTS),
        )
        def advance(state: Any, values: Any, weights: Any) -> Any:
            return inner.next(state, language.federated_map(or_failed, (values, weights)))

        return tff.templates.AggregationProcess(inner.initialize, advance)


def _of_round(vector: np.ndarray, number: Any) -> Any:
    """Float64; opposite in consecutive rounds, as failure vectors are."""
    return tf.cast(vector, tf.float64) * tf.cast(1 - 2 * (number % 2), tf.float64)


def _told(kernel: ClientKernel) -> str:
    """What a kernel does, in the table of what leaves a client."""
    mechanism = kernel.mechanism
    return f"{type(mechanism).__name__}, local epsilon = {mechanism.local_epsilon:g}"


class _Public(NamedTuple):
    """What every client of a round is told."""

    clip: Any
    round: Any


_PUBLIC = tff.to_type(_Public(np.float64, np.int64))


class _Read(NamedTuple):
    mean: Any
    privacy: Any
    clip: Any
    measured: Any


def _public(state_type: Any) -> Any:
    """The computation that takes what clients are told from a state."""

    @tff.tensorflow.computation(state_type.privacy, state_type.clip)
    def public(privacy: Any, clip: Any) -> Any:
        norm = clip if isinstance(clip, tf.Tensor) else tf.constant(1.0, tf.float64)
        return _Public(norm, tf.reduce_sum(privacy.rounds[:, 1]))

    return public


def _checks(
    reports: Any, came: Any, sampling: DeclaredSampling | None, min_reports: int
) -> list[Any]:
    """Fails the round of too few reports, or to which not as many came as its sampling gives."""
    checks = []
    if min_reports:
        message = f"min_reports is {min_reports}: nothing is released of a round with fewer clients"
        checks.append(tf.debugging.Assert(reports >= min_reports, [message, reports]))
    if sampling is not None:
        allowed = sampling.allowed
        message = f"the declared sampling gives {allowed[0]} to {allowed[1]} clients a round"
        fits = (came >= allowed[0]) & (came <= allowed[1])
        checks.append(tf.debugging.Assert(fits, [message, came]))
    return checks


def shuffled_ldp_aggregator(
    *,
    norm: str,
    clip: float | str | AdaptiveClip,
    local_epsilon: float,
    mechanism: str | None = None,
    sum_factory: Any | None = None,
    values_per_client: int | None = None,
    sampling: DeclaredSampling | None = None,
    min_reports: int = 0,
    drop_colluders: bool = False,
    seed: int | None = None,
    **options: Any,
) -> LocallyPrivateMeanFactory:
    """Aggregator for `tff.learning.algorithms.build_unweighted_fed_avg` and its kin.

    Every client's update is clipped to a ball, and what it sends is `local_epsilon`-LDP towards
    everybody. The server reads shuffled messages or sums only, so rounds are priced as shuffled
    against it: `tff_adapters.privacy_events(state)`.

    Args:
        norm: of the ball: "l2", "linf" or "l1".
        clip: its radius, public; or "adaptive", to follow the median norm of the updates from 0.1
            on, for a tenth of `local_epsilon`; or an `AdaptiveClip` with other settings.
        local_epsilon: budget of everything that one client sends about one update.
        mechanism: name of the mechanism; for "l2" `PrivUnit` (the default: the least error),
            `PrivUnitGaussian`, `SeparatedMean` or `L2Mean` (the fewest bits).
        sum_factory, values_per_client, sampling, min_reports, drop_colluders, seed: as for
            `LocallyPrivateMeanFactory`.
        **options: parameters of the mechanism. Without `coordinate_bits` or `rounding`, directions
            travel in as few bits as cost at most 1 % of error, 8 at least (`compact_mean`).

    Raises:
        ValueError: if a parameter is out of range.
    """
    kind = _kind_of(norm, mechanism)
    check_positive("local_epsilon", local_epsilon)
    adaptive, radius, budget = _clipping(clip, local_epsilon)

    def for_entries(num_entries: int) -> MeanRandomizer:
        if "coordinate_bits" in options or "rounding" in options:
            return kind(num_entries, budget, radius=radius, **options)
        return compact_mean(kind, num_entries, local_epsilon=budget, radius=radius, **options)

    return LocallyPrivateMeanFactory(
        for_entries,
        sum_factory,
        values_per_client=values_per_client,
        sampling=sampling,
        min_reports=min_reports,
        adaptive_clip=adaptive,
        drop_colluders=drop_colluders,
        seed=seed,
    )


def _kind_of(norm: str, mechanism: str | None) -> type[MeanRandomizer]:
    """The class of that name for the norm; the norm's first one without."""
    if norm not in _MECHANISMS:
        raise ValueError(f"norm must be one of {', '.join(_MECHANISMS)}, got {norm!r}")
    by_name = {kind.__name__: kind for kind in _MECHANISMS[norm]}
    kind = by_name.get(mechanism or next(iter(by_name)))
    if kind is None:
        raise ValueError(
            f"mechanism must be one of {', '.join(by_name)} for norm {norm!r}, got {mechanism!r}"
        )
    return kind


def _clipping(
    clip: float | str | AdaptiveClip, local_epsilon: float
) -> tuple[AdaptiveClip | None, float, float]:
    """What adapts the clipping norm, if anything; the mechanism's radius; what is left for it."""
    if clip == "adaptive":
        clip = AdaptiveClip(_SHARE_OF_BIT * local_epsilon)
    if isinstance(clip, AdaptiveClip):
        budget = local_epsilon - clip.local_epsilon
        if not budget > 0:
            raise ValueError(
                f"local_epsilon must be above the {clip.local_epsilon:g} of the adaptive clip's "
                f"bit, got {local_epsilon:g}"
            )
        return clip, 1.0, budget
    if isinstance(clip, str) or not (math.isfinite(clip) and clip > 0):
        raise ValueError(f'clip must be a finite number > 0 or "adaptive", got {clip!r}')
    return None, float(clip), local_epsilon


def record_type() -> Any:
    """The type of a record in a state."""
    return tff.to_type(RoundsRecord(np.str_, tff.TensorType(np.int64, (None, 2))))


def empty_record(config: RoundConfig) -> RoundsRecord:
    """The record before the first round."""
    nothing = tf.zeros([0, 2], tf.int64)
    # A number of rows that the type does not tell: it grows.
    rounds = tf.raw_ops.PlaceholderWithDefault(input=nothing, shape=[None, 2])
    return RoundsRecord(tf.constant(config.to_json()), rounds)


def add_round(record: RoundsRecord, reports: Any) -> RoundsRecord:
    """The record after one more round, which received the reports of so many clients."""
    reports = tf.cast(reports, tf.int64)
    last = record.rounds[-1:]
    again = tf.reduce_any(tf.equal(last[:, 0], reports))  # false where there is no last
    longer = tf.concat([record.rounds[:-1], last + tf.constant([[0, 1]], tf.int64)], axis=0)
    added = tf.stack([reports, tf.constant(1, tf.int64)])[None, :]
    rounds = tf.cond(again, lambda: longer, lambda: tf.concat([record.rounds, added], axis=0))
    return RoundsRecord(record.config, tf.ensure_shape(rounds, [None, 2]))
