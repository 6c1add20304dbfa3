"""`beam-ldp train` before it trains: flags, plan, prices, charges. Needs no TensorFlow."""

from __future__ import annotations

import json
import math
import re
import sys
from types import SimpleNamespace

import attr
import dp_accounting
import pytest
from rich.console import Console
from scipy import stats

from beam_ldp.accounting import ShuffleAccountant, SubsampledShuffledDpEvent, local_event
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.federated.record import covers
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import job_runs, programs, train
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.questions.forging import forged_list, forged_usually
from beam_ldp.randomizers.mean import LInfMean, PrivUnit
from beam_ldp.release.gates import NothingReleasedError
from beam_ldp.release.statement import statement
from beam_ldp.settings import SettingError
from beam_ldp.training.charge import TrainingRun, charged, settlement
from beam_ldp.training.facts import (
    DataFacts,
    bundled_facts,
    count_parameters,
    known_facts,
)
from beam_ldp.training.plans import make_plan, mechanism_for
from beam_ldp.training.record import make_record
from beam_ldp.training.settings import check_train
from beam_ldp.training.usage import USAGE
from beam_ldp.training.view import plan_line, say_plan
from beam_ldp.wording import number
from tests.idx_files import write_folder

USUAL = "--data mnist5k --local-epsilon 2 --clients-per-round 200 --epochs 30 --delta 1e-5"
DRY = f"{USUAL} --dry-run"


def settings_of(text, more=""):
    given = read_flags(USAGE, f"{text} {more}".split())
    return check_train(given)


def plan_of(text, more=""):
    settings = settings_of(text, more)
    return make_plan(
        settings, bundled_facts(settings.question.data, settings.question.points_per_client)
    )


# Flags -----------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    "more, message",
    [
        ("--delta 1.5", r"--delta must lie in \(0, 1\)"),
        ("--epsilom 1", "unknown flag --epsilom"),
        ("--runner DirectRunner", "unknown flag --runner"),
        ("--learning-rate 1:3,2:2,1", "--learning-rate must be"),
        ("--learning-rate 0", "--learning-rate must be"),
        ("--baselines non-private,central-dp", "must be among non-private, local-only, got"),
        ("--points-sampled 2", "--points-sampled must be at most --points-per-client"),
        ("--sampling full", "takes no --clients-per-round"),
        ("--sampling self --points-per-client 2 --points-sampled 2", "must be 1 with"),
        ("--sampling shuffled-epochs --points-per-client 2 --points-sampled 2", "must be 1 with"),
        ("--algorithm fedavg --points-per-client 4 --points-sampled 2", "is for cldp-sgd"),
        ("--label y", "--label is for files, not for the bundled data mnist5k"),
        ("--shape 28", "--shape is for files"),
        ("--ledger a --no-ledger", "exclude each other"),
        ("--ledger sqlite:///x.db", "--dataset must name"),
        ("--points-per-client 4 --privacy-unit user", "--privacy-unit must be example"),
    ],
)
def test_refused_flags(more, message):
    with pytest.raises(SettingError, match=message):
        settings_of(DRY, more)


@pytest.mark.exact
@pytest.mark.parametrize(
    "more, message",
    [
        ("--local-epsilon 50 --trust-shuffler", r"local_epsilon must lie in \(0, 30\]"),
        ("--epochs 1e30", r"rounds must lie in \[1, 1e9\]"),
        ("--local-epsilon 1e-310", "local_epsilon must be at least 1e-09"),
    ],
)
def test_what_has_no_price_is_refused_before_anything_runs(more, message):
    with pytest.raises(SettingError, match=message):
        plan_of(DRY, more)


@pytest.mark.exact
@pytest.mark.parametrize("missing", ["--data", "--local-epsilon", "--epochs", "--delta"])
def test_missing_flags_are_named(missing):
    words = DRY.split()
    at = words.index(missing)
    with pytest.raises(SettingError, match=f"{missing} is missing"):
        settings_of(" ".join(words[:at] + words[at + 2 :]))
    with pytest.raises(SettingError, match="--output is missing"):
        settings_of(USUAL)


@pytest.mark.exact
def test_files_need_their_columns(tmp_path):
    (tmp_path / "rows.csv").write_text("a,y\n")
    text = DRY.replace("mnist5k", str(tmp_path / "rows.csv"))
    with pytest.raises(SettingError, match="--features is missing"):
        settings_of(text)
    with pytest.raises(SettingError, match="a file or folder that exists"):
        settings_of(DRY.replace("mnist5k", "mnist6k"))
    found = settings_of(text, "--features a,b --label y --classes 2 --shape 28x28")
    assert (found.question.features, found.shape) == (("a", "b"), (28, 28, 1))


# Folders of IDX files ----------------------------------------------------------------------------


IDX = "--local-epsilon 2 --clients-per-round 20 --epochs 3 --delta 1e-5 --dry-run"


@pytest.mark.exact
def test_idx_files_are_planned_from_their_headers(tmp_path, capsys):
    """Like data of a name: sizes and price are known, and a dry run needs no TensorFlow."""
    folder = write_folder(tmp_path / "images", 60, 20, ".gz")
    settings = settings_of(f"--data {folder} {IDX} --points-per-client 2 --shards-per-client 2")
    assert settings.dealt and not settings.bundled
    assert settings.one_report_per == "client, of whose points one is protected"
    assert known_facts(settings) == DataFacts(30, 2, (8, 8, 1), 10, 20)
    told = f"--data {folder} {IDX} --format json"
    assert train.main(told.split()) == programs.DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["rounds"], found["model"]) == (9, "logistic") and "tensorflow" not in sys.modules
    named = settings_of(f"--data {folder} {IDX} --classes 12")
    assert known_facts(named).num_classes == 12


@pytest.mark.exact
def test_a_folder_with_other_images_is_another_training(tmp_path):
    """A training that goes on beside fewer or larger images would cost something else."""
    first, fewer, larger = (
        settings_of(f"--data {write_folder(tmp_path / name, count, 20, side=side)} {IDX}")
        for name, count, side in (("a", 60, 8), ("b", 50, 8), ("c", 60, 9))
    )
    one, *others = (make_plan(s, known_facts(s)).identity("x") for s in (first, fewer, larger))
    again = make_plan(first, known_facts(first)).identity("x")
    assert one == again and all(one != other for other in others)


@pytest.mark.exact
@pytest.mark.parametrize(
    "more, message",
    [
        ("--features a", "--features is for other files than the IDX files"),
        ("--scale 255", "--scale is for other files"),
        ("--test-data x", "--test-data is for other files"),
        ("--bad-rows drop", "--bad-rows is for other files"),
        ("--classes 1", "--classes must be >= 2"),
    ],
)
def test_flags_that_idx_files_have_no_use_for(tmp_path, more, message):
    folder = write_folder(tmp_path / "images")
    with pytest.raises(SettingError, match=message):
        settings_of(f"--data {folder} {IDX} {more}")


@pytest.mark.exact
def test_idx_files_that_are_wrong_are_a_wrong_flag(tmp_path, capsys):
    folder = write_folder(tmp_path / "images")
    told = f"--data {folder} {IDX} --points-per-client 61"
    with pytest.raises(SettingError, match="--points-per-client must be at most 60"):
        known_facts(settings_of(told))
    (folder / "train-labels-idx1-ubyte").unlink()
    assert train.main(f"--data {folder} {IDX}".split()) == programs.MISUSED
    assert "--data: " in (said := " ".join(capsys.readouterr().err.split())), said
    assert "no file of train labels" in said


@pytest.mark.exact
def test_rates_by_epoch_and_the_unit_that_is_protected():
    found = settings_of(DRY, "--learning-rate 12:30,4:60,3.5")
    assert found.rates == (((12.0, 30), (4.0, 60)), 3.5)
    assert found.charge.privacy_unit == "user"
    assert settings_of(DRY, "--points-per-client 4").charge.privacy_unit == "example"
    assert (
        settings_of(DRY, "--algorithm fedavg --points-per-client 4").charge.privacy_unit == "user"
    )


# The plan --------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    "text, digest",
    [
        (DRY, "486bf286a13679105ae7cee4b85c77d76a82315bbedb4bbcbf05d5b92ebe0d86"),
        (
            "--data digits --local-epsilon 2 --clients-per-round 20 --epochs 3 --delta 1e-5 "
            "--norm linf --learning-rate 12:30,4:60,3.5 --points-per-client 4 --dry-run "
            "--shards-per-client 2",
            # c4f1245d... when gradients were scaled onto the ball: clipped otherwise, another one
            "308a83b626d9d7fd068a8cc7334852ebb1b0e7ab160ebe4bef1212a59f27be1b",
        ),
        (
            "--data digits --algorithm adaped --preset printed --psi-range 1:9 --psi 3 --dry-run "
            "--points-per-client 20 --clients-per-round 20 --epochs 5 --noise-multiplier 4 "
            "--psi-noise-multiplier 3 --delta 1e-5",
            "469e8fa723cabbe3325ccf76950e2b15ca8f3a4cd7fdfe5b1b978900743b5555",
        ),
    ],
)
def test_a_training_is_the_same_one_in_the_next_version(text, digest):
    """Or its name in a ledger would be taken by another release."""
    assert plan_of(text).identity("r").digest.hex() == digest


@pytest.mark.exact
def test_parameters_of_the_papers_networks():
    """The printed 13,170 fits neither."""
    shape = (28, 28, 1)
    counts = {m: count_parameters(m, shape, 10) for m in ("cnn-16", "cnn-32", "cnn-papernot")}
    assert counts == {"cnn-16": 13_706, "cnn-32": 13_722, "cnn-papernot": 26_010}
    with pytest.raises(SettingError, match="16 x 16"):
        count_parameters("cnn-16", (8, 8, 1), 10)


@pytest.mark.exact
def test_the_papers_run_costs_5_8_by_the_thesis_and_below_0_9_here():
    """Fig 5.7 (l2): n = 60,000, k = 2,000, eps0 = 2, 200 epochs, delta = 1e-5."""
    text = "--data mnist --local-epsilon 2 --clients-per-round 2000 --epochs 200 --delta 1e-5"
    plan = plan_of(text, "--dry-run")
    point = plan.price_after(plan.rounds)
    assert plan.rounds == 6000
    assert point.thesis == pytest.approx(5.795, abs=5e-3)
    assert point.any_mechanism == pytest.approx(0.882, abs=2e-3)
    assert point.epsilon < point.any_mechanism < 0.9


@pytest.mark.exact
def test_price_is_the_accountants_of_the_declared_run():
    plan = plan_of(DRY, "--epochs 2 --norm linf")
    mechanism = LInfMean(13_706, 2.0, radius=0.01, messages=(1,), message_epsilons=(2.0,))
    event = SubsampledShuffledDpEvent(local_event(mechanism), 4000, 200)
    assert plan.event == event and plan.rounds == 40
    expected = ShuffleAccountant().compose(event, 40).get_epsilon(1e-5)
    assert float(plan.epsilon_of(40)) == float(expected)
    assert plan.local_epsilon_of(40) == 80.0


@pytest.mark.exact
@pytest.mark.parametrize(
    "more, sizes",
    [
        ("--sampling self", (4000, 200, 1, 1, "self")),
        ("--sampling shuffled-epochs", (4000, 200, 1, 1, "shuffled_epochs")),
        ("--points-per-client 4 --points-sampled 2", (1000, 200, 4, 2, "without_replacement")),
        ("--algorithm fedavg --points-per-client 4", (1000, 200, 1, 1, "without_replacement")),
    ],
)
def test_the_sampling_that_is_used_is_what_is_priced(more, sizes):
    event = plan_of(DRY, more).event
    assert (
        event.num_users, event.num_drawn, event.points_per_client, event.points_sampled,
        event.sampling,
    ) == sizes  # fmt: skip


@pytest.mark.exact
def test_everybody_in_every_round_is_a_plain_shuffle():
    text = DRY.replace("--clients-per-round 200", "--sampling full")
    plan = plan_of(text)
    assert plan.event.num_reports == 4000 and plan.rounds == 30
    assert plan.seen_epsilon_of(30) is None


@pytest.mark.exact
def test_the_target_ends_the_plan_on_the_exact_round():
    plan = plan_of(DRY, "--epsilon 0.5")
    accountant = ShuffleAccountant().compose(plan.event, plan.rounds)
    assert 0 < plan.rounds < plan.planned_rounds
    assert float(accountant.get_epsilon(1e-5)) <= 0.5
    assert accountant.would_exceed(plan.event, epsilon=0.5, delta=1e-5)
    assert float(accountant.compose(plan.event).get_epsilon(1e-5)) > 0.5


@pytest.mark.exact
@pytest.mark.parametrize("more", ["", "--clip adaptive", "--mechanism L2Mean --local-epsilon 4"])
def test_an_epoch_is_priced_and_cut_as_a_whole(more):
    """Of 4,000 clients 300 are in a round: 13 rounds are an epoch, and 100 clients left out."""
    flags = f"--clients-per-round 300 --sampling shuffled-epochs {more}"
    plan = plan_of(DRY, flags)
    assert (plan.rounds_per_epoch, plan.rounds) == (13, 390) and plan.event.whole_epoch == 13
    expected = ShuffleAccountant().compose(plan.event, 30).get_epsilon(1e-5)
    assert float(plan.epsilon_of(390)) == float(plan.epsilon_of(378)) == float(expected)
    assert plan.local_epsilon_of(390) == pytest.approx(30 * plan.report_epsilon)
    cut = plan_of(DRY, f"{flags} --epsilon {(plan.epsilon_of(26) + plan.epsilon_of(27)) / 2}")
    assert cut.rounds == 26
    if not more:
        whole = ShuffleAccountant().compose(local_event(plan.mechanism).shuffled(300), 30)
        assert plan.seen_epsilon_of(390) == pytest.approx(float(whole.get_epsilon(1e-5)))


@pytest.mark.exact
def test_a_target_below_one_round_trains_nothing():
    with pytest.raises(NothingReleasedError, match="does not allow one round, which costs"):
        plan_of(DRY, "--epsilon 1e-6")


@pytest.mark.exact
def test_plans_that_do_not_fit_the_data():
    with pytest.raises(SettingError, match="--clients-per-round must be at most 4,000"):
        plan_of(DRY, "--clients-per-round 4001")
    with pytest.raises(SettingError, match="shuffled-epochs needs fewer --clients-per-round"):
        plan_of(DRY, "--clients-per-round 4000 --sampling shuffled-epochs")
    with pytest.raises(SettingError, match="--mechanism must be auto or one of LInfMean"):
        plan_of(DRY, "--norm linf --mechanism PrivUnit")
    facts = DataFacts(100, 3, (5,), 2, 0)
    with pytest.raises(SettingError, match="--points-per-client must be at most 3"):
        make_plan(settings_of(DRY, "--points-per-client 4 --clients-per-round 10"), facts)


@pytest.mark.exact
def test_mechanisms_send_one_message_of_the_local_epsilon():
    for norm in ("l2", "linf", "l1"):
        mechanism = mechanism_for(settings_of(DRY, f"--norm {norm} --clip 0.5"), 650)
        assert (mechanism.local_epsilon, mechanism.radius) == (2.0, 0.5)
        assert mechanism.messages_per_user == 1
    assert isinstance(mechanism_for(settings_of(DRY), 650), PrivUnit)


# Identity --------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    "more",
    [
        "--epochs 31", "--epsilon 0.5", "--delta 1e-6", "--output elsewhere",
        "--run-id two", "--format json",
    ],
)  # fmt: skip
def test_how_long_and_where_to_is_the_same_training(more):
    assert plan_of(DRY, more).identity("one") == plan_of(DRY).identity("one")


@pytest.mark.exact
@pytest.mark.parametrize(
    "more",
    [
        "--clip 0.006", "--norm linf", "--local-epsilon 2.5", "--model logistic",
        "--mechanism PrivUnitGaussian", "--clients-per-round 100", "--sampling self",
        "--learning-rate 0.3", "--algorithm fedavg", "--clip adaptive", "--dataset other",
        "--points-per-client 2", "--points-per-client 2 --points-sampled 2",
        "--algorithm fedavg --batch-size 7",
    ],
)  # fmt: skip
def test_another_question_is_another_training(more):
    usual = plan_of(DRY).identity("one")
    other = plan_of(DRY, more).identity("one")
    assert other.digest != usual.digest and other.question != usual.question


@pytest.mark.exact
def test_an_identity_says_what_is_trained_and_never_where_its_data_lies(tmp_path):
    plan = plan_of(DRY)
    identity = plan.identity("one")
    assert identity.columns == ("train", "cldp-sgd", "cnn-16") and identity.release_id == "one"
    # What clients are asked, however their messages travel.
    assert identity.mechanism == plan.mechanism.unrounded.config_digest().hex()
    assert identity.dataset == "mnist5k" and identity.privacy_unit == "user"
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"")
    own = (
        f"--data {path} --client-id uid --features f* --label y --classes 2 --local-epsilon 2 "
        "--clients-per-round 5 --epochs 1 --delta 1e-5 --dry-run"
    )
    assert settings_of(own).dataset == "unnamed"
    assert settings_of(own, "--dataset people").dataset == "people"


@pytest.mark.e2e
def test_a_training_under_a_name_that_is_taken_is_refused(tmp_path):
    """By the reservation, before anything is trained; what is charged stays as it was."""
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    ledger.set_budget("d", epsilon=99.0, delta=1e-5, local_epsilon=1e5)
    text = f"{USUAL} --dataset d --run-id one --no-mlflow --ledger {ledger.url} --output x"
    plan = plan_of(text)
    with charged(plan, Console(quiet=True)) as (charge, run):
        run.begun = 2
        charge.settle(settlement(plan, charge, run))
    first = BudgetLedger(ledger.url).charge("one")
    assert first.identity == plan.identity("one") and first.status == "settled"
    assert first.about["one_report_per"] == "client, as the data is dealt out"
    spent = BudgetLedger(ledger.url).status("d").local_spent
    for more in ("", "--clip 0.006", "--model logistic", "--local-epsilon 1.5"):
        with pytest.raises(SettingError), charged(plan_of(text, more), Console(quiet=True)):
            raise AssertionError("it began")
    assert BudgetLedger(ledger.url).status("d").local_spent == spent == 4.0


# The program -----------------------------------------------------------------------------------


@pytest.mark.exact
def test_a_dry_run_prints_all_accountants(capsys):
    assert train.main([*DRY.split(), "--format", "json", "--epochs", "3"]) == programs.DONE
    told = json.loads(capsys.readouterr().out)
    assert told["parameters"] == 13_706 and told["rounds"] == 60
    last = told["costs"][-1]
    assert last["epsilon"] == pytest.approx(told["epsilon"])
    assert last["epsilon"] < last["any_mechanism"] < last["thesis"]
    assert told["epsilon"] < told["epsilon_seen"]
    assert told["flows"] is None, "nothing to read them from: tests/tff_adapters has them"


@pytest.mark.exact
def test_a_dry_run_for_people(capsys):
    assert train.main([*DRY.split(), "--epsilon", "0.2", "--epochs", "5"]) == programs.DONE
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "of 100: the target of 0.2 ends it" in out
    assert "Theorem 5.4.1" in out and "who also see who took part" in out
    assert "What leaves a client is taken from the computation, which needs TensorFlow" in out


@pytest.mark.exact
def test_a_job_file_with_the_command_line_winning(tmp_path, capsys):
    path = tmp_path / "train.yaml"
    path.write_text(
        "program: train\ntraining: {data: mnist5k, clients_per_round: 200, epochs: 9}\n"
        "privacy: {local_epsilon: 2, delta: 1e-5}\n"
    )
    flags = [str(path), "--epochs", "2", "--format", "json", "--dry-run"]
    assert job_runs.main(flags) == programs.DONE
    assert json.loads(capsys.readouterr().out)["planned_rounds"] == 40


@pytest.mark.exact
def test_without_tensorflow_it_says_what_to_do(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(train.importlib.util, "find_spec", lambda name: None)
    flags = [*USUAL.split(), "--output", str(tmp_path / "out")]
    assert train.main(flags) == programs.MISUSED
    assert "`make tff`" in " ".join(capsys.readouterr().err.split())
    assert train.main([*DRY.split(), "--epochs", "1"]) == programs.DONE


@pytest.mark.exact
@pytest.mark.parametrize("more, code", [("--delta 2", 2), ("--epsilon 1e-7", 3)])
def test_exit_codes(more, code, capsys):
    assert train.main([*DRY.split(), *more.split()]) == code
    assert capsys.readouterr().err.strip()


# The charge ------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path):
    found = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    found.set_budget("d", epsilon=4.0, delta=1e-5, local_epsilon=200.0)
    return found


def charged_plan(ledger, more=""):
    return plan_of(USUAL, f"--output x --epochs 2 --dataset d --ledger {ledger.url} {more}")


@pytest.mark.exact
def test_all_rounds_are_reserved_and_those_that_ran_are_settled(ledger):
    plan = charged_plan(ledger, "--run-id first")
    with pytest.raises(KeyboardInterrupt), train.charged(plan, Console(quiet=True)) as (_, run):
        assert BudgetLedger(ledger.url).status("d").local_committed == 80.0  # 40 of 2
        run.begun = 7
        raise KeyboardInterrupt
    assert BudgetLedger(ledger.url).status("d").local_committed == 14.0
    event = event_to_json(dp_accounting.SelfComposedDpEvent(plan.event, 7))
    unfinished = TrainingRun(plan.identity("first"), 7)
    told = settlement(plan, SimpleNamespace(facts={"run_id": "first"}, whole=False), unfinished)
    assert told["event"] == event == plan.round_price.event_of(7)
    assert told["local_event"] is None and told["proof"] == "7 rounds began"


@pytest.mark.exact
def test_an_epoch_that_began_is_settled_whole(ledger):
    plan = charged_plan(ledger, "--run-id first --sampling shuffled-epochs --epochs 3")
    with pytest.raises(KeyboardInterrupt), train.charged(plan, Console(quiet=True)) as (_, run):
        assert BudgetLedger(ledger.url).status("d").local_committed == 6.0
        run.begun = 40  # of 60 rounds, 20 in an epoch
        raise KeyboardInterrupt
    assert BudgetLedger(ledger.url).status("d").local_committed == 4.0
    two = event_to_json(dp_accounting.SelfComposedDpEvent(plan.event, 2))
    assert plan.stored_event_of(40) == two == plan.round_price.event_of(2)


@pytest.mark.exact
def test_nothing_is_spent_where_no_round_began(ledger):
    plan = charged_plan(ledger)
    with pytest.raises(RuntimeError), train.charged(plan, Console(quiet=True)):
        raise RuntimeError
    assert BudgetLedger(ledger.url).status("d").local_committed == 0.0


@pytest.mark.exact
def test_a_budget_that_is_too_small_is_refused_before_anything_runs(ledger):
    plan = charged_plan(ledger, "--epochs 6")  # local epsilons: 120 rounds x 2 > 200
    with pytest.raises(NothingReleasedError), train.charged(plan, Console(quiet=True)):
        raise AssertionError("must not be reached")


@pytest.mark.exact
def test_a_budget_of_users_is_no_budget_of_examples(ledger):
    plan = charged_plan(ledger, "--points-per-client 4 --epochs 1")
    with (
        pytest.raises(SettingError, match="protects one user"),
        train.charged(plan, Console(quiet=True)),
    ):
        raise AssertionError("must not be reached")


# The record ------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    "more",
    [
        "", "--sampling self", "--points-per-client 4 --epsilon 1",
        "--sampling shuffled-epochs",
        "--sampling shuffled-epochs --clip adaptive --norm linf",
    ],
)  # fmt: skip
def test_record_and_statement(more):
    plan = plan_of(USUAL, f"--output x --epochs 2 {more}")
    measured = SimpleNamespace(rounds=plan.rounds, loss=1.0, accuracy=0.5, personal=math.nan)
    run = TrainingRun(
        plan.identity("first"),
        plan.rounds,
        [(measured, 0.1)],
        {"a": {"b": {"bits_per_client": 99}}},
    )
    record = make_record(plan, 0, run, SimpleNamespace(facts={"charged": "no: test"}))
    told = record.to_json()
    json.dumps(told, allow_nan=False)
    price = float(plan.epsilon_of(plan.rounds))
    assert price <= told["epsilon"] <= float(number(1.0005 * price))  # as certified
    assert told["local_epsilon"] == plan.events_of(plan.rounds) * 2.0
    assert told["report_epsilon"] == 2.0
    assert told["bits_per_client"] == 99 and told["test_accuracy"] == 0.5
    text = statement(record.told())
    assert "That a client took part is not protected" in text
    assert "not cryptographic" in text and "not charged to any budget" in text
    unit = "one of the 4 data points" if "4" in more else "all data of a client"
    assert unit in text
    assert ("By the theorem of the thesis" in text) == ("self" not in more)
    assert ("whoever was in every epoch" in text) == ("epochs" in more)
    assert ("composed among those drawn, and then sampled" in text) == ("adaptive" in more)


# Clients who stay away ---------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("sampling", ["fixed", "shuffled-epochs"])
def test_rounds_are_priced_as_those_of_the_fewest_who_may_come(sampling):
    plan = plan_of(DRY, f"--least-clients 140 --sampling {sampling}")
    whole = plan_of(DRY, f"--sampling {sampling}")
    assert plan.event == attr.evolve(whole.event, num_received=140)
    assert float(whole.epsilon_of(600)) < float(plan.epsilon_of(600))
    assert plan.seen_epsilon_of(600) > whole.seen_epsilon_of(600)
    point = plan.price_after(600)
    assert point.epsilon < point.any_mechanism and point.thesis is None
    assert plan.identity("r") == whole.identity("r")  # nobody is asked anything else
    assert covers(plan.event, whole.event) and not covers(whole.event, plan.event)


@pytest.mark.exact
def test_everybody_may_stay_away_too_and_a_bit_comes_with_its_report():
    plan = plan_of("--data mnist5k --local-epsilon 2 --sampling full --epochs 3 --delta 1e-5 "
                   "--least-clients 3000 --dry-run")  # fmt: skip
    assert plan.event.num_reports == 3_000
    both = plan_of(f"{DRY} --clip adaptive --least-clients 150")
    assert both.event.num_received == 150
    with pytest.raises(SettingError, match="--least-clients must be at most 4,000, the clients"):
        plan_of("--data mnist5k --local-epsilon 2 --sampling full --epochs 3 --delta 1e-5 "
                "--least-clients 4001 --dry-run")  # fmt: skip


@pytest.mark.exact
def test_what_a_round_falls_short_of_once_in_a_billion():
    plan = plan_of(DRY, "--dropout 0.3")
    k = plan.least_clients
    assert stats.binom.cdf(k - 1, 200, 0.7) < 1e-9 <= stats.binom.cdf(k, 200, 0.7)
    assert plan.event.num_received == k
    assert plan_of(DRY, "--dropout 0.3 --least-clients 150").least_clients == 150
    assert plan_of(DRY).least_clients == 200


@pytest.mark.exact
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--dropout 1", r"--dropout must lie in \[0, 1\)"),
        ("--dropout -0.1", r"--dropout must lie in \[0, 1\)"),
        ("--least-clients 201", "--least-clients must be at most --clients-per-round, 200"),
        ("--least-clients 0", "--least-clients"),
        ("--sampling self --dropout 0.2", "are not for --sampling self"),
        ("--sampling self --least-clients 10", "are not for --sampling self"),
        ("--algorithm local-central --least-clients 10", "--least-clients is for cldp-sgd"),
    ],
)
def test_dropouts_that_have_no_price_are_refused(more, message):
    with pytest.raises(SettingError, match=message):
        settings_of(DRY, more)


@pytest.mark.exact
def test_a_record_says_who_may_have_stayed_away_and_what_was_not_released():
    plan = plan_of(DRY, "--least-clients 140")
    scored = SimpleNamespace(rounds=17, loss=1.0, accuracy=0.5, personal=math.nan)
    run = TrainingRun(plan.identity("r"), 20, [(scored, 0.1)], lost=1, withheld=2, stopped="failed")
    record = make_record(plan, 0, run, SimpleNamespace(facts={"charged": "no: test"}))
    assert (record.least_clients, record.withheld_rounds, record.lost_rounds) == (140, 2, 1)
    assert record.honest_reports == record.min_reports == 140 and record.compression == 4
    text = statement(record.told())
    assert "of whom at least 140 came" in text
    assert "depends neither on its data nor on who else was drawn" in text
    assert "at least as large a share could have come as did of those drawn" in text
    assert "2 of the rounds that are charged were not released: fewer than 140" in text
    assert "1 of the rounds that are charged began and was lost" in text
    assert "the model is that after 17 of them" in text


@pytest.mark.exact
def test_one_is_not_said_as_many(capsys):
    """A training of one round, withheld, of clients with one data point, one of whom must come."""
    plan = plan_of(DRY.replace("--clients-per-round 200 --epochs 30", "--sampling full --epochs 1"),
                   "--least-clients 1")  # fmt: skip
    scored = SimpleNamespace(rounds=1, loss=1.0, accuracy=0.5, personal=math.nan)
    run = TrainingRun(plan.identity("r"), 1, [(scored, 0.1)], emptied=1)
    record = make_record(plan, 0, run, SimpleNamespace(facts={"charged": "no: test"}))
    text = statement(record.told())
    say_plan(plan, None)
    said = f"{text} {plan_line(plan)} {capsys.readouterr().out}"
    assert "charged was not released: the check left fewer than 1 report" in said
    assert "1 round of 1 planned" in said and "1 of 1 data point" in said
    assert not re.findall(
        r"(?<![\d,.])1 (?:honest )?(?:rounds|clients|reports|data points)\b", said
    )


@pytest.mark.exact
def test_the_rest_of_an_epoch_that_ends_early_is_said():
    """Of an epoch of 20 rounds 5 are in the model, too few came to the sixth, and 14 never ran."""
    plan = plan_of(DRY, "--least-clients 140 --sampling shuffled-epochs")
    scored = SimpleNamespace(rounds=5, loss=1.0, accuracy=0.5, personal=math.nan)
    run = TrainingRun(plan.identity("r"), 20, [(scored, 0.1)], lost=14, withheld=1)
    run.stopped = "too few"
    record = make_record(plan, 0, run, SimpleNamespace(facts={"charged": "no: test"}))
    assert (record.rounds, record.withheld_rounds, record.lost_rounds) == (20, 1, 14)
    text = statement(record.told())
    assert "too few clients came to a round of an epoch: the model is that after 5 of" in text
    assert "1 of the rounds that are charged was not released: fewer than 140" in text
    assert (
        "14 of the rounds that are charged were lost or never ran, since an epoch is charged whole"
        in text
    )


@pytest.mark.exact
def test_plan_record_and_statement_say_how_far_liars_move_a_round():
    """1 % of a round: a hundredth of the longest report and of an honest one that points away."""
    plan = plan_of(DRY)
    assert plan.forged["0.01"] == pytest.approx(0.01 * plan.mechanism.reach)
    assert plan.forged["0.01"] > 0.01 * (0.005 / plan.mechanism.marginal)
    assert "of a round move its mean by up to" in plan.forged_words
    scored = SimpleNamespace(rounds=5, loss=1.0, accuracy=0.5, personal=math.nan)
    metrics = {"shuffle": {"impossible": 3}}
    run = TrainingRun(plan.identity("r"), 5, [(scored, 0.1)], metrics, stopped="failed")
    record = make_record(plan, 0, run, SimpleNamespace(facts={"charged": "no: test"}))
    assert record.forged == plan.forged and record.dropped_reports == 3
    text = statement(record.told())
    assert "is dropped and counted" in text and plan.forged_words in text
    assert "clipping norm" in plan_of(f"{DRY} --clip adaptive").forged_words


CHECKED = f"{DRY} --least-clients 150 --drop-colluders"


@pytest.mark.exact
def test_plan_record_and_statement_say_what_is_left_out_and_what_that_bounds():
    plan = plan_of(CHECKED)
    usual = forged_usually(plan.check, 200)
    assert usual["0.05"] < plan.forged["0.05"] / 2 and usual["0.001"] == plan.forged["0.001"]
    assert f"are left out: then by about {forged_list(usual)}" in plan.forged_words
    scored = SimpleNamespace(rounds=5, loss=1.0, accuracy=0.5, personal=math.nan)
    metrics = {"mean": {"reports": 190}, "shuffle": {"colluding": 9, "agreement": 0.125}}
    run = TrainingRun(plan.identity("r"), 5, [(scored, 0.1)], metrics, stopped="failed")
    record = make_record(plan, 0, run, SimpleNamespace(facts={"charged": "no: test"}))
    assert record.colluding_reports == 9
    moved = (math.sqrt(9.5) * 0.125 + 9.5 * 0.005) / 190
    assert record.forged_checked["0.05"] == pytest.approx(moved)
    text = statement(record.told())
    assert "left out, 9 in the last round. Whichever of its others were forged, that many" in text
    assert forged_list(record.forged_checked) in text


@pytest.mark.exact
def test_a_check_is_no_other_price_and_another_training():
    """What is made of reports costs nothing; under one name there is one way of making it."""
    plain, checked = plan_of(f"{DRY} --least-clients 150"), plan_of(CHECKED)
    assert checked.event == plain.event and checked.epsilon_of(9) == plain.epsilon_of(9)
    assert checked.identity("a") != plain.identity("a") == plan_of(DRY).identity("a")
    assert checked.identity("a") == plan_of(CHECKED, "--epochs 3").identity("a")


@pytest.mark.exact
@pytest.mark.parametrize(
    "more, message",
    [
        ("--least-clients 200", "needs --least-clients below the clients of a round"),
        ("--least-clients 150 --norm linf", "--drop-colluders: .* as PrivUnit does: LInfMean"),
        ("--least-clients 150 --mechanism L2Mean", "as PrivUnit does: L2Mean"),
        ("--least-clients 150 --clip adaptive", "does not go with --clip adaptive"),
        (
            "--least-clients 150 --points-per-client 4 --points-sampled 2",
            "--drop-colluders needs --points-sampled 1",
        ),
        (
            "--algorithm adaped --noise-multiplier 3",
            "--drop-colluders is for cldp-sgd and fedavg",
        ),
    ],
)
def test_trainings_without_a_check_are_refused(more, message):
    with pytest.raises(SettingError, match=message):
        plan_of(f"{DRY} --drop-colluders", more)
