"""Several questions to each person: one of them drawn at random, or all with a split budget.

Both are one mechanism of frequency oracles, one oracle per question, so every stage, price and file
format that takes a mechanism takes them. A value is a row of indices, one per question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, FrequencyOracle
from beam_ldp.randomizers.question_set import Questions, further_words
from beam_ldp.randomizers.shuffle_pair import ShufflePair

__all__ = ["EveryQuestion", "OneQuestion", "Questions"]

# Each person answers all of several questions, each with a part of the budget -------------


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

    @property
    def reach(self) -> float:
        """The largest of any question: one dishonest person may lie to all of them."""
        return max(oracle.reach for oracle in self.oracles)

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


# Each person answers one of several questions, drawn at random, with the whole budget -----


_MAX_CHANNEL_ENTRIES = 1 << 20


def _source(questions: int) -> str:
    """Of the price of a report about one of so many."""
    return "own blanket" if questions == 1 else f"own blanket of {questions} questions, one each"


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

    @property
    def reach(self) -> float:
        """Liars all answer one question, which a share of the honest people does.

        F of them among n move its frequencies by F / ((n - F)/Q + F) of the oracle's reach on
        average, Q questions: at most by Q F/n.
        """
        return len(self.oracles) * max(oracle.reach for oracle in self.oracles)

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
                further_words(extra, rows, self.words_per_user, 1),
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
        mixable = all(oracle.mixes for oracle in self.oracles)
        if not (mixable and all(map(_symmetric, pairs))):
            return ShufflePair.clones(self.local_epsilon)
        if len(set(pairs)) == 1 and len(pairs) > 1:
            return replace(pairs[0], source=_source(len(pairs)))
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
            _source(len(pairs)),
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

    def _unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        width = self.report_shape[0]
        if len(data) != width * num_reports:
            raise ValueError(f"data must hold {num_reports} reports of {width} bytes")
        return np.frombuffer(data, dtype=np.uint8).reshape(num_reports, width)

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        """Reports that answer one of the questions as its oracle can have."""
        possible = np.zeros(len(reports), dtype=np.bool_)
        for i in np.unique(reports[:, 0]).tolist():  # one, where a device sends one report
            if i < len(self.oracles):
                rows = np.flatnonzero(reports[:, 0] == i)
                possible[rows] = self._possible_answers(i, reports[rows, 1:])
        return possible


def _symmetric(pair: ShufflePair) -> bool:
    """Whether (a, b) and (b, a) are alike in law."""
    law: dict[tuple[float, float], float] = {}
    for both, probability in zip(pair.ratios, pair.probabilities):
        law[both] = law.get(both, 0.0) + probability
    return all(abs(law.get((b, a), 0.0) - p) <= 1e-12 for (a, b), p in law.items())
