"""A plan of several rounds by group and window: what each is asked under, and what is withheld."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp.randomizers.domain import Domain
from beam_ldp.settings import Noise, People
from beam_ldp.transforms import PrivateEstimate
from beam_ldp.transforms.elements.blocks import Release, ValueBlock, WithheldRelease
from beam_ldp.transforms.rounds import Answered, alone
from tests.questions.toys.toy_halves import Half, Halves, Quarter
from tests.transforms.helpers import run

pytestmark = pytest.mark.pipeline

GROUPS = ("north", "south", "west")


def rows(people: dict[str, tuple[int, float]]) -> list[dict[str, Any]]:
    """So many people of each group, who all hold the same number."""
    return [
        {"uid": f"{group} {i}", "group": group, "x": number}
        for group, (count, number) in people.items()
        for i in range(count)
    ]


def ask(plan: Halves, *, grouped: bool = True, **how: Any) -> PrivateEstimate:
    parted = {"group_by": "group", "groups": Domain(GROUPS)} if grouped else {}
    return PrivateEstimate(plan, Quarter("x"), people=People(id="uid", **parted), **how)


def released(
    source: Any, transform: PrivateEstimate
) -> tuple[dict[Any, Release], list[WithheldRelease]]:
    def build(pipeline: beam.Pipeline) -> Any:
        found = pipeline | source | transform
        return (
            found | beam.Map(lambda one: one).with_output_types(Any),
            found.withheld | beam.Map(lambda one: one).with_output_types(Any),
        ) | "Both" >> beam.Flatten()

    withheld, releases = [], {}
    for one in run(build):
        if isinstance(one, WithheldRelease):
            withheld.append(one)
        else:
            release = one[1] if isinstance(one, tuple) else one
            releases[release.group, release.window] = release
    return releases, withheld


@pytest.mark.parametrize("cells", [1, 3])
def test_every_group_has_a_state_of_its_own_and_one_that_starves_is_withheld(cells: int) -> None:
    people = rows({"north": (600, 0.1), "south": (600, 0.6), "west": (90, 0.9)})
    plan = Halves(cells_of_first=cells)
    releases, withheld = released(beam.Create(people), ask(plan, min_reports=600))
    assert {key: one.estimate.value.tolist() for key, one in releases.items()} == {
        ("north", None): [0.0, 0.25],
        ("south", None): [0.5, 0.75],
    }
    assert {notice.group for notice in withheld} == {"west"}
    assert all(one.num_reports == 600 and one.ran is not None for one in releases.values())


def test_every_window_has_a_state_of_its_own() -> None:
    stamped = [
        TimestampedValue(row, 10 * (row["x"] > 0.5))
        for row in rows({"north": (600, 0.1), "south": (600, 0.6)})
    ]
    source = beam.Create(stamped) | beam.WindowInto(FixedWindows(10))
    releases, _ = released(source, ask(Halves(), grouped=False, min_reports=600))
    assert {window[0]: one.estimate.value.tolist() for (_, window), one in releases.items()} == {
        0: [0.0, 0.25],
        10_000_000: [0.5, 0.75],
    }


def test_a_group_that_no_row_is_of_is_withheld_once() -> None:
    _, withheld = released(beam.Create(rows({"north": (600, 0.1)})), ask(Halves(), min_reports=600))
    assert sorted(str(notice.group) for notice in withheld) == ["south", "west"]


def test_a_round_that_fails_releases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Half, "advance", lambda *_: None)
    releases, _ = released(beam.Create(rows({"north": (600, 0.1)})), ask(Halves(), min_reports=600))
    assert not releases


def test_memoized_reports_are_the_same_whatever_order_rows_come_in(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"a secret of 32 bytes or more, for a test")
    os.chmod(key, 0o600)
    noise = Noise(dataset="people", id="week", key_file=str(key))

    def once(order: int) -> list[str]:
        blocks = [
            ValueBlock(np.full((300, 1), 0.1 + 0.5 * g), np.arange(300) + 300 * g,
                       np.full(300, g), source="s", positions=np.arange(300) + 300 * g)
            for g in range(2)
        ][::order]  # fmt: skip
        transform = ask(Halves(1.0), noise=noise, min_reports=300)
        source = beam.Create(blocks).with_output_types(ValueBlock)
        found, _ = released(source, transform)
        return sorted(f"{key} {one.estimate.value}" for key, one in found.items())

    assert once(1) == once(-1) and len(once(1)) == 2


@pytest.mark.exact
def test_a_group_with_two_states_has_none() -> None:
    one, other = Answered("a", 1, (), False), Answered("b", 2, (), False)
    assert alone([one, other, one]) == {"b": other}


@pytest.mark.exact
def test_unbounded_data_and_windows_that_fire_twice_are_refused() -> None:
    def build(**windowing: Any) -> None:
        pipeline = beam.Pipeline(runner="FnApiRunner")
        people = rows({"north": (6, 0.1)})
        source = pipeline | beam.Create(people) | beam.WindowInto(FixedWindows(10), **windowing)
        if not windowing:
            source.is_bounded = False
        source | ask(Halves(), min_reports=6)

    with pytest.raises(ValueError, match="bounded data"):
        build()
    with pytest.raises(ValueError, match="fire once"):
        build(allowed_lateness=60)
