"""The two halves of a release by themselves, and what their composites are told."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, replace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

from beam_ldp.questions.base import Asked
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import CoordinateRanges, LInfMean, MeanRandomizer
from beam_ldp.randomizers.questions import OneQuestion
from beam_ldp.randomizers.registry import offered
from beam_ldp.settings import Noise, People, Privacy, SettingError, Shuffling
from beam_ldp.transforms import (
    CollectorSide,
    DeviceSide,
    Frequencies,
    Means,
    PrivateEstimate,
    PrivateFrequencies,
    PrivateMean,
    Releases,
    ReportBlock,
    Reports,
    StageError,
    Survey,
    ValueBlock,
    WindowRules,
)
from beam_ldp.transforms.composite import HowReleased, bounding_of
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.queries import encode, estimator
from beam_ldp.transforms.questions import ListQuestion, PrivateQuestions
from tests.transforms.helpers import blocks_of, local, run, value_blocks

ORACLE = next(kind for kind in offered("frequency") if kind.__name__.startswith("K"))(5, 3.0)
COLOURS = Domain(("red", "green"))
ASKED = Frequencies(name="colour")
VALUES = np.arange(200) % 5
GATE = Shuffling(min_reports=150)


def device(**how: Any) -> DeviceSide:
    return DeviceSide(encode(ASKED, ORACLE, People()), ORACLE, **how)


def collector(least: int = 150) -> CollectorSide:
    shuffle = Shuffling(min_reports=least)
    return CollectorSide(ORACLE, estimator(ASKED, ORACLE, least), shuffle=shuffle)


# --- typed results ----------------------------------------------------------------------------


@pytest.mark.pipeline
def test_the_halves_give_what_the_composite_gives():
    """Same blocks, same seed: the same reports, hence the same estimate to the last bit."""
    blocks = value_blocks(VALUES, 70)

    def apart(pipeline: beam.Pipeline) -> beam.PCollection:
        made = blocks_of(pipeline, blocks) | device(noise=NoiseSource(seed=7))
        assert isinstance(made, Reports) and made.reports.element_type == ReportBlock
        found = made.reports | collector()
        assert isinstance(found, Releases)
        return found.releases

    composite = PrivateFrequencies(
        ORACLE, shuffle=GATE, noise=Noise(seed=7), question="colour", domain=None
    )
    (one,) = run(apart)
    (other,) = run(lambda pipeline: blocks_of(pipeline, blocks) | composite)
    assert np.array_equal(one.estimate.value, other.estimate.value)
    assert (one.question, one.num_reports) == (other.question, other.num_reports) == ("colour", 200)


@pytest.mark.pipeline
def test_what_is_withheld_is_in_the_result():
    def build(pipeline: beam.Pipeline) -> beam.PCollection:
        made: Reports = blocks_of(pipeline, value_blocks(VALUES, 70)) | device()
        return (made.reports | collector(least=201)).withheld

    (notice,) = run(build)
    assert (notice.num_reports, notice.min_reports) == (200, 201)


@pytest.mark.exact
def test_a_result_says_what_there_is(tmp_path):
    """A field is None exactly where there is no such collection; none can be hung on later."""
    (tmp_path / "key").write_bytes(bytes(32))
    key = NoiseSource(ReleaseIdentity("people", "r"), str(tmp_path / "key"))

    def made(**how: Any) -> Reports:
        source = local() | beam.Create([]).with_output_types(ValueBlock)
        return source | device(**how)

    fresh, drawn, memoized = made(), made(one_each=True), made(noise=key)
    assert fresh.persons is None and fresh.traces is None and fresh.late is None
    assert drawn.persons is not None and drawn.bad_rows is not None
    assert memoized.traces is not None and memoized.persons is None
    with pytest.raises(FrozenInstanceError):
        fresh.reports = None  # type: ignore[misc]


@pytest.mark.exact
def test_raw_values_do_not_reach_a_collector():
    values = local() | beam.Create([]).with_output_types(ValueBlock)
    with pytest.raises(StageError, match="put Randomize"):
        values | collector()


# --- one implementation, told the same by everybody -------------------------------------------


@pytest.mark.exact
def test_every_composite_is_told_everything():
    """`windows` was once forgotten on the way from `PrivateQuestions` to the stages."""
    told = set(HowReleased.__annotations__)
    signature = inspect.signature(PrivateEstimate.__init__).parameters.values()
    assert told == {one.name for one in signature if one.kind is one.KEYWORD_ONLY}
    rules = WindowRules(delay=17.0)
    survey = OneQuestion((ORACLE,))
    domain = Domain(("a", "b", "c", "d"))
    composites = [
        PrivateFrequencies(ORACLE, min_reports=5, windows=rules),
        PrivateMean(LInfMean(2, 4.0), min_reports=5, windows=rules),
        PrivateQuestions(survey, [ListQuestion("c", domain)], min_reports=5, windows=rules),
    ]
    for composite in composites:
        assert composite._halves.collector._shuffle.windows is rules
        several = isinstance(composite, PrivateQuestions)
        asked = {"questions": [ListQuestion("c", domain)]} if several else {}
        with pytest.raises(TypeError, match="unexpected keyword"):
            type(composite)(ORACLE, min_reports=5, windws=rules, **asked)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "min_reports or expected_users must be given"),
        ({"min_reports": 9, "shuffle": GATE}, "min_reports must not be given twice"),
        (
            {"expected_users": 9, "privacy": Privacy(expected_users=9)},
            "expected_users must not be given with privacy",
        ),
        ({"privacy": Privacy(expected_users=9, local_epsilon=1)}, "local_epsilon must be left out"),
        ({"privacy": Privacy(expected_users=9, model="local")}, "model must be left out"),
        ({"min_reports": 0}, "min_reports must be an integer >= 1"),
        ({"min_reports": 9, "people": People(group_by="g")}, "groups must be given with group_by"),
        ({"min_reports": 9, "one_row_each": True}, "people.id must name whose row it is"),
        ({"min_reports": 9, "noise": Noise(key_file="k")}, "dataset must be a declared name"),
    ],
)
def test_what_does_not_fit_is_refused(how, message):
    with pytest.raises(ValueError, match=message):
        PrivateFrequencies(ORACLE, column="c", **how)


@pytest.mark.exact
def test_the_least_number_of_reports():
    def least(**how: Any) -> int:
        return PrivateFrequencies(ORACLE, **how)._min_reports

    assert least(min_reports=7) == least(shuffle=Shuffling(min_reports=7)) == 7
    assert least(expected_users=1000) == least(privacy=Privacy(expected_users=1000)) == 900
    assert least(min_reports=7, expected_users=1000) == 7
    with pytest.raises(SettingError, match="min_reports must lie"):
        Shuffling(min_reports=0)


@pytest.mark.exact
def test_whose_rows_they_are():
    assert bounding_of(People()) == "row" == bounding_of(People(one_row=True), "visit")
    assert bounding_of(People(one_row=True)) != "row"
    assert bounding_of(People(id="uid")) == "one row of each uid"
    for people, sampling in ((People(id="uid"), "iid"), (People(one_row=True), "fixed")):
        assert PrivateFrequencies(ORACLE, min_reports=5, people=people).sampling == sampling
    one_each = PrivateMean(
        LInfMean(2, 4.0), min_reports=5, people=People(id="u"), one_row_each=True
    )
    assert one_each.sampling == "fixed"


@pytest.mark.exact
def test_questions_tell_what_identities_hold():
    names, ranges = ("age", "bmi"), CoordinateRanges((0, 10), (120, 60))
    asked: list[tuple[Asked, Any]] = [
        (Frequencies(COLOURS, "colour"), Frequencies(COLOURS.values, "colour")),
        (Means(names, ranges), Means(names)),
    ]
    assert asked[0][0].columns == ("colour",) and asked[1][0].columns == names
    assert Frequencies(name="c").columns == ("c",) and Frequencies().columns == ()
    assert Means("v").columns == ("v",)
    assert asked[0][0].digest(None) == COLOURS.digest
    assert Frequencies().digest(ORACLE) != Frequencies(COLOURS).digest(ORACLE)
    assert (asked[1][0].digest(None), asked[1][1].digest(None)) == (ranges.digest, b"")
    survey = Survey((ListQuestion("a", COLOURS), ListQuestion("b", COLOURS, "second")))
    assert (survey.columns, survey.name) == (("a", "b"), "a, second")


# --- "auto" -----------------------------------------------------------------------------------

TARGET = Privacy(epsilon=1, delta=1e-8, expected_users=1_000_000)


@pytest.mark.exact
def test_frequencies_plan_for_themselves():
    from beam_ldp.planning import plan_frequencies

    composite = PrivateFrequencies("auto", domain=COLOURS, privacy=TARGET)
    best = plan_frequencies(1_000_000, COLOURS.size, epsilon=1, delta=1e-8, max_local_epsilon=8.0)[
        0
    ]
    assert composite.randomizer.local_epsilon == 8.0  # by default, and more where that is said
    more = replace(TARGET, max_local_epsilon=12)
    more = PrivateFrequencies("auto", domain=COLOURS, privacy=more).randomizer
    assert isinstance(more, FrequencyOracle) and 9 < more.local_epsilon < 10
    assert composite.randomizer == best.randomizer and composite._min_reports == 900_000
    assert isinstance(composite.randomizer, FrequencyOracle)
    capped = Privacy(epsilon=1, delta=1e-8, expected_users=1_000_000, max_local_epsilon=2)
    limited = PrivateFrequencies("auto", domain=COLOURS, privacy=capped)
    assert limited.randomizer.local_epsilon <= 2 < composite.randomizer.local_epsilon
    local = Privacy(epsilon=2, model="local", expected_users=1000)
    assert PrivateFrequencies("auto", domain=COLOURS, privacy=local).randomizer.local_epsilon == 2


@pytest.mark.exact
def test_a_given_mechanism_is_held_to_the_same_limit():
    """An object of its own local epsilon needs what a plan above the limit needs."""

    def build(epsilon, noise=Noise(), **asked):
        how = {"min_reports": 5, "noise": noise, "privacy": Privacy(**asked) if asked else None}
        return PrivateFrequencies(KRandomizedResponse(5, epsilon), **how).randomizer.local_epsilon

    assert build(8.0) == 8.0
    assert build(9.0, max_local_epsilon=9) == 9.0
    assert build(25.0, trust_shuffler=True) == 25.0
    assert build(25.0, Noise(seed=1)) == 25.0  # a simulation
    for epsilon, asked, needed in (
        (9.0, {}, "privacy.max_local_epsilon 9"),
        (9.0, {"max_local_epsilon": 8.5}, "privacy.max_local_epsilon 9"),
        (2.0, {"max_local_epsilon": 1}, "privacy.max_local_epsilon 2"),
        (13.0, {}, "privacy.trust_shuffler"),
        (13.0, {"trust_shuffler": True, "max_local_epsilon": 12.5}, "max_local_epsilon 13"),
    ):
        with pytest.raises(SettingError, match=f"local epsilon of randomizer.* with .*{needed}$"):
            build(epsilon, **asked)
    with pytest.raises(SettingError, match="local epsilon of randomizer must be at most 8"):
        PrivateMean(LInfMean(2, 9.0), min_reports=5)


@pytest.mark.exact
def test_means_and_surveys_plan_for_themselves():
    ranges = CoordinateRanges((0, 10), (120, 60))
    people = Privacy(local_epsilon=2, expected_users=10_000)
    mean = PrivateMean("auto", columns=["age", "bmi"], ranges=ranges, privacy=people)
    assert isinstance(mean.randomizer, MeanRandomizer) and mean.randomizer.dimension == 2
    assert mean.randomizer.norm == "linf" and mean.randomizer.local_epsilon == pytest.approx(2)
    questions = [ListQuestion("a", COLOURS), ListQuestion("b", Domain(("x", "y", "z")))]
    survey = PrivateQuestions("auto", questions, privacy=people)
    assert survey.randomizer.domain_sizes == (3, 4)  # type: ignore[attr-defined]


@pytest.mark.exact
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: PrivateFrequencies("auto", domain=COLOURS, min_reports=5), "privacy must say"),
        (lambda: PrivateFrequencies("auto", privacy=TARGET), "domain must be given"),
        (lambda: PrivateMean("auto", columns="x", privacy=TARGET), "ranges must be given"),
        (
            lambda: PrivateFrequencies(
                "auto", domain=COLOURS, privacy=Privacy(epsilon=1, expected_users=100)
            ),
            "delta must be given with epsilon",
        ),
    ],
)
def test_auto_needs_to_know_what_for(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.pipeline
def test_a_planned_composite_runs():
    privacy = Privacy(local_epsilon=4, expected_users=100)
    composite = PrivateFrequencies("auto", domain=COLOURS, privacy=privacy)
    (release,) = run(lambda pipeline: pipeline | beam.Create(["red"] * 100) | composite)
    assert release.num_reports == 100 and release.mechanism == composite.randomizer.to_config()
