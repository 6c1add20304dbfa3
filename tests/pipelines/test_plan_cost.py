"""`beam-ldp plan ... --workers`: what the job would take of a cluster."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.views.plans import amount, duration

pytestmark = pytest.mark.exact
FREQUENCY = ["plan", "frequency", "--expected-users", "1e9", "--domain-size", "265",
             "--local-epsilon", "4",
             "--delta", "1e-10"]  # fmt: skip
MEAN = ["plan", "mean", "--expected-users", "1e6", "--dimension", "16", "--local-epsilon", "4",
        "--delta", "1e-8"]  # fmt: skip


def said(*arguments: str) -> str:
    done = CliRunner(env={"COLUMNS": "140"}).invoke(group, list(arguments))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("command", [FREQUENCY, MEAN], ids=["frequency", "mean"])
def test_the_table_says_time_bytes_and_memory(command) -> None:
    text = said(*command, "--workers", "100", "--price-per-core-hour", "0.05")
    for heading in ("hours", "exchanged", "MiB per", "price", "permuted"):
        assert heading in text
    assert "exchanged" not in said(*command)
    assert max(map(len, text.splitlines())) <= 140


@pytest.mark.parametrize("command", [FREQUENCY, MEAN], ids=["frequency", "mean"])
def test_json_has_the_same_by_output(command) -> None:
    found = json.loads(said(*command, "--workers", "10", "--price-per-core-hour", "2",
                            "--format", "json"))  # fmt: skip
    costs = [row["cost"] for row in found["plans"] if row.get("cost")]
    assert costs
    for cost in costs:
        assert cost["workers"] == 10
        sums = cost["statistic"]
        assert sums["price"] == pytest.approx(2 * sums["core_hours"])
        if "global" in cost:
            assert cost["global"]["exchanged_bytes"] > sums["exchanged_bytes"]
    without = json.loads(said(*command, "--workers", "10", "--format", "json"))
    assert "price" not in json.dumps(without["plans"])


def test_a_price_needs_workers() -> None:
    for command in (FREQUENCY, MEAN):
        done = CliRunner().invoke(group, [*command, "--price-per-core-hour", "1"])
        assert done.exit_code == 2
        assert "--workers" in done.output


def test_units() -> None:
    assert [duration(s) for s in (5, 300, 10_000, 400_000)] == [
        "5 s",
        "5.0 min",
        "2.8 h",
        "4.6 days",
    ]
    assert [amount(n) for n in (12, 2e3, 3e6, 4e9, 5e12)] == [
        "12 B", "2.0 kB", "3.0 MB", "4.0 GB", "5.0 TB",
    ]  # fmt: skip
