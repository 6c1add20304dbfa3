"""Composites that charge a budget: refused when they are built, settled where they release."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    IntervalWindow,
    TimestampedValue,
)

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.launcher import Launcher
from beam_ldp.ledger import BudgetExceededError, BudgetLedger, LedgerError, audit
from beam_ldp.protocols import Box, plan_user_mean
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import CoordinateRanges, ScalarMean
from beam_ldp.settings import Noise, People
from beam_ldp.transforms import PrivateFrequencies, PrivateMean, PrivateUserMean, ValueBlock, yaml
from beam_ldp.transforms.budgeted import (
    ENDED_BEFORE,
    MADE_AGAIN,
    ChargeTo,
    _Abandon,
    _Settle,
)
from beam_ldp.transforms.elements.stages import USED_UP
from tests.ledger.asked import asked, begun

pytestmark = pytest.mark.pipeline

EPSILON, DELTA, PEOPLE, LEAST = 0.5, 1e-6, 200, 150
ANSWERS = Domain(("yes", "no"))
ORACLE = KRandomizedResponse(ANSWERS.size, EPSILON)
RUNNER = PipelineOptions(["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'privacy.db'}"


@pytest.fixture
def ledger(url: str) -> BudgetLedger:
    made = BudgetLedger.create(url)
    made.set_budget("visits", epsilon=10.0, delta=DELTA, local_epsilon=10.0)
    return made


def ask(budget: ChargeTo, **how: Any) -> PrivateFrequencies:
    how = {"min_reports": LEAST, "people": People(one_row=True), **how}
    return PrivateFrequencies(ORACLE, domain=ANSWERS, budget=budget, **how)


def run(transform: beam.PTransform, rows: Any, windows: float | None = None) -> None:
    """Runs a transform on values, or on pairs of time and value."""
    with beam.Pipeline(options=RUNNER) as pipeline:
        values = pipeline | beam.Create(list(rows))
        if windows is not None:
            values = (
                values
                | beam.MapTuple(lambda time, value: TimestampedValue(value, time))
                | beam.WindowInto(FixedWindows(windows))
            )
        _ = values | transform


def test_a_budget_of_people_takes_people(url: str) -> None:
    """Ten rows of a person would be ten reports for the price of one."""
    for people in (People(one_row=True), People(id="uid")):
        ask(ChargeTo("visits", url), people=people)  # somebody's word
    ask(ChargeTo("visits", url), column="v", people=People(id="uid"))
    ask(ChargeTo("visits", url, privacy_unit="row"), people=People())
    ask(ChargeTo("visits", url), people=People(), noise=Noise(seed=1))  # never charged
    composites = [
        lambda budget: ask(budget, people=People()),
        lambda budget: PrivateMean(ScalarMean(1, EPSILON), min_reports=LEAST, budget=budget),
    ]
    for composite in composites:
        with pytest.raises(ValueError, match="budget: a person with ten rows would report ten"):
            composite(ChargeTo("visits", url))


def test_envelopes_that_are_collected_a_second_time_are_charged_once(
    ledger: BudgetLedger, url: str
) -> None:
    """Their noise was drawn on devices: it is the same noise, though no key decides it."""

    def build() -> None:
        pipeline = beam.Pipeline(options=RUNNER)
        envelopes = pipeline | beam.Create([beam.Row(envelope=b"")])
        _ = envelopes | yaml.CollectReports(
            column="v", domain=list(ANSWERS.values), terms="",
            privacy={"local_epsilon": EPSILON, "expected_users": PEOPLE, "delta": str(DELTA)},
            people={"one_row": True}, mechanism="KRandomizedResponse",
            release={"dataset": "visits", "id": "week-47", "ledger": url},
        )  # fmt: skip

    build()
    build()
    (charge,) = ledger.status("visits").charges
    assert charge.memoized and charge.attempts == 2


def statuses(ledger: BudgetLedger) -> dict[str, str]:
    found = ledger.state.populations["visits"].charges
    return {name: charge.status for name, charge in found.items()}


def test_a_pipeline_on_the_last_epsilon_and_the_one_after_it(
    ledger: BudgetLedger, url: str
) -> None:
    """One fits to the last bit; the next is refused when it is built, and so never reads."""
    budget = ChargeTo("visits", url)
    ledger.reserve(
        "visits", "earlier", LocalRandomizerDpEvent(0.3), identity=asked("visits", "earlier")
    )
    worst = ledger.status("visits").epsilon_with(budget.worst_event(ORACLE, LEAST))
    ledger.set_budget("visits", epsilon=worst, delta=DELTA, local_epsilon=10.0)
    run(ask(ChargeTo("visits", url, run_id="fits")), ["yes"] * PEOPLE)
    charge = ledger.state.charge("fits")
    assert charge.status == "settled"
    assert charge.settled is not None and charge.settled["event"]["num_reports"] == PEOPLE
    assert charge.reserved["event"]["num_reports"] == LEAST
    pipeline = beam.Pipeline(options=RUNNER)
    people = pipeline | beam.Create(["yes"] * PEOPLE)
    with pytest.raises(BudgetExceededError):
        people | ask(budget)
    assert list(statuses(ledger)) == ["earlier", "fits"]
    assert audit(ledger.rows()).clean


def test_too_few_reports_give_the_central_price_back(ledger: BudgetLedger, url: str) -> None:
    run(ask(ChargeTo("visits", url, run_id="few")), ["yes"] * 20)
    assert statuses(ledger) == {"few": "abandoned"}
    status = ledger.status("visits")
    assert (status.committed, status.local_committed) == (0.0, EPSILON)


def test_means_are_charged_too(ledger: BudgetLedger, url: str) -> None:
    mean = PrivateMean(
        ScalarMean(1, EPSILON),
        min_reports=LEAST,
        people=People(one_row=True),
        budget=ChargeTo("visits", url, run_id="mean"),
    )
    run(mean, [[0.5]] * PEOPLE)
    assert statuses(ledger) == {"mean": "settled"}


@pytest.mark.parametrize("fraction", [1.0, 0.9])
def test_user_level_means_are_charged_too(ledger: BudgetLedger, url: str, fraction: float) -> None:
    minutes = Box(CoordinateRanges(0, 1440))
    protocol = plan_user_mean(PEOPLE, 20, minutes, local_epsilon=4.0, sigma=30)
    rows = [{"uid": i % PEOPLE, "minutes": 60.0 + i % 7} for i in range(2 * PEOPLE)]
    budget = ChargeTo("visits", url, run_id="users", honest_fraction=fraction)
    run(PrivateUserMean(protocol, columns="minutes", people=People(id="uid"), budget=budget), rows)
    charge = ledger.state.charge("users")
    assert (charge.status, charge.local_epsilon) == ("settled", 4.0)
    assert not charge.overspent


def test_fake_reports_hide_nobody(ledger: BudgetLedger, url: str) -> None:
    budget = ChargeTo("visits", url, run_id="half", honest_fraction=0.5)
    run(ask(budget), ["yes"] * PEOPLE)
    charge = ledger.state.charge("half")
    assert charge.settled is not None
    found = [e["event"]["num_reports"] for e in (charge.reserved, charge.settled)]
    assert found == [LEAST // 2, PEOPLE // 2]


def test_groups_share_a_charge_at_its_worst_case(ledger: BudgetLedger, url: str) -> None:
    rows = [{"v": "yes", "g": "ab"[i % 2], "u": i} for i in range(2 * PEOPLE)]
    groups = PrivateFrequencies(
        ORACLE,
        domain=ANSWERS,
        column="v",
        people=People(one_row=True, groups=Domain(("a", "b")), group_by="g"),
        min_reports=LEAST,
        budget=ChargeTo("visits", url, run_id="grouped"),
    )
    run(groups, rows)
    charge = ledger.state.charge("grouped")
    assert (charge.status, charge.settled) == ("settled", charge.reserved)


def test_windows_stop_when_those_of_the_budget_are_used(ledger: BudgetLedger, url: str) -> None:
    rows = [(10 * window + 1, "yes") for window in range(3) for _ in range(PEOPLE)]
    rows += [(31, "yes")] * 20  # too few
    budget = ChargeTo("visits", url, run_id="days", windows=2)
    run(ask(budget), rows, windows=10)
    block, *charges = ledger.state.populations["visits"].charges.values()
    assert (block.run_id, block.count, len(charges)) == ("days", 0, 2)
    assert {charge.status for charge in charges} <= {"settled", "abandoned"}
    windows = [tuple(charge.about["window"]) for charge in charges]
    assert len(set(windows)) == 2
    assert [row.kind for row in ledger.rows()].count("reserve") == 1
    assert audit(ledger.rows()).clean
    assert ledger.status("visits").local_committed == 2 * EPSILON


def test_windowed_data_need_a_number_of_windows(ledger: BudgetLedger, url: str) -> None:
    with pytest.raises(ValueError, match="windows="):
        run(ask(ChargeTo("visits", url)), [(1, "yes")] * PEOPLE, windows=10)
    assert statuses(ledger) == {}


def test_all_windows_fit_or_none(ledger: BudgetLedger, url: str) -> None:
    ledger.set_budget("visits", epsilon=10.0, delta=DELTA, local_epsilon=2.2 * EPSILON)
    with pytest.raises(BudgetExceededError, match="local epsilons"):
        run(ask(ChargeTo("visits", url, windows=3)), [(1, "yes")] * PEOPLE, windows=10)
    assert statuses(ledger) == {}
    assert ledger.status("visits").local_committed == 0.0


def test_a_simulation_is_not_charged(ledger: BudgetLedger, url: str) -> None:
    run(ask(ChargeTo("visits", url), noise=Noise(seed=1)), ["yes"] * PEOPLE)
    assert statuses(ledger) == {}


def test_the_environment_names_the_ledger_on_the_worker(
    ledger: BudgetLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEAM_LDP_LEDGER", url)
    run(ask(ChargeTo("visits", run_id="named")), ["yes"] * PEOPLE)
    assert statuses(ledger) == {"named": "settled"}


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:secret@host/db", "postgresql+psycopg://host/db?user=me&password=secret"],
)
def test_a_password_does_not_travel(url: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(ValueError, match="must not contain a password") as caught:
        ChargeTo("visits", url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("how", "message"),
    [({"windows": 0}, "windows must"), ({"honest_fraction": 0.0}, "honest_fraction must")],
)
def test_bad_arguments(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ChargeTo("visits", **how)


def test_a_name_is_used_once(ledger: BudgetLedger, url: str) -> None:
    run(ask(ChargeTo("visits", url, run_id="monday")), ["yes"] * PEOPLE)
    with pytest.raises(LedgerError, match="a new charge"):
        run(ask(ChargeTo("visits", url, run_id="monday")), ["yes"] * PEOPLE)


# What happens on the worker -------------------------------------------------------------------


def reservation(budget: ChargeTo) -> Any:
    from apache_beam.transforms.window import GlobalWindows

    return budget.reserve(
        budget.worst_event(ORACLE, LEAST),
        identity=asked("visits", "some release"),
        windowing=GlobalWindows(),
        bounded=True,
    )


def release(num_reports: int, window: tuple[int, int] | None = None) -> Any:
    from beam_ldp.accounting import shuffled_event
    from beam_ldp.transforms import Release

    estimate = ORACLE.estimate(ORACLE.accumulate(ORACLE.randomize([0] * 10)), 10)
    return Release(estimate, num_reports, shuffled_event(ORACLE, num_reports), window=window)


def settle(held: Any, ledger: BudgetLedger, run: str, said: Any, token: str = "") -> str:
    """As a worker does: with the token that the release has, or another."""
    return held.settle(ledger, run, {"": token or held.token_of(said)}, said)


def test_settling_twice_is_once_and_another_release_is_withheld(
    ledger: BudgetLedger, url: str
) -> None:
    """A retried bundle settles again; what was made anew must not leave, whatever it costs."""
    held = reservation(ChargeTo("visits", url, run_id="run"))
    run_token, said = begun(ledger, "run"), release(180)
    token = held.token_of(said)
    assert settle(held, ledger, run_token, said, token) == ""
    head = ledger.balances.head
    assert settle(held, ledger, run_token, said, token) == ""
    for other in (said, release(180), release(190)):
        assert settle(held, ledger, run_token, other) == MADE_AGAIN
    assert ledger.balances.head == head


@dataclass(frozen=True)
class Bundle:
    """What a worker is handed once more, after the first time was settled.

    Attributes:
        holds: tokens by group, as the bundle has them now.
        leaves: groups that leave.
    """

    name: str
    holds: dict[str, str]
    leaves: set[str]


BUNDLES = [
    Bundle("the same", {"a": "1", "b": "2"}, {"a", "b"}),
    Bundle("a part of it", {"b": "2"}, {"b"}),
    Bundle("made anew", {"a": "3", "b": "4"}, set()),
    Bundle("a part made anew", {"a": "1", "b": "4"}, {"a"}),
    Bundle("a group that comes later", {"c": "5"}, {"c"}),
    Bundle("the same, and one that comes later", {"a": "1", "c": "5"}, {"a", "c"}),
    Bundle("made anew, and one that comes later", {"a": "3", "c": "5"}, {"c"}),
]


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda bundle: bundle.name)
def test_a_bundle_that_is_tried_again(bundle: Bundle, ledger: BudgetLedger, url: str) -> None:
    """Of groups that share a charge each leaves once: what was settled, and nothing else."""
    held = replace(reservation(ChargeTo("visits", url, run_id="run")), grouped=True)
    run_token, doer = begun(ledger, "run"), _Settle(held)
    doer.setup()

    def process(tokens: dict[str, str]) -> list[Any]:
        together = [(token, (group, release(180))) for group, token in tokens.items()]
        return list(doer.process(("", together), run_token, window=GlobalWindow()))

    assert [group for group, _ in process({"a": "1", "b": "2"})] == ["a", "b"]
    spent = ledger.status("visits").spent
    found = process(bundle.holds)
    notices = [each.value for each in found if isinstance(each, TaggedOutput)]
    assert {each[0] for each in found if isinstance(each, tuple)} == bundle.leaves
    assert len(notices) == len(bundle.holds) - len(bundle.leaves)
    assert {notice.reason for notice in notices} <= {MADE_AGAIN}
    assert ledger.status("visits").spent == spent and audit(ledger.rows()).clean


def test_no_window_beyond_the_last(ledger: BudgetLedger, url: str) -> None:
    held = reservation(ChargeTo("visits", url, run_id="run", windows=2))
    other, run_token = BudgetLedger(url), begun(ledger, "run")  # of another worker
    assert settle(held, ledger, run_token, release(180, (0, 1))) == ""
    assert settle(held, other, run_token, release(180, (1, 2)), "token") == ""
    assert settle(held, ledger, run_token, release(180, (1, 2)), "token") == ""
    assert settle(held, other, run_token, release(180, (2, 3))) == USED_UP


def restarted(url: str, *, keyed: bool = True, run_id: str = "run", **changed: Any) -> Any:
    """One more start of the same memoized stream, or of envelopes that were drawn without a key."""
    from beam_ldp.randomizers.identity import ReleaseIdentity

    named = ReleaseIdentity("visits", "week", ORACLE.config_digest().hex(), ("answer",))
    named = replace(named, **{"columns": named.columns, "values": "", **changed})
    budget = ChargeTo("visits", url, run_id=run_id, windows=4)
    return budget.reserve(
        budget.worst_event(ORACLE, LEAST),
        identity=named.committed(bytes(32)) if keyed else named,
        windowing=FixedWindows(1),
        bounded=False,
        same_reports=not keyed,
    )


@pytest.mark.parametrize("keyed", [True, False], ids=["memoized", "envelopes without a key"])
def test_a_stream_that_starts_again_releases_no_window_twice(
    keyed: bool, ledger: BudgetLedger, url: str
) -> None:
    """Whatever came since: more rows of the window, the same number of others, or too few."""
    from beam_ldp.transforms import WithheldRelease

    first, begins = restarted(url, keyed=keyed), begun(ledger, "run")
    assert settle(first, ledger, begins, release(180, (0, 1))) == ""
    first.abandon(ledger, begins, WithheldRelease(3, LEAST, "too few", window=(1, 2)))
    again, begins = restarted(url, keyed=keyed), begun(ledger, "run")
    spent = ledger.charge("run", "window 0 1")
    for count in (180, 190):
        assert settle(again, ledger, begins, release(count, (0, 1))) == ENDED_BEFORE
        assert settle(again, ledger, begins, release(count, (1, 2))) == ENDED_BEFORE
        # Late in this start, but perhaps in time in the one that released the window.
        late = replace(release(count, (0, 1)), late=True)
        assert settle(again, ledger, begins, late) == ENDED_BEFORE
    again.abandon(ledger, begins, WithheldRelease(3, LEAST, "too few", window=(0, 1)))
    assert ledger.charge("run", "window 0 1") == spent
    open_one = release(170, (2, 3))
    assert settle(again, ledger, begins, open_one) == ""
    assert settle(again, ledger, begins, open_one) == ""  # a retry draws the same noise
    assert settle(again, ledger, begins, release(171, (2, 3))) == MADE_AGAIN  # a row has come
    assert ledger.charge("run").count == 1  # one window is left of four


@pytest.mark.parametrize("before", [False, True], ids=["in time", "late"])
def test_what_another_run_released_of_a_window_is_withheld(
    before: bool, ledger: BudgetLedger, url: str
) -> None:
    """In time and late: the rows of one may be among those of the other now."""
    first, begins = restarted(url), begun(ledger, "run")
    said = release(180, (0, 1))
    assert settle(first, ledger, begins, replace(said, late=before)) == ""
    ledger.abandon("run", attempt=begins, randomized=True, why="it was stopped")
    again, begins = restarted(url, run_id="next"), begun(ledger, "next")
    for late in (False, True):
        assert settle(again, ledger, begins, replace(said, late=late)) == ENDED_BEFORE
    assert settle(again, ledger, begins, release(180, (1, 2))) == ""


@pytest.mark.parametrize("built_anew", [True, False], ids=["built anew", "run again"])
def test_of_two_starts_at_once_the_older_one_settles_nothing(
    built_anew: bool, ledger: BudgetLedger, url: str
) -> None:
    first, older = restarted(url), begun(ledger, "run")
    if built_anew:
        restarted(url)
    begun(ledger, "run")
    with pytest.raises(LedgerError, match="another start of run 'run' took over"):
        settle(first, ledger, older, release(180, (0, 1)))
    with pytest.raises(LedgerError, match="another start of run 'run' took over"):
        begun(ledger, "run", older)  # nor does it begin again


@pytest.mark.parametrize("keyed", [True, False], ids=["memoized", "envelopes without a key"])
def test_a_run_whose_launcher_lives_is_not_taken_over(
    keyed: bool, ledger: BudgetLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        other = Launcher.of(child.pid)
        with monkeypatch.context() as patch:
            patch.setattr(Launcher, "this", classmethod(lambda _: other))
            restarted(url, keyed=keyed)
        head = ledger.balances.head
        with pytest.raises(LedgerError, match=f"its launcher, process {child.pid}, is alive"):
            restarted(url, keyed=keyed)
        assert ledger.balances.head == head
    finally:
        child.kill()
        child.wait()
    restarted(url, keyed=keyed)
    assert ledger.charge("run").attempts == 2


@pytest.mark.parametrize("changed", [{"columns": ("other",)}, {"values": "ab"}, {"bounding": "x"}])
def test_a_stream_that_asks_something_else_does_not_start_again(
    ledger: BudgetLedger, url: str, changed: dict[str, Any]
) -> None:
    restarted(url)
    with pytest.raises(LedgerError, match="its release differs"):
        restarted(url, **changed)


def test_a_window_and_its_late_reports_are_two_parts(ledger: BudgetLedger, url: str) -> None:
    held, begins = restarted(url), begun(ledger, "run")
    late = replace(release(180, (0, 1)), late=True)
    assert settle(held, ledger, begins, release(180, (0, 1))) == ""
    assert settle(held, ledger, begins, late) == ""
    assert ledger.charge("run").count == 2
    assert ledger.charge("run", "window 0 1 late").about["window"] == [0, 1, "late"]


def test_what_an_earlier_start_released_is_withheld_and_said(
    ledger: BudgetLedger, url: str
) -> None:
    said = release(180, (0, 10**6))
    settle(restarted(url), ledger, begun(ledger, "run"), said)
    doer = _Settle(restarted(url))
    doer.setup()
    (notice,) = doer.process(("", [("t", said)]), begun(ledger, "run"), IntervalWindow(0, 1))
    assert notice.tag == "withheld" and notice.value.reason == ENDED_BEFORE
    assert notice.value.window == (0, 10**6) and notice.value.min_reports == 0


def test_a_ledger_that_is_away_lets_no_release_pass(
    ledger: BudgetLedger, url: str, tmp_path: Path
) -> None:
    from beam_ldp.ledger import LedgerMissingError

    held = reservation(ChargeTo("visits", url, run_id="run"))
    (tmp_path / "privacy.db").rename(tmp_path / "away.db")
    doer = _Settle(held)
    doer.setup()
    with pytest.raises(LedgerMissingError):
        list(doer.process(("", [("t", release(180))]), "run", window=None))
    (tmp_path / "away.db").rename(tmp_path / "privacy.db")
    assert statuses(ledger) == {"run": "reserved"}


def test_the_graph_holds_an_url_and_no_ledger(ledger: BudgetLedger, url: str) -> None:
    import pickle

    held = reservation(ChargeTo("visits", url, run_id="run"))
    assert pickle.loads(pickle.dumps(held)) == held
    assert all(pickle.loads(pickle.dumps(doer(held))) for doer in (_Settle, _Abandon))


def test_a_settled_release_is_not_released_again_by_a_composite(
    ledger: BudgetLedger, url: str, tmp_path: Path
) -> None:
    """No digest of its reports is kept, so nobody could say that they are the same."""
    (tmp_path / "key").write_bytes(bytes(range(32)))
    (tmp_path / "key").chmod(0o600)
    ids = np.arange(PEOPLE)
    people = ValueBlock(np.zeros(PEOPLE, dtype=int), ids, source="s", positions=ids)

    def again(run_id: str) -> None:
        budget = ChargeTo("visits", url, run_id=run_id)
        noise = Noise(key_file=str(tmp_path / "key"), id="week")
        run(ask(budget, noise=noise, people=People(id="uid")), [people])

    again("monday")
    charge, head = ledger.charge("monday"), ledger.balances.head
    assert charge.status == "settled" and charge.memoized and charge.report_digest is None
    for run_id in ("monday", "tuesday"):
        with pytest.raises(LedgerError, match="monday"):
            again(run_id)
    assert ledger.charge("monday") == charge and ledger.balances.head == head
