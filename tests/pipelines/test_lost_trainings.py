"""Trainings whose launcher was lost, and what `finalize` makes of what they left. No TensorFlow."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import dp_accounting
import pytest
from click.testing import CliRunner

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.launcher import Launcher
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines.cli import group
from beam_ldp.release.charging import NoCharge, RunCharge
from beam_ldp.release.interrupted_runs import (
    BEGUN,
    BegunRounds,
    Note,
    RoundsPrice,
    find_interrupted_runs,
)
from tests.ledger.asked import asked

EVENT = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 1000)
PRICE = RoundsPrice(event_to_json(EVENT), None, 10)
DEAD = replace(Launcher.this(), started="1")
pytestmark = pytest.mark.exact


@pytest.fixture
def place(tmp_path, monkeypatch, request):
    """A folder; the training reserved 10 rounds there, or the parameter's: all, and those sent."""
    most, sent = getattr(request, "param", (10, None))
    url = f"sqlite:///{tmp_path / 'privacy.db'}"
    monkeypatch.setenv("BEAM_LDP_LEDGER", url)
    made = BudgetLedger.create(url)
    made.set_budget("visits", epsilon=10.0, delta=1e-6, local_epsilon=100.0)
    worst = dp_accounting.SelfComposedDpEvent(EVENT, most)
    messages = sent and dp_accounting.SelfComposedDpEvent(LocalRandomizerDpEvent(2.0), sent)
    made.reserve("visits", "lost", worst, identity=asked("visits", "lost"), local_event=messages)
    return tmp_path


def leave(place, begun, price=PRICE, launcher=DEAD):
    """A staging folder as a lost training leaves it."""
    staging = place / ".out.staging-0123abcd"
    staging.mkdir()
    if begun is not None:
        counter = BegunRounds(str(staging))
        for _ in range(begun):
            counter.begin()
    Note("lost", BudgetLedger().state.ledger_id, True, launcher, price).write(str(staging))
    return staging


def held():
    ledger = BudgetLedger()
    return RunCharge(ledger, ledger.charge("lost"))


def finalize(place):
    done = CliRunner().invoke(group, ["finalize", f"{place}/out"])
    return done.exit_code, " ".join(done.output.split())


@pytest.mark.parametrize(
    "place, begun, most, local",
    [((10, None), 1, 10, 2.0), ((10, None), 7, 10, 14.0), ((3, None), 7, 3, 6.0)],
    indirect=["place"],
)
def test_rounds_that_began_are_charged(place, begun, most, local):
    leave(place, begun, replace(PRICE, most=most))
    code, said = finalize(place)
    assert code == 0 and f"at the {begun:,} rounds that began" in said
    charge = BudgetLedger().state.charge("lost")
    times = min(begun, most)  # rounds that one person was in at most
    event = EVENT if times == 1 else dp_accounting.SelfComposedDpEvent(EVENT, times)
    assert (charge.status, charge.local_epsilon) == ("settled", local)
    assert charge.settled == event_to_json(event) and charge.about["rounds"] == begun
    assert finalize(place)[0] == 0  # again: nothing more happens
    assert BudgetLedger().state.charge("lost").settled == event_to_json(event)


CHEAP = event_to_json(LocalRandomizerDpEvent(0.01))
RECORD = {"run_id": "lost", "event": CHEAP, "rounds": 3, "mechanism": {"mechanism": "x"}}


@pytest.mark.parametrize("place", [(10, None), (10, 8)], indirect=True)
@pytest.mark.parametrize(
    "changed, local",
    [
        ({"rounds": {"event": CHEAP}}, 6.0),
        ({"rounds": {"sent": CHEAP}}, 6.0),
        ({"rounds": {"most_sent": 1}}, 6.0),
        ({"rounds": {"most": 1}}, None),
        ({"rounds": None}, None),  # as if it were no training, of which nothing was released
        ({}, 6.0),  # a record that was being written: nobody publishes it
    ],
)
def test_no_file_lowers_what_rounds_cost(place, changed, local):
    """The ledger says what it reserved for each; where a file contradicts it, all is charged."""
    staging = leave(place, 3)
    BudgetLedger().begin("lost", rounds=3, attempt=BudgetLedger().charge("lost").attempt)
    note = json.loads((staging / "run.json").read_text())
    for name, value in changed.items():
        note[name] = value if value is None else note[name] | value
    (staging / "run.json").write_text(json.dumps(note))
    partial = place / ".out.partial-0123abcd"
    partial.mkdir()
    (partial / "privacy.json").write_text(json.dumps(RECORD))
    before = BudgetLedger().charge("lost")
    assert finalize(place)[0] == 0
    charge = BudgetLedger().charge("lost")
    rounds = event_to_json(dp_accounting.SelfComposedDpEvent(EVENT, 3))
    assert charge.settled == (before.reserved if local is None else rounds)
    assert charge.local_epsilon == (local or before.reserved_local)


def test_before_the_first_round_everything_is_given_back(place):
    staging = leave(place, 0)
    code, said = finalize(place)
    assert code == 0 and "before a round of its training began" in said
    status = BudgetLedger().status("visits")
    assert (status.committed, status.local_committed) == (0.0, 0.0)
    assert not staging.exists()


def test_where_rounds_were_not_counted_the_worst_case_is_charged(place):
    worst = BudgetLedger().status("visits")
    leave(place, None)
    code, said = finalize(place)
    assert code == 0 and "how many rounds began is not known" in said
    status = BudgetLedger().status("visits")
    assert (status.committed, status.local_committed) == (worst.committed, 20.0)
    assert BudgetLedger().state.charge("lost").status == "settled"


@pytest.mark.parametrize(
    "launcher", [Launcher.this(), replace(DEAD, host="elsewhere"), replace(DEAD, boot="")]
)
@pytest.mark.parametrize("begun", [0, 3])
def test_what_may_still_run_stays_charged(place, launcher, begun):
    staging = leave(place, begun, launcher=launcher)
    assert finalize(place)[0] == 1
    assert BudgetLedger().state.charge("lost").status == "reserved"
    assert staging.exists()


def test_a_record_that_was_being_written_does_not_hide_rounds(place):
    leave(place, 4)
    partial = place / ".out.partial-0123abcd"
    partial.mkdir()
    (partial / "privacy.json").write_text('{"run_id": "lo')
    assert finalize(place)[0] == 0
    assert BudgetLedger().state.charge("lost").local_epsilon == 8.0


def test_a_torn_record_beside_no_counted_round_is_charged_as_a_whole(place):
    leave(place, 0)
    partial = place / ".out.partial-0123abcd"
    partial.mkdir()
    (partial / "privacy.json").write_text('{"run_id": "lo')
    code, said = finalize(place)
    assert code == 0 and "how many rounds began is not known" in said
    assert BudgetLedger().state.charge("lost").local_epsilon == 20.0


def test_a_record_beside_no_counted_round_is_never_given_back(place):
    leave(place, 0)
    partial = place / ".out.partial-0123abcd"
    partial.mkdir()
    (partial / "privacy.json").write_text(json.dumps(RECORD))
    assert finalize(place)[0] == 0
    charge = BudgetLedger().state.charge("lost")
    assert (charge.status, charge.local_epsilon) == ("settled", 20.0)


def test_every_round_is_on_disk_when_begin_returns(place, monkeypatch):
    synced = []
    monkeypatch.setattr("beam_ldp.release.interrupted_runs.os.fsync", synced.append)
    staging = place / "staging"
    staging.mkdir()
    charge = held()
    charge.begin_round()  # without a note nothing is counted
    charge.leave_note(str(staging), ends_with_launcher=True, rounds=PRICE)
    assert len(synced) == 3  # the folder, so that the file is there; the note, and its folder
    for count in (1, 2):
        charge.begin_round()
        assert (staging / BEGUN).stat().st_size == count and len(synced) == 3 + count
        assert BudgetLedger().charge("lost").rounds_begun == count
    NoCharge("no").begin_round()
    assert Note.read(str(staging)).rounds == PRICE


def test_notes_of_releases_have_no_rounds(place):
    staging = place / ".out.staging-0123abcd"
    staging.mkdir()
    before = os.umask(0o022)
    held().leave_note(str(staging), ends_with_launcher=True)
    os.umask(before)
    assert (staging / "run.json").stat().st_mode & 0o777 == 0o644, "others may finalize it"
    (found,) = find_interrupted_runs(str(place / "out"))
    assert found.note.rounds is None and not (staging / BEGUN).exists()
