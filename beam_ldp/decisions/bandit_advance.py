"""`beam-ldp bandit advance`: decide the open batch of a service.

The same program as `python -m beam_ldp.decisions.bandit_advance`.

`beam-ldp bandit advance --stream`: rewards that keep arriving, and batches decided one by one.

A window of this stream is a batch. Rows go to the open batch by their play, whenever they come; the
batch is closed by its last slot and not by a clock, for people of a batch hide each other. Then it
is decided as any other, under its own name, price and charge. The files and the service are all the
state there is: whoever starts the same command after a kill goes on.

A file is read when its name appears: it must be complete then, so write it aside and rename it, as
`KeepRewards` does.
"""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from rich.console import Console
from rich.markup import escape

from beam_ldp.accounting.prices import Price, price_as_json
from beam_ldp.accounting.reports import with_crowd
from beam_ldp.decisions.bandit_views import say_service
from beam_ldp.decisions.rewards import Rewards
from beam_ldp.decisions.service import (
    ServiceFolder,
    checked_rewards,
    checked_rules,
    open_batch,
    open_service,
)
from beam_ldp.decisions.stages import PrivateSums
from beam_ldp.decisions.usage import ADVANCE, RewardQuestion, RewardStream
from beam_ldp.ledger import BudgetLedger, LedgerError
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.programs import DONE, Program
from beam_ldp.release import worker_results as results
from beam_ldp.release.checks import Preflight
from beam_ldp.release.gates import BadRows, NothingReleasedError
from beam_ldp.release.inputs.previews import read_heads
from beam_ldp.release.inputs.sources import InputFileError, RowReader, find_all_files
from beam_ldp.release.interrupted_runs import find_interrupted_runs
from beam_ldp.release.job import section_from, with_files
from beam_ldp.release.parts import gate_parts
from beam_ldp.release.reserving import ledger_url
from beam_ldp.release.run import Run
from beam_ldp.release.statement import say_by
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.sections import Source
from beam_ldp.settings.usage import Arguments, Usage
from beam_ldp.transforms.elements.blocks import BadRowBlock, Release, TableBlock, ValueBlock
from beam_ldp.transforms.queries import encode

if TYPE_CHECKING:
    from beam_ldp.decisions.bandits.progress import BatchTerms


# Rewards that keep arriving -----------------------------------------------------------------------


_PLAY = re.compile(r"(\d+):.")


def batches_in(given: Arguments) -> set[int]:
    """Numbers of the batches in the first rows of each file; none where that cannot be read, which
    the program then says. Whether they are, decides nothing but what to say: rewards of another
    batch never count."""
    column = given["people"].get("group_by", "play")
    try:
        source = section_from(given, ADVANCE, "source", Source)
        settings = with_files(Job(source=source, question=RewardQuestion()))
        told = settings.source
        reader = RowReader(told.format, (column,), None, "dead_letter", told.delimiter, None)  # type: ignore[arg-type]
        heads = read_heads(settings.files, reader)
    except (SettingError, InputFileError):
        return set()
    return {number for head in heads for number in batches_named(head.blocks, column)}


def batches_named(blocks: Iterable[TableBlock], column: str) -> set[int]:
    """Numbers of the batches that the plays in a column name."""
    found = set()
    for block in blocks:
        if column in block.batch.schema.names:
            for value in pc.unique(block.batch.column(column)).to_pylist():
                if match := _PLAY.match(str(value)):
                    found.add(int(match[1]))
    return found


# Which batches rewards are of ---------------------------------------------------------------------


LOOK_EVERY = 1.0  # seconds between two looks at the files
SEVERAL = -1  # plays of one person

DecideBatch = Callable[[int, Arguments], int]


def follow(given: Arguments, console: Console, decide: DecideBatch) -> int:
    """Decide one batch after another as their rewards arrive; gives the exit code.

    It ends when the winner is named, after the time that was given, by Ctrl-C while it waits, and
    with a batch that is not released, whose reason is not one that more files would mend.

    Args:
        given: what was asked for.
        console: where progress goes.
        decide: the batch of a number, from the files in the arguments, unless another process did.

    Raises:
        SettingError: as `bandit advance`, before anything is waited for where that is known.
    """
    stream: RewardStream = section_from(given, ADVANCE, "stream", RewardStream)
    until = None if stream.stop_after is None else time.monotonic() + stream.stop_after
    service = open_service(given)
    if service.asked is None:
        say_service(service, given["output"].get("format", "table"))
    while service.asked is not None:
        arrivals = Arrivals(given, service, service.asked)
        console.print(arrivals.waits_for, highlight=False, soft_wrap=True)
        if why := _wait(arrivals, console, until):
            console.print(f"{why}: {arrivals.waits_for}", highlight=False, soft_wrap=True)
            return DONE
        code = decide(service.asked.number, arrivals.arguments)
        if code != DONE:
            return code
        service = open_service(given)
    return DONE


def _wait(arrivals: Arrivals, console: Console, until: float | None) -> str:
    """Look until every slot has its reward, or say why not."""
    try:
        with console.status(arrivals.waits_for) as status:
            while not arrivals.look():
                if until is not None and time.monotonic() > until:
                    return "stopped after the time that was given"
                status.update(arrivals.waits_for)
                time.sleep(LOOK_EVERY)
    except KeyboardInterrupt:
        return "stopped by Ctrl-C"
    return ""


class Arrivals:
    """The files of one batch as they arrive, and how many of its slots they answer.

    Files that name other batches alone are left out; those that name none hold rows that cannot be
    used, and are listed as such.

    The launcher itself reads each file once, for plays, ids, and whether a reward can be used; it
    keeps no reward. A person whose rows name several plays answers no slot here: which of her rows
    is drawn is not known before the run. So whatever is answered here is answered in the run.

    Args:
        given: what was asked for.
        service: which asks.
        asked: its open batch.

    Raises:
        SettingError: for flags that do not fit, before there are any files.
    """

    def __init__(self, given: Arguments, service: ServiceFolder, asked: BatchTerms) -> None:
        self._given, self._service, self._asked = given, service, asked
        checked_rules(given, service, asked)
        self._read: dict[str, bool] = {}  # whether a file is of this batch
        self._play_of: dict[bytes, int] = {}  # of each person, or `SEVERAL`
        self._answered = np.zeros(len(asked.plays), dtype=np.int64)
        self._bad = Counter[str]()  # why rows answer no slot

    def look(self) -> bool:
        """Read what is new; whether every slot has its reward."""
        try:
            found = [path for path, _ in find_all_files(self._given["source"]["paths"])]
        except InputFileError:  # none is there yet
            return False
        if new := [path for path in found if path not in self._read]:
            told = _over(self._given, new)
            self._take(checked_rewards(told, self._service, self._asked))
        return bool((self._answered >= self._asked.counts).all())

    @property
    def arguments(self) -> Arguments:
        """What decides the batch: what was asked for, of its files."""
        return _over(self._given, [path for path, is_own in self._read.items() if is_own])

    @property
    def waits_for(self) -> str:
        """Which slots have no reward yet."""
        short = [
            f"{escape(play)} has {here:,} of {count:,}"
            for play, here, count in zip(
                self._asked.plays, self._answered.tolist(), self._asked.counts
            )
            if here < count
        ]
        more = f" and {len(short) - 4} more" if len(short) > 4 else ""
        bad = ""
        if self._bad:
            often = self._bad.most_common(1)[0][0]
            bad = f"; {self._bad.total():,} rows cannot be used, most often: {often}"
        return f"batch {self._asked.number}: {', '.join(short[:4])}{more}{bad}"

    def _take(self, settings: Job) -> None:
        source, people, column = settings.source, settings.people, settings.question.reward
        play = str(people.group_by)
        reader = RowReader(
            source.format,  # type: ignore[arg-type]
            (column, play), people.id, "dead_letter", source.delimiter, None,
        )  # fmt: skip
        encoded = encode(Rewards(column), None, people)
        for path in settings.files:
            try:
                rows = [one for split in reader.splits(path) for one in reader.read(split)]
            except InputFileError as error:
                raise SettingError(f"--rewards {error}") from None
            tables = [one for one in rows if isinstance(one, TableBlock)]
            named = batches_named(tables, play)
            self._read[path] = not named or self._asked.number in named
            if self._read[path]:
                self._take_rows(rows, encoded.in_hand(tables))

    def _take_rows(
        self, rows: list[TableBlock | BadRowBlock], encoded: Iterator[ValueBlock | BadRowBlock]
    ) -> None:
        bad = [one for one in rows if isinstance(one, BadRowBlock)]
        for block in chain(bad, encoded):
            if isinstance(block, ValueBlock):
                self._count(block)
            else:
                self._bad.update(row.reason for row in block)

    def _count(self, block: ValueBlock) -> None:
        assert block.groups is not None
        if block.user_ids is None:  # each row is a person
            self._answered += np.bincount(block.groups, minlength=len(self._answered))
            return
        for person, play in zip(block.user_ids.tolist(), block.groups.tolist()):
            one = person if isinstance(person, bytes) else b"%d" % person
            before = self._play_of.get(one)
            if before is None:
                self._play_of[one] = play
                self._answered[play] += 1
            elif before not in (play, SEVERAL):
                self._play_of[one] = SEVERAL
                self._answered[before] -= 1


def _over(given: Arguments, paths: list[str]) -> Arguments:
    """What was asked for, of these files."""
    return Arguments({"source": {"paths": tuple(paths)}}, given.beam_flags).over(given)


# A batch ------------------------------------------------------------------------------------------


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


PROGRAM = Program(ADVANCE, _run, _check, bound_batch)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(ADVANCE))
