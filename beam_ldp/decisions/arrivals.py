"""`beam-ldp bandit advance --stream`: rewards that keep arriving, and batches decided one by one.

A window of this stream is a batch. Rows go to the open batch by their play, whenever they come; the
batch is closed by its last slot and not by a clock, for people of a batch hide each other. Then it
is decided as any other, under its own name, price and charge. The files and the service are all the
state there is: whoever starts the same command after a kill goes on.

A file is read when its name appears: it must be complete then, so write it aside and rename it, as
`KeepRewards` does.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc
from rich.console import Console
from rich.markup import escape

from beam_ldp.decisions.bandit_views import say_service
from beam_ldp.decisions.rewards import Rewards
from beam_ldp.decisions.service import (
    ServiceFolder,
    checked_rewards,
    checked_rules,
    open_service,
)
from beam_ldp.decisions.usage import ADVANCE, RewardQuestion, RewardStream
from beam_ldp.pipelines.programs import DONE
from beam_ldp.release.inputs.previews import read_heads
from beam_ldp.release.inputs.sources import InputFileError, RowReader, find_all_files
from beam_ldp.release.job import section_from, with_files
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.sections import Source
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms.elements.blocks import BadRowBlock, TableBlock, ValueBlock
from beam_ldp.transforms.queries import encode

if TYPE_CHECKING:
    from beam_ldp.decisions.bandits.progress import BatchTerms

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
