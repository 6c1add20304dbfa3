"""Heavy hitters: which words do many people hold, of a column of text that nobody listed?"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from beam_ldp.questions.base import Asked, Choice, Look, Part, Question, Rows
from beam_ldp.questions.published import Published
from beam_ldp.settings import SettingError
from beam_ldp.settings.fields import NUMBER, WHOLE, setting
from beam_ldp.settings.sections import DEAD_LETTER
from beam_ldp.settings.usage import Arguments
from beam_ldp.wording import many, number, share

if TYPE_CHECKING:  # what help need not wait for
    import numpy as np

    from beam_ldp.accounting.prices import Price
    from beam_ldp.planning import Plan
    from beam_ldp.protocols.heavy_hitters import Assignment, HeavyHitters, Level
    from beam_ldp.questions.base import View
    from beam_ldp.questions.encoders import WordEncoder
    from beam_ldp.randomizers.identity import ReleaseIdentity
    from beam_ldp.settings import Privacy
    from beam_ldp.settings.job import Job

MOST_BYTES, MOST_BITS = 256, 4096  # of a word, and of its code


@dataclass(frozen=True, kw_only=True)
class WordQuestion(Question):
    """Which words do many people hold, of a column of text that nobody listed?"""

    column: tuple[str, ...] = setting(
        (), "column with the word (not for text input, where each line is one)",
        flag="column", metavar="NAME", many=True, basic=True,
    )  # fmt: skip
    max_bytes: int = setting(
        32,
        "longest word that can be found, in bytes of UTF-8 (default 32); people with a longer "
        "one take part, and it is never found",
        WHOLE, flag="max-bytes", metavar="N", basic=True,
    )  # fmt: skip
    code_bits: int = setting(
        64,
        "longest code of a word that can be found, in bits (default 64: nearly all words of a "
        "language in Latin script; addresses take 128 or more, other scripts 6 to 11 a byte); "
        "the fewer, the rarer words are found",
        WHOLE, flag="code-bits", metavar="BITS",
    )  # fmt: skip
    false_words: float = setting(
        1.0,
        "words that may be released, on average, though hardly anybody holds them (default 1); "
        "with more, rarer words are found",
        NUMBER, flag="false-words", metavar="K",
    )  # fmt: skip
    failure_probability: float = setting(
        0.05,
        "probability that a word as frequent as the plan says is missed (default 0.05)",
        NUMBER, flag="failure-probability", metavar="P",
    )  # fmt: skip
    assignment: Literal["secret", "visible"] = setting(
        "secret",
        "who learns at which level a person answers: nobody, for the level travels inside the "
        "report (secret), or whoever shuffles (visible); the privacy cost is much smaller where "
        "nobody does",
        flag="assignment", choices=("secret", "visible"),
    )  # fmt: skip
    bad_rows: str = setting(
        DEAD_LETTER,
        "what happens to rows that cannot be used: they are listed in bad_rows.jsonl, or reported "
        "as a word that is not found, without a trace",
        flag="bad-rows", choices=(DEAD_LETTER, "other"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        if not 1 <= self.max_bytes <= MOST_BYTES:
            raise SettingError(
                f"{{question.max_bytes}} must lie in [1, {MOST_BYTES}], got {self.max_bytes}"
            )
        if not 1 <= self.code_bits <= MOST_BITS:
            raise SettingError(
                f"{{question.code_bits}} must lie in [1, {MOST_BITS}], got {self.code_bits}"
            )
        if not self.false_words > 0:
            raise SettingError(f"{{question.false_words}} must be > 0, got {self.false_words:g}")
        if not 0 < self.failure_probability < 1:
            raise SettingError(
                "{question.failure_probability} must lie in (0, 1), got "
                f"{self.failure_probability:g}"
            )

    needs = ("privacy.delta", "privacy.local_epsilon")
    refuses = {
        "stream": "each level of a search asks about the words that the level before it found, so "
        "all people must be there before it begins",
        "yaml": "Beam YAML has transforms of one round, and a search asks level by level",
    }

    def settled(self, given: Arguments) -> WordQuestion:
        if len(self.column) > 1:
            raise SettingError("--column must name one column: each search is a release of its own")
        return self

    def bind(self, job: Job, look: Look) -> HeavyWords:
        column = "".join(look.columns(self.column))
        bad_rows = "dead_letter" if job.bad_rows_leave_a_trace else "other"
        return HeavyWords(column or None, column, bad_rows, declared=self)


@dataclass(frozen=True, eq=False)
class HeavyWords(Asked):
    """Which words many people hold.

    Attributes:
        column: with the word; None where elements are words.
        declared: the settings, where they come from a job.
    """

    column: str | None = None
    name: str = ""
    bad_rows: str = "dead_letter"
    declared: WordQuestion | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        named = self.column or self.name
        return (named,) if named else ()

    def digest(self, mechanism: Any) -> bytes:
        return b""  # the plan says all that is public

    def check(self, mechanism: Any) -> None:
        from beam_ldp.protocols.heavy_hitters import HeavyHitters

        if not isinstance(mechanism, HeavyHitters):
            raise TypeError(f"protocol must be a HeavyHitters, got {type(mechanism).__name__}")

    def mechanism(self, privacy: Privacy) -> Any:
        raise ValueError("protocol must be given: plan_heavy_hitters makes it")

    def encoder(self, mechanism: Any) -> WordEncoder:
        from beam_ldp.questions.encoders import WordEncoder

        return WordEncoder(None if self.column is None else (self.column,), mechanism.code)

    # Before the data --------------------------------------------------------------------------

    @property
    def asked(self) -> WordQuestion:
        """The settings of its job."""
        assert self.declared is not None
        return self.declared

    def best(self, job: Job) -> Plan:
        from beam_ldp.planning import Plan
        from beam_ldp.protocols.heavy_hitters_plan import plan_heavy_hitters

        asked = self.asked
        assert job.privacy.local_epsilon is not None
        try:
            protocol = plan_heavy_hitters(
                job.planned_reports,
                job.privacy.local_epsilon,
                max_bytes=asked.max_bytes,
                num_bits=asked.code_bits,
                beta=asked.failure_probability,
                false_words=asked.false_words,
                assignment=asked.assignment,
            )
        except ValueError as error:
            raise SettingError(str(error)) from None
        if not protocol.threshold < 1:
            raise SettingError(
                "--expected-users must be larger: not even a word that everybody holds would be "
                "found"
            )
        return Plan("HeavyHitters", protocol)

    def chosen(self, job: Job, mechanism: HeavyHitters) -> Choice:
        """The error is that of the share of people with a word that is just found."""
        import numpy as np

        protocol, people = mechanism, job.planned_reports
        last = protocol.levels[-1]
        answers = max(1, int(people * last.share))
        truth = np.zeros(last.oracle.domain_size)
        truth[0], truth[-1] = protocol.threshold, 1 - protocol.threshold
        error = float(np.sqrt(last.oracle.variance(answers, truth, "iid")[0]))
        price = None
        if not job.noise.simulated:
            price = total(job, protocol, expected_of(protocol, people))
        return Choice(protocol, people, price, error)

    def price_among(self, job: Job, choice: Choice, num_reports: int) -> Price | None:
        if choice.price is None:
            return None
        return total(job, choice.mechanism, choice.mechanism.min_reports(num_reports))

    def inputs(self, job: Job) -> Rows:
        asked = self.asked
        named = self.column or "word"
        longest = f"words of up to {many(asked.max_bytes, 'byte')}"
        coded = f"with a code of up to {asked.code_bits:,} bits"
        return [("question", f"{named}: {longest}, {coded}, which nobody listed")]

    def expectation(self, job: Job, choice: Choice) -> str:
        protocol = choice.mechanism
        return (
            f"{many(len(protocol.levels), 'level')}; a word with a code (up to "
            f"{protocol.code.num_bits:,} bits) that {share(protocol.threshold)} of the "
            f"people hold will be found with probability {1 - protocol.miss:g}"
        )

    def expected(self, job: Job, choice: Choice) -> Rows:
        from beam_ldp.randomizers.estimate import readable

        protocol, people = choice.mechanism, choice.num_reports
        found: Rows = [
            (
                "found",
                f"words with a code of {share(protocol.threshold)} of the people "
                f"({round(protocol.threshold * people):,}) or more, each with probability "
                f"{1 - protocol.miss:g}; at most {readable(protocol.false_words)} that nobody "
                "holds, on average",
            ),
            ("best possible", f"{share(protocol.fano)}: below it no protocol of this local epsilon "
             "finds words (Fano)"),
            ("error of a share", f"about {share(choice.predicted_error)} for a word just found"),
        ]  # fmt: skip
        for i, level in enumerate(protocol.levels):
            count = int(people * level.share)
            asked = f"{asks_of(level)}, one of {level.none:,}; {count:,} people"
            found.append((f"level {i + 1}", asked))
        if choice.price is not None:
            found.append(("who learns the level", _assignment_said(job, protocol, people)))
        return found

    def expected_as_json(self, job: Job, choice: Choice) -> dict[str, Any]:
        protocol = choice.mechanism
        received = expected_of(protocol, choice.num_reports)
        visible = None if choice.price is None else total(job, protocol, received, "visible")
        return {
            "threshold": protocol.threshold,
            "fano": protocol.fano,
            "failure_probability": protocol.miss,
            "false_words": protocol.false_words,
            "assignment": protocol.assignment,
            "epsilon_if_visible": _bound(visible),
            "levels": levels_of(protocol, received),
        }

    # After the data ---------------------------------------------------------------------------

    def price(self, job: Job, choice: Choice, release: Any) -> Price:
        from beam_ldp.accounting.prices import Price

        protocol, received = choice.mechanism, release.mechanism["received"]
        if release.simulated:
            return Price(None, protocol.crowd(received, job.privacy.honest_fraction))
        return total(job, protocol, received)

    def facts(self, job: Job, choice: Choice, release: Any) -> dict[str, Any]:
        from beam_ldp.questions.words_view import words_above

        protocol, found = choice.mechanism, release.estimate
        received = release.mechanism["received"]
        visible = None if release.simulated else total(job, protocol, received, "visible")
        return told_of_search(protocol, received, visible) | {
            "num_words": len(found.texts),
            "complete": found.complete,
            "words_above": words_above(found),
            "tested": found.tested,
            "threshold": found.threshold,
        }

    def view(self, job: Job, choice: Choice, release: Part, truth: Any = None) -> View:
        from beam_ldp.questions.words_view import WordsView

        return WordsView(release, job.output.top, truth)


def told_of_search(
    protocol: HeavyHitters, received: Sequence[int], visible: Price | None
) -> dict[str, Any]:
    """What every record of a search says.

    assignment: "secret", or "visible": readers may know who was asked at which level.
    epsilon_if_visible: the privacy cost if they do; None in a simulation.
    levels: of each level: its number, how many bits of a word it asks about, of how many values,
        its mechanism, its share of the people, and how many answered.
    num_words: that were found. A word has a code if it is within `max_bytes` and `code_bits`; what
        follows is about those only.
    complete: no word with a code and this frequency is missed, but with `failure_probability` for
        all.
    words_above: how many words with a code have the frequency `complete`: estimate, least, most.
    tested: words that the last level asked about.
    threshold: a word of this frequency was found but with `failure_probability`, with the people
        that came.
    fano: below this frequency no protocol of this local epsilon finds words.
    """
    return {
        "kind": "heavy_hitters",
        "statistic": "heavy_hitters",
        "assignment": protocol.assignment,
        "epsilon_if_visible": _bound(visible),
        "levels": tuple(levels_of(protocol, received)),
        "num_words": 0,
        "complete": None,
        "words_above": (),
        "tested": 0,
        "threshold": None,
        "fano": protocol.fano,
        "failure_probability": protocol.miss,
        "false_words": protocol.false_words,
        "max_bytes": protocol.code.max_bytes,
        "code_bits": protocol.code.num_bits,
    }


def total(
    job: Job, protocol: HeavyHitters, received: Sequence[int], assignment: Assignment | None = None
) -> Price:
    """What all levels cost together, given how many people answer each."""
    from beam_ldp.accounting import event_epsilon
    from beam_ldp.accounting.prices import Price

    if assignment:
        protocol = replace(protocol, assignment=assignment)
    privacy = job.privacy
    ran = protocol.reports(received, privacy.honest_fraction)
    bound = event_epsilon(ran, privacy.delta)
    return Price(bound, protocol.crowd(received, privacy.honest_fraction), ran)


def _assignment_said(job: Job, protocol: HeavyHitters, people: int) -> str:
    received = expected_of(protocol, people)
    visible = f"epsilon {number(_bound(total(job, protocol, received, 'visible')))}"
    if protocol.assignment == "visible":
        secret = number(_bound(total(job, protocol, received, "secret")))
        return f"whoever shuffles: {visible}; {secret} if nobody did"
    return f"nobody: it travels inside the report; {visible} if readers could see it"


def expected_of(protocol: HeavyHitters, people: int) -> tuple[int, ...]:
    """Of so many people, those of each level, on average."""
    return tuple(int(people * level.share) for level in protocol.levels)


def _bound(price: Price | None) -> float | None:
    return None if price is None or price.bound is None else float(price.bound)


def asks_of(level: Level) -> str:
    """What the people of a level are asked, in words."""
    return f"the first {level.prefix_bits} bits" if level.new_bits else "the whole word"


def levels_of(protocol: HeavyHitters, received: Sequence[int]) -> list[dict[str, Any]]:
    """Of each level that was asked what the record says."""
    return [
        {
            "level": i + 1,
            "asks": asks_of(level),
            "prefix_bits": level.prefix_bits,
            "values": level.none + 1,
            "mechanism": type(level.oracle).__name__,
            "share": level.share,
            "people": people,
        }
        for i, (level, people) in enumerate(zip(protocol.levels, received))
    ]


# What is published of a level -----------------------------------------------------------------


@dataclass(frozen=True)
class PublishedWords(Published):
    """One level of a search for words: do you hold one that begins with one of these?

    A search is a sequence of such questions, each with a release file of its own. People are drawn
    for a level on their devices, and answer no other one.

    Attributes:
        column: name of what is searched.
        protocol: the plan of all levels; whoever receives reports sees who answers which.
        candidates: beginnings that this level asks about, in hexadecimal, in rising order.
        received: reports of each level before.
        min_reports: of all levels together, at least; each level's gate is its share of them.
        honest_fraction: share of the reports that are certainly not fake.
    """

    collected_by = "beam_ldp.release.devices.words:collected_words"

    column: str
    protocol: HeavyHitters
    candidates: tuple[str, ...]
    received: tuple[int, ...] = ()
    min_reports: int = 1
    honest_fraction: float = 1.0

    def __post_init__(self) -> None:
        if self.protocol.assignment != "visible":
            raise ValueError("questions: whoever receives reports sees their level")
        if self.level >= len(self.protocol.levels):
            raise ValueError("questions: the search has fewer levels")
        whole = all(len(row) == 16 * self.protocol.code.num_words for row in self.candidates)
        rising = list(self.candidates) == sorted(set(self.candidates))
        if not (whole and rising) or len(self.candidates) > self.asked.candidates:
            raise ValueError("questions: candidates are not those of a level")

    @classmethod
    def first(
        cls, column: str, protocol: HeavyHitters, min_reports: int, honest_fraction: float
    ) -> PublishedWords:
        """What a search begins with."""
        root = _as_hex(protocol.root)
        return cls(column, protocol, root, (), min_reports, honest_fraction)

    def then(self, candidates: np.ndarray, num_reports: int) -> PublishedWords:
        """What follows, where so many reports of this level came to these candidates."""
        received = (*self.received, num_reports)
        return replace(self, candidates=_as_hex(candidates), received=received)

    @property
    def level(self) -> int:
        """Which level this is, from 0."""
        return len(self.received)

    @property
    def asked(self) -> Level:
        """The level."""
        return self.protocol.levels[self.level]

    @property
    def rows(self) -> np.ndarray:
        """The candidates as the protocol takes them."""
        import numpy as np

        packed = np.frombuffer(bytes.fromhex("".join(self.candidates)), dtype=">u8")
        return packed.astype(np.uint64).reshape(-1, self.protocol.code.num_words)

    @property
    def least(self) -> tuple[int, ...]:
        """Gates of all levels."""
        return self.protocol.min_reports(self.min_reports)

    def to_json(self) -> dict[str, Any]:
        return {
            "column": self.column,
            "search": self.protocol.to_config(),
            "candidates": list(self.candidates),
            "received": list(self.received),
            "min_reports": self.min_reports,
            "honest_fraction": self.honest_fraction,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> PublishedWords:
        """Inverse of `to_json`. Raises ValueError."""
        from beam_ldp.protocols.heavy_hitters import HeavyHitters

        try:
            told = {name: found[name] for name in ("column", "min_reports", "honest_fraction")}
            return cls(
                protocol=HeavyHitters.from_config(found["search"]),
                candidates=tuple(found["candidates"]),
                received=tuple(map(operator.index, found["received"])),
                **told,
            )
        except (TypeError, AttributeError):
            raise ValueError("questions hold a value of the wrong type") from None

    @property
    def asked_columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def values(self) -> bytes:
        from beam_ldp.randomizers.identity import digest_of

        return digest_of(self.text.encode())

    def check_fits(self, randomizer: Any) -> None:
        if randomizer.config_digest() != self.asked.oracle.config_digest():
            raise ValueError("release terms contradict themselves: mechanism of the level")


def search_of(identity: ReleaseIdentity) -> ReleaseIdentity:
    """The names of a search, from the identity of one of its levels: what its levels are drawn
    under. Another plan under the same names draws nobody anew."""
    return replace(identity, mechanism="", values="", part="search")


def _as_hex(rows: np.ndarray) -> tuple[str, ...]:
    return tuple(row.astype(">u8").tobytes().hex() for row in rows)
