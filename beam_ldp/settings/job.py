"""A job: everything that one release is told, as one value, and the rules between its sections."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from beam_ldp.settings.fields import SettingError
from beam_ldp.settings.sections import (
    DEAD_LETTER,
    Charge,
    Mechanism,
    Noise,
    Output,
    People,
    Privacy,
    Shuffling,
    Source,
)

LEDGER_VARIABLE = "BEAM_LDP_LEDGER"
UNNAMED = "unnamed"  # a data set of which nothing is charged or memoized needs no name


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to do, checked: every field is usable as it stands.

    Attributes:
        source, people, privacy, mechanism, shuffle, noise, charge, output: the sections. The format
            of the input and the least number of reports are filled in.
        question: what is asked, as the program's own section says it.
        only_plan: print plan and cost, and do nothing.
        files, input_bytes: what was found of the input, in the launcher.
        collected: of reports that were randomized elsewhere, what was agreed upon
            (`beam_ldp.release.devices`); None where rows are read.
    """

    source: Source = Source()
    people: People = People()
    privacy: Privacy = Privacy()
    mechanism: Mechanism = Mechanism()
    shuffle: Shuffling = Shuffling()
    noise: Noise = Noise()
    charge: Charge = Charge()
    output: Output = Output()
    question: Any
    only_plan: bool = False
    files: tuple[str, ...] = ()
    input_bytes: int = 0
    collected: Any = None

    @property
    def num_files(self) -> int:
        """How many files were found."""
        return len(self.files)

    @property
    def dataset(self) -> str:
        """The name of the people's data, for outputs and charges."""
        return self.noise.dataset or UNNAMED

    @property
    def min_reports(self) -> int:
        """Below this nothing is released."""
        return self.shuffle.least(self.privacy.expected_users)

    @property
    def planned_reports(self) -> int:
        """Reports that plans and expected costs are about; with groups those of the smallest one
        that is released."""
        if self.people.group_by is not None:
            return self.min_reports
        return self.privacy.expected_users or self.min_reports

    @property
    def hiding_share(self) -> float:
        """Share of `planned_reports` that the noise is planned to hide a person among."""
        return self.privacy.hiding_share(self.planned_reports, self.min_reports)

    @property
    def bad_rows_leave_a_trace(self) -> bool:
        """Whether unusable rows are listed, rather than reported as something else."""
        return getattr(self.question, "bad_rows", DEAD_LETTER) == DEAD_LETTER

    @property
    def told_once(self) -> bool:
        """Whether a release is never told again with other people, whatever that would cost."""
        return getattr(self.question, "told_once", False)

    @property
    def one_report_per(self) -> str:
        """Whose report is charged as one, as the ledger's rows say it."""
        if self.collected is not None:
            return f"envelope, {self.collected.identity.bounding}"
        if self.people.id is not None:
            return f"person, by column {self.people.id}"
        return "row, declared to be a person's" if self.people.one_row else "row"

    @property
    def groups(self) -> str | None:
        """Path of the public list of groups, if there are any."""
        return None if self.people.groups is None else str(self.people.groups)

    @property
    def trusts_the_shuffler(self) -> bool:
        """Whether a central cost is stated at all."""
        return self.privacy.model == "shuffle"

    @property
    def sampling(self) -> Literal["fixed", "iid"]:
        """What errors allow for: the draw of one row of each person, where there may be several."""
        if self.collected is not None:
            return self.collected.sampling
        one_row = getattr(self.question, "one_row_each", False)
        return "fixed" if self.people.id is None or one_row else "iid"

    @property
    def doing(self) -> str:
        """What is said while the job runs."""
        if self.collected is not None:
            return "reading and counting"
        return "reading, randomizing and counting"

    @property
    def persons_unknown(self) -> str:
        """What is warned of where nothing says whose row it is."""
        if self.collected is not None:
            return (
                "each report was counted as a person: whoever lets devices send must see to it "
                "that nobody sends two"
            )
        if self.people.one_row:
            return (
                "--one-row-per-person was declared, not checked: every row was counted as a person"
            )
        return "no --user-id: every row was counted as a person"


J = TypeVar("J", bound=Job)


def checked(settings: J, *, stream: bool = False) -> J:
    """The settings with the rules checked that hold for every program, and defaults filled in.

    Raises:
        SettingError: naming the flag and what is allowed.
    """
    settings = _checked_privacy(settings)
    try:
        least = settings.min_reports
    except SettingError:
        raise SettingError(
            "give --expected-users or --min-reports: a release needs a smallest number of reports"
        ) from None
    _check_noise(settings)
    _check_people(settings)
    _check_budget(settings, stream)
    return replace(settings, shuffle=replace(settings.shuffle, min_reports=least))


def _checked_privacy(settings: J) -> J:
    privacy = settings.privacy
    if privacy.model == "local":
        return replace(settings, privacy=_local_promise(privacy))
    if not privacy.delta > 0:
        raise SettingError(f"--delta must lie in (0, 1), got {privacy.delta}")
    if (privacy.epsilon is None) == (privacy.local_epsilon is None):
        raise SettingError("give one of --epsilon (central target) and --local-epsilon")
    grouped = settings.people.group_by is not None  # then --min-reports says it
    if privacy.epsilon is not None and privacy.expected_users is None and not grouped:
        raise SettingError(
            "--epsilon needs --expected-users: the local noise that meets a central target "
            "depends on how many people hide each other"
        )
    if privacy.allow_over_target and privacy.epsilon is None:
        raise SettingError("--allow-over-target needs --epsilon, the target that may be exceeded")
    return settings


def _local_promise(privacy: Privacy) -> Privacy:
    """What it costs where only the device is trusted: one promise, which needs no delta."""
    if (privacy.epsilon is None) == (privacy.local_epsilon is None):
        raise SettingError(
            "give either --epsilon or --local-epsilon: with --model local they mean the same"
        )
    if privacy.allow_over_target:
        raise SettingError(
            "--allow-over-target needs a central target, which --model local does not have"
        )
    promised = privacy.local_epsilon if privacy.epsilon is None else privacy.epsilon
    return replace(privacy, epsilon=None, local_epsilon=promised, delta=0.0)


def _check_noise(settings: Job) -> None:
    noise = settings.noise
    if noise.key_file is not None:
        if settings.people.id is None or noise.id is None:
            raise SettingError("--memoize-key-file needs --user-id and --release-id")
        if not noise.dataset:
            raise SettingError(
                "--memoize-key-file needs --dataset, the declared name of the data set: "
                "dataset, release id and question together identify the reports that repeat"
            )
    elif noise.frozen_values:
        raise SettingError(
            "--frozen-values needs --memoize-key-file: only memoized reports can be "
            "published a second time"
        )


def _check_budget(settings: Job, stream: bool) -> None:
    charge, noise, people = settings.charge, settings.noise, settings.people
    if charge.windows not in (None, 1) and not stream:
        raise SettingError(
            "--budget-windows must be 1 here: this program reads its input to the end and releases "
            "once. It is for `frequency --stream` and for pipelines of your own (docs/ledger.md)"
        )
    charged = check_dataset_named(charge, noise)
    if charged and getattr(settings.question, "staged", None) is not None:
        raise SettingError(
            "--staged cannot be charged to a ledger, which must grant the budget before data is "
            "read: run without a template, or give --no-ledger"
        )
    if charged and charge.privacy_unit == "user" and not people.counted:
        raise SettingError(
            "the budget protects people, and a person with ten rows would report ten times and be "
            "charged once: name the column of user ids with --user-id, or declare with "
            "--one-row-per-person that nobody has two rows"
        )


def check_dataset_named(charge: Charge, noise: Noise) -> bool:
    """Whether a budget is charged; a SettingError if it is, and nobody says whose."""
    named = charge.ledger or os.environ.get(LEDGER_VARIABLE)
    if charge.quota and not (named or charge.no_ledger or noise.simulated):
        raise SettingError("--quota needs --ledger: without one no budget is charged")
    charged = bool(named) and not charge.no_ledger and not noise.simulated
    if charged and not noise.dataset:
        where = "--ledger" if charge.ledger else LEDGER_VARIABLE
        raise SettingError(
            f"{where} names a ledger: --dataset must name the data set whose budget is charged (or "
            "give --no-ledger)"
        )
    return charged


def _check_people(settings: Job) -> None:
    charge, noise = settings.charge, settings.noise
    if noise.log is not None and settings.people.id is None:
        raise SettingError("--interaction-log needs --user-id: it holds hashes of user ids")
    if noise.log_key_file is not None and noise.log_key_file == noise.key_file:
        raise SettingError(
            "--interaction-key-file must differ from --memoize-key-file, whose key is destroyed "
            "after its release"
        )
    if charge.people_store is None:
        return
    if settings.people.id is None:
        raise SettingError("--people-store needs --user-id: it holds hashes of user ids")
    if charge.people_key_file == settings.noise.key_file:
        raise SettingError(
            "--people-key-file must differ from --memoize-key-file, whose key is destroyed after "
            "its release"
        )
    if charge.no_ledger or not (charge.ledger or os.environ.get(LEDGER_VARIABLE)):
        raise SettingError(
            "--people-store needs --ledger, where each person's local epsilon is counted"
        )
