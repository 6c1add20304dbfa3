"""One graph that is run again: refused before anybody is asked, the very same, or withheld.

The charge is reserved once, where a graph is built, and a graph can be run as often as one likes.
Whatever is done with it, all that left in all of its runs is covered by what is charged.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp.ledger import BudgetLedger, LedgerError, audit
from beam_ldp.protocols import Box, plan_heavy_hitters, plan_user_mean
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import CoordinateRanges, LInfMean
from beam_ldp.settings import Noise, People
from beam_ldp.transforms import (
    ChargeTo,
    PrivateFrequencies,
    PrivateHeavyHitters,
    PrivateMean,
    PrivateUserMean,
    ValueBlock,
    yaml,
)
from beam_ldp.transforms.budgeted import ENDED_BEFORE, MADE_AGAIN
from beam_ldp.transforms.device.side import RandomizeBlocks
from tests.ledger.asked import begun

pytestmark = pytest.mark.pipeline

PEOPLE, LEAST, WINDOWS = 400, 50, 2
EPSILON = 2.0
ANSWERS = Domain(("yes", "no"))
ORACLE = KRandomizedResponse(ANSWERS.size, EPSILON)
WORDS = plan_heavy_hitters(PEOPLE, 6.0, max_bytes=1, num_bits=12)
USER_MEAN = plan_user_mean(
    PEOPLE, 1, Box(CoordinateRanges((0.0,), (100.0,))), local_epsilon=4.0, sigma=30
)
NAMED = {"dataset": "visits", "id": "week"}
TOLD = {
    "privacy": {"local_epsilon": EPSILON, "expected_users": PEOPLE, "delta": "1e-6"},
    "column": "v", "domain": list(ANSWERS.values), "mechanism": "KRandomizedResponse",
    "shuffle": {"min_reports": LEAST},
}  # fmt: skip

_LEFT: list[Any] = []
_WITHHELD: list[Any] = []


def kept(element: Any) -> None:
    """What leaves: for a comparison, all of it in words."""
    _LEFT.append(repr(element))


def withheld(notice: Any) -> None:
    _WITHHELD.append(notice.reason)


@dataclass
class Place:
    """A folder with people, who may change, and the ledger that pays for them.

    Attributes:
        asked: reports that were made, in all runs.
        run_id: name that the doors give to their charge; None: they give none.
    """

    folder: Path
    asked: int = 0
    run_id: str | None = "run"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'privacy.db'}"

    @property
    def ledger(self) -> BudgetLedger:
        return BudgetLedger(self.url)

    def noise(self, memoized: bool = False) -> Noise:
        key_file = str(self.folder / "key") if memoized else None
        return Noise(dataset="visits", id="week", key_file=key_file)

    def come(self, count: int) -> None:
        """So many people are in the data from now on."""
        rows = [
            {"v": ANSWERS.values[i % 3 % 2], "uid": i, "g": "ab"[i % 2], "w": "xyz"[i % 3],
             "age": float(i % 90), "t": i % WINDOWS}
            for i in range(count)
        ]  # fmt: skip
        (self.folder / "rows").write_text(json.dumps(rows))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    here = Place(tmp_path)
    monkeypatch.setenv("BEAM_LDP_ANCHORS", f"file://{tmp_path / 'anchors'}")
    BudgetLedger.create(here.url).set_budget("visits", epsilon=99, delta=1e-6, local_epsilon=99)
    (tmp_path / "key").write_bytes(bytes(range(32)))
    (tmp_path / "key").chmod(0o600)
    here.come(PEOPLE)
    emit = RandomizeBlocks._emit

    def counted(doer: Any, key: Any, block: Any, window: Any) -> Iterator[Any]:
        here.asked += len(block)
        yield from emit(doer, key, block, window)

    monkeypatch.setattr(RandomizeBlocks, "_emit", counted)
    _LEFT.clear()
    _WITHHELD.clear()
    return here


def read(path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(path).read_text())
    return found


def in_time(row: dict[str, Any]) -> TimestampedValue:
    return TimestampedValue(row, 10 * row["t"])


# The doors ----------------------------------------------------------------------------------------


def frequencies(place: Place, memoized: bool = False, **how: Any) -> beam.PTransform:
    people = People(**{"id": "uid", **how.pop("people", {})})
    budget = ChargeTo("visits", place.url, run_id=place.run_id, **how)
    return PrivateFrequencies(
        ORACLE, domain=ANSWERS, column="v", people=people, min_reports=LEAST,
        noise=place.noise(memoized), budget=budget,
    )  # fmt: skip


def grouped(place: Place, memoized: bool = False, **how: Any) -> beam.PTransform:
    groups = {"group_by": "g", "groups": Domain(("a", "b"))}
    return frequencies(place, memoized, people=groups, **how)


def in_windows(door: Callable[..., beam.PTransform]) -> Any:
    def build(place: Place) -> beam.PTransform:
        return door(place, windows=WINDOWS)

    return build


def mean(place: Place) -> beam.PTransform:
    return PrivateMean(
        LInfMean(1, EPSILON), columns="age", ranges=CoordinateRanges((0.0,), (90.0,)),
        min_reports=LEAST, people=People(id="uid"),
        budget=ChargeTo("visits", place.url, run_id=place.run_id),
    )  # fmt: skip


def user_mean(place: Place) -> beam.PTransform:
    budget = ChargeTo("visits", place.url, run_id=place.run_id)
    return PrivateUserMean(USER_MEAN, columns="age", people=People(id="uid"), budget=budget)


def words(place: Place) -> beam.PTransform:
    budget = ChargeTo("visits", place.url, run_id=place.run_id)
    return PrivateHeavyHitters(WORDS, column="w", people=People(id="uid"), budget=budget)


def of_yaml(place: Place) -> beam.PTransform:
    release = {**NAMED, "ledger": place.url, "run_id": place.run_id}
    composite = yaml.PrivateFrequencies(**TOLD, people={"id": "uid"}, release=release)
    return _Then(beam.Map(as_row), composite)


def memoized(place: Place) -> beam.PTransform:
    return _Then(_Blocks(False), frequencies(place, True))


def memoized_windows(place: Place) -> beam.PTransform:
    return _Then(_Blocks(False), frequencies(place, True, windows=WINDOWS))


def memoized_groups(place: Place) -> beam.PTransform:
    return _Then(_Blocks(True), grouped(place, True))


def envelopes(place: Place) -> beam.PTransform:
    """What devices sent once lies in a file; only its collection is run again."""
    sent = place.folder / "sent"
    if not sent.exists():
        with beam.Pipeline(FnApiRunner()) as pipeline:
            _ = (
                pipeline
                | beam.Create([str(place.folder / "rows")])
                | beam.FlatMap(read)
                | beam.Map(as_row)
                | yaml.Randomize(
                    **TOLD, people={"id": "uid"}, release=NAMED, encoding="base64",
                    terms=str(place.folder / "terms"),
                )
                | beam.Map(lambda row: row.envelope)
                | beam.combiners.ToList()
                | beam.Map(lambda found: sent.write_text(json.dumps(found)))
            )  # fmt: skip
    release = {**NAMED, "ledger": place.url, "run_id": place.run_id}
    collecting = yaml.CollectReports(
        **TOLD, people={"id": "uid"}, release=release, terms=str(place.folder / "terms")
    )
    return _Then(_Sent(str(sent)), collecting)


def as_row(row: dict[str, Any]) -> beam.Row:
    return beam.Row(v=row["v"], uid=row["uid"])


class _Then(beam.PTransform):
    """One transform behind another."""

    def __init__(self, first: beam.PTransform, second: beam.PTransform) -> None:
        super().__init__()
        self._both = first, second

    def expand(self, rows: beam.PCollection) -> Any:
        first, second = self._both
        return rows | first | second


class _Blocks(beam.PTransform):
    """The rows of a window as a block that says where they stand."""

    def __init__(self, grouped: bool) -> None:
        super().__init__()
        self._grouped = grouped

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        together = rows | beam.WithKeys("") | beam.GroupByKey()
        return together | beam.Map(as_block, self._grouped).with_output_types(ValueBlock)


def as_block(together: tuple[str, Iterable[dict[str, Any]]], grouped: bool) -> ValueBlock:
    rows = sorted(together[1], key=lambda row: row["uid"])
    values = np.array([ANSWERS.values.index(row["v"]) for row in rows])
    ids = np.array([row["uid"] for row in rows])
    groups = np.array(["ab".index(row["g"]) for row in rows]) if grouped else None
    return ValueBlock(values, ids, groups, source="rows", positions=ids)


class _Sent(beam.PTransform):
    """The envelopes of a file, whatever comes in."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        sent = rows.pipeline | beam.Create([self._path]) | beam.FlatMap(read)
        return sent | beam.Map(lambda data: beam.Row(envelope=data))


def graph(place: Place, door: Callable[[Place], beam.PTransform], windows: bool) -> beam.Pipeline:
    pipeline = beam.Pipeline(FnApiRunner(), options=PipelineOptions([]))
    rows = pipeline | beam.Create([str(place.folder / "rows")]) | beam.FlatMap(read)
    if windows:
        rows = rows | beam.Map(in_time) | beam.WindowInto(FixedWindows(10))
    found = rows | "Door" >> door(place)
    found | beam.Map(kept)
    if getattr(found, "withheld", None) is not None:
        found.withheld | "Said" >> beam.Map(withheld)
    return pipeline


def refusal(pipeline: beam.Pipeline) -> str:
    """Why a run was refused; "" where it ended well."""
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        return str(error)
    return ""


# The pairs ----------------------------------------------------------------------------------------

ONCE_ONLY = "covers one run of its pipeline"
QUICK = ("frequencies", "groups in windows", "YAML")
SLOW = ("windows", "groups", "mean", "user mean", "heavy hitters")
DOORS = {
    "frequencies": (frequencies, False),
    "windows": (in_windows(frequencies), True),
    "groups": (grouped, False),
    "groups in windows": (in_windows(grouped), True),
    "mean": (mean, False),
    "user mean": (user_mean, False),
    "heavy hitters": (words, False),
    "YAML": (of_yaml, False),
}


@pytest.mark.parametrize("door", [*QUICK, *(pytest.param(d, marks=pytest.mark.slow) for d in SLOW)])
def test_a_graph_with_fresh_noise_is_run_once(door: str, place: Place) -> None:
    """The canary: of three runs nothing is asked and nothing leaves that is not charged."""
    pipeline = graph(place, *DOORS[door])
    assert refusal(pipeline) == ""
    left, asked = list(_LEFT), place.asked
    assert left and asked
    before, head = place.ledger.status("visits"), place.ledger.balances.head
    for _ in range(2):
        assert ONCE_ONLY in refusal(pipeline)
    assert (left, asked) == (_LEFT, place.asked)
    after = place.ledger.status("visits")
    assert (after.spent, after.local_spent) == (before.spent, before.local_spent)
    assert after.committed == after.spent > 0 and place.ledger.balances.head == head
    assert audit(place.ledger.rows()).clean


def others_come(place: Place) -> None:
    place.come(PEOPLE + 40)


def one_is_missing(place: Place) -> None:
    """Two sums of envelopes that differ in one would show it."""
    sent = place.folder / "sent"
    sent.write_text(json.dumps(json.loads(sent.read_text())[1:]))


AGAIN = {
    "memoized": (memoized, others_come, [MADE_AGAIN]),
    "memoized groups": (memoized_groups, others_come, [MADE_AGAIN] * 2),
    "envelopes": (envelopes, one_is_missing, None),  # a row of YAML does not say why
}


@pytest.mark.parametrize("name", AGAIN)
def test_reports_that_stay_the_same_are_known_by_a_digest(name: str, place: Place) -> None:
    """Run again, the graph releases the very same, free; of other people nothing leaves."""
    door, change, why = AGAIN[name]
    pipeline = graph(place, door, False)
    assert refusal(pipeline) == ""
    left, before = sorted(_LEFT), place.ledger.status("visits")
    assert left and refusal(pipeline) == ""
    assert sorted(_LEFT) == sorted(left * 2) and not _WITHHELD
    change(place)
    assert refusal(pipeline) == ""
    assert len(_LEFT) == 2 * len(left) and (why is None or why == _WITHHELD)
    after = place.ledger.status("visits")
    assert (after.spent, after.local_spent) == (before.spent, before.local_spent)
    assert audit(place.ledger.rows()).clean


def test_windows_of_a_graph_that_goes_on_are_released_once(place: Place) -> None:
    """Late rows may have come to a window since: what a run ended, no other one releases."""
    pipeline = graph(place, memoized_windows, True)
    assert refusal(pipeline) == ""
    left = list(_LEFT)
    assert len(left) == WINDOWS and refusal(pipeline) == ""
    assert left == _LEFT and [ENDED_BEFORE] * WINDOWS == _WITHHELD
    assert audit(place.ledger.rows()).clean


ANEW = {
    "memoized, lost": (memoized, False, False, ""),
    "memoized windows, lost": (memoized_windows, True, False, ""),
    "memoized windows, ended": (memoized_windows, True, True, "all windows that run"),
    "envelopes, lost": (envelopes, False, False, ""),
    "envelopes, released": (envelopes, False, True, "was published by run"),
}


@pytest.mark.parametrize("name", ANEW)
def test_the_same_program_without_a_name_for_its_run(name: str, place: Place) -> None:
    """Reports that stay the same are charged once: an open charge is resumed, an ended one ends."""
    door, windows, ended, message = ANEW[name]
    place.run_id = None
    first = graph(place, door, windows)
    assert not ended or refusal(first) == ""
    left, before = list(_LEFT), place.ledger.status("visits")
    if message:
        with pytest.raises(LedgerError, match=message):
            graph(place, door, windows)
        assert left == _LEFT != []
    else:
        again = graph(place, door, windows)
        assert "took over" in refusal(first) and not _LEFT
        assert refusal(again) == "" and _LEFT
    after = place.ledger.status("visits")
    assert after.local_committed == before.local_committed and after.committed <= before.committed
    assert audit(place.ledger.rows()).clean


def test_windows_that_another_run_released_are_withheld(place: Place) -> None:
    """Under a new name further windows are charged; those that left before do not leave again."""
    assert refusal(graph(place, memoized_windows, True)) == ""
    left, place.run_id = list(_LEFT), "next"
    assert refusal(graph(place, memoized_windows, True)) == ""
    assert left == _LEFT and [ENDED_BEFORE] * WINDOWS == _WITHHELD
    assert audit(place.ledger.rows()).clean


def sent_again(place: Place, pipeline: beam.Pipeline) -> None:
    """The graph as a job server, a template or a file keeps it."""
    proto = pipeline.to_runner_api()
    for _ in range(2):
        copied = type(proto).FromString(proto.SerializeToString())
        beam.Pipeline.from_runner_api(copied, FnApiRunner(), PipelineOptions([])).run()


def killed_between(place: Place, pipeline: beam.Pipeline) -> None:
    """A run that had begun is lost with all that it was."""
    begun(place.ledger, "run")
    pipeline.run()


def of_an_older_ledger(place: Place, pipeline: beam.Pipeline) -> None:
    """A copy of the ledger from before the first run is put back; an anchor knows better."""
    with closing(sqlite3.connect(":memory:")) as copy:
        with closing(sqlite3.connect(place.folder / "privacy.db")) as now:
            now.backup(copy)
            pipeline.run()
            copy.backup(now)
        pipeline.run()


def built_again(place: Place, pipeline: beam.Pipeline) -> None:
    """The same program once more, under the same name."""
    pipeline.run()
    graph(place, frequencies, False).run()


HOW = {
    sent_again: (1, ONCE_ONLY),
    killed_between: (0, ONCE_ONLY),
    of_an_older_ledger: (1, "anchor"),
    built_again: (1, "already has its charge"),
}


@pytest.mark.parametrize("how", HOW, ids=lambda how: how.__name__)
def test_another_run_by_other_ways(how: Any, place: Place) -> None:
    pipeline = graph(place, frequencies, False)
    releases, message = HOW[how]
    with pytest.raises(Exception, match=message):
        how(place, pipeline)
    assert (len(_LEFT), place.asked) == (releases, releases * PEOPLE)
    assert place.ledger.status("visits").local_committed == EPSILON


def test_of_many_runs_at_once_one_begins(place: Place) -> None:
    graph(place, frequencies, False)
    began, refused = list[str](), list[str]()
    start = threading.Barrier(8)

    def run(number: int) -> None:
        ledger = place.ledger
        start.wait()
        try:
            began.append(begun(ledger, "run", str(number)))
        except LedgerError:
            refused.append(str(number))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(began) == 1 and len(refused) == 7
    assert place.ledger.charge("run").run_token == began[0]
