"""Random small releases of every kind: lower bound, enumerated truth, our price, the best known.

    python -m benchmarks.price_proof            # writes benchmarks/results/price_proof.md

Of each kind of event some hundred configurations are drawn whose every data set can be listed. The
truth is the least epsilon at which the worst two neighbours are within delta (for events of any
randomizer: the worst of the randomizers listed). A row of the table fails where the order
lower <= truth <= ours is broken once, and says by how much our price exceeds the truth and the
least price that is known otherwise, computed here by other programs than ours.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from scipy.optimize import brentq

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
    local_event,
    mixed_shuffled_event,
    shuffled_event,
)
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.questions import EveryQuestion
from tests.accounting.brute_force import (
    Pairs,
    channel_pairs,
    coin_pairs,
    crowd_law,
    mixed_pairs,
    response_rows,
    two_level_pairs,
)

PAGE = Path(__file__).parent / "results" / "price_proof.md"
CONFIGURATIONS = 200
ROUNDING = 1e-6  # of epsilons, relative
MOST_ABOVE_KNOWN = 1.05
LEAST = 1e-5  # below, all epsilons are taken for this much


@dataclass(frozen=True)
class Case:
    """One release.

    Attributes:
        event: what is priced, and how often.
        count: rounds.
        delta: at which.
        truths: neighbours of every listed randomizer, all data sets.
        known: the least epsilon that is known otherwise.
    """

    event: Any
    count: int
    delta: float
    truths: Sequence[Pairs]
    known: float

    def compared(self) -> tuple[float, float, float, float]:
        """Lower bound, truth, our price, best known."""
        bound = ShuffleAccountant().compose(self.event, self.count).get_epsilon(self.delta)
        truth = max(epsilon_of(pairs, self.delta) for pairs in self.truths)
        lower = bound.lower if len(self.truths) == 1 else bound.class_lower or 0.0
        found = (lower, truth, float(bound), self.known)
        return tuple(max(LEAST, one) for one in found)  # type: ignore[return-value]


# What is known without our accountant --------------------------------------------------------


def epsilon_of(pairs: Pairs, delta: float) -> float:
    """The least epsilon of all these neighbours."""
    if pairs.sticks([0.0])[0] <= delta:
        return 0.0
    return float(brentq(lambda e: pairs.sticks([e])[0] - delta, 0.0, 60.0, xtol=1e-12))


def repeated(pairs: Pairs, count: int) -> Pairs:
    """So many independent releases about the same people."""
    found = pairs
    for _ in range(count - 1):
        found = found.times(pairs)
    return found


def optimal_composition(epsilon: float, count: int, delta: float) -> float:
    """Kairouz, Oh and Viswanath (2015): the least epsilon of so many mechanisms of that epsilon."""
    chances = stats.binom.pmf(np.arange(count + 1), count, 1 / (1 + math.exp(-epsilon)))
    losses = (2 * np.arange(count + 1) - count) * epsilon

    def excess(total: float) -> float:
        return float(np.sum(chances * np.maximum(0.0, -np.expm1(total - losses)))) - delta

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, count * epsilon, xtol=1e-13))


def clones(epsilon: float, people: int) -> Pairs:
    """The pair of Feldman, McMillan and Talwar (2021), Theorem 3.2, listed."""
    truth, first, second = 1 / (1 + math.exp(-epsilon)), {}, {}
    for c in range(people):
        crowd = stats.binom.pmf(c, people - 1, math.exp(-epsilon))
        for a in range(c + 1):
            chance = crowd * stats.binom.pmf(a, c, 0.5)
            for law, one in ((first, truth), (second, 1 - truth)):
                for key, share in (((a + 1, c - a), one), ((a, c - a + 1), 1 - one)):
                    law[key] = law.get(key, 0.0) + chance * share
    keys = sorted(first)
    return Pairs(*(np.array([[law[key] for key in keys]]) for law in (first, second)))


def clone_epsilon(epsilon: float, people: int, delta: float) -> float:
    """The least epsilon of that pair, or the local one."""
    return min(epsilon, epsilon_of(clones(epsilon, people), delta))


def sampled_epsilon(epsilon: float, people: int, delta: float, rate: float, count: int) -> float:
    """Of a sample: the clones' guarantee of those who came, amplified, composed by optimal
    composition of pure budgets; or the local budgets, composed."""
    plain = optimal_composition(epsilon, count, delta)
    if count > 1:
        return plain
    within = clone_epsilon(epsilon, people, min(0.999999, delta / rate))
    return min(plain, math.log1p(rate * math.expm1(within)))


def coin_epsilon(epsilon: float, people: int, rate: float, delta: float) -> float:
    """Of people who throw coins, how many came being seen: a sample of each size, by the clones."""
    chances = stats.binom.pmf(np.arange(people + 1), people, rate)
    pairs = [clones(epsilon, came) for came in range(1, people + 1)]

    def excess(total: float) -> float:
        found = -delta
        for came, pair in enumerate(pairs, 1):
            share = came / people
            within = math.log1p(math.expm1(total) / share)
            found += chances[came] * share * pair.sticks([within])[0]
        return float(found)

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, epsilon, xtol=1e-12))


# The kinds -----------------------------------------------------------------------------------


def some(rng: np.random.Generator) -> tuple[float, float, int]:
    """A local epsilon, a delta, a number of values."""
    epsilon = float(np.exp(rng.uniform(math.log(0.1), math.log(4.0))))
    return epsilon, float(10 ** rng.uniform(-6, -1.5)), int(rng.integers(2, 4))


def response(values: int, epsilon: float) -> tuple[Any, np.ndarray]:
    """The event of randomized response as implemented, and its law."""
    oracle = KRandomizedResponse(values, epsilon)
    return local_event(oracle), oracle.channel().T


def local_reports(rng: np.random.Generator) -> Case:
    """Reports that are seen with names, several rounds."""
    epsilon, delta, values = some(rng)
    event, rows = response(values, epsilon)
    count = int(rng.integers(1, 5))
    truth = repeated(channel_pairs(rows, 1), count)
    return Case(event, count, delta, [truth], optimal_composition(epsilon, count, delta))


def any_shuffle(rng: np.random.Generator) -> Case:
    """All that is known is the local epsilon."""
    epsilon, delta, _ = some(rng)
    people = int(rng.integers(1, 7))
    event = ShuffledDpEvent(LocalRandomizerDpEvent(epsilon), people)
    truths = [channel_pairs(response_rows(values, epsilon), people) for values in (2, 3)]
    return Case(event, 1, delta, truths, clone_epsilon(epsilon, people, delta))


def own_shuffle(rng: np.random.Generator) -> Case:
    """The mechanism's own table."""
    epsilon, delta, values = some(rng)
    event, rows = response(values, epsilon)
    people = int(rng.integers(1, 7))
    truth = channel_pairs(rows, people)
    known = clone_epsilon(epsilon, people, delta)
    return Case(ShuffledDpEvent(event, people), 1, delta, [truth], known)


def several_budgets(rng: np.random.Generator) -> Case:
    """One crowd of two local epsilons, and who has which is known."""
    epsilon, delta, values = some(rng)
    smaller = float(epsilon * rng.uniform(0.05, 1.0))
    counts = rng.integers(1, 4 if values == 2 else 3, 2)
    oracles = KRandomizedResponse(values, epsilon), KRandomizedResponse(values, smaller)
    kinds = [(oracle, int(n)) for oracle, n in zip(oracles, counts, strict=True)]
    truth = mixed_pairs([oracle.channel().T for oracle, n in kinds for _ in range(n)])
    known = clone_epsilon(epsilon, int(counts.sum()), delta)
    return Case(mixed_shuffled_event(kinds), 1, delta, [truth], known)


def shuffle_with_fakes(rng: np.random.Generator) -> Case:
    """Fakes hide nobody."""
    epsilon, delta, values = some(rng)
    event, rows = response(values, epsilon)
    honest, fakes = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    shuffled = ShuffledDpEvent(event, honest + fakes, num_fakes=fakes)
    known = clone_epsilon(epsilon, honest, delta)
    return Case(shuffled, 1, delta, [channel_pairs(rows, honest)], known)


def repeated_shuffles(rng: np.random.Generator) -> Case:
    """Of the same people, fresh noise each."""
    epsilon, delta, _ = some(rng)
    event, rows = response(2, epsilon)
    people, count = int(rng.integers(1, 6)), int(rng.integers(2, 4))
    truth = repeated(channel_pairs(rows, people), count)
    known = epsilon_of(repeated(clones(epsilon, people), count), delta)
    known = min(known, optimal_composition(epsilon, count, delta))
    return Case(ShuffledDpEvent(event, people), count, delta, [truth], known)


def two_columns(rng: np.random.Generator) -> Case:
    """Two questions to everybody, each shuffled on its own."""
    epsilon, delta, _ = some(rng)
    oracles = KRandomizedResponse(2, epsilon), KRandomizedResponse(2, 0.7 * epsilon)
    people = int(rng.integers(1, 6))
    one, two = (channel_pairs(oracle.channel().T, people) for oracle in oracles)
    places = np.indices((len(one.first), len(two.first))).reshape(2, -1)  # all data sets of both
    both = (Pairs(p.first[at], p.second[at]) for p, at in zip((one, two), places, strict=True))
    truth = next(both).times(next(both))
    known = epsilon_of(clones(epsilon, people).times(clones(0.7 * epsilon, people)), delta)
    event = shuffled_event(EveryQuestion(oracles), people)
    return Case(event, 1, delta, [truth], min(known, 1.7 * epsilon))


def any_sample(rng: np.random.Generator) -> Case:
    """Of all people some, at random."""
    epsilon, delta, _ = some(rng)
    people = int(rng.integers(2, 6))
    drawn = int(rng.integers(1, people + 1))
    event = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(epsilon), people, drawn)
    truths = [channel_pairs(response_rows(values, epsilon), people, drawn) for values in (2, 3)]
    return Case(event, 1, delta, truths, sampled_epsilon(epsilon, drawn, delta, drawn / people, 1))


def own_sample(rng: np.random.Generator) -> Case:
    """The same with an own table, once or twice."""
    epsilon, delta, values = some(rng)
    local, rows = response(values, epsilon)
    people, count = int(rng.integers(2, 6)), 1
    drawn = int(rng.integers(1, people + 1))
    event = SubsampledShuffledDpEvent(local, people, drawn)
    truth = channel_pairs(rows, people, drawn)
    if values == 2 and rng.random() < 0.5:
        count, truth = 2, repeated(truth, 2)
    known = sampled_epsilon(epsilon, drawn, delta, drawn / people, count)
    return Case(event, count, delta, [truth], known)


def coins(sampling: str) -> Callable[[np.random.Generator], Case]:
    """People, or each of their points, who come by a coin; how many came is seen."""

    def case(rng: np.random.Generator) -> Case:
        epsilon, delta, _ = some(rng)
        local, rows = response(2, epsilon)
        people, rate = int(rng.integers(2, 6)), float(rng.uniform(0.1, 0.95))
        event = SubsampledShuffledDpEvent(local, people, rate * people, sampling=sampling)
        truth = coin_pairs(rows, people, 1, rate, sampling == "poisson")
        return Case(event, 1, delta, [truth], coin_epsilon(epsilon, people, rate, delta))

    return case


def several_points(rng: np.random.Generator) -> Case:
    """Clients who hold several points, of which some are sent."""
    epsilon, delta, _ = some(rng)
    shapes = [(3, 2, 2, 1), (3, 2, 1, 1), (2, 3, 2, 1), (2, 3, 1, 2), (2, 3, 2, 2)]
    clients, points, drawn, sent = shapes[int(rng.integers(len(shapes)))]
    local, rows = response(2, epsilon)
    event = SubsampledShuffledDpEvent(
        local, clients, drawn, points_per_client=points, points_sampled=sent
    )
    truth = two_level_pairs(rows, clients, points, drawn, sent)
    share = sent / points
    return Case(event, 1, delta, [truth], math.log1p(share * math.expm1(epsilon)))


def dealt(
    law: Callable[[tuple[int, ...]], np.ndarray], people: int, size: int, rounds: int, values: int
) -> Pairs:
    """Everybody in random order, `size` in a round: every data set, and exchange of one value."""

    def seen(held: tuple[int, ...]) -> np.ndarray:
        found = []
        for order in itertools.permutations(held):
            parts = [order[start * size : (start + 1) * size] for start in range(rounds)]
            found.append(reduce(np.multiply.outer, (law(tuple(sorted(p))) for p in parts)).ravel())
        return np.mean(found, axis=0)

    pairs = []
    for others in itertools.combinations_with_replacement(range(values), people - 1):
        laws = [seen((value, *others)) for value in range(values)]
        pairs += itertools.permutations(laws, 2)
    return Pairs(*(np.array(side) for side in zip(*pairs, strict=True)))


def an_epoch(rng: np.random.Generator) -> Case:
    """Everybody in one round at most, in a whole epoch or the first rounds of one."""
    epsilon, delta, _ = some(rng)
    local, rows = response(2, epsilon)
    people, size, rounds = [(3, 1, 3), (4, 2, 2), (4, 2, 1), (4, 1, 2), (5, 2, 2)][rng.integers(5)]
    event = SubsampledShuffledDpEvent(
        local, people, size, sampling="shuffled_epochs", rounds=rounds
    )
    truth = dealt(lambda held: crowd_law(rows[list(held)]), people, size, rounds, 2)
    came = size * rounds
    known = sampled_epsilon(epsilon, came, delta, came / people, 1)
    return Case(event, 1, delta, [truth], known)


def columns_of_a_sample(rng: np.random.Generator) -> Case:
    """Two two-response messages of everybody who was drawn, about two bits of the value."""
    epsilon, delta, _ = some(rng)
    budgets, people = (epsilon, 0.7 * epsilon), int(rng.integers(2, 5))
    drawn = int(rng.integers(1, people + 1))
    local = LocalRandomizerDpEvent(sum(budgets), messages=2, columns=tuple((1, b) for b in budgets))
    tables = [response_rows(2, budget) for budget in budgets]

    def law(held: tuple[int, ...]) -> np.ndarray:
        bits = [[value % 2 for value in held], [value // 2 for value in held]]
        columns = (crowd_law(rows[each]) for rows, each in zip(tables, bits, strict=True))
        return np.multiply.outer(*columns).ravel()

    truth = dealt(law, people, drawn, 1, 4)
    rate, pairs = drawn / people, [clones(budget, drawn) for budget in budgets]
    within = epsilon_of(pairs[0].times(pairs[1]), min(0.999999, delta / rate))
    known = math.log1p(rate * math.expm1(min(within, sum(budgets))))
    event = SubsampledShuffledDpEvent(local, people, drawn)
    return Case(event, 1, delta, [truth], known)


KINDS: dict[str, Callable[[np.random.Generator], Case]] = {
    "local reports, composed": local_reports,
    "one shuffle, any randomizer": any_shuffle,
    "one shuffle, the mechanism's own table": own_shuffle,
    "one shuffle with fakes": shuffle_with_fakes,
    "several shuffles": repeated_shuffles,
    "two messages, each column shuffled": two_columns,
    "a sample, any randomizer": any_sample,
    "a sample, own table, one or two rounds": own_sample,
    "who throws a coin": coins("self"),
    "points that throw coins": coins("poisson"),
    "some of several points": several_points,
    "an epoch of rounds, own table": an_epoch,
    "two messages of one sample": columns_of_a_sample,
    "one shuffle of several budgets": several_budgets,
}


# The table -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """All configurations of a kind.

    Attributes:
        kind: of event.
        configurations: how many were drawn.
        broken: of them, those with a lower bound above the truth or a price below it.
        above_truth: median and largest ratio of our price to the truth.
        above_known: the same to the best known.
        seconds: of processor time.
    """

    kind: str
    configurations: int
    broken: int
    above_truth: tuple[float, float]
    above_known: tuple[float, float]
    seconds: float

    @property
    def holds(self) -> bool:
        return not self.broken and self.above_known[1] <= MOST_ABOVE_KNOWN

    def cells(self) -> tuple[str, ...]:
        ratios = (*self.above_truth, *self.above_known)
        shown = (f"{ratio:.4f}" for ratio in ratios)
        return self.kind, str(self.configurations), str(self.broken), *shown


def row_of(kind: str, configurations: int, seed: int = 1) -> Row:
    """Draw and compare them.

    Args:
        kind: a key of `KINDS`.
        configurations: how many.
        seed: of the draws, beside the kind's own number.
    """
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    began = time.process_time()
    found = np.array([KINDS[kind](rng).compared() for _ in range(configurations)])
    lower, truth, ours, known = found.T
    slack = 1 + ROUNDING
    ratios = [(float(np.median(r)), float(r.max())) for r in (ours / truth, ours / known)]
    broken = int(((lower > truth * slack) | (truth > ours * slack)).sum())
    return Row(kind, configurations, broken, *ratios, time.process_time() - began)


HEADINGS = ("kind", "drawn", "broken", "ours / truth", "at most", "ours / best known", "at most")


def page(rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = [
        "# Prices of small releases beside their truth",
        "",
        "`python -m benchmarks.price_proof`. Of each configuration every data set is listed. "
        "*Broken*: a lower bound above the truth, or a price below it. Ratios are the median and "
        "the largest. The truth of an event of any randomizer is the worst of those listed, so "
        "that a price above it is no fault. *Best known* is computed without our accountant: "
        "optimal composition, the clone pair listed, amplification by sampling.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
        *("| " + " | ".join(row.cells()) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 where every row holds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--configurations", type=int, default=CONFIGURATIONS)
    parser.add_argument("--kind", choices=[*KINDS], help="one alone; writes nothing")
    told = parser.parse_args(argv)
    rows = []
    for kind in [told.kind] if told.kind else KINDS:
        rows.append(row_of(kind, told.configurations))
        print(" ".join(rows[-1].cells()), f"{rows[-1].seconds:.1f} s", flush=True)
    if not told.kind:
        PAGE.write_text(page(rows), encoding="utf-8")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
