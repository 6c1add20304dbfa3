"""`beam-ldp privacy`: the table of methods and the four unknowns."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from beam_ldp.accounting.schedule import Schedule
from beam_ldp.accounting.schedule_prices import schedule_epsilon
from beam_ldp.pipelines.cli import group
from beam_ldp.research.published.methods import solve_schedule
from beam_ldp.research.published.tables import crowds_along, rounds_along

pytestmark = pytest.mark.exact

TRAINING = "--local-epsilon 2 --expected-users 60000 --sampled 2000 --delta 1e-5"


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
    assert by_method["ternary randomized response"] == pytest.approx(0.608, abs=1e-3)
    assert found["epsilon_class_lower"] == by_method["ternary randomized response"]
    uppers = [row for row in found["methods"] if row["kind"] == "upper" and row["epsilon"]]
    ranked = [row["epsilon"] for row in uppers]
    assert ranked == sorted(ranked) and ranked[0] == found["epsilon"]
    assert all(row["status"] == "proved" for row in uppers)
    assert all(row["reader"] == "readers who cannot see who took part" for row in uppers)
    assert all(row["seen_epsilon"] > row["epsilon"] for row in uppers[:9])
    assert found["busiest"] == {"rounds": 299, "num_reports": 2000}


def test_one_full_shuffle_is_the_direct_price():
    found = prices("--local-epsilon 4 --expected-users 100000 --delta 1e-6")
    assert found["epsilon"] == pytest.approx(0.16977, rel=1e-4)
    assert found["reader"] == "every reader of the shuffled reports"
    assert found["busiest"] is None
    assert not any(row["seen_epsilon"] for row in found["methods"])


def test_a_mechanism_is_priced_by_its_own_pair():
    flags = "--local-epsilon 4 --expected-users 100000 --delta 1e-6 --mechanism KRandomizedResponse"
    found = prices(f"{flags} --domain-size 1000")
    assert found["epsilon"] == pytest.approx(0.0243, abs=1e-4)
    assert found["method"] == "own pair, privacy losses"
    assert found["epsilon_lower"] <= found["epsilon"] < found["epsilon_class_lower"]
    assert found["mechanism"]["mechanism"] == "KRandomizedResponse"
    text = run(f"{flags} --domain-size 1000")
    assert "this mechanism cannot have less than 0.024" in text
    assert "nothing below 0.117 can be proved" in " ".join(text.split())


def test_several_messages_per_person_are_priced_by_their_columns():
    found = prices(
        "--local-epsilon 4 --expected-users 1e5 --delta 1e-6 --mechanism LInfMean --dimension 8"
    )
    own = next(row for row in found["methods"] if row["method"] == "own messages")
    assert found["method"] == "own messages" and own["epsilon"] == found["epsilon"]
    refused = next(row for row in found["methods"] if row["method"] == "own pair, privacy losses")
    assert refused["epsilon"] is None and refused["refused"] == "needs one message per person"


def test_conjectures_are_priced_only_when_asked_for():
    flags = "--local-epsilon 2 --expected-users 1e4 --delta 1e-6"
    plain = {row["status"] for row in prices(flags)["methods"]}
    asked = prices(f"{flags} --conjectured")["methods"]
    assert plain == {"proved", "approximation"}
    strong = next(row for row in asked if row["method"] == "strong clone pair, privacy losses")
    assert strong["status"] == "conjectured"
    assert strong["epsilon"] < next(r for r in asked if r["status"] == "proved")["epsilon"]


def test_table_says_what_holds_for_whom():
    text = " ".join(run(f"{TRAINING} --rounds 100").split())
    assert "every randomizer" in text and "against readers who cannot see who took part" in text
    assert "against readers who see who took part, for data used in" in text
    assert "Not applicable here" in text and "needs local epsilon <= 0.5" in text


def test_releases_of_one_person_are_priced_at_both_levels():
    """Fresh noise each time adds up; `test_two_times_cost_one_epsilon...` enumerates it."""
    one = "--local-epsilon 1.5 --expected-users 1e5 --delta 1e-6"
    found = prices(f"{one} --rounds 4")
    assert found["local_epsilon_event_level"] == 1.5 and found["local_epsilon_user_level"] == 6
    text = " ".join(run(f"{one} --rounds 4").split())
    assert "local epsilon 1.5 for each report (event level) and 6 for all" in text
    assert "event level" not in run(one)


def test_points_of_a_person_are_drawn_too():
    one = prices("--local-epsilon 2 --expected-users 6000 --sampled 200 --rounds 10 --delta 1e-6")
    ten = prices(
        "--local-epsilon 2 --expected-users 6000 --sampled 200 --rounds 10 --delta 1e-6 "
        "--points-per-client 10"
    )
    assert 0.05 * one["epsilon"] < ten["epsilon"] < 0.2 * one["epsilon"]
    assert ten["epsilon_class_lower"] < ten["epsilon"]


def test_a_plot_is_drawn_where_it_was_asked_for(tmp_path):
    picture = tmp_path / "price.png"
    flags = "--local-epsilon 2 --expected-users 1e4 --rounds 3 --delta 1e-6"
    assert str(picture) in run(f"{flags} --plot {picture}").replace("\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000
    assert "No such file" in run(f"{flags} --plot {tmp_path}/none/p.png", code=2)


def test_a_plot_covers_what_was_asked_for():
    training = Schedule(2.0, 60_000, 2_000, 6_000)
    rounds = [s.rounds for s in rounds_along(training)]
    assert rounds[0] == 1 and rounds[-1] == 6_000 and rounds == sorted(set(rounds))
    crowds = crowds_along(Schedule(2.0, 10**6, 10**5, 1))
    assert (crowds[0].num_users, crowds[-1].num_users) == (10, 10**6)
    assert all(s.rate == pytest.approx(0.1, rel=0.5) for s in crowds)
    assert [s.num_users for s in crowds_along(Schedule(1.0, 7, 7, 1))] == [7]


@pytest.mark.parametrize(
    ("arguments", "unknown", "grows"),
    [
        ("--expected-users 1e5 --rounds 5 --delta 1e-6", "local-epsilon", True),
        ("--expected-users 1e5 --local-epsilon 2 --delta 1e-6", "rounds", True),
        ("--rounds 5 --local-epsilon 2 --delta 1e-6", "users", False),
        ("--rounds 20 --local-epsilon 4 --expected-users 1e5 --delta 1e-6", "sampled", True),
    ],
)
def test_the_unknown_meets_the_target_and_no_more(arguments, unknown, grows):
    found = prices(f"{arguments} --epsilon 0.4 --solve {unknown}")
    assert found["epsilon"] <= 0.4
    schedule = Schedule(
        found["local_epsilon"], found["num_users"], found["num_sampled"], found["rounds"]
    )
    factor = 1.02 if grows else 1 / 1.02
    if unknown == "users":
        people = int(schedule.num_users * factor)
        beyond = replace(schedule, num_users=people, num_sampled=people)
    else:
        name = {"local-epsilon": "local_epsilon", "sampled": "num_sampled"}.get(unknown, unknown)
        more = getattr(schedule, name) * factor
        beyond = replace(schedule, **{name: more if unknown == "local-epsilon" else int(more) + 1})
    assert schedule_epsilon(beyond, 1e-6) > 0.4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--expected-users 100 --delta 1e-6", "--local-epsilon is missing"),
        ("--local-epsilon 1 --delta 1e-6", "--expected-users is missing"),
        ("--local-epsilon 1 --expected-users 100 --delta 2", "--delta must lie in (0, 1)"),
        ("--local-epsilon 1 --expected-users 100 --delta 1e-6 --solve rounds", "go together"),
        (
            "--local-epsilon 1 --expected-users 100 --sampled 200 --delta 1e-6",
            "--sampled must be at most",
        ),
        ("--local-epsilon -1 --expected-users 100 --delta 1e-6", "local_epsilon must lie in"),
        ("--local-epsilon 40 --expected-users 100 --delta 1e-6", "local_epsilon must lie in"),
        (
            "--local-epsilon 1 --expected-users 100 --delta 1e-6 --points-sampled 2",
            "points_sampled must be",
        ),
        (
            "--local-epsilon 1 --expected-users 100 --delta 1e-6 --domain-size 2",
            "go with --mechanism",
        ),
        (
            "--local-epsilon 1 --expected-users 100 --delta 1e-6 --mechanism Rapor",
            "did you mean Rappor?",
        ),
        (
            "--local-epsilon 1 --expected-users 100 --delta 1e-6 --mechanism Rappor",
            "needs --domain-size",
        ),
        (
            "--local-epsilon 1 --expected-users 100 --delta 1e-6 --mechanism PrivUnit "
            "--domain-size 3",
            "needs --dimension",
        ),
        (
            "--local-epsilon 2 --expected-users 100 --delta 1e-6 --epsilon 0.001 --solve rounds",
            "is exceeded even at 1",
        ),
    ],
)
def test_bad_requests_say_what_to_do(arguments, message):
    assert message in " ".join(run(arguments, code=2).split())


def test_solver_returns_the_end_that_fits_whole():
    assert solve_schedule(5.0, 1e-6, lambda e: Schedule(e, 10**6, 10**6, 1), 0.1, 2.0) == 2.0
