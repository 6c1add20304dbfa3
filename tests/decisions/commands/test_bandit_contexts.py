"""`beam-ldp bandit --contexts`: files of contexts, plans and simulations of policies."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import csv, parquet

from beam_ldp.decisions.actions import read_policies
from beam_ldp.decisions.bandits.client import choose
from beam_ldp.decisions.bandits.simulating import directions
from beam_ldp.pipelines.cli import group

pytestmark = pytest.mark.e2e

CHANCES = [0.4, 0.3, 0.2, 0.1]
FEATURES = directions(np.random.default_rng(8), 20, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four contexts of five actions in both formats, and 300 draws of the plane."""
    folder = tmp_path_factory.mktemp("contexts")
    pairs = list(itertools.product(range(4), range(5)))
    columns = {
        "context": [f"c{c}" for c, _ in pairs], "note": ["of no use"] * 20,
        "probability": [CHANCES[c] for c, _ in pairs], "action": [f"a{a}" for _, a in pairs],
        "x": FEATURES[:, 0], "y": FEATURES[:, 1], "z": FEATURES[:, 2],
    }  # fmt: skip
    table = pa.Table.from_pydict(columns)
    parquet.write_table(table, folder / "all.parquet")
    csv.write_csv(table, folder / "all.csv")
    angle = np.random.default_rng(1).uniform(0, 2 * np.pi, 300)[:, None] + np.arange(3)
    draws = {
        "context": np.repeat(np.arange(300), 3), "action": np.tile(np.arange(3), 300),
        "x": 0.9 * np.cos(angle).ravel(), "y": 0.9 * np.sin(angle).ravel(),
    }  # fmt: skip
    parquet.write_table(pa.Table.from_pydict(draws), folder / "draws.parquet")
    return folder


def run(*flags: str):
    return CliRunner().invoke(group, ["bandit", *flags])


def told(*flags: str) -> dict:
    answer = run(*flags, "--format=json")
    assert answer.exit_code == 0, answer.output
    return json.loads(answer.stdout)


def test_both_formats_are_the_same_policies(folder):
    first, second = (read_policies(folder / f"all.{end}", 10_000) for end in ("csv", "parquet"))
    assert first.rows.tolist() == second.rows.tolist()
    assert first.features == ("x", "y", "z")
    assert first.found.law.features.tolist() == FEATURES.reshape(4, 5, 3).tolist()
    assert first.found.law.chances.tolist() == CHANCES
    assert first.found.net_gap <= 0.01
    sent = first.table().to_pylist()
    assert [row["policy"] for row in sent] == list(first.names)
    for row, theta in zip(sent, first.found.thetas.tolist(), strict=True):
        assert [row[name] for name in "xyz"] == theta


def test_people_who_are_told_the_table_choose_what_the_rows_say(folder):
    policies = read_policies(folder / "all.csv", 1000)
    own = FEATURES.reshape(4, 5, 3)
    for told_, row in zip(policies.table().to_pylist(), policies.rows, strict=True):
        theta = [told_[name] for name in policies.features]
        chosen = [own[c, choose(theta, own[c].tolist())] for c in range(4)]
        assert np.array(CHANCES) @ chosen == pytest.approx(row)


def test_contexts_with_fewer_actions_do_not_choose_one_that_is_closed(tmp_path):
    path = tmp_path / "some.csv"
    path.write_text("probability,x,context,action\n0.5,0.1,b,only\n0.5,0.3,a,p\n0.5,-0.2,a,q\n")
    policies = read_policies(path, 100)
    assert policies.found.law.features[..., 0].tolist() == [[0.1, 0.1], [0.3, -0.2]]
    rows = {round(row, 12) for row in policies.rows[:, 0].tolist()}
    assert rows == {0.2, -0.05}  # (0.1 + 0.3)/2 and (0.1 - 0.2)/2


def test_a_plan_over_policies(folder):
    flags = ["plan", f"--contexts={folder}/all.csv", "--horizon=2000", "--model=local",
             "--epsilon=4", "--repeat=2"]  # fmt: skip
    plan = told(*flags)
    contexts = plan["contexts"]
    assert (contexts["law"], contexts["contexts"], contexts["choices"]) == ("finite", 4, 5)
    assert contexts["policies"] == plan["actions"] > 20
    assert contexts["features"] == ["x", "y", "z"]
    assert (contexts["row_error"], contexts["row_price"]) == (0, 0)
    assert 0 <= contexts["net_price"] == 2000 * contexts["net_gap"] <= 2000**0.5
    shown = " ".join(run(*flags).stdout.split())
    assert f"{plan['actions']} policies over 4 contexts (all)" in shown
    assert "rows are known" not in shown


def test_a_simulation_over_draws_counts_what_rows_are_off_by(folder, tmp_path):
    flags = ["simulate", f"--contexts={folder}/draws.parquet", "--horizon=1000", "--epsilon=4",
             "--models=none", "--repeat=2"]  # fmt: skip
    found = told(*flags, f"--output={tmp_path}/regret")
    contexts = found["contexts"]
    assert (contexts["law"], contexts["contexts"]) == ("sampled", 300)
    rows = np.sqrt(2 * np.log(contexts["policies"] * 1000))
    assert contexts["row_error"] == pytest.approx((1 + rows) / np.sqrt(150))
    assert contexts["row_price"] == 2 * 1000  # so few draws that nothing is known
    assert json.loads((tmp_path / "regret" / "regret.json").read_text("utf-8")) == found
    shown = " ".join(run(*flags).stdout.split())
    assert "rows are known by draws, to 0.44: widths count it" in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("context,action,x\na,p,1\na,p,0\n", "an action must stand once in a context"),
        ("context,x\na,1\n", "needs a column action without gaps"),
        ("context,action,x\na,p,1\n,q,0\n", "needs a column context without gaps"),
        ("context,action,x\na,p,1\na,q,0\n", "draws of contexts must be two at least"),
        ("context,action,x\na,p,1\na,q,2\nb,p,1\n", "features must be of length 1 at most"),
        ("context,action,x\na,p,\na,q,1\nb,p,1\n", "features must be finite"),
        ("context,action,word\na,p,b\n", "needs rows, and columns of numbers beside context"),
        ("context,action,x,probability\na,p,1,0.5\nb,p,0,0.4\n", "chances must sum to 1, got 0.9"),
        ("context,action,x,probability\na,p,1,0.5\na,q,0,0.6\nb,p,0,0.5\n",
         "column probability must be the same in all rows of a context"),
        ("context,action,x,probability\na,p,1,often\n", "column probability must be numbers"),
    ],
)  # fmt: skip
def test_files_that_hold_no_contexts(tmp_path, text, message):
    path = tmp_path / "contexts.csv"
    path.write_text(text)
    answer = run("plan", f"--contexts={path}", "--horizon=100", "--repeat=2")
    assert answer.exit_code == 2
    assert message in " ".join(answer.output.split())


@pytest.mark.parametrize("flags", [[], ["--actions=circle:3", "--contexts=some.csv"]])
def test_actions_or_contexts_but_not_both(flags):
    answer = run("plan", "--horizon=100", *flags)
    assert answer.exit_code == 2
    assert "give --actions, or --contexts" in answer.output


def test_a_file_that_is_not_there():
    answer = run("plan", "--horizon=100", "--contexts=none.csv")
    assert answer.exit_code == 2
    assert "--contexts none.csv: cannot be read (FileNotFoundError)" in answer.output
