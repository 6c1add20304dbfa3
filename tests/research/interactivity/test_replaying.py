"""Logs replayed through likelihood filters: the filter itself, person by person, is the judge."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.research.interactivity import replaying
from beam_ldp.research.interactivity.auditing import InteractivityReport, audit_logs
from beam_ldp.research.interactivity.descents import level_kernel
from beam_ldp.research.interactivity.kernels import (
    LikelihoodFilter,
    joint_epsilon,
    kernel_epsilon,
)
from beam_ldp.research.interactivity.replaying import epsilon_of_plans, replay_logs

pytestmark = pytest.mark.exact

KERNELS = {
    "a": [[0.6, 0.4], [0.4, 0.6], [0.5, 0.5]],
    "b": [[0.5, 0.3, 0.2], [0.4, 0.35, 0.25], [0.45, 0.25, 0.3]],
    "c": [[0.5, 0.5], [0.5, 0.5], [0.7, 0.3]],
}


def write(path: Path, asked: list[tuple[int, str, int]], **more: Any) -> Path:
    """A log of questions in this order: person, randomizer, answer."""
    rows = [
        {"seq": i, "user": user, "randomizer": name, "round": i, "epsilon": 2.0, "output": answer,
         **more}
        for i, (user, name, answer) in enumerate(asked)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


queries = st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.integers(0, 1))


@given(st.lists(queries, min_size=1, max_size=12), st.floats(0.2, 1.5))
def test_it_is_the_filter_of_each_person(
    tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[int, str, int]], budget: float
) -> None:
    over, most = set(), 0.0
    for person in {user for user, _, _ in asked}:
        tight, loose = LikelihoodFilter(3, budget), LikelihoodFilter(3, 100.0)
        for _, name, answer in (one for one in asked if one[0] == person):
            tight.logs = loose.logs
            if not tight.fits(KERNELS[name]):
                over.add(person)
            loose.answered(KERNELS[name], answer)
            most = max(most, loose.spent)
    path = write(tmp_path_factory.getbasetemp() / "log", asked)
    found = replay_logs([path], KERNELS, budget)
    assert found is not None and found.over == len(over)
    assert found.most == pytest.approx(most, abs=1e-12)


def test_a_descent_costs_one_epsilon_in_all(tmp_path: Path) -> None:
    """Everybody at every level: four epsilons by addition, one by likelihoods, at every promise."""
    kernels = {f"level {i}": level_kernel(4, i, 1.0).tolist() for i in range(4)}
    epsilon = kernel_epsilon(np.array(kernels["level 0"]))
    asked = [(user, name, (user + i) % 2) for i, name in enumerate(kernels) for user in range(8)]
    log = write(tmp_path / "log", asked)
    rows = [json.loads(line) | {"epsilon": epsilon} for line in log.read_text().splitlines()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    report = audit_logs([tmp_path / "log.parquet"], 1.0, kernels=kernels)
    assert report.clean and report.max_epsilon == pytest.approx(4)
    assert {one.name: one.count for one in report.findings} == {"over budget in sum": 8}
    assert report.replay is not None and 0 < report.replay.most <= 1 + 1e-9
    less = audit_logs([tmp_path / "log.parquet"], 0.99, kernels=kernels)
    assert [one.name for one in less.findings] == ["over budget"] and not less.clean
    assert less.to_json()["num_over_budget"] == 8
    without = audit_logs([tmp_path / "log.parquet"], 1.0)
    assert not without.clean and without.replay is None


def coin(size: int, told: int, epsilon: float) -> list[list[float]]:
    """One datum answers by randomized response, all others by a fair coin."""
    kernel = np.full((size, 2), 0.5)
    kernel[told] = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    return kernel.tolist()


def test_a_plan_costs_what_its_questions_tell_together(tmp_path: Path) -> None:
    """Example 2.2: four coins of one epsilon in all, whatever the answers, and 2.4805 in sum."""
    kernels = {f"coin {i}": coin(4, i, 1.0) for i in range(4)}
    each = kernel_epsilon(np.array(kernels["coin 0"]))
    asked = [(user, f"coin {i}", "kept secret") for user in range(3) for i in range(4)]
    log = write(tmp_path / "log", asked, epsilon=each)
    plan = write(tmp_path / "plan", asked, epsilon=each)

    def audited(epsilon: float, *logs: Path) -> InteractivityReport:
        return audit_logs(logs or [log], epsilon, plan=[plan], kernels=kernels)

    report = audited(1.0)
    assert report.plan_epsilon == pytest.approx(1.0, abs=1e-12) and report.replay is None
    assert report.clean and report.k_plan == pytest.approx(2.4805, abs=5e-5)
    assert {one.name: one.count for one in report.findings} == {"over budget in sum": 3}
    less = audited(0.99)
    assert not less.clean and less.to_json()["num_over_budget"] == 3
    drawn = write(tmp_path / "drawn", [(u, n, "another") for u, n, _ in asked], epsilon=each)
    anew = {one.name: one.count for one in audited(1.0, log, drawn).findings}
    assert anew == {"over budget": 3, "re-randomized on retry": 12}  # two answers to each question
    beyond = write(tmp_path / "beyond", [*asked, (1, "coin 0", "again")], epsilon=each)
    assert {one.name for one in audited(1.0, beyond).findings} == {"over budget", "not in the plan"}


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc")), min_size=1, max_size=9))
def test_a_plan_costs_what_enumeration_says(
    tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[int, str]]
) -> None:
    plan = write(tmp_path_factory.getbasetemp() / "plan", [(u, n, 0) for u, n in asked])
    own = [[KERNELS[n] for u, n in asked if u == user] for user in {u for u, _ in asked}]
    expected = max(map(joint_epsilon, own))
    assert epsilon_of_plans([plan, plan], KERNELS) == pytest.approx(expected, abs=1e-12)
    assert epsilon_of_plans([plan], {**KERNELS, asked[0][1]: [[1.0, 0.0]]}) is None


def test_a_retry_moves_nobody(tmp_path: Path) -> None:
    twice = [(0, "a", 0), (0, "a", 0)]
    one_round = write(tmp_path / "log", twice)
    rows = [json.loads(line) | {"round": 0} for line in one_round.read_text().splitlines()]
    one_round.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = replay_logs([one_round], KERNELS, 0.5)
    again = replay_logs([write(tmp_path / "two", twice)], KERNELS, 0.5)
    assert found is not None and again is not None
    assert (found.over, again.over) == (0, 1)
    assert found.most == pytest.approx(math.log(1.5)) and again.most == 2 * found.most


@pytest.mark.parametrize(
    "asked, kernels",
    [
        ([(0, "a", 0), (0, "z", 0)], KERNELS),
        ([(0, "a", 2)], KERNELS),
        ([(0, "a", -1)], KERNELS),
        ([(0, "a", "x")], KERNELS),
        ([(0, "a", None)], KERNELS),
        ([(0, "a", True)], KERNELS),
        ([(0, "a", 0)], {"a": [[1.0, 0.0], [0.5, 0.5]]}),
        ([(0, "a", 0), (0, "d", 0)], {**KERNELS, "d": [[0.5, 0.5], [0.4, 0.6]]}),
    ],
)
def test_where_no_filter_can_run_sums_decide(
    tmp_path: Path, asked: list[Any], kernels: dict[str, Any]
) -> None:
    log = write(tmp_path / "log", asked)
    assert replay_logs([log], kernels, 9.0) is None
    report = audit_logs([log], 1.0, kernels=kernels)
    assert report.replay is None and not report.clean


def test_several_runs_and_deltas_are_not_replayed(tmp_path: Path) -> None:
    one = write(tmp_path / "one", [(0, "a", 0)], run="monday")
    two = write(tmp_path / "two", [(0, "c", 0)], run="tuesday")
    for paths, told in (([one, two], {}), ([one], {"delta": 1e-9})):
        assert audit_logs(paths, 3.0, kernels=KERNELS, **told).replay is None  # type: ignore[arg-type]
    assert audit_logs([one], 3.0, kernels=KERNELS).replay is not None


def test_large_logs_are_not_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write(tmp_path / "log", [(i, "a", 0) for i in range(3)])
    assert replay_logs([log], KERNELS, 1.0) is not None
    monkeypatch.setattr(replaying, "MOST_RECORDS", 2)
    assert replay_logs([log], KERNELS, 1.0) is None
    assert replay_logs([log, log], KERNELS, 1.0) is None
