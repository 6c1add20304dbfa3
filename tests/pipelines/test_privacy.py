"""`beam-ldp privacy`: the table of methods and the four unknowns."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from beam_ldp.accounting.comparison import Schedule, compare, solve_schedule
from beam_ldp.pipelines.cli import group

pytestmark = pytest.mark.exact

TRAINING = "--local-epsilon 2 --users 60000 --sampled 2000 --delta 1e-5"


def run(arguments: str, code: int = 0):
    result = CliRunner().invoke(group, ["privacy", *arguments.split()])
    assert result.exit_code == code, result.output
    return result.output


def prices(arguments: str) -> dict:
    return json.loads(run(f"{arguments} --format json"))


def test_training_run_by_every_method():
    found = prices(f"{TRAINING} --rounds 6000")
    by_method = {row["method"]: row["epsilon"] for row in found["methods"]}
    assert found["epsilon"] == pytest.approx(0.882, abs=1e-3)
    assert by_method["thesis, Theorem 5.4.1"] == pytest.approx(5.795, abs=1e-3)
    assert by_method["some randomizer costs at least"] == pytest.approx(0.608, abs=1e-3)
    uppers = [row["epsilon"] for row in found["methods"] if row["kind"] == "upper"]
    assert uppers == sorted(uppers) and uppers[0] == found["epsilon"]
    seen = next(row for row in found["methods"] if row["kind"] == "seen")
    assert seen["epsilon"] > 5 * found["epsilon"]


def test_one_full_shuffle_is_the_direct_price():
    found = prices("--local-epsilon 4 --users 100000 --delta 1e-6")
    assert found["epsilon"] == pytest.approx(0.16977, rel=1e-4)
    assert not any(row["kind"] == "seen" for row in found["methods"])


def test_table_says_what_holds_for_whom():
    text = run(f"{TRAINING} --rounds 100")
    assert "every randomizer" in text and "readers who see who" in text and "floor" in text


@pytest.mark.parametrize(
    ("arguments", "unknown", "grows"),
    [
        ("--users 1e5 --rounds 5 --delta 1e-6", "local-epsilon", True),
        ("--users 1e5 --local-epsilon 2 --delta 1e-6", "rounds", True),
        ("--rounds 5 --local-epsilon 2 --delta 1e-6", "users", False),
    ],
)
def test_the_unknown_meets_the_target_and_no_more(arguments, unknown, grows):
    found = prices(f"{arguments} --target-epsilon 0.4 --solve {unknown}")
    assert found["epsilon"] <= 0.4
    schedule = Schedule(
        found["local_epsilon"], found["num_users"], found["num_sampled"], found["rounds"]
    )
    factor = 1.02 if grows else 1 / 1.02
    beyond = {
        "local-epsilon": Schedule(schedule.local_epsilon * factor, *_rest(schedule)),
        "rounds": Schedule(*_first(schedule), int(schedule.rounds * factor) + 1),
        "users": Schedule(
            schedule.local_epsilon,
            int(schedule.num_users * factor),
            int(schedule.num_users * factor),
            schedule.rounds,
        ),
    }[unknown]
    assert min(p.epsilon for p in compare(beyond, 1e-6) if p.kind == "upper") > 0.4


def _rest(schedule: Schedule) -> tuple[int, int, int]:
    return schedule.num_users, schedule.num_sampled, schedule.rounds


def _first(schedule: Schedule) -> tuple[float, int, int]:
    return schedule.local_epsilon, schedule.num_users, schedule.num_sampled


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--users 100 --delta 1e-6", "--local-epsilon is missing"),
        ("--local-epsilon 1 --delta 1e-6", "--users is missing"),
        ("--local-epsilon 1 --users 100 --delta 2", "--delta must lie in (0, 1)"),
        ("--local-epsilon 1 --users 100 --delta 1e-6 --solve rounds", "go together"),
        ("--local-epsilon 1 --users 100 --sampled 200 --delta 1e-6", "--sampled must be at most"),
        ("--local-epsilon -1 --users 100 --delta 1e-6", "--local-epsilon must lie in"),
        ("--local-epsilon 40 --users 100 --delta 1e-6", "--local-epsilon must lie in"),
        (
            "--local-epsilon 2 --users 100 --delta 1e-6 --target-epsilon 0.001 --solve rounds",
            "is exceeded even at 1",
        ),
    ],
)
def test_bad_requests_say_what_to_do(arguments, message):
    assert message in " ".join(run(arguments, code=2).split())


def test_solver_returns_the_end_that_fits_whole():
    assert solve_schedule(5.0, 1e-6, lambda e: Schedule(e, 10**6, 10**6, 1), 0.1, 2.0) == 2.0


def test_busiest_person_takes_part_more_often_than_the_average():
    schedule = Schedule(2.0, 60_000, 2_000, 6_000)
    assert 240 < schedule.most_rounds_of_a_person < 320
    assert Schedule(2.0, 100, 100, 7).most_rounds_of_a_person == 7
