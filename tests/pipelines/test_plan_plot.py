"""`beam-ldp plan ... --plot`: what is drawn, read from the figure and not from pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.views.frontier import TALL, Spot, draw_spots
from beam_ldp.pipelines.views.plans import FACTORS, HEIGHT, Curve, colours, curves, draw
from beam_ldp.planning import plan_frequencies, plan_means

pytestmark = pytest.mark.exact


@dataclass
class Fake:
    mechanism: str
    error: float
    excluded: str = ""


def fakes(budget: float) -> list[Fake]:
    """`Late` may be used from a budget of 2 on, `Never` not at all; the best comes first."""
    plans = [Fake("Good", 1 / budget), Fake("Poor", 7 / budget)]
    plans.append(Fake("Late", 3 / budget, "" if budget >= 2 else "too many bits"))
    return [*plans, Fake("Never", math.inf, "does not exist")]


def lines(figure) -> dict[str, np.ndarray]:
    (axes,) = figure.axes
    return {line.get_label(): line.get_xydata() for line in axes.lines}


def texts(figure) -> list[str]:
    (axes,) = figure.axes
    return [text.get_text() for text in axes.texts]


def test_curves_hold_every_usable_mechanism_at_every_budget() -> None:
    found = curves(fakes, 2.0, lambda plan: plan.error)
    assert [curve.mechanism for curve in found] == ["Good", "Poor", "Late"]
    good, _, late = found
    assert good.budgets == tuple(2.0 * factor for factor in FACTORS) and 2.0 in good.budgets
    assert good.errors == tuple(1 / budget for budget in good.budgets)
    for budget, error in zip(late.budgets, late.errors, strict=True):
        assert math.isnan(error) == (budget < 2)
        assert budget < 2 or error == 3 / budget


def test_of_several_rows_of_a_mechanism_the_best_is_drawn_once() -> None:
    found = curves(lambda b: [Fake("A", 1 / b), Fake("B", 2 / b), Fake("A", 3 / b)], 1.0,
                   lambda plan: plan.error)  # fmt: skip
    assert [curve.mechanism for curve in found] == ["A", "B"]
    assert found[0].errors[FACTORS.index(1.0)] == 1.0


def test_the_figure_shows_the_curves_and_marks_the_point() -> None:
    found = curves(fakes, 2.0, lambda plan: plan.error)
    figure = draw(found, 2.0, "fakes", "epsilon", "error")
    drawn = lines(figure)
    for curve in found:
        np.testing.assert_array_equal(drawn[curve.mechanism].T, [curve.budgets, curve.errors])
    np.testing.assert_array_equal(drawn["your plan"], [[2.0, 0.5]])
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epsilon", "error")
    assert "Good: 0.5 at 2" in texts(figure) and {"Good", "Poor", "Late"} <= set(texts(figure))


def test_the_foot_of_a_picture_of_means_has_every_row_twice() -> None:
    """By bits and by local epsilon; hollow where the shuffler must be trusted, infinite ones at the
    edge, with a mark."""
    curve = Curve("Good", (1.0, 2.0), (3.0, 1.0))
    figure = draw([curve], 1.0, "", "", "", TALL)
    spots = [Spot("Good", 3.0, 40, 8.0), Spot("Other", 1.0, 900, math.inf)]
    draw_spots(figure, spots, colours(["Good", "Other"]), HEIGHT + TALL, "error")
    top, bits, local = figure.axes
    assert top.get_position().y0 > bits.get_position().y1
    dots = [[tuple(line.get_xydata()[0]) for line in axes.lines] for axes in (bits, local)]
    assert dots[0] == [(40, 3.0), (900, 1.0)] and dots[1] == [(8.0, 3.0), (32.0, 1.0)]
    for axes in (bits, local):
        first, second = axes.lines
        assert first.get_markerfacecolor() == first.get_color() == colours(["Good"])["Good"]
        assert second.get_markerfacecolor() == "white" != second.get_color()
    assert [text.get_text() for text in local.texts] == ["∞"] and not bits.texts


@pytest.mark.parametrize("low", [1.0, 1e-4])
def test_names_at_the_ends_do_not_overlap(low: float) -> None:
    """Crowded in the middle; and against the top, where one name lies far below."""

    def equal(budget: float) -> list[Fake]:
        crowded = [Fake(f"M{i}", 1 / budget + 1e-6 * i) for i in range(13)]
        return [*crowded, Fake("Mlow", low / budget)]

    figure = draw(curves(equal, 1.0, lambda plan: plan.error), 1.0, "", "", "")
    (axes,) = figure.axes
    places = sorted(
        text.xyann[1] for text in axes.texts if text.get_text().startswith("M") and
        ":" not in text.get_text()
    )  # fmt: skip
    assert len(places) == 14 and min(np.diff(places)) >= 0.05 - 1e-9
    assert places[0] > -0.15 and places[-1] <= 1.0 + 1e-9


def test_no_dot_where_nothing_fits_the_budget_itself() -> None:
    def later(budget: float) -> list[Fake]:
        return [Fake("Late", 3 / budget, "" if budget >= 2 else "too many bits")]

    found = curves(later, 1.0, lambda plan: plan.error)
    assert "your plan" not in lines(draw(found, 1.0, "", "", ""))


def test_real_plans_fall_with_the_budget_and_agree_with_the_table() -> None:
    def plans_at(budget: float):
        return plan_frequencies(1000, 5, local_epsilon=budget, delta=None)

    found = curves(plans_at, 1.0, lambda plan: plan.standard_error)
    assert len(found) == 10
    at = {plan.mechanism: plan.standard_error for plan in plans_at(1.0)}
    for curve in found:
        assert curve.errors[FACTORS.index(1.0)] == at[curve.mechanism]
        assert all(np.diff(curve.errors) < 0)


def run(tmp_path: Path, *flags: str, code: int = 0) -> str:
    shown = CliRunner().invoke(group, ["plan", *flags], prog_name="beam-ldp")
    assert shown.exit_code == code, shown.output
    return shown.output


FREQUENCY = ["frequency", "--expected-users", "1e3", "--domain-size", "4", "--delta", "1e-6"]
MEAN = ["mean", "--expected-users", "1e4", "--dimension", "2", "--model", "local", "--epsilon", "2"]


@pytest.mark.parametrize("flags", [[*FREQUENCY, "--local-epsilon", "1"], MEAN])
def test_the_command_writes_a_picture_beside_its_table(flags: list[str], tmp_path: Path) -> None:
    picture = tmp_path / "plan.png"
    shown = run(tmp_path, *flags, "--plot", str(picture))
    assert "mechanism" in shown and str(picture) in shown.replace("\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000


def test_mistakes_are_named(tmp_path: Path) -> None:
    flags = [*FREQUENCY, "--local-epsilon", "1"]
    assert "No such file" in run(tmp_path, *flags, "--plot", f"{tmp_path}/none/p.png", code=2)
    nothing = run(tmp_path, *flags, "--max-bits", "0.5", "--plot", f"{tmp_path}/p.png", code=2)
    assert "--max-bits" in nothing


def test_plot_of_means_draws_the_error_of_the_whole_vector(monkeypatch, tmp_path: Path) -> None:
    """What the command hands to the figure: the plans of its own flags."""
    seen = {}

    def remember(drawn, budget, what, across, upward, foot):
        seen.update(drawn=drawn, budget=budget, what=what, across=across)
        return draw(drawn, budget, what, across, upward, foot)

    monkeypatch.setattr("beam_ldp.pipelines.views.plans.draw", remember)
    run(tmp_path, *MEAN, "--plot", f"{tmp_path}/p.png")
    assert seen["budget"] == 2.0 and seen["across"] == "local epsilon"
    best = plan_means(10_000, 2, epsilon=2.0, model="local")[0]
    first = seen["drawn"][0]
    assert first.mechanism == best.mechanism
    assert first.errors[FACTORS.index(1.0)] == best.rms_error
