"""`beam-ldp ab-test run`: a verdict by its plan, and what a pair of runs does."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that
from rich.console import Console
from scipy import stats

from beam_ldp.decisions import ArmCounts, ExperimentPlan, decide, design_experiment
from beam_ldp.decisions.ab_test_run import PROGRAM, place
from beam_ldp.decisions.outcomes import Outcomes
from beam_ldp.decisions.usage import RUN
from beam_ldp.decisions.views import OutcomeView
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release import runner
from beam_ldp.settings import Noise, People, Shuffling
from beam_ldp.transforms import PrivateEstimate
from beam_ldp.wording import number

pytestmark = pytest.mark.e2e

PEOPLE = 400  # of each arm
BAD = ["901,control,maybe", "902,control,2", "903,teal,1", "904,,1", "905,red,"]


def written(folder: Path, plan: ExperimentPlan, name: str = "test.json") -> Path:
    path = folder / name
    path.write_text(json.dumps({**plan.to_json(), "digest": plan.digest}))
    return path


def visits(folder: Path, name: str = "visits.csv", first: int = 0, rate: float = 0.7) -> Path:
    """Three in ten of the control buy, and `rate` of the variant."""
    lines = ["uid,arm,bought"]
    for arm, share in (("control", 0.3), ("red", rate)):
        for i in range(PEOPLE):
            bought = i < share * PEOPLE
            said = ("true" if bought else "FALSE") if i % 2 else str(int(bought))
            lines.append(f"{first + i}-{arm},{arm},{said}")
    (folder / name).write_text("\n".join([*lines, *BAD]) + "\n")
    return folder / name


def two_arms(**more: Any) -> ExperimentPlan:
    asked: dict[str, Any] = dict(null=0.3, effect=0.4, local_epsilon=2, arms=("control", "red"))
    return design_experiment(**{**asked, "alpha": 0.05, "power": 0.9, **more})


def test_no_name_of_an_arm_is_cut_in_a_terminal_of_80_columns() -> None:
    arms = ("Kennedy", "Newark-Liberty", "x" * 30)
    plan = two_arms(arms=arms)
    told = decide(plan, {arm: ArmCounts(5000, 1500 + 100 * i) for i, arm in enumerate(arms)})
    stream = io.StringIO()
    answer = SimpleNamespace(verdict=told, plan=plan)
    Console(file=stream, width=80).print(OutcomeView._comparisons(answer))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "Newark-Liberty" in stream.getvalue() and stream.getvalue().count("x") == 30
    assert lines[0].endswith("\u2513")


class Desk:
    """A folder with people, a plan, a key and a ledger."""

    def __init__(self, folder: Path, plan: ExperimentPlan) -> None:
        self.folder, self.plan = folder, plan
        self.design, self.input = written(folder, plan), visits(folder)
        (folder / "key").write_bytes(bytes(range(32)))
        (folder / "key").chmod(0o600)
        self.url = f"sqlite:///{folder}/privacy.db"
        BudgetLedger.create(self.url).set_budget("them", epsilon=30.0, delta=1e-6)

    def flags(self, output: str, *more: str, arm: bool = True) -> list[str]:
        named = {flag.split("=")[0] for flag in more}
        usual = [
            f"--input={self.input}", "--user-id=uid", "--outcome=bought",
            f"--design={self.design}", "--no-mlflow", "--dataset=them", f"--ledger={self.url}",
            *(["--arm=arm"] if arm else []), f"--output={self.folder / output}",
        ]  # fmt: skip
        if {"--no-ledger", "--seed"} & named:
            named.add("--ledger")
        return [*(flag for flag in usual if flag.split("=")[0] not in named), *more]

    def run(self, output: str, *more: str) -> tuple[int, runner.RunResult | None, str]:
        said = io.StringIO()
        code, found = programs.run_flags(
            PROGRAM, self.flags(output, *more), Console(file=said, width=400)
        )
        return code, found, said.getvalue()

    def told(self, output: str, name: str) -> dict[str, Any]:
        return dict(json.loads((self.folder / output / name).read_text()))

    @property
    def spent(self) -> float:
        return float(BudgetLedger(self.url).status("them").spent)


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, runner.RunResult, str]:
    """A desk after its first verdict, of memoized noise."""
    desk = Desk(tmp_path_factory.mktemp("ab"), two_arms())
    code, found, said = desk.run("first", f"--memoize-key-file={desk.folder}/key")
    assert code == programs.DONE and found is not None, said
    return desk, found, said


def test_the_verdict_is_that_of_the_counts(decided: tuple[Desk, runner.RunResult, str]) -> None:
    desk, found, said = decided
    told = desk.told("first", "verdict.json")
    counts = {arm: ArmCounts(one["people"], one["ones"]) for arm, one in told["counts"][0].items()}
    assert {arm: count.people for arm, count in counts.items()} == {"control": 400, "red": 400}
    verdict = decide(desk.plan, counts)
    assert told["comparisons"][0]["p_value"] == verdict.comparisons[0].p_value
    assert told["decision"] == verdict.decision == "effect"
    assert 0.4 - 0.25 < told["comparisons"][0]["effect"] < 0.4 + 0.25  # 4.6 standard errors
    assert "effect: 800 people" in said and "red" in said
    rows = pa.csv.read_csv(desk.folder / "first" / "estimates.csv").to_pylist()
    assert [row["arm"] for row in rows] == ["control", "red"]
    for row in rows:
        expected = desk.plan.channel.share(counts[row["arm"]].ones / 400)
        assert row["rate"] == pytest.approx(expected, abs=1e-12)
        assert row["rate_low"] < row["rate"] < row["rate_high"]


def test_its_record_and_its_statement(decided: tuple[Desk, runner.RunResult, str]) -> None:
    desk, found, _ = decided
    record = desk.told("first", "privacy.json")
    assert record["statistic"] == "experiment" and record["plan"] == desk.plan.digest
    assert record["decision"] == "effect" and record["group_by"] == "arm"
    assert record["num_bad_rows"] == len(BAD)
    assert (
        record["effect_interval_level"] == pytest.approx(0.9) and record["interval_level"] == 0.95
    )
    assert record["release_id"] == f"ab-test-{desk.plan.digest[:16]}"
    assert record["epsilon"] == float(number(desk.plan.central_epsilon(400)))
    statement = (desk.folder / "first" / "privacy.md").read_text()
    for words in (
        "decided: effect, by the plan", "(column `arm`): a change of group is not protected",
        "90 % for the effects, all at once", "drawn at random, and counts in the arm of that row",
    ):  # fmt: skip
        assert words in statement
    reasons = [
        json.loads(line)["reason"]
        for line in (desk.folder / "first.private" / "bad_rows.jsonl").read_text().splitlines()
    ]
    assert sorted(reasons) == sorted(
        ["not a number", "neither 0 nor 1", "group that is not listed", "no group", "null"]
    )
    assert found.view.errors()["decided"] == 1.0


def test_the_same_reports_are_decided_the_same(decided: tuple[Desk, runner.RunResult, str]) -> None:
    desk, _, _ = decided
    spent = desk.spent
    code, _, said = desk.run("again", f"--memoize-key-file={desk.folder}/key")
    assert code == programs.DONE, said
    for name in ("verdict.json", "estimates.csv"):
        same = (desk.folder / "again" / name).read_bytes()
        assert same == (desk.folder / "first" / name).read_bytes()
    assert desk.spent == spent


def test_other_reports_are_not_decided_again(
    decided: tuple[Desk, runner.RunResult, str], tmp_path: Path
) -> None:
    """Fresh noise, the plan under another name, other people: refused, and nothing is charged."""
    desk, _, _ = decided
    spent, before = desk.spent, place(str(desk.design), 1).read_bytes()
    code, _, said = desk.run("fresh")
    assert code == programs.MISUSED and "decided before" in said
    copied = written(tmp_path, desk.plan, "renamed.json")  # beside which nothing was decided
    code, _, said = desk.run("renamed", f"--design={copied}")
    assert code == programs.MISUSED and "already has its charge" in said
    others = visits(tmp_path, first=10_000)
    more = (f"--memoize-key-file={desk.folder}/key", "--no-ledger", f"--input={others}")
    code, _, said = desk.run("others", *more)
    assert code == programs.NOTHING_RELEASED and "on other reports" in said
    assert desk.spent == spent and place(str(desk.design), 1).read_bytes() == before
    assert not {"fresh", "renamed", "others"} & {path.name for path in desk.folder.iterdir()}


def test_a_ledger_knows_a_plan_by_any_name(tmp_path: Path) -> None:
    """Fresh noise twice, the second time beside a copy of the design: charged and decided once."""
    desk = Desk(tmp_path, two_arms())
    assert desk.run("first")[0] == programs.DONE
    spent, copied = desk.spent, written(tmp_path, desk.plan, "renamed.json")
    code, _, said = desk.run("again", f"--design={copied}")
    assert code == programs.MISUSED and "already has its charge" in said
    assert desk.spent == spent and not place(str(copied), 1).exists()
    code, _, said = desk.run("again", f"--design={copied}", "--run-id=b")
    assert code == programs.MISUSED and "--run-id" in said


def test_other_people_are_not_priced_into_a_verdict(tmp_path: Path) -> None:
    """Where other releases are published again with other people, at a price, a verdict is not."""
    desk = Desk(tmp_path, two_arms())
    key, frozen = f"--memoize-key-file={tmp_path}/key", "--frozen-values"
    assert desk.run("first", key)[0] == programs.DONE
    spent, copied = desk.spent, written(tmp_path, desk.plan, "renamed.json")
    others = visits(tmp_path, "others.csv", first=10_000)
    for name, more in (("same", ()), ("others", (f"--input={others}",))):
        code, _, said = desk.run(name, key, frozen, f"--design={copied}", *more)
        if more:
            assert code == programs.NOTHING_RELEASED and "a plan decides once" in said
        else:
            assert code == programs.DONE, said
            assert desk.told("same", "verdict.json") == desk.told("first", "verdict.json")
    assert desk.spent == spent


def test_looks_go_on_from_each_other(tmp_path: Path) -> None:
    desk = Desk(tmp_path, two_arms(effect=0.1, looks=2))
    one_sample = Desk(tmp_path, two_arms(effect=0.1, looks=2))
    assert one_sample.plan == desk.plan
    few = ("--min-reports=100", "--no-ledger")
    code, _, said = desk.run("second", "--look=2", *few)
    assert code == programs.MISUSED and "--look 2 goes on from look 1" in said
    same = visits(tmp_path, "week-1.csv", rate=0.3)
    code, found, said = desk.run("first", f"--input={same}", *few)
    assert code == programs.DONE and found is not None
    assert found.view.as_json()["decision"] == "go on" and "look 1 of 2" in said
    later = visits(tmp_path, "week-2.csv", first=10_000, rate=0.9)
    code, found, said = desk.run("second", "--look=2", f"--input={later}", *few)
    assert code == programs.DONE and found is not None
    told = found.view.as_json()
    looks = [{arm: ArmCounts(c["people"], c["ones"]) for arm, c in one.items()}
             for one in told["counts"]]  # fmt: skip
    assert len(looks) == 2 and told["people"] == 4 * PEOPLE
    assert told["decision"] == decide(desk.plan, *looks).decision == "effect"
    assert found.record.to_json()["release_id"].endswith("-look-2")
    code, _, said = desk.run("third", "--look=3", *few)
    assert code == programs.MISUSED and "--look must be at most 2" in said
    place(str(desk.design), 1).write_text(
        place(str(desk.design), 1).read_text().replace("go on", "effect")
    )
    code, _, said = desk.run("third", "--look=2", f"--memoize-key-file={tmp_path}/key", *few)
    assert code == programs.MISUSED and "the experiment ended at look 1" in said


def test_an_arm_that_is_missing_or_small(tmp_path: Path) -> None:
    """One that all rows of a small file lack is missed before anything is reserved."""
    desk = Desk(tmp_path, two_arms(arms=("control", "red", "blue")))
    code, _, said = desk.run("out", "--min-reports=50")
    assert code == programs.MISUSED and BudgetLedger(desk.url).status("them").charges == ()
    assert "--arm arm: of " in said and "rows none can be used for blue, without" in said
    with desk.input.open("a") as rows:
        rows.write("906,blue,1\n")
    code, _, said = desk.run("out", "--min-reports=50", "--no-ledger")
    assert code == programs.NOTHING_RELEASED
    assert "every arm of the plan needs --min-reports 50; blue has 1" in said
    assert not place(str(desk.design), 1).exists()


def test_one_sample_and_a_simulation(tmp_path: Path) -> None:
    plan = two_arms(arms=("everybody",), effect=0.2)
    desk = Desk(tmp_path, plan)
    code, found, said = desk.run("out", "--seed=1", "--arm=arm")
    assert code == programs.MISUSED and "--arm is for plans of several arms" in said
    flags = [flag for flag in desk.flags("out", "--seed=1") if not flag.startswith("--arm")]
    code, found = programs.run_flags(PROGRAM, flags, Console(quiet=True), shown=False)
    assert code == programs.DONE and found is not None
    assert found.record.simulated and found.record.epsilon is None
    # "teal" and no group are arms that nobody asked for; 806 rows are people with 0 or 1
    told = found.view.as_json()
    assert told["counts"][0]["everybody"]["people"] == 2 * PEOPLE + 2
    assert not place(str(desk.design), 1).exists(), "a simulation decides nothing"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--design=/nowhere.json",), "--design /nowhere.json: cannot be read"),
        (("--outcome=bought", "--outcome=sold"), "--outcome must name one column"),
        (("--look=2",), "--look must be at most 1"),
        (("--arm=bought",), "--arm must name a column that is used for nothing else"),
        (("--local-epsilon=3",), "--local-epsilon"),
        (("--release-id=mine",), "--release-id"),
        (("--delta=1e-3",), "--delta"),
        (("--max-local-epsilon=1",), "1"),
    ],
)
def test_what_is_refused_before_anything_is_read(
    tmp_path: Path, more: tuple[str, ...], said: str
) -> None:
    """What the plan fixed cannot be said otherwise by a flag."""
    desk = Desk(tmp_path, two_arms())
    code, _, told = desk.run("out", *more)
    assert code == programs.MISUSED and said in told, told


def test_a_plan_that_was_changed_by_hand(tmp_path: Path) -> None:
    desk = Desk(tmp_path, two_arms())
    desk.design.write_text(desk.design.read_text().replace('"alpha": 0.05', '"alpha": 0.5'))
    code, _, said = desk.run("out")
    assert code == programs.MISUSED and "a field was changed by hand" in said
    numeric = two_arms(value_range=(0.0, 1.0))
    code, _, said = desk.run("out", f"--design={written(tmp_path, numeric, 'numeric.json')}")
    assert code == programs.MISUSED and "outcomes are 0 or 1 here" in said


def test_it_is_checked_like_every_program(tmp_path: Path) -> None:
    desk = Desk(tmp_path, two_arms())
    found = programs.checks_of("ab_test", read_flags(RUN, desk.flags("out")))
    assert programs.exit_code(found) == 0, [one.said for one in found]
    wrong = read_flags(RUN, desk.flags("out", "--outcome=sold"))
    assert programs.exit_code(programs.checks_of("ab_test", wrong)) == programs.MISUSED


TRIALS = 250


@pytest.mark.statistical
@pytest.mark.parametrize("effect", [0.0, 0.4])
def test_level_and_power_through_beam(effect: float) -> None:
    """As many experiments as arms allow in one job: the plan's level at most, and its power.

    False alarm: 1e-5 for each side, by the binomial law of independent experiments.
    """
    plan = two_arms(alpha=0.2, power=0.6, effect=0.4)
    each = plan.arm_people()["control"]
    arms = [f"{arm}-{i}" for i in range(TRIALS) for arm in ("control", "red")]
    asked = PrivateEstimate(
        plan.randomizer(),
        Outcomes(plan, "bought"),
        people=People(group_by="arm", groups=Domain(arms), one_row=True),
        shuffle=Shuffling(min_reports=1),
        noise=Noise(seed=7, dataset="them", id="t"),
    )
    truth = {"control": plan.null, "red": plan.null + effect}
    draw = np.random.default_rng(11)
    rows = [
        {"arm": arm, "bought": int(one)}
        for arm in arms
        for one in draw.random(each) < truth[arm.split("-")[0]]
    ]
    with TestPipeline() as pipeline:
        released = pipeline | beam.Create(rows) | asked
        assert_that(released | beam.Values(), _seen_as_often(plan, each, bool(effect)))


def _seen_as_often(plan: ExperimentPlan, each: int, is_there: bool) -> Callable[[Any], None]:
    def check(releases: list[Any]) -> None:
        counts: dict[str, ArmCounts] = {}
        for release in releases:
            ones = plan.channel.rate(release.estimate.value[1]) * each
            assert abs(ones - round(ones)) < 1e-6 and release.num_reports == each
            counts[release.group] = ArmCounts(each, round(ones))
        seen = 0
        for i in range(TRIALS):
            verdict = decide(plan, {arm: counts[f"{arm}-{i}"] for arm in plan.arms})
            seen += verdict.decision == "effect"
        if not is_there:
            assert seen <= stats.binom.isf(1e-5, TRIALS, plan.alpha)
            return
        power = plan.power_of("red", {"control": each, "red": each})
        assert stats.binom.ppf(1e-5, TRIALS, power) <= seen <= stats.binom.isf(1e-5, TRIALS, power)

    return check
