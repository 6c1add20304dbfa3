"""The verifier confirms what is true, and says what it cannot check."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dp_accounting
import pytest

from beam_ldp.accounting import event_epsilon, shuffled_event
from beam_ldp.accounting import events as all_events
from beam_ldp.accounting.certificates import certified
from beam_ldp.accounting.events import CommittedDpEvent, as_event
from beam_ldp.accounting.reports import LocalReports, SampledReports
from beam_ldp.accounting.shuffle.one_release import local_event
from beam_ldp.ledger.rows import canonical
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import BinaryVectorMean
from beam_ldp.verifier import verify as program
from beam_ldp.verifier.verify import CONFIRMED, NOTHING, REFUTED, verify
from beam_ldp.wording import number
from tests.confirmed import EXCUSES
from tests.verifier.statements import (
    IDENTITY,
    bounded_length,
    compositions,
    events,
    rare_noise,
    statement,
)

pytestmark = pytest.mark.exact

SOURCE = Path(program.__file__)


# What it is ------------------------------------------------------------------------------


def test_it_is_one_short_program_of_the_standard_library() -> None:
    source = SOURCE.read_text()
    assert len(source.splitlines()) < 610
    names = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        str(node.module).partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
    }
    assert names <= sys.stdlib_module_names
    assert "numpy" not in source.replace("NumPy", "")


def test_as_a_program(tmp_path: Path, statements: list[dict[str, Any]]) -> None:
    """Exit codes 0, 1 and 2 with a line each; it runs where nothing is installed."""
    good, bad, none = (tmp_path / name for name in ("good", "bad", "none"))
    good.write_text(json.dumps(statements[1]))
    bad.write_text(json.dumps(statements[1] | {"delta": statements[1]["delta"] / 2}))
    none.write_text("{}")
    for path, code, begins in (
        (good, 0, "confirmed at epsilon "),
        (bad, 1, "not confirmed, because "),
        (none, 2, "not independently checkable: "),
    ):
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(SOURCE), str(path)], capture_output=True, text=True
        )
        assert (done.returncode, done.stdout.startswith(begins)) == (code, True), done


def test_a_row_of_the_ledger_says_the_same(
    tmp_path: Path, statements: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    told = statements[1]
    names = ("epsilon", "delta", "num_reports", "certificate")
    about = {name: told[name] for name in names}
    row = {"event": told["event"], "about": about, "identity_digest": None}  # of a settlement
    paths = [tmp_path / name for name in ("statement", "row", "fewer", "other")]
    fewer = {**row, "about": {**about, "num_reports": told["num_reports"] - 1}}
    other = {**row, "identity_digest": "00" * 32}
    paths[0].write_text(json.dumps(told))
    for path, content in zip(paths[1:], (row, fewer, other), strict=True):
        path.write_bytes(canonical(content))  # whose numbers Python writes in another way
    assert "e-8" in paths[1].read_text()
    here, there, wrong, strange = map(str, paths)
    assert program.main([here, there]) == CONFIRMED
    assert program.main([here, strange]) == REFUTED
    assert "another identity" in capsys.readouterr().out
    assert program.main([here, wrong]) == REFUTED
    assert "another num_reports" in capsys.readouterr().out
    assert program.main([]) == program.main([str(tmp_path)]) == NOTHING
    assert "python verify.py privacy.json" in capsys.readouterr().out


# True statements -------------------------------------------------------------------------


def test_it_confirms_what_the_accountant_states(statements: list[dict[str, Any]]) -> None:
    for told in statements:
        found = verify(told)
        assert found.code == CONFIRMED, (found.text, told["event"])
    kinds = [told["certificate"]["kind"] for told in statements]
    assert kinds.count("shuffle") >= 28  # hardly any is confirmed only for lack of a crowd
    assert {len(told["certificate"].get("tilts", "")) for told in statements} >= {1, 2}


def test_it_confirms_what_is_composed(composed: dict[str, dict[str, Any]]) -> None:
    """Vectors, rounds, samples, several questions, a server's noise: what the accountant states."""
    for name, told in composed.items():
        assert told["certificate"]["kind"] == "composed", (name, told["certificate"])
        assert verify(json.loads(json.dumps(told))).code == CONFIRMED, name
    assert [len(told["certificate"]["parts"]) for told in composed.values()][-1] == 3
    knots = composed["lopsided rounds"]["certificate"]["parts"][0]["knots"]
    assert len(knots[0]) == 4  # of both directions


def test_rare_reports_that_tell_a_lot_take_more_losses() -> None:
    """Of a thousand answers from a thousand, two or so hide a person."""
    event = shuffled_event(KRandomizedResponse(1000, 1.0), 1000)
    told = statement(dp_accounting.SelfComposedDpEvent(event, 2), 1e-5)
    assert verify(told).code == CONFIRMED
    assert told["certificate"]["smoothing"] == "0.005"


def test_it_confirms_samples_noise_and_what_no_crowd_hides(
    sampled: dict[str, dict[str, Any]],
) -> None:
    for name, told in sampled.items():
        assert told["certificate"]["kind"] in ("composed", "shuffle"), (name, told["certificate"])
        assert verify(json.loads(json.dumps(told))).code == CONFIRMED, name


@pytest.mark.slow
def test_losses_that_are_rare_even_under_a_tilt() -> None:
    assert verify(statement(*rare_noise())).code == CONFIRMED


@pytest.mark.slow
def test_a_thousand_statements_would_take_less_than_a_minute() -> None:
    """Two hundred take less than a fifth of it. A tenth of them are composed: to make those takes
    ten times as long as to verify them."""
    made = [statement(event, delta) for event, delta in events(180, seed=1)]
    made += [statement(e, delta) for seed in (1, 2) for _, e, delta in compositions(seed)]
    begun = time.process_time()
    assert [verify(told).code for told in made] == [CONFIRMED] * len(made)
    assert time.process_time() - begun < 12


def test_pure_epsilons_need_no_sum() -> None:
    event = LocalReports(8.0).shuffled(5)
    told = statement(event, 1e-9)
    assert told["certificate"]["kind"] == "local"
    assert verify(told).text.startswith("confirmed at epsilon 8.0 delta 1e-09")


def test_what_has_no_certificate_says_so() -> None:
    told = statement(bounded_length(), 1e-6)
    assert "how long a person's vector is" in told["certificate"]["why"]
    found = verify(told)
    assert found.code == NOTHING
    assert found.text == f"not independently checkable: {told['certificate']['why']}"
    conjectured = certified(told | {"proof_status": "conjectured"})["certificate"]
    assert "conjectured" in conjectured["why"]
    assert "no finite" in certified(told | {"epsilon": None})["certificate"]["why"]


def _every_event() -> Iterator[tuple[str, Any]]:
    """Of each kind of event that has a price, those that have a certificate and others."""
    shuffled, any_of = LocalReports(2.0).shuffled(10_000), LocalReports(2.0)
    noise = dp_accounting.GaussianDpEvent(2.0)
    several = local_event(BinaryVectorMean(8, 4.0))
    yield "LocalRandomizerDpEvent", as_event(any_of)
    yield "ShuffledDpEvent", as_event(shuffled)
    yield "ShuffledMessagesDpEvent", bounded_length()
    yield "ShuffledMessagesDpEvent", shuffled_event(BinaryVectorMean(8, 4.0), 10_000)
    for how in (
        {}, {"sampling": "self"}, {"sampling": "poisson"}, {"sampling": "shuffled_epochs"},
        {"points_per_client": 3, "points_sampled": 2},
    ):  # fmt: skip
        yield "SubsampledShuffledDpEvent", as_event(SampledReports(any_of, 50_000, 10_000, **how))
    yield "SubsampledShuffledDpEvent", as_event(SampledReports(several, 50_000, 10_000))
    yield "ShuffledSharesDpEvent", all_events.ShuffledSharesDpEvent(16, 1000, 3.0, 24, 9, 10_000)
    yield "CommittedDpEvent", CommittedDpEvent(as_event(shuffled), 1e-9)
    yield "GaussianDpEvent", noise
    yield "LaplaceDpEvent", dp_accounting.LaplaceDpEvent(2.0)
    yield "DiscreteLaplaceDpEvent", dp_accounting.dp_event.DiscreteLaplaceDpEvent(0.1, 2)
    yield "PoissonSampledDpEvent", dp_accounting.PoissonSampledDpEvent(0.1, noise)
    fixed = dp_accounting.SampledWithoutReplacementDpEvent(100, 10, noise)
    yield "SampledWithoutReplacementDpEvent", fixed
    yield "ComposedDpEvent", dp_accounting.ComposedDpEvent([noise, as_event(shuffled)])
    laplace = dp_accounting.ComposedDpEvent([dp_accounting.LaplaceDpEvent(20.0), noise])
    yield "ComposedDpEvent", laplace
    yield "SelfComposedDpEvent", dp_accounting.SelfComposedDpEvent(noise, 3)
    yield "NoOpDpEvent", dp_accounting.NoOpDpEvent()
    yield "ZCDpEvent", dp_accounting.ZCDpEvent(0.1)
    yield "RandomizedResponseDpEvent", dp_accounting.RandomizedResponseDpEvent(0.5, 4)
    truncated = dp_accounting.dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.1, 130, 2.0)
    yield "TruncatedSubsampledGaussianDpEvent", truncated


def test_every_event_has_a_certificate_or_a_reason() -> None:
    """Never neither, and never an error; whatever has a price."""
    told = []
    for kind, event in _every_event():
        assert type(event).__name__ == kind
        stated = statement(event, 1e-6)
        found = verify(json.loads(json.dumps(stated)))
        assert found.code in (CONFIRMED, NOTHING), (kind, found.text)
        told.append((kind, found.text.partition(": ")[2] if found.code == NOTHING else ""))
    own = {name for name in vars(all_events) if name.endswith("DpEvent")}
    assert own <= {kind for kind, _ in told}
    reasons = {(kind, why) for kind, why in told if why}
    assert {kind for kind, _ in reasons} == {
        "ShuffledMessagesDpEvent", "SubsampledShuffledDpEvent", "ComposedDpEvent", "ZCDpEvent",
        "RandomizedResponseDpEvent", "TruncatedSubsampledGaussianDpEvent",
        "ShuffledSharesDpEvent",
    }  # fmt: skip
    assert all(why.startswith(EXCUSES) for _, why in reasons), reasons
    assert len({why for _, why in reasons}) == len(reasons)  # each its own


def test_a_statement_that_is_too_small_gets_no_certificate(
    statements: list[dict[str, Any]],
) -> None:
    small = statements[1] | {"epsilon": statements[1]["epsilon"] * (1 - 3e-3)}
    assert certified(small)["certificate"]["kind"] == "none"


def test_identities_bind(statements: list[dict[str, Any]]) -> None:
    assert {told["certificate"]["identity"] for told in statements} == {IDENTITY}
    event = LocalReports(2.0).shuffled(10_000)
    assert statement(event, 1e-6)["epsilon"] == float(number(event_epsilon(event, 1e-6))) == 0.1551
