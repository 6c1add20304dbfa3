"""Protocols in waves, with everybody asked at most once: who is asked what in each run.

A protocol in rounds asks many questions at a time. Here each of its waves is a run: whoever has not
been asked yet is called up, in a public order, and answers one question. A question to somebody new
takes one person. A question to somebody who has answered before is put to as many fresh people as
it takes for one of them to accept (rejection sampling, `sequential`); the first in the order who
accepts has given the answer, and the others have spent their budget too. A question that nobody
accepted stays open, and the next run puts it to fresh people again: the law of the transcript
is exactly that of the protocol.

Everything here is public: the order of people (a hash of their ids), the questions, the coins.

Source: specification of interactivity, sections 5.3 and 10.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from beam_ldp.protocols.interactivity.kernels import IntegerKernel
from beam_ldp.protocols.interactivity.records import hash_people, mixed
from beam_ldp.protocols.interactivity.sequential import (
    Mode,
    Protocol,
    Question,
    follow_up,
    wave_size,
)
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.identity import AnyIds

Answers = tuple[tuple[int, ...], ...]
"""Of a protocol so far: wave by wave, the answers to its questions."""

Rounds = Callable[[Answers], Sequence[Question]]
"""The questions of the next wave, given the answers of all before; none at the end. Deterministic,
and each wave asks nobody twice."""


def one_by_one(rounds: Rounds) -> Protocol:
    """The same protocol, a question at a time: what is enumerated, simulated and priced."""

    def protocol(answers: tuple[int, ...]) -> Question | None:
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
        sizes: people to each question of the protocol's wave, in the order of the questions; 0
            where it is answered already, or publicly.
        kernels: of what a person says, each once.
        which: number of the kernel of each question.
        again: whether a question is to somebody who has answered before: 0 is then no, and y + 1
            the answer y.
        drawn: answers that public coins gave.
    """

    number: int
    after: int
    seed: int
    sizes: tuple[int, ...]
    kernels: tuple[IntegerKernel, ...]
    which: tuple[int, ...]
    again: tuple[bool, ...]
    drawn: Mapping[int, int]

    @property
    def people(self) -> int:
        """Who are called up."""
        return sum(self.sizes)

    @cached_property
    def digest(self) -> str:
        """32 bytes, hexadecimal, of everything that people are told before they answer."""
        told = hashlib.sha256(
            repr((self.number, self.after, self.seed, self.sizes, self.which, self.again)).encode()
        )
        for kernel in self.kernels:
            told.update(repr(kernel.thresholds.shape).encode() + kernel.thresholds.tobytes())
        return told.hexdigest()

    def called(self, places: np.ndarray) -> np.ndarray:
        """Those of these places that have not been called up before this run."""
        return places if self.after < 0 else places[places > np.uint64(self.after)]

    def questions(self, ranks: np.ndarray) -> np.ndarray:
        """The question to each person, by rank among those called up now."""
        return np.searchsorted(np.cumsum(self.sizes), ranks, side="right")

    def reports(self, ranks: np.ndarray, data: np.ndarray, words: np.ndarray) -> np.ndarray:
        """What people say, `(n,)` int64.

        Args:
            ranks: `(n,)`, among the people of this run.
            data: `(n,)` integers, rows of the kernels.
            words: `(n,)` uint64, uniform; one of its own for each person.
        """
        found = np.empty(len(ranks), dtype=np.int64)
        kernels = np.array(self.which)[self.questions(ranks)]
        for number in np.unique(kernels).tolist():
            own = kernels == number
            found[own] = self.kernels[number].draw(data[own], words[own])
        return found

    def first_accepted(self, ranks: np.ndarray, reports: np.ndarray) -> dict[int, tuple[int, int]]:
        """By question: rank and answer of the first who accepted, among some people."""
        questions = self.questions(ranks)
        again = np.array(self.again)[questions]
        accepted = np.flatnonzero(~again | (reports > 0))
        accepted = accepted[np.argsort(ranks[accepted], kind="stable")]
        numbers, first = np.unique(questions[accepted], return_index=True)
        chosen = accepted[first]
        answers = reports[chosen] - again[chosen]
        told = zip(ranks[chosen].tolist(), answers.tolist())
        return dict(zip(numbers.tolist(), told))


@dataclass(frozen=True)
class WavePlan:
    """A protocol in waves in which everybody is asked at most once.

    Each person is protected against everybody who reads all that people say, by the local epsilon
    of their one report: `epsilon` in the mode `plain`, at most twice that in the others.

    Args:
        rounds: the protocol.
        epsilon: of the protocol; pure. What tells more is refused when it comes up.
        mode: how questions to somebody who has answered are put; see `sequential`.
        beta: probability with which nobody accepts such a question in one run.
        seed: of the order of people and of public coins; no secret.

    >>> response = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> twice = lambda answers: [Question("ada", response)] if len(answers) < 2 else []
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

    def __post_init__(self) -> None:
        wave_size(self.epsilon, self.beta, self.mode)
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
        asks = _Asks(self)
        for number, question in enumerate(questions):
            before = logs.get(question.user)
            if current[number] is None:
                asks.ask(number, question.kernel, before, coins[number])
        return asks.wave(progress, tuple(question.user in logs for question in questions))

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
        current = progress.current or (None,) * len(wave.sizes)
        answers = tuple(told.get(n) if one is None else one for n, one in enumerate(current))
        finished = progress.finished
        if None not in answers:
            finished, answers = (*finished, tuple(int(a) for a in answers if a is not None)), ()
        last = max(last, progress.last)
        return Progress(finished, answers, progress.runs + 1, progress.people + people, last)

    def _questions(self, finished: Answers) -> Sequence[Question]:
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
    """The questions of a wave that are open, as they are put to fresh people."""

    def __init__(self, plan: WavePlan) -> None:
        self._plan = plan
        self._again = wave_size(plan.epsilon, plan.beta, plan.mode)
        self._numbers: dict[tuple[bytes, bytes], int] = {}
        self._kernels: list[IntegerKernel] = []
        self._put: dict[int, tuple[int, int]] = {}  # by question: people, number of the kernel
        self._drawn: dict[int, int] = {}

    def ask(
        self, number: int, kernel: np.ndarray, before: np.ndarray | None, coins: np.ndarray
    ) -> None:
        """Put a question to somebody new, to the fresh people of somebody, or to a coin."""
        if before is None:
            self._put[number] = 1, self._number(kernel, b"", self._plan.epsilon)
            return
        asked = follow_up(before, kernel, self._plan.epsilon, self._plan.mode)
        if coins[0] < asked.parts.weight:
            told = self._number(asked.kernel, before.tobytes(), self._plan.promise)
            self._put[number] = self._again, told
        else:
            law = np.cumsum(asked.parts.public)
            self._drawn[number] = min(int(np.searchsorted(law, coins[1], "right")), len(law) - 1)

    def wave(self, progress: Progress, again: tuple[bool, ...]) -> Wave:
        """All of them."""
        if len({kernel.inputs for kernel in self._kernels}) > 1:
            raise ValueError("all kernels of a protocol must have the same number of data")
        put = [self._put.get(number, (0, 0)) for number in range(len(again))]
        sizes, which = tuple(size for size, _ in put), tuple(kernel for _, kernel in put)
        return Wave(
            progress.runs, progress.last, self._plan.seed,
            sizes, tuple(self._kernels), which, again, self._drawn,
        )  # fmt: skip

    def _number(self, kernel: np.ndarray, before: bytes, promise: float) -> int:
        key = (kernel.tobytes(), before)
        if key not in self._numbers:
            self._numbers[key] = len(self._kernels)
            self._kernels.append(IntegerKernel.of(kernel, promise))
        return self._numbers[key]
