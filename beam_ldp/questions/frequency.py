"""What `beam-ldp frequency` asks: values of a list or of several, or numbers in bins.

Three kinds share these settings: `frequencies` (one list, or bins), `surveys` (several lists) and
`numbers` (ranges and quantiles of a number).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from beam_ldp.questions.base import Asked, Look, Question
from beam_ldp.settings import SettingError
from beam_ldp.settings.fields import WHOLE, setting
from beam_ldp.settings.sections import DEAD_LETTER
from beam_ldp.settings.usage import TEXT_COLUMN, Arguments

if TYPE_CHECKING:  # what help need not wait for
    from beam_ldp.questions.bins import NumberQuestion
    from beam_ldp.settings.job import Job


@dataclass(frozen=True, kw_only=True)
class FrequencyQuestion(Question):
    """How often each value occurs: of a public list, of several, or of numbers in bins.

    Attributes: the settings, and what the program makes of them once they are checked:

        columns, domains: a column and a list for each question.
        name: public name of all that is asked.
        numbers: what is asked about numbers; None for values of lists.
    """

    column: tuple[str, ...] = setting(
        (), "column with the value (not for text input); repeat it to ask several questions",
        flag="column", metavar="NAME", many=True, basic=True,
    )  # fmt: skip
    domain: tuple[str, ...] = setting(
        (),
        "public list of values, one per line; all other values count as `other`. With "
        "several questions, one for each {question.column}",
        flag="domain", metavar="FILE", many=True, basic=True,
    )  # fmt: skip
    other: str = setting(
        "other", "name for all values not listed, if the list itself holds a value `other`",
        flag="other-label", metavar="NAME",
    )  # fmt: skip
    bins: str | None = setting(
        None,
        "for a column of numbers, instead of {question.domain}: public edges such as "
        "0,10,20,50,100, or LOW:HIGH:COUNT; numbers outside count as `other`",
        flag="bins", metavar="EDGES",
    )  # fmt: skip
    quantiles: str | None = setting(
        None,
        "quantiles to estimate, such as 0.1,0.5,0.9, with confidence intervals; as fine"
        " as {question.bins}",
        flag="quantiles", metavar="LEVELS",
    )  # fmt: skip
    between: tuple[str, ...] = setting(
        (),
        "range to count: how many numbers lie in [LOW, HIGH), each an edge of "
        "{question.bins} or inf; may be repeated",
        flag="between", metavar="LOW:HIGH", many=True,
    )  # fmt: skip
    fan_out: int | None = setting(
        None,
        "fan-out: children of each node in the tree behind {question.quantiles} and "
        "{question.between} (default: the most accurate one, see docs/questions.md)",
        WHOLE, flag="fan-out", metavar="N",
    )  # fmt: skip
    design: str = setting(
        "auto",
        "for several questions: each person answers one of them, drawn at random, or "
        "all of them with a split budget; auto takes the more accurate one whose "
        "privacy cost is no higher, locally or centrally",
        flag="design", choices=("auto", "one", "all"),
    )  # fmt: skip
    bad_rows: str = setting(
        DEAD_LETTER,
        "what happens to rows that cannot be used: they are listed in bad_rows.jsonl, "
        "or reported as `other` without a trace",
        flag="bad-rows", choices=(DEAD_LETTER, "other"),
    )  # fmt: skip
    postprocess: str = setting(
        "none",
        "what is done to frequencies that noise made negative: nothing; each is cut to [0, 1]; or "
        "all are shifted and cut so that they sum to one. The raw estimate, whose error bars these "
        "are, stays in columns of its own",
        flag="postprocess", choices=("none", "clip", "norm-sub"),
    )  # fmt: skip
    staged: str | None = setting(
        None, "run no job: finish the release from what the job of a template with the same "
        "flags left in this folder",
        flag="staged", metavar="DIR",
    )  # fmt: skip
    columns: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    name: str = ""
    numbers: NumberQuestion | None = None

    @classmethod
    def needed(cls, given: Arguments) -> tuple[str, ...]:
        """What devices promise alone needs no delta."""
        return () if given["privacy"].get("model") == "local" else ("privacy.delta",)

    def settled(self, given: Arguments) -> FrequencyQuestion:
        numbers = number_question_of(self)
        if numbers is None and not self.domain:
            raise SettingError("{question.domain} is missing")
        columns = columns_of(self)
        if numbers is not None and len(columns) > 1:
            raise SettingError(
                "--bins takes a single --column; to combine lists and bins, write a pipeline of "
                "your own (PrivateQuestions, docs/questions.md)"
            )
        question = replace(
            self,
            columns=columns or (TEXT_COLUMN,),
            domains=() if numbers is not None else domains_of(self, columns),
            name=", ".join(columns) or TEXT_COLUMN,
            numbers=numbers,
        )
        question.check_postprocess()
        return question

    def check_postprocess(self) -> None:
        """A SettingError where frequencies are made consistent in another way already."""
        if self.postprocess != "none" and self.numbers and self.numbers.needs_tree:
            raise SettingError(
                "--postprocess is for frequencies of a list or of bins; --quantiles and --between "
                "come from a tree, whose levels are made consistent with each other, and would not "
                "be any more"
            )

    def rules(self, job: Job) -> None:
        several = len(self.columns) > 1 or len(self.domains) > 1
        if job.mechanism.random_bits is None:
            return
        if several or self.numbers and self.numbers.needs_tree:
            raise SettingError("--random-bits is for a single question to each person")
        if job.noise.memoized:
            raise SettingError(
                "--random-bits needs rows and coins that the value does not decide; those of "
                "--memoize-key-file follow from it: leave one of the two out"
            )

    def bind(self, job: Job, look: Look) -> Asked:
        bad_rows = "dead_letter" if job.bad_rows_leave_a_trace else "other"
        if self.numbers is not None and self.numbers.needs_tree:
            from beam_ldp.questions.numbers import NumberTree

            return NumberTree.of(self.name, self.numbers, self.design)
        lists = [look.domain(path, self.other) for path in self.domains]
        if len(self.columns) > 1:
            from beam_ldp.questions.surveys import ListQuestion, Survey

            asked = (
                ListQuestion(column, look.carried(path, self.other))
                for column, path in zip(self.columns, self.domains)
            )
            return Survey(
                tuple(asked),
                bad_rows,
                at_hand=tuple(lists),
                design=self.design,
                postprocess=self.postprocess,
            )
        from beam_ldp.questions.frequencies import Frequencies

        if self.design != "auto":
            raise SettingError("--design is for several questions: name several columns")
        listed = self.numbers.bins if self.numbers else self.domains[0]
        return Frequencies(
            look.carried(listed, self.other),
            self.name,
            self.name,
            bad_rows,
            at_hand=self.numbers.bins if self.numbers else lists[0],
            postprocess=self.postprocess,
            other=self.other,
        )


def columns_of(question: FrequencyQuestion) -> tuple[str, ...]:
    """The columns of `--column`, each once. Raises SettingError."""
    columns = tuple(question.column)
    if len(set(columns)) < len(columns):
        raise SettingError("--column names a column twice")
    if not all(columns):
        raise SettingError("--column is missing: it is empty")
    return columns


def domains_of(question: FrequencyQuestion, columns: Sequence[str]) -> tuple[str, ...]:
    """The lists of the columns: one for each, or one for all. Raises SettingError."""
    paths = tuple(question.domain)
    if len(paths) == 1:
        return paths * max(1, len(columns))
    if len(paths) != max(1, len(columns)):
        raise SettingError(
            f"--domain must be given once, or once for each --column in their order: "
            f"{len(paths)} lists for {len(columns)} columns"
        )
    return paths


def number_question_of(question: FrequencyQuestion) -> NumberQuestion | None:
    """What the flags ask about numbers; None where they ask about values of a list.

    Raises:
        SettingError: naming the flag and what is allowed.
    """
    from beam_ldp.questions.bins import NumberQuestion, check_number_question
    from beam_ldp.randomizers.domain import Bins

    given = [
        name
        for name in ("quantiles", "between", "fan_out")
        if getattr(question, name) not in (None, ())
    ]
    if question.bins is None:
        if given:
            raise SettingError(f"--{given[0].replace('_', '-')} needs --bins")
        return None
    if question.domain:
        raise SettingError(
            "--bins and --domain exclude each other: a column holds either numbers or "
            "values of a list"
        )
    try:
        bins = Bins.parse(question.bins)
    except ValueError as error:
        raise SettingError(f"--bins {question.bins}: {error}") from None
    wanted = NumberQuestion(
        bins, levels_of(question.quantiles), ranges_of(question.between), question.fan_out
    )
    if wanted.needs_tree and question.bad_rows == "other":
        raise SettingError("--bad-rows other cannot be used with --quantiles and --between")
    check_number_question(wanted)
    return wanted


def levels_of(text: str | None) -> tuple[float, ...]:
    """The levels of `--quantiles`. Raises SettingError."""
    if text is None:
        return ()
    try:
        levels = tuple(float(level) for level in text.split(","))
    except ValueError:
        levels = (0.0,)
    if not all(0 < level < 1 for level in levels):
        raise SettingError(
            f"--quantiles must be numbers in (0, 1), separated by commas, got {text}"
        )
    return levels


def ranges_of(given: Sequence[str] | None) -> tuple[tuple[float, float], ...]:
    """The ranges of `--between`. Raises SettingError."""
    found = []
    for text in given or ():
        try:
            low, high = map(float, text.split(":"))
        except ValueError:
            raise SettingError(f"--between must be LOW:HIGH, got {text}") from None
        found.append((low, high))
    return tuple(found)
