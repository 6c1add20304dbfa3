"""`beam-ldp plan mean`: a table that fits, JSON for programs, help that teaches, named mistakes."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner, Result

from beam_ldp.accounting.reconstruction import (
    DiffuseTarget,
    breach_probability,
    largest_epsilon,
)
from beam_ldp.accounting.reconstruction_audit import direction_attack
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.views.mean_plans import _count
from beam_ldp.questions.means import NORM
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean import PrivUnit

pytestmark = pytest.mark.exact

LOCAL = ["plan", "mean", "--expected-users", "1e5", "--dimension", "200", "--local-epsilon", "2"]
CENTRAL = ["plan", "mean", "--expected-users", "1e4", "--dimension", "30", "--epsilon", "1",
           "--delta",
           "1e-8"]  # fmt: skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(group, arguments, prog_name="beam-ldp", terminal_width=100)


def test_help_teaches() -> None:
    shown = run("plan", "mean", "--help")
    assert shown.exit_code == 0
    for expected in ("examples:", "--norm", "--model", "trusted curator", "shuffled separately"):
        assert expected in " ".join(shown.output.split())
    assert "mean" in run("plan", "--help").output


def test_the_table_fits_eighty_columns_and_is_best_first() -> None:
    shown = run(*CENTRAL, "--trust-shuffler")
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert lines[0].startswith("10,000 people, 30 coordinates, l2 ball of radius 1")
    assert all(len(line) <= 80 for line in lines) and "…" not in shown.output
    assert lines[1].startswith("epsilon if only 9,000 report")
    assert lines[4].startswith("SplitAndMixMean") and lines[5].startswith("L2Mean")
    assert "a reference" in " ".join(shown.output.split())
    assert "left out: KashinMean" in shown.output


def test_the_table_of_small_errors_fits_eighty_columns() -> None:
    """Of long vectors, whose figures are the widest."""
    shown = run(
        "plan", "mean", "--expected-users=1e6", "--dimension=13706", "--norm=l2", "--epsilon=1",
        "--delta=1e-6", "--trust-shuffler", "--honest-fraction=0.9",
    ).output  # fmt: skip
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    row = "SplitAndMixMean 131k inf 1 9.48e-06 0.00111 1.26 any 3.54M 0.1 "
    assert row in " ".join(shown.split())


def test_a_row_for_those_who_trust_the_shuffler_alone() -> None:
    """Error, bits, messages, "infinite", who is trusted; nobody else is shown it."""
    told = run(*CENTRAL, "--trust-shuffler", "--honest-fraction=0.9").output
    shown = " ".join(told.replace("│", " ").split())
    assert "SplitAndMixMean 320 inf 1 " in shown and " any 7,680 " in shown
    for said in (
        "local epsilon above 8: the shuffler, too, must be trusted",
        "inf: without it nobody is protected; one liar moves the mean by any length",
        "the noise of 8,100 honest people, 81 % of those expected",
        "nobody is protected unless the shuffler is trusted",
        "a single liar moves the mean anywhere, without a sign of it",
    ):
        assert said in shown, said
    assert "SplitAndMixMean" not in run(*CENTRAL).output
    assert (
        "SplitAndMixMean" not in run(*CENTRAL, "--trust-shuffler", "--max-local-epsilon=500").output
    )
    large = ["--dimension=784", "--expected-users=1e5"]
    wide = run(*CENTRAL[:2], *large, *CENTRAL[6:], "--trust-shuffler").output
    assert (
        re.search(r" \d{3}k ", wide) and "…" not in wide and max(map(len, wide.splitlines())) <= 80
    )
    found = json.loads(run(*CENTRAL, "--trust-shuffler", "--format", "json").output)
    row = found["plans"][0]
    assert row["local_epsilon"] is None and found["release"]["local_epsilon"] is None
    assert row["trusted"] == "shuffler" and row["forged"] == "anywhere"
    assert {r["trusted"] for r in found["plans"] if r["mechanism"]["mechanism"] == "PrivUnit"} == {
        "device"
    }
    assert row["epsilon"] <= 1.0 < 1.1 < row["times_lower_bound"] < 1.15
    refused = run(*CENTRAL, "--mechanism", "SplitAndMixMean")
    assert refused.exit_code == 2 and "with --trust-shuffler" in " ".join(refused.output.split())


def test_long_reports_are_told_in_thousands_so_that_no_digit_is_cut_off() -> None:
    counts = (40, 99_999, 100_000, 999_499, 999_500, 3_538_944)
    said = ["40", "99,999", "100k", "999k", "1M", "3.54M"]
    assert [_count(count, 100_000) for count in counts] == said


def test_json_rows_hold_mechanisms_that_can_be_built() -> None:
    found = json.loads(run(*CENTRAL, "--max-bits", "40", "--format", "json").output)
    assert found["schema_version"] == 1 and found["dimension"] == 30 and found["norm"] == "l2"
    usable = [row for row in found["plans"] if not row["excluded"]]
    errors = [row["rms_error"] for row in usable]
    assert usable and errors[0] <= 1.01 * min(errors)
    for row in usable:
        mechanism = LocalRandomizer.from_config(row["mechanism"])
        assert mechanism.bits_per_report == row["bits_per_report"] <= 40
        assert mechanism.mean_squared_error(10_000) == row["mean_squared_error"]
        assert row["epsilon_lower"] is None or row["epsilon_lower"] <= row["epsilon"] <= 1.0
        assert row["times_lower_bound"] > 0 and "curator" in row["lower_bound_name"]
    for row in found["plans"]:
        if row["excluded"] and "bits_per_report" in row:
            assert row["bits_per_report"] > 40


def test_nobody_trusted() -> None:
    flags = ["plan", "mean", "--expected-users", "1e5", "--dimension", "200", "--epsilon", "2"]
    shown = json.loads(run(*flags, "--model", "local", "--format", "json").output)
    best = shown["plans"][0]
    assert best["local_epsilon"] == best["epsilon"] == 2.0
    assert 1 <= best["times_lower_bound"] < 1.03 and "proved" in best["lower_bound_name"]


def test_what_an_attacker_sees_of_each_mechanism() -> None:
    """The bound at the local epsilon of all messages; the best attack itself on PrivUnit."""
    found = json.loads(run(*CENTRAL, "--trust-shuffler", "--attack", "--format", "json").output)
    rows = {row["mechanism"]["mechanism"]: row for row in found["plans"] if "attack" in row}
    for name, row in rows.items():
        told = row["attack"]
        assert told["exact"] == (name == "PrivUnit")
        if name == "SplitAndMixMean":  # whose messages are the vector
            assert [one["chance"] for one in told["chances"]] == [1.0] * 3
            continue
        for one in told["chances"]:
            bound = breach_probability(DiffuseTarget(30, one["cosine"]), row["local_epsilon"])
            assert one["chance"] <= bound and (told["exact"] or one["chance"] == bound)
        for one in told["reached"]:
            least = largest_epsilon(DiffuseTarget(30, 0.5), one["chance"])
            assert one["local_epsilon"] >= least
    (unit, bits) = rows["PrivUnit"], rows["L2Mean"]
    mechanism = LocalRandomizer.from_config(unit["mechanism"])
    assert isinstance(mechanism, PrivUnit)
    assert unit["attack"]["chances"][1]["chance"] == direction_attack(mechanism, 0.5)
    assert (
        bits["attack"]["reached"][0]["local_epsilon"]
        < unit["attack"]["reached"][0]["local_epsilon"]
    )
    shown = run(*CENTRAL, "--trust-shuffler", "--attack")
    assert "What somebody guesses" in shown.output and "from: local epsilon" in shown.output
    assert all(len(line) <= 80 for line in shown.output.splitlines())
    assert "attack" not in json.loads(run(*CENTRAL, "--format", "json").output)["plans"][0]
    refused = run(*LOCAL[:4], "--dimension", "1", "--local-epsilon", "2", "--attack")
    assert refused.exit_code == 2 and "--dimension must be >= 2" in refused.output


@pytest.mark.parametrize("norm", ["l1", "linf", "1.5", "binary"])
def test_other_balls(norm: str) -> None:
    shown = run(*LOCAL, "--norm", norm)
    assert shown.exit_code == 0, shown.output
    name = {"1.5": "l1.5 ball", "binary": "each 0 or 1"}.get(norm, f"{norm} ball")
    assert name in shown.output and "proved bound" in shown.output


def test_no_mechanism_is_said_plainly() -> None:
    shown = run(*LOCAL, "--max-bits", "2")
    assert shown.exit_code == 0 and "no mechanism meets these limits" in shown.output
    assert "max_bits is 2" in shown.output


def test_fewer_messages_and_shorter_reports_have_rows_of_their_own() -> None:
    """`--messages` leaves what sends so many; without it one mechanism has several lengths."""
    found = json.loads(run(*CENTRAL, "--trust-shuffler", "--format", "json").output)
    rows = [row for row in found["plans"] if not row["excluded"]]
    bits = [row["bits_per_report"] for row in rows if row["mechanism"]["mechanism"] == "L2Mean"]
    assert len(bits) == len(set(bits)) > 2
    shown = run(*CENTRAL, "--messages", "1", "--format", "json")
    rows = [row for row in json.loads(shown.output)["plans"] if not row["excluded"]]
    assert {row["messages_per_user"] for row in rows} == {1}
    assert "--messages" in run("plan", "mean", "--help-all").output
    refused = run(*CENTRAL, "--messages", "0")
    assert refused.exit_code == 2 and "--messages must be >= 1" in refused.output


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--expected-users", "1e5", "--dimension", "9"],
            "--delta is missing",
        ),
        ([*LOCAL[2:], "--epsilon", "1", "--delta", "1e-8"], "give one of"),
        (["--expected-users", "9", "--dimension", "9", "--epsilon", "1"], "--delta is missing"),
        ([*LOCAL[2:], "--norm", "l3"], "l2, l1, linf, binary or a number >= 1"),
        ([*LOCAL[2:], "--norm", "0.5"], "number >= 1"),
        ([*LOCAL[2:], "--radius", "0"], "radius"),
        ([*LOCAL[2:], "--norm", "binary", "--radius", "2"], "radius"),
        ([*LOCAL[2:], "--dimension", "1e7"], "dimension"),
        ([*LOCAL[2:], "--model", "central"], "--model"),
        ([*LOCAL[2:], "--epsilom", "1"], "--epsilon"),
    ],
)
def test_mistakes_are_named(flags: list[str], said: str) -> None:
    shown = run("plan", "mean", *flags)
    assert shown.exit_code == 2 and said in " ".join(shown.output.split())


def test_norms_by_name_and_by_number() -> None:
    assert [NORM.read(text) for text in ("l2", "binary", "3", "inf")] == ["l2", "binary", 3.0,
                                                                         float("inf")]  # fmt: skip
