"""Regret by model of trust: the page that is shown, the specification's figures, and its claims."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bandits

RESULTS = Path(bandits.__file__).parent / "results"
EPSILONS = np.array(bandits.EPSILONS)

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def found():
    told = json.loads((RESULTS / "bandits.json").read_text())
    assert bandits.page(told) == (RESULTS / "bandits.md").read_text()
    return told


def regret(found, name):
    return np.array(found["million"][name]["regret"])


def test_what_is_shown_is_what_is_computed(found):
    """A row of the table, run again."""
    (curve,) = bandits.figures(10**6, ("none",))
    assert curve.mean.tolist() == pytest.approx(found["million"]["none"]["regret"], rel=1e-9)


def test_figures_of_the_specification(found):
    """53 figures of 11 settings, within 4 standard errors of two samples of 100 runs.

    Noise of half the scale, as the text has it, halves local regret, which is 10 of them.
    """
    compared = 0
    for title, specified in (("million", bandits.SPECIFIED),
                             ("hundred_thousand", bandits.SPECIFIED_1E5)):  # fmt: skip
        for name, given in specified.items():
            row = found[title][name]
            if title == "hundred_thousand":
                given = (given,) if name == "none" else (None,) * 4 + (given,)
            assert abs(bandits.distance(row, given)) < 4
            compared += sum(value is not None for value in given)
    assert compared == 53
    core = found["core_sets"][0]["curves"]
    for epsilon, given in bandits.CORE_SPECIFIED.items():
        place = bandits.CORE_EPSILONS.index(epsilon)
        for name, thousands in zip(("core set", "all actions"), given, strict=True):
            shown = core[f"central, {name}"]["regret"][place]
            assert shown == pytest.approx(1000 * thousands, rel=0.03)


def test_no_estimate_was_outside_its_width(found):
    for title in ("million", "hundred_thousand"):
        assert sum(row["missed"] for row in found[title].values()) == 0


def test_claims_of_the_text_that_hold(found):
    """C1 to C4: all tend to no privacy, central is near it, local far, shuffled near central."""
    none = regret(found, "none")[0]
    for name in ("central", "shuffled", "local"):
        assert regret(found, name)[-1] < 1.1 * none
    one = bandits.EPSILONS.index(1.0)
    central, shuffled, local = (regret(found, n)[one] for n in ("central", "shuffled", "local"))
    assert central < 1.05 * none
    assert local > 3 * central
    assert shuffled < 1.15 * central
    first = [regret(found, name)[0] for name in ("central", "shuffled", "local")]
    assert first[0] < first[1] < 1.5 * first[0] < first[2] / 10


def test_one_bit_loses_less_than_laplace_noise_at_every_epsilon(found):
    for bits, laplace in (("local", "local-laplace"), ("shuffled", "shuffled-laplace"),
                          ("shuffled-batch", "shuffled-batch-laplace")):  # fmt: skip
        assert (regret(found, bits) < regret(found, laplace)).all()


def test_hiding_among_people_of_one_action_costs_more(found):
    for one in found["crowds"]:
        for name in ("closed form, Laplace", "bits"):
            by_action, by_batch = (
                np.array(one["curves"][f"{name}, {over}"]["regret"]) for over in ("action", "batch")
            )
            assert (by_action > by_batch).all()


def test_a_core_set_is_better_for_small_epsilons_only(found):
    """Claim C5 as it holds: a crossing, and a regret that hardly depends on epsilon."""
    for one in found["core_sets"]:
        few, every = (
            np.array(one["curves"][f"central, {name}"]["regret"])
            for name in ("core set", "all actions")
        )
        assert few[0] < every[0] / 1.5 and few[-1] > 1.5 * every[-1]
        assert np.diff(np.sign(every - few)).tolist().count(-2) == 1
        assert every[0] / every[-1] > 2 * few[0] / few[-1]


def test_ten_million_people_take_seconds(found):
    assert all(seconds <= 5 for seconds in found["seconds"].values())


@pytest.mark.bench
def test_a_run_of_ten_million_people():
    """Of each model, prices of shuffled crowds computed on the way: 3 CPU seconds where it was
    written."""
    assert max(bandits.seconds().values()) <= 5


def test_slopes_are_of_the_curves(found):
    """Powers of a table that is a power; local regret goes with 1/epsilon."""
    small = EPSILONS <= 0.5
    made = {"none": {"regret": [10.0]}}
    for name, power in (("central", 2.0), ("shuffled", 1.0), ("local", 0.5)):
        made[name] = {"regret": (10.0 + 3 * EPSILONS**-power).tolist()}
    slopes = bandits.slopes_in_epsilon(made)
    assert [round(slopes[name]["slope"], 9) for name in slopes] == [2.0, 1.0, 0.5]
    assert len(slopes["local"]["excess"]) == small.sum()
    assert 0.9 < found["slopes_in_epsilon"]["local"]["slope"] < 1.1
    regrets = found["slopes"]["regret"]["local"]
    assert found["slopes"]["in_people"]["local"][0] == pytest.approx(
        np.log10(regrets[1] / regrets[0])
    )


def test_the_table_of_the_documentation(found):
    """Its rows are those of the benchmark, in thousands."""
    page = (RESULTS.parents[1] / "docs" / "bandits.md").read_text()
    labels = {
        "none": "no privacy", "central": "central", "shuffled-batch": "shuffled, whole batch",
        "shuffled": "shuffled, people of one action", "local": "local",
        "shuffled-laplace": "the same with Laplace reports",
        "local-laplace": "local with Laplace reports",
    }  # fmt: skip
    places = [bandits.EPSILONS.index(epsilon) for epsilon in (0.1, 1.0, 3.0)]
    for name, label in labels.items():
        told = regret(found, name)
        shown = told if name == "none" else told[places]
        cells = [f"{value / 1e3:.3g}" for value in shown] + [""] * (3 - len(shown))
        assert f"| {label} | {' | '.join(cells)} |".replace("  ", " ") in page


def test_how_far_means_are_from_those_of_others():
    row = {"regret": [7000.0, 9000.0], "standard_error": [100.0, 100.0]}
    assert bandits.distance(row, (None, 8.9)) == pytest.approx(100 / (100 * 2**0.5))
    assert bandits.distance(row, ()) is None
