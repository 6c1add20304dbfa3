"""How far every mechanism's error, and every price, is from the best that is known: one page.

    python -m benchmarks.optimality             # writes docs/optimality.md; a minute

Errors are computed from the mechanisms' own laws by the planners, nothing is simulated. Prices come
from `benchmarks.price_proof`, which draws small releases and lists every data set of each.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import attr

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    epsilon_bounds,
    event_epsilon,
    local_epsilon_for,
    local_event,
    shuffle_epsilon,
    shuffled_event,
)
from beam_ldp.accounting.divergences.crowd_sizes import of_groups
from beam_ldp.accounting.divergences.moments import binomial_ppf
from beam_ldp.accounting.shuffle.multi_message import gaussian_mu
from beam_ldp.planning import plan_frequencies, plan_means
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.frequency import BinaryHadamard, KRandomizedResponse, SubsetSelection
from beam_ldp.randomizers.mean import SplitAndMixMean
from beam_ldp.randomizers.mean.lower_bounds import gaussian_reference
from benchmarks import price_proof

PAGE = Path(__file__).parents[1] / "docs" / "optimality.md"
PEOPLE, VALUES, DIMENSION = 100_000, 100, 256
BUDGETS = (1.0, 4.0, 8.0)
EPSILON, DELTA = 1.0, 1e-8
BALLS = (("l2", DIMENSION), ("l1", DIMENSION), ("linf", DIMENSION), ("binary", DIMENSION),
         ("linf", 1))  # fmt: skip
BITS = ((100, 2.0, 1e-3), (1000, 1.0, 1e-6), (1000, 4.0, 1e-6), (10_000, 2.0, 1e-8),
        (10_000, 6.0, 1e-6), (100_000, 4.0, 1e-6), (10**6, 4.0, 1e-8), (10**9, 5.0, 1e-9),
        (10**12, 10.0, 1e-9))  # fmt: skip
TARGETS = ((300, 1.0, 1e-5), (1000, 0.5, 1e-6), (10_000, 0.1, 1e-6), (100_000, 1.0, 1e-6),
           (10**6, 0.1, 1e-9))  # fmt: skip


class Local(NamedTuple):
    """A mechanism under a local budget.

    Attributes:
        task: what it estimates.
        mechanism: name of the class.
        times: squared error over the optimum, one per budget; NaN where it does not exist.
        bits: of a report at the middle budget.
    """

    task: str
    mechanism: str
    times: tuple[float, ...]
    bits: int


class Central(NamedTuple):
    """A mechanism under a central target: squared error over the curator's; price over attack."""

    task: str
    mechanism: str
    local_epsilon: float
    bits: int
    times: float
    above_attack: float


def task_of(norm: str, dimension: int) -> str:
    """In words."""
    return "a number" if dimension == 1 else f"{dimension} coordinates, {norm}"


def frequency_rows() -> list[Local]:
    """Every oracle, over `SubsetSelection`, which no mechanism is known to beat."""
    found: dict[str, list[float]] = {}
    bits: dict[str, int] = {}
    for i, budget in enumerate(BUDGETS):
        plans = plan_frequencies(PEOPLE, VALUES, local_epsilon=budget)
        least = next(p.rms_error for p in plans if p.mechanism == SubsetSelection.__name__)
        for plan in plans:
            times = found.setdefault(plan.mechanism, [math.nan] * len(BUDGETS))
            if not plan.excluded:
                times[i] = (plan.rms_error / least) ** 2
                if i == 1:
                    bits[plan.mechanism] = plan.bits_per_report
    return [
        Local(f"{VALUES} values", name, tuple(times), bits.get(name, 0))
        for name, times in sorted(found.items(), key=lambda item: item[1][1])
    ]


def mean_rows(norm: str, dimension: int) -> list[Local]:
    """Every mechanism of a ball, over the proved bound."""
    found: dict[str, list[float]] = {}
    bits: dict[str, int] = {}
    for i, budget in enumerate(BUDGETS):
        for plan in plan_means(PEOPLE, dimension, norm, local_epsilon=budget, model="local"):  # type: ignore[arg-type]
            times = found.setdefault(plan.mechanism, [math.nan] * len(BUDGETS))
            if not plan.excluded:
                times[i] = plan.times_lower_bound
                if i == 1:
                    bits[plan.mechanism] = plan.bits_per_report
    return [
        Local(task_of(norm, dimension), name, tuple(times), bits.get(name, 0))
        for name, times in sorted(found.items(), key=lambda item: item[1][1])
    ]


def local_rows() -> list[Local]:
    """The first table."""
    return [*frequency_rows(), *(row for ball in BALLS for row in mean_rows(*ball))]


def central_rows(norm: str, dimension: int) -> list[Central]:
    """Every mechanism of a ball whose price is the target, the best first."""
    task, found = task_of(norm, dimension), []
    if norm == "l2":
        shares = SplitAndMixMean.for_shuffle(dimension, EPSILON, DELTA, PEOPLE, honest_fraction=1.0)
        reference = gaussian_reference(dimension, gaussian_mu(EPSILON, DELTA), PEOPLE)
        times = shares.mean_squared_error(PEOPLE) / reference
        price = event_epsilon(shuffled_event(shares, PEOPLE), DELTA)
        found.append(Central(
            task, "SplitAndMixMean", math.inf, shares.bits_per_report, times, price / price.lower
        ))  # fmt: skip
    for plan in plan_means(PEOPLE, dimension, norm, epsilon=EPSILON, delta=DELTA):  # type: ignore[arg-type]
        if plan.excluded or plan.epsilon is None:
            continue
        above = plan.epsilon / plan.epsilon.lower if plan.epsilon.lower else math.nan
        found.append(Central(
            task, plan.mechanism, plan.local_epsilon, plan.bits_per_report,
            plan.times_lower_bound, above,
        ))  # fmt: skip
    return found


class OneBit(NamedTuple):
    """The price of one bit: by its blanket, over all data sets, of a concrete one; and its time."""

    people: int
    local_epsilon: float
    delta: float
    blanket: float
    epsilon: float
    lower: float
    milliseconds: float


def _by_blanket(mechanism: KRandomizedResponse) -> LocalRandomizerDpEvent:
    """As if it were not known that its reports are bits."""
    return attr.evolve(shuffled_event(mechanism, 2).local_event, outputs=0)


def bit_rows() -> list[OneBit]:
    """Randomized response of a bit."""
    found = []
    for people, budget, delta in BITS:
        mechanism = KRandomizedResponse(2, budget)
        shuffle_epsilon(mechanism, people - 1, delta)  # warm
        start = time.process_time()
        bound = shuffle_epsilon(mechanism, people, delta)
        spent = 1e3 * (time.process_time() - start)
        blanket = float(shuffle_epsilon(_by_blanket(mechanism), people, delta))
        found.append(OneBit(people, budget, delta, blanket, float(bound), bound.lower, spent))
    return found


def target_rows() -> list[tuple[int, float, float, float, float]]:
    """People, epsilon, delta, and the local epsilon that they allow, by the blanket and now."""
    found = []
    for people, epsilon, delta in TARGETS:
        before = local_epsilon_for(
            epsilon, delta, people, lambda e: _by_blanket(KRandomizedResponse(2, e))
        )
        now = local_epsilon_for(epsilon, delta, people, lambda e: KRandomizedResponse(2, e))
        found.append((people, epsilon, delta, before, now))
    return found


def _bits() -> Iterator[str]:
    yield _ONE_BIT
    yield "| people | local epsilon | delta | blanket | now | blanket / now | now / attack | ms |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in bit_rows():
        yield (
            f"| {row.people:,} | {row.local_epsilon:g} | {row.delta:g} | {row.blanket:.5g} | "
            f"{row.epsilon:.5g} | {row.blanket / row.epsilon:.3f} | {row.epsilon / row.lower:.4f} "
            f"| {row.milliseconds:.0f} |"
        )
    yield ""
    yield "| people | epsilon | delta | local epsilon by the blanket | now | error, squared |"
    yield "|---|---|---|---|---|---|"
    for people, epsilon, delta, before, now in target_rows():
        first, second = (math.exp(e) / math.expm1(e) ** 2 for e in (before, now))
        yield (
            f"| {people:,} | {epsilon:g} | {delta:g} | {before:.4f} | {now:.4f} | "
            f"1 / {first / second:.3f} |"
        )


def page(
    local: Sequence[Local], central: Sequence[Central], prices: Sequence[price_proof.Row]
) -> str:
    """Markdown."""
    parts = (
        _local(local),
        _central(central),
        _prices(prices),
        _public(),
        _bits(),
        [_OPEN.rstrip()],
    )
    return "\n".join(line for part in parts for line in part) + "\n"


_HEAD = """# How far from the best

Squared errors over the least that is possible or known, and prices over the least that is known, of
every mechanism and every kind of event. No figure is simulated; `python -m benchmarks.optimality`
writes this page.

## Errors where nobody but the device is trusted

Means are compared with a [proved bound](means.md#times-what) of all unbiased mechanisms, which is
attained on the l2 ball; frequencies with `SubsetSelection`, which is optimal for many people (Ye
and Barg 2018). Elsewhere nothing is known to attain the bound, so that ratios above one need be
nobody's fault: numbers inside their range at large budgets, l1 and linf above a budget of log 3.
"""


def _local(rows: Sequence[Local]) -> Iterator[str]:
    yield _HEAD
    yield (
        "| task | mechanism | " + " | ".join(f"local epsilon {b:g}" for b in BUDGETS) + " | bits |"
    )
    yield "|---" * (3 + len(BUDGETS)) + "|"
    for row in rows:
        times = " | ".join(readable(t) if math.isfinite(t) else "" for t in row.times)
        bits = f"{row.bits:,}" if row.bits else ""
        yield f"| {row.task} | {row.mechanism} | {times} | {bits} |"
    yield ""
    yield f"Bits: of a report at a local epsilon of {BUDGETS[1]:g}."


_BEHIND = f"""
## Errors behind a shuffler

{PEOPLE:,} people, all honest, epsilon {EPSILON:g} at delta {DELTA:g} by each mechanism's own price.
The reference is a trusted curator's noise, Gaussian or Laplace: no bound. *Price over attack*:
epsilon over what one concrete pair of data sets costs; the true epsilon lies between. Where the
local epsilon is above 8, the shuffler [must be trusted](choosing.md#2-whom-do-people-trust).
"""


def _central(rows: Sequence[Central]) -> Iterator[str]:
    yield _BEHIND
    yield "| task | mechanism | local epsilon | bits | times curator | price over attack |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        local = f"{row.local_epsilon:,.4g}" if math.isfinite(row.local_epsilon) else "infinite"
        above = f"{row.above_attack:.3f}" if math.isfinite(row.above_attack) else ""
        yield (
            f"| {row.task} | {row.mechanism} | {local} | {row.bits:,} | {readable(row.times)} | "
            f"{above} |"
        )
    yield ""
    yield "More rows, by bits and by local epsilon: `benchmarks/results/l2_frontier.md`."


_PRICED = """
## Prices

Epsilon over the least that is known otherwise (optimal composition, the clone pair listed,
amplification by sampling), of {} random small releases of each kind, all of whose data sets are
listed; *over truth* compares with the epsilon of the worst of them. *Broken* counts prices below
the truth and lower bounds above it.
"""


_ONE_BIT = """
## One bit

What is answered by yes or no, told by randomized response: a column of yes and no, the mean of
numbers in one bit each, a step of an A/B test or a bandit, a bit of a vector, the row of a public
`BinaryHadamard`. Its price is that of all data sets, certified by branch and bound; *blanket* is
what was charged before, *attack* the epsilon of a concrete data set.
"""


def _prices(rows: Sequence[price_proof.Row]) -> Iterator[str]:
    yield _PRICED.format(rows[0].configurations)
    yield "| kind of event | over best known, median | largest | over truth, median | broken |"
    yield "|---|---|---|---|---|"
    for row in rows:
        yield (
            f"| {row.kind} | {row.above_known[0]:.4f} | {row.above_known[1]:.4f} | "
            f"{row.above_truth[0]:.4f} | {row.broken} |"
        )


_PUBLIC = """
## Public rows

Epsilon of `BinaryHadamard` where it is public who has which row. *Smallest row*: the price of the
people that every row has but for a chance of 1e-12, which was charged before; *mean*: over the
sizes of the own row, in 60 blocks; *blanket*: that times the rows that tell two values apart;
*price*: the same of what one bit costs over all data sets (next table), as charged; *attack*: one
concrete pair of data sets.

| values | local epsilon | people | delta | smallest row | mean | blanket | price | attack | ms |
|---|---|---|---|---|---|---|---|---|---|"""
_PUBLIC_CASES = (
    (16, 1.0, 10**4, 1e-6),
    (100, 2.0, 10**5, 1e-6),
    (1000, 1.0, 10**6, 1e-8),
    (1000, 3.0, 10**7, 1e-8),
)
_OPEN = """
## What is open

What is charged above the dearest data set known, where nothing sharper is proved:

* `BinaryHadamard` and `LimitedHadamard` with a *private* row, up to 1.34. Their blanket lets half
  of the reports of a row hide nobody. That the worst others all hold one value, whose price is
  the attack's, is a conjecture: so it is among all data sets in 84 of 84 enumerations (4 values
  of 4 to 8 people, 8 values of 4 people; both directions). No proof excludes others who hold
  further values.
* `UnaryEncoding` and `Rappor` 1.062, `SubsetSelection` 1.058, `LocalHashing` 1.037,
  `PairwiseIndependentRappor` 1.035, at a local epsilon of 2. What everybody's report has in common
  is all that hides a person there; what else others say hides people too, and is not counted. Of
  two reports the law of all others is known for every data set; of three or more it is not known
  which others are the worst.
* `L2Mean` 1.7 to 2.6: a person's bits change by a length in all, and the bound for that is by
  moments.
* A sample with fakes in it, 3.06 where a handful of people are drawn: as many fakes are supposed as
  are drawn but for a chance of 1e-12. The mean over how many are drawn, each at its own crowd and
  rate, holds as that over the sizes of a row does. It is not charged: certificates have no step.

The lower bound of 1e9 rounds of noise is 0.9996 of the price (it was 0.16); of 1e12 it is 0.92.
"""


def _public() -> Iterator[str]:
    yield _PUBLIC
    for values, budget, people, delta in _PUBLIC_CASES:
        oracle = BinaryHadamard(values, budget, row="public")
        pair, groups = oracle.dominating_pair(), oracle.public_groups
        least = binomial_ppf(1e-12 / groups, people, 1 / groups)
        was = epsilon_bounds(pair, least, delta - 1e-12)[1]
        mean = epsilon_bounds(pair, of_groups(people, groups), delta)[1]
        blanket = shuffle_epsilon(attr.evolve(local_event(oracle), outputs=0), people, delta)
        shuffle_epsilon(oracle, people - 1, delta)  # warm
        start = time.process_time()
        price = shuffle_epsilon(oracle, people, delta)
        spent = 1e3 * (time.process_time() - start)
        yield (
            f"| {values:,} | {budget:g} | {people:,} | {delta:g} | {was:.4f} | {mean:.4f} | "
            f"{blanket:.4f} | {price:.4f} | {price.lower:.4f} | {spent:.0f} |"
        )


def main(argv: Sequence[str] | None = None) -> str:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--configurations", type=int, default=price_proof.CONFIGURATIONS)
    parser.add_argument("--output", type=Path, default=PAGE)
    told = parser.parse_args(argv)
    prices = [price_proof.row_of(kind, told.configurations) for kind in price_proof.KINDS]
    central = [row for ball in BALLS for row in central_rows(*ball)]
    text = page(local_rows(), central, prices)
    told.output.write_text(text, encoding="utf-8")
    return text


if __name__ == "__main__":
    main()
