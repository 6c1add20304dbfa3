"""What plans and statements say of people who lie: the mechanism's own reach, in the same words."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from beam_ldp.pipelines.cli import group
from beam_ldp.questions.forging import forged_cell, forged_moves, forged_said, mechanism_of
from beam_ldp.randomizers import LocalRandomizer
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import LInfMean, PrivUnit
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion
from beam_ldp.release.statement import statement
from tests.release.test_statement import RECORD, replace

pytestmark = pytest.mark.exact


def test_shares_of_the_people_and_of_the_reach() -> None:
    oracle = KRandomizedResponse(266, 4.0)
    moves = forged_moves(oracle, 100_000)
    assert moves is not None and list(moves) == ["0.001", "0.01", "0.05"]
    assert moves["0.01"] == pytest.approx(1_000 * oracle.reach)
    assert forged_said(oracle, 100_000) == (
        "liars who are 0.1 %, 1 % or 5 % of all move the count of a value by up to 594, 5,944 or "
        "29,721 people"
    )
    assert forged_said(oracle).endswith("0.594, 5.94 or 29.7 % of the people")
    assert forged_cell(moves) == "5,944"


def test_means_are_moved_in_their_own_unit() -> None:
    mechanism = PrivUnit(16, 4.0, radius=3.0)
    moves = forged_moves(mechanism, 100)
    assert moves is not None and moves["0.05"] == pytest.approx(0.05 * mechanism.reach)
    assert "move the mean by up to" in forged_said(mechanism, unit="(half ranges)")
    assert forged_said(mechanism, unit="(half ranges)").endswith("(half ranges)")


def test_liars_who_answer_one_of_two_questions_count_twice() -> None:
    both = (KRandomizedResponse(3, 1.0), KRandomizedResponse(5, 1.0))
    farthest = max(one.reach for one in both)
    assert EveryQuestion(both).reach == farthest and OneQuestion(both).reach == 2 * farthest
    honest = 90 * both[1].channel()[:, 2] / 2  # of each question: half of the honest people
    forged = honest + 10.0 * (both[1].channel_reports() == 0)
    expected = both[1].frequencies(honest, 45)
    moved = both[1].frequencies(forged, 55) - expected
    assert 0 < moved.max() < 0.1 * OneQuestion(both).reach


def test_what_is_not_known_is_not_said() -> None:
    assert mechanism_of({"protocol": "heavy-hitters"}) is None and forged_said(None) == ""
    printed = LInfMean(3, 2.0, preset="thesis")
    assert forged_moves(printed, 10) is None and forged_cell(None) == "?"
    assert "liars" not in statement(replace(RECORD, mechanism={"mechanism": "?"}).told())


def test_the_statement_says_it() -> None:
    mechanism = {**RECORD.mechanism, "local_epsilon": 4.0}
    said = statement(replace(RECORD, mechanism=mechanism).told())
    assert (
        forged_said(mechanism_of(mechanism)) in said
        and "no interval covers people who send what they like" in said
    )


@pytest.mark.parametrize("task", [["frequency", "--domain-size", "9"], ["mean", "--dimension=3"]])
def test_every_row_of_a_plan_has_it(task: list[str]) -> None:
    flags = ["--expected-users=1000", "--epsilon=1", "--delta=1e-6"]
    runner = CliRunner()
    found = json.loads(runner.invoke(group, ["plan", *task, *flags, "--format=json"]).output)
    people = 1000 if task[0] == "frequency" else 1
    for row in found["plans"]:
        if not row["excluded"]:
            reach = LocalRandomizer.from_config(row["mechanism"]).reach
            assert row["forged"]["0.01"] == pytest.approx(0.01 * people * reach)
    shown = runner.invoke(group, ["plan", *task, *flags], terminal_width=80).output
    assert "lie" in shown and "if people lie" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
