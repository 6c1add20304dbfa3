"""A stream in sight: its last windows, what is in them, and what all of them cost."""

from __future__ import annotations

import csv
import io
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from beam_ldp.accounting import ShuffleAccountant
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.pipelines.records.statement import number
from beam_ldp.pipelines.streams.results import TABLE, read_folder
from beam_ldp.pipelines.views.pictures import shortened

SHOWN = 12  # windows
TOP = 3  # values of each
ORDERS = [2.0, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]  # few: every release is priced at once


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
        used: windows that were released or withheld: each uses one of the budget.
        released, late, withheld, sums: how many.
        epsilon: central price of all releases for a person who was in all of them; None without any
            and in simulations.
        local_epsilon: what such a person has lost to whoever sees single reports.
    """

    folder: Path
    budget_windows: int
    delta: float
    used: int = 0
    released: int = 0
    late: int = 0
    withheld: int = 0
    sums: int = 0
    epsilon: float | None = None
    local_epsilon: float = 0.0
    _known: set[str] = field(default_factory=set)
    _steps: list[Step] = field(default_factory=list)
    _accountant: ShuffleAccountant = field(default_factory=lambda: ShuffleAccountant(ORDERS))
    _rows: deque[tuple[str, ...]] = field(default_factory=lambda: deque(maxlen=SHOWN))

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
        self.used += not told["late"] and told["min_reports"] > 0
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
            self.used += 1
        if told["event"] is not None:
            self._accountant.compose(event_from_json(told["event"]))
            self.epsilon = float(self._accountant.get_epsilon(self.delta))
            self.local_epsilon += told["local_epsilon"]
        if not told["derived"]:
            self._steps.append(Step(told, self.epsilon, self.local_epsilon))
        price = "" if told["epsilon"] is None else number(told["epsilon"])
        table = (self.folder / name / TABLE).read_text("utf-8")
        self._rows.append((_window(told), f"{told['num_reports']:,}", _top(table), price, kind))

    def render(self) -> Group:
        """What is shown now."""
        table = Table("window (UTC)", "reports", "most frequent", "epsilon", "", expand=False)
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


def _window(told: dict[str, Any]) -> str:
    start, end = told["window_start"], told["window_end"]
    same_day = start[:10] == end[:10]
    return f"{start[:10]} {start[11:-1]}–{end[11:-1] if same_day else end[:-1]}"


def _top(table: str) -> str:
    """The most frequent values with their errors, from a table."""
    rows = sorted(csv.DictReader(io.StringIO(table)), key=lambda row: -float(row["count"]))
    return ", ".join(
        f"{shortened(row['value'], 16)} {float(row['count']):,.0f}"
        f" ± {float(row['count_standard_error']):,.0f}"
        for row in rows[:TOP]
    )
