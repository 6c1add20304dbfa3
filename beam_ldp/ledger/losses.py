"""What charges cost together: an adaptive filter over Rényi orders that were fixed beforehand.

Later runs are chosen after seeing earlier results, so the total is read at orders that were fixed
with the budget, each at a share of delta (Feldman and Zrnic 2021): going on while *some* order fits
at the whole delta would overspend. Nine tenths of delta go to the first order, the one at which
many small losses fill the budget, so that little is lost where it matters; the others make small
spends readable. Pure epsilons add up at delta zero and cost no share.

Why shares suffice: sort what can happen by the first reading that fits at its end. Sums only grow,
so on its part each reading held all along, and there the charges are those of a program that
stops when this reading is full: (epsilon, its share)-private. The parts' shares sum to delta. The
same holds for runs that overlap (Vadhan and Zhang 2023), and where a reservation gives way to a
smaller settlement: how many reports came is the same for neighbours, so what is charged is the
divergence of what was released, given that. It would not hold for orders chosen later: they are
fixed with the first budget and stay when it is changed.

The guarantee of an event may fail with a small probability (`failure_probability`: that some public
group is smaller than supposed). Such probabilities, its *chances*, have a share of delta of their
own, a twentieth: charges are refused whose chances sum to more. With F the sum of the chances of
what was charged, each given what was seen before, and bad the event that any of them comes true: F
<= share * delta on every path, so P(bad) = E[sum of chances] <= share * delta, adaptively chosen or
not. Let P' be the run that stops, and shows that it did, at the first that comes true. Outside of
bad P and P' are one, and there every charge holds, so P(S) <= P'(S without the stop) + P(bad) <=
e^epsilon Q(S) + (shares of orders) * delta + P(bad), and nothing is taken off for Q, for Q' of such
an S is at most Q.

To read the divergences at delta - F, the chances of *this* path, is no proof: whoever looks at a
first result can spend delta on a chance where it says little, and on divergence where it says much.
The order weighs paths by likelihood, F does not: together that is up to 1.47 delta in a case of two
charges (`test_losses`), and up to twice delta at most. Charges that were fixed beforehand
(`adaptive=False`) have one F, and it is taken off delta.

A schedule that is fixed before its first release is one charge (`CommittedDpEvent`): nothing is
chosen within it, so that all of it has one distribution of losses, P against Q. With L where its
hockey stick is delta_s, P = P' + rest with P' = min(P, e^L Q) and a rest of delta_s: outside of
that rest its divergences are those of P', and the proof above holds for it word by word. A budget
for such schedules gives chances a larger share (`Budget.chances`), fixed like the orders. To price
*everything* charged so far by distributions, and to go on while they fit (a natural filter), is no
proof: what is chosen next depends on the losses so far (3.4 delta: `test_adaptive`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from beam_ldp.accounting import ShuffleAccountant
from beam_ldp.accounting.composition.accountant import counts_of
from beam_ldp.accounting.divergences.moments import epsilon_above_rdp, rdp_to_epsilon
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.events import local_epsilon_of, releases_nothing
from beam_ldp.ledger.rows import canonical
from beam_ldp.randomizers.special import brentq

_MAIN_SHARE = 0.9
CHANCES = 0.05  # share of delta for guarantees that fail with small probability; default
_MARGIN = 1e-12  # relative; what a sum of floats may exceed
_LOG_RHO = (-40.0, 20.0)  # where it is looked for
_OTHER_ORDERS = (1 / 3, 3.0, 10.0, 40.0)  # times the first one


def orders_for(epsilon: float, delta: float, chances: float = CHANCES) -> tuple[float, ...]:
    """Orders to fix with a budget and its share of delta for chances, the most important first.

    Many small losses together are Gaussian: divergence rho times the order. The first order is the
    one that reads such a loss most tightly when it has filled the budget.

    >>> [round(order, 1) for order in orders_for(1.0, 1e-8)]
    [30.7, 10.2, 92.2, 307.4, 1229.8]
    """
    grid = np.concatenate([np.linspace(1.05, 4.0, 60), np.geomspace(4.0, 1e6, 2000)])
    share, *_ = shares(1 + len(_OTHER_ORDERS), chances)

    def price(rho: float) -> float:
        return float(rdp_to_epsilon(grid, rho * grid, share * delta)[0])

    if price(math.exp(_LOG_RHO[0])) >= epsilon:  # any orders are sound: these are far off
        rho = _LOG_RHO[0]
    elif price(math.exp(_LOG_RHO[1])) <= epsilon:
        rho = _LOG_RHO[1]
    else:
        rho = brentq(lambda log: price(math.exp(log)) - epsilon, *_LOG_RHO)
    main = float(rdp_to_epsilon(grid, math.exp(rho) * grid, share * delta)[1])
    return (main, *(max(1.05, main * factor) for factor in _OTHER_ORDERS))


@dataclass(frozen=True)
class Loss:
    """The privacy loss of charges, as it adds up.

    Attributes:
        divergences: Rényi divergence at each order of the budget.
        pure: epsilon at delta zero; infinite where there is none.
        failure: chance that the divergences do not hold; the pure epsilon holds always.
    """

    divergences: tuple[float, ...]
    pure: float
    failure: float = 0.0

    @property
    def figures(self) -> tuple[float, ...]:
        """All that adds up: the divergences, the pure epsilon, the probability of failure."""
        return (*self.divergences, self.pure, self.failure)

    @classmethod
    def of(cls, figures: Iterable[float]) -> Loss:
        """Inverse of `figures`."""
        *divergences, pure, failure = figures
        return cls(tuple(divergences), pure, failure)

    def __add__(self, other: Loss) -> Loss:
        return Loss.of(a + b for a, b in self._beside(other))

    def at_least(self, other: Loss) -> Loss:
        """The larger of both, figure by figure."""
        return Loss.of(max(a, b) for a, b in self._beside(other))

    def above(self, other: Loss) -> Loss:
        """How much larger this one is, figure by figure, and nowhere below zero."""
        return Loss.of(max(0.0, a - b) if a != b else 0.0 for a, b in self._beside(other))

    def _beside(self, other: Loss) -> Iterator[tuple[float, float]]:
        return zip(self.figures, other.figures, strict=True)

    def to_json(self) -> dict[str, Any]:
        """As a row holds it; what is infinite is null."""
        told = {"divergences": list(map(finite, self.divergences)), "pure": finite(self.pure)}
        return {**told, "failure": self.failure} if self.failure else told

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Loss:
        """Inverse of `to_json`.

        Raises:
            ValueError: for what is no loss.
        """
        return cls(
            tuple(map(read_loss, told["divergences"])),
            read_loss(told["pure"]),
            read_loss(told.get("failure", 0.0)),
        )

    def epsilon(
        self,
        orders: tuple[float, ...],
        delta: float,
        *,
        adaptive: bool = True,
        chances: float = CHANCES,
    ) -> tuple[float, float]:
        """Epsilon at `delta`, and the order that gives it (infinite: the pure epsilon).

        `chances` is their share of delta. `adaptive=False`: the charges were fixed beforehand,
        and the best order costs no split.
        """
        allowed = limit(chances * delta) if adaptive else delta
        if self.failure > allowed or not delta > self.failure:
            return self.pure, math.inf
        if not adaptive:
            read = rdp_to_epsilon(
                np.array(orders), np.array(self.divergences), delta - self.failure
            )
            found, order = max(0.0, float(read[0])), float(read[1])
        else:
            readings = zip(orders, self.divergences, shares(len(orders), chances))
            found, order = min(
                (_read_at(at, divergence, share * delta), at) for at, divergence, share in readings
            )
        return (found, order) if found < self.pure else (self.pure, math.inf)


def finite(value: float) -> float | None:
    """As a row holds a loss: null where it is infinite."""
    return None if math.isinf(value) else float(value)


def read_loss(told: float | None) -> float:
    """A number >= 0, or infinity for null (ValueError for anything else)."""
    if told is None:
        return math.inf
    if isinstance(told, bool) or not (math.isfinite(told) and told >= 0):
        raise ValueError("a loss must be a finite number >= 0, or null")
    return float(told)


def _read_at(order: float, divergence: float, delta: float) -> float:
    if math.isnan(divergence):
        raise ValueError("a divergence must not be NaN")
    return max(0.0, divergence + _constant(order, delta))


@lru_cache(maxsize=4096)
def _constant(order: float, delta: float) -> float:
    """What a reading at the order adds to the divergence: the conversion is looked up, not made."""
    return float(epsilon_above_rdp(np.array([order]), delta)[0])


def no_loss(orders: tuple[float, ...]) -> Loss:
    """What nothing costs."""
    return Loss((0.0,) * len(orders), 0.0)


def loss_of(event: dict[str, Any], orders: tuple[float, ...]) -> Loss:
    """The loss of one charge.

    Args:
        event: as `event_to_json` writes it.
        orders: those of the budget.

    Raises:
        ValueError: if the event cannot be read or has no finite privacy cost under replace-one.
    """
    return _loss_of(json.dumps(event, sort_keys=True), orders)


def is_nothing(event: dict[str, Any]) -> bool:
    """Whether it is the event of a part whose price stands with another part: `NoOpDpEvent`."""
    top = event.get("event")
    return isinstance(top, dict) and top.get("kind") == "NoOpDpEvent"


def loss_of_part(event: dict[str, Any], orders: tuple[float, ...]) -> Loss:
    """The same of what was charged, some of which may be free: see `is_nothing`."""
    return no_loss(orders) if is_nothing(event) else loss_of(event, orders)


@lru_cache(maxsize=4096)
def _loss_of(event: str, orders: tuple[float, ...]) -> Loss:
    accountant = ShuffleAccountant(list(orders), adaptive=True)
    parsed = event_from_json(json.loads(event))
    if not accountant.supports(parsed):
        raise ValueError("event has no finite privacy cost under replace-one neighbours")
    if releases_nothing(parsed):
        raise ValueError("event releases nothing: there is nothing to charge")
    accountant.compose(parsed)
    divergences = tuple(max(0.0, value) for value in accountant.divergences().tolist())
    return Loss(
        divergences, float(accountant.get_epsilon(0.0)), float(accountant.failure_probability)
    )


# A schedule that was committed beforehand


_COMMITTED = "CommittedDpEvent"


def repetitions(event: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """What an event (JSON) repeats, as one of its own, and how often."""
    whole = event["event"]
    if whole["kind"] != "SelfComposedDpEvent":
        return event, 1
    return {**event, "event": whole["event"]}, int(whole["count"])


def committed(event: Any) -> bool:
    """Whether an event (JSON) holds a committed schedule anywhere."""
    if isinstance(event, dict):
        return event.get("kind") == _COMMITTED or any(map(committed, event.values()))
    return isinstance(event, list) and any(map(committed, event))


def released(event: dict[str, Any]) -> dict[str, Any]:
    """What an event releases: of a committed schedule, what it holds."""
    top = event.get("event")
    if isinstance(top, dict) and top.get("kind") == _COMMITTED:
        return {**event, "event": top["event"]}
    return event


def check_commitment(event: dict[str, Any]) -> None:
    """A ValueError where a committed schedule is a part of what is to be charged, not all of it."""
    top = event.get("event")
    whole = isinstance(top, dict) and top.get("kind") == _COMMITTED
    if committed(top["event"] if isinstance(top, dict) and whole else top):
        raise ValueError("event must be a committed schedule as a whole, or hold none")


def settled_as(reserved: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """The event that a charge is settled with, of what was reserved and what was released.

    A schedule is charged whole, wherever it ended: where it ends may depend on what was seen. Nor
    can it be committed when it is over.

    Raises:
        ValueError: for a schedule that was not reserved, or one of more than was reserved.
    """
    if committed(reserved):
        whole, part = (counts_of(event_from_json(event)) for event in (reserved, told))
        if all(count <= whole.get(kind, 0) for kind, count in part.items()):
            return reserved
    if committed(told):
        raise ValueError("event must not commit to more than was reserved, or afterwards")
    return told


def shares(orders: int, chances: float = CHANCES) -> tuple[float, ...]:
    """The shares of delta at which so many orders read the total, the first one first.

    What `chances` leave is divided alike, however much it is.
    """
    if orders == 1:
        return (1 - chances,)
    scale = (1 - chances) / (1 - CHANCES)
    rest = scale * (1 - _MAIN_SHARE - CHANCES) / (orders - 1)
    return (scale * _MAIN_SHARE, *(rest,) * (orders - 1))


def times(loss: Loss, count: int) -> Loss:
    """The loss of the same charge many times."""
    return Loss.of(count * value if count else 0.0 for value in loss.figures)


def limit(value: float) -> float:
    """A limit, with room for the rounding of sums."""
    return value * (1 + _MARGIN)


def exceeds(real: Loss, worst: Loss) -> bool:
    """Whether the first loss is above the second one anywhere."""
    return any(a > limit(b) for a, b in zip(real.figures, worst.figures, strict=True))


def local_loss_of(event: dict[str, Any]) -> float:
    """What one person's reports lose, by an event, to whoever sees them; see `local_epsilon_of`."""
    simple = _simple_local(event.get("event"))
    return _local_loss_of(json.dumps(event, sort_keys=True)) if simple is None else simple


def _simple_local(event: Any) -> float | None:
    """The same of one shuffle or one report, without making the event; None for all others."""
    kind = event.get("kind") if isinstance(event, dict) else None
    local = event.get("local_event") if kind == "ShuffledDpEvent" else event
    if kind not in ("ShuffledDpEvent", "LocalRandomizerDpEvent") or not isinstance(local, dict):
        return None
    found = local.get("local_epsilon")
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found < math.inf:
        return None
    return float(found)


@lru_cache(maxsize=4096)
def _local_loss_of(event: str) -> float:
    return local_epsilon_of(event_from_json(json.loads(event)))


def as_json(event: Any) -> dict[str, Any]:
    """The event as a ledger stores it."""
    return event if isinstance(event, dict) else event_to_json(event)


def event_digest(event: Any) -> str:
    """SHA-256 of the event's canonical JSON: what tracking servers show of it."""
    return hashlib.sha256(canonical(as_json(event))).hexdigest()
