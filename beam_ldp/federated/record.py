"""What a federated process has run so far, in its state, and the privacy events of it.

The record is part of the aggregator's state: what was randomized how (JSON), and how many clients'
reports every round received. It is read on the host, at any round, from the state of an
aggregation process, of a learning process, or of whatever holds one. Processes whose server adds
the noise keep a `CentralRecord` instead; it is read in the same ways.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import attr
import dp_accounting
import numpy as np

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    SubsampledShuffledDpEvent,
    local_event,
    shuffled_event,
)
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.shuffle.multi_message import messages_of
from beam_ldp.accounting.shuffle.one_release import bounded_change
from beam_ldp.federated.samplers import DeclaredSampling, SamplingMismatchError
from beam_ldp.randomizers.base import LocalRandomizer

Reader = Literal["shuffled", "local"]

_VERSION = 1


class RoundsRecord(NamedTuple):
    """The part of a state that says what ran.

    Attributes:
        config: bytes of the JSON of `RoundConfig`.
        rounds: int64 `(runs, 2)`: clients whose reports a round received, and how many rounds in a
            row received so many.
    """

    config: Any
    rounds: Any


@dataclass(frozen=True)
class RoundConfig:
    """What every client of a round does; JSON in the record.

    Attributes:
        mechanisms: `to_config()` of what a client sends, one message column (or more) each.
        values_per_client: values that a client sends a report about.
        sampling: as declared, or None.
        seeded: whether randomness was drawn from a seed, for simulation: then nothing is private.
        min_reports: fewer clients than this give no result.
        least_left: where a check of the reports leaves fewer clients than this, the round has no
            result; 0 where there is no check. Which reports are left depends on all of them, and so
            does whether there is a result: such a round costs what one of the least costs, like
            anything that is made of the reports of so many honest clients, and never less.
    """

    mechanisms: tuple[dict[str, Any], ...]
    values_per_client: int
    sampling: DeclaredSampling | None
    seeded: bool
    min_reports: int = 0
    least_left: int = 0

    def to_json(self) -> str:
        told = {**asdict(self), "version": _VERSION}
        if not self.least_left:
            del told["least_left"]  # as in records from before there was such a check
        return json.dumps(told, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> RoundConfig:
        told = json.loads(text)
        if told.pop("version", None) != _VERSION:
            raise ValueError(f"version of a privacy record must be {_VERSION}")
        sampling = told.pop("sampling")
        declared = None if sampling is None else DeclaredSampling(**sampling)
        return cls(tuple(told.pop("mechanisms")), sampling=declared, **told)

    def randomizers(self) -> list[Any]:
        """The mechanisms themselves."""
        return [LocalRandomizer.from_config(config) for config in self.mechanisms]

    def local_event(self) -> LocalRandomizerDpEvent:
        """Everything that one value's client sends about it, seen by whoever knows whose it is."""
        return joint_event(self.randomizers())

    @property
    def rounds_per_epoch(self) -> int:
        """Rounds that are one event."""
        return 1 if self.sampling is None else self.sampling.rounds_per_epoch

    def round_event(
        self, reports: int, reader: Reader, begins_epoch: bool = True
    ) -> dp_accounting.DpEvent:
        """The event of a round of which the reports of so many clients are left.

        Fewer than a sample of fixed size are the rest of one: a round that not all of them came to
        has no result, so the others sent what no honest client can.

        Of shuffled epochs the first round is the epoch, and the others are nothing but where fewer
        came than the epoch supposes.

        Raises:
            SamplingMismatchError: if the declared sampling does not give that number.
        """
        reports = max(reports, self.least_left)
        if self.rounds_per_epoch > 1:
            return self._round_of_epoch(reports, reader, begins_epoch)
        if reader == "local":
            return self.local_event() if reports else dp_accounting.NoOpDpEvent()
        if reader != "shuffled":
            raise ValueError(f'reader must be "shuffled" or "local", got {reader!r}')
        if self.sampling is not None:
            dropped = self._dropped(reports, self.sampling)
            # The price of coins is that of all that they may give, and nobody coming is among it.
            somebody = reports or self.sampling.sampling == "self"
            if somebody and not self.sampling.takes_everything(self.values_per_client):
                return self.sampling.event(self.local_event(), self.values_per_client, dropped)
        if not reports:
            return dp_accounting.NoOpDpEvent()
        crowd = reports * self.values_per_client
        events = [shuffled_event(r, crowd) for r in self.randomizers()]
        return events[0] if len(events) == 1 else dp_accounting.ComposedDpEvent(events)

    def _round_of_epoch(
        self, reports: int, reader: Reader, begins_epoch: bool
    ) -> dp_accounting.DpEvent:
        assert self.sampling is not None
        dropped, least = self._dropped(reports, self.sampling), self.sampling.allowed[0]
        if not begins_epoch and (reports >= least or reader == "local"):
            return dp_accounting.NoOpDpEvent()
        if reader == "local" or not reports:  # without a crowd: whoever was in the epoch, was once
            return self.local_event()
        if reader != "shuffled":
            raise ValueError(f'reader must be "shuffled" or "local", got {reader!r}')
        return self.sampling.event(self.local_event(), self.values_per_client, dropped)

    @staticmethod
    def _dropped(reports: int, sampling: DeclaredSampling) -> int:
        low, high = sampling.allowed
        check_clients(reports, 0 if sampling.fixed_size else low, high)
        return int(sampling.num_drawn) - reports if sampling.fixed_size else 0


def joint_event(randomizers: Sequence[Any]) -> LocalRandomizerDpEvent:
    """The event of a message of each of them, about one value; of one person, hence of one sample.

    Two-response messages are columns that are composed; others are one report of the sum. All of
    the messages of those whose vectors' length is not known may flip.
    """
    if len(randomizers) == 1:
        return local_event(randomizers[0])
    together = LocalRandomizerDpEvent(sum(r.local_epsilon for r in randomizers))
    if not all(hasattr(r, "layout") for r in randomizers):
        return together
    columns = tuple(messages for r in randomizers for messages in messages_of(r))
    together = attr.evolve(together, messages=sum(n for n, _ in columns), columns=columns)
    known = [bounded_change(r) for r in randomizers]
    if all(change is None for change, _ in known):
        return together
    most, change = math.tanh(max(budget for _, budget in columns) / 2), 0.0
    for randomizer, (its_own, _) in zip(randomizers, known):  # in flips of the largest budget
        flips = [(n, (math.tanh(b / 2) / most) ** 2) for n, b in messages_of(randomizer)]
        each = math.fsum(n * share for n, share in flips)
        change += each if its_own is None else its_own * max(share for _, share in flips)
    return attr.evolve(together, squared_change=change, places=max(p for _, p in known))


def covers(planned: dp_accounting.DpEvent, ran: dp_accounting.DpEvent) -> bool:
    """Whether a round costs at most what was planned: the same, but for a crowd as large or larger.

    >>> planned = DeclaredSampling(1000, 50, least_received=40).event(LocalRandomizerDpEvent(1), 1)
    >>> covers(attr.evolve(planned, num_received=40), planned)
    True
    >>> covers(planned, attr.evolve(planned, num_received=49))
    False
    """
    if planned == ran or type(planned) is not type(ran):
        return planned == ran
    if isinstance(planned, dp_accounting.ComposedDpEvent):
        pairs = zip(planned.events, ran.events)
        return len(planned.events) == len(ran.events) and all(covers(*pair) for pair in pairs)
    if isinstance(planned, SubsampledShuffledDpEvent):
        as_small = attr.evolve(ran, num_received=planned.num_received)
        return planned == as_small and ran.came >= planned.came
    if isinstance(planned, (ShuffledDpEvent, ShuffledMessagesDpEvent)):
        as_small = attr.evolve(ran, num_reports=planned.num_reports)
        return planned == as_small and ran.num_reports >= planned.num_reports
    return False


def check_clients(clients: int, low: int, high: int) -> None:
    """Refuses a round of a number of clients that its price does not suppose.

    Raises:
        SamplingMismatchError: which says what to do.
    """
    if not low <= clients <= high:
        gives = f"{low}" if low == high else f"{low} to {high}"
        raise SamplingMismatchError(
            f"a round of {clients} clients has no privacy cost: the declared sampling gives "
            f"{gives}. Draw a new set of clients, all of whom are available, and leave nobody out; "
            "or declare no sampling (sampling=None), at the cost of the reports that come"
        )


# Noise at the server: one event per round, and how many rounds there were -------------------


class CentralRecord(NamedTuple):
    """The part of a state that says what ran.

    Attributes:
        event: of one round: JSON text.
        rounds: int64, how many there were.
        num_clients: int64, that every round must have; 0 for any number.
    """

    event: Any
    rounds: Any
    num_clients: Any


def start_record(event: dp_accounting.DpEvent, num_clients: int = 0) -> CentralRecord:
    """The record before the first round, each of which costs `event`."""
    return CentralRecord(json.dumps(event_to_json(event)), np.int64(0), np.int64(num_clients))


def one_more(record: CentralRecord) -> CentralRecord:
    """The record after one more round."""
    return CentralRecord(record.event, record.rounds + 1, record.num_clients)


def round_event(record: CentralRecord) -> dp_accounting.DpEvent:
    """What the next round costs: ask the accountant before it runs."""
    text = record.event
    return event_from_json(json.loads(text.item() if isinstance(text, np.ndarray) else text))


def events_so_far(record: CentralRecord) -> list[tuple[dp_accounting.DpEvent, int]]:
    """Events and how often each ran, for `ShuffleAccountant.compose(event, count)`."""
    rounds = int(record.rounds)
    return [(round_event(record), rounds)] if rounds else []


# What any state tells -----------------------------------------------------------------------

Record = RoundsRecord | CentralRecord


def privacy_records(state: Any) -> list[Record]:
    """Every record in a state, in order."""
    return list(_records(state))


def privacy_events(
    state: Any, reader: Reader = "shuffled"
) -> list[tuple[dp_accounting.DpEvent, int]] | None:
    """What ran until this state: events, and how many rounds in a row were such.

    Protects one value of one client (replace-one), participation not. `reader` "shuffled" sees the
    shuffled messages, or sums of them, and models; what it may not see where sampling was declared
    is who took part. "local" sees reports with their senders: the events are those of a client who
    took part in every round.

    Args:
        state: of the aggregation process, of the learning process around it, or a structure that
            holds either.
        reader: as above.

    Returns:
        Events for `beam_ldp.accounting.ShuffleAccountant`; None if randomness came from a seed:
        such a run has no epsilon.

    Raises:
        ValueError: if the state holds no record.
        SamplingMismatchError: if a round was not what was declared.
    """
    events: list[tuple[dp_accounting.DpEvent, int]] = []
    for record in _found(state):
        if _seeded(record):
            return None
        for event, times in _rounds(record, reader):
            if not isinstance(event, dp_accounting.NoOpDpEvent):
                events.append((event, times))
    return events


def privacy_event(state: Any, reader: Reader = "shuffled") -> dp_accounting.DpEvent | None:
    """`privacy_events`, composed into one event."""
    events = privacy_events(state, reader)
    if events is None:
        return None
    return dp_accounting.ComposedDpEvent(
        [dp_accounting.SelfComposedDpEvent(event, times) for event, times in events]
    )


def planned_event(
    state: Any, num_clients: int, reader: Reader = "shuffled"
) -> dp_accounting.DpEvent | None:
    """What one more round with so many clients would add: ask before it runs.

    Returns:
        The event; None for a seeded run, which has no epsilon.

    Raises:
        ValueError: if the state holds no record.
        SamplingMismatchError: if the declared sampling does not give that number of clients, or no
            result comes of so few.
    """

    def planned(record: Record) -> dp_accounting.DpEvent:
        if isinstance(record, CentralRecord):
            exactly = int(record.num_clients)
            if exactly:
                check_clients(num_clients, exactly, exactly)
            return _event(record, num_clients, reader, 0)
        config = _config(record)
        if num_clients < config.min_reports:
            raise SamplingMismatchError(
                f"a round of {num_clients} clients gives no result: min_reports is "
                f"{config.min_reports}. Wait until more of them are available"
            )
        if config.sampling is not None:
            check_clients(num_clients, *config.sampling.allowed)
        return _event(record, num_clients, reader, _num_rounds(record))

    return _of_all(state, planned)


def last_event(state: Any, reader: Reader = "shuffled") -> dp_accounting.DpEvent | None:
    """What the last round before this state added, of the reports that it received.

    Raises:
        ValueError: if the state holds no record, or no round has run.
        SamplingMismatchError: if the round was not what was declared.
    """
    if not rounds_run(state):
        raise ValueError("state must be of a process that has run a round")
    return _of_all(
        state,
        lambda record: _event(record, _last_reports(record), reader, _num_rounds(record) - 1),
    )


def _of_all(
    state: Any, event_of: Callable[[Record], dp_accounting.DpEvent]
) -> dp_accounting.DpEvent | None:
    """One round of every record in the state, together."""
    found = _found(state)
    if any(map(_seeded, found)):
        return None
    events = list(map(event_of, found))
    return events[0] if len(events) == 1 else dp_accounting.ComposedDpEvent(events)


def _seeded(record: Record) -> bool:
    return isinstance(record, RoundsRecord) and _config(record).seeded


def _event(record: Record, reports: int, reader: Reader, number: int) -> dp_accounting.DpEvent:
    """The round of a number, from 0, that receives the reports of so many clients."""
    if isinstance(record, RoundsRecord):
        begins_epoch = number % _config(record).rounds_per_epoch == 0
        return _round_event(_text(record.config), reports, reader, begins_epoch)
    _only_models(reader)
    return round_event(record)


def _rounds(record: Record, reader: Reader) -> list[tuple[dp_accounting.DpEvent, int]]:
    """All rounds so far."""
    if isinstance(record, RoundsRecord):
        return list(_rounds_received(record, reader))
    _only_models(reader)
    return events_so_far(record)


def _rounds_received(
    record: RoundsRecord, reader: Reader
) -> Iterator[tuple[dp_accounting.DpEvent, int]]:
    """Rounds in a row that received as many: those that began an epoch, and the others."""
    text, before = _text(record.config), 0
    each = _config(record).rounds_per_epoch
    for reports, times in np.asarray(record.rounds).tolist():
        after = before + times
        begun = -(-after // each) + -before // each
        for begins_epoch, some in ((True, begun), (False, times - begun)):
            if some:
                yield _round_event(text, reports, reader, begins_epoch), some
        before = after


def _only_models(reader: Reader) -> None:
    if reader != "shuffled":
        raise ValueError('reader must be "shuffled" where the noise is the server\'s')


def last_reports(state: Any) -> int:
    """Clients whose reports count in the last round; the most of any record in the state."""
    return max(map(_last_reports, _found(state)))


def _last_reports(record: Record) -> int:
    """Clients of the last round; a process with noise at its server does not say."""
    return int(np.asarray(record.rounds)[-1, 0]) if isinstance(record, RoundsRecord) else 0


def _found(state: Any) -> list[Record]:
    found = privacy_records(state)
    if not found:
        raise ValueError("state must hold a privacy record, as made by tff_adapters")
    return found


def same_rounds(state: Any, other: Any) -> bool:
    """Whether the rounds of two states do the same, by the records in them."""
    return list(map(_what_runs, _found(state))) == list(map(_what_runs, _found(other)))


def _what_runs(record: Record) -> Any:
    if isinstance(record, RoundsRecord):
        return _config(record)
    return round_event(record), int(record.num_clients)


def least_clients(state: Any) -> int:
    """Clients without whom a round is not released, where its sampling says how many come at least.

    0 where it does not.
    """
    declared = [config.sampling for config in round_configs(state)]
    return max((one.least_received or 0 for one in declared if one is not None), default=0)


def least_left(state: Any) -> int:
    """Clients without whose reports a round that was checked has no result; 0 without a check."""
    return max((config.least_left for config in round_configs(state)), default=0)


def last_withheld(state: Any) -> bool:
    """Whether a check left too few reports of the last round before this state for a result."""
    return last_reports(state) < least_left(state)


def rounds_withheld(state: Any) -> int:
    """Rounds until this state that have no result, since a check left too few reports of them."""
    records = [one for one in privacy_records(state) if isinstance(one, RoundsRecord)]
    counts = (np.asarray(one.rounds) for one in records)
    least = least_left(state)
    return max((int(rows[rows[:, 0] < least, 1].sum()) for rows in counts), default=0)


def rounds_per_epoch(state: Any) -> int:
    """Rounds that are one event; 1 but for shuffled epochs."""
    return max((config.rounds_per_epoch for config in round_configs(state)), default=1)


def round_configs(state: Any) -> list[RoundConfig]:
    """What the clients of a round do, by each record in the state."""
    return [_config(one) for one in privacy_records(state) if isinstance(one, RoundsRecord)]


def rounds_run(state: Any) -> int:
    """Rounds until this state."""
    return max(map(_num_rounds, privacy_records(state)), default=0)


def _num_rounds(record: Record) -> int:
    counts = np.asarray(record.rounds)
    return int(counts[:, 1].sum() if isinstance(record, RoundsRecord) else counts)


def unfinished_epoch(state: Any) -> tuple[int, int]:
    """Rounds that ran of an epoch that is under way, and rounds of an epoch."""
    for record in privacy_records(state):
        if isinstance(record, RoundsRecord):
            each = _config(record).rounds_per_epoch
            if _num_rounds(record) % each:
                return _num_rounds(record) % each, each
    return 0, 1


def rounds_charged(state: Any) -> int:
    """Rounds until this state that cost something: all but empty ones; 0 for a seeded run."""
    counts = []
    for record in privacy_records(state):
        events = privacy_events(record) or []
        counts.append(sum(times for _, times in events))
    return max(counts, default=0)


def _config(record: RoundsRecord) -> RoundConfig:
    return _parsed(_text(record.config))


def _text(config: Any) -> str | bytes:
    text: str | bytes = config.item() if isinstance(config, np.ndarray) else config
    return text


# A training asks the same of every round; the mechanism is made from its configuration once.
@lru_cache(maxsize=16)
def _parsed(text: str | bytes) -> RoundConfig:
    return RoundConfig.from_json(text)


@lru_cache(maxsize=1024)
def _round_event(
    text: str | bytes, reports: int, reader: Reader, begins_epoch: bool
) -> dp_accounting.DpEvent:
    return _parsed(text).round_event(reports, reader, begins_epoch)


def _records(state: Any) -> Iterator[Record]:
    if isinstance(state, (RoundsRecord, CentralRecord)):
        yield state
    elif isinstance(state, Mapping):
        for part in state.values():
            yield from _records(part)
    elif isinstance(state, (list, tuple)):
        for part in state:
            yield from _records(part)
    elif hasattr(type(state), "__attrs_attrs__"):
        for field in type(state).__attrs_attrs__:
            yield from _records(getattr(state, field.name))
