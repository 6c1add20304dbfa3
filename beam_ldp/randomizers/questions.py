"""Several questions to each person: one of them drawn at random, or all with a split budget.

Both are one mechanism of frequency oracles, one oracle per question, so every stage, price and file
format that takes a mechanism takes them. A value is a row of indices, one per question.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from beam_ldp.randomizers.base import (
    CONFIG_VERSION,
    MAX_USERS,
    ExtraWords,
    FrequencyOracle,
    LocalRandomizer,
    Sampling,
    check_integer,
    check_sampling,
)
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.frequency.subset_selection import SubsetSelection
from beam_ldp.randomizers.frequency.symbol_oracle import SymbolOracle
from beam_ldp.randomizers.frequency.unary_encoding import UnaryEncoding
from beam_ldp.randomizers.shuffle_pair import ShufflePair

MAX_QUESTIONS = 256  # so that the question's index is one byte of a report
_OWN_PAIR = (SymbolOracle, SubsetSelection, UnaryEncoding)  # whose pairs may be mixed
_SOURCE = "own blanket of {} questions, one each"
_MAX_CHANNEL_ENTRIES = 1 << 20


@dataclass(frozen=True)
class Questions(LocalRandomizer):
    """What both designs share: oracles, reports of whole bytes, one sum for all questions.

    The statistic is one int64 vector: for each question the number of its answers, then the
    statistic of its oracle. Fields: see the subclasses.
    """

    oracles: tuple[FrequencyOracle, ...]
    local_epsilon: float = 0.0  # 0: what follows from the oracles

    def __post_init__(self) -> None:
        made = tuple(
            LocalRandomizer.from_config(o) if isinstance(o, dict) else o for o in self.oracles
        )
        if not 1 <= len(made) <= MAX_QUESTIONS:
            raise ValueError(f"oracles must number from 1 to {MAX_QUESTIONS}, got {len(made)}")
        for oracle in made:
            _check_oracle(oracle)
        object.__setattr__(self, "oracles", made)
        given, found = self.local_epsilon, self._budget
        if given not in (0.0, found):
            raise ValueError(f"local_epsilon must be 0 or what follows: {found}, got {given}")
        object.__setattr__(self, "local_epsilon", found)
        super().__post_init__()

    @property
    @abstractmethod
    def _budget(self) -> float:
        """What a person loses to whoever sees everything that they send."""

    @abstractmethod
    def shares(self, num_users: int) -> np.ndarray:
        """People who answer each question, on average: `(questions,)`."""

    @property
    def exactness(self) -> str:  # type: ignore[override]
        """The weakest of the oracles'."""
        kinds = {oracle.exactness for oracle in self.oracles}
        return next((k for k in ("real-arithmetic", "computational") if k in kinds), "exact")

    def to_config(self) -> dict[str, Any]:
        return {
            "mechanism": type(self).__name__,
            "version": CONFIG_VERSION,
            "oracles": [oracle.to_config() for oracle in self.oracles],
            "local_epsilon": self.local_epsilon,
        }

    # What one user sends ------------------------------------------------------------------

    @property
    def domain_sizes(self) -> tuple[int, ...]:
        """Values of each question."""
        return tuple(oracle.domain_size for oracle in self.oracles)

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    @cached_property
    def _widths(self) -> tuple[int, ...]:
        """Bytes of a report of each oracle."""
        return tuple(
            int(oracle.report_dtype.itemsize * np.prod(oracle.report_shape, dtype=np.int64))
            for oracle in self.oracles
        )

    def _check_values(self, values: np.ndarray) -> np.ndarray:
        count = len(self.oracles)
        if values.ndim != 2 or values.shape[1] != count or values.dtype.kind not in "iu":
            raise ValueError(
                f"values must be an integer array of shape (n, {count}), one index per question, "
                f"got shape {values.shape} of dtype {values.dtype}"
            )
        for i, oracle in enumerate(self.oracles):
            oracle._check_values(values[:, i])
        return values.astype(np.int64, copy=False)  # memoized noise is one of the bytes of a row

    def _bytes_of(self, question: int, reports: np.ndarray) -> np.ndarray:
        """Reports of one oracle as `(n, width)` bytes."""
        little = np.ascontiguousarray(reports, dtype=reports.dtype.newbyteorder("<"))
        return little.view(np.uint8).reshape(len(reports), self._widths[question])

    def _reports_of(self, question: int, rows: np.ndarray) -> np.ndarray:
        """Inverse of `_bytes_of`, from the front of longer rows."""
        oracle, width = self.oracles[question], self._widths[question]
        packed = np.ascontiguousarray(rows[:, :width])
        little = packed.view(oracle.report_dtype.newbyteorder("<"))
        return little.astype(oracle.report_dtype).reshape(len(rows), *oracle.report_shape)

    # What the collector does with it ------------------------------------------------------

    @cached_property
    def _bounds(self) -> tuple[int, ...]:
        """Where the parts of the statistic begin, and where the last one ends."""
        sizes = [1 + int(np.prod(oracle.statistic_shape)) for oracle in self.oracles]
        return tuple(np.cumsum([0, *sizes]).tolist())

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self._bounds[-1],)

    def parts(self, statistic: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Of each question the number of answers and the statistic of its oracle."""
        statistic = np.asarray(statistic)
        if statistic.shape != self.statistic_shape:
            raise ValueError(
                f"statistic must have shape {self.statistic_shape}, got {statistic.shape}"
            )
        ends = zip(self._bounds, self._bounds[1:])
        cut = [statistic[start:end] for start, end in ends]
        return [
            (int(part[0]), part[1:].reshape(oracle.statistic_shape))
            for part, oracle in zip(cut, self.oracles)
        ]

    def answers(self, statistic: np.ndarray) -> tuple[int, ...]:
        """People who answered each question; empty where everybody answers all."""
        counts = tuple(count for count, _ in self.parts(statistic))
        return counts if self.messages_per_user == 1 else ()

    def estimates(
        self, statistic: np.ndarray, num_users: int, *, sampling: Sampling = "fixed"
    ) -> tuple[Estimate, ...]:
        """The frequencies of each question, as fractions of all `num_users` people.

        Args: as in `estimate`.

        Raises:
            ValueError: if the answers are not as many as the people can have given.
        """
        check_sampling(sampling)
        num_users = check_integer("num_users", num_users, 0, MAX_USERS)
        parts = self.parts(statistic)
        self._check_answers([count for count, _ in parts], num_users)
        found = []
        for oracle, (count, part) in zip(self.oracles, parts):
            estimate = oracle.estimate(part, count, sampling=sampling)
            error = estimate.standard_error
            if sampling == "fixed":
                error = np.hypot(error, _draw_error(estimate.value, count, num_users))
            found.append(replace(estimate, standard_error=error, num_users=num_users))
        return tuple(found)

    @abstractmethod
    def _check_answers(self, counts: Sequence[int], num_users: int) -> None:
        """A ValueError unless so many people can have given these numbers of answers."""

    def estimate(
        self, statistic: np.ndarray, num_users: int, *, sampling: Sampling = "fixed"
    ) -> Estimate:
        """All questions one after the other; `estimates` gives them apart."""
        parts = self.estimates(statistic, num_users, sampling=sampling)
        return Estimate(
            np.concatenate([part.value for part in parts]),
            np.concatenate([part.standard_error for part in parts]),
            num_users,
        )

    def split(self, estimate: Estimate) -> tuple[Estimate, ...]:
        """What `estimate` gave, question by question."""
        cuts = np.cumsum(self.domain_sizes)[:-1]
        both = zip(np.split(estimate.value, cuts), np.split(estimate.standard_error, cuts))
        return tuple(Estimate(value, error, estimate.num_users) for value, error in both)

    def variance(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> np.ndarray:
        """Variance of each component, questions one after the other.

        Where a question is drawn: for `num_users / questions` answers each, which is what is
        expected; the numbers that come differ from it by their own square root.
        """
        check_sampling(sampling)
        cuts = np.cumsum(self.domain_sizes)[:-1]
        truths = [None] * len(self.oracles) if truth is None else np.split(np.asarray(truth), cuts)
        found = []
        for oracle, own, share in zip(self.oracles, truths, self.shares(num_users)):
            answers = max(1, round(float(share)))
            variance = oracle.variance(answers, own, sampling)
            if sampling == "fixed":
                at = np.full(oracle.domain_size, 0.5) if own is None else own
                variance = variance + _draw_error(at, answers, num_users) ** 2
            found.append(variance)
        return np.concatenate(found)

    # What it costs ------------------------------------------------------------------------

    def channel_values(self) -> np.ndarray:
        """The values that the columns of `channel` stand for: `(columns, questions)`."""
        return np.array(list(itertools.product(*map(range, self.domain_sizes))))


@dataclass(frozen=True)
class OneQuestion(Questions):
    """Each person answers one question, drawn evenly at random, with the whole budget.

    A report is the index of the question and the answer: the budget protects the answer against
    everybody who sees the report. **Which question a person answered** is drawn independently of
    all values and travels in the report.

    Against readers of the shuffled reports, or of their sum, who do not know which question a
    person answered, the whole is one mechanism and a report hides among **all** reports. Its
    blanket is that of the oracles' blankets, each with its share of the questions; a person whose
    every answer may change is the worst case (see `dominating_pair`). Against a reader who does
    know a person's question (who ran the device, or watched it), the report hides among the answers
    to that question alone: the price of `oracles[i]` for so many reports.

    Reports are `(n, 1 + width)` uint8, all of one length. The draw of the question uses 56 bits of
    a word; that it is even to 2**-48 only costs no privacy, because it depends on no value.

    Args:
        oracles: one frequency oracle per question, or their configurations.
        local_epsilon: 0, or what follows: the largest of the oracles' budgets.

    Raises:
        ValueError: for no oracles, more than 256, or one whose reports split the crowd.

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> survey = OneQuestion((KRandomizedResponse(3, 1.0), KRandomizedResponse(5, 1.0)))
    >>> reports = survey.randomize(np.array([[0, 4], [2, 1], [1, 1]]))
    >>> [e.value.shape for e in survey.estimates(survey.accumulate(reports), 3)]
    [(3,), (5,)]
    """

    @property
    def _budget(self) -> float:
        return max(oracle.local_epsilon for oracle in self.oracles)

    def log_ratio_max(self) -> float:
        return max(oracle.log_ratio_max() for oracle in self.oracles)

    def shares(self, num_users: int) -> np.ndarray:
        return np.full(len(self.oracles), num_users / len(self.oracles))

    @property
    def report_shape(self) -> tuple[int, ...]:
        return (1 + max(self._widths),)

    @property
    def bits_per_report(self) -> int:
        return 8 * self.report_shape[0]

    @property
    def words_per_user(self) -> int:
        return 1 + max(oracle.words_per_user for oracle in self.oracles)

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        asked = ((words[:, 0] >> np.uint64(8)) * np.uint64(len(self.oracles))) >> np.uint64(56)
        reports[...] = 0
        reports[:, 0] = asked
        for i, oracle in enumerate(self.oracles):
            rows = np.flatnonzero(asked == i)
            if not len(rows):
                continue
            answers = np.empty((len(rows), *oracle.report_shape), dtype=oracle.report_dtype)
            own = np.ascontiguousarray(words[rows, 1 : 1 + oracle.words_per_user])
            oracle._randomize_block(
                np.ascontiguousarray(values[rows, i]),
                own,
                _further(extra, rows, self.words_per_user, 1),
                answers,
            )
            reports[rows, 1 : 1 + self._widths[i]] = self._bytes_of(i, answers)

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        self._check_questions(reports)
        found = np.zeros(self.statistic_shape, dtype=np.int64)
        for i, oracle in enumerate(self.oracles):
            rows = np.flatnonzero(reports[:, 0] == i)
            if len(rows):
                answers = self._reports_of(i, reports[rows, 1:])
                found[self._bounds[i]] = len(rows)
                found[self._bounds[i] + 1 : self._bounds[i + 1]] = oracle.accumulate(
                    answers
                ).reshape(-1)
        return found

    def _check_questions(self, reports: np.ndarray) -> None:
        if len(reports) and reports[:, 0].max() >= len(self.oracles):
            raise ValueError(f"reports must answer one of {len(self.oracles)} questions")

    def _check_answers(self, counts: Sequence[int], num_users: int) -> None:
        if sum(counts) != num_users:
            raise ValueError("statistic must hold one answer of each of num_users people")

    def channel(self) -> np.ndarray:
        """P(report | value): reports question by question, values as in `channel_values`."""
        values, blocks = self.channel_values(), []
        for i, oracle in enumerate(self.oracles):
            own = oracle.channel() / len(self.oracles)
            if own.shape[0] * len(values) > _MAX_CHANNEL_ENTRIES:
                return super().channel()
            blocks.append(own[:, values[:, i]])
        return np.concatenate(blocks)

    def channel_reports(self) -> np.ndarray:
        blocks = []
        for i, oracle in enumerate(self.oracles):
            answers = self._bytes_of(i, oracle.channel_reports())
            block = np.zeros((len(answers), *self.report_shape), dtype=np.uint8)
            block[:, 0] = i
            block[:, 1 : 1 + self._widths[i]] = answers
            blocks.append(block)
        return np.concatenate(blocks)

    def dominating_pair(self) -> ShufflePair:
        """The mixture of the oracles' own pairs; that of the clones where one has none.

        With blanket masses g_i of the oracles and g their mean, the blanket of the whole asks
        question i with probability g_i / sum(g) and answers by the oracle's blanket; ratios of
        question i are those of its oracle times g / g_i. The hockey stick is an expectation of the
        convex (.)+ of a sum of a - t b over independent draws of (a, b), so it can only grow where
        the law of one draw is spread out. Within a question the oracle's own pair is the most
        spread. A question whose answer does not change has (a, a) in place of (a, b), with (a, b)
        and (b, a) alike in law: of the two values a - t b and b - t a together, the changed ones
        lie farther apart with the same sum than a - t a and b - t b. So the worst is a person
        whose every answer changes.
        """
        pairs = [oracle.dominating_pair() for oracle in self.oracles]
        mixable = all(isinstance(oracle, _OWN_PAIR) for oracle in self.oracles)
        if not (mixable and all(map(_symmetric, pairs))):
            return ShufflePair.clones(self.local_epsilon)
        if len(set(pairs)) == 1 and len(pairs) > 1:
            return replace(pairs[0], source=_SOURCE.format(len(pairs)))
        masses = np.array([pair.blanket_mass for pair in pairs])
        mean = float(masses.mean())
        table: dict[tuple[float, float], float] = {}
        for pair, mass in zip(pairs, masses.tolist()):
            for (first, second), probability in zip(pair.ratios, pair.probabilities):
                both = (first * mean / mass, second * mean / mass)
                table[both] = table.get(both, 0.0) + probability * mass / float(masses.sum())
        proved = all(pair.proof_status == "proved" for pair in pairs)
        return ShufflePair(
            mean,
            tuple(table),
            tuple(table.values()),
            "proved" if proved else "conjectured",
            _SOURCE.format(len(pairs)),
        )

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        """Everybody else holds one value per question; the victim's answers all change."""
        found = []
        for pairs in zip(*(oracle.witness_pairs() for oracle in self.oracles)):
            table: dict[tuple[float, float], float] = {}
            for pair in pairs:
                for both, probability in zip(pair.ratios, pair.probabilities):
                    table[both] = table.get(both, 0.0) + probability / len(pairs)
            found.append(
                ShufflePair(1.0, tuple(table), tuple(table.values()), "proved", pairs[0].source)
            )
        return tuple(found)

    def pack(self, reports: np.ndarray) -> bytes:
        """The bytes of each report: the question, the answer, zeros up to the common length."""
        return np.ascontiguousarray(reports).tobytes()

    def unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        width = self.report_shape[0]
        if len(data) != width * num_reports:
            raise ValueError(f"data must hold {num_reports} reports of {width} bytes")
        return self._check_reports(np.frombuffer(data, dtype=np.uint8).reshape(num_reports, width))

    def _check_reports(self, reports: np.ndarray) -> np.ndarray:
        self._check_questions(reports)
        for i, oracle in enumerate(self.oracles):
            rows = reports[reports[:, 0] == i, 1:]
            if rows[:, self._widths[i] :].any():
                raise ValueError("reports must be padded with zeros")
            oracle._check_reports(self._reports_of(i, rows))
        return reports


@dataclass(frozen=True)
class EveryQuestion(Questions):
    """Each person answers all questions, each with a part of the budget.

    A person sends one message per question; each column of messages is shuffled on its own, so that
    nothing links the answers of a person. Against everybody who sees all messages of a person the
    budgets add up; against readers of what left the shufflers the price is the composition of one
    shuffled release per question, each of which hides a message among all people.

    Reports are `(n, questions, width)` uint8.

    Args:
        oracles: one frequency oracle per question with its own budget, or their configurations.
        local_epsilon: 0, or what follows: the sum of the oracles' budgets.

    Raises:
        ValueError: as `OneQuestion`.
    """

    @property
    def _budget(self) -> float:
        return float(sum(oracle.local_epsilon for oracle in self.oracles))

    def log_ratio_max(self) -> float:
        return float(sum(oracle.log_ratio_max() for oracle in self.oracles))

    @property
    def messages_per_user(self) -> int:  # type: ignore[override]
        return len(self.oracles)

    @property
    def message_randomizers(self) -> tuple[FrequencyOracle, ...]:
        """What makes the message of each column: every column has a price of its own."""
        return self.oracles

    def shares(self, num_users: int) -> np.ndarray:
        return np.full(len(self.oracles), float(num_users))

    @property
    def report_shape(self) -> tuple[int, ...]:
        return (len(self.oracles), max(self._widths))

    @property
    def bits_per_report(self) -> int:
        return 8 * sum(self._widths)

    @property
    def words_per_user(self) -> int:
        return sum(oracle.words_per_user for oracle in self.oracles)

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        reports[...] = 0
        start, everybody = 0, np.arange(len(values))
        for i, oracle in enumerate(self.oracles):
            answers = np.empty((len(values), *oracle.report_shape), dtype=oracle.report_dtype)
            stop = start + oracle.words_per_user
            oracle._randomize_block(
                np.ascontiguousarray(values[:, i]),
                np.ascontiguousarray(words[:, start:stop]),
                _further(extra, everybody, self.words_per_user + i, len(self.oracles)),
                answers,
            )
            reports[:, i, : self._widths[i]] = self._bytes_of(i, answers)
            start = stop

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        found = np.zeros(self.statistic_shape, dtype=np.int64)
        for i, oracle in enumerate(self.oracles):
            start, end = self._bounds[i : i + 2]
            answers = self._reports_of(i, reports[:, i])
            found[start] = len(reports)
            found[start + 1 : end] = oracle.accumulate(answers).reshape(-1)
        return found

    def _check_answers(self, counts: Sequence[int], num_users: int) -> None:
        if any(count != num_users for count in counts):
            raise ValueError("statistic must hold an answer of each of num_users people to each")

    def pack(self, reports: np.ndarray) -> bytes:
        """The messages one after the other, each in the bytes of its own oracle."""
        parts = [reports[:, i, :width] for i, width in enumerate(self._widths)]
        return np.concatenate(parts, axis=1).tobytes() if len(reports) else b""

    def unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        total = sum(self._widths)
        if len(data) != total * num_reports:
            raise ValueError(f"data must hold {num_reports} reports of {total} bytes")
        rows = np.frombuffer(data, dtype=np.uint8).reshape(num_reports, total)
        reports = np.zeros((num_reports, *self.report_shape), dtype=np.uint8)
        start = 0
        for i, width in enumerate(self._widths):
            reports[:, i, :width] = rows[:, start : start + width]
            start += width
        return self._check_reports(reports)

    def _check_reports(self, reports: np.ndarray) -> np.ndarray:
        for i, oracle in enumerate(self.oracles):
            if reports[:, i, self._widths[i] :].any():
                raise ValueError("reports must be padded with zeros")
            oracle._check_reports(self._reports_of(i, reports[:, i]))
        return reports


def _check_oracle(oracle: Any) -> None:
    """Refuse what cannot be one question of several."""
    if not isinstance(oracle, FrequencyOracle):
        raise ValueError(f"oracles must be frequency oracles, got {type(oracle).__name__}")
    name = type(oracle).__name__
    if oracle.messages_per_user != 1:
        raise ValueError(f"oracles must send one message per person, {name} sends several")
    if type(oracle).randomize is not LocalRandomizer.randomize:
        raise ValueError(f"oracles must draw their noise block by block, {name} does not")
    if oracle.statistic_dtype != np.int64:
        raise ValueError(f"oracles must have statistics of 64-bit integers, {name} has not")
    if oracle.crowd_size(1 << 40) != 1 << 40:
        raise ValueError(
            f"oracles must hide a report among all others, {name} ties something public to people"
        )


def _symmetric(pair: ShufflePair) -> bool:
    """Whether (a, b) and (b, a) are alike in law."""
    law: dict[tuple[float, float], float] = {}
    for both, probability in zip(pair.ratios, pair.probabilities):
        law[both] = law.get(both, 0.0) + probability
    return all(abs(law.get((b, a), 0.0) - p) <= 1e-12 for (a, b), p in law.items())


def _further(extra: ExtraWords, rows: np.ndarray, start: int, step: int) -> ExtraWords:
    """Rare further words of some rows, at positions that nothing else uses."""

    def words(where: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return extra(rows[where], start + step * positions)

    return words


def _draw_error(value: np.ndarray, answers: int, num_users: int) -> np.ndarray:
    """Standard error of a frequency among `answers` of `num_users` people, drawn evenly."""
    if answers == 0 or num_users <= 1:
        return np.zeros_like(value)
    kept = (num_users - answers) / (num_users - 1)
    spread = np.clip(value, 0.0, 1.0)
    found: np.ndarray = np.sqrt(np.maximum(spread * (1 - spread), 0.0) * kept / answers)
    return found
