"""Rows of people in, the private mean of their means out: both rounds on Beam."""

from __future__ import annotations

from dataclasses import replace

import apache_beam as beam
import dp_accounting
import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.protocols import Box, plan_user_mean
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.randomizers.randomness import UserRandomness
from beam_ldp.settings import Noise, People, Shuffling
from beam_ldp.transforms import ValueBlock
from beam_ldp.transforms.device import side
from beam_ldp.transforms.elements.block_coder import BlockCoder
from beam_ldp.transforms.elements.blocks import Release, WithheldRelease
from beam_ldp.transforms.user_means import PrivateUserMean
from tests.transforms.helpers import blocks_of, run

pytestmark = pytest.mark.pipeline

USERS, ROWS = 2000, 5
MINUTES = Box(CoordinateRanges(0, 1440))


def plan(space=MINUTES, **options):
    return plan_user_mean(USERS, ROWS, space, **{"local_epsilon": 3.0, "sigma": 30.0, **options})


def rows_of_people(centre=(100.0,), users=USERS, deviation=30.0, seed=1):
    """Blocks of rows in no order, and the mean of the people's means."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(np.repeat(np.arange(users), ROWS))
    rows = rng.normal(centre, deviation, (len(ids), len(centre)))
    means = np.stack([rows[ids == i].mean(0) for i in range(users)]) if users < 500 else rows
    blocks = [
        ValueBlock(
            rows[i : i + 3000],
            ids[i : i + 3000],
            source="rows",
            positions=np.arange(i, min(i + 3000, len(ids))),
        )
        for i in range(0, len(ids), 3000)
    ]
    return blocks, means.mean(0)


def released(blocks, protocol, **arguments):
    """`(releases, withheld)`."""

    def build(pipeline):
        typed = pipeline | beam.Create(blocks).with_output_types(ValueBlock)
        releases = typed | PrivateUserMean(protocol, **arguments)
        return (releases, releases.withheld) | beam.Flatten()

    found = run(build)
    return (
        [f for f in found if isinstance(f, Release)],
        [f for f in found if isinstance(f, WithheldRelease)],
    )


@pytest.mark.parametrize(("split", "output"), [("users", "statistic"), ("budget", "reports")])
def test_release_is_close_and_says_so(split, output):
    blocks, truth = rows_of_people()
    protocol = plan(split=split)
    (release,) = run(
        lambda p: (
            blocks_of(p, blocks)
            | PrivateUserMean(
                protocol, shuffle=Shuffling(output=output, scope="global"), question="minutes"
            )
        )
    )
    assert release.num_reports == USERS and release.output == output
    assert (release.question, release.simulated) == ("minutes", False)
    assert abs(release.estimate.value[0] - truth[0]) <= 5 * release.estimate.standard_error[0]
    assert 0 < release.estimate.failure_probability <= 0.02
    searchers = USERS if split == "budget" else USERS - release.estimate.num_users
    assert abs(searchers - protocol.search_share * USERS) <= 5 * np.sqrt(searchers) + 1
    assert release.smallest_batch == (searchers if split == "users" else USERS)


def test_event_is_that_of_both_rounds_and_survives_the_wire():
    blocks, _ = rows_of_people()
    protocol = plan(split="budget")
    (release,) = run(lambda p: blocks_of(p, blocks) | PrivateUserMean(protocol))
    (both,) = release.event.events
    assert isinstance(both, dp_accounting.ComposedDpEvent)
    assert both == protocol.event(USERS, USERS)
    assert [event.num_reports for event in both.events] == [USERS, USERS]
    coder = BlockCoder(Release)
    again = coder.decode(coder.encode(release))
    assert event_to_json(again.event) == event_to_json(release.event)
    assert again.estimate.failure_probability == release.estimate.failure_probability
    assert again.mechanism == protocol.to_config() | {"crowds": [USERS, USERS]}


def test_vectors_share_the_people_of_round_one():
    space = Box(CoordinateRanges((0, 0, 0), (1440, 1440, 1440)), 3)
    protocol = plan(space, local_epsilon=5.0)
    assert protocol.search is not None
    blocks, truth = rows_of_people((50.0, 700.0, 1400.0))
    (release,) = run(lambda p: blocks_of(p, blocks) | PrivateUserMean(protocol))
    clipped = np.clip(np.concatenate([b.values for b in blocks]), 0, 1440).mean(0)
    off = np.abs(release.estimate.value - clipped) / release.estimate.standard_error
    assert off.max() < 5
    assert release.smallest_batch < 0.5 * protocol.search_share * USERS  # of one coordinate


def test_one_round_where_the_plan_skips_the_search():
    protocol = plan_user_mean(USERS, 1, MINUTES, local_epsilon=3.0)
    assert protocol.search is None
    blocks, truth = rows_of_people()
    (release,) = run(lambda p: blocks_of(p, blocks) | PrivateUserMean(protocol))
    assert release.estimate.failure_probability == 0.0
    assert abs(release.estimate.value[0] - truth[0]) < 5 * release.estimate.standard_error[0]


def test_too_few_people_release_nothing_in_either_round():
    blocks, _ = rows_of_people(users=200)
    releases, withheld = released(blocks, plan(), question="q")
    assert releases == [] and withheld
    assert all(notice.question == "q" for notice in withheld)
    assert max(notice.num_reports for notice in withheld) < plan().min_reports(3600)[0]
    # The second round did not ask anybody: the first had failed.
    assert {notice.num_reports for notice in withheld} >= {0}


def test_nobody_at_all_is_said():
    releases, withheld = released([], plan())
    assert releases == [] and {notice.num_reports for notice in withheld} == {0}


def test_a_coordinate_that_nobody_reports_stops_the_release():
    space = Box(CoordinateRanges(0, 1440), 3)
    protocol = plan(space, local_epsilon=5.0)
    blocks, _ = rows_of_people((50.0, 700.0, 1400.0))
    words = protocol.assign(np.arange(USERS)).coordinate
    kept = []
    for block in blocks:
        there = words[block.user_ids] != 1
        kept.append(ValueBlock(block.values[there], block.user_ids[there]))
    releases, withheld = released(kept, protocol)
    assert releases == []
    assert "a part of the people gave fewer reports than a round needs" in {
        n.reason for n in withheld
    }


def test_seed_repeats_and_is_never_priced():
    blocks, _ = rows_of_people()
    protocol = plan()
    first, second = (
        run(lambda p: blocks_of(p, blocks) | PrivateUserMean(protocol, noise=Noise(seed=5)))[0]
        for _ in range(2)
    )
    assert first.simulated and first.event is None
    assert first.estimate.value == second.estimate.value
    (other,) = run(lambda p: blocks_of(p, blocks) | PrivateUserMean(protocol, noise=Noise(seed=6)))
    assert other.estimate.value != first.estimate.value


def test_memoized_noise_repeats_however_rows_are_read(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(bytes(range(32)))
    blocks, _ = rows_of_people()
    memo = Noise(key_file=str(path), id="r", dataset="d")
    protocol = plan()
    (first,) = run(lambda p: blocks_of(p, blocks) | PrivateUserMean(protocol, noise=memo))
    (second,) = run(lambda p: blocks_of(p, blocks[::-1]) | PrivateUserMean(protocol, noise=memo))
    assert not first.simulated and first.event is not None
    assert first.estimate.value == second.estimate.value
    memo = replace(memo, id="s")
    (third,) = run(lambda p: blocks_of(p, blocks) | PrivateUserMean(protocol, noise=memo))
    assert third.estimate.value != first.estimate.value


def test_bad_rows_leave_their_place_and_a_reason():
    rows = [{"uid": i % USERS, "minutes": 100.0} for i in range(USERS)]
    rows += [{"uid": 1, "minutes": "secret"}, {"uid": None, "minutes": 3.0}]
    found = run(
        lambda p: (
            (
                p
                | beam.Create(rows)
                | PrivateUserMean(plan(), columns="minutes", people=People(id="uid"))
            ).bad_rows
        )
    )
    reasons = sorted(bad.reason for block in found for bad in block)
    assert reasons == ["no user id", "not a number"]
    assert "secret" not in repr(found)


def test_hidden_bad_rows_count_as_the_middle_of_the_range():
    """Within 5 standard errors: false alarms below 1e-6."""
    rows = [{"uid": i, "minutes": None} for i in range(USERS)]
    protocol = plan_user_mean(USERS, 1, Box(CoordinateRanges(1000, 1440)), local_epsilon=8.0)
    ask = PrivateUserMean(protocol, columns="minutes", people=People(id="uid"), bad_rows="zero")
    (release,) = run(lambda p: p | beam.Create(rows) | ask)
    assert abs(release.estimate.value[0] - 1220) < 5 * release.estimate.standard_error[0] < 30


def test_windows_are_released_one_by_one():
    blocks, _ = rows_of_people()
    stamped = [TimestampedValue(block, 10) for block in blocks]
    stamped += [TimestampedValue(block, 70) for block in rows_of_people((900.0,), seed=2)[0]]

    def build(pipeline):
        return (
            pipeline
            | beam.Create(stamped)
            | beam.Map(lambda block: block).with_output_types(ValueBlock)
            | beam.WindowInto(FixedWindows(60))
            | PrivateUserMean(plan())
        )

    found = sorted(run(build), key=lambda release: release.window)
    assert [round(float(r.estimate.value[0]), -2) for r in found] == [100, 900]
    assert found[0].window == (0, 60_000_000)


def test_each_round_of_each_window_draws_noise_of_its_own(tmp_path, monkeypatch):
    path = tmp_path / "key"
    path.write_bytes(bytes(range(32)))
    blocks, drawn = rows_of_people()[0], []

    def recorded(key, user_ids, identity):
        drawn.append(identity.part)
        return UserRandomness(key, user_ids, identity)

    monkeypatch.setattr(side, "UserRandomness", recorded)
    stamped = [TimestampedValue(block, t) for block in blocks for t in (10, 70)]
    ask = PrivateUserMean(
        plan(split="budget"), noise=Noise(key_file=str(path), id="r", dataset="d")
    )
    assert ask.identity is not None
    run(
        lambda p: (
            p
            | beam.Create(stamped)
            | beam.Map(lambda block: block).with_output_types(ValueBlock)
            | beam.WindowInto(FixedWindows(60))
            | ask
        )
    )
    windows = [ask.identity.of_window(t * 10**6, (t + 60) * 10**6) for t in (0, 60)]
    assert set(drawn) == {f"round {r} {window.part}" for r in (0, 1) for window in windows}


@pytest.mark.statistical
@pytest.mark.parametrize("coordinates", [1, 3])
def test_each_group_has_a_mean_of_its_own(coordinates):
    """Within five standard errors: false alarms below 1e-5."""
    space = Box(CoordinateRanges(0, 1440), coordinates)
    protocol = plan(space, local_epsilon=5.0, split="users")
    people = People(id="uid", group_by="land", groups=Domain(("de", "fr", "it")))
    middles = {"de": 300.0, "fr": 1100.0}
    rows = [
        {"uid": f"{land} {i}", "land": land, "minutes": [middle + i % 7] * coordinates}
        for land, middle in middles.items()
        for i in range(USERS)
    ]

    def build(pipeline):
        ask = PrivateUserMean(protocol, columns="minutes", people=people)
        found = pipeline | beam.Create(rows) | ask
        return (found | beam.Values(), found.withheld) | beam.Flatten()

    found = run(build)
    assert {one.group for one in found if isinstance(one, WithheldRelease)} == {"it"}
    releases = [one for one in found if isinstance(one, Release)]
    assert sorted(one.group for one in releases) == ["de", "fr"]
    for one in releases:
        off = np.abs(one.estimate.value - middles[one.group] - 3) / one.estimate.standard_error
        assert (off < 5).all() and (one.estimate.standard_error < 200).all()


def test_what_does_not_fit_is_refused_when_the_pipeline_is_built():
    with pytest.raises(TypeError, match="protocol must be a UserMean, got int"):
        PrivateUserMean(3)
    with pytest.raises(ValueError, match="people.id must name"):
        PrivateUserMean(plan(), columns="minutes")
    with pytest.raises(ValueError, match="dataset must be a declared name"):
        PrivateUserMean(plan(), noise=Noise(key_file="key"))
    with pytest.raises(ValueError, match="min_reports must be an integer >= 1"):
        PrivateUserMean(plan(), min_reports=0)
