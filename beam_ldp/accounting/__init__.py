"""What a release costs in privacy, and the events that record what ran.

Needs NumPy, SciPy and dp-accounting only, and the last for events alone. The floors, each standing
on those below it:

* `two_ledgers`: trainings that promise one thing of each message, and another of the models.
* `reconstruction`: what a large local epsilon still hides (`reconstruction_audit`: of a mechanism).
* `schedule`: the same release several times; `schedule_prices`: what that costs.
* `prices`: of any event, and of memoized reports that are published again.
* `composition`: many releases. `accountant` adds up; it asks `ledger_bounds` what they cost at most
  (by Rényi orders, or by the `loss_curves` of each) and at least. `central` knows dp-accounting's
  own events.
* `shuffle`: one release. `one_release` is what a mechanism's release is called and its price,
  `solving` any unknown or many at once; `report_curves` its hockey sticks; `mean_price` is for
  several messages per person, on top of `multi_message`; `heterogeneous` for people of several
  budgets, and for reports with a delta; `split_and_mix` for shares that nothing but the shuffle
  protects.
* `lower`: a price with what stands beside it, and floors under every price, for a mechanism and for
  all of a local epsilon.
* `reports` and `shares` say what ran and who hides whom, `events` say it to dp-accounting, and
  `event_json` writes it.
* `divergences`: the mathematics that all of them share.
"""

import importlib
from typing import TYPE_CHECKING, Any

from beam_ldp.accounting.divergences.hockey_stick import DeltaBounds, epsilon_bounds
from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.accounting.prices import event_epsilon
from beam_ldp.accounting.shuffle.one_release import (
    MAX_LOCAL_EPSILON,
    local_event,
    shuffle_delta,
    shuffle_epsilon,
    shuffled_event,
)
from beam_ldp.accounting.shuffle.solving import local_epsilon_for, shuffle_epsilons, solve
from beam_ldp.randomizers.shuffle_pair import ShufflePair

if TYPE_CHECKING:
    from beam_ldp.accounting.composition.accountant import ShuffleAccountant
    from beam_ldp.accounting.composition.central import central_gaussian
    from beam_ldp.accounting.events import (
        CommittedDpEvent,
        LocalRandomizerDpEvent,
        ShuffledDpEvent,
        ShuffledMessagesDpEvent,
        ShuffledSharesDpEvent,
        SubsampledShuffledDpEvent,
    )
    from beam_ldp.accounting.shuffle.heterogeneous import mixed_shuffled_event

__all__ = [
    "MAX_LOCAL_EPSILON",
    "CommittedDpEvent",
    "DeltaBounds",
    "LocalRandomizerDpEvent",
    "PrivacyBound",
    "ShuffleAccountant",
    "ShufflePair",
    "ShuffledDpEvent",
    "ShuffledMessagesDpEvent",
    "ShuffledSharesDpEvent",
    "SubsampledShuffledDpEvent",
    "central_gaussian",
    "epsilon_bounds",
    "event_epsilon",
    "local_epsilon_for",
    "local_event",
    "mixed_shuffled_event",
    "shuffle_delta",
    "shuffle_epsilon",
    "shuffle_epsilons",
    "shuffled_event",
    "solve",
]

# dp_accounting takes a second to load, and prices do without it: events and the accountant, which
# are classes of its own, are loaded when they are asked for.
_OF_DP_ACCOUNTING = {
    "ShuffleAccountant": "composition.accountant",
    "central_gaussian": "composition.central",
    "CommittedDpEvent": "events",
    "LocalRandomizerDpEvent": "events",
    "ShuffledDpEvent": "events",
    "ShuffledMessagesDpEvent": "events",
    "ShuffledSharesDpEvent": "events",
    "SubsampledShuffledDpEvent": "events",
    "mixed_shuffled_event": "shuffle.heterogeneous",
}


def __getattr__(name: str) -> Any:
    if name not in _OF_DP_ACCOUNTING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_OF_DP_ACCOUNTING[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
