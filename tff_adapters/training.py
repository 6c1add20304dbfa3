"""Rounds of a process of TensorFlow Federated under a budget: what leaves clients is read first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_ldp.federated import training
from beam_ldp.federated.budget import TrainingBudget
from beam_ldp.federated.training import Round, Training
from tff_adapters.flows import check_flows


def train(
    process: Any,
    clients_for: Callable[[int], Sequence[Any]],
    num_rounds: int,
    budget: TrainingBudget | None,
    *,
    state: Any = None,
    on_round: Callable[[Round], None] | None = None,
    release_managers: Sequence[Any] = (),
    public_flows: Mapping[str, str] | None = None,
) -> Training:
    """Run rounds until all are done or the next one would exceed the budget.

    Before the first, what leaves clients is read from the computation (`tff_adapters.flows`): what
    is neither an aggregator's of ours nor declared public is refused, and nothing runs. All else is
    `beam_ldp.federated.train`.

    Args:
        process: a learning process (or an aggregation process of client values) whose aggregator
            is one of ours.
        clients_for, num_rounds, budget, state, on_round, release_managers: as there. Without a
            budget nothing is read.
        public_flows: what leaves clients without a price, by its name in `flows_of(process)`, and
            the reason why it may (clients' metrics of public data, say). It is no part of any
            epsilon.

    Raises:
        UnpricedFlowError, SamplingMismatchError, ValueError: as there.
    """
    return training.train(
        process,
        clients_for,
        num_rounds,
        budget,
        state=state,
        on_round=on_round,
        release_managers=release_managers,
        flows=() if budget is None else check_flows(process, public_flows),
    )
