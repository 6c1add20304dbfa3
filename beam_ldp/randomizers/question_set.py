"""What every design of several questions shares: oracles, their statistics, their estimates."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.frequency_oracle import MAX_USERS, FrequencyOracle
from beam_ldp.randomizers.intervals import NORMAL, Joined
from beam_ldp.randomizers.local_randomizer import (
    CONFIG_VERSION,
    ExtraWords,
    LocalRandomizer,
    Sampling,
    check_sampling,
    own_crowd_rule,
)

MAX_QUESTIONS = 256  # so that the question's index is one byte of a report


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

    def _possible_answers(self, question: int, rows: np.ndarray) -> np.ndarray:
        """Which of these rows of bytes an oracle can have sent, zero-padded: bool `(n,)`."""
        padded = ~rows[:, self._widths[question] :].any(axis=1)
        return padded & self.oracles[question]._possible(self._reports_of(question, rows))

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
                error = np.hypot(error, draw_error(estimate.value, count, num_users))
            rule = estimate.rule.among(num_users)
            found.append(replace(estimate, standard_error=error, num_users=num_users, rule=rule))
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
            rule=Joined(tuple((part.value.size, part.rule) for part in parts)),
        )

    def split(self, estimate: Estimate) -> tuple[Estimate, ...]:
        """What `estimate` gave, question by question."""
        cuts = np.cumsum(self.domain_sizes)[:-1]
        rules = estimate.rule.parts if isinstance(estimate.rule, Joined) else ()
        parts = zip(
            np.split(estimate.value, cuts),
            np.split(estimate.standard_error, cuts),
            [rule for _, rule in rules] or [NORMAL] * len(self.oracles),
        )
        return tuple(
            Estimate(value, error, estimate.num_users, rule=rule) for value, error, rule in parts
        )

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
                variance = variance + draw_error(at, answers, num_users) ** 2
            found.append(variance)
        return np.concatenate(found)

    # What it costs ------------------------------------------------------------------------

    def channel_values(self) -> np.ndarray:
        """The values that the columns of `channel` stand for: `(columns, questions)`."""
        return np.array(list(itertools.product(*map(range, self.domain_sizes))))


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
    if oracle.public_groups != 1 or own_crowd_rule(oracle):
        raise ValueError(
            f"oracles must hide a report among all others, {name} ties something public to people"
        )


def further_words(extra: ExtraWords, rows: np.ndarray, start: int, step: int) -> ExtraWords:
    """Rare further words of some rows, at positions that nothing else uses."""

    def words(where: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return extra(rows[where], start + step * positions)

    return words


def draw_error(value: np.ndarray, answers: int, num_users: int) -> np.ndarray:
    """Standard error of a frequency among `answers` of `num_users` people, drawn evenly."""
    if answers == 0 or num_users <= 1:
        return np.zeros_like(value)
    kept = (num_users - answers) / (num_users - 1)
    spread = np.clip(value, 0.0, 1.0)
    found: np.ndarray = np.sqrt(np.maximum(spread * (1 - spread), 0.0) * kept / answers)
    return found
