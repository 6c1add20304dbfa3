"""The price list of asking once: the page that is shown holds it, and what is said of it is so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import interactivity

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    told = interactivity.main(["--output", str(folder)])
    committed = Path(interactivity.__file__).parent / "results"
    for name in ("interactivity.md", "interactivity.json"):
        assert (committed / name).read_text() == (folder / name).read_text()
    assert json.loads((folder / "interactivity.json").read_text()) == told
    assert (folder / "interactivity.png").read_bytes().startswith(b"\x89PNG")
    return told


def test_fresh_people_in_place_of_the_same_never_pay(found):
    """In both protocols, at every epsilon, people of their own for each wave are fewer."""
    for one in found["median"] + found["places"]:
        people = one["people"]
        assert min(people[mode] for mode in ("plain", "tight", "paper")) > people["once"]


def test_when_to_ask_the_same_people_again(found):
    """A descent: always a third of the people. A median: only from a large epsilon on."""
    for one in found["places"]:
        assert one["people"]["once"] == 3 * one["people"]["again"]
    better = [one["epsilon"] for one in found["median"]
              if one["people"]["again"] < one["people"]["once"]]  # fmt: skip
    assert better == [8.0]


def test_one_round_is_enough_where_the_list_can_be_held(found):
    """Of 84 places in all: fewer people than any descent. Of one median: more up to epsilon 2."""
    for one in found["places"]:
        assert one["people"]["one round"] == min(one["people"].values())
    for one in found["median"]:
        assert (one["people"]["one round"] > one["people"]["once"]) == (one["epsilon"] <= 2)


def test_which_mode_is_cheapest(found):
    """`tight` where epsilons add up to the promise, `plain` where each question has all of it."""
    for one in found["any"]:
        cheapest = min(one["expected"], key=one["expected"].get)
        assert cheapest == ("tight" if one["k"] == 1 and one["epsilon"] <= 2 else "plain")
        assert all(one["rarely_more"][mode] > one["expected"][mode] for mode in one["expected"])


def test_one_round_counts_the_draw_of_people(found):
    """Without noise a median to 5 % takes 1,000 people: no epsilon makes it fewer."""
    assert found["median"][-1]["people"]["one round"] > 990
