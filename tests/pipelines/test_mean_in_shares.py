"""Means whose shares a trusted shuffler hides: `beam-ldp mean --trust-shuffler` from end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.ledger import BudgetLedger
from beam_ldp.ledger.auditing import audit
from beam_ldp.pipelines import check, job_runs
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.mean import main
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean import SplitAndMixMean
from beam_ldp.verifier import verify
from tests.pipelines.test_frequency import record
from tests.pipelines.test_mean import assert_close

pytestmark = pytest.mark.e2e

PEOPLE, LOST, DIMENSION = 3000, 30, 16
DELTA = 1e-6
COLUMNS = [f"x{i}" for i in range(DIMENSION)]
JOB = """
source:  {parquet: "people.parquet"}
people:  {id: uid}
release: {dataset: open, id: week-48, run_id: job, ledger: env}
questions:
  - {mean: [x*], norm: l2, radius: 1, one_row_each: true}
privacy: {epsilon: 1, delta: 1e-6, expected_users: 3000, trust_shuffler: true,
          honest_fraction: 0.9}
output:  {folder: job-out, no_mlflow: true}
"""


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    noise = np.random.default_rng(3).uniform(-0.1, 0.1, (PEOPLE, DIMENSION))
    return noise + np.linspace(-0.2, 0.2, DIMENSION)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, vectors: np.ndarray) -> Path:
    """People, of whom some lack a number; budgets with a limit on local epsilons and without."""
    folder = tmp_path_factory.mktemp("shares")
    columns: dict[str, Any] = {"uid": np.arange(PEOPLE)}
    for name, column in zip(COLUMNS, vectors.T):
        columns[name] = pa.array(column)
    lacking = pa.array([None] * LOST + vectors[LOST:, 7].tolist(), pa.float64())
    pq.write_table(pa.table({**columns, "x7": lacking}), folder / "people.parquet")
    ledger = BudgetLedger.create(f"sqlite:///{folder}/privacy.db")
    ledger.set_budget("open", epsilon=9.0, delta=1e-5)
    ledger.set_budget("capped", epsilon=9.0, delta=1e-5, local_epsilon=500.0)
    return folder


def flags(place: Path, out: str, *more: str, dataset: str = "open") -> list[str]:
    return [
        f"--input={place}/people.parquet", "--user-id=uid", "--one-row-each", "--column=x*",
        "--norm=l2", "--radius=1", "--epsilon=1", f"--delta={DELTA}",
        f"--expected-users={PEOPLE}", "--honest-fraction=0.9", "--trust-shuffler",
        f"--ledger=sqlite:///{place}/privacy.db", f"--dataset={dataset}", "--release-id=week-47",
        f"--output={place}/{out}", *more,
    ]  # fmt: skip


@pytest.mark.parametrize("one_row_each", [False, True])
def test_bars_that_allow_for_a_draw_are_warned_of(
    place: Path, one_row_each: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are several times as wide as where everybody is known to have one row."""
    given = [f for f in flags(place, "drawn") if one_row_each or f != "--one-row-each"]
    assert check.main(["mean", *given, "--format=json"]) == DONE
    assert ("give --one-row-each" in capsys.readouterr().out) != one_row_each


@pytest.fixture(scope="module")
def released(place: Path) -> Path:
    with pytest.MonkeyPatch.context() as patched:  # other tests of the process may have set it
        patched.delenv("MLFLOW_TRACKING_URI", raising=False)
        assert main(flags(place, "out", "--run-id=monday")) == DONE
    return place / "out"


@pytest.mark.statistical
def test_the_mean_has_a_curators_error_and_says_so(released: Path, vectors: np.ndarray) -> None:
    """Within 5 standard errors (1e-5): those of the worst values, which shares cannot measure."""
    assert_close(released, vectors[LOST:].mean(axis=0))
    found = record(released)
    mechanism = LocalRandomizer.from_config(found["mechanism"])
    assert isinstance(mechanism, SplitAndMixMean)
    curator = DIMENSION * mechanism.curator_variance(1.0, DELTA, PEOPLE)
    assert 1.2 < found["mean_squared_error"] / curator < 1.3  # 0.9 honest x 0.9 arriving
    assert found["error_bars"] == "worst case" and found["num_bad_rows"] == LOST


def test_the_record_is_what_was_priced(released: Path) -> None:
    found = record(released)
    event = event_from_json(found["event"])
    assert event.num_reports == found["honest_reports"] == int(0.9 * (PEOPLE - LOST))
    assert found["epsilon"] == float(event_epsilon(event, DELTA)) <= 1.0
    assert found["local_epsilon"] is None and "infinite" in found["method"]
    assert found["trust_shuffler"] is True and found["messages_per_user"] == 16 * event.shares
    assert found["certificate"]["kind"] == "none"
    told = verify.verify(found)
    assert told.code == verify.NOTHING and "only a shuffler hides" in told.text


def test_the_statement_says_first_that_nobody_is_protected_otherwise(released: Path) -> None:
    text = (released / "privacy.md").read_text()
    _, first, *_ = text.split("\n\n")
    assert first.startswith("**Nobody here is protected unless the shuffler")
    assert "a single forged envelope can move the mean anywhere" in first.split(".**")[0]
    said = " ".join(text.split())
    for expected in (
        "everybody who sees all shares of a person | local epsilon = infinite | nobody",
        "counts whole or not at all", "no check of norms is possible", "90 % of them are declared",
        "below 2,700 arrivals nothing would have been released", "Not independently checkable",
        "2,970 envelopes arrived complete", "cost counts 2,673", "Only sums modulo 2^",
    ):  # fmt: skip
        assert expected in said, expected
    assert said.count("Only the shuffler protects") == 0  # it has been said better


def test_the_charge_is_settled_and_audited(place: Path, released: Path) -> None:
    ledger = BudgetLedger(f"sqlite:///{place}/privacy.db")
    charge = ledger.charge("monday")
    assert charge.status == "settled" and charge.local_epsilon == float("inf")
    assert charge.settled == record(released)["event"]
    url = f"--ledger=sqlite:///{place}/privacy.db"
    assert audit(ledger.rows()).clean
    shown = CliRunner().invoke(group, ["budget", "show", "--dataset=open", url])
    assert shown.exit_code == DONE and "local epsilons per user: unbounded" in shown.output
    told = CliRunner().invoke(group, ["budget", "show", "--dataset=open", url, "--format=json"])
    (budget,) = json.loads(told.stdout, parse_constant=pytest.fail)["budgets"]
    assert budget["epsilon"] == 9.0


def test_a_limit_on_local_epsilons_refuses_it_by_name(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags(place, "refused", dataset="capped")) == NOTHING_RELEASED
    said = " ".join(capsys.readouterr().err.split())
    assert "local epsilons that sum to 500 per user; this run has none (it is infinite)" in said
    assert not (place / "refused").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--memoize-key-file=KEY", "--mechanism=SplitAndMixMean"], "noise must be fresh"),
        (
            ["--interaction-log=LOG", "--interaction-key-file=KEY", "--mechanism=SplitAndMixMean"],
            "shares have no local epsilon to add up",
        ),
        (["--model=local", "--mechanism=SplitAndMixMean"], "not for norm l2"),
        (["--max-local-epsilon=100", "--mechanism=SplitAndMixMean"], "not for norm l2"),
        (["--max-bits=100", "--mechanism=SplitAndMixMean"], "max_bits is 100"),
    ],
)
def test_what_shares_cannot_do_is_refused_before_anything_is_charged(
    more: list[str], said: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "key").write_bytes(bytes(32))
    (place / "key").chmod(0o600)
    before = len(list(BudgetLedger(f"sqlite:///{place}/privacy.db").rows()))
    given = [flag.replace("KEY", f"{place}/key").replace("LOG", f"{place}/log") for flag in more]
    assert main(flags(place, "refused", *given)) == MISUSED
    assert said in " ".join(capsys.readouterr().err.split())
    assert len(list(BudgetLedger(f"sqlite:///{place}/privacy.db").rows())) == before


def test_memoized_noise_takes_another_mechanism(place: Path) -> None:
    """Auto never chooses shares whose sums are published again."""
    (place / "key").write_bytes(bytes(32))
    (place / "key").chmod(0o600)
    more = [f"--memoize-key-file={place}/key", "--no-mlflow", "--release-id=memoized"]
    assert main(flags(place, "memoized", *more)) == DONE
    assert record(place / "memoized")["mechanism"]["mechanism"] != "SplitAndMixMean"


def test_a_job_file_is_the_same_run_and_is_checked(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("BEAM_LDP_LEDGER", f"sqlite:///{place}/privacy.db")
    (place / "job.yaml").write_text(JOB)
    assert check.main(["job.yaml", "--format=json"]) == DONE
    checks = json.loads(capsys.readouterr().out)["checks"]
    said = {one["said"] for one in checks}
    assert any("local epsilon infinite, epsilon 0.9" in one for one in said), said
    assert any("nobody is protected unless the shuffler" in one for one in said)
    assert job_runs.main(["job.yaml"]) == DONE
    found = record(place / "job-out")
    assert found["mechanism"]["mechanism"] == "SplitAndMixMean" and found["run_id"] == "job"
    assert (
        found["mechanism"]["rotation_seed"] != record(place / "out")["mechanism"]["rotation_seed"]
    )


def test_mlflow_holds_an_unbounded_local_epsilon(released: Path) -> None:
    tracking = pytest.importorskip("mlflow.tracking", reason="the mlflow extra is not installed")
    client = tracking.MlflowClient(f"sqlite:///{released}/mlflow/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("beam-ldp").experiment_id])
    (run,) = (run for run in runs if "privacy.statistic" in run.data.params)
    assert run.data.metrics["privacy.epsilon"] == record(released)["epsilon"]
    assert "privacy.local_epsilon" not in run.data.metrics
    assert run.data.params["privacy.trust_shuffler"] == "true"


def test_batches_of_reports_are_priced_by_the_smallest(place: Path) -> None:
    """Shares that leave in batches: a batch's noise alone protects its people."""
    more = ["--shuffle-output=reports", "--no-mlflow", "--release-id=batches"]
    assert main(flags(place, "batches", *more)) == DONE
    found = record(place / "batches")
    assert found["honest_reports"] == int(0.9 * found["smallest_batch"])
    assert found["epsilon"] <= 1.0 and found["output"] == "reports"


def test_a_registry_entry_says_who_is_trusted(released: Path) -> None:
    shown = CliRunner().invoke(group, ["statement", str(released), "--registry"])
    said = " ".join(shown.stdout.split())
    assert shown.exit_code == DONE and "could add them up to the value" in said
    assert "nobody is protected unless the shuffler is trusted" in said
