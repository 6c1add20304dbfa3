"""What people see of the plan of a convex training: rounds, budget, step, bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from beam_ldp.planning.convergence import (
    LARGEST_LOCAL_EPSILON,
    ROUNDS,
    Cohorts,
    Convergence,
    ConvexProblem,
    best,
    plan_convergence,
)
from beam_ldp.questions.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    TRUTH,
    figure_with,
    logarithmic,
    png,
)
from beam_ldp.release.terminal import printed_json
from beam_ldp.wording import number

_HEIGHT = 5.0  # inches
_BESIDE = (0.25, 1.0, 4.0)  # budgets of the picture, in that of the plan


@dataclass(frozen=True)
class Question:
    """What was asked for."""

    problem: ConvexProblem
    cohorts: Cohorts
    epsilon: float
    delta: float
    rounds: tuple[int, ...]
    max_local_epsilon: float

    @classmethod
    def of(cls, told: Mapping[str, Any], privacy: Mapping[str, Any]) -> Question:
        """Of settings. Raises ValueError."""
        of_problem = {k: told[k] for k in ("norm", "lipschitz", "diameter") if k in told}
        of_cohorts = {k: told[k] for k in ("points_sampled", "sampling") if k in told}
        return cls(
            ConvexProblem(told["dimension"], **of_problem),
            Cohorts(
                told["clients"],
                told["clients_per_round"],
                points=told.get("points_per_client", 1),
                **of_cohorts,
            ),
            privacy["epsilon"],
            privacy["delta"],
            tuple(told.get("rounds") or ROUNDS),
            privacy.get("max_local_epsilon", LARGEST_LOCAL_EPSILON),
        )

    def found(self, epsilon: float | None = None) -> list[Convergence]:
        """The plan, of this budget or another one. Raises ValueError."""
        budget = self.epsilon if epsilon is None else epsilon
        return plan_convergence(
            self.problem, self.cohorts, budget, self.delta, self.rounds, self.max_local_epsilon
        )

    def say(self, found: Sequence[Convergence], as_json: bool) -> None:
        """Print it for people or programs."""
        closest = best(found)
        if as_json:
            rows = [asdict(one) for one in found]
            told = {"rounds": rows, "best": asdict(closest), "any_gap": self.problem.any_gap}
            print(printed_json({"schema_version": 1, **told}))
            return
        console, problem = Console(), self.problem
        table = Table(box=None, padding=(0, 2, 0, 0), title_justify="left")
        table.title = (
            f"{problem.dimension:,} parameters, gradients of {problem.norm} norm at most "
            f"{problem.lipschitz:g}, a set of diameter {problem.diameter:g}"
        )
        for name in ("rounds", "local epsilon", "epsilon", "first step", "noise", "bits", "gap <="):
            table.add_column(name, justify="right", no_wrap=True)
        for one in found:
            cells = (
                f"{one.rounds:,}", number(one.local_epsilon), number(one.epsilon),
                f"{one.first_step:.3g}", f"{one.noise_share:.0%}", f"{one.bits:,.0f}",
                f"{one.gap:.3g}" if one.gap < problem.any_gap else "no bound",
            )  # fmt: skip
            table.add_row(*cells, style="bold" if one is closest else "")
        console.print(table)
        console.print(
            "gap: how far the expected loss after the last round is above the least one, at most; "
            f"no point of the set is further above it than {problem.any_gap:g}\nfirst step: that "
            "of round t is this one over the root of t\nnoise: its share in the second moment of a "
            "step\nbits: what a client sends in all rounds, on average",
            style="dim", highlight=False,
        )  # fmt: skip
        if closest.gap >= problem.any_gap:
            console.print("no bound in any of these rows: it takes more rounds, clients or epsilon")
        elif closest is max(found, key=lambda one: one.rounds):
            console.print("the bound still falls with more rounds (--rounds)")

    def draw(self, file: str, found: Sequence[Convergence]) -> None:
        """The bound against rounds, at three budgets, as a PNG."""
        subtitle = (
            f"{self.cohorts.clients_per_round:,} of {self.cohorts.clients:,} clients per round, "
            f"{self.problem.dimension:,} parameters ({self.problem.norm}), delta {self.delta:g}"
        )
        figure = figure_with("How close a convex training is sure to come", subtitle, _HEIGHT)
        axes = figure.add_axes((0.1, BELOW / _HEIGHT, 0.87, 1 - (ABOVE + BELOW) / _HEIGHT))
        for share, style in zip(_BESIDE, (":", "-", "--")):
            budget = share * self.epsilon
            rows = found if share == 1 else self.found(budget)
            rows = sorted(rows, key=lambda one: one.rounds)
            axes.plot(
                [one.rounds for one in rows], [one.gap for one in rows], style, color=ESTIMATE,
                linewidth=2, label=f"central epsilon {budget:g}",
            )  # fmt: skip
            closest = best(rows)
            axes.plot([closest.rounds], [closest.gap], "o", color=TRUTH if share == 1 else GREY)
        axes.axhline(self.problem.any_gap, color=GREY, linewidth=1, label="any point of the set")
        logarithmic(axes, "rounds", "gap at most")
        Path(file).write_bytes(png(figure))
