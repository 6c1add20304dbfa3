"""`beam-ldp bandit advance`: decide the open batch of a service.

The same program as `python -m beam_ldp.decisions.bandit_advance`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cached_property
from typing import Any

from rich.console import Console

from beam_ldp.accounting.prices import Price, price_as_json
from beam_ldp.accounting.reports import with_crowd
from beam_ldp.decisions.arrivals import batches_in, follow
from beam_ldp.decisions.bandit_views import say_service
from beam_ldp.decisions.rewards import Rewards
from beam_ldp.decisions.service import (
    ServiceFolder,
    checked_rewards,
    open_batch,
    open_service,
)
from beam_ldp.decisions.stages import PrivateSums
from beam_ldp.decisions.usage import ADVANCE, RewardStream
from beam_ldp.ledger import BudgetLedger, LedgerError
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.commands import start
from beam_ldp.pipelines.programs import DONE, Program
from beam_ldp.release import worker_results as results
from beam_ldp.release.checks import Preflight
from beam_ldp.release.gates import BadRows, NothingReleasedError
from beam_ldp.release.interrupted_runs import find_interrupted_runs
from beam_ldp.release.job import section_from
from beam_ldp.release.parts import gate_parts
from beam_ldp.release.reserving import ledger_url
from beam_ldp.release.run import Run
from beam_ldp.release.statement import say_by
from beam_ldp.settings.job import Job
from beam_ldp.settings.usage import Arguments, Usage
from beam_ldp.transforms.elements.blocks import Release

say_by(__package__)


def free_name(job: Job, name: str, *, memoized: bool) -> str:
    """The first of `name`, `name-attempt-2`, ... that the next attempt may be charged under.

    One whose attempt released nothing was given back, and is over. One that was lost stays charged:
    memoized reports are drawn again under its name, others are new ones. One that is settled, or
    under way, keeps its name, so that the ledger refuses it again.
    """
    url = ledger_url(job)
    if url is None:
        return name
    try:
        ledger = BudgetLedger(url)
    except LedgerError:
        return name  # which is said when it is asked for the charge
    alive = {
        run.note.run_id
        for run in find_interrupted_runs(job.output.folder)
        if run.note.launcher.ended == "under way"
    }
    over = ("abandoned",) if memoized else ("abandoned", "reserved")
    attempt, told = 1, name
    while ledger.has_run(told) and told not in alive and ledger.charge(told).status in over:
        attempt += 1
        told = f"{name}-attempt-{attempt}"
    return told


class BatchRun(Run):
    """A release of all plays of an open batch, which decides it once."""

    declared: Rewards

    @cached_property
    def run_id(self) -> str:
        """One charge for one decision: a ledger grants it once, whoever asks again.

        An attempt that was lost before anything was settled stays charged; where its reports cannot
        be drawn again, the next attempt draws others and pays for them.
        """
        name = f"{self.job.dataset[:100]}-{self.job.noise.id}"
        return free_name(self.job, name, memoized=self.memoized)

    @property
    def wanted(self) -> dict[str, str]:
        return {**super().wanted, self.declared.column: "--reward"}

    @property
    def worst_price(self) -> Price | None:
        return self.choice.price  # nothing is decided by fewer people

    def composite(self) -> Any:
        if not self.declared.open.terms.trusts_the_server:
            return super().composite()
        return PrivateSums(
            self.choice.mechanism,
            self.declared,
            self.declared.open.counts,
            people=self.job.people,
            noise=self.how["noise"],
            privacy_unit=self.job.charge.privacy_unit,
        )

    @property
    def rows_are_people(self) -> bool:
        """Whether each row is taken for a person; copies of a report count once."""
        return self.job.people.id is None and self.job.collected is None

    def gate(self, found: results.WorkerResults) -> Release:
        """All plays, each with its people. Raises NothingReleasedError where some are missing, or
        more came than were asked and nobody knows whether somebody came twice."""
        asks = self.declared.open
        plays = dict(zip(asks.plays, asks.counts))
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
                f"nothing was released: batch {asks.number} needs a reward of every slot, "
                f"for its people hide each other; {shown}"
                f"{BadRows.of(found.bad_rows).most_often}"
            )
        if self.rows_are_people:
            self._check_no_surplus(counts)
        withheld = [notice for notice in found.withheld if notice.group in plays]
        parts = gate_parts(released, withheld, self.job, self.declared.name, found.bad_rows)
        if not self.declared.whole_crowd:
            return parts
        ran = None if parts.ran is None else with_crowd(parts.ran, parts.num_reports)
        return replace(parts, ran=ran, smallest_batch=parts.num_reports)

    def _check_no_surplus(self, counts: dict[str | None, int]) -> None:
        asks = self.declared.open
        for play, count in zip(asks.plays, asks.counts):
            if counts[play] > count:
                raise NothingReleasedError(
                    f"nothing was released: {play} has {counts[play]:,} rewards of {count:,} "
                    "slots, and nobody knows whether somebody counts twice; give --user-id, or "
                    "the rewards of the slots alone"
                )

    def facts(self, release: Release) -> dict[str, Any]:
        """Of parts that hide in one crowd each costs what all together cost."""
        told = super().facts(release)
        if not self.declared.whole_crowd:
            return told
        price = price_as_json(self.price(release))
        return {**told, "parts": tuple({**part, **price} for part in told["parts"])}


def bound_batch(usage: Usage, given: Arguments) -> BatchRun:
    """The release of the open batch of the service that is named. Raises SettingError."""
    service = open_service(given)
    job = checked_rewards(given, service, open_batch(service))
    return BatchRun(usage, job, job.question.asked)


def decide(
    usage: Usage,
    bind: programs.Bind,
    service: ServiceFolder,
    batches: set[int],
    given: Arguments,
    console: Console,
) -> int:
    """Decide the open batch; rewards of batches that were decided before change nothing.

    Args:
        usage, bind: of what reads them.
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
    code = programs.run_and_show(bind(usage, given), given, console)
    if code == DONE and not given.action("only_plan") and form != "json":
        say_service(ServiceFolder.open(str(service.path)), form)
    return code


def _run(given: Arguments, console: Console) -> int:
    """The program as it was told, by flags or a job file."""

    def decide_arrived(number: int, arrived: Arguments) -> int:
        return decide(ADVANCE, bound_batch, open_service(arrived), {number}, arrived, console)

    if section_from(given, ADVANCE, "stream", RewardStream).on and not given.action("only_plan"):
        return follow(given, console, decide_arrived)
    return decide(ADVANCE, bound_batch, open_service(given), batches_in(given), given, console)


def _check(given: Arguments) -> Preflight:
    """What `beam-ldp check` looks at. Raises SettingError."""
    return Preflight.of(bound_batch(ADVANCE, given), given.beam_flags)


PROGRAM = Program(ADVANCE, _run, _check)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(ADVANCE))
