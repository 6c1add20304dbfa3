"""Windows of unbounded data, with every order of rows and watermarks that a stream may bring."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import BytesCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms import trigger
from apache_beam.transforms.window import FixedWindows, GlobalWindows, Sessions, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.settings import Noise, People, Privacy, Shuffling
from beam_ldp.transforms import (
    PrivateFrequencies,
    Randomize,
    ReportBlock,
    Shuffle,
    SlidingSums,
    WindowRules,
)
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.elements.stages import TOO_FEW
from beam_ldp.transforms.elements.windows import (
    COMPACT_AT,
    LATE,
    TOO_LATE,
    CloseWindows,
    WindowEnd,
    WindowSchedule,
)
from tests.identities import identity
from tests.ledger.parts import parts_of

LOCAL = "--runner=apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"
ORACLE = KRandomizedResponse(3, 25.0)  # a report is another value once in 10^10
BARE = Privacy(trust_shuffler=True)  # and so protects nobody
COLOURS = Domain(("red", "green"))
_KEPT: dict[str, list[Any]] = {}


def rows(*times_of: tuple[float, int], colour: str = "red", person: str = "") -> list[Any]:
    """`(time, count)`s as stamped rows `person;colour`."""
    return [
        TimestampedValue(f"{person}{time}-{i};{colour}".encode(), time)
        for time, count in times_of
        for i in range(count)
    ]


def row(line: bytes) -> dict[str, str]:
    person, colour, *group = line.decode().split(";")
    return {"id": person, "colour": colour, "group": group[0] if group else ""}


def keep(element: Any, name: str) -> None:
    _KEPT.setdefault(name, []).append(element)


def stream(*steps: Any) -> TestStream:
    """Lists of rows arrive; numbers are where the watermark moves to. It ends at infinity."""
    found = TestStream(coder=BytesCoder())
    for step in steps:
        found = (
            found.add_elements(step) if isinstance(step, list) else found.advance_watermark_to(step)
        )
    return found.advance_watermark_to_infinity()


def released(
    source: TestStream,
    windowing: Any = None,
    *,
    options: list[str] | None = None,
    slide: tuple[float, float] | None = None,
    **how: Any,
) -> tuple[list[Any], list[Any]]:
    """What is released of a stream, and what is withheld, in the order in which it came."""
    how = {
        "column": "colour",
        "min_reports": 5,
        "people": People(one_row=True),
        "privacy": BARE,
        **how,
    }
    _KEPT.clear()
    flags = PipelineOptions([LOCAL] if options is None else options, streaming=True)
    with beam.Pipeline(options=flags) as pipeline:
        windowed = pipeline | source | beam.Map(row) | (windowing or lateness(0))
        releases = windowed | PrivateFrequencies(ORACLE, domain=COLOURS, **how)
        if slide is not None:
            releases | SlidingSums(*slide) | "slid" >> beam.Map(keep, "slid")
        releases | "released" >> beam.Map(keep, "released")
        releases.withheld | "withheld" >> beam.Map(keep, "withheld")
    return _KEPT.get("released", []), _KEPT.get("withheld", [])


def lateness(seconds: float) -> beam.PTransform:
    return beam.WindowInto(FixedWindows(60), allowed_lateness=seconds)


def facts(releases: list[Any]) -> list[tuple[int, int, int, bool]]:
    """Window in seconds, reports, whether late."""
    plain = [r[1] if isinstance(r, tuple) else r for r in releases]
    return sorted(
        (r.window[0] // 10**6, r.window[1] // 10**6, r.num_reports, r.late) for r in plain
    )


def said(withheld: list[Any]) -> list[tuple[int, int, str, bool]]:
    return sorted((w.window[0] // 10**6, w.num_reports, w.reason, w.late) for w in withheld)


# --- windows ----------------------------------------------------------------------------------


@pytest.mark.pipeline
@pytest.mark.parametrize("output", ["statistic", "reports"])
def test_each_window_is_one_release_at_its_own_price(output):
    """On time, in any order, over many bundles; an empty window gives nothing."""
    source = stream(
        0, rows((10, 3), (70, 2)), 20, rows((5, 4)), rows((75, 6)), 61, rows((200, 5)), 400
    )
    releases, withheld = released(source, shuffle=Shuffling(output=output))
    assert facts(releases) == [(0, 60, 7, False), (60, 120, 8, False), (180, 240, 5, False)]
    assert not withheld
    for release in releases:
        assert release.event.num_reports == release.num_reports == release.smallest_batch
        assert release.output == output
        np.testing.assert_allclose(release.estimate.value, [1, 0, 0], atol=1e-6)


@pytest.mark.pipeline
def test_too_few_reports_leave_nothing_and_are_said():
    source = stream(0, rows((10, 4), (70, 5)), 400)
    releases, withheld = released(source)
    assert facts(releases) == [(60, 120, 5, False)]
    assert said(withheld) == [(0, 4, TOO_FEW, False)]


@pytest.mark.pipeline
def test_late_reports_are_gathered_into_a_release_of_their_own():
    """Three firings' worth of late reports make one release when the lateness is over."""
    source = stream(
        0, rows((10, 6)), 60, rows((11, 2)), 100, rows((12, 2)), 150, rows((13, 2)), 400,
    )  # fmt: skip
    releases, withheld = released(source, lateness(120))
    assert facts(releases) == [(0, 60, 6, False), (0, 60, 6, True)]
    assert not withheld
    assert [r.event.num_reports for r in releases] == [6, 6]


@pytest.mark.pipeline
def test_late_reports_below_the_threshold_are_dead_letters_with_a_reason():
    source = stream(0, rows((10, 6)), 60, rows((11, 4)), 400)
    releases, withheld = released(source, lateness(120))
    assert facts(releases) == [(0, 60, 6, False)]
    assert said(withheld) == [(0, 4, TOO_FEW, True)]


@pytest.mark.pipeline
def test_what_comes_after_the_lateness_is_said_and_never_released():
    """Also where it is enough, and again and again."""
    source = stream(
        0, rows((10, 6)), 181, rows((11, 9)), 250, rows((11, 9)), 1000, rows((12, 50)), 2000
    )
    releases, withheld = released(source, lateness(120))
    assert facts(releases) == [(0, 60, 6, False)]
    assert said(withheld) == [(0, 9, TOO_LATE, True)] * 2 + [(0, 50, TOO_LATE, True)]


@pytest.mark.pipeline
def test_late_reports_are_never_released_where_that_is_asked():
    source = stream(0, rows((10, 6)), 60, rows((11, 9)), 100, rows((12, 9)), 400)
    rules = WindowRules(late="dead_letter")
    releases, withheld = released(source, lateness(120), windows=rules)
    assert facts(releases) == [(0, 60, 6, False)]
    assert said(withheld) == [(0, 9, LATE, True)] * 2


@pytest.mark.pipeline
def test_a_window_with_too_few_waits_for_its_late_reports():
    """Nothing of it was released, so all are one release, at the price of all."""
    source = stream(0, rows((10, 3)), 100, rows((11, 3)), 400)
    releases, withheld = released(source, lateness(120))
    assert facts(releases) == [(0, 60, 6, False)]
    assert not withheld


@pytest.mark.pipeline
def test_a_window_that_nothing_was_seen_of_opens_late_and_once():
    """Its first reports are no second release; what comes after the lateness is too late."""
    source = stream(0, rows((700, 5)), 500, rows((10, 6)), 501, rows((10, 60)), 502)
    releases, withheld = released(source, lateness(120))
    assert facts(releases) == [(0, 60, 6, False), (660, 720, 5, False)]
    assert said(withheld) == [(0, 60, TOO_LATE, True)]


@pytest.mark.pipeline
def test_a_window_may_stay_open_past_its_end():
    source = stream(0, rows((10, 3)), 100, rows((11, 3)), 121, rows((12, 1)), 400)
    releases, withheld = released(source, windows=WindowRules(delay=60))
    assert facts(releases) == [(0, 60, 6, False)]
    assert said(withheld) == [(0, 1, TOO_LATE, True)]


@pytest.mark.pipeline
@pytest.mark.parametrize("output", ["statistic", "reports"])
def test_groups_have_clocks_thresholds_and_late_releases_of_their_own(output):
    german = [TimestampedValue(b"%d;red;de" % i, 10) for i in range(6)]
    french = [TimestampedValue(b"%d;green;fr" % i, 20) for i in range(4)]
    late = [TimestampedValue(b"%d;green;fr" % (9 + i), 30) for i in range(5)]
    source = stream(0, german[:3], french, 30, german[3:], 61, late, 70, german[:2], 400)
    releases, withheld = released(
        source,
        lateness(120),
        people=People(groups=Domain(("de", "fr")), group_by="group"),
        shuffle=Shuffling(output=output),
    )
    found = sorted((key, r.num_reports, r.late, r.window[0]) for key, r in releases)
    assert found == [("de", 6, False, 0), ("fr", 9, False, 0)]
    assert [(w.group, w.num_reports, w.reason, w.late) for w in withheld] == [
        ("de", 2, TOO_FEW, True)
    ]
    assert all(r.group == key for key, r in releases)


@pytest.mark.pipeline
def test_every_report_is_released_once_or_said_to_be_withheld():
    """Random rows, watermarks and lateness: what goes in is what comes out, and no window has more
    than one release of each kind."""
    generator = np.random.default_rng(7)
    steps: list[Any] = [0]
    total = clock = 0
    for _ in range(40):
        times = np.maximum(0, clock + generator.integers(-300, 100, 12))
        steps.append(rows(*((float(t), 1) for t in times)))
        total += len(times)
        clock += int(generator.integers(1, 40))
        steps.append(clock)
    releases, withheld = released(stream(*steps), lateness(120))
    assert sum(r.num_reports for r in releases) + sum(w.num_reports for w in withheld) == total
    assert min(r.num_reports for r in releases) >= 5
    kinds = [(r.window, r.late) for r in releases]
    assert len(set(kinds)) == len(kinds) and any(late for _, late in kinds)
    assert {w.reason for w in withheld} <= {TOO_FEW, TOO_LATE}


# --- budgets ----------------------------------------------------------------------------------


@pytest.mark.pipeline
def test_a_stream_stops_when_its_budget_is_used(tmp_path):
    """Three charges: a window, one with too few reports, late reports; all later ones are held."""
    from beam_ldp.ledger import BudgetLedger
    from beam_ldp.transforms import ChargeTo
    from beam_ldp.transforms.budgeted import USED_UP

    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("d", epsilon=1000, delta=1e-6, local_epsilon=1000, by="test", why="test")
    source = stream(
        0, rows((10, 6), (70, 2)), 60, rows((11, 7)), 70, rows((12, 1)), 300, rows((310, 9)), 700
    )
    budget = ChargeTo("d", url, run_id="r", windows=3)
    releases, withheld = released(source, lateness(60), budget=budget)
    assert facts(releases) == [(0, 60, 6, False), (0, 60, 8, True)]
    assert said(withheld) == [(60, 2, TOO_FEW, False), (300, 9, USED_UP, False)]
    ledger = BudgetLedger(url)
    charges = parts_of(ledger, "r")
    found = {str(c.about["window"]): (c.status, c.about.get("num_reports")) for c in charges}
    micro = 10**6
    assert found == {
        str([0, 60 * micro]): ("settled", 6),
        str([0, 60 * micro, "late"]): ("settled", 8),
        str([60 * micro, 120 * micro]): ("abandoned", 2),
    }
    assert ledger.status("d").local_spent == 3 * ORACLE.local_epsilon


@pytest.mark.pipeline
def test_a_stream_with_fresh_noise_that_is_run_again_releases_no_window_twice(tmp_path):
    """All that it makes anew is withheld, though it costs what was settled."""
    from beam_ldp.ledger import BudgetLedger, audit
    from beam_ldp.transforms import ChargeTo
    from beam_ldp.transforms.budgeted import MADE_AGAIN

    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    BudgetLedger.create(url).set_budget("d", epsilon=1000, delta=1e-6, local_epsilon=1000)
    _KEPT.clear()
    pipeline = beam.Pipeline(options=PipelineOptions([LOCAL], streaming=True))
    rows_of_windows = stream(0, rows((10, 6), (70, 7)), 61, 121, 400)
    windowed = pipeline | rows_of_windows | beam.Map(row) | lateness(0)
    releases = windowed | PrivateFrequencies(
        ORACLE, domain=COLOURS, column="colour", min_reports=5, privacy=BARE,
        people=People(one_row=True), budget=ChargeTo("d", url, run_id="r", windows=3),
    )  # fmt: skip
    releases | "released" >> beam.Map(keep, "released")
    releases.withheld | "withheld" >> beam.Map(keep, "withheld")
    pipeline.run().wait_until_finish()
    before = facts(_KEPT["released"])
    assert before == [(0, 60, 6, False), (60, 120, 7, False)] and "withheld" not in _KEPT
    pipeline.run().wait_until_finish()
    assert facts(_KEPT["released"]) == before
    assert [notice.reason for notice in _KEPT["withheld"]] == [MADE_AGAIN] * 2
    ledger = BudgetLedger(url)
    assert ledger.status("d").local_spent == 2 * ORACLE.local_epsilon
    assert audit(ledger.rows()).clean


@pytest.mark.pipeline
@pytest.mark.parametrize("delay", [0.0, 5.0], ids=["at once", "one by one"])
def test_groups_of_a_window_share_its_charge(delay, tmp_path):
    """Whether they come together or, once the watermark has passed, one by one."""
    from beam_ldp.ledger import BudgetLedger, audit
    from beam_ldp.transforms import ChargeTo

    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    BudgetLedger.create(url).set_budget("d", epsilon=1000, delta=1e-6, local_epsilon=1000)
    both = [
        TimestampedValue(b"%d;red;%s" % (i, group), 10)
        for i in range(6)
        for group in (b"de", b"fr")
    ]
    releases, withheld = released(
        stream(0, both, 61, 70, 400),
        lateness(60),
        people=People(one_row=True, groups=Domain(("de", "fr")), group_by="group"),
        windows=WindowRules(delay=delay),
        budget=ChargeTo("d", url, run_id="r", windows=1),
    )
    assert sorted(key for key, _ in releases) == ["de", "fr"] and not withheld
    ledger = BudgetLedger(url)
    (part,) = parts_of(ledger, "r")
    assert part.status == "settled" and sorted(part.tokens) == ["de", "fr"]
    assert ledger.status("d").local_spent == ORACLE.local_epsilon and audit(ledger.rows()).clean


@pytest.mark.pipeline
def test_without_a_ledger_the_first_releases_leave():
    from beam_ldp.transforms.budgeted import USED_UP
    from beam_ldp.transforms.collector.panes import FirstReleases

    _KEPT.clear()
    with beam.Pipeline(options=PipelineOptions([LOCAL], streaming=True)) as pipeline:
        source = stream(0, rows((10, 5)), 61, rows((70, 6)), 121, rows((130, 7)), 300)
        releases = pipeline | source | beam.Map(row) | lateness(0)
        releases = releases | PrivateFrequencies(
            ORACLE, domain=COLOURS, column="colour", min_reports=5, privacy=BARE
        )
        first = releases | FirstReleases(2)
        first | "released" >> beam.Map(keep, "released")
        first.withheld | "withheld" >> beam.Map(keep, "withheld")
    assert facts(_KEPT["released"]) == [(0, 60, 5, False), (60, 120, 6, False)]
    assert said(_KEPT["withheld"]) == [(120, 7, USED_UP, False)]
    with pytest.raises(ValueError, match="count must be >= 1"):
        FirstReleases(0)


@pytest.mark.pipeline
def test_bundles_of_stages_with_state_are_not_split():
    """On Prism the rest of a split bundle runs beside it, on a state that lacks its part."""
    from apache_beam.options.pipeline_options import DebugOptions

    flags = PipelineOptions([LOCAL], streaming=True)
    pipeline = beam.Pipeline(options=flags)
    read = pipeline | stream(rows((1, 5))) | beam.Map(row) | lateness(0)
    how: Any = {"column": "colour", "min_reports": 5, "privacy": BARE}
    read | PrivateFrequencies(ORACLE, domain=COLOURS, **how)
    assert "prism_disable_sdf_split" in pipeline._options.view_as(DebugOptions).experiments


# --- one report per person --------------------------------------------------------------------


@pytest.mark.pipeline
def test_a_person_counts_once_in_a_window_late_or_not():
    """Eight persons send two rows each in time; three of them and five others send late ones."""
    timely = [TimestampedValue(b"p%d;red" % i, 10 + i) for i in range(8)] * 2
    late = [TimestampedValue(b"p%d;green" % i, 20) for i in range(5, 13)] * 2
    later = [TimestampedValue(b"p%d;green" % i, 20) for i in range(4)]
    # The bundle-based runner's timers do not hold the watermark, so it stands still between the
    # draw of the rows and the release.
    drawn, drawn_late = 59.997, 179.997
    source = stream(
        0,
        timely[:9],
        30,
        timely[9:],
        drawn,
        61,
        late[:7],
        70,
        late[7:],
        drawn_late,
        300,
        later,
        400,
    )
    releases, withheld = released(source, lateness(120), people=People(id="id"))
    assert facts(releases) == [(0, 60, 5, True), (0, 60, 8, False)]
    by_late = {r.late: r.estimate.value for r in releases}
    np.testing.assert_allclose(by_late[False], [1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(by_late[True], [0, 1, 0], atol=1e-6)
    assert sum(w.num_reports for w in withheld) == 4
    assert {(w.reason, w.late) for w in withheld} == {(TOO_LATE, True)}


@pytest.mark.pipeline
def test_late_persons_who_report_again_in_the_next_window_are_in_two_releases():
    """Each above the threshold by itself, or withheld; a late report waits for nobody's next."""
    first = [TimestampedValue(b"a%d;red" % i, 10) for i in range(6)]
    late = [TimestampedValue(b"p%d;red" % i, 20) for i in range(4)]
    again = [TimestampedValue(b"p%d;green" % i, 70) for i in range(6)]
    source = stream(0, first, 59.997, 61, late, again, 119.997, 121, 179.997, 300, 400)
    releases, withheld = released(source, lateness(120), people=People(id="id"))
    assert facts(releases) == [(0, 60, 6, False), (60, 120, 6, False)]
    assert said(withheld) == [(0, 4, TOO_FEW, True)]


@pytest.mark.pipeline
def test_persons_with_ids_of_both_kinds_meet_no_one_else():
    source = stream(0, [TimestampedValue(b"7;red", 1), *rows((5, 9))], 400)
    releases, _ = released(source, people=People(id="id"), shuffle=Shuffling(output="reports"))
    assert facts(releases) == [(0, 60, 10, False)]


# --- memoized ---------------------------------------------------------------------------------


def _reports(key_file: str, permanent: bool) -> dict[int, np.ndarray]:
    """The reports of the same people in two windows, in the order of their ids."""
    from beam_ldp.transforms import ValueBlock

    _KEPT.clear()
    oracle = KRandomizedResponse(16, 1.0)
    with beam.Pipeline(options=PipelineOptions([LOCAL])) as pipeline:
        (
            pipeline
            | beam.Create([10, 70])
            | beam.Map(
                lambda t: TimestampedValue(
                    ValueBlock(np.zeros(200, dtype=int), np.arange(200), source="s"), t
                )
            ).with_output_types(ValueBlock)
            | beam.WindowInto(FixedWindows(60))
            | Randomize(oracle, noise=NoiseSource(identity(), key_file, permanent=permanent))
            | beam.ParDo(_WithStart())
            | beam.Map(keep, "reports")
        )
    return dict(_KEPT["reports"])


class _WithStart(beam.DoFn):
    def process(self, block, window=beam.DoFn.WindowParam):
        yield int(window.start), block.reports


@pytest.mark.pipeline
def test_memoized_noise_is_new_in_every_window_unless_it_is_permanent(tmp_path):
    key_file = tmp_path / "key"
    key_file.write_bytes(bytes(range(32)))
    fresh = _reports(str(key_file), permanent=False)
    again = _reports(str(key_file), permanent=False)
    permanent = _reports(str(key_file), permanent=True)
    assert np.array_equal(fresh[0], again[0]) and np.array_equal(fresh[60], again[60])
    equal = np.mean(fresh[0] == fresh[60])
    assert equal < 0.4  # two independent reports agree with probability 0.09
    assert np.array_equal(permanent[0], permanent[60])


@pytest.mark.pipeline
def test_permanent_responses_are_priced_locally_and_no_budget_takes_them(tmp_path):
    from beam_ldp.accounting import LocalRandomizerDpEvent
    from beam_ldp.transforms import ChargeTo

    key_file = tmp_path / "key"
    key_file.write_bytes(bytes(32))
    how = {
        "people": People(id="id"),
        "noise": Noise(key_file=str(key_file), id="r", dataset="d"),
        "privacy": BARE,
    }
    source = stream(0, positioned(6), 400)
    releases, _ = released_blocks(source, permanent=True, **how)
    (release,) = releases
    assert isinstance(release.event, LocalRandomizerDpEvent)
    assert release.event.local_epsilon == ORACLE.local_epsilon
    with pytest.raises(ValueError, match="no finite epsilon"):
        PrivateFrequencies(
            ORACLE, min_reports=5, permanent=True, budget=ChargeTo("d", "sqlite:///x"), **how
        )
    with pytest.raises(ValueError, match="noise.key_file must be given"):
        PrivateFrequencies(ORACLE, min_reports=5, permanent=True, privacy=BARE)


def positioned(count: int) -> list[Any]:
    return [TimestampedValue(b"%d" % i, 10) for i in range(count)]


def released_blocks(source: TestStream, **how: Any) -> tuple[list[Any], list[Any]]:
    """As `released`, of blocks with ids and source positions, which memoized draws need."""
    _KEPT.clear()
    with beam.Pipeline(options=PipelineOptions([LOCAL], streaming=True)) as pipeline:
        blocks = pipeline | source | beam.Map(_as_block) | beam.WindowInto(FixedWindows(60))
        releases = blocks | PrivateFrequencies(
            ORACLE, column="v", min_reports=5, **{"privacy": BARE, **how}
        )
        releases | "released" >> beam.Map(keep, "released")
        releases.withheld | "withheld" >> beam.Map(keep, "withheld")
    return _KEPT.get("released", []), _KEPT.get("withheld", [])


def _as_block(line: bytes) -> Any:
    import pyarrow as pa

    from beam_ldp.transforms import TableBlock

    batch = pa.RecordBatch.from_pydict({"v": [0], "id": [int(line)]})
    return TableBlock("file", int(line), batch)


# --- sessions ---------------------------------------------------------------------------------

SESSIONS = {"windowing": beam.WindowInto(Sessions(30), allowed_lateness=50)}
PUBLIC = WindowRules(public_bounds=True)


@pytest.mark.pipeline
@pytest.mark.parametrize("output", ["statistic", "reports"])
def test_sessions_with_public_bounds_merge_and_are_released_once(output):
    source = stream(
        0,
        rows((0, 2)),
        rows((20, 2)),
        5,
        rows((40, 3)),
        60,
        rows((200, 6)),
        80,
        rows((300, 2)),
        500,
    )
    releases, withheld = released(
        source, windows=PUBLIC, shuffle=Shuffling(output=output), **SESSIONS
    )
    assert facts(releases) == [(0, 70, 7, False), (200, 230, 6, False)]
    assert said(withheld) == [(300, 2, TOO_FEW, False)]


@pytest.mark.pipeline
def test_a_late_row_never_reopens_a_session_that_was_released():
    source = stream(0, rows((0, 5), (10, 1)), 45, rows((20, 6)), 46, rows((25, 1)), 300)
    releases, withheld = released(source, windows=PUBLIC, **SESSIONS)
    assert facts(releases) == [(0, 40, 6, False), (20, 55, 7, True)]
    assert not withheld


@pytest.mark.pipeline
@pytest.mark.parametrize("output", ["statistic", "reports"])
def test_a_late_report_is_never_merged_into_the_next_session(output):
    """Ada is late in a session that was released, and reports again in the next one, still open.

    Her late row reaches into the next session. Merged, two reports of hers were one release.
    """
    source = stream(
        0, rows((0, 6)), 45,  # [0, 30) is released
        rows((50, 5)) + rows((50, 1), person="ada"),  # [50, 80) is open
        rows((25, 5)) + rows((25, 1), person="ada"), 300,  # [25, 55): late
    )  # fmt: skip
    releases, withheld = released(
        source, windows=PUBLIC, shuffle=Shuffling(output=output), **SESSIONS
    )
    assert facts(releases) == [(0, 30, 6, False), (25, 55, 6, True), (50, 80, 6, False)]
    assert not withheld


@pytest.mark.pipeline
def test_late_reports_that_are_too_few_wait_for_no_other_session():
    source = stream(0, rows((0, 6)), 45, rows((50, 5)), rows((25, 1)), 300)
    releases, withheld = released(source, windows=PUBLIC, **SESSIONS)
    assert facts(releases) == [(0, 30, 6, False), (50, 80, 5, False)]
    assert said(withheld) == [(25, 1, TOO_FEW, True)]


@pytest.mark.pipeline
def test_sessions_of_bounded_data_too():
    _KEPT.clear()
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        stamped = [TimestampedValue("red", t) for t in (0, 5, 20, 100, 110, 120, 300)]
        releases = (
            pipeline
            | beam.Create(stamped)
            | beam.Map(lambda v: v)
            | beam.WindowInto(Sessions(30))
            | PrivateFrequencies(
                ORACLE, domain=COLOURS, min_reports=3, windows=PUBLIC, privacy=BARE
            )
        )
        releases | beam.Map(keep, "released")
        releases.withheld | "held" >> beam.Map(keep, "withheld")
    assert facts(_KEPT["released"]) == [(0, 50, 3, False), (100, 150, 3, False)]
    assert said(_KEPT["withheld"]) == [(300, 1, TOO_FEW, False)]


# --- sliding sums -----------------------------------------------------------------------------


@pytest.mark.pipeline
def test_sliding_sums_of_a_stream_cost_nothing_and_take_each_pane_once():
    """Late releases and missing panes are not in them; the panes come in any order."""
    source = stream(
        0, rows((10, 5)), rows((70, 6), (130, 7)), 61, rows((11, 5)), 190,
        rows((250, 8), (310, 9)), 500, rows((12, 1)), 600,
    )  # fmt: skip
    releases, _ = released(source, lateness(300), slide=(120, 60))
    assert facts(releases) == [
        (0, 60, 5, False), (0, 60, 5, True), (60, 120, 6, False), (120, 180, 7, False),
        (240, 300, 8, False), (300, 360, 9, False),
    ]  # fmt: skip
    slid = _KEPT["slid"]
    assert facts(slid) == [(0, 120, 11, False), (60, 180, 13, False), (240, 360, 17, False)]
    assert all(r.derived and r.event is None for r in slid)


# --- refused at construction ------------------------------------------------------------------


def unbounded_reports(windowing: beam.PTransform) -> Any:
    pipeline = beam.Pipeline(options=PipelineOptions([LOCAL], streaming=True))
    read = pipeline | TestStream(coder=BytesCoder()).advance_watermark_to_infinity()
    return read | beam.Map(lambda b: b).with_output_types(ReportBlock) | windowing


DISCARD = {"accumulation_mode": trigger.AccumulationMode.DISCARDING}
ACCUMULATE = {"accumulation_mode": trigger.AccumulationMode.ACCUMULATING}
EARLY = trigger.AfterWatermark(early=trigger.AfterCount(9))


@pytest.mark.exact
@pytest.mark.parametrize(
    ("windowing", "message"),
    [
        (beam.WindowInto(GlobalWindows()), "needs FixedWindows"),
        (beam.WindowInto(Sessions(5)), "public_bounds"),
        (beam.WindowInto(FixedWindows(5), trigger=EARLY, **DISCARD), "an early pane would be"),
        (
            beam.WindowInto(
                FixedWindows(5), trigger=trigger.Repeatedly(trigger.AfterCount(5)), **DISCARD
            ),
            "refuses triggers",
        ),
        (
            beam.WindowInto(
                FixedWindows(5),
                trigger=trigger.AfterWatermark(late=trigger.AfterCount(1)),
                **DISCARD,
            ),
            "gathered until allowed_lateness",
        ),
        (beam.WindowInto(FixedWindows(5), trigger=EARLY, **ACCUMULATE), "the same reports twice"),
        (beam.WindowInto(beam.window.SlidingWindows(10, 5)), "SlidingSums"),
    ],
)
@pytest.mark.parametrize("output", ["statistic", "reports"])
def test_what_would_release_twice_or_never_is_refused(windowing, message, output):
    reports = unbounded_reports(windowing)
    with pytest.raises(ValueError, match=message):
        reports | Shuffle(ORACLE, 5, output)


@pytest.mark.exact
def test_sessions_and_one_report_per_person_exclude_each_other():
    with pytest.raises(ValueError, match="BoundContributions refuses session windows"):
        released(stream(rows((1, 1))), people=People(id="id"), windows=PUBLIC, **SESSIONS)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("how", "name"),
    [({"late": "drop"}, "late"), ({"delay": -1}, "delay"), ({"delay": float("nan")}, "delay")],
)
def test_rules_are_checked(how, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        WindowRules(**how)


@pytest.mark.exact
def test_overlapping_sessions_are_one_and_touching_ones_two():
    merging = WindowSchedule(0, 0, True, 0, merging=True)
    waiting = [(30, 40, "c"), (0, 10, "a"), (5, 20, "b"), (20, 30, "d"), (6, 8, "e")]
    assert merging.merged(waiting) == [
        ((0, 20), ["a", "b", "e"]),
        ((20, 30), ["d"]),
        ((30, 40), ["c"]),
    ]
    late = [(0, 20), (60, 70)]
    assert merging.merged([(15, 35, "late"), (30, 50, "in time"), (25, 31, "too")], late) == [
        ((15, 35), ["late"]),
        ((25, 50), ["too", "in time"]),
    ]
    fixed = WindowSchedule(0, 0, True, 0, merging=False)
    assert fixed.merged([(0, 10, 1), (0, 10, 2), (10, 20, 3)]) == [
        ((0, 10), [1, 2]),
        ((10, 20), [3]),
    ]
    assert merging.is_late((5, 6), [(0, 10)]) and not merging.is_late((10, 12), [(0, 10)])
    assert fixed.is_late((0, 10), [(0, 10)]) and not fixed.is_late((5, 15), [(0, 10)])


class _Cell:
    """A state of one value, a bag, and a timer that says for when it was set."""

    def __init__(self) -> None:
        self.held: Any = None
        self.bag: list[Any] = []

    def read(self) -> Any:
        return list(self.bag) if self.held is None else self.held

    def write(self, value: Any) -> None:
        self.held = value

    def add(self, value: Any) -> None:
        self.bag.append(value)

    def clear(self) -> None:
        self.held, self.bag = None, []

    def set(self, time: Any) -> None:  # a tag would be one argument more
        self.held = time.micros


class _Counts(CloseWindows[int]):
    def add_up(self, blocks: list[int]) -> int:
        return sum(blocks)

    def close(self, key: Any, bounds: Any, block: int, last: bool, late: bool) -> WindowEnd[int]:
        return WindowEnd([(bounds, block, late)])


@pytest.mark.exact
def test_one_timer_goes_from_each_end_to_the_next() -> None:
    """In whatever order windows are seen; Flink would keep every other tag in all checkpoints."""
    second = 10**6
    doer = _Counts(WindowSchedule(3 * second, 10 * second, True, 0, False))
    waiting, closed, due = _Cell(), _Cell(), _Cell()
    number, clock, planned = (_None() for _ in range(3))

    def see(start: int, block: int) -> None:
        element = ("", (start * second, (start + 5) * second, block))
        assert not list(doer.process(element, waiting, number, closed, clock, planned, due))

    found, at = [], []
    see(5, 1)
    see(0, 2)
    see(20, 4)
    while planned.read() is not None:
        assert due.held == planned.read()
        at.append(due.held // second)
        time = Timestamp(micros=due.held)
        found += doer.when_due("", time, waiting, number, closed, clock, planned, due)
        if at[-1] == 8:
            see(0, 8)
    assert at == [8, 13, 18, 23, 28, 38]
    sums = [(bounds[0] // second, block, late) for bounds, block, late in found]
    assert sums == [(0, 2, False), (5, 1, False), (0, 8, True), (20, 4, False)]
    assert not waiting.bag and not closed.bag


@pytest.mark.exact
def test_adding_up_what_waits_keeps_late_reports_apart() -> None:
    """So many blocks wait that they are added up before the next session closes."""
    doer = _Counts(WindowSchedule(0, 1000, True, 0, merging=True))
    waiting, closed, due = _Cell(), _Cell(), _Cell()
    number, clock, planned = (_None() for _ in range(3))
    closed.add((0, 30))
    clock.write(31)
    for i in range(COMPACT_AT):
        bounds = (20, 50) if i % 2 else (40, 70)
        element = ("", (*bounds, 1))
        assert not list(doer.process(element, waiting, number, closed, clock, planned, due))
    assert sorted(waiting.bag) == [(20, 50, COMPACT_AT // 2), (40, 70, COMPACT_AT // 2)]


class _None(_Cell):
    """A state of one value that is empty at first."""

    def read(self) -> Any:
        return self.held
