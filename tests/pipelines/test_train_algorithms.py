"""`beam-ldp train` with an adaptive clip, `adaped` and `local-central`: flags, prices, words."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import dp_accounting
import pytest
from rich.console import Console

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    SubsampledShuffledDpEvent,
    shuffled_event,
)
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.accounting.reconstruction_audit import at_most, audit_messages
from beam_ldp.accounting.two_ledgers import (
    adaped_message_event,
    adaped_round_event,
    central_round_event,
)
from beam_ldp.ledger import BudgetLedger, audit
from beam_ldp.ledger.losses import released
from beam_ldp.pipelines import programs, train
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.randomizers.mean import BinaryVectorMean, PrivUnit, SeparatedMean
from beam_ldp.release.gates import NothingReleasedError
from beam_ldp.release.statement import statement
from beam_ldp.settings import SettingError
from beam_ldp.training.charge import TrainingRun, settlement
from beam_ldp.training.facts import bundled_facts
from beam_ldp.training.plans import make_plan
from beam_ldp.training.record import make_record
from beam_ldp.training.settings import check_train
from beam_ldp.training.usage import EXAMPLES, USAGE

TRAINING_PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text("utf-8")
DELTA = 1e-5
ADAPTIVE = (
    "--data mnist5k --local-epsilon 2 --clients-per-round 200 --epochs 2 --delta 1e-5 "
    "--clip adaptive"
)
ADAPED = (
    "--algorithm adaped --data digits --points-per-client 20 --clients-per-round 10 --epochs 2 "
    "--delta 1e-5 --noise-multiplier 4"
)
CENTRAL = (
    "--algorithm local-central --data digits --points-per-client 4 --clients-per-round 50 "
    "--epochs 2 --delta 1e-5 --local-epsilon 60 --trust-shuffler "
    "--projection 1 --noise-multiplier 2"
)


def plan_of(text, more="--dry-run"):
    given = read_flags(USAGE, f"{text} {more}".split())
    settings = check_train(given)
    return make_plan(
        settings, bundled_facts(settings.question.data, settings.question.points_per_client)
    )


def price(event, rounds):
    return float(ShuffleAccountant().compose(event, rounds).get_epsilon(DELTA))


# Flags -----------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    "text, more, message",
    [
        (ADAPTIVE, "--clip 0", "--clip must be a number > 0 or adaptive, got 0"),
        (ADAPTIVE, "--noise-multiplier 1", "is for adaped and local-central, not for cldp-sgd"),
        (ADAPTIVE, "--shards-per-client 2", "multiple of --shards-per-client"),
        (ADAPTIVE, "--sampling self --clients-per-round 4000", "fewer --clients-per-round"),
        (ADAPED, "--local-epsilon 1", "--local-epsilon is for .*, not for adaped"),
        (ADAPED, "--projection 1", "--projection is for local-central, not for adaped"),
        (ADAPED, "--baselines local-only", "--baselines is for cldp-sgd and fedavg"),
        (ADAPED, "--sampling self", "--sampling must be fixed or full"),
        (ADAPED, "--norm linf", "--norm must be l2 with --algorithm adaped"),
        (ADAPED, "--clip adaptive", "--clip adaptive is for cldp-sgd and fedavg"),
        (ADAPED, "--psi-range 7:50", "and --psi inside"),
        (ADAPED, "--psi-range 7", "--psi-range must look like 2:50"),
        (ADAPED, "--local-steps 0", "--local-steps must be a whole number >= 1, got 0"),
        (ADAPED, "--public-clients", "--public-clients is for files; digits is public"),
        (CENTRAL, "--sampling fixed", "--sampling must be self with --algorithm local-central"),
        (CENTRAL, "--preset safe", "--preset is for adaped, not for local-central"),
        (CENTRAL, "--max-participations 0", "--max-participations must be a whole number >= 1"),
        (CENTRAL, "--audit diffuse:1:0.5", "dimension must be an integer >= 2"),
        (CENTRAL, "--noise-multiplier 1e300", "noise_multiplier must be > 0 and <= 1e.100"),
        (CENTRAL, "--audit dense:1", "diffuse:784:0.5 and sparse:20:2000:0.5:0.5"),
    ],
)
def test_refused_flags(text, more, message):
    with pytest.raises(SettingError, match=message):
        plan_of(text, f"--dry-run {more}")


@pytest.mark.exact
@pytest.mark.parametrize(
    "text, missing",
    [(ADAPED, "--noise-multiplier"), (CENTRAL, "--projection"), (CENTRAL, "--local-epsilon")],
)
def test_missing_flags_are_named(text, missing):
    words = text.split()
    at = words.index(missing)
    with pytest.raises(SettingError, match=f"{missing} is missing"):
        plan_of(" ".join(words[:at] + words[at + 2 :]))


# An adaptive clip ------------------------------------------------------------------------------


@pytest.mark.exact
def test_the_local_epsilon_is_split_between_report_and_bit():
    plan = plan_of(ADAPTIVE)
    assert isinstance(plan.mechanism, PrivUnit) and plan.mechanism.radius == 1.0
    assert plan.bit == BinaryVectorMean(1, 0.2, messages=(1,), message_epsilons=(0.2,))
    assert plan.mechanism.local_epsilon == pytest.approx(1.8)
    assert plan.report_epsilon == pytest.approx(2.0)
    assert plan.report_epsilon >= plan.mechanism.local_epsilon + plan.bit.local_epsilon
    assert plan.bits_per_report == plan.mechanism.bits_per_report + plan.bit.bits_per_report


@pytest.mark.exact
def test_sampled_pairs_of_messages_are_priced_by_the_sum_of_their_local_epsilons():
    plan, fixed = plan_of(ADAPTIVE), plan_of(ADAPTIVE.replace("adaptive", "0.1"))
    local = LocalRandomizerDpEvent(plan.report_epsilon)
    assert plan.event == SubsampledShuffledDpEvent(local, 4000, 200)
    assert plan.event.local_event.pair is None
    assert float(plan.epsilon_of(40)) == pytest.approx(price(plan.event, 40), rel=1e-6)
    assert plan.epsilon_of(40) == pytest.approx(plan.price_after(40).any_mechanism)
    assert plan.epsilon_of(40) > fixed.epsilon_of(40)  # whose own pair is known
    assert plan.local_epsilon_of(40) == pytest.approx(80.0)
    assert "with the sum of their local epsilons" in plan.pricing_note


@pytest.mark.exact
def test_pairs_of_messages_of_everybody_are_priced_message_by_message():
    plan = plan_of(ADAPTIVE.replace("--clients-per-round 200", "--sampling full"))
    both = [shuffled_event(part, 4000) for part in (plan.mechanism, plan.bit)]
    assert plan.event == dp_accounting.ComposedDpEvent(both)
    assert float(plan.epsilon_of(2)) == price(plan.event, 2)
    assert plan.epsilon_of(2) < plan.price_after(2).any_mechanism
    assert "two shuffled messages" in plan.pricing_note


# Personal models -------------------------------------------------------------------------------


@pytest.mark.exact
def test_price_of_the_safe_variant():
    plan = plan_of(ADAPED)  # 71 clients, 7 rounds an epoch; psi has ten times the noise
    assert (plan.data.num_clients, plan.rounds) == (71, 14)
    assert plan.event == adaped_round_event(71, 10, 4.0, 40.0)
    assert float(plan.epsilon_of(14)) == price(plan.event, 14)
    # Who sees who took part: the joint Gaussian, for the busiest client, without sampling.
    seen = plan.seen_epsilon_of(14)
    joint = dp_accounting.GaussianDpEvent((4.0**-2 + 40.0**-2) ** -0.5)
    assert seen == price(joint, plan.busiest) > plan.epsilon_of(14)
    assert 2 < plan.busiest <= 14
    assert plan.report_epsilon is None and plan.local_epsilon_of(14) is None


@pytest.mark.exact
def test_the_printed_preset_is_priced_as_its_messages_and_warns():
    plan = plan_of(ADAPED, "--dry-run --preset printed --local-steps 3")
    assert plan.event == adaped_message_event(3, 4.0, 40.0)
    assert float(plan.epsilon_of(2)) == price(plan.event, 2)
    assert plan.seen_epsilon_of(14) is None
    assert plan.pricing_note.startswith(
        "warning: the cost printed in the thesis for this preset is false"
    )


@pytest.mark.exact
def test_the_target_ends_the_plan_on_the_exact_round():
    for text in (ADAPED, CENTRAL):
        whole = plan_of(text)
        target = (whole.epsilon_of(3) + whole.epsilon_of(4)) / 2
        assert plan_of(text, f"--dry-run --epsilon {float(target)}").rounds == 3
        with pytest.raises(NothingReleasedError, match="does not allow one round"):
            plan_of(text, "--dry-run --epsilon 1e-6")


# Two promises ----------------------------------------------------------------------------------


@pytest.mark.exact
def test_both_ledgers_of_local_and_central_noise():
    plan = plan_of(CENTRAL, "--dry-run --max-participations 5")  # 359 clients, 7 rounds an epoch
    assert plan.mechanism == SeparatedMean(650, 60.0, radius=0.05)
    assert plan.event == central_round_event(50 / 359, 2.0)
    assert float(plan.epsilon_of(14)) == price(plan.event, 14)
    assert plan.local_epsilon_of(14) == 5 * 60.0 and plan.local_epsilon_of(3) == 180.0
    five = dp_accounting.SelfComposedDpEvent(LocalRandomizerDpEvent(60.0), 5)
    assert event_from_json(plan.round_price.sent_in(14)) == five
    assert [plan.round_price.sends_in(rounds) for rounds in (3, 5, 14)] == [3, 5, 5]
    # Who sees who took part is credited no coins: five Gaussians.
    gaussians = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(2.0), 5)
    assert plan.seen_epsilon_of(14) == price(gaussians, 1) > plan.epsilon_of(14)
    assert plan.charged_event_of(14) == dp_accounting.SelfComposedDpEvent(plan.event, 14)
    assert plan.charged_epsilon_of(14) is None and not plan.pricing_note


@pytest.mark.exact
def test_a_limit_that_costs_less_than_the_coins_is_what_a_ledger_is_charged():
    often = f"{CENTRAL} --dry-run --max-participations 1 --epochs 30"
    plan = plan_of(often.replace("--clients-per-round 50", "--clients-per-round 300"))
    once = dp_accounting.GaussianDpEvent(2.0)
    assert plan.charged_event_of(plan.rounds) == once == plan.charged_event
    assert plan.charged_epsilon_of(plan.rounds) == price(once, 1) < plan.epsilon_of(plan.rounds)
    assert "without the credit for coins: that costs less here" in plan.pricing_note
    assert plan.round_price.sends_in(9) == 1


@pytest.mark.exact
def test_what_the_audit_asks_about():
    plan = plan_of(CENTRAL)
    assert [str(t) for t in plan.targets[:2]] == [
        "direction of 650 features, cosine >= 0.5", "direction of 64 features, cosine >= 0.5",
    ]  # fmt: skip
    assert plan.targets[2].domain == 2000
    asked = plan_of(CENTRAL, "--dry-run --audit diffuse:100:0.7,sparse:10:50:0.5:1").targets
    assert (asked[0].dimension, asked[0].cosine) == (100, 0.7)
    assert (asked[1].items, asked[1].domain, asked[1].recall) == (10, 50, 1.0)
    assert plan.audit(2) == audit_messages(plan.mechanism, plan.targets, 2)


@pytest.mark.exact
@pytest.mark.parametrize("text", [TRAINING_PAGE, EXAMPLES], ids=["docs/training.md", "--help"])
def test_the_documented_command_protects_as_the_page_says(text):
    """Images from guesses, models from both readers; and no message is longer than is allowed."""
    (command,) = re.findall(r"train (--algorithm local-central (?:.*\\\n)*.*)", text)
    plan = plan_of(re.sub(r"\\\n\s*", " ", command))
    once, twice = ({r.target: at_most(r.bound) for r in plan.audit(n).rows} for n in (1, 2))
    image = "direction of 784 features, cosine >= 0."
    assert (once[image + "5"], once[image + "4"], twice[image + "5"]) == (
        "4e-25", "9.2e-06", "0.98",
    )  # fmt: skip
    assert once.get("direction of 7850 features, cosine >= 0.5", "0") == "0"
    assert "chance of 4e-25 at most, of 0.4 with 9.2e-6" in TRAINING_PAGE
    assert "(at a local epsilon of 120 the bound is 0.98)" in TRAINING_PAGE
    assert f"and not who joined | epsilon {plan.epsilon_of(1):.2f} at" in TRAINING_PAGE
    assert f"and who joined | epsilon {plan.seen_epsilon_of(1):.2f} |" in TRAINING_PAGE
    mechanism = plan.mechanism
    longest = abs(mechanism.magnitude.response.decoded).max() / mechanism.direction.marginal
    assert longest < plan.question.projection < 1.01 * longest


# What is printed -------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    "text, words",
    [
        (ADAPTIVE, ["a bit about the norm", "the sum of their local epsilons"]),
        (ADAPED, ["no local epsilon: the server is trusted", "4 (psi 40) times the clipping norm"]),
        (f"{ADAPED} --preset printed", ["warning: the cost printed", "Gaussian noise has none"]),
        (
            CENTRAL,
            [
                "all of one client at most 840",
                "Reconstruction: 14 messages",
                "reconstructed if",
                "local epsilon from which the chance exceeds 1% 10%",
            ],
        ),
    ],
)
def test_a_dry_run_says_what_it_would_cost_and_whom_it_trusts(text, words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert train.main([*text.split(), "--dry-run"]) == programs.DONE
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for word in words:
        assert word in out, out
    assert train.main([*text.split(), "--dry-run", "--format", "json"]) == programs.DONE
    told = json.loads(capsys.readouterr().out)
    assert told["epsilon"] > 0 and told["reader"]
    assert (told["reconstruction"] is None) == (text != CENTRAL)


def record_of(plan, **run):
    measured = SimpleNamespace(rounds=plan.rounds, loss=1.0, accuracy=0.5, personal=0.75)
    done = TrainingRun(plan.identity("first"), plan.rounds, [(measured, 0.1)], **run)
    return make_record(plan, 0, done, SimpleNamespace(facts={"charged": "no: test"}))


@pytest.mark.exact
def test_statement_of_an_adaptive_clip():
    record = record_of(plan_of(ADAPTIVE, "--output x"))
    assert record.adaptive_clip and record.bit_epsilon == pytest.approx(0.2)
    text = statement(record.told())
    assert "starting at 0.005 and following the median of the norms" in text
    assert "of local epsilon 0.2 out of 2" in text
    assert "nothing better is proved for two messages of different kinds" in text


@pytest.mark.exact
def test_statements_of_personal_models():
    record = record_of(plan_of(ADAPED, "--output x"), alone=0.7)
    assert record.to_json()["local_epsilon"] is None and record.report_epsilon is None
    text = statement(record.told())
    assert "**it is trusted**" in text and "| the server | no local epsilon |" in text
    assert "on average: 0.750; every client alone reached 0.700" in text
    assert "honest reports" not in text and "shuffler" not in text
    printed = statement(record_of(plan_of(ADAPED, "--output x --preset printed")).told())
    assert "the cost printed in the thesis for this preset is false" in printed
    assert "it is trusted" not in printed


@pytest.mark.exact
def test_statement_of_two_promises_has_the_audit_of_what_was_sent():
    plan = plan_of(CENTRAL, "--output x --max-participations 5")
    record = record_of(plan, most_messages=2)
    assert record.local_epsilon == 120.0  # of the client that sent most, not of the limit
    assert record.reconstruction == plan.audit(2).to_dict()
    json.dumps(record.to_json(), allow_nan=False)
    text = statement(record.told())
    assert "all 2 messages of the client that sent most" in text
    (row,) = (line for line in text.splitlines() if "direction of 64 features" in line)
    assert row.split("|")[4:6] == [" 6.81 ", " 9.207 "] and "this training's local epsilon" in text
    assert "direction of 650 features" in text and "the shuffler" not in text
    assert "**Only the server protects these people" in text.split("\n\n")[1]
    assert "the actual number is not revealed" in text and not plan.counts_are_public
    assert record_of(plan).local_epsilon == 300.0  # unknown: the limit


# The charge ------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path):
    return BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")


@pytest.mark.exact
def test_a_budget_of_local_epsilons_has_no_room_for_a_trusted_server(ledger):
    plan = plan_of(ADAPED, f"--output x --dataset d --ledger {ledger.url}")
    ledger.set_budget("d", epsilon=90.0, delta=1e-5, local_epsilon=1e6)
    with (
        pytest.raises(NothingReleasedError, match="its server is trusted with what clients send"),
        train.charged(plan, Console(quiet=True)),
    ):
        raise AssertionError("must not be reached")
    assert BudgetLedger(ledger.url).status("d").committed == 0.0


@pytest.mark.exact
def test_a_ledger_that_is_not_there_is_named(tmp_path):
    plan = plan_of(ADAPED, f"--output x --dataset d --ledger sqlite:///{tmp_path / 'none.db'}")
    with (
        pytest.raises(SettingError, match="holds no ledger"),
        train.charged(plan, Console(quiet=True)),
    ):
        raise AssertionError("must not be reached")


@pytest.mark.exact
@pytest.mark.parametrize("text, local", [(ADAPED, math.inf), (CENTRAL, 120.0)])
def test_what_began_is_charged(ledger, text, local):
    """A server that is trusted with everything leaves no finite local epsilon."""
    ledger.set_budget("d", epsilon=900.0, delta=1e-5)
    plan = plan_of(text, f"--output x --dataset d --run-id one --ledger {ledger.url}")
    with pytest.raises(KeyboardInterrupt), train.charged(plan, Console(quiet=True)) as (_, run):
        run.begun, run.most_messages = 3, 2 if text == CENTRAL else None
        raise KeyboardInterrupt
    charge = BudgetLedger(ledger.url).state.charge("one")
    assert (charge.status, charge.local_epsilon) == ("settled", local)
    told = settlement(plan, SimpleNamespace(facts={"run_id": "one"}, whole=False), run)
    assert told["event"] == plan.round_price.event_of(3)
    # What the ledger holds as printed is the price of what it holds: audits compare the two.
    event = event_from_json(charge.settled)
    assert charge.about["epsilon"] == pytest.approx(price(event, 1), rel=1e-9)
    record = record_of(plan).to_json()
    assert record["event"] == plan.round_price.event_of(plan.rounds)
    assert record["charged_epsilon"] is None


@pytest.mark.exact
@pytest.mark.parametrize("ended", [True, False])
def test_a_training_is_committed_where_its_budget_is_for_schedules(ledger, ended):
    """Cheaper than round by round, and charged whole also where it is interrupted."""
    flags = f"--output x --dataset d --run-id one --ledger {ledger.url}"
    plan = plan_of(CENTRAL, flags)
    ledger.set_budget("d", epsilon=900.0, delta=1e-5, chances=0.9)
    rounds = plan.charged_event_of(plan.rounds)
    apart = ledger.would_grant("d", rounds, local_event=plan.round_price.sent_in(plan.rounds))
    with suppress(KeyboardInterrupt), train.charged(plan, Console(quiet=True)) as (charge, run):
        assert charge.whole and ledger.status("d").committed < 0.95 * apart
        run.begun, run.most_messages = plan.rounds if ended else 3, 2
        if not ended:
            raise KeyboardInterrupt
        charge.settle(settlement(plan, charge, run))
    found = BudgetLedger(ledger.url).state.charge("one")
    assert found.status == "settled" and not found.overspent and found.settled == found.reserved
    assert event_from_json(released(found.settled)) == rounds
    assert found.about["epsilon"] == pytest.approx(price(rounds, 1), rel=1e-9)
    assert audit(ledger.rows()).clean
    # Nothing is left of that share: the next training is charged round by round.
    second = plan_of(CENTRAL, flags.replace("one", "two"))
    with suppress(KeyboardInterrupt), train.charged(second, Console(quiet=True)) as (charge, _):
        assert not charge.whole
        raise KeyboardInterrupt
