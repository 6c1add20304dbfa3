"""Rounds below the doors: what people send in each, with a fixed key; identities of all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.settings import People
from beam_ldp.transforms import PrivateHeavyHitters, PrivateUserMean
from tests.golden import frozen, rounds
from tests.golden.frozen import NUMBERS
from tests.golden.rounds import KINDS, SEARCHES, USER_MEANS
from tests.golden.stores import Sharing

pytestmark = pytest.mark.e2e

GOLDEN = Sharing("rounds")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where everything happens: a frozen world."""
    place = tmp_path / "world"
    with frozen.world(place):
        yield place


@pytest.mark.parametrize("name", USER_MEANS)
def test_both_rounds_of_a_mean_by_direct_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = frozen.memoized_reports(monkeypatch)
    told = rounds.of_protocol(name)
    GOLDEN.check(NUMBERS, f"user mean: {name}", {**told, "sent": reports()})


@pytest.mark.parametrize("name", SEARCHES)
def test_all_levels_of_a_search_by_direct_calls(name: str) -> None:
    GOLDEN.check(NUMBERS, f"search: {name}", rounds.of_search(name))


STAGES: dict[str, Any] = {
    **{f"user mean: {name}": (PrivateUserMean, USER_MEANS[name]) for name in ("users", "budget")},
    "user mean: vectors": (PrivateUserMean, USER_MEANS["vectors"]),
    **{f"search: {name}": (PrivateHeavyHitters, SEARCHES[name]) for name in ("secret", "visible")},
}


@pytest.mark.parametrize("name", STAGES)
def test_every_round_of_a_composite(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, plan = STAGES[name]
    given: list[Any]
    asked: dict[str, Any]
    if kind is PrivateUserMean:
        given = rounds.rows("vectors" in name)
        asked = {"columns": list("abc") if "vectors" in name else "minutes"}
    else:
        given, asked = rounds.words(plan), {"column": "word"}
    stage = kind(plan, **asked, **rounds.how(folder, people=People(id="uid")))
    reports = frozen.memoized_reports(monkeypatch)
    released = rounds.release(stage, given)
    told = {"sent": reports(), "releases": rounds.told(released)}
    GOLDEN.check(NUMBERS, f"composite of {name}", told)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_release_is(kind: str, folder: Path) -> None:
    identity = KINDS[kind](rounds.how(folder)).identity
    GOLDEN.check(NUMBERS, f"identity: {kind}", rounds.parts_of(identity))
    assert ReleaseIdentity.from_json(identity.to_json()) == identity


def test_every_case_is_made() -> None:
    made = {f"user mean: {name}" for name in USER_MEANS} | {f"search: {name}" for name in SEARCHES}
    made |= {f"composite of {name}" for name in STAGES} | {f"identity: {kind}" for kind in KINDS}
    GOLDEN.check_cases(made, NUMBERS)
