"""An experiment among devices that randomize themselves: what one is asked, and makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beam_ldp.decisions.commands.ab_test.choice import checked_outcomes
from beam_ldp.decisions.commands.ab_test.run import Experiment
from beam_ldp.decisions.stages.outcomes import outcome_digest
from beam_ldp.pipelines.devices.values import DeviceValues, check_new, terms_of
from beam_ldp.pipelines.usage.randomize import USAGE
from beam_ldp.questions.published import Published, names_in
from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release.devices.release_file import ReleaseFile
from beam_ldp.release.job import need
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.usage import Arguments


@dataclass(frozen=True)
class DeviceOutcomeQuestion(Published):
    """Whether a person of an experiment has the outcome.

    Attributes:
        column: with the outcome.
        plan: digest of the experiment's plan, in hexadecimal.
        look: which of its looks, from 1.
    """

    column: str
    plan: str
    look: int

    def __post_init__(self) -> None:
        if len(self.plan) != 64 or set(self.plan) - set("0123456789abcdef"):
            raise ValueError("questions: plan must be 32 bytes in hexadecimal")
        if type(self.look) is not int or self.look < 1:
            raise ValueError("questions: look must be an integer >= 1")

    def to_json(self) -> dict[str, Any]:
        return {"column": self.column, "plan": self.plan, "look": self.look}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> DeviceOutcomeQuestion:
        column, plan = names_in([found["column"], found["plan"]])
        return cls(column, plan, found["look"])

    @property
    def asked_columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def values(self) -> bytes:
        return outcome_digest(self.plan, self.look)

    def check_fits(self, randomizer: LocalRandomizer) -> None:
        if not isinstance(randomizer, FrequencyOracle) or randomizer.domain_size != 2:
            raise ValueError("release terms contradict themselves: an outcome is a bit")


# What goes with `--experiment`: everything else is in the plan, or means nothing here.
_WITH_EXPERIMENT = {
    "source": {"paths", "format", "delimiter", "max_bad_rows"},
    "question": {"column", "experiment", "look"},
    "people": {"id", "one_row", "group_by"},
    "privacy": {"max_local_epsilon", "trust_shuffler"},
    "release": {"dataset", "key_file", "seed", "log", "log_key_file"},
    "output": {"folder", "format", "reports_per_envelope"},
    "": {"only_plan"},
}


class OutcomeValues(DeviceValues):
    """Outcomes of an experiment, as its plan asks for them. Raises SettingError."""

    def __init__(self, given: Arguments) -> None:
        for home, section in given.settings.items():
            for name in set(section) - _WITH_EXPERIMENT.get(home, set()):
                flag = USAGE.flag_of(f"{home}.{name}")
                raise SettingError(f"{flag} does not go with --experiment, whose plan says it")
        need(USAGE, given, "source.paths", "release.dataset", "output.folder")
        check_new(given["output"]["folder"])
        asked = dict(given["question"])
        asked["design"] = asked.pop("experiment")
        told = Arguments({**given.settings, "question": asked}, given.beam_flags)
        settings, plan = checked_outcomes(told, USAGE)
        self.settings: Job = settings
        self.program: Experiment = Experiment(settings, plan, ())
        question, groups = settings.question, settings.people.groups
        self.release = ReleaseFile(
            terms_of(
                self.program, plan.randomizer(), given["output"].get("reports_per_envelope", 1)
            ),
            "fixed" if settings.people.id is None else "iid",
            None,
            settings.people.group_by,
            groups.digest if isinstance(groups, Domain) else None,
            DeviceOutcomeQuestion(question.column[0], plan.digest, question.look),
        )
