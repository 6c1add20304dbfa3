"""`beam-ldp plan convergence`: the table, JSON, the picture, refusals."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from beam_ldp.pipelines.cli import group
from beam_ldp.planning.convergence import Cohorts, ConvexProblem, plan_convergence

pytestmark = pytest.mark.e2e

SIZES = ["--clients", "5000", "--clients-per-round", "200", "--dimension", "20"]
BUDGET = ["--epsilon", "0.5", "--delta", "1e-6"]
ROUNDS = ["--rounds", "1", "--rounds", "100", "--rounds", "3000"]
FLAGS = [*SIZES, *BUDGET, *ROUNDS, "--norm", "l1"]


def said(*flags: str, code: int = 0) -> str:
    result = CliRunner().invoke(group, ["plan", "convergence", *flags])
    assert result.exit_code == code, result.output
    return result.output


def test_the_table_and_the_picture(tmp_path):
    picture = tmp_path / "convergence.png"
    told = said(*FLAGS, "--plot", str(picture))
    assert "20 parameters, gradients of l1 norm at most 1, a set of diameter 2" in told
    rows = [line.split() for line in told.splitlines() if line.strip()[:1].isdigit()]
    rounds = [row[0] for row in rows if row[0] in ("1", "100", "3,000")]
    assert rounds == ["1", "100", "3,000"] and "no bound" in told
    assert "still falls with more rounds" in told
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_too_few_rounds_are_told_what_it_takes():
    told = " ".join(said(*SIZES, *BUDGET, "--rounds", "1").split())
    assert "no bound in any of these rows: it takes more rounds, clients or epsilon" in told


def test_json_has_what_the_library_finds():
    told = json.loads(said(*FLAGS, "--format", "json"))
    problem, cohorts = ConvexProblem(20, "l1"), Cohorts(5000, 200)
    found = plan_convergence(problem, cohorts, 0.5, 1e-6, (1, 100, 3000))
    assert [row["gap"] for row in told["rounds"]] == [one.gap for one in found]
    assert told["best"]["rounds"] == 3000 and told["any_gap"] == 2.0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (FLAGS[2:], "--clients is missing"),
        ([*SIZES, *ROUNDS], "--epsilon is missing"),
        ([*FLAGS, "--clients-per-round", "6000"], "--clients-per-round must be an integer from 1"),
        ([*FLAGS, "--points-sampled", "2"], "--points-sampled must be an integer from 1 to 1"),
        ([*FLAGS, "--diameter", "0"], "--diameter must"),
    ],
)
def test_what_is_missing_or_wrong_is_said(flags, message):
    result = CliRunner().invoke(group, ["plan", "convergence", *flags])
    assert result.exit_code == 2 and message in result.output
