"""Each person answers all of several questions, each with a part of the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, FrequencyOracle
from beam_ldp.randomizers.question_set import Questions, further_words


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
                further_words(extra, everybody, self.words_per_user + i, len(self.oracles)),
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

    def _unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        total = sum(self._widths)
        if len(data) != total * num_reports:
            raise ValueError(f"data must hold {num_reports} reports of {total} bytes")
        rows = np.frombuffer(data, dtype=np.uint8).reshape(num_reports, total)
        reports = np.zeros((num_reports, *self.report_shape), dtype=np.uint8)
        start = 0
        for i, width in enumerate(self._widths):
            reports[:, i, :width] = rows[:, start : start + width]
            start += width
        return reports

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        """Reports whose every answer its oracle can have sent."""
        possible = np.ones(len(reports), dtype=np.bool_)
        for i in range(len(self.oracles)):
            possible &= self._possible_answers(i, reports[:, i])
        return possible
