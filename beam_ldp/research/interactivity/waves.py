"""Protocols in waves: who is asked what in each run, everybody once or the same people again.

A protocol in rounds asks many questions at a time. Here each of its waves is a run: the next people
are called up, in a public order, and answer one question each. A question to somebody new takes
one person. A question to somebody who has answered before goes to that person, or, where everybody
is asked at most once, to as many fresh people as it takes for one of them to accept (rejection
sampling, `sequential`); the first in the order who accepts has given the answer, and the others
have spent their budget too. A question that nobody accepted stays open, and the next run puts it
to fresh people again: the law of the transcript is exactly that of the protocol.

Everything here is public: the order of people (a hash of their ids), the questions, the coins.

Source: specification of interactivity, sections 5.3 and 10.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from beam_ldp.protocols.interaction import ROUNDING, asks_that_fit, check_kernel, hash_people, mixed
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.identity import AnyIds
from beam_ldp.research.interactivity.kernels import IntegerKernel, kernel_epsilon
from beam_ldp.research.interactivity.sequential import (
    Ask,
    Mode,
    Protocol,
    follow_up,
    wave_size,
)

Answers = tuple[tuple[int, ...], ...]
"""Of a protocol so far: wave by wave, the answers to its questions."""

Rounds = Callable[[Answers], Sequence[Ask]]
"""The questions of the next wave, given the answers of all before; none at the end. Deterministic,
and each wave asks nobody twice."""


def one_by_one(rounds: Rounds) -> Protocol:
    """The same protocol, a question at a time: what is enumerated, simulated and priced."""

    def protocol(answers: tuple[int, ...]) -> Ask | None:
        waves: Answers = ()
        while questions := rounds(waves):
            if len(answers) < len(questions):
                return questions[len(answers)]
            waves, answers = (*waves, answers[: len(questions)]), answers[len(questions) :]
        return None

    return protocol


def places_of(user_ids: AnyIds, seed: int) -> np.ndarray:
    """Everybody's place in the order in which people are called up: uint64, `(n,)`.

    A public function of the id. Two ids share a place with probability 2^-64.
    """
    salt = mixed(np.array([seed], dtype=np.uint64))
    return mixed(hash_people(user_ids) ^ salt)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Progress:
    """How far a protocol has come, all of it public.

    Attributes:
        finished: answers of its finished waves.
        current: answers of the wave that is open; None where nobody has accepted yet.
        runs: that have been made.
        people: who have been asked.
        last: place of the last of them; -1 if none.
    """

    finished: Answers = ()
    current: tuple[int | None, ...] = ()
    runs: int = 0
    people: int = 0
    last: int = -1


@dataclass(frozen=True, eq=False)
class Wave:
    """What one run asks: the next people in the order, each one question.

    Attributes:
        number: of the run, from 0.
        after: people are called up whose place is above this.
        seed: of the order.
        asked: `(people,)`, by rank among those called up the number of the question, in the order
            of the protocol's wave; -1 for nothing.
        kernels: of what a person says, each once.
        which: number of the kernel of each question.
        accepts: whether a question is to fresh people in place of somebody: 0 is then no, and
            y + 1 the answer y.
        drawn: answers that public coins gave.
    """

    number: int
    after: int
    seed: int
    asked: np.ndarray
    kernels: tuple[IntegerKernel, ...]
    which: tuple[int, ...]
    accepts: tuple[bool, ...]
    drawn: Mapping[int, int]

    @property
    def people(self) -> int:
        """Who are called up."""
        return len(self.asked)

    @cached_property
    def digest(self) -> str:
        """32 bytes, hexadecimal, of everything that people are told before they answer."""
        told = hashlib.sha256(
            repr((self.number, self.after, self.seed, self.which, self.accepts)).encode()
        )
        told.update(self.asked.astype("<i8").tobytes())
        for kernel in self.kernels:
            told.update(repr(kernel.thresholds.shape).encode() + kernel.thresholds.tobytes())
        return told.hexdigest()

    def called(self, places: np.ndarray) -> np.ndarray:
        """Those of these places that may be called up."""
        return places if self.after < 0 else places[places > np.uint64(self.after)]

    def reports(self, ranks: np.ndarray, data: np.ndarray, words: np.ndarray) -> np.ndarray:
        """What people say, `(n,)` int64.

        Args:
            ranks: `(n,)`, among the people of this run, who are asked something.
            data: `(n,)` integers, rows of the kernels.
            words: `(n,)` uint64, uniform; one of its own for each person.
        """
        found = np.empty(len(ranks), dtype=np.int64)
        kernels = np.array(self.which)[self.asked[ranks]]
        for number in np.unique(kernels).tolist():
            own = kernels == number
            found[own] = self.kernels[number].draw(data[own], words[own])
        return found

    def first_accepted(self, ranks: np.ndarray, reports: np.ndarray) -> dict[int, tuple[int, int]]:
        """By question: rank and answer of the first who accepted, among some people."""
        questions = self.asked[ranks]
        may_decline = np.array(self.accepts)[questions]
        accepted = np.flatnonzero(~may_decline | (reports > 0))
        accepted = accepted[np.argsort(ranks[accepted], kind="stable")]
        numbers, first = np.unique(questions[accepted], return_index=True)
        chosen = accepted[first]
        answers = reports[chosen] - may_decline[chosen]
        told = zip(ranks[chosen].tolist(), answers.tolist())
        return dict(zip(numbers.tolist(), told))


@dataclass(frozen=True)
class WavePlan:
    """A protocol in waves, in which everybody is asked at most once, or the same people again.

    Each person is protected against everybody who reads all that people say, by the local epsilon
    of all own reports: `epsilon`, or at most twice that in the modes `tight` and `paper`.

    Args:
        rounds: the protocol.
        epsilon: of the protocol; pure. What tells more is refused when it comes up.
        mode: how questions to somebody who has answered are put to fresh people; see `sequential`.
        beta: probability with which nobody accepts such a question in one run.
        seed: of the order of people and of public coins; no secret.
        again: such questions go to the same person. What all answers of a person tell together is
            kept within `epsilon` by a likelihood filter, not by a sum.

    >>> response = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> twice = lambda answers: [Ask("ada", response)] if len(answers) < 2 else []
    >>> plan = WavePlan(twice, epsilon=2.2, beta=0.01)
    >>> first = plan.wave(Progress())
    >>> first.people
    1
    >>> after = plan.after(Progress(), first, {0: 1}, people=1, last=5)
    >>> plan.wave(after).people, plan.wave(after).after
    (44, 5)
    """

    rounds: Rounds
    epsilon: float
    mode: Mode = "plain"
    beta: float = 1e-3
    seed: int = 0
    again: bool = False

    def __post_init__(self) -> None:
        wave_size(self.epsilon, self.beta, self.mode)
        if self.again and self.mode != "plain":
            raise ValueError(f"mode must be plain where the same people are asked, got {self.mode}")
        check_integer("seed", self.seed, 0, (1 << 63) - 1)

    @property
    def promise(self) -> float:
        """Local epsilon of one person."""
        return self.epsilon if self.mode == "plain" else 2 * self.epsilon

    def wave(self, progress: Progress) -> Wave | None:
        """What is asked next; None at the end.

        Raises:
            ValueError: if the protocol tells more of somebody than `epsilon`, asks somebody twice
                in one wave, or has kernels of several numbers of data.
        """
        questions = self._questions(progress.finished)
        if not questions:
            return None
        logs = self._logs(progress.finished)
        current = progress.current or (None,) * len(questions)
        coins = self._coins(len(progress.finished), len(questions))
        asks = _Again(self, len(questions), logs) if self.again else _Once(self, len(questions))
        for number, question in enumerate(questions):
            if current[number] is None:
                asks.ask(number, question, logs.get(question.user), coins[number])
        return asks.wave(progress)

    def after(
        self,
        progress: Progress,
        wave: Wave,
        accepted: Mapping[int, int],
        people: int = 0,
        last: int = -1,
    ) -> Progress:
        """How far the protocol has come after a run.

        Args:
            progress: before it.
            wave: what it asked.
            accepted: by question, the answer of the first who accepted.
            people: who were asked.
            last: place of the last of them.
        """
        told = {**wave.drawn, **accepted}
        current = progress.current or (None,) * len(wave.which)
        answers = tuple(told.get(n) if one is None else one for n, one in enumerate(current))
        finished = progress.finished
        if None not in answers:
            finished, answers = (*finished, tuple(int(a) for a in answers if a is not None)), ()
        if wave.after >= 0:
            people += progress.people
        last = max(last, progress.last)
        return Progress(finished, answers, progress.runs + 1, max(people, progress.people), last)

    def _questions(self, finished: Answers) -> Sequence[Ask]:
        questions = self.rounds(finished)
        if len({question.user for question in questions}) < len(questions):
            raise ValueError(
                "a wave must ask nobody twice: make both questions one kernel, or two waves"
            )
        return questions

    def _logs(self, finished: Answers) -> dict[Hashable, np.ndarray]:
        """What the answers tell of everybody who was asked."""
        logs: dict[Hashable, np.ndarray] = {}
        for number, answers in enumerate(finished):
            for question, answer in zip(self.rounds(finished[:number]), answers, strict=True):
                seen = np.log(question.kernel[:, answer])
                before = logs.get(question.user)
                logs[question.user] = seen if before is None else before + seen
        return logs

    def _coins(self, wave: int, questions: int) -> np.ndarray:
        """Two public uniform numbers for each question: whether people are asked, and the draw."""
        return np.random.default_rng([self.seed, wave]).random((questions, 2))


class _Asks:
    """The open questions of a wave, as they are put to people."""

    def __init__(self, plan: WavePlan, questions: int) -> None:
        self._plan = plan
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        self._kernels: list[IntegerKernel] = []
        self._which = [0] * questions
        self._accepts = [False] * questions
        self._drawn: dict[int, int] = {}

    def _put(self, number: int, kernel: np.ndarray, before: bytes, promise: float) -> None:
        key = (kernel.tobytes(), before)
        if key not in self._numbers:
            self._numbers[key] = len(self._kernels)
            self._kernels.append(IntegerKernel.of(kernel, promise))
        self._which[number] = self._numbers[key]

    def _wave(self, progress: Progress, after: int, asked: np.ndarray) -> Wave:
        if len({kernel.inputs for kernel in self._kernels}) > 1:
            raise ValueError("all kernels of a protocol must have the same number of data")
        return Wave(
            progress.runs, after, self._plan.seed, asked, tuple(self._kernels),
            tuple(self._which), tuple(self._accepts), self._drawn,
        )  # fmt: skip


class _Once(_Asks):
    """Put to people who have not been asked yet, or to a public coin."""

    def __init__(self, plan: WavePlan, questions: int) -> None:
        super().__init__(plan, questions)
        self._sizes = [0] * questions
        self._fresh = wave_size(plan.epsilon, plan.beta, plan.mode)

    def ask(self, number: int, question: Ask, before: np.ndarray | None, coins: np.ndarray) -> None:
        """Put a question to somebody new, or to fresh people in place of somebody."""
        plan = self._plan
        if before is None:
            self._put(number, question.kernel, b"", plan.epsilon)
            self._sizes[number] = 1
            return
        following = follow_up(before, question.kernel, plan.epsilon, plan.mode)
        if coins[0] < following.parts.weight:
            self._put(number, following.kernel, before.tobytes(), plan.promise)
            self._sizes[number], self._accepts[number] = self._fresh, True
        else:
            law = np.cumsum(following.parts.public)
            self._drawn[number] = min(int(np.searchsorted(law, coins[1], "right")), len(law) - 1)

    def wave(self, progress: Progress) -> Wave:
        """All of them: the next people in the order."""
        asked = np.repeat(np.arange(len(self._sizes)), self._sizes)
        return self._wave(progress, progress.last, asked)


class _Again(_Asks):
    """Put to the person whom they are for: the first whom a protocol asks is the first in order."""

    def __init__(self, plan: WavePlan, questions: int, known: Mapping[Hashable, Any]) -> None:
        super().__init__(plan, questions)
        self._ranks = {user: rank for rank, user in enumerate(known)}
        self._asked: dict[int, int] = {}  # number of the question by rank

    def ask(self, number: int, question: Ask, before: np.ndarray | None, coins: np.ndarray) -> None:
        """Put a question to the person it is for, if that person's budget still fits it."""
        logs, budget = np.log(check_kernel(question.kernel)), self._plan.epsilon
        state = np.zeros(len(logs)) if before is None else before
        if not asks_that_fit(state[None], logs, budget)[0]:
            raise ValueError(f"epsilon of {budget:g} is below what the protocol tells of a person")
        self._put(number, question.kernel, b"", max(kernel_epsilon(question.kernel), ROUNDING))
        self._asked[self._ranks.setdefault(question.user, len(self._ranks))] = number

    def wave(self, progress: Progress) -> Wave:
        """All of them: from the first person in the order to the last who was ever asked."""
        asked = [self._asked.get(rank, -1) for rank in range(len(self._ranks))]
        return self._wave(progress, -1, np.array(asked))
