"""Chances, bounds and simulated attacks side by side, for one mechanism at several local epsilons.

What an attacker knew beforehand decides what a message tells: nothing (directions are uniform), how
common words are, or how such images look. A `Trial` is one question about one person's message, as
"is the direction within this angle of the truth?", with

* the chance of the best guess without a message, and the bound that no attack exceeds,
* the exact chance, where the mechanism's law gives one,
* shares of simulated people for whom an attack succeeded.

Simulations start from fixed seeds: the same call gives the same figures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beam_ldp.accounting.reconstruction import (
    DiffuseTarget,
    ListedTarget,
    SparseTarget,
    Target,
    breach_probability,
    largest_epsilon,
)
from beam_ldp.accounting.reconstruction_audit import CHANCES
from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.directions import DirectionMean
from beam_ldp.randomizers.mean.separated_mean import SeparatedMean
from beam_ldp.research.attacks.messages import (
    LinearAttack,
    Share,
    best_codeword,
    codeword_chance,
    cosines,
    direction_chance,
    epsilon_reaching,
    guess_words,
    likeliest_value,
    noise_per_coordinate,
    read_messages,
    value_chance,
    words_found,
)

MeanBuilder = Callable[[float], MeanRandomizer]
OracleBuilder = Callable[[float], FrequencyOracle]

MESSAGE, LINEAR = "message as it is", "posterior mean"
NEAREST, WORDS, VALUE = "nearest candidate", "likeliest words", "likeliest value"
BLIND = "no message"

_SEED = 20180612
_ORDERS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
_NOTHING = 1e-9  # of a budget: rounding
_ROUGHLY = 1e-5  # relative precision of budgets that are found by search


@dataclass(frozen=True)
class Success:
    """What counts as success.

    Attributes:
        text: in words.
        target: what is known before any message, where a bound is proved for it.
        exact: chance of success of the best attack on a mechanism, or of the one that is named
            first; None where it is unknown.
    """

    text: str
    target: Target | None
    exact: Callable[[Any], float | None] = lambda mechanism: None


@dataclass(frozen=True)
class Trial:
    """One question at one local epsilon.

    Attributes:
        question: what counts as success.
        local_epsilon: of the message.
        exact: chance of success, where it is known.
        shares: of each simulated attack, by its name.
    """

    question: Success
    local_epsilon: float
    exact: float | None
    shares: dict[str, Share]

    @property
    def blind(self) -> float | None:
        """Chance of the best guess without a message, where the prior is a law."""
        target = self.question.target
        return None if target is None else math.exp(target.log_prior)

    @property
    def bound(self) -> float | None:
        """What no attack exceeds, given any message; None where the prior is no law."""
        target = self.question.target
        return None if target is None else breach_probability(target, self.local_epsilon)


@dataclass(frozen=True)
class Reached:
    """From which local epsilon a question is answered more often than with some chance.

    Attributes:
        question: what counts as success.
        chance: that is exceeded.
        bound: below this budget no attack does; None without a bound.
        exact: from this budget on the exact chance does; None where unknown, or at no budget that
            the mechanism takes.
        simulated: the least budget of those tried at which some attack did, by its whole interval
            of 95 %; 0 if a guess without a message does, None if none.
    """

    question: Success
    chance: float
    bound: float | None
    exact: float | None
    simulated: float | None


@dataclass(frozen=True, eq=False)
class Trials:
    """What was asked of a mechanism, and found.

    Attributes:
        trials: every question at every local epsilon.
        reached: every question with each of the chances of 1 % and 10 %.
        mean_cosine: between guess and truth, by local epsilon and attack; empty for words and
            values.
        recovered: the same guesses, `(people, dimension)`; for images only.
    """

    trials: tuple[Trial, ...]
    reached: tuple[Reached, ...]
    mean_cosine: dict[float, dict[str, float]] = field(default_factory=dict)
    recovered: dict[float, dict[str, np.ndarray]] = field(default_factory=dict)


# Directions and images ------------------------------------------------------------------------


def fitted(kind: type[MeanRandomizer], dimension: int, examples: np.ndarray) -> MeanBuilder:
    """What makes mechanisms of a class for vectors such as these, of length 1.

    Only directions are attacked: where a mechanism can leave lengths out, it does; where its ball
    is none of Euclid's, it is as large as the examples need. Everything else is as usual.

    Raises:
        ValueError: for a class that is not for directions.
    """
    if kind.norm not in _ORDERS:
        raise ValueError(f"{kind.__name__} takes no directions: its numbers are 0 or 1")
    radius = float(np.linalg.norm(examples, ord=_ORDERS[kind.norm], axis=1).max())
    told: dict[str, Any] = {**next(iter(kind.variants(dimension)))}
    told["radius"] = 1.0 if kind.norm == "l2" else radius
    if issubclass(kind, DirectionMean) and not issubclass(kind, SeparatedMean):
        told["inputs"] = "sphere"
    return lambda epsilon: kind(dimension, epsilon, **told)


def uniform_directions(count: int, dimension: int) -> np.ndarray:
    """Unit vectors `(count, dimension)`, the same in every call."""
    vectors = np.random.default_rng(_SEED).standard_normal((count, dimension))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def direction_trials(
    kind: type[MeanRandomizer],
    dimension: int,
    epsilons: Sequence[float],
    *,
    cosines_asked: Sequence[float] = (0.3, 0.5, 0.7),
    candidates: int = 1000,
    people: int = 1000,
) -> Trials:
    """Attackers who knew nothing: uniform directions, and lists of so many of them.

    Args:
        kind: of mechanism.
        dimension: of the directions, at least 2.
        epsilons: local epsilons of one message.
        cosines_asked: of the angles within which a guess counts.
        candidates: on each list that holds the truth.
        people: simulated.

    Raises:
        ValueError: if a number is out of range.
    """
    truth = uniform_directions(people, dimension)
    build = fitted(kind, dimension, truth)
    questions = [
        *_directions(cosines_asked, dimension),
        Success(
            f"which of {candidates}",
            ListedTarget(candidates),
            lambda mechanism: codeword_chance(mechanism, candidates),
        ),
    ]
    others = _largest_cosine(people, candidates - 1, dimension)
    trials, mean_cosine = [], {}
    for epsilon in epsilons:
        mechanism, readings = _sent(build, epsilon, truth)
        found = cosines(readings, truth)
        mean_cosine[epsilon] = {MESSAGE: float(found.mean())}
        for question, cosine in zip(questions, cosines_asked):
            trials.append(_trial(question, mechanism, {MESSAGE: found >= cosine}))
        trials.append(_trial(questions[-1], mechanism, {NEAREST: found > others}))
    return _finished(trials, questions, build, mean_cosine)


def _largest_cosine(people: int, candidates: int, dimension: int) -> np.ndarray:
    """Of a message and so many uniform directions, for each person: `(people,)`."""
    rng = np.random.default_rng(_SEED + 1)
    along = rng.standard_normal((people, candidates))
    across = rng.chisquare(dimension - 1, (people, candidates))
    return np.asarray((along / np.sqrt(along**2 + across)).max(axis=1))


def image_trials(
    kind: type[MeanRandomizer],
    images: np.ndarray,
    public: np.ndarray,
    epsilons: Sequence[float],
    *,
    cosines_asked: Sequence[float] = (0.3, 0.5, 0.7),
) -> Trials:
    """Attackers who know how such images look: other images are public, and their mean.

    An image is sent as its difference from the public mean, scaled to length 1.

    Args:
        kind: of mechanism.
        images: of people, `(n, d)`, n at least 2.
        public: images of others, `(m, d)`.
        epsilons: local epsilons of one message.
        cosines_asked: of the angles within which a guess counts, between differences.

    Returns:
        Trials with `recovered`: pictures are the public mean plus these.

    Raises:
        ValueError: if a number is out of range, or an image is the public mean itself.
    """
    truth, known = centred(images, public), centred(public, public)
    build = fitted(kind, images.shape[1], known)
    attack = LinearAttack.knowing(known)
    questions = [
        *_directions(cosines_asked),
        Success(f"which of {len(truth)}", ListedTarget(len(truth))),
    ]
    trials, mean_cosine, recovered = [], {}, {}
    for epsilon in epsilons:
        mechanism, readings = _sent(build, epsilon, truth)
        guesses = {
            MESSAGE: readings,
            LINEAR: attack.guess(readings, noise_per_coordinate(mechanism)),
            NEAREST: known[best_codeword(readings, known)],
        }
        found = {name: cosines(guess, truth) for name, guess in guesses.items()}
        mean_cosine[epsilon] = {name: float(c.mean()) for name, c in found.items()}
        recovered[epsilon] = guesses
        for question, cosine in zip(questions, cosines_asked):
            told = {name: c >= cosine for name, c in found.items()}
            told[BLIND] = cosines(_blind(known, cosine, len(truth)), truth) >= cosine
            trials.append(_trial(question, mechanism, told))
        named = best_codeword(readings, truth) == np.arange(len(truth))
        trials.append(_trial(questions[-1], mechanism, {NEAREST: named}))
    done = _finished(trials, questions, build, mean_cosine)
    return dataclasses.replace(done, recovered=recovered)


def centred(images: np.ndarray, public: np.ndarray) -> np.ndarray:
    """Images less the public mean, of length 1: `(n, d)`. Raises ValueError for that mean."""
    differences = images - public.mean(axis=0)
    lengths = np.linalg.norm(differences, axis=1, keepdims=True)
    if not (lengths > 0).all():
        raise ValueError("images must differ from the mean of the public ones")
    return np.asarray(differences / lengths)


def _blind(known: np.ndarray, cosine: float, count: int) -> np.ndarray:
    """One guess for all: the public image that most public images are near to."""
    near = (known @ known.T >= cosine).sum(axis=1)
    return np.tile(known[np.argmax(near)], (count, 1))


def _directions(asked: Sequence[float], dimension: int | None = None) -> list[Success]:
    """The exact chance holds for each direction alike; the bound where nothing was known of it."""

    def question(cosine: float) -> Success:
        return Success(
            f"cosine >= {cosine:g}",
            None if dimension is None else DiffuseTarget(dimension, cosine),
            lambda mechanism: direction_chance(mechanism, cosine),
        )

    return [question(cosine) for cosine in asked]


def _sent(
    build: Callable[[float], MeanRandomizer], epsilon: float, truth: np.ndarray
) -> tuple[MeanRandomizer, np.ndarray]:
    mechanism = build(epsilon)
    reports = mechanism.randomize(truth, rng=np.random.default_rng(_SEED + 2))
    return mechanism, read_messages(mechanism, reports)


# Words and values -----------------------------------------------------------------------------


def word_trials(
    kind: type[MeanRandomizer],
    target: SparseTarget,
    epsilons: Sequence[float],
    *,
    people: int = 1000,
) -> Trials:
    """Attackers who know how common words are: `SparseTarget`'s people, one number for each word.

    Mechanisms for numbers 0 and 1 send the words; others the difference from their chances, scaled
    to length 1. Such a length tells an attacker little, and is taken to be the usual one.

    Args:
        kind: of mechanism.
        target: the words, and what counts as found.
        epsilons: local epsilons of one message.
        people: simulated.

    Raises:
        ValueError: if a number is out of range.
    """
    chances = target.chances
    words = np.random.default_rng(_SEED).random((people, target.domain)) < chances
    if kind.norm == "binary":
        sent, length, centre = words.astype(float), 1.0, np.zeros(target.domain)
        build: MeanBuilder = lambda epsilon: kind(target.domain, epsilon)  # noqa: E731
    else:
        lengths = np.linalg.norm(words - chances, axis=1, keepdims=True)
        sent, length, centre = (words - chances) / lengths, float(lengths.mean()), chances
        build = fitted(kind, target.domain, sent)
    question = Success("words", target)
    trials = []
    for epsilon in epsilons:
        mechanism, readings = _sent(build, epsilon, sent)
        noise = noise_per_coordinate(mechanism) * length**2
        guesses = guess_words(target, readings * length + centre, noise)
        found = words_found(target, guesses, words)
        trials.append(_trial(question, mechanism, {WORDS: found}))
    return _finished(trials, [question], build, {})


def value_trials(build: OracleBuilder, epsilons: Sequence[float], *, people: int = 1000) -> Trials:
    """Attackers of a frequency oracle who take all values for equally likely.

    Args:
        build: makes the oracle of a local epsilon, always of one domain.
        epsilons: local epsilons of one report.
        people: simulated.

    Raises:
        ValueError: if a number is out of range.
    """
    size = build(epsilons[0]).domain_size
    truth = np.random.default_rng(_SEED).integers(size, size=people)
    question = Success(f"which of {size}", ListedTarget(size), _value_chance)
    trials = []
    for epsilon in epsilons:
        oracle = build(epsilon)
        reports = oracle.randomize(truth, rng=np.random.default_rng(_SEED + 2))
        trials.append(_trial(question, oracle, {VALUE: likeliest_value(oracle, reports) == truth}))
    return _finished(trials, [question], build, {})


def _value_chance(oracle: FrequencyOracle) -> float | None:
    try:
        return value_chance(oracle)
    except NotImplementedError:  # no small channel
        return None


# What all share -------------------------------------------------------------------------------


def _trial(question: Success, mechanism: LocalRandomizer, found: dict[str, np.ndarray]) -> Trial:
    shares = {name: Share(int(yes.sum()), len(yes)) for name, yes in found.items()}
    return Trial(question, mechanism.local_epsilon, question.exact(mechanism), shares)


def _finished(
    trials: Sequence[Trial],
    questions: Sequence[Success],
    build: Callable[[float], LocalRandomizer],
    mean_cosine: dict[float, dict[str, float]],
) -> Trials:
    reached = tuple(
        _reached(question, chance, trials, build) for question in questions for chance in CHANCES
    )
    return Trials(tuple(trials), reached, mean_cosine)


def _reached(
    question: Success,
    chance: float,
    trials: Sequence[Trial],
    build: Callable[[float], LocalRandomizer],
) -> Reached:
    mine = [trial for trial in trials if trial.question is question]
    bound = exact = None
    if question.target is not None:
        bound = largest_epsilon(question.target, chance)
        bound = bound if bound > _NOTHING else 0.0
    if all(trial.exact is not None for trial in mine):
        with suppress(ValueError):  # a budget that the mechanism does not take
            exact = epsilon_reaching(lambda e: question.exact(build(e)) or 0.0, chance, _ROUGHLY)
    surely = [t for t in mine if any(s.interval[0] > chance for s in t.shares.values())]
    simulated = min((trial.local_epsilon for trial in surely), default=None)
    if bound == 0.0 or any(t.shares[BLIND].interval[0] > chance for t in mine if BLIND in t.shares):
        simulated = 0.0
    return Reached(question, chance, bound, exact, simulated)
