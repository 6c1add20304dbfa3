"""`beam-ldp bandit advance`: decide the open batch of a service.

The same program as `python -m beam_ldp.decisions.commands.bandit.advance`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from rich.console import Console

from beam_ldp.accounting.prices import Price, expected_price, price_as_json
from beam_ldp.accounting.reports import with_crowd
from beam_ldp.decisions.bandits.central import CentralSums
from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.decisions.bandits.terms import BatchTerms
from beam_ldp.decisions.commands.bandit.answer import BatchAnswer
from beam_ldp.decisions.commands.bandit.arrivals import batches_in, follow
from beam_ldp.decisions.commands.bandit.choice import (
    BatchRecord,
    central_price,
    checked_rewards,
    open_service,
    parts_at,
)
from beam_ldp.decisions.commands.bandit.service import ServiceFolder
from beam_ldp.decisions.commands.bandit.view import say_service
from beam_ldp.decisions.commands.usage import ADVANCE, RewardStream
from beam_ldp.decisions.stages.reward_sums import PrivateSums
from beam_ldp.decisions.stages.rewards import RewardQuery
from beam_ldp.ledger import BudgetLedger, LedgerError
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.frequencies.parts import Parts, gate_parts, part_facts
from beam_ldp.pipelines.means.choice import local_price
from beam_ldp.pipelines.programs import DONE, Program
from beam_ldp.release import worker_results as results
from beam_ldp.release.charging import ChargeSettings
from beam_ldp.release.checks import Preflight
from beam_ldp.release.gates import BadRows, NothingReleasedError
from beam_ldp.release.interrupted_runs import find_interrupted_runs
from beam_ldp.release.job import section_from
from beam_ldp.release.planner import Choice, Rows
from beam_ldp.release.question import Answer, Question
from beam_ldp.release.reserving import ledger_url
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.wording import number


def free_name(settings: ChargeSettings, name: str, *, memoized: bool) -> str:
    """The first of `name`, `name-attempt-2`, ... that the next attempt may be charged under.

    One whose attempt released nothing was given back, and is over. One that was lost stays charged:
    memoized reports are drawn again under its name, others are new ones. One that is settled, or
    under way, keeps its name, so that the ledger refuses it again.
    """
    url = ledger_url(settings)
    if url is None:
        return name
    try:
        ledger = BudgetLedger(url)
    except LedgerError:
        return name  # which is said when it is asked for the charge
    alive = {
        run.note.run_id
        for run in find_interrupted_runs(settings.output.folder)
        if run.note.launcher.ended == "under way"
    }
    over = ("abandoned",) if memoized else ("abandoned", "reserved")
    attempt, told = 1, name
    while ledger.has_run(told) and told not in alive and ledger.charge(told).status in over:
        attempt += 1
        told = f"{name}-attempt-{attempt}"
    return told


# The name of the next attempt ---------------------------------------------------------------------


_MODELS = {"shuffled": "shuffle", "local": "local", "central": "central"}


class OpenBatch(Question):
    """What is the reward of each play of the open batch, and which actions may still be best?

    Args:
        settings: checked flags.
        service: which asks.
        asked: its open batch.
    """

    usage = ADVANCE

    def __init__(self, settings: Job, service: ServiceFolder, asked: BatchTerms) -> None:
        super().__init__(settings)
        self.service, self.asked = service, asked

    @classmethod
    def check(cls, given: Arguments) -> Job:
        return cls.of(given).settings

    @classmethod
    def of(cls, given: Arguments) -> OpenBatch:
        service = open_service(given)
        asked = open_batch(service)
        return cls(checked_rewards(given, service, asked), service, asked)

    @property
    def record_type(self) -> type[BatchRecord]:
        return BatchRecord

    @property
    def about(self) -> str:
        return self.settings.question.reward

    @cached_property
    def run_id(self) -> str:
        """One charge for one decision: a ledger grants it once, whoever asks again.

        An attempt that was lost before anything was settled stays charged; where its reports cannot
        be drawn again, the next attempt draws others and pays for them.
        """
        name = f"{self.settings.dataset[:100]}-{self.settings.noise.id}"
        return free_name(self.settings, name, memoized=self.memoized)

    @property
    def value_columns(self) -> tuple[str, ...]:
        return self.settings.question.column

    @property
    def wanted(self) -> dict[str, str]:
        return {**super().wanted, self.about: "--reward"}

    @property
    def vector_size(self) -> int:
        return 1

    @property
    def rows_are_people(self) -> bool:
        """Whether each row is taken for a person."""
        return self.settings.people.id is None

    @cached_property
    def query(self) -> RewardQuery:
        return RewardQuery(self.about, None, self.about, batch=self.asked.digest)

    # Before the rewards ---------------------------------------------------------------------------

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

    # After them -----------------------------------------------------------------------------------

    def gate(self, found: results.WorkerResults) -> Release:
        """All plays, each with its people. Raises NothingReleasedError where some are missing, or
        more came than were asked and nobody knows whether somebody came twice."""
        plays = dict(zip(self.asked.plays, self.asked.counts))
        released = [part for part in found.releases if part.group in plays]
        counts = {notice.group: notice.num_reports for notice in found.withheld}
        counts |= {part.group: part.num_reports for part in found.releases}
        lacking = {
            play: f"{play} has {counts.get(play, 0):,} of {count:,}"
            for play, count in plays.items()
            if counts.get(play, 0) < count
        }
        if lacking:
            shown = ", ".join([*lacking.values()][:5]) + (", ..." if len(lacking) > 5 else "")
            raise NothingReleasedError(
                f"nothing was released: batch {self.asked.number} needs a reward of every slot, "
                f"for its people hide each other; {shown}"
                f"{BadRows.of(found.bad_rows).most_often}"
            )
        if self.rows_are_people:
            self._check_no_surplus(counts)
        withheld = [notice for notice in found.withheld if notice.group in plays]
        parts = gate_parts(released, withheld, self.settings, self.about, found.bad_rows)
        if not self.whole_crowd:
            return parts
        ran = None if parts.ran is None else with_crowd(parts.ran, parts.num_reports)
        return replace(parts, ran=ran, smallest_batch=parts.num_reports)

    def _check_no_surplus(self, counts: dict[str | None, int]) -> None:
        for play, count in zip(self.asked.plays, self.asked.counts):
            if counts[play] > count:
                raise NothingReleasedError(
                    f"nothing was released: {play} has {counts[play]:,} rewards of {count:,} "
                    "slots, and nobody knows whether somebody counts twice; give --user-id, or "
                    "the rewards of the slots alone"
                )

    def composite(self, choice: Choice[Any]) -> Any:
        if not self.service.terms.trusts_the_server:
            return super().composite(choice)
        return PrivateSums(
            choice.mechanism,
            self.query,
            self.asked.counts,
            people=self.settings.people,
            noise=self.how["noise"],
            privacy_unit=self.settings.charge.privacy_unit,
        )

    def price(self, release: Release) -> Price:
        if self.service.terms.trusts_the_server:
            return central_price(CentralSums(self.service.terms.bandit.epsilon))
        if self.settings.trusts_the_shuffler:
            return super().price(release)
        return local_price(release.mechanism["local_epsilon"])

    def facts(self, choice: Choice[Any], release: Release) -> dict[str, Any]:
        assert isinstance(release, Parts)
        column = self.settings.people.group_by
        told = part_facts(release, choice.mechanism, self.settings, self.price, column)
        if self.whole_crowd:
            told = parts_at(price_as_json(self.price(release)), told)
        bandit, answer = self.service.terms.bandit, self._answer(release)
        return {
            **told,
            "model": _MODELS[bandit.model],
            "service": self.service.terms.digest,
            "batch": self.asked.number,
            "amplify_over": bandit.amplify_over if bandit.model == "shuffled" else None,
            "best": answer.best,
            "survivors": len(answer.decided.survivors),
        }

    def answer(self, release: Release, choice: Choice[Any], truth: np.ndarray | None) -> Answer:
        return self._answer(release)

    def _answer(self, release: Release) -> BatchAnswer:
        assert isinstance(release, Parts)
        found = {
            part.group: (part.num_reports, float(part.estimate.raw.value[0]) * part.num_reports)
            for part in release.releases
            if part.group is not None
        }
        heard = self.asked.heard(found)
        return BatchAnswer(release, self.asked, self.service.progress.after(heard))


def open_batch(service: ServiceFolder) -> BatchTerms:
    """What is to be decided. Raises SettingError where all is."""
    if service.asked is None:
        raise SettingError(
            f"--state {service.path}: no batch is open, everybody else has {service.best}"
        )
    return service.asked


def _check(given: Arguments) -> Preflight:
    """What `beam-ldp check` looks at. Raises SettingError."""
    return programs.to_check(OpenBatch, given)


def decide(
    program: type[OpenBatch],
    service: ServiceFolder,
    batches: set[int],
    given: Arguments,
    console: Console,
) -> int:
    """Decide the open batch; rewards of batches that were decided before change nothing.

    Args:
        program: what reads them.
        service: as it stands.
        batches: numbers of those that the rewards are of, as far as that is known.
        given: what was asked for.
        console: where progress and warnings go.
    """
    form = given["output"].get("format", "table")
    if batches and max(batches) <= len(service.progress.heard):
        say_service(service, form, f"batch {max(batches)} was decided before: nothing has changed")
        return DONE
    service.private.mkdir(mode=0o700, exist_ok=True)
    code = programs.run_and_show(program, given, console)
    if code == DONE and not given.action("only_plan") and form != "json":
        say_service(ServiceFolder.open(str(service.path)), form)
    return code


def _run(given: Arguments, console: Console) -> int:
    """The program as it was told, by flags or a job file."""

    def decide_arrived(number: int, arrived: Arguments) -> int:
        return decide(OpenBatch, open_service(arrived), {number}, arrived, console)

    if section_from(given, ADVANCE, "stream", RewardStream).on and not given.action("only_plan"):
        return follow(given, console, decide_arrived)
    return decide(OpenBatch, open_service(given), batches_in(given), given, console)


PROGRAM = Program(ADVANCE, _run, _check)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(ADVANCE))
