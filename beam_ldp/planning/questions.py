"""Several questions: one of them drawn for each person, or all with a split budget?

Drawing one costs people: each question is answered by a part of them. Splitting costs budget: each
answer is noisier. Under the local promise alone drawing one is better, unless the budget is large.
Behind shufflers the central price of all answers grows only with the square root of their number,
while the local budgets add up: for a central target alone, answering everything is several times
more accurate, and leaves next to no protection before the shuffle. So the two are compared on equal
terms: neither price of the second design may be worse than that of the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from beam_ldp.accounting import (
    PrivacyBound,
    local_epsilon_for,
    shuffle_epsilon,
    shuffled_event,
)
from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.accounting.prices import event_epsilon
from beam_ldp.accounting.reports import hidden_users
from beam_ldp.accounting.shuffle.multi_message import largest_below
from beam_ldp.planning.plan import Plan, best_first, check_target, local_limit
from beam_ldp.randomizers import registry
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion, Questions

Design = Literal["one", "all"]
DESIGNS: tuple[Design, ...] = ("one", "all")
_TOLERANCE = 2e-3  # of the central price of several columns, on the safe side
_MOST_LOCAL = 12.0  # of one column: beyond it more budget buys no accuracy


def question_oracles() -> tuple[type[FrequencyOracle], ...]:
    """The oracles whose answers to several questions are planned: they mix, and the errors of sums
    of their estimates have a closed form (`pair_support`).

    >>> [oracle.__name__ for oracle in question_oracles()]
    ['KRandomizedResponse', 'SubsetSelection', 'UnaryEncoding']
    """
    silent = FrequencyOracle.pair_support
    kinds = registry.offered("frequency")
    return tuple(kind for kind in kinds if kind.mixes and kind.pair_support is not silent)


def plan_questions(
    num_users: int,
    domain_sizes: Sequence[int],
    epsilon: float | None = None,
    local_epsilon: float | None = None,
    delta: float | None = None,
    honest_fraction: float = 1.0,
    designs: Sequence[Design] = DESIGNS,
    oracles: Sequence[type[Any]] | None = None,
    max_bits: int | None = None,
    max_local_epsilon: float | None = None,
) -> list[Plan]:
    """Both designs with every oracle that may be mixed, best first.

    Args:
        num_users: people expected.
        domain_sizes: values of each question, `other` included.
        epsilon: central target for all answers of a person together. Needs `delta`.
        local_epsilon: local budget for all answers of a person together; exactly one of the two.
        delta: central delta in (0, 1).
        honest_fraction: share of people whose reports are certainly not fake.
        designs: "one", "all", or both.
        oracles: default: all `question_oracles()`.
        max_bits: largest number of bits that a person may send.
        max_local_epsilon: most local budget under a central target. Where both designs are
            compared, answering all takes no more than drawing one does.

    Raises:
        ValueError: for a target that is none, or no question.

    >>> plans = plan_questions(100_000, (10, 20, 5), local_epsilon=1.0)
    >>> plans[0].mechanism
    'OneQuestion'
    """
    hidden = hidden_users(check_reports(num_users), honest_fraction)
    check_target(epsilon, local_epsilon, delta, max_bits)
    if not domain_sizes:
        raise ValueError("domain_sizes must hold at least one question")
    sizes, rows = tuple(domain_sizes), []
    for oracle in question_oracles() if oracles is None else oracles:
        limit = local_limit(max_local_epsilon)
        for design in sorted(designs, key=DESIGNS.index):
            row = _plan(
                design, oracle, sizes, num_users, hidden, epsilon, local_epsilon, delta, limit
            )
            if max_bits is not None and row.bits_per_report > max_bits:
                said = f"{row.bits_per_report} bits per person, max_bits is {max_bits}"
                row = replace(row, excluded=row.excluded or said)
            rows.append(row)
            if row.randomizer is not None:
                limit = min(limit, row.local_epsilon)
    ranked = best_first(rows)
    best = ranked[0].randomizer
    if best is not None and delta is not None:
        ranked[0] = priced(ranked[0], hidden, delta)
    return ranked


def design_for(
    design: Design,
    oracle: type[Any],
    domain_sizes: Sequence[int],
    hidden: int,
    epsilon: float | None,
    local_epsilon: float | None,
    delta: float | None,
    max_local_epsilon: float = math.inf,
) -> Questions:
    """The design with all the budget that the target allows.

    Args:
        design, oracle, domain_sizes: what is asked, and how.
        hidden: people who hide each other.
        epsilon, local_epsilon, delta: the target, as in `plan_questions`.
        max_local_epsilon: most local budget under a central target.

    Raises:
        ValueError: if the oracle does not exist at that budget.
    """
    build = _one if design == "one" else _every
    if local_epsilon is not None:
        return build(oracle, domain_sizes, local_epsilon)
    assert epsilon is not None and delta is not None
    if max_local_epsilon < math.inf:
        found = build(oracle, domain_sizes, max_local_epsilon)
        from beam_ldp.accounting import ShuffleAccountant  # loads dp_accounting, a second

        event = shuffled_event(found, hidden)
        if not ShuffleAccountant().would_exceed(event, epsilon=epsilon, delta=delta):
            return found
    if design == "all":
        every = _every_question(oracle, domain_sizes, hidden, epsilon, delta)
        less = min(1.0, max_local_epsilon / every.local_epsilon)
        return EveryQuestion(
            tuple(oracle(one.domain_size, less * one.local_epsilon) for one in every.oracles)
        )
    budget = local_epsilon_for(epsilon, delta, hidden, lambda e: _one(oracle, domain_sizes, e))
    return _one(oracle, domain_sizes, budget)


def _one(oracle: type[Any], domain_sizes: Sequence[int], local_epsilon: float) -> Questions:
    return OneQuestion(tuple(oracle(size, local_epsilon) for size in domain_sizes))


def _every(oracle: type[Any], domain_sizes: Sequence[int], local_epsilon: float) -> Questions:
    share = local_epsilon / len(domain_sizes)
    return EveryQuestion(tuple(oracle(size, share) for size in domain_sizes))


def _every_question(
    oracle: type[Any], domain_sizes: Sequence[int], hidden: int, epsilon: float, delta: float
) -> EveryQuestion:
    """Every column at the same central price, the largest that all of them together allow."""
    build: Callable[..., FrequencyOracle] = oracle
    if len(domain_sizes) == 1:
        (size,) = domain_sizes
        budget = local_epsilon_for(epsilon, delta, hidden, partial(build, size))
        return EveryQuestion((oracle(size, budget),))

    def built(log_price: float) -> EveryQuestion:
        target, found = math.exp(log_price), []
        for size in domain_sizes:
            budget = local_epsilon_for(target, delta, hidden, partial(build, size))
            found.append(oracle(size, min(budget, _MOST_LOCAL)))
        return EveryQuestion(tuple(found))

    def price(log_price: float) -> float:
        from beam_ldp.accounting import ShuffleAccountant  # as above

        event = shuffled_event(built(log_price), hidden)
        return float(ShuffleAccountant().compose(event).get_epsilon(delta))

    guess = math.log(epsilon / math.sqrt(len(domain_sizes)))
    try:
        at = largest_below(price, epsilon, guess, math.log(epsilon), _TOLERANCE)
    except ValueError:  # no column may cost more than all of them
        at = math.log(epsilon)
    return built(at)


def _plan(
    design: Design,
    oracle: type[Any],
    domain_sizes: tuple[int, ...],
    num_users: int,
    hidden: int,
    epsilon: float | None,
    local_epsilon: float | None,
    delta: float | None,
    max_local_epsilon: float,
) -> Plan:
    name = "OneQuestion" if design == "one" else "EveryQuestion"
    try:
        found = design_for(
            design, oracle, domain_sizes, hidden, epsilon, local_epsilon, delta, max_local_epsilon
        )
    except ValueError as error:
        nothing = (math.inf,) * len(domain_sizes)
        oracle_name, reason = oracle.__name__, str(error)
        return Plan(name, None, standard_errors=nothing, oracle=oracle_name, excluded=reason)
    even = np.concatenate([np.full(size, 1 / size) for size in domain_sizes])
    return Plan(
        mechanism=name,
        randomizer=found,
        rms_error=float(np.sqrt(found.variance(num_users, even).sum())),
        standard_errors=rare_errors(found, num_users),
        oracle=oracle.__name__,
    )


def priced(plan: Plan, hidden: int, delta: float) -> Plan:
    """With its price at this delta, and that against a reader who knows the question."""
    known = price_if_known(plan.randomizer, hidden, delta)
    return replace(plan, num_hidden=hidden, delta=delta, epsilon_if_known=known)


def rare_errors(questions: Questions, num_users: int) -> tuple[float, ...]:
    """Standard error of the frequency of a value that nobody holds, for each question."""
    nobody = [np.eye(1, size, size - 1)[0] for size in questions.domain_sizes]
    variance = questions.variance(num_users, np.concatenate(nobody))
    cuts = np.cumsum(questions.domain_sizes)[:-1]
    return tuple(float(np.sqrt(part[:-1].max())) for part in np.split(variance, cuts))


def price_if_known(
    questions: Questions, hidden: int, delta: float, answers: Sequence[int] | None = None
) -> PrivacyBound:
    """The price against a reader who knows which question a person answered: the dearest of them.

    Args:
        questions: the design.
        hidden: people who hide each other.
        delta: of the price.
        answers: honest answers to each question; default: what is expected.
    """
    if isinstance(questions, EveryQuestion):
        return event_epsilon(shuffled_event(questions, hidden), delta)
    counts = answers or [max(1, int(share)) for share in questions.shares(hidden)]
    prices = {
        pair: shuffle_epsilon(pair[0], max(1, pair[1]), delta)
        for pair in set(zip(questions.oracles, counts))
    }
    return max(prices.values())
