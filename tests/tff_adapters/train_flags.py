"""Flags of small trainings, their plans, and a ledger that they are charged to."""

from __future__ import annotations

from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.training.facts import bundled_facts
from beam_ldp.training.plans import make_plan
from beam_ldp.training.settings import check_train
from beam_ldp.training.usage import USAGE

QUICK = "--data digits --local-epsilon 4 --clients-per-round 20 --epochs 1 --delta 1e-5"


def plan_of(text):
    given = read_flags(USAGE, text.split())
    settings = check_train(given)
    return make_plan(
        settings, bundled_facts(settings.question.data, settings.question.points_per_client)
    )


def charged_flags(tmp_path):
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    ledger.set_budget("d", epsilon=90.0, delta=1e-5, local_epsilon=1000.0)
    out = tmp_path / "out"
    flags = f"{QUICK} --no-mlflow --dataset d --run-id one --ledger {ledger.url} --output {out}"
    return ledger, flags.split()
