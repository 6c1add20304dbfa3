"""Protocols that ask people again, made into ones that ask everybody at most once.

Where a protocol would ask somebody a second time, fresh people are asked instead, one after the
other: each says whether their own datum could have given the answers so far (rejection sampling),
and the first who accepts answers the question. The law of the transcript is that of the protocol.
Each fresh person is protected against everybody who reads the transcript, by the local epsilon of
one report; the price is people. Calculators and a simulation: nothing here draws noise for data
of real people.

Source: specification of interactivity, sections 4 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy import stats

from beam_ldp.protocols.interaction import ROUNDING, check_kernel
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.research.interactivity.kernels import kernel_epsilon

Mode = Literal["paper", "tight", "plain"]
MOST_TRANSCRIPTS = 1_000_000


@dataclass(frozen=True, eq=False)
class Ask:
    """Who is asked what: a name of a (virtual) person, and the kernel of the answer."""

    user: Hashable
    kernel: np.ndarray


Protocol = Callable[[tuple[int, ...]], Ask | None]
"""The next question, given the answers so far; `None` at the end. Deterministic."""


class NotEnoughUsersError(RuntimeError):
    """The people ran out before the protocol ended; `answers` has the transcript so far."""

    def __init__(self, answers: tuple[int, ...]) -> None:
        super().__init__(f"people ran out after {len(answers)} answers of the protocol")
        self.answers = answers


@dataclass(frozen=True, eq=False)
class Parts:
    """A kernel as a mixture: with probability `weight` a person's answer, otherwise a public draw.

    `kernel = weight * told + (1 - weight) * public`, exactly.
    """

    weight: float
    told: np.ndarray
    public: np.ndarray


def decompose(kernel: np.ndarray, epsilon: float, *, least: bool = True) -> Parts:
    """Split off the part of an answer that depends on nobody's datum.

    Args:
        kernel: `(inputs, outputs)`, of an epsilon of at most `epsilon`.
        epsilon: local epsilon of the part that is left; larger, and fewer people are asked.
        least: the smallest possible weight; otherwise the paper's, around the first input.

    Raises:
        ValueError: if the kernel's own epsilon is above `epsilon`.

    >>> parts = decompose(np.array([[.5, .3, .2], [.4, .35, .25], [.45, .25, .3]]), 1.0)
    >>> print(f"{parts.weight:.6f} {kernel_epsilon(parts.told):.6f}")
    0.324593 1.000000
    """
    own = kernel_epsilon(kernel)
    if own > epsilon + ROUNDING:
        raise ValueError(f"epsilon must be at least the kernel's own, {own:g}, got {epsilon:g}")
    if own == 0:
        return Parts(0.0, kernel, kernel[0])
    if least:
        grown = math.exp(epsilon)
        shared = np.maximum(grown * kernel.min(axis=0) - kernel.max(axis=0), 0.0) / (grown - 1)
        weight = 1 - float(shared.sum())
    else:
        weight = min(math.expm1(-own) / math.expm1(-epsilon), 1.0)
        shared = (1 - weight) * kernel[0]
    public = shared / shared.sum() if weight < 1 else np.full(kernel.shape[1], 1 / kernel.shape[1])
    return Parts(weight, (kernel - shared) / weight, public)


def keeping(relative: np.ndarray, own: float, epsilon: float) -> np.ndarray:
    """How to draw the told part of a kernel with densities: ask the kernel, keep some answers.

    The mixture is that of `decompose(..., least=False)`, around a public datum x0. An answer y of
    somebody whose datum is x is kept with this probability; what is kept has the law of the told
    part, of local epsilon `epsilon`. All in all the share `weight` of answers is kept, whatever
    the datum, so the number of draws tells nothing.

    Args:
        relative: density of y given x0, divided by that given x.
        own: local epsilon of the kernel, from which `relative` is no further than e^own.
        epsilon: local epsilon of the part that is left, at least `own`.

    Source: specification of interactivity, section 4.3 (keep 1 - (1 - weight) k(y|x0)/k(y|x)).

    >>> bool(keeping(np.exp(0.4), own=0.4, epsilon=1.0) < keeping(1.0, own=0.4, epsilon=1.0) < 1)
    True
    """
    check_positive("own", own)
    if not own <= epsilon:
        raise ValueError(f"epsilon must be at least own, {own:g}, got {epsilon:g}")
    ratio = np.asarray(relative, dtype=np.float64)
    if not np.all(np.abs(np.log(ratio)) <= own + ROUNDING):
        raise ValueError(f"relative must lie within e^{own:g} of 1")
    weight = math.expm1(-own) / math.expm1(-epsilon)
    return np.asarray(1 - (1 - weight) * ratio)


def acceptance(epsilon: float, mode: Mode) -> float:
    """Probability with which the likeliest datum accepts: 1/2 in the paper, the most otherwise."""
    return 0.5 if mode == "paper" else 1 / (1 + math.exp(-epsilon))


@dataclass(frozen=True, eq=False)
class FollowUp:
    """How a second question to somebody is put to fresh people.

    Attributes:
        parts: of the question's kernel.
        accepts: `(inputs,)`, probability that a person of that datum accepts.
    """

    parts: Parts
    accepts: np.ndarray

    @property
    def kernel(self) -> np.ndarray:
        """What one fresh person publishes, `(inputs, 1 + outputs)`: no, or yes with an answer."""
        return np.column_stack([1 - self.accepts, self.accepts[:, None] * self.parts.told])

    def law(self, distribution: np.ndarray) -> np.ndarray:
        """Probabilities of the answer, where fresh people have data from `distribution`."""
        posterior = distribution * self.accepts
        told = posterior / posterior.sum() @ self.parts.told
        return np.asarray(self.parts.weight * told + (1 - self.parts.weight) * self.parts.public)

    def people(self, distribution: np.ndarray) -> float:
        """Expected number of fresh people who are asked."""
        return self.parts.weight / float(distribution @ self.accepts)


def follow_up(
    logs: np.ndarray, kernel: np.ndarray, epsilon: float, mode: Mode, rest: float | None = None
) -> FollowUp:
    """How to ask fresh people instead of somebody who has answered before.

    Args:
        logs: `(inputs,)`, log-likelihoods of the answers so far of the person who is replaced.
        kernel: the question.
        epsilon: of the whole protocol.
        mode: `paper`; `tight`, with the smallest weight; `plain`, without decomposition.
        rest: epsilon of the decomposed answer; as `epsilon` if none.

    Raises:
        ValueError: if the answers so far tell more than `epsilon`: it was declared too small.
    """
    if np.ptp(logs) > epsilon + ROUNDING:
        raise ValueError(f"epsilon of {epsilon:g} is below what the answers tell: {np.ptp(logs):g}")
    rest = epsilon if rest is None else rest
    if mode == "plain" or kernel_epsilon(kernel) >= rest:
        parts = Parts(1.0, kernel, np.full(kernel.shape[1], 1 / kernel.shape[1]))
    else:
        parts = decompose(kernel, rest, least=mode == "tight")
    return FollowUp(parts, acceptance(epsilon, mode) * np.exp(logs - logs.max()))


@dataclass(frozen=True, eq=False)
class Step:
    """A question of a protocol after some answers, with what is known of the person before it.

    Attributes:
        answers: of all people so far.
        question: `None` where the protocol has ended.
        logs: by person, the log-likelihoods of that person's answers, `(inputs,)`.
    """

    answers: tuple[int, ...]
    question: Ask | None
    logs: Mapping[Hashable, np.ndarray]

    def probability(self, distribution: np.ndarray) -> float:
        """Of the answers so far, where people's data are independent from `distribution`."""
        return math.prod(float(distribution @ np.exp(logs)) for logs in self.logs.values())


def walk(protocol: Protocol, *, most: int = MOST_TRANSCRIPTS) -> Iterator[Step]:
    """Every step that a protocol can reach, ends included. Exponential in the number of rounds.

    Raises:
        ValueError: above `most` steps.
    """
    open_steps: list[tuple[tuple[int, ...], dict[Hashable, np.ndarray]]] = [((), {})]
    steps = 0
    while open_steps:
        answers, logs = open_steps.pop()
        steps += 1
        if steps > most:
            raise ValueError(f"protocol must have at most {most} transcripts to be enumerated")
        question = protocol(answers)
        yield Step(answers, question, logs)
        if question is None:
            continue
        seen = np.log(check_kernel(question.kernel))
        before = logs.get(question.user, np.zeros(len(seen)))
        for answer in range(seen.shape[1]):
            open_steps.append(
                ((*answers, answer), logs | {question.user: before + seen[:, answer]})
            )


def protocol_epsilon(protocol: Protocol) -> float:
    """The exact local epsilon of a protocol, by enumeration.

    >>> response = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> twice = lambda answers: Ask(0, response) if len(answers) < 2 else None
    >>> round(protocol_epsilon(twice), 6)
    2.197225
    """
    return max(float(np.ptp(logs)) for step in walk(protocol) for logs in step.logs.values())


@dataclass(frozen=True)
class Converted:
    """What a protocol costs once everybody is asked at most once.

    Attributes:
        epsilon: exact local epsilon of a fresh person, the largest over all steps.
        people: expected number of people.
    """

    epsilon: float
    people: float


def convert(
    protocol: Protocol,
    distribution: np.ndarray,
    epsilon: float,
    mode: Mode = "plain",
    rest: float | None = None,
) -> Converted:
    """The exact price of asking everybody at most once, by enumeration of a small protocol.

    Args:
        protocol: asks people again.
        distribution: `(inputs,)`, of people's data, which are independent.
        epsilon: of the protocol; see `protocol_epsilon`.
        mode: `plain` keeps the epsilon; `tight` and `paper` take fewer people and more epsilon.
        rest: epsilon of the decomposed answer; as `epsilon` if none.

    >>> response = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> twice = lambda answers: Ask(0, response) if len(answers) < 2 else None
    >>> price = convert(twice, np.array([0.5, 0.5]), math.log(9))
    >>> print(f"{price.epsilon:.4f} {price.people:.4f}")
    2.1972 2.6667
    """
    _check_mode(mode)
    check_positive("epsilon", epsilon)
    most, people = 0.0, 0.0
    for step in walk(protocol):
        if step.question is None:
            continue
        kernel, logs = step.question.kernel, step.logs.get(step.question.user)
        if logs is None:
            most, people = (
                max(most, kernel_epsilon(kernel)),
                people + step.probability(distribution),
            )
            continue
        asked = follow_up(logs, kernel, epsilon, mode, rest)
        if asked.parts.weight > 0:
            most = max(most, kernel_epsilon(asked.kernel))
        people += step.probability(distribution) * asked.people(distribution)
    return Converted(most, people)


def simulate_sequential(
    protocol: Protocol,
    data: Iterator[int],
    epsilon: float,
    mode: Mode = "plain",
    *,
    random: np.random.Generator,
) -> tuple[tuple[int, ...], int]:
    """One simulated run in which everybody is asked at most once.

    Args:
        data: datum of each fresh person; a person is taken from it for each question.
        random: of the simulation; no source of noise for real data.

    Returns:
        The answers of the protocol, and the number of people who were asked.

    Raises:
        NotEnoughUsersError: if `data` ends first.
    """
    _check_mode(mode)
    answers: tuple[int, ...] = ()
    logs: dict[Hashable, np.ndarray] = {}
    asked = 0
    while (question := protocol(answers)) is not None:
        kernel, before = check_kernel(question.kernel), logs.get(question.user)
        parts, accepts = Parts(1.0, kernel, kernel[0]), np.ones(len(kernel))
        if before is not None:
            following = follow_up(before, kernel, epsilon, mode)
            parts, accepts = following.parts, following.accepts
        law = parts.public
        if random.random() < parts.weight:
            for datum in data:
                asked += 1
                if random.random() < accepts[datum]:
                    law = parts.told[datum]
                    break
            else:
                raise NotEnoughUsersError(answers)
        answer = int(random.choice(len(law), p=law / law.sum()))
        seen = np.log(kernel[:, answer])
        logs[question.user] = seen if before is None else before + seen
        answers = (*answers, answer)
    return answers, asked


@dataclass(frozen=True)
class SequentialPrice:
    """What it takes to ask everybody at most once, from a protocol's size alone.

    Args:
        people: virtual people, whom the protocol asks.
        rounds: questions in all.
        k: compositionality, on average over people: the sum of epsilons over `epsilon`, of the
            worst transcript.
        epsilon: of the protocol; pure.

    Source: specification of interactivity, sections 5.1 and 5.2.

    >>> price = SequentialPrice(1000, 10_000, 1.0, 1.0)
    >>> [round(price.expected(mode)) for mode in ("paper", "tight", "plain")]
    [9601, 6882, 34465]
    >>> price.at_most("paper", 1e-3)
    11330
    """

    people: int
    rounds: int
    k: float
    epsilon: float

    def __post_init__(self) -> None:
        check_integer("people", self.people, 1)
        check_integer("rounds", self.rounds, self.people)
        check_positive("k", self.k)
        check_positive("epsilon", self.epsilon)

    def declared_epsilon(self, mode: Mode) -> float:
        """Local epsilon of a fresh person that holds for every protocol: `plain` keeps it."""
        _check_mode(mode)
        return self.epsilon if mode == "plain" else 2 * self.epsilon

    def expected(self, mode: Mode) -> float:
        """Expected number of people, at most."""
        return self.people + self._draws(mode) * self._follow_ups(mode)

    def at_most(self, mode: Mode, beta: float) -> int:
        """Number of people that is exceeded with probability `beta` at most."""
        check_fraction("beta", beta, "()")
        mean = self._follow_ups(mode)
        follow_ups: float = mean
        if mode != "plain":
            if beta < 2 * math.exp(-0.75 * mean):
                least = 2 * math.exp(-0.75 * mean)
                raise ValueError(f"beta must be at least {least:g} at this size, got {beta:g}")
            follow_ups = math.ceil(mean + math.sqrt(3 * mean * math.log(2 / beta)))
        tail = beta if mode == "plain" else beta / 2
        if follow_ups == 0:
            return self.people
        accepted = acceptance(self.epsilon, mode) * math.exp(-self.epsilon)
        return self.people + int(follow_ups + stats.nbinom.ppf(1 - tail, follow_ups, accepted))

    def to_json(self) -> dict[str, dict[str, float]]:
        """Epsilon of a fresh person and expected people, by mode."""
        return {
            mode: {"epsilon": self.declared_epsilon(mode), "expected_people": self.expected(mode)}
            for mode in get_args(Mode)
        }

    def _draws(self, mode: Mode) -> float:
        return math.exp(self.epsilon) / acceptance(self.epsilon, mode)

    def _follow_ups(self, mode: Mode) -> float:
        """Expected follow-ups that need a person, at most."""
        _check_mode(mode)
        if mode == "plain":
            return self.rounds - self.people
        return self.people * self.k * self.epsilon / -math.expm1(-self.epsilon)


def wave_size(epsilon: float, beta: float, mode: Mode = "plain") -> int:
    """Fresh people to ask at once, so that none of them accepts with probability `beta` at most.

    A pipeline asks so many in one wave for each follow-up, and keeps the first who accepts. The
    others have answered too: everybody is charged.

    Source: specification of interactivity, section 5.3.

    >>> wave_size(0.5, 1e-3), wave_size(0.5, 1e-3, "paper"), wave_size(1.0, 1e-6)
    (15, 20, 45)
    """
    _check_mode(mode)
    check_positive("epsilon", epsilon)
    check_fraction("beta", beta, "()")
    return math.ceil(math.log(beta) / math.log1p(-acceptance(epsilon, mode) * math.exp(-epsilon)))


def _check_mode(mode: str) -> None:
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}")


def largest_purifiable_delta(people: int, epsilon: float, beta: float) -> float:
    """The delta below which a pure protocol of local epsilon 10 epsilon does the same.

    The transcripts of both are within a total variation of `beta`. A calculator: nothing here runs
    that protocol. All else here is about pure epsilon, and no delta in use is below this one.

    Args:
        people: of the protocol, each of whom is asked once.
        epsilon: local epsilon beside delta.
        beta: total variation that is allowed, below 1.

    Source: Joseph, Mao, Neel and Roth, Lemma 5.2, with the constants of the text, imported there
    from Bun, Nelson and Stemmer and from Cheu et al.; specification of interactivity, section 2.3.

    >>> print(f"{largest_purifiable_delta(10_000, 1.0, 0.01):.2g}")
    1e-12
    """
    check_integer("people", people, 1)
    check_positive("epsilon", epsilon)
    check_fraction("beta", beta)
    return min(
        epsilon * beta / (48 * people * math.log(2 * people / beta)),
        beta / (64 * people * math.log(people / beta) * math.exp(7 * epsilon)),
    )
