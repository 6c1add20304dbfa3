"""The privacy record and its statement: nothing is promised that does not hold."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from beam_ldp.release.record import PrivacyRecord
from beam_ldp.release.statement import statement
from beam_ldp.release.tables import price_table

RECORD = PrivacyRecord(
    question="word",
    dataset="telemetry",
    mechanism={"mechanism": "SubsetSelection", "version": 1, "domain_size": 11, "subset_size": 3},
    local_epsilon=4.0,
    epsilon=0.51239,
    epsilon_lower=0.41239,
    epsilon_class_lower=0.45,
    delta=1e-8,
    method="numeric clone pair",
    proof_status="proved",
    num_reports=1_000_000,
    num_bad_rows=17,
    min_reports=900_000,
    honest_fraction=0.8,
    honest_reports=800_000,
    smallest_batch=1_000_000,
    output="statistic",
    scope="batch",
    user_id="uid",
    bad_rows="dead-letter",
    bits_per_report=18,
    target_epsilon=0.5,
    expected_users=1_100_000,
    created="2026-01-01T00:00:00+00:00",
    version="0.1.0",
)
SIMULATED = replace(RECORD, simulated=True, local_epsilon=None, epsilon=None, epsilon_lower=None,
                    epsilon_class_lower=None)  # fmt: skip


def more(record: PrivacyRecord, **details: Any) -> PrivacyRecord:
    """A record with other facts of its kind."""
    return replace(record, details={**record.details, **details})


def test_everything_that_counts_is_said() -> None:
    said = statement(RECORD.told())
    for expected in (
        "local epsilon = 4 ", "epsilon = 0.5124 at delta = 1e-08", "0.4123", "0.45", "800,000",
        "1,000,000 reports were received", "80 % of them are declared honest", "numeric clone pair",
        "proved for this mechanism", "replace-one", "took part is not protected", "`uid`",
        "17 rows", "Only sums left the shuffler", "below 900,000 reports", "SubsetSelection",
        "18 bits", "1,100,000 reports were expected", "shuffler", "collector", "device",
    ):  # fmt: skip
        assert expected in said, expected


def test_a_simulation_promises_nothing() -> None:
    said = statement(SIMULATED.told())
    assert "No privacy guarantee" in said
    assert "local epsilon =" not in said and "epsilon = " not in said.replace(
        "local_epsilon = ", ""
    )
    assert SIMULATED.to_json()["epsilon"] is None
    with pytest.raises(ValueError, match="simulated"):
        replace(RECORD, simulated=True)


@pytest.mark.parametrize("told", ["local_epsilon", "epsilon"])
def test_a_simulation_with_one_epsilon_is_no_record(told: str) -> None:
    with pytest.raises(ValueError, match="must be None in a simulated release"):
        replace(SIMULATED, **{told: 1.0})  # type: ignore[arg-type]


def test_a_charge_is_said_by_its_run_and_its_absence_by_its_reason() -> None:
    assert "**which was not charged to any budget** (no ledger was named)" in statement(
        RECORD.told()
    )
    charged = replace(RECORD, charged="yes", run_id="run-7", ledger_id="ab12")
    said = statement(charged.told())
    assert "charged to the budget of `telemetry` as run `run-7`; the ledger ab12" in said
    assert "was not charged" not in said


def test_odds_that_no_float_holds_are_without_bound() -> None:
    said = statement(replace(RECORD, local_epsilon=701.0).told())
    assert "without bound, for somebody" in said
    assert "e^(local epsilon), 54.6, for somebody" in statement(RECORD.told())


def test_costs_of_rounds_are_rounded_up() -> None:
    one = {"round": 1, "asks": "which bin", "mechanism": "M", "people": 9, "delta": 1e-6}
    rounds = ({**one, "epsilon": 1.00001, "local_epsilon": 2.00001},)
    said = said_of(more(replace(MEAN, kind="user_mean"), **OF_USERS, rounds=rounds))
    assert "M, local epsilon = 2.001, epsilon = 1.001 at delta = 1e-06; 9 people" in said


def test_rows_taken_for_persons_are_said_so() -> None:
    assert "Every row is counted as a person" in statement(replace(RECORD, user_id=None).told())


def test_reports_that_leave_the_shuffler_are_said_so() -> None:
    batch = statement(replace(RECORD, output="reports", smallest_batch=70_000).told())
    assert "of them in every batch are declared honest" in " ".join(batch.split())
    assert "in every batch" not in statement(RECORD.told())
    assert "batch of individual reports left the shuffler" in batch and "70,000 reports" in batch
    whole = statement(replace(RECORD, output="reports", scope="global").told())
    assert "permuted all together" in whole


def test_a_conjectured_bound_is_not_called_proved() -> None:
    said = statement(replace(RECORD, proof_status="conjectured").told())
    assert "conjectured, not proved" in said and "is proved" not in said


def test_hidden_bad_rows_leave_no_number() -> None:
    said = statement(replace(RECORD, bad_rows="other", num_bad_rows=None).told())
    assert "without a trace" in said and "17" not in said


def test_memoized_noise_comes_with_its_warning() -> None:
    said = statement(replace(RECORD, memoized=True, release_id="2026-01").told())
    assert "`2026-01`" in said and "revealed as a change" in said and "Destroy it" in said


def test_real_arithmetic_is_not_called_exact() -> None:
    said = statement(replace(RECORD, exactness="real-arithmetic").told())
    assert "real arithmetic only" in said and "* exact:" not in said


def test_hostile_names_stay_on_their_line() -> None:
    said = statement(replace(RECORD, dataset="x`\n# No privacy needed <script>").told())
    assert "\n# No privacy" not in said


def test_json_is_versioned_and_complete() -> None:
    found = json.loads(json.dumps(RECORD.to_json(), allow_nan=False))
    assert found["schema_version"] == 1
    for name in ("mechanism", "local_epsilon", "epsilon", "epsilon_lower", "epsilon_class_lower",
                 "delta", "method", "proof_status", "num_reports", "num_bad_rows"):  # fmt: skip
        assert name in found
    assert found["neighbours"] == "replace-one" and found["participation_protected"] is False


def test_an_infinite_price_is_unbounded_and_still_json() -> None:
    record = replace(RECORD, epsilon=math.inf)
    json.dumps(record.to_json(), allow_nan=False)
    assert "epsilon = unbounded" in statement(record.told())


# Means -------------------------------------------------------------------------------------------

MEAN = replace(
    RECORD,
    mechanism={"mechanism": "PrivUnit", "version": 1, "dimension": 64},
    kind="mean",
    details={
        "statistic": "mean", "model": "shuffle", "dimension": 64, "messages_per_user": 1,
        "compression": None, "message_epsilon": None, "values": "Euclidean length at most 1",
        "in_ranges": False, "sampling": "fixed", "outside": "clip", "mean_squared_error": 0.25,
        "bias_bound": 0.0, "expected_bias": 0.0, "error_bars": "worst case",
    },
)  # fmt: skip
OF_USERS = {
    "statistic": "user_mean", "split": "none", "rows_per_user": 1, "sigma": None,
    "user_sigma": (0.0,), "outliers": 0.0, "failure_probability": 0.0,
}  # fmt: skip
MESSAGES = more(replace(MEAN, local_epsilon=474.4), messages_per_user=128, message_epsilon=3.71)
LOCAL = more(replace(MEAN, epsilon=4.0, delta=0.0, target_epsilon=None), model="local")


def said_of(record: PrivacyRecord) -> str:
    return " ".join(statement(record.told()).split())


def test_a_mean_is_not_spoken_of_as_a_list_of_values() -> None:
    said = said_of(MEAN)
    assert "the names of 64 coordinates" in said and "Euclidean length at most 1" in said
    assert "`--bad-rows zero` hides that" in said and "for each coordinate by itself" in said
    for word in ("list of values", "`other`", "most frequent", "messages of a person"):
        assert word not in said, word
    assert "everybody who sees a person's report | local epsilon = 4 |" in said


def test_several_messages_are_said_with_what_they_cost_before_the_shuffle() -> None:
    said = said_of(MESSAGES)
    for expected in (
        "everybody who sees all messages of a person | local epsilon = 474.4",
        "A person sends 128 messages, and the local epsilon is the sum of their budgets, 3.71 each",
        "learns the values almost surely", "one for each of the 128 message columns",
        "Only sums over all people left the shufflers", "every column is permuted independently",
        "e^(local epsilon)", "for somebody who sees all messages of a person.",
    ):  # fmt: skip
        assert expected in said, expected
    assert "sees the report itself" not in said
    assert "almost no protection" not in said_of(replace(MESSAGES, local_epsilon=2.0))


def test_messages_that_leave_are_said_so() -> None:
    left = replace(MESSAGES, output="reports", smallest_batch=70_000)
    assert "nothing links the messages of a person, in batches" in said_of(left)
    assert "70,000 reports, determines the privacy cost" in said_of(left)


def test_without_a_shuffler_nothing_is_credited_to_it() -> None:
    for record in (LOCAL, more(LOCAL, messages_per_user=4)):
        said = said_of(record)
        assert "epsilon = 4 at delta = 0 | every person on their own" in said
        assert "Only the device is trusted" in said and "hide each other" not in said
        assert "declared honest" not in said and "if the shuffler does its job" not in said


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (more(MEAN, outside="raise"), "would have stopped the run"),
        (MEAN, "How often is not counted, and no interval covers the bias"),
        (more(MEAN, sampling="iid"), "including the drawing of one row per person"),
        (MEAN, "assume that every person has one row"),
        (more(MEAN, expected_bias=0.0123), "shifts a coordinate by at most 0.0123, on average"),
        (more(MEAN, bias_bound=0.0123), "widened by 0.0123 for the mechanism's truncation"),
        (replace(MEAN, bad_rows="zero", num_bad_rows=None), "reported as the zero vector, without "
        "a trace"),
        (replace(more(MEAN, in_ranges=True), bad_rows="zero", num_bad_rows=None),
         "reported as the middle of all ranges"),
        (replace(MEAN, exactness="real-arithmetic"), "real arithmetic only"),
    ],
)  # fmt: skip
def test_what_a_mean_rests_on_is_said(record: PrivacyRecord, expected: str) -> None:
    assert expected in said_of(record)


def test_a_simulated_mean_promises_nothing() -> None:
    nothing = dict(local_epsilon=None, epsilon=None, epsilon_lower=None, epsilon_class_lower=None)
    said = said_of(replace(more(MESSAGES, message_epsilon=None), simulated=True, **nothing))
    assert "No privacy guarantee" in said and "local epsilon =" not in said


def test_the_record_of_a_mean_tells_programs_what_it_is() -> None:
    found = json.loads(json.dumps(more(MESSAGES, bias_bound=0.5).to_json(), allow_nan=False))
    assert found["statistic"] == "mean" and found["messages_per_user"] == 128
    assert found["message_epsilon"] == 3.71 and found["bias_bound"] == 0.5
    assert "statistic" not in RECORD.to_json(), "records of frequencies are as they were"


def test_the_printed_price_speaks_of_messages_too() -> None:
    console = Console(file=io.StringIO(), width=160)
    console.print(price_table(MESSAGES))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "against everybody who sees all messages of a person" in shown and "474.4" in shown
