"""How reports come from clients to the server: as shuffled messages, or as sums.

Both take what `send` made of a client's reports, and give the statistics that kernels decode.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from beam_ldp.federated.collusion import CollusionCheck
from tff_adapters.collusion import examine
from tff_adapters.compat import language, tff
from tff_adapters.kernels import ClientKernel, client_generator, seeded_generator
from tff_adapters.kernels.base import random_order

Kernels = Sequence[ClientKernel]
SLOTS, LEVELS = 8, 5  # beyond 8**5 clients the last tensor grows by 8**5 at a time


class Transport:
    """One way of bringing reports to the server.

    Attributes:
        initialize: computation of the state of the way itself.
    """

    initialize: Any

    def __init__(self, kernels: Kernels, values_per_client: int) -> None:
        self.kernels = kernels
        self.values_per_client = values_per_client

    def send(self, reports: Sequence[Any]) -> tuple[Any, ...]:
        """What a client hands over, of its reports per kernel; inside the client computation."""
        raise NotImplementedError

    @property
    def bits_per_client(self) -> int:
        """Bits of what `send` makes."""
        raise NotImplementedError

    def collect(self, state: Any, sent: Any) -> tuple[Any, tuple[Any, Any, Any], dict[str, Any]]:
        """Next state, what came to the server, measurements.

        What came is a triple: statistics per kernel, and the numbers of clients that they are of,
        and that were dropped.
        """
        raise NotImplementedError


class ShuffledMessages(Transport):
    """Packed messages, stripped of everything and permuted before the server reads them.

    A client sends `(values, bytes)` uint8 per kernel. The accumulator of a `federated_aggregate`
    concatenates them; its report step, the shuffler, takes the messages
    apart, permutes every message column uniformly and on its own, over all values of all clients,
    and passes on nothing else. The server reads the permuted reports, adds up and decodes.

    A client that sends anything that no honest client can (another number of messages, a report
    that its mechanism does not make) is dropped by the shuffler with all it sent, and counted. With
    a `check`, of one report of each client, the server leaves out those that point one way.
    """

    def __init__(
        self,
        kernels: Kernels,
        values_per_client: int,
        seed: int | None = None,
        check: CollusionCheck | None = None,
    ) -> None:
        super().__init__(kernels, values_per_client)
        self._seed, self._check = seed, check

        @language.federated_computation()
        def nothing() -> Any:
            return language.federated_value((), language.SERVER)

        self.initialize = nothing

    def send(self, reports: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(kernel.pack(part) for kernel, part in zip(self.kernels, reports))

    @property
    def bits_per_client(self) -> int:
        return 8 * self.values_per_client * sum(kernel.message_bytes for kernel in self.kernels)

    def collect(self, state: Any, sent: Any) -> tuple[Any, tuple[Any, Any, Any], dict[str, Any]]:
        shuffled = self.shuffle(sent)
        read = language.federated_map(self._read(shuffled.type_signature.member), shuffled)
        came = read[0], read[1], read[2]
        return state, came, {"shuffle": read[3]}

    def shuffle(self, sent: Any) -> Any:
        """Permuted reports per kernel, and how many clients were dropped, at the server."""
        width = [kernel.message_bytes for kernel in self.kernels]
        gathered = tff.to_type((tuple(gathered_spec(size) for size in width), np.int32))

        @tff.tensorflow.computation
        def zero() -> Any:
            return tuple(nothing_gathered(size) for size in width), tf.constant(0)

        @tff.tensorflow.computation(gathered, sent.type_signature.member)
        def accumulate(so_far: Any, messages: Any) -> Any:
            return self._with_one(so_far[0], so_far[1], messages)

        @tff.tensorflow.computation(gathered, gathered)
        def merge(first: Any, second: Any) -> Any:
            parts = tuple(merged(pair) for pair in zip(first[0], second[0]))
            return parts, first[1] + second[1]

        @tff.tensorflow.computation(gathered)
        def shuffler(so_far: Any) -> Any:
            generator = self._generator()
            reports, dropped = self._possible([gathered_rows(part) for part in so_far[0]])
            permuted = tuple(k.permute(part, generator) for k, part in zip(self.kernels, reports))
            return permuted, so_far[1] + dropped

        return language.federated_aggregate(sent, zero(), accumulate, merge, shuffler)

    def _generator(self) -> Any:
        """What permutes, and deals into halves; of a seed it is the same in every round."""
        if self._seed is None:
            return client_generator()
        return seeded_generator(self._seed, 0, tf.zeros([1, 0], tf.float64))

    def _with_one(self, gathered: Any, dropped: Any, messages: Any) -> Any:
        """With the messages of one more client, if they are as many as a client has."""
        rows = tf.stack([tf.shape(part)[0] for part in messages])

        def kept() -> Any:
            one = zip(gathered, messages)
            return tuple(with_client(all_, part) for all_, part in one), dropped

        def refused() -> Any:
            return tuple(map(tuple, gathered)), dropped + 1

        return tf.cond(tf.reduce_all(tf.equal(rows, self.values_per_client)), kept, refused)

    def _possible(self, packed: Sequence[Any]) -> tuple[list[Any], Any]:
        """Reports of the clients all of whose messages are possible, and how many others are."""
        reports, possible = zip(*(k.unpack_possible(p) for k, p in zip(self.kernels, packed)))
        values = self.values_per_client
        honest = tf.reduce_all(
            tf.reshape(tf.stack(possible, axis=1), [-1, values * len(packed)]), 1
        )
        kept = tf.repeat(honest, values)
        dropped = tf.reduce_sum(tf.cast(~honest, tf.int32))
        return [tf.boolean_mask(part, kept) for part in reports], dropped

    def _read(self, shuffled_type: Any) -> Any:
        @tff.tensorflow.computation(shuffled_type)
        def read(shuffled: Any) -> Any:
            reports, impossible = shuffled
            dropped, measured = impossible, OrderedDict(impossible=impossible)
            if self._check is not None:
                kept, agreement = examine(self._check, reports[0], self._dealer())
                colluding = tf.reduce_sum(tf.cast(~kept, tf.int32))
                reports = [tf.boolean_mask(reports[0], kept)]
                dropped += colluding
                measured |= OrderedDict(colluding=colluding, agreement=agreement)
            statistics = [k.accumulate(part) for k, part in zip(self.kernels, reports)]
            clients = tf.shape(reports[0])[0] // self.values_per_client
            return tuple(statistics), clients, dropped, measured

        return read

    def _dealer(self) -> Callable[[Any], Any]:
        generator = self._generator()
        return lambda indices: tf.gather(indices, random_order(generator, tf.shape(indices)))


class Sums(Transport):
    """Integer statistics, added up by an inner factory: nobody sees less than what it shows.

    Nobody can tell whether a client sent what it may, either: where only sums arrive, one client
    can move a mean as far as the inner sum's bounds let it.
    """

    def __init__(self, kernels: Kernels, values_per_client: int, sum_factory: Any) -> None:
        super().__init__(kernels, values_per_client)
        inner = [sum_factory.create(_statistic_type(kernel)) for kernel in kernels]

        @language.federated_computation()
        def initialize() -> Any:
            return language.federated_zip(tuple(process.initialize() for process in inner))

        self.initialize, self._inner = initialize, inner

    def send(self, reports: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(kernel.accumulate(part) for kernel, part in zip(self.kernels, reports))

    @property
    def bits_per_client(self) -> int:
        entries = [(math.prod(k.statistic_shape), k.statistic_dtype.size) for k in self.kernels]
        return sum(8 * count * size for count, size in entries)

    def collect(self, state: Any, sent: Any) -> tuple[Any, tuple[Any, Any, Any], dict[str, Any]]:
        outputs = [
            process.next(
                language.federated_map(_part(state, i), state),
                language.federated_map(_part(sent, i), sent),
            )
            for i, process in enumerate(self._inner)
        ]
        ones = language.federated_value(1, language.CLIENTS)
        came = (
            language.federated_zip(tuple(output.result for output in outputs)),
            language.federated_sum(ones),
            language.federated_value(0, language.SERVER),
        )
        states = language.federated_zip(tuple(output.state for output in outputs))
        return states, came, {"sum": outputs[0].measurements}


def _statistic_type(kernel: ClientKernel) -> Any:
    return tff.TensorType(kernel.statistic_dtype.as_numpy_dtype, kernel.statistic_shape)


def _part(whole: Any, index: int) -> Any:
    """The computation that takes part `index` of a tuple like `whole`."""
    return language.federated_computation(lambda parts: parts[index], whole.type_signature.member)


# Gathering: rows of many clients, one client after another, without copying all of them for each.
#
# What was gathered is a tuple: `LEVELS` levels of `SLOTS` tensors `(rows, columns)` uint8, and one
# tensor more. A client's rows go into the first level, the others one slot on; a level that is full
# becomes one tensor of the next. A row is copied once per level, that is, a logarithmic number of
# times, where a running concatenation copies it once for every client that comes after.


def gathered_spec(columns: int) -> Any:
    """TFF's type of what was gathered."""
    return (tff.TensorType(np.uint8, (None, columns)),) * (SLOTS * LEVELS + 1)


def nothing_gathered(columns: int) -> Any:
    """Before the first client."""
    return (_none(columns),) * (SLOTS * LEVELS + 1)


def with_client(gathered: Any, rows: Any) -> Any:
    """With the rows of one more client, at least one."""
    *slots, rest = gathered
    levels = [tuple(slots[i : i + SLOTS]) for i in range(0, SLOTS * LEVELS, SLOTS)]
    return _put(levels, rest, rows)


def merged(both: Any) -> Any:
    """Two gatherings as one."""
    joined = tf.concat([gathered_rows(one) for one in both], axis=0)
    return (*nothing_gathered(joined.shape[1])[:-1], joined)


def gathered_rows(gathered: Any) -> Any:
    """All rows, as one tensor."""
    return tf.concat(list(gathered), axis=0)


def _put(levels: list[Any], rest: Any, part: Any) -> Any:
    """The same with `part` put into the first of these levels."""
    if not levels:
        return (tf.concat([rest, part], axis=0),)
    first, *others = levels
    moved = (part, *first[:-1])
    kept = tuple(tensor for level in others for tensor in level)

    def full() -> Any:
        empty = (_none(part.shape[1]),) * SLOTS
        return (*empty, *_put(others, rest, tf.concat(list(moved), axis=0)))

    def room() -> Any:
        return (*moved, *kept, rest)

    return tf.cond(tf.shape(moved[-1])[0] > 0, full, room)


def _none(columns: int | None) -> Any:
    """No rows, of a number that the type does not tell."""
    empty = tf.zeros([0, columns], tf.uint8)
    return tf.raw_ops.PlaceholderWithDefault(input=empty, shape=[None, columns])
