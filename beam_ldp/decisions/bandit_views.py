"""What people see of bandits: the batches of a plan, regret against epsilon, and a service."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.decisions.bandits.elimination import Batch, LinearBandit
from beam_ldp.decisions.bandits.simulating import Floats, RegretCurve, simulate
from beam_ldp.questions.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    TRUTH,
    bare,
    figure_with,
    shortened,
)
from beam_ldp.wording import number

if TYPE_CHECKING:
    from pathlib import Path

    from beam_ldp.decisions.bandits.progress import BatchTerms
    from beam_ldp.decisions.service import ServiceFolder

SCHEMA_VERSION = 1
_HEIGHT = 5.0  # inches
_COMPARED = ("none", "central", "shuffled", "local")
_STYLES = {
    "none": (GREY, "-"), "central": ("#2a7f62", "-"), "central-all-actions": ("#2a7f62", "--"),
    "shuffled": (ESTIMATE, "-"),
    "shuffled-batch": (ESTIMATE, ":"), "shuffled-laplace": (ESTIMATE, "--"),
    "local": (TRUTH, "-"), "local-laplace": (TRUTH, "--"),
}  # fmt: skip
_TRUSTED = {
    "none": "no privacy", "central": "the server, who adds noise to sums",
    "shuffled": "whoever permutes the reports", "local": "nobody",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Forecast:
    """A plan: batches of a run that drops no action, and simulated regret of several models."""

    bandit: LinearBandit
    batches: tuple[Batch, ...]
    curves: tuple[RegretCurve, ...]

    @classmethod
    def of(cls, bandit: LinearBandit, *, repeat: int, seed: int) -> Forecast:
        """Of this bandit, beside the other models at the same epsilon."""
        everything, asked = np.arange(len(bandit.actions)), 0
        batches: list[Batch] = []
        while (batch := bandit.batch(len(batches) + 1, everything, asked)) is not None:
            batches.append(batch)
            asked += batch.people
        curves = simulate(bandit, [bandit.epsilon], _COMPARED, repeat=repeat, seed=seed)
        return cls(bandit, tuple(batches), tuple(curves))

    def local_epsilon(self, batch: Batch) -> float | None:
        """Of each report; None where rewards are sent as they are."""
        return batch.noise.log_ratio_max() if batch.noise.kind in ("bit", "laplace") else None


def plan_json(forecast: Forecast) -> dict[str, Any]:
    """What is printed of a plan for programs."""
    bandit = forecast.bandit
    batches = [
        {
            "batch": batch.number,
            "people": batch.people,
            "actions": [int(action) for action in batch.played],
            "counts": [int(count) for count in batch.counts],
            "local_epsilon": forecast.local_epsilon(batch),
            "half_width": batch.width,
        }
        for batch in forecast.batches
    ]
    return {
        "schema_version": SCHEMA_VERSION, **_common(bandit), "model": bandit.model,
        "epsilon": None if bandit.model == "none" else bandit.epsilon,
        "amplify_over": bandit.amplify_over if bandit.model == "shuffled" else None,
        "batches": batches, "regret": [_curve_json(curve) for curve in forecast.curves],
    }  # fmt: skip


def curves_json(bandit: LinearBandit, curves: list[RegretCurve]) -> dict[str, Any]:
    """What is printed and written of a simulation for programs."""
    told = []
    for curve in curves:
        mean, error = curve.over_people
        path = {"regret": mean.tolist(), "standard_error": error.tolist()}
        told.append({**_curve_json(curve), "over_people": path})
    people = curves[0].people.tolist()
    return {
        "schema_version": SCHEMA_VERSION, **_common(bandit), "people": people, "curves": told,
    }  # fmt: skip


def curves_metrics(curves: Sequence[RegretCurve]) -> Iterator[tuple[int, dict[str, float]]]:
    """What MLflow draws: for each number of people, the regret so far of each model."""
    for step, people in enumerate(curves[0].people):
        found = {}
        for curve in curves:
            mean, error = curve.over_people
            for place, epsilon in enumerate(curve.epsilons):
                private = "" if curve.variant == "none" else f"/epsilon {epsilon:g}"
                found[f"regret/{curve.variant}{private}"] = float(mean[place, step])
                found[f"standard error/{curve.variant}{private}"] = float(error[place, step])
        yield int(people), found


def _common(bandit: LinearBandit) -> dict[str, Any]:
    return {
        "actions": len(bandit.actions), "dimension": bandit.actions.shape[1],
        "horizon": bandit.horizon, "delta": bandit.delta, "width": bandit.width,
        "rounding": bandit.rounding,
    }  # fmt: skip


def _curve_json(curve: RegretCurve) -> dict[str, Any]:
    return {
        "model": curve.variant,
        "epsilon": None if curve.variant == "none" else list(curve.epsilons),
        "regret": curve.mean.tolist(),
        "standard_error": curve.standard_error.tolist(),
        "runs": curve.regrets.shape[1],
        "runs_outside_their_widths": curve.missed,
    }


def show_plan(forecast: Forecast) -> None:
    """The tables that `bandit plan` prints."""
    bandit, console = forecast.bandit, Console()
    trusted = _TRUSTED[bandit.model]
    console.print(f"[bold]{bandit.horizon:,} people[/bold], trusted: {trusted}; {_promise(bandit)}")
    table = _columns("batch", "people", "actions played", "local epsilon", "drops gaps above")
    for batch in forecast.batches:
        local = forecast.local_epsilon(batch)
        table.add_row(
            f"{batch.number}", f"{batch.people:,}", f"{len(batch.played)}",
            "-" if local is None else f"{local:.3f}",
            f"{4 * batch.width:.3g}" if batch.width < 0.5 else "none yet",
        )  # fmt: skip
    console.print(table)
    asked = sum(batch.people for batch in forecast.batches)
    console.print(f"{asked:,} people are asked at most; all others get the best action\n")
    _print_curves(console, forecast.curves, f"regret at epsilon {bandit.epsilon:g}")


def _promise(bandit: LinearBandit) -> str:
    if bandit.model == "none":
        return "rewards are not protected"
    if bandit.model == "local":
        return f"each report has local epsilon {bandit.epsilon:g}"
    if bandit.model == "central":
        return f"all that is shown has epsilon {bandit.epsilon:g}, delta 0"
    hidden = "people of one action" if bandit.amplify_over == "action" else "all of a batch"
    return f"epsilon {bandit.epsilon:g} at delta {bandit.delta:g}, hidden among {hidden}"


def show_curves(bandit: LinearBandit, curves: list[RegretCurve]) -> None:
    """The table that `bandit simulate` prints."""
    console = Console()
    console.print(
        f"[bold]regret of simulated runs[/bold], {bandit.horizon:,} people, "
        f"{curves[0].regrets.shape[1]} runs each; nobody's data was read"
    )
    _print_curves(console, tuple(curves), "regret")


def _print_curves(console: Console, curves: tuple[RegretCurve, ...], heading: str) -> None:
    table = _columns("model", "epsilon", heading, "standard error")
    for curve in curves:
        for epsilon, mean, error in zip(
            curve.epsilons, curve.mean, curve.standard_error, strict=True
        ):
            shown = "-" if curve.variant == "none" else f"{epsilon:g}"
            table.add_row(curve.variant, shown, f"{mean:,.0f}", f"{error:,.0f}")
    console.print(table)


def _columns(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def plot(bandit: LinearBandit, curves: list[RegretCurve]) -> Any:
    """Mean regret as people come at one epsilon, and at the end against epsilon or by model."""
    runs = curves[0].regrets.shape[1]
    said = (
        f"{len(bandit.actions)} actions, {bandit.horizon:,} people, delta {bandit.delta:g}; means "
        f"of {runs} simulated runs with two standard errors"
    )
    figure = figure_with("What privacy costs in regret", said, _HEIGHT)
    inside = (BELOW / _HEIGHT, 0.39, 1 - (ABOVE + BELOW) / _HEIGHT)
    every = sorted({epsilon for curve in curves for epsilon in curve.epsilons})
    draw_people(figure.add_axes((0.09, *inside)), curves, min(every, key=_from_one))
    axes = figure.add_axes((0.59, *inside))
    if len(every) == 1:
        _draw_bars(axes, curves, every[0])
    else:
        draw_epsilons(axes, curves, every)
    return figure


def _from_one(epsilon: float) -> float:
    return abs(math.log(epsilon))


def draw_people(axes: Any, curves: Sequence[RegretCurve], epsilon: float) -> None:
    """A line for each model at one epsilon, with its band: the regret so far, as people come."""
    for curve in curves:
        if curve.variant == "none" or epsilon in curve.epsilons:
            place = 0 if curve.variant == "none" else curve.epsilons.index(epsilon)
            mean, error = (values[place] for values in curve.over_people)
            _draw_band(axes, curve, curve.people, mean, error)
    axes.set_xlabel("people so far", color=GREY)
    axes.set_ylabel(f"regret so far, at epsilon {epsilon:g}", color=GREY)
    _finish(axes)
    axes.legend(frameon=False, fontsize=8)


def draw_epsilons(axes: Any, curves: Sequence[RegretCurve], every: list[float]) -> None:
    """A line for each model, with its band: the regret of all people against epsilon."""
    for curve in curves:
        at, mean, error = list(curve.epsilons), curve.mean, curve.standard_error
        if curve.variant == "none":  # one value for all epsilons
            at, mean, error = every, mean.repeat(len(every)), error.repeat(len(every))
        _draw_band(axes, curve, at, mean, error, marker=".")
    axes.set_xlabel("epsilon; of the local models of each report", color=GREY)
    axes.set_ylabel("regret of all people", color=GREY)
    _finish(axes)
    axes.set_xticks(every, [f"{epsilon:g}" for epsilon in every])
    axes.xaxis.set_minor_formatter(lambda value, _: "")


def _draw_band(
    axes: Any, curve: RegretCurve, at: Any, mean: Floats, error: Floats, marker: str = ""
) -> None:
    colour, style = _STYLES[curve.variant]
    thin = {"linewidth": 1, "zorder": 3} if curve.variant == "none" else {"linewidth": 2}
    axes.plot(at, mean, style, color=colour, label=curve.variant, marker=marker, **thin)
    low = np.maximum(mean - 2 * error, mean / 10)
    axes.fill_between(at, low, mean + 2 * error, color=colour, alpha=0.12, linewidth=0)


def _finish(axes: Any) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _on_grid(axes)


def _draw_bars(axes: Any, curves: list[RegretCurve], epsilon: float) -> None:
    """Models side by side, at one epsilon."""
    means = [float(curve.mean[0]) for curve in curves]
    errors = [2 * float(curve.standard_error[0]) for curve in curves]
    names = [curve.variant for curve in curves]
    said = [name.replace("-", "\n") for name in names]
    colours = [_STYLES[name][0] for name in names]
    axes.bar(said, means, yerr=errors, color=colours, alpha=0.8, width=0.6, ecolor=GREY)
    axes.set_ylabel(f"regret at epsilon {epsilon:g}", color=GREY)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(axis="x", labelsize=7)
    _on_grid(axes, "y")


def _on_grid(axes: Any, which: Literal["both", "y"] = "both") -> None:
    axes.grid(axis=which, color=GRID)
    axes.set_axisbelow(True)
    bare(axes, "top", "right")


# A bandit that serves people, as its folder says: what is known, and what to do next --------------


def say_service(service: ServiceFolder, form: str, first: str = "") -> None:
    """What is known and what comes next, on stdout.

    Args:
        service: as it stands.
        form: "table" or "json".
        first: what is said before it.
    """
    if form == "json":
        from beam_ldp.release.terminal import printed_json

        print(printed_json({**service.state(), **({"said": first} if first else {})}))
        return
    console = Console()
    if first:
        console.print(first, highlight=False)
    if service.progress.decided:
        console.print(_decided(service))
        shown = service.released(service.progress.decided[-1].batch.number)
        console.print(
            f"  {escape(str(shown))}  [dim]what was released of the last one[/dim]", soft_wrap=True
        )
    for line in _next(service):
        console.print(line, soft_wrap=True, highlight=False)


def _decided(service: ServiceFolder) -> Table:
    terms = service.terms
    table = Table(title=f"Bandit {escape(terms.name)}", title_justify="left", header_style="bold")
    for heading in ("batch", "people", "local epsilon", "within", "may be best"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("best")
    for one in service.progress.decided:
        best = terms.names[one.batch.active[one.estimates.argmax()]]
        table.add_row(
            str(one.batch.number),
            f"{one.batch.people:,}",
            "none" if terms.trusts_the_server else number(one.batch.noise.epsilon),
            f"± {one.batch.width:.4f}",
            f"{len(one.survivors):,} of {len(terms.names):,}",
            escape(shortened(best)),
        )
    return table


def _next(service: ServiceFolder) -> list[str]:
    asked, horizon = service.asked, service.terms.bandit.horizon
    left = max(0, horizon - service.progress.asked)
    if asked is None:
        return [
            f"[bold]{escape(service.best)}[/bold] is shown to the other {left:,} people: no batch "
            "is open, and they are asked for nothing"
        ]
    actions = ", ".join(escape(shortened(name)) for name in asked.actions[:6])
    more = f" and {len(asked.actions) - 6} more" if len(asked.actions) > 6 else ""
    slots = service.slots_file(asked)
    return [
        f"[bold]Batch {asked.number}[/bold] asks {asked.batch.people:,} people about "
        f"{actions}{more}; {_promised(asked)}",
        f"  {escape(str(slots))}  [dim]which visitor in turn gets which play"
        f"{_secret(service, slots)}[/dim]",
        f"[dim]then: beam-ldp bandit advance --state {escape(str(service.path))} --rewards "
        "FILE (columns play, reward, and whose it is)[/dim]",
    ]


def _promised(asked: BatchTerms) -> str:
    if asked.terms.trusts_the_server:
        return (
            f"sums of their rewards have an epsilon of {number(asked.terms.bandit.epsilon)}, and "
            "the server is trusted with the rewards"
        )
    return f"each report has a local epsilon of {number(asked.local_epsilon)}"


def _secret(service: ServiceFolder, slots: Path) -> str:
    if slots.parent == service.path:
        return ""
    return ": secret, for whoever assigns; keep no log of who had which"
