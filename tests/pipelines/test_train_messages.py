"""`beam-ldp train --messages`: what several messages of a report cost, and in which training."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
from rich.console import Console

from beam_ldp.accounting import ShuffleAccountant, local_event, shuffled_event
from beam_ldp.federated.samplers import DeclaredSampling
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import programs, train
from beam_ldp.randomizers.mean import BinaryVectorMean, L1Mean, L2Mean, LInfMean
from beam_ldp.release.statement import statement
from beam_ldp.settings import SettingError
from beam_ldp.training.charge import TrainingRun, charged, settlement
from beam_ldp.training.plans import mechanism_for
from beam_ldp.training.record import make_record
from tests.pipelines.test_train_plan import plan_of, settings_of

USUAL = "--data digits --local-epsilon 8 --epochs 20 --delta 1e-5"
LINF = f"{USUAL} --clients-per-round 240 --norm linf --dry-run"
N, K = 1437, 240

pytestmark = pytest.mark.exact


def four(epsilon=8.0):
    share = epsilon / 4
    return LInfMean(650, epsilon, radius=0.01, messages=(4,), message_epsilons=(share,))


# Prices ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampling", "kind", "least"),
    [("fixed", "without_replacement", None), ("self", "self", None),
     ("shuffled-epochs", "shuffled_epochs", None), ("fixed", "without_replacement", 200)],
)  # fmt: skip
def test_a_dry_run_has_the_price_of_all_columns_of_one_sample(sampling, kind, least, capsys):
    few = f"--least-clients {least}" if least else ""
    flags = f"{LINF} --messages 4 --sampling {sampling} {few} --format json"
    assert train.main(flags.split()) == programs.DONE
    told = json.loads(capsys.readouterr().out)
    declared = DeclaredSampling(N, K, sampling=kind, least_received=least)
    accountant = ShuffleAccountant()
    rounds = told["rounds"]
    event = declared.event(local_event(four()), 1, K - least if least else 0)
    accountant.compose(event, 20 if sampling == "shuffled-epochs" else rounds)
    assert told["epsilon"] == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-12)
    assert event.local_event.columns == ((4, pytest.approx(2.0, rel=1e-14)),)
    assert told["bits_per_report"] == 36  # places in blocks of 163, and a bit, four times
    # Of the same local epsilon: far below one message. Of one column alone: more.
    at = f"{LINF} --sampling {sampling} {few}"
    assert told["epsilon"] < 0.2 * float(plan_of(at).epsilon_of(rounds))
    alone = plan_of(at.replace("epsilon 8", "epsilon 2"))
    assert told["epsilon"] > float(alone.epsilon_of(rounds))


def test_everybody_s_columns_and_those_of_an_adaptive_clip():
    """The bit about the norm is one column more, of a tenth of the local epsilon."""
    full = plan_of(LINF.replace("--clients-per-round 240", "--sampling full"), "--messages 4")
    assert full.event == shuffled_event(four(), N) and full.pricing_note == ""
    accountant = ShuffleAccountant()
    accountant.compose(full.event, 20)
    assert float(full.epsilon_of(20)) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-9)
    plan = plan_of(LINF, "--messages 4 --clip adaptive")
    local = plan.event.local_event
    bit = BinaryVectorMean(1, 0.8, messages=(1,), message_epsilons=(0.8,))
    assert (plan.bit, local.messages, local.local_epsilon) == (bit, 5, 8.0)
    assert [n for n, _ in local.columns] == [4, 1]
    assert [e for _, e in local.columns] == pytest.approx([1.8, 0.8], rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "name", "counts"),
    [(LInfMean, "linf", (1, 4)), (L1Mean, "l1", (4, 4)), (L2Mean, "l2 --mechanism L2Mean", (4, 4))],
)  # fmt: skip
def test_counts_that_are_chosen_and_counts_that_were_asked_for(kind, name, counts):
    """Not told, a vector of linf goes in one message; four err least at 8 (tests of means)."""
    text = LINF.replace("linf", name)
    usual, asked = plan_of(text).mechanism, plan_of(text, "--messages 4").mechanism
    assert (usual.messages_per_user, asked.messages_per_user) == counts
    assert type(usual) is type(asked) is kind and usual.local_epsilon == asked.local_epsilon == 8.0
    chosen = kind(650, 8.0, radius=asked.radius)
    assert asked.message_epsilons == pytest.approx(chosen.message_epsilons, rel=1e-12)
    errors = [plan_of(text, f"--messages {n}").mechanism.mean_squared_error(240) for n in (2, 4, 9)]
    assert min(errors) == errors[1] == pytest.approx(chosen.mean_squared_error(240), rel=1e-9)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--messages 0", "--messages must be >= 1"),
        ("--messages 651", "--messages must be at most 650, the parameters of the model"),
        ("--messages 1000000000000", "--messages must be at most 650"),
        ("--norm l2 --messages 2", "--messages is for LInfMean, L1Mean and L2Mean, not for Priv"),
        (
            "--norm l2 --algorithm adaped --noise-multiplier 4 --messages 2",
            "--messages is for cldp-sgd and fedavg",
        ),
    ],
)
def test_counts_that_nobody_can_send(more, message):
    with pytest.raises(SettingError, match=message):
        plan_of(LINF, more)


# Pairs of trainings ----------------------------------------------------------------------------


def test_one_message_is_the_training_it_always_was():
    """Its configuration, hence its name's digest, is that of one message of the whole epsilon."""
    usual, told = plan_of(LINF), plan_of(LINF, "--messages 1")
    assert usual.identity("one") == told.identity("one")
    whole = mechanism_for(settings_of(LINF), 650)
    assert (whole.messages, whole.message_epsilons) == ((1,), (8.0,))
    others = {plan_of(LINF, f"--messages {n}").identity("one").digest for n in (1, 2, 4, 16)}
    assert len(others) == 4


def test_another_count_under_the_same_name_is_refused_and_all_messages_are_charged(
    tmp_path,
):
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    ledger.set_budget("d", epsilon=99.0, delta=1e-5, local_epsilon=1e5)
    text = f"{LINF} --dataset d --run-id one --no-mlflow --ledger {ledger.url} --output x"
    text = text.replace("--dry-run ", "")
    plan = plan_of(text, "--messages 4")
    with charged(plan, Console(quiet=True)) as (charge, run):
        run.begun = 2
        charge.settle(settlement(plan, charge, run))
    spent = BudgetLedger(ledger.url).status("d")
    assert spent.local_spent == 16.0  # all four messages, in two rounds
    for count in ("", "--messages 1", "--messages 3", "--messages 4"):
        with pytest.raises(SettingError), charged(plan_of(text, count), Console(quiet=True)):
            raise AssertionError("it began")
    assert BudgetLedger(ledger.url).status("d").local_spent == spent.local_spent
    event = BudgetLedger(ledger.url).charge("one").event
    assert event["event"]["event"]["local_event"]["columns"] == [[4, pytest.approx(2.0)]]


# What is said ----------------------------------------------------------------------------------


def test_plan_record_and_statement_tell_of_the_messages(capsys):
    plan = plan_of(LINF, "--messages 4")
    assert plan.mechanism_words == "LInfMean, local epsilon = 8 in 4 messages"
    assert plan_of(LINF).mechanism_words == "LInfMean, local epsilon = 8"
    # A liar's report is all its messages: as far as a whole one of an honest client reaches.
    assert plan.forged["0.01"] == pytest.approx(0.01 * plan.mechanism.reach)
    assert train.main([*LINF.split(), "--messages", "4"]) == programs.DONE
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "in 4 messages; 36 bits per report" in shown
    assert "the messages of a report come from one sample: composed" in shown
    scored = SimpleNamespace(rounds=5, loss=1.0, accuracy=0.5, personal=math.nan)
    run = TrainingRun(plan.identity("r"), 5, [(scored, 0.1)], {"shuffle": {"impossible": 1}},
                      stopped="failed")  # fmt: skip
    charge = SimpleNamespace(facts={"charged": "no: test"})
    record = make_record(plan, 0, run, charge)
    assert record.bits_per_report == 36 and record.local_epsilon == 40.0
    assert record.mechanism["messages"] == (4,) and record.dropped_reports == 1
    text = statement(record.told())
    assert "a report's messages as made from one sample: composed among those drawn" in text
    one = make_record(plan_of(LINF), 0, run, charge)
    assert "composed among those drawn" not in statement(one.told())
