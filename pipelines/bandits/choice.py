"""What a batch of a bandit is before its rewards: its settings and cost, and its record."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beam_ldp.pipelines.bandits.service import ServiceFolder
from beam_ldp.pipelines.bandits.trusted import central_price, check_reports
from beam_ldp.pipelines.flags import Arguments
from beam_ldp.pipelines.frequencies.parts import PartsRecord
from beam_ldp.pipelines.means.choice import local_price
from beam_ldp.pipelines.planner import Choice, Planner, Rows
from beam_ldp.pipelines.records.gates import Price, expected_price
from beam_ldp.pipelines.settings import (
    LEDGER_VARIABLE,
    Settings,
    absolute,
    checked,
    need,
    section_from,
    settings_from,
    with_files,
)
from beam_ldp.pipelines.usage import Usage
from beam_ldp.pipelines.usage.bandit_advance import USAGE, RewardQuestion
from beam_ldp.protocols.bandits.central import CentralSums
from beam_ldp.protocols.bandits.noise import bit_randomizer
from beam_ldp.protocols.bandits.terms import BatchTerms
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release.statement import say_by
from beam_ldp.settings import SettingError
from beam_ldp.wording import number

RewardSettings = Settings[RewardQuestion]
say_by(__package__)
_SAY_WHERE = (LEDGER_VARIABLE, "MLFLOW_TRACKING_URI")


def open_service(given: Arguments, usage: Usage = USAGE) -> ServiceFolder:
    """The service that is named, whole. Raises SettingError."""
    need(usage, given, "question.state")
    return ServiceFolder.open(absolute(given["question"]["state"]))


def checked_rewards(given: Arguments, service: ServiceFolder, asked: BatchTerms) -> RewardSettings:
    """The settings, with every rule checked, and the files that there are. Raises SettingError."""
    settings = checked_rules(given, service, asked)
    try:
        return with_files(settings)
    except SettingError as error:
        raise SettingError(str(error).replace("--input ", "--rewards ")) from None


def checked_rules(given: Arguments, service: ServiceFolder, asked: BatchTerms) -> RewardSettings:
    """The same before any file is looked for. Raises SettingError."""
    need(USAGE, given, "source.paths")
    question = section_from(given, USAGE, "question", RewardQuestion)
    settings = settings_from(planned(given, service, asked), USAGE, question, Settings)
    people = settings.people
    if people.group_by in (question.reward, people.id):
        raise SettingError("--play must name a column that is used for nothing else")
    if service.terms.trusts_the_server:
        check_reports(settings.noise, settings.charge)
    return checked(settings)


def planned(given: Arguments, service: ServiceFolder, asked: BatchTerms) -> Arguments:
    """What was given, with what the service says."""
    bandit, folder = service.terms.bandit, service.working(asked.number)
    private: dict[str, Any] = {"local_epsilon": asked.local_epsilon, "model": "local"}
    if service.terms.trusts_the_server:
        private["local_epsilon"] = bandit.epsilon  # of its noise: no report has one
    if bandit.model == "shuffled":
        private |= {"model": "shuffle", "delta": bandit.delta, "expected_users": asked.least}
    told: dict[str, dict[str, Any]] = {
        "privacy": private,
        "people": {"group_by": "play", **given["people"], "groups": Domain(asked.plays)},
        "shuffle": {"min_reports": asked.least},
        "release": {"id": asked.release_id, "dataset": service.terms.dataset},
        "output": {
            "folder": str(folder),
            "bad_rows_file": f"{folder}.bad_rows.jsonl",
            **_tracked(given, service),
            **given["output"],
        },
    }
    return Arguments(told, []).over(given)


def _tracked(given: Arguments, service: ServiceFolder) -> dict[str, str]:
    """Where MLflow keeps all batches, unless a flag, a ledger or the environment says it."""
    named = (given["release"].get("ledger"), *map(os.environ.get, _SAY_WHERE))
    if any(named) or given["output"].get("no_mlflow"):
        return {}
    return {"mlflow_uri": f"sqlite:///{service.private}/mlflow.db"}


class BatchPlanner(Planner[RewardSettings]):
    """What is the reward of each play? Before the rewards.

    Args:
        settings: checked flags.
        service: which asks.
        asked: its open batch.
    """

    def __init__(self, settings: RewardSettings, service: ServiceFolder, asked: BatchTerms) -> None:
        super().__init__(settings)
        self.service, self.asked = service, asked

    @property
    def whole_crowd(self) -> bool:
        """Whether people hide among all of the batch, and not only those with the same action."""
        bandit = self.service.terms.bandit
        return bandit.model == "shuffled" and bandit.amplify_over == "batch"

    def choose(self) -> Choice[Any]:
        if self.service.terms.trusts_the_server:
            sums = CentralSums(self.service.terms.bandit.epsilon)
            return Choice(sums, self._crowd, central_price(sums), self.asked.batch.width)
        randomizer = bit_randomizer(self.asked.local_epsilon)
        price = self._price(randomizer)
        return Choice(randomizer, self._crowd, price, self.asked.batch.width)

    @property
    def _crowd(self) -> int:
        return self.asked.batch.people if self.whole_crowd else self.asked.least

    def _price(self, randomizer: Any) -> Price:
        if not self.settings.trusts_the_shuffler:
            return local_price(randomizer.local_epsilon)
        return expected_price(randomizer, self._crowd, self.settings.privacy.delta, 1.0)

    def worst_price(self, choice: Choice[Any]) -> Price | None:
        return choice.price  # nothing is decided by fewer people

    def expectation(self, choice: Choice[Any]) -> str:
        return (
            f"batch {self.asked.number} drops actions that lose more than "
            f"{number(4 * choice.predicted_error)} against the best"
        )

    def inputs(self) -> Rows:
        asked, terms = self.asked, self.service.terms
        return [
            ("service", f"{terms.name}, {terms.digest[:16]}"),
            ("batch", f"{asked.number}, of {asked.batch.people:,} people"),
            ("actions", f"{len(asked.plays)} played, of {len(asked.batch.active)} left"),
        ]

    def expected(self, choice: Choice[Any]) -> Rows:
        return [("drops actions that lose", f"more than {number(4 * choice.predicted_error)}")]

    def expected_as_json(self, choice: Choice[Any]) -> dict[str, Any]:
        return {"batch": self.asked.to_json()}


# What its record and its statement say differently ------------------------------------------------


@dataclass(frozen=True)
class BatchRecord(PartsRecord):
    """The record of a batch: a release for each play, and what was decided.

    Attributes:
        statistic: "bandit batch".
        model: "shuffle", "local": nobody but the device is trusted, or "central": the server is.
        service: digest of its terms.
        batch: which it is.
        amplify_over: "batch" where people hide among all of it, "action" where among those with
            the same action; None without a shuffler.
        best: the action with the largest estimate.
        survivors: how many actions may still be best.
    """

    statistic: str = "bandit batch"
    model: str = "shuffle"
    service: str = ""
    batch: int = 1
    amplify_over: str | None = None
    best: str = ""
    survivors: int = 0

    def told(self) -> dict[str, Any]:
        kind = "central_batch" if self.model == "central" else "bandit_batch"
        return super().told() | {"kind": kind}


def parts_at(price: Mapping[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of parts that hide in one crowd: each costs what all together cost."""
    return {**facts, "parts": tuple({**part, **price} for part in facts["parts"])}
