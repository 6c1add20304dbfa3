"""What a release costs in privacy, and the events that record what ran.

Needs NumPy, SciPy and dp-accounting only, and the last for events alone. Where to read, from the
question to the mathematics:

* One release: `shuffle` (a price), `shuffle_solving` (any unknown), `shuffle_grid` (many at once);
  `mean_price` for several messages per person, with `multi_message`, `l2_messages` and
  `calibration` behind it. They stand on `hockey_stick` and `iid_sums`.
* Many releases: `reports` say what ran, `events` say it to dp-accounting, `accountant` adds up. It
  asks `event_divergences` (Rényi orders), `ledger_losses` (loss distributions: `loss_curves`
  makes one, `loss_grid` composes) and `ledger_lower` (concrete data sets: `witness_atoms`,
  `atom_losses`). `central` knows dp-accounting's own events, `thinning` people who come by a
  coin. `publications` prices the same memoized reports published again.
* Every method by name: `schedule` says what is priced, `methods` lists, `comparison` runs them;
  `method_prices` and `method_guarantees` hold what is behind a name. The published formulas are in
  `closed_forms`, `shuffle_rdp`, `subsampled_rdp`, `composition`, `conversions`, `large_n`.
* Floors for every mechanism of a local epsilon: `class_lower`.
* Personalised training as printed and as proved: `adaped`. Messages and models priced apart:
  `two_ledgers`.
* What a large local epsilon still hides: `reconstruction` (diffuse targets, bounds),
  `reconstruction_sparse`, `reconstruction_attack`, and `reconstruction_audit`, which prints all.
"""

import importlib
from typing import TYPE_CHECKING, Any

from beam_ldp.accounting.event_price import event_epsilon
from beam_ldp.accounting.hockey_stick import DeltaBounds, epsilon_bounds
from beam_ldp.accounting.privacy_bound import PrivacyBound
from beam_ldp.accounting.randomizer_events import local_event, shuffled_event
from beam_ldp.accounting.shuffle import MAX_LOCAL_EPSILON, shuffle_delta, shuffle_epsilon
from beam_ldp.accounting.shuffle_grid import shuffle_epsilons
from beam_ldp.accounting.shuffle_solving import local_epsilon_for, solve
from beam_ldp.randomizers.shuffle_pair import ShufflePair

if TYPE_CHECKING:
    from beam_ldp.accounting.accountant import ShuffleAccountant
    from beam_ldp.accounting.central import central_gaussian
    from beam_ldp.accounting.events import (
        LocalRandomizerDpEvent,
        ShuffledDpEvent,
        ShuffledMessagesDpEvent,
        SubsampledShuffledDpEvent,
    )

__all__ = [
    "MAX_LOCAL_EPSILON",
    "DeltaBounds",
    "LocalRandomizerDpEvent",
    "PrivacyBound",
    "ShuffleAccountant",
    "ShufflePair",
    "ShuffledDpEvent",
    "ShuffledMessagesDpEvent",
    "SubsampledShuffledDpEvent",
    "central_gaussian",
    "epsilon_bounds",
    "event_epsilon",
    "local_epsilon_for",
    "local_event",
    "shuffle_delta",
    "shuffle_epsilon",
    "shuffle_epsilons",
    "shuffled_event",
    "solve",
]

# dp_accounting takes a second to load, and prices do without it: events and the accountant, which
# are classes of its own, are loaded when they are asked for.
_OF_DP_ACCOUNTING = {
    "ShuffleAccountant": "accountant",
    "central_gaussian": "central",
    "LocalRandomizerDpEvent": "events",
    "ShuffledDpEvent": "events",
    "ShuffledMessagesDpEvent": "events",
    "SubsampledShuffledDpEvent": "events",
}


def __getattr__(name: str) -> Any:
    if name not in _OF_DP_ACCOUNTING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_OF_DP_ACCOUNTING[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
