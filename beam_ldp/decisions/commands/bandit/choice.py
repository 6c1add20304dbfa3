"""What a batch of a bandit is before its rewards: its settings and cost, and its record."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beam_ldp.accounting import PrivacyBound
from beam_ldp.accounting.prices import Price
from beam_ldp.decisions.bandits.central import CentralSums
from beam_ldp.decisions.bandits.terms import BatchTerms
from beam_ldp.decisions.commands.bandit.service import ServiceFolder
from beam_ldp.decisions.commands.usage import ADVANCE, RewardQuestion
from beam_ldp.pipelines.frequencies.parts import PartsRecord
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release.job import absolute, need, section_from, settings_from, with_files
from beam_ldp.release.statement import say_by
from beam_ldp.settings import Charge, Noise, SettingError
from beam_ldp.settings.job import LEDGER_VARIABLE, Job, checked
from beam_ldp.settings.usage import Arguments, Usage

say_by(__package__)
_SAY_WHERE = (LEDGER_VARIABLE, "MLFLOW_TRACKING_URI")


def open_service(given: Arguments, usage: Usage = ADVANCE) -> ServiceFolder:
    """The service that is named, whole. Raises SettingError."""
    need(usage, given, "question.state")
    return ServiceFolder.open(absolute(given["question"]["state"]))


def checked_rewards(given: Arguments, service: ServiceFolder, asked: BatchTerms) -> Job:
    """The settings, with every rule checked, and the files that there are. Raises SettingError."""
    settings = checked_rules(given, service, asked)
    try:
        return with_files(settings)
    except SettingError as error:
        raise SettingError(str(error).replace("--input ", "--rewards ")) from None


def checked_rules(given: Arguments, service: ServiceFolder, asked: BatchTerms) -> Job:
    """The same before any file is looked for. Raises SettingError."""
    need(ADVANCE, given, "source.paths")
    question = section_from(given, ADVANCE, "question", RewardQuestion)
    settings = settings_from(planned(given, service, asked), ADVANCE, question, Job)
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


# Where the server is trusted ----------------------------------------------------------------------


METHOD = "discrete Laplace noise on each sum"


def check_reports(noise: Noise, charge: Charge) -> None:
    """A SettingError for flags about what each person would randomize, and would be charged for."""
    given = {
        "--people-store": charge.people_store,
        "--memoize-key-file": noise.key_file,
        "--interaction-log": noise.log,
    }
    for flag, value in given.items():
        if value is not None:
            raise SettingError(
                f"{flag} cannot be used with a service of --model central: people send rewards as "
                "they are, without a local epsilon, and the server draws noise once, of each sum"
            )


def central_price(sums: CentralSums) -> Price:
    """What a batch costs readers of its sums: exactly the epsilon of the noise, at delta 0."""
    bound = PrivacyBound(
        sums.epsilon, lower=sums.epsilon, method=METHOD, lower_method="a reward of -1 becomes 1"
    )
    return Price(bound, 1, sums.event)
