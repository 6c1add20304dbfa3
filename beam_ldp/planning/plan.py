"""What every plan says, what it must meet, and how plans are ranked, whatever is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from beam_ldp.accounting import PrivacyBound, shuffle_epsilon, shuffled_event
from beam_ldp.accounting.prices import event_epsilon
from beam_ldp.accounting.shuffle.one_release import shuffled_reports
from beam_ldp.randomizers.checks import check_fraction, check_positive
from beam_ldp.randomizers.question_set import Questions
from beam_ldp.settings.sections import MAX_LOCAL_EPSILON

_EQUAL = 1.01  # errors within 1 % count as equal: then fewer bits win


@dataclass(frozen=True)
class Plan:
    """One mechanism, tuned to the target, with its price and its predicted error.

    Errors are computed from the mechanism's own law, without simulation: of frequencies and ranges
    in fractions of users, of means in the unit of the data, for the worst vectors of the ball
    (and nothing about clipping of vectors outside it).

    Attributes:
        mechanism: Name of the class.
        randomizer: The mechanism itself; None if it does not exist for this task and budget.
        rms_error: Root of the expected squared error of the whole answer: of a histogram (of all
            questions together), users being spread evenly over the values; of a range whose ends
            are drawn evenly; of a mean vector, with the most that the mechanism itself (truncation
            after a public rotation, projections) shifts it by, on average over its public
            randomness.
        standard_errors: Predicted standard error, question by question, of the frequency of a
            value that nobody holds, others being spread evenly; the largest of a coordinate of a
            mean, noise only.
        worst_error: The largest standard error over all values and all truths; of ranges, of the
            distribution function at an edge.
        mean_squared_error: Of a mean: expected squared Euclidean error, noise only.
        times_lower_bound: Of a mean: `rms_error` squared over the value that `lower_bound_name`
            names.
        lower_bound_name: With a local budget, a proved bound that no unbiased mechanism is below;
            with a central target a trusted curator's error: a reference, not a bound.
        num_hidden: Honest reports, which hide each other.
        delta: Of the central price; None for a plan that is not priced.
        decoding: Cost of turning n reports into the estimate; empty if the mechanism says nothing.
        oracle: Of several questions or levels: the frequency oracle that all of them use.
        tree: Of ranges: the `Hierarchy`.
        epsilon_if_known: Of several questions: the price against a reader who knows which one a
            person answered.
        excluded: Why this row is not to be used; empty if it may be.
    """

    mechanism: str
    randomizer: Any
    rms_error: float = math.inf
    standard_errors: tuple[float, ...] = ()
    worst_error: float = math.inf
    mean_squared_error: float = math.inf
    times_lower_bound: float = math.inf
    lower_bound_name: str = ""
    num_hidden: int = 1
    delta: float | None = None
    decoding: str = ""
    oracle: str = ""
    tree: Any = None
    epsilon_if_known: PrivacyBound | None = None
    excluded: str = ""

    @property
    def local_epsilon(self) -> float:
        """Budget of everything that one user sends, against whoever sees it before the shuffle;
        NaN without a mechanism. Mechanisms earn different ones for the same central target, and
        those whose messages are shuffled apart have a large one."""
        return math.nan if self.randomizer is None else float(self.randomizer.local_epsilon)

    @property
    def standard_error(self) -> float:
        """The largest of `standard_errors`."""
        return max(self.standard_errors, default=math.inf)

    @property
    def bits_per_report(self) -> int:
        """Bits of everything that one user sends."""
        return 0 if self.randomizer is None else int(self.randomizer.bits_per_report)

    @property
    def messages_per_user(self) -> int:
        """Messages, each shuffled on its own."""
        return 0 if self.randomizer is None else int(self.randomizer.messages_per_user)

    @cached_property
    def epsilon(self) -> PrivacyBound | None:
        """Central price at `delta`, with its lower bounds, which take longest; at a delta of 0, as
        in the local model, the local epsilon."""
        mechanism = self.randomizer
        if mechanism is None or self.delta is None:
            return None
        if isinstance(mechanism, Questions):
            return event_epsilon(shuffled_event(mechanism, self.num_hidden), self.delta)
        if not mechanism.protects_alone:
            return event_epsilon(shuffled_reports(mechanism, self.num_hidden), self.delta)
        return shuffle_epsilon(mechanism, self.num_hidden, self.delta)

    @cached_property
    def random_bits(self) -> float | None:
        """What a report takes of them at least, on average; None where the mechanism is silent."""
        try:
            return None if self.randomizer is None else self.randomizer.cond_entropy_bits
        except NotImplementedError:
            return None

    @property
    def trusted(self) -> str:
        """Who must be trusted, lest everybody's vector be all but read: "device" alone where a
        local epsilon of at most 8 holds against everybody else, else "shuffler" too."""
        return "device" if self.local_epsilon <= MAX_LOCAL_EPSILON else "shuffler"

    @property
    def config(self) -> dict[str, Any]:
        """The mechanism's parameters, as `LocalRandomizer.from_config` takes them."""
        return {} if self.randomizer is None else self.randomizer.to_config()


def best_first(plans: Sequence[Plan]) -> list[Plan]:
    """Usable plans by error, by bits where errors are equal to 1 %; then those left out."""
    usable = [plan.rms_error for plan in plans if not plan.excluded]
    best = min(usable, default=1.0)

    def rank(plan: Plan) -> tuple[bool, float, int, str]:
        level = 0.0
        if not plan.excluded:
            level = math.floor(math.log(plan.rms_error / best, _EQUAL))
        return bool(plan.excluded), level, plan.bits_per_report, plan.mechanism

    return sorted(plans, key=rank)


def local_limit(max_local_epsilon: float | None) -> float:
    """The largest local epsilon; infinite where there is no limit. Raises ValueError."""
    if max_local_epsilon is None:
        return math.inf
    if not max_local_epsilon > 0:
        raise ValueError(f"max_local_epsilon must be > 0, got {max_local_epsilon!r}")
    return max_local_epsilon


def check_target(
    epsilon: float | None,
    local_epsilon: float | None,
    delta: float | None,
    max_bits: int | None,
    *,
    shuffled: bool = True,
) -> None:
    """A ValueError unless the target is one: exactly one budget, a delta where it is needed."""
    if (epsilon is None) == (local_epsilon is None):
        raise ValueError("exactly one of epsilon and local_epsilon must be given")
    for name, value in (("epsilon", epsilon), ("local_epsilon", local_epsilon)):
        if value is not None:
            check_positive(name, value)
    if epsilon is not None and delta is None and shuffled:
        raise ValueError("delta must be given with epsilon")
    if delta is not None:
        check_fraction("delta", delta)
    if max_bits is not None and not max_bits >= 1:
        raise ValueError(f"max_bits must be >= 1, got {max_bits!r}")
