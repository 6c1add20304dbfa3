"""What a release needs to be told, in small objects that the library and the programs share.

Each is checked when it is made. What two of them say together is checked by whoever has both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from beam_ldp.settings.fields import (
    NUMBER,
    POSITIVE,
    SECONDS,
    SWITCH,
    WHOLE,
    SettingError,
    setting,
)

if TYPE_CHECKING:
    from pathlib import Path

    from beam_ldp.randomizers.domain import Domain

EXPECTED_SHARE = 0.9  # of the expected users: the least number of reports, unless it is given
MAX_REPORTS = 10**12  # as the accountant is proved for

# What a report promises by itself, whoever shuffles: odds of e^8 = 2,981 to 1. It costs little:
# 100,000 people have no use for more (epsilon 1, delta 1e-8), and for a million the theorem that
# shuffling amplifies ends there (Feldman, McMillan, Talwar 2021, Theorem 3.1: 8.09).
MAX_LOCAL_EPSILON = 8.0
# Odds of 163,000 to 1: above, a report protects nobody, and only the shuffle does.
MOST_PROMISED = 12.0
MAX_BAD_ROWS = 0.01  # of the rows that hold a value: what is lost moves a share by no more
FORMATS = ("auto", "parquet", "csv", "jsonl", "text")
DEAD_LETTER = "dead-letter"  # bad rows are listed; every other choice leaves no trace of them


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the data are."""

    paths: tuple[str, ...] = setting(
        (), "file, folder or glob, on any file system that Beam knows; may be repeated",
        flag="input", metavar="PATH", many=True, basic=True,
    )  # fmt: skip
    format: str = setting(
        "auto", "default: chosen by the file extension", flag="input-format", choices=FORMATS
    )
    delimiter: str = setting(
        "", "default: a comma, or a tab for .tsv", flag="csv-delimiter", metavar="CHAR"
    )
    max_bad_rows: float | None = setting(
        None, "release nothing if more rows than this cannot be read as what the question asks: a "
        "share below 1 of the rows that hold a value, or a number of rows (default: 0.01, and no "
        "text that is not UTF-8)", NUMBER,
        flag="max-bad-rows", metavar="SHARE",
    )  # fmt: skip

    def __post_init__(self) -> None:
        most = self.max_bad_rows
        if most is not None and not (0 <= most < 1 or (most >= 1 and most % 1 == 0)):
            raise SettingError("{source.max_bad_rows} must be a share in [0, 1) or a whole number")
        one = self.delimiter
        if one and (len(one) != 1 or one in '"\r\n' or ord(one) > 127):
            raise SettingError("{source.delimiter} must be one ASCII character other than a quote")


@dataclass(frozen=True, kw_only=True)
class People:
    """Whose data it is: what makes a person's rows one person's, and their public groups."""

    id: str | None = setting(
        None,
        "column with the user id: one row per person is drawn at random; without it "
        "every row counts as a person",
        flag="user-id", metavar="NAME", basic=True,
    )  # fmt: skip
    one_row: bool = setting(
        False,
        "instead of {people.id}, where a budget of people is charged: declares that "
        "nobody has more than one row. This is not checked, and every record says so",
        SWITCH, flag="one-row-per-person",
    )  # fmt: skip
    group_by: str | None = setting(
        None,
        "column with a public group: one result per group, each from at least "
        "{shuffle.min_reports} reports. Every person reports in one group, and which "
        "one is not protected",
        flag="group-by", metavar="NAME",
    )  # fmt: skip
    groups: Domain | str | Path | None = setting(
        None,
        "public list of groups, one per line; rows of groups not listed count in "
        "`other`",
        flag="groups", metavar="FILE",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.one_row and self.id is not None:
            raise SettingError(
                "{people.one_row} and {people.id} exclude each other: with {people.id}, one row of "
                "each person is drawn anyway"
            )

    @property
    def counted(self) -> bool:
        """Whether somebody says whose rows are one person's."""
        return self.id is not None or self.one_row


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What the release is called, and where its noise comes from.

    Names, question and key make the release's identity: with a key, another run of the same
    release sends the same reports.
    """

    dataset: str = setting(
        "",
        "declared name of the data set: its budget is charged, and it is part of the "
        "release's identity (required with a ledger[[ or {release.key_file}]])",
        flag="dataset", metavar="NAME", basic=True,
    )  # fmt: skip
    id: str | None = setting(
        None, "name of this release, for memoized noise; never reuse a name",
        flag="release-id", metavar="NAME",
    )  # fmt: skip
    key_file: str | None = setting(
        None,
        "secret key of memoized noise, read by the workers: a retry then sends the same"
        " report (needs {people.id}[[ and {release.id}]])",
        flag="memoize-key-file", metavar="FILE",
    )  # fmt: skip
    seed: int | None = setting(
        None, "for simulations only: repeatable noise protects nobody, and every output says "
        "so", WHOLE,
        flag="seed", metavar="N",
    )  # fmt: skip
    frozen_values: bool = setting(
        False,
        "declares that nobody's value has changed since this memoized release was first"
        " published: allows a second publication about other people where the ledger "
        "cannot tell (docs/ledger.md)",
        SWITCH, flag="frozen-values",
    )  # fmt: skip
    log: str | None = setting(
        None,
        "folder for records of who was asked what in which round, with people and answers "
        "as keyed hashes, for `beam-ldp audit-interactivity` (needs {people.id}[[, "
        "{release.dataset}]][[, {release.id}]] and {release.log_key_file})",
        flag="interaction-log", metavar="DIR",
    )  # fmt: skip
    log_key_file: str | None = setting(
        None,
        "secret key of those hashes, the same for all logs that are audited together; only "
        "workers read it",
        flag="interaction-key-file", metavar="FILE",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if (self.log is None) != (self.log_key_file is None):
            raise SettingError("{release.log} and {release.log_key_file} belong together")
        if self.log is not None and self.seed is not None:
            raise SettingError("{release.log} and {release.seed} exclude each other")
        if self.log is not None and not (self.dataset and self.id):
            raise SettingError("{release.log} needs {release.dataset} and {release.id}")
        if self.key_file is not None and self.seed is not None:
            raise SettingError("{release.key_file} and {release.seed} exclude each other")
        if self.seed is not None and self.seed < 0:
            raise SettingError("{release.seed} must be >= 0")

    @property
    def simulated(self) -> bool:
        """Whether nobody is protected."""
        return self.seed is not None

    @property
    def memoized(self) -> bool:
        """Whether another run sends the same reports."""
        return self.key_file is not None


@dataclass(frozen=True, kw_only=True)
class Charge:
    """Whose budget pays, and under which name."""

    ledger: str | None = setting(
        None,
        "ledger that holds the budget[[ of {release.dataset}]]: the worst-case privacy cost"
        " is reserved there before anything is read, and a run over budget is refused "
        "(default: the environment variable BEAM_LDP_LEDGER; see `beam-ldp budget`)",
        flag="ledger", metavar="URL", basic=True,
    )  # fmt: skip
    no_ledger: bool = setting(
        False, "charge no budget, even if BEAM_LDP_LEDGER is set; every output says so", SWITCH,
        flag="no-ledger",
    )  # fmt: skip
    privacy_unit: str = setting(
        "user", "privacy unit: what this run protects; it must match the unit of the budget "
        "(default: user)",
        flag="privacy-unit", metavar="NAME",
    )  # fmt: skip
    run_id: str | None = setting(
        None, "name of the charge in the ledger; each name is used once (default: a random "
        "one)", flag="run-id",
        metavar="NAME",
    )  # fmt: skip
    quota: str = setting(
        "",
        "quota of the budget to charge (set with `budget quota`; default: the part of "
        "the budget outside all quotas)",
        flag="quota", metavar="NAME",
    )  # fmt: skip
    windows: int | None = setting(
        None,
        "number of windows to reserve budget for, where data is unbounded: "
        "`frequency --stream`, or a pipeline of your own (docs/ledger.md), stops when they are "
        "used up",
        WHOLE, flag="budget-windows", metavar="N",
    )  # fmt: skip
    people_store: str | None = setting(
        None,
        "folder for keyed hashes of the people in this release: the ledger then keeps "
        "count of each person's local epsilon (needs {people.id} and "
        "{release.people_key_file}; see docs/ledger.md)",
        flag="people-store", metavar="DIR",
    )  # fmt: skip
    people_key_file: str | None = setting(
        None,
        "secret key of those hashes, the same for all runs about these people; only "
        "workers read it",
        flag="people-key-file", metavar="FILE",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.no_ledger and self.ledger:
            raise SettingError("{release.ledger} and {release.no_ledger} exclude each other")
        if (self.people_store is None) != (self.people_key_file is None):
            raise SettingError(
                "{release.people_store} and {release.people_key_file} belong together"
            )


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """What the release may cost a person."""

    epsilon: float | None = setting(
        None,
        "central epsilon that a release may cost, after shuffling; needs {privacy.expected_users}",
        POSITIVE,
        flag="epsilon", metavar="EPS", basic=True,
    )  # fmt: skip
    local_epsilon: float | None = setting(
        None, "local epsilon: what each person is promised against everybody", POSITIVE,
        flag="local-epsilon", metavar="EPS0", basic=True,
    )  # fmt: skip
    max_local_epsilon: float | None = setting(
        None,
        "largest local epsilon to use[[, even where {privacy.epsilon} would allow a larger one]] "
        "(default: 8, which is odds of 2,981 to 1; docs/choosing.md says why)",
        POSITIVE, flag="max-local-epsilon", metavar="EPS0",
    )  # fmt: skip
    trust_shuffler: bool = setting(
        False,
        "declares that people may be protected by the shuffler alone: any local epsilon is then "
        "allowed, up to {privacy.max_local_epsilon} if that is given, and every record begins "
        "with it",
        SWITCH, flag="trust-shuffler",
    )  # fmt: skip
    delta: float = setting(
        0.0, "delta of the central epsilon, in (0, 1); choose it far below 1/users", NUMBER,
        flag="delta", metavar="D", basic=True,
    )  # fmt: skip
    expected_users: int | None = setting(
        None, "number of people expected to report, for example 1e6", WHOLE,
        flag="expected-users", metavar="N", basic=True,
    )  # fmt: skip
    allow_over_target: bool = setting(
        False,
        "release even if the reports received cost more than {privacy.epsilon}; the noise is then "
        "that of {privacy.expected_users} reports, and not of the fewest that are released",
        SWITCH, flag="allow-over-target",
    )  # fmt: skip
    honest_fraction: float = setting(
        1.0,
        "honest fraction: share of the reports in every batch that are not fake, in (0,"
        " 1]; only those hide a person (default 1)",
        NUMBER, flag="honest-fraction", metavar="F",
    )  # fmt: skip
    model: Literal["shuffle", "local"] = setting(
        "shuffle",
        "who is trusted: a shuffler, or only the device itself (local); {privacy.epsilon} is then "
        "the local epsilon and needs no {privacy.delta}",
        flag="model", choices=("shuffle", "local"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        if not 0 <= self.delta < 1:
            raise SettingError(f"{{privacy.delta}} must lie in (0, 1), got {self.delta}")
        if not 0 < self.honest_fraction <= 1:
            raise SettingError(
                f"{{privacy.honest_fraction}} must lie in (0, 1], got {self.honest_fraction}"
            )
        _check_count("privacy.expected_users", self.expected_users)
        self._check_local()
        most = max(MOST_PROMISED, self.max_local_epsilon or 0.0)
        if self.epsilon is not None and self.epsilon > most:
            raise SettingError(
                f"{{privacy.epsilon}} must be at most {most:g}, got {self.epsilon:g}: that already "
                f"lets a reader tell two values of a person apart at odds of {odds(most)}, and "
                "reports of that local epsilon keep it without any crowd"
            )

    def hiding_share(self, people: int, least: int) -> float:
        """Share of so many people who hide each other, as far as a plan counts on it.

        A target is kept by whatever is released: noise is planned for the `least` reports of a
        release, unless more than the target is allowed.
        """
        if self.epsilon is None or self.model == "local" or self.allow_over_target:
            return self.honest_fraction
        return self.honest_fraction * min(1.0, least / people)

    @property
    def local_limit(self) -> float:
        """Most that a person may lose to whoever sees all that the person sends in one release."""
        if self.max_local_epsilon is not None:
            return self.max_local_epsilon
        return math.inf if self.trust_shuffler else MAX_LOCAL_EPSILON

    @property
    def limits(self) -> Privacy:
        """What it allows a mechanism that is chosen already, without a target."""
        return Privacy(max_local_epsilon=self.max_local_epsilon, trust_shuffler=self.trust_shuffler)

    def check_promise(self, name: str, promised: float) -> None:
        """A SettingError, about what has the name, if somebody would be promised too little."""
        if promised <= self.local_limit * (1 + 1e-9):
            return
        needed = "{privacy.trust_shuffler}"
        if promised <= MOST_PROMISED or self.trust_shuffler:
            needed = f"{{privacy.max_local_epsilon}} {promised:g}"
        raise SettingError(
            f"{name} must be at most {self.local_limit:g}, got {promised:g}: whoever sees a "
            f"report could tell two values apart at odds of {odds(promised)}. Choose less, or "
            f"allow it with {needed}"
        )

    def _check_local(self) -> None:
        if self.local_limit > MOST_PROMISED and not self.trust_shuffler:
            raise SettingError(
                f"{{privacy.max_local_epsilon}} above {MOST_PROMISED:g} needs "
                "{privacy.trust_shuffler}: such a report tells its value to whoever sees it, so "
                "that people are protected by the shuffler alone"
            )
        name, promised = "local_epsilon", self.local_epsilon
        if self.model == "local" and promised is None:
            name, promised = "epsilon", self.epsilon
        if promised is not None:
            self.check_promise(f"{{privacy.{name}}}", promised)


@dataclass(frozen=True, kw_only=True)
class Shuffling:
    """What the shuffler does before it lets anything go."""

    min_reports: int | None = setting(
        None, "smallest number of reports to release; with fewer, nothing is released "
        "(default: 0.9 of {privacy.expected_users})", WHOLE,
        flag="min-reports", metavar="N", basic=True,
    )  # fmt: skip
    output: Literal["statistic", "reports"] = setting(
        "statistic", "what leaves the shuffler: sums only (statistic), or the permuted reports",
        flag="shuffle-output", choices=("statistic", "reports"),
    )  # fmt: skip
    scope: Literal["batch", "global"] = setting(
        "batch", "permute reports in large batches, or all of them together",
        flag="scope", choices=("batch", "global"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        _check_count("shuffle.min_reports", self.min_reports)

    def least(self, expected_users: float | None) -> int:
        """How many reports a release needs at least.

        Raises:
            SettingError: if nothing says it.
        """
        if self.min_reports is not None:
            return self.min_reports
        if expected_users is None:
            raise SettingError(
                "give {privacy.expected_users} or {shuffle.min_reports}: a release needs a "
                "smallest number of reports"
            )
        return max(1, math.ceil(EXPECTED_SHARE * expected_users))


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Which local randomizer runs."""

    name: str = setting(
        "auto",
        "name of a mechanism (PACKAGE:CLASS for one of your own), or auto for the most accurate "
        "one (see `beam-ldp plan`)",
        flag="mechanism", metavar="NAME", basic=True,
    )  # fmt: skip
    max_bits: int | None = setting(
        None,
        "longest report, in bits, that auto may choose",
        WHOLE,
        flag="max-bits",
        metavar="BITS",
    )
    messages: int | None = setting(
        None,
        "most messages of one person that auto may choose; each is shuffled on its own",
        WHOLE,
        flag="messages",
        metavar="N",
    )
    random_bits: float | None = setting(
        None,
        "random bits that a device has for a report, on average: mechanisms that take more are "
        "refused, and auto chooses one that makes do",
        NUMBER,
        flag="random-bits",
        metavar="BITS",
    )

    def __post_init__(self) -> None:
        if self.max_bits is not None and self.max_bits < 1:
            raise SettingError("{mechanism.max_bits} must be >= 1")
        if self.messages is not None and self.messages < 1:
            raise SettingError("{mechanism.messages} must be >= 1")
        if self.random_bits is not None and not 0 < self.random_bits < math.inf:
            raise SettingError("{mechanism.random_bits} must be > 0")


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where results go, and how they are shown and tracked."""

    folder: str = setting(
        "",
        "folder to write; it appears complete or not at all",
        flag="output",
        metavar="DIR",
        basic=True,
    )
    overwrite: bool = setting(
        False, "replace an existing output", SWITCH, flag="overwrite", basic=True
    )
    bad_rows_file: str | None = setting(
        None,
        "where rows that cannot be used are listed; keep this file private, since even "
        "a null is an answer (default: OUTPUT.private/bad_rows.jsonl)",
        flag="bad-rows-file", metavar="FILE",
    )  # fmt: skip
    top: int = setting(
        20, "number of lines in the printed table and in the plot (default 20)", WHOLE,
        flag="top", metavar="N",
    )  # fmt: skip
    format: str = setting(
        "table", "format of what is printed", flag="format", choices=("table", "json")
    )
    mlflow_uri: str | None = setting(
        None,
        "MLflow tracking server (default: that of the ledger, else of MLFLOW_TRACKING_URI, else a "
        "file in the output folder)",
        flag="mlflow-uri", metavar="URI",
    )  # fmt: skip
    mlflow_experiment: str = setting(
        "beam-ldp", "MLflow experiment", flag="mlflow-experiment", metavar="NAME"
    )
    no_mlflow: bool = setting(False, "do not log to MLflow", SWITCH, flag="no-mlflow")
    job_timeout: float | None = setting(
        None,
        "cancel the job after this time, such as 30m: the run fails with exit code 1 and stays "
        "charged until `beam-ldp finalize` ends it (default: no limit)",
        SECONDS, flag="job-timeout", metavar="TIME",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.top < 1:
            raise SettingError("{output.top} must be >= 1")
        if self.job_timeout is not None and not self.job_timeout > 0:
            raise SettingError("{output.job_timeout} must be > 0")


def odds(local_epsilon: float) -> str:
    """At which a report tells two values apart: the exponential of its local epsilon.

    >>> odds(8.0), odds(100.0)
    ('2,981 to 1', '2.7e+43 to 1')
    """
    if local_epsilon > 700:
        return "certainty"
    likely = math.exp(local_epsilon)
    return f"{likely:,.0f} to 1" if likely < 1e9 else f"{likely:.2g} to 1"


def _check_count(name: str, number: float | None) -> None:
    if number is not None and not 1 <= number <= MAX_REPORTS:
        raise SettingError(f"{{{name}}} must lie in [1, {MAX_REPORTS:.0e}]")
