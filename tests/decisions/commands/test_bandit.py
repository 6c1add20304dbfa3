"""`beam-ldp bandit`: tables and JSON of plans and simulations, files of actions, and refusals."""

import json

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from beam_ldp.decisions.bandit import MODELS
from beam_ldp.decisions.bandit_views import plot
from beam_ldp.decisions.bandits.elimination import BatchSchedule, LinearBandit
from beam_ldp.decisions.bandits.simulating import VARIANTS, simulate
from beam_ldp.pipelines.cli import group

pytestmark = pytest.mark.e2e

PLAN = ["plan", "--horizon=2e4", "--model=local", "--epsilon=4", "--repeat=2"]
SIMULATE = ["simulate", "--horizon=2e4", "--epsilon=1,8,20", "--models=none,local", "--repeat=3"]


def run(*flags: str):
    return CliRunner().invoke(group, ["bandit", *flags])


def told(*flags: str) -> dict:
    answer = run(*flags, "--format=json")
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


@pytest.fixture(scope="module")
def actions(tmp_path_factory):
    """A file of four actions in each format, with a column of names that is no feature."""
    folder = tmp_path_factory.mktemp("actions")
    columns = {"page": ["a", "b", "c", "d"], "x": [1, 0, 0, 0], "y": [0.0, 1.0, -1.0, 0.5]}
    table = pa.Table.from_pydict(columns)
    parquet.write_table(table, folder / "actions.parquet")
    rows = "".join(f"{p},{x},{y}\n" for p, x, y in zip(*columns.values(), strict=True))
    (folder / "actions.csv").write_text("page,x,y\n" + rows)
    return folder


def test_a_plan_says_what_each_batch_costs(actions):
    plan = told(*PLAN, f"--actions={actions}/actions.csv")
    assert (plan["actions"], plan["dimension"], plan["horizon"]) == (4, 2, 20_000)
    assert (plan["model"], plan["epsilon"], plan["amplify_over"]) == ("local", 4.0, None)
    assert [batch["batch"] for batch in plan["batches"]] == list(range(1, 9))
    for batch in plan["batches"]:
        assert sum(batch["counts"]) == batch["people"]
        assert batch["local_epsilon"] == pytest.approx(4.0, abs=1e-7)
        assert batch["local_epsilon"] <= 4.0
    widths = [batch["half_width"] for batch in plan["batches"]]
    assert widths == sorted(widths, reverse=True)
    assert [c["model"] for c in plan["regret"]] == ["none", "central", "shuffled", "local"]


def test_both_formats_of_actions_are_the_same_plan(actions):
    plans = [told(*PLAN, f"--actions={actions}/actions.{end}") for end in ("csv", "parquet")]
    assert plans[0] == plans[1]


def test_shuffled_batches_have_larger_local_epsilons_as_they_grow():
    flags = ["plan", "--actions=circle:3", "--horizon=500", "--repeat=2", "--epsilon=1"]
    by_action = told(*flags)
    assert (by_action["amplify_over"], by_action["delta"]) == ("action", 1e-6)
    locally = [batch["local_epsilon"] for batch in by_action["batches"]]
    assert locally == sorted(locally)
    assert 0.999 < locally[0] < 1.001 < locally[-1]
    by_batch = told(*flags, "--amplify-over=batch")["batches"]
    assert by_batch[-1]["local_epsilon"] > locally[-1]


def test_widths_and_schedules_can_be_chosen(tmp_path):
    """The text's width is for comparisons alone: its noise costs twice what it says."""
    tight = told(*PLAN, "--actions=circle:5")
    safe = told(*PLAN, "--actions=circle:5", "--width=safe")
    assert (tight["width"], safe["width"], tight["rounding"]) == ("tight", "safe", "real")
    for one, other in zip(tight["batches"], safe["batches"], strict=True):
        assert one["people"] == other["people"] and one["half_width"] < other["half_width"]
    ceil = told(*PLAN, "--actions=circle:5", "--rounding=ceil")
    assert (
        BatchSchedule.of(20_000, "ceil").batches == 9 and len(ceil["batches"]) == 8
    )  # 9 do not fit
    assert sum(batch["people"] for batch in ceil["batches"]) <= 20_000
    assert ceil["batches"][7]["people"] < tight["batches"][7]["people"]
    start = ["start", "--actions=circle:5", "--horizon=20000", "--dataset=d"]
    for flags in ([*PLAN, "--actions=circle:5"], [*start, f"--state={tmp_path}/service"]):
        refused = run(*flags, "--width=printed")
        assert refused.exit_code == 2 and "'tight', 'safe'" in refused.output


def test_a_simulation_of_the_widths_of_the_text():
    flags = [*SIMULATE, "--actions=circle:4"]
    of_text = told(*flags, "--width=printed")
    ours = told(*flags, "--width=safe")
    assert (of_text["width"], ours["width"]) == ("printed", "safe")
    assert of_text["curves"] != ours["curves"]


def test_the_table_of_a_plan():
    shown = run(*PLAN, "--actions=circle:5").stdout
    assert "20,000 people, trusted: nobody; each report has local epsilon 4" in shown
    assert "all others get the best action" in shown
    assert "regret at epsilon 4" in shown
    for model, words in (
        ("central", "all that is shown has epsilon 4, delta 0"),
        ("none", "rewards are not protected"),
    ):
        table = run(*PLAN, "--actions=circle:5", f"--model={model}").stdout
        assert words in " ".join(table.split())


def test_a_simulation_writes_a_table_and_a_picture(tmp_path):
    folder = tmp_path / "regret"
    found = told(*SIMULATE, "--actions=circle:4", f"--output={folder}")
    assert json.loads((folder / "regret.json").read_text("utf-8")) == found
    assert (folder / "regret.png").read_bytes()[:4] == b"\x89PNG"
    plain, local = found["curves"]
    assert (plain["model"], plain["epsilon"], len(plain["regret"])) == ("none", None, 1)
    assert (local["model"], local["epsilon"]) == ("local", [1.0, 8.0])  # at most 8 a report
    assert local["regret"][0] > local["regret"][1] > 0
    assert all(c["runs_outside_their_widths"] == 0 for c in found["curves"])
    assert run(*SIMULATE, "--actions=circle:4", f"--output={folder}").exit_code == 2


def test_the_table_of_a_simulation():
    shown = run(*SIMULATE, "--actions=circle:4").stdout
    assert "nobody's data was read" in " ".join(shown.split())
    assert shown.count("local ") == 2


def test_the_same_seed_is_the_same_simulation():
    first, second = (told(*SIMULATE, "--actions=circle:4", "--seed=5") for _ in range(2))
    assert first == second
    assert told(*SIMULATE, "--actions=circle:4", "--seed=6") != first


def test_all_models_have_a_name():
    """And one more has, that is never meant by `all`: it takes minutes where actions are many."""
    assert {*MODELS, "central-all-actions"} == set(VARIANTS)


def test_asking_about_all_actions_equally():
    """Sixty actions at an epsilon of 0.1: the trusted server's noise on sixty sums, not on two."""
    flags = ["simulate", "--actions=circle:60", "--horizon=2e4", "--epsilon=0.1", "--repeat=3"]
    found = told(*flags, "--models=central,central-all-actions")
    few, every = (curve["regret"][0] for curve in found["curves"])
    assert every > 1.5 * few


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["plan", "--actions=circle:1", "--horizon=100"], "circle:K needs K from 2 to 200000"),
        (["plan", "--actions=none.csv", "--horizon=100"], "cannot be read (FileNotFoundError)"),
        (["plan", "--actions=circle:3", "--horizon=10"], "horizon must be an integer from 16"),
        (["plan", "--actions=circle:3", "--horizon=100", "--model=local", "--epsilon=9"],
         "epsilon must be at most max_local_epsilon (8)"),
        ([*SIMULATE[:2], "--actions=circle:3", "--epsilon=0"], "--epsilon must be numbers > 0"),
        ([*SIMULATE[:2], "--actions=circle:3", "--epsilon=a"], "--epsilon must be numbers > 0"),
        ([*SIMULATE[:2], "--actions=circle:3", "--models=best"], "variants must be of none"),
    ],
)  # fmt: skip
def test_refusals(flags, message):
    answer = run(*flags)
    assert answer.exit_code == 2
    assert message in " ".join(answer.output.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("page,x,y\na,1,1\nb,0,1\n", "rows of length 1 at most"),
        ("page\na\nb\n", "needs columns of numbers"),
        ("x\n1\n", "from 2 to 200000 rows"),
    ],
)
def test_files_that_hold_no_actions(tmp_path, text, message):
    path = tmp_path / "actions.csv"
    path.write_text(text)
    answer = run("plan", f"--actions={path}", "--horizon=100")
    assert answer.exit_code == 2
    assert message in " ".join(answer.output.split())


def test_one_epsilon_is_drawn_as_bars() -> None:
    bandit = LinearBandit(actions=np.eye(2), horizon=2000, model="local", epsilon=4.0)
    curves = simulate(bandit, [4.0], ("none", "local-laplace"), repeat=3, seed=1)
    _, axes = plot(bandit, curves).axes
    assert [bar.get_height() for bar in axes.patches] == [float(curve.mean[0]) for curve in curves]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["none", "local\nlaplace"]
    assert axes.get_ylabel() == "regret at epsilon 4"


def test_regret_grows_with_people_up_to_that_of_all():
    found = told(*SIMULATE, "--actions=circle:4")
    assert found["people"][0] == 2 and found["people"][-1] == 20_000
    for curve in found["curves"]:
        for path, end in zip(curve["over_people"]["regret"], curve["regret"], strict=True):
            assert path == sorted(path) and path[-1] == end
    last = [path[-1] for path in found["curves"][1]["over_people"]["standard_error"]]
    assert last == found["curves"][1]["standard_error"]


def test_curves_are_a_run_of_mlflow(tmp_path):
    """Its metrics are the printed figures, by people; its artifacts the files of the output."""
    mlflow = pytest.importorskip("mlflow")
    store = f"sqlite:///{tmp_path}/mlflow.db"
    folder = tmp_path / "regret"
    found = told(*SIMULATE, "--actions=circle:4", f"--mlflow-uri={store}", f"--output={folder}")
    client = mlflow.MlflowClient(store)
    run = client.get_run(found["mlflow_run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.params["horizon"] == "20000"
    plain, local = found["curves"]
    for key, curve, place in (
        ("regret/none", plain, 0),
        ("regret/local/epsilon 1", local, 0),
        ("regret/local/epsilon 8", local, 1),
    ):
        history = client.get_metric_history(found["mlflow_run_id"], key)
        assert [point.step for point in history] == found["people"]
        assert [point.value for point in history] == curve["over_people"]["regret"][place]
    for name in ("regret.json", "regret.png"):
        artifact = client.download_artifacts(found["mlflow_run_id"], f"privacy/{name}")
        with open(artifact, "rb") as file:
            assert file.read() == (folder / name).read_bytes()


def test_a_store_that_is_away_costs_the_log_alone(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    answer = run(*SIMULATE, "--actions=circle:4", "--format=json")
    assert answer.exit_code == 0
    assert json.loads(answer.stdout)["mlflow_run_id"] is None
    assert "not all was logged to MLflow" in answer.stderr


def test_both_axes_of_a_picture_hold_every_model():
    bandit = LinearBandit(actions=np.eye(2), horizon=2000, model="local")
    curves = simulate(bandit, [0.5, 2.0, 20.0], ("none", "central", "local"), repeat=3)
    over_people, against_epsilon = plot(bandit, curves).axes
    assert over_people.get_ylabel() == "regret so far, at epsilon 0.5"  # as near to 1 as 2 is
    assert [text.get_text() for text in over_people.get_legend().get_texts()] == [
        "none", "central", "local",
    ]  # fmt: skip
    lines = {line.get_label(): line for line in against_epsilon.lines}
    assert list(lines["central"].get_xdata()) == [0.5, 2.0, 20.0]
    assert list(lines["local"].get_xdata()) == [0.5, 2.0]
    ends = [line.get_ydata()[-1] for line in over_people.lines]
    assert ends == [float(curve.mean[0]) for curve in curves]
