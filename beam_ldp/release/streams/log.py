"""A stream for those who look on: in MLflow one run with a step per release; its last windows here.

Written by the launcher alone, from what stands in the folder for everybody to read and from the
ledger: never rows, keys or seeds. A server that is away costs the log, never a release; what waits
is sent when it is back. A stream that goes on finds its run again, by its charge and its identity.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import math
import time
import uuid
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_accounting import DpEvent
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

import mlflow_ldp
from beam_ldp import log_events
from beam_ldp.accounting import ShuffleAccountant, ShuffledDpEvent
from beam_ldp.accounting.composition.accountant import counts_of
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.accounting.reports import with_crowd
from beam_ldp.questions.pictures import shortened
from beam_ldp.questions.tables import PLACE
from beam_ldp.randomizers.estimate import readable
from beam_ldp.release import outputs, runner
from beam_ldp.release.charging import YES
from beam_ldp.release.reserving import NO_LEDGER, SIMULATED
from beam_ldp.release.streams.job import Stream
from beam_ldp.release.streams.results import TABLE, read_folder
from beam_ldp.wording import number
from mlflow_ldp.release import dataset_input
from mlflow_ldp.runs import IDENTITY_TAG, NAMESPACE, LoggedRun, RunLog, tracking_seconds

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger


STREAM_TAG = f"{NAMESPACE}.stream"  # by which the run of a stream is found again
EVERY = 10.0  # seconds between two requests at least
PATIENCE = 5.0  # seconds that the launcher waits for the server while the stream runs
GROWTH = 1.25  # how many times the windows there are before their event is written anew
# What tells a step from all others; a group by its place in the public list.
_START, _LATE, _GROUP = (f"{NAMESPACE}.{name}" for name in ("window_start", "late", "group"))


class StreamLog:
    """The MLflow run of one stream; nothing where none is wanted or MLflow is not installed.

    Args:
        job: the stream, its budget reserved.
        console: for a word where nothing is logged.
    """

    def __init__(self, job: Stream, console: Console) -> None:
        self._job = job
        self._waiting: list[tuple[Step, dict[str, float]]] = []
        self._dearest = Dearest()
        self._logged: set[tuple[float, float, float]] | None = None  # what the run shows
        self._next = 0  # step
        self._stored = 0  # windows in the event that the run stores
        self._tried = -math.inf
        self._behind = False  # something was not taken by the server
        self._book: BudgetLedger | None = None
        self._over = False
        self._last: tuple[dict[str, float], int, int] | None = None
        self._log: RunLog | None = None
        if job.job.output.no_mlflow:
            return
        if not mlflow_ldp.available():
            console.print("MLflow is not installed: the stream is not logged", style="dim")
            return
        for name in ("alembic", "mlflow"):
            logging.getLogger(name).setLevel(logging.WARNING)
        try:
            self._log = self._open()
            self._catch_up()
            self._log.patience.seconds = PATIENCE
        except Exception as error:
            self._log = None
            console.print(
                f"[yellow]warning:[/yellow] the stream is not logged to MLflow "
                f"({type(error).__name__})",
                soft_wrap=True,
            )

    @property
    def logged(self) -> LoggedRun | None:
        """Where MLflow's run is; None while there is none."""
        return None if self._log is None else self._log.logged

    def take(self, steps: Sequence[Step]) -> None:
        """Windows that were released, to be logged now or in a while."""
        if self._log is None or self._over:
            return
        for step in steps:
            self._dearest.take(step.told)
        if steps:
            spent = self._spent()
            self._waiting += [(step, {}) for step in steps[:-1]] + [(steps[-1], spent)]
        if (self._waiting or self._behind) and time.monotonic() - self._tried >= EVERY:
            self._send()

    def end(self, watched: StreamProgress, *, failed: bool) -> None:
        """The last windows, all releases as one event, and the end of the run."""
        if self._log is None:
            return
        self.take(watched.new_steps())
        if self._over:
            return
        self._log.patience.seconds = tracking_seconds()
        self._send()
        if self._over:
            return
        if self._last is None or self._waiting:  # nothing was released, or nobody takes it
            self._log.finish({}, failed=failed)
            return
        _, step, at = self._last
        self._log.put({**self._total(watched.epsilon, watched.local_epsilon), **self._spent()},
                      step, at)  # fmt: skip
        self._log.describe(_NOTE.format(
            question=self._job.run.asked.name, summary=watched.summary()
        ))  # fmt: skip
        event = self._event()
        self._show_budget()
        if event is not None:
            self._log.tag(self._charge_tags(event))
        self._log.finish({} if event is None else {"event.json": _compact(event)}, failed=failed)

    # Inside ------------------------------------------------------------------------------------

    def _open(self) -> RunLog:
        job, settings = self._job, self._job.job
        return RunLog(
            tracking_uri=runner.tracking_uri(
                settings.output,
                outputs.OutputFolder(settings.output.folder, checked=False),
                None if (ledger := self._ledger()) is None else ledger.mlflow_uri,
            ),
            experiment=settings.output.mlflow_experiment,
            run_name=f"stream of {job.run.asked.name}",
            params=_params(job),
            inputs=lambda: [dataset_input(settings.dataset, {job.run.asked.name: "string"})],
            goes_on={STREAM_TAG: self._name()},
        )

    def _name(self) -> str:
        """Of the run: equal where a stream goes on. Only one with memoized noise does."""
        job = self._job
        identity = job.identity
        goes_on = identity is not None and identity.key
        told = [
            job.run_id,
            "" if (ledger := self._ledger()) is None else ledger.ledger_id,
            identity.digest.hex() if identity is not None and goes_on else uuid.uuid4().hex,
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]

    def _send(self) -> None:
        """What waits, in one request; before the first window its event, so that it has a price."""
        assert self._log is not None
        self._tried = time.monotonic()
        if not self._is_newest() or not self._catch_up():
            return
        for step, spent in self._waiting:
            self._put(step, spent)
        self._waiting = []
        known = self._stored > 0 or self._store()
        self._behind = not (known and self._log.flush())
        if not self._behind and len(self._dearest.windows) >= GROWTH * self._stored:
            self._store()

    def _catch_up(self) -> bool:
        """Learn which windows the run shows already; whether that is known."""
        assert self._log is not None
        if self._logged is None:
            self._log.start()
            starts = None if self._log.run_id is None else self._log.history(_START)
            others = [starts and self._log.history(name) for name in (_LATE, _GROUP)]
            if starts is None or None in others:
                return False
            late, group = (found or {} for found in others)
            self._logged = {
                (starts[step], late.get(step, 0.0), group.get(step, 0.0)) for step in starts
            }
            self._next = max(starts, default=-1) + 1
            self._log.tag(self._tags())
        return True

    def _put(self, step: Step, spent: dict[str, float]) -> None:
        assert self._log is not None and self._logged is not None
        told = step.told
        window = (_seconds(told["window_start"]), float(told["late"]), self._place_of(told))
        at = int(1000 * _seconds(told["window_end"]))
        if window in self._logged:
            self._last = ({}, self._next - 1, at)
            return
        self._logged.add(window)
        own = {_START: window[0], _LATE: window[1],
               f"{NAMESPACE}.num_reports": float(told["num_reports"])}  # fmt: skip
        if "group" in told:
            own[_GROUP] = window[2]
        if told["event"] is not None:
            own[f"{NAMESPACE}.step_epsilon"] = told["epsilon"]
            own[f"{NAMESPACE}.step_local_epsilon"] = told["local_epsilon"]
        values = own | self._total(step.epsilon, step.local_epsilon) | spent
        self._log.put(values, self._next, at)
        self._last = (values, self._next, at)
        self._next += 1

    def _place_of(self, told: Mapping[str, Any]) -> float:
        """Of its group in the public list, counted from one; zero without groups."""
        groups = self._job.run.groups
        return 0.0 if groups is None else 1.0 + groups.labels.index(told["group"])

    def _total(self, epsilon: float | None, local_epsilon: float) -> dict[str, float]:
        if epsilon is None:
            return {}
        return {f"{NAMESPACE}.epsilon": epsilon, f"{NAMESPACE}.local_epsilon": local_epsilon}

    def _store(self) -> bool:
        """What the run released so far as one event; the budget's own run knows of it before."""
        assert self._log is not None
        event = self._event()
        if event is None:
            return True
        self._show_budget()
        self._log.tag(self._charge_tags(None))
        if not self._log.files({"event.json": _compact(event)}):
            return False
        self._stored = len(self._dearest.windows)
        return True

    def _event(self) -> dict[str, Any] | None:
        from dp_accounting import ComposedDpEvent, SelfComposedDpEvent

        from beam_ldp.accounting.event_json import event_to_json

        counts = Counter(
            json.dumps(told["event"], sort_keys=True) for told in self._dearest.windows.values()
        )
        kinds = [
            event if count == 1 else SelfComposedDpEvent(event, count)
            for event, count in (
                (event_from_json(json.loads(text)), count) for text, count in counts.items()
            )
        ]
        if not kinds:
            return None
        return event_to_json(kinds[0] if len(kinds) == 1 else ComposedDpEvent(kinds))

    def _tags(self) -> dict[str, str]:
        job = self._job
        identity = {} if job.identity is None else {IDENTITY_TAG: job.identity.digest.hex()}
        simulated = job.job.noise.seed is not None
        return {
            **identity,
            f"{NAMESPACE}.neighbours": "replace-one",
            f"{NAMESPACE}.guarantee": "none: simulation" if simulated else "stated",
            f"{NAMESPACE}.charged": _charged(job),
        }

    # The ledger --------------------------------------------------------------------------------

    def _ledger(self) -> BudgetLedger | None:
        budget = self._job.budget
        if self._book is None and budget is not None:
            from beam_ldp.ledger import BudgetLedger

            self._book = BudgetLedger(budget.url)
        return self._book

    def _spent(self) -> dict[str, float]:
        """Where the people's budget stands; nothing where no ledger tells."""
        try:
            ledger = self._ledger()
            return {} if ledger is None else mlflow_ldp.dataset_metrics(ledger, self._dataset)
        except Exception:  # the ledger is away: the workers say so
            return {}

    def _charge_tags(self, event: dict[str, Any] | None) -> dict[str, str]:
        try:
            ledger = self._ledger()
            return {} if ledger is None else mlflow_ldp.charge_tags(
                ledger, self._job.run_id, event
            )  # fmt: skip
        except Exception:
            return {}

    def _show_budget(self) -> None:
        """The next step of the budget's own run; what it lacks comes with the next charge."""
        assert self._log is not None
        try:
            ledger = self._ledger()
            if ledger is not None and self._log.run_id is not None:
                mlflow_ldp.log_budget(
                    ledger, self._dataset, tracking_uri=self._log.uri,
                    experiment_id=self._log.experiment_id,
                )  # fmt: skip
        except Exception:
            log_events.say(log_events.NOT_LOGGED, program="frequency --stream")

    def _is_newest(self) -> bool:
        """Whether no later start of the stream has taken the run over: then that one logs."""
        try:
            ledger = self._ledger()
            if ledger is not None and self._job.attempt:
                newest = ledger.charge(self._job.run_id).attempt
                self._over = newest != self._job.attempt
        except Exception:
            return True
        return not self._over

    @property
    def _dataset(self) -> str:
        return self._job.job.dataset


_NOTE = """Windows of **{question}**: a step for each that was released, in the order in which they
came out; `privacy.window_start` says which one, in seconds since 1970.

`privacy.step_epsilon` is what a window costs a person in it against its readers;
`privacy.epsilon` and `privacy.local_epsilon` are what all windows so far cost somebody who was in
each of them.

{summary}.
"""


def _params(job: Stream) -> dict[str, Any]:
    settings, stream = job.job, job.stream
    mechanism = dict(job.run.choice.mechanism.to_config())
    told = {
        "dataset": settings.dataset,
        "question": job.run.asked.name,
        "release_id": None if job.identity is None else job.identity.release_id,
        "run_id": job.run_id,
        "delta": settings.privacy.delta,
        "min_reports": settings.min_reports,
        "honest_fraction": settings.privacy.honest_fraction,
        "privacy_unit": settings.charge.privacy_unit,
        "one_report_per": settings.one_report_per,
        "memoized": settings.noise.key_file is not None,
        "budget_windows": settings.charge.windows,
        "window_seconds": stream.period,
        "sum_seconds": stream.window if stream.slide is not None else None,
        "session_gap_seconds": stream.session_gap,
        "late_reports": stream.late,
        "mechanism": mechanism.pop("mechanism", ""),
        **{f"mechanism.{name}": value for name, value in mechanism.items()},
    }
    return {f"{NAMESPACE}.{name}": value for name, value in told.items() if value is not None}


def _charged(job: Stream) -> str:
    if job.job.noise.seed is not None:
        return SIMULATED
    return NO_LEDGER if job.budget is None else YES


def _compact(event: dict[str, Any]) -> str:
    """As JSON without spaces: a year of windows is long."""
    return json.dumps(event, separators=(",", ":"))


def _seconds(time: str) -> float:
    """Since 1970, of a time as `iso` writes it."""
    return datetime.fromisoformat(time[:-1] + "+00:00").timestamp()


# In sight: the last windows, what is in them, and what all of them cost ---------------------------


SHOWN = 12  # windows
TOP = 3  # values of each
KINDS = 24  # of windows, which are priced as they are
_PER_OCTAVE = 16
ORDERS = [2.0, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]  # few: every release is priced at once


class StreamAccountant(ShuffleAccountant):
    """An accountant whose price takes no longer for the thousandth window than for the fiftieth.

    Windows of many sizes are as many kinds of release, each of which is a transform for every
    price. From `KINDS` of them on, a window counts as one of slightly fewer reports, of which there
    are `_PER_OCTAVE` numbers between one and twice it. A smaller crowd is dearer, so what is shown
    remains a bound, about 1 % above the price of the ledger, which keeps each window as it was.
    """

    def _maybe_compose(self, event: DpEvent, count: int, do_compose: bool) -> Any:
        refused = super()._maybe_compose(event, count, do_compose)
        if do_compose and refused is None:
            rounded = _fewer_reports(event)
            self._rounded = counts_of(rounded, count, getattr(self, "_rounded", None))
        return refused

    def _upper(self, counts: Any, delta: float, enough: float = -1.0) -> tuple[float, str]:
        many = counts is self._counts and len(counts) > KINDS
        return super()._upper(self._rounded if many else counts, delta, enough)


def _fewer_reports(event: DpEvent) -> DpEvent:
    """The same release of slightly fewer reports, where its price is that of one crowd."""
    if not isinstance(event, ShuffledDpEvent) or event.local_event.public_groups != 1:
        return event
    step = math.floor(_PER_OCTAVE * math.log2(event.crowd)) / _PER_OCTAVE
    return with_crowd(event, max(1, min(event.crowd, math.floor(2.0**step))))


class Dearest:
    """Of each window, late or not, the release that costs most: a person is in one group of it.

    Attributes:
        windows: its `privacy.json`, by start, end and whether it is late.
    """

    def __init__(self) -> None:
        self.windows: dict[tuple[str, str, bool], Mapping[str, Any]] = {}

    def take(self, told: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Take in a release with an event; what it takes the place of, or the release itself where
        it does not count."""
        key = (told["window_start"], told["window_end"], told["late"])
        before = self.windows.get(key)
        if told["event"] is None or before is not None and before["epsilon"] >= told["epsilon"]:
            return told
        self.windows[key] = told
        return before


@dataclass(frozen=True)
class Step:
    """A window that was released, and what all windows cost up to it.

    Attributes:
        told: its `privacy.json`.
        epsilon, local_epsilon: of all so far; None and 0 in simulations.
    """

    told: dict[str, Any]
    epsilon: float | None
    local_epsilon: float


@dataclass
class StreamProgress:
    """What has come out so far.

    Attributes:
        folder: where results appear.
        budget_windows: releases that may happen.
        delta: delta of the central epsilons.
        used: windows that were released or withheld, late reports apart: each uses one of the
            budget, whatever its groups.
        released, late, withheld, sums: how many.
        epsilon: central price of all releases for a person who was in all of them; None without any
            and in simulations.
        local_epsilon: what such a person has lost to whoever sees single reports.
    """

    folder: Path
    budget_windows: int
    delta: float
    released: int = 0
    late: int = 0
    withheld: int = 0
    sums: int = 0
    epsilon: float | None = None
    local_epsilon: float = 0.0
    _known: set[str] = field(default_factory=set)
    _used: set[tuple[str, str, bool]] = field(default_factory=set)
    _dearest: Dearest = field(default_factory=Dearest)
    _steps: list[Step] = field(default_factory=list)
    _accountant: StreamAccountant = field(default_factory=lambda: StreamAccountant(ORDERS))
    _rows: deque[tuple[str, ...]] = field(default_factory=lambda: deque(maxlen=SHOWN))

    @property
    def used(self) -> int:
        return len(self._used)

    @property
    def is_used_up(self) -> bool:
        return self.used >= self.budget_windows

    def look(self) -> bool:
        """Take in what is new; whether there was any."""
        before = len(self._known)
        for name, told in read_folder(self.folder, self._known):
            if ".withheld-" in name:
                self._take_withheld(told)
            else:
                self._take_release(name, told)
        return len(self._known) > before

    def new_steps(self) -> list[Step]:
        """Windows that were released since this was asked last, in the order of their folders."""
        found, self._steps = self._steps, []
        return found

    def _take_withheld(self, told: dict[str, Any]) -> None:
        self.withheld += 1
        if not told["late"] and told["min_reports"] > 0:
            self._use(told)
        said = f"withheld: {told['reason']}"
        place = (_window(told), f"{told['num_reports']:,}")
        self._rows.append((*place, said, "", "late" if told["late"] else ""))

    def _take_release(self, name: str, told: dict[str, Any]) -> None:
        kind = "late" if told["late"] else "sum" if told["derived"] else ""
        if told["derived"]:
            self.sums += 1
        else:
            self.released += 1
            self.late += told["late"]
            self._use(told)
        before = self._dearest.take(told)
        if before is None:
            self._accountant.compose(event_from_json(told["event"]))
            self.local_epsilon += told["local_epsilon"]
        elif before is not told:  # another group of the window costs more
            self._accountant = StreamAccountant(ORDERS)
            for one in self._dearest.windows.values():
                self._accountant.compose(event_from_json(one["event"]))
        if before is not told:
            self.epsilon = float(self._accountant.get_epsilon(self.delta))
        if not told["derived"]:
            self._steps.append(Step(told, self.epsilon, self.local_epsilon))
        price = "" if told["epsilon"] is None else number(told["epsilon"])
        table = (self.folder / name / TABLE).read_text("utf-8")
        self._rows.append((_window(told), f"{told['num_reports']:,}", _top(table), price, kind))

    def _use(self, told: Mapping[str, Any]) -> None:
        self._used.add((told["window_start"], told["window_end"], told["late"]))

    def render(self) -> Group:
        """What is shown now."""
        table = Table("window (UTC)", "reports", "largest", "epsilon", "", expand=False)
        for row in self._rows:
            table.add_row(*map(Text, row))
        return Group(table, Text(self.summary(), style="dim"))

    def summary(self) -> str:
        """One line about all of it."""
        said = (
            f"{self.used:,} of {self.budget_windows:,} releases used; {self.released:,} released "
            f"({self.late:,} late), {self.withheld:,} withheld"
        )
        if self.epsilon is None:
            return said
        return (
            f"{said}. Somebody in all of them: epsilon <= {number(self.epsilon)} at delta = "
            f"{self.delta:g} against readers of the tables, local epsilon "
            f"{number(self.local_epsilon)}"
        )


def _window(told: Mapping[str, Any]) -> str:
    start, end = told["window_start"], told["window_end"]
    same_day = start[:10] == end[:10]
    group = f", {told['group']}" if told.get("group") else ""
    return f"{start[:10]} {start[11:-1]}–{end[11:-1] if same_day else end[:-1]}{group}"


def _top(table: str) -> str:
    """The largest estimates with their errors: behind its place a table says name, value, error."""
    header, *rows = csv.reader(io.StringIO(table))
    first = len(PLACE)
    largest = sorted(rows, key=lambda row: -float(row[first + 1]))[:TOP]
    counts = header[first + 1] == "count"  # of people: whole
    shown = []
    for name, value, error in (row[first : first + 3] for row in largest):
        unit = 10.0 if counts else float(error)
        said = (readable(float(number), unit) for number in (value, error))
        shown.append(f"{shortened(name, 16)} {' ± '.join(said)}")
    return ", ".join(shown)
