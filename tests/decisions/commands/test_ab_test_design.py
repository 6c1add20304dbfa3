"""`beam-ldp ab-test design`: goldens of the table, the plan's file, refusals, and the picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from beam_ldp.decisions import ExperimentPlan, design_experiment
from beam_ldp.decisions.views import draw_plan, plot_people
from beam_ldp.pipelines.cli import group

pytestmark = pytest.mark.e2e

ASKED = ("--null=0.10", "--effect=0.01", "--local-epsilon=2", "--alpha=0.01", "--power=0.9")


def run(*flags: str, asked: tuple[str, ...] = ASKED) -> Result:
    return CliRunner().invoke(group, ["ab-test", "design", *asked, *flags])


def test_a_sample_against_a_known_rate() -> None:
    done = run("--arms=1")
    assert done.exit_code == 0, done.output
    for figure in ("35,767", "7,162", "0.0748", "12,198", "8,101"):
        assert figure in done.output


def test_two_arms_and_the_file_of_the_plan(tmp_path: Path) -> None:
    file = tmp_path / "test.json"
    done = run(f"--output={file}", "--format=json")
    told = json.loads(done.stdout)
    assert told["people"] == 143_714 and told["arms"] == {"control": 71_857, "variant": 71_857}
    assert told["people_without_noise"] == 49_322
    assert told["central_epsilon"] == pytest.approx(0.0519, abs=5e-5)
    plan = ExperimentPlan.from_json(json.loads(file.read_text("utf-8")))
    assert plan.digest == told["plan"]["digest"] and plan.people == 143_714
    table = run()
    assert "71,857" in table.output and "Fisher" in table.output


def test_a_design_is_never_overwritten_by_another(tmp_path: Path) -> None:
    file = tmp_path / "test.json"
    assert run(f"--output={file}", "--arms=1").exit_code == 0
    before = file.read_bytes()
    assert run(f"--output={file}", "--arms=1").exit_code == 0  # the same design: nothing changes
    other = run(f"--output={file}", "--arms=1", "--sided=two")
    assert other.exit_code == 2 and "never overwritten" in other.output
    assert file.read_bytes() == before
    lost = run("--output=/nowhere/test.json", "--arms=1")
    assert lost.exit_code == 2 and "cannot be written" in lost.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--arms=0",), "--arms must be 1 to 100"),
        (("--arms=a,a",), "arms must be different names"),
        (("--shares=1",), "shares must be one for each arm"),
        (("--shares=x",), "--shares must be some numbers between commas, got x"),
        (("--value-range=1",), "--value-range must be 2 numbers between commas, got 1"),
        (("--alpha=2",), "alpha must lie in (0, 1)"),
        (("--effect=0",), "effect must be a finite number other than 0"),
        (("--looks=1e3",), "looks must be an integer from 1 to 100"),
    ],
)
def test_what_does_not_fit_is_named(flags: tuple[str, ...], said: str) -> None:
    done = run(*flags)
    assert done.exit_code == 2 and said in done.output


def test_what_the_table_says_of_other_designs() -> None:
    quick = ("--null=0.2", "--effect=-0.1", "--local-epsilon=2")
    assert "reports are zero" in run("--arms=1", asked=quick).output
    assert "both sides" in run("--arms=1", "--sided=two", asked=quick).output
    several = run("--arms=now,[red],green", asked=quick).output
    assert "Holm" in several and "[red]" in several
    assert "3 looks" in run("--looks=3", "--spending=pocock", asked=quick).output
    numbers = ("--null=10", "--effect=5", "--value-range=0,50", "--local-epsilon=2")
    same = ("--null=0.2", "--effect=0.1", "--local-epsilon=2")
    people = [
        json.loads(run("--format=json", asked=one).stdout)["people"] for one in (numbers, same)
    ]
    assert people[0] == people[1]


@pytest.mark.parametrize("arms", [("everybody",), ("control", "variant")])
def test_the_picture_has_the_plan_on_its_curve(arms: tuple[str, ...]) -> None:
    plan = design_experiment(
        local_epsilon=2, null=0.2, effect=0.1, alpha=0.05, power=0.8, arms=arms
    )
    (axes,) = draw_plan(plan).axes
    private, free, least, dot = (line.get_xydata() for line in axes.lines)
    assert (free[:, 0] < private[:, 0]).all() and (least[:, 0] < private[:, 0]).all()
    assert dot[0].tolist() == [plan.people, pytest.approx(0.1)]
    middle = private[len(private) // 2]  # the effect of the plan, by the normal approximation
    assert middle[1] == pytest.approx(0.1, rel=0.15)
    assert middle[0] * middle[1] ** 2 == pytest.approx(plan.people * 0.01, rel=0.2)
    assert plot_people(plan)[:4] == b"\x89PNG"


def test_a_picture_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    quick = ("--null=0.2", "--effect=0.1", "--local-epsilon=2")
    assert run(f"--plot={tmp_path}/people.png", asked=quick).exit_code == 0
    lost = run("--plot=/nowhere/people.png", asked=quick)
    assert lost.exit_code == 2 and "--plot /nowhere/people.png" in lost.output
