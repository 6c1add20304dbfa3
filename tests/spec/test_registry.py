"""Which mechanisms the specification holds: all that the registry lists, but those named here."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from beam_ldp.randomizers import registry
from beam_ldp.randomizers.frequency import Rappor
from beam_ldp.randomizers.mean import LInfMean, PrivUnitInf
from tests.randomizers import make_wire_vectors
from tests.spec import beyond, beyond_directions, beyond_seeds, compare

pytestmark = pytest.mark.exact

PAGE = Path(__file__).resolve().parents[2] / "docs" / "wire-format.md"
NORMALS = "normals by a ziggurat, and"  # 27 lines of their own, which nothing else needs
MISSING = {  # what each would add to its 600 lines
    "KashinMean": "even representations, and rows drawn by SplitMix64",
    "LimitedHadamard": "four laws, three of them by the entropy of a coin",
    "MinimalRandomCoding": f"{NORMALS} caps of the sphere, binomial laws and a search over caps",
    "PrivUnit": f"{NORMALS} gammas, heights in and off a cap, and the measure of caps: 97 lines",
    "PrivUnitGaussian": f"{NORMALS} tails and a search for the best of them",
    "PrivUnitInf": "caps of corners, drawn by thinned steps: 35 lines",
    "ProjectedPrivUnit": "PrivUnit, and rows drawn by SplitMix64",
    "RandomCodebookMean": f"{NORMALS} order statistics of heights, by quadrature",
    "RefinableResponse": "coins of several levels, and shifts: 26 lines",
    "RotatedSimplexMean": f"{NORMALS} order statistics of normals, by quadrature",
    "SeedCompressedMean": "PrivUnit, and streams of AES-128",
    "SeparatedMean": "PrivUnit, and a search for the best split of a budget",
    "SplitAndMixMean": "discrete Gaussian noise",
}
UNKNOWN = (  # settings of those that it holds: refused, never taken for others
    Rappor(4, 1.0, num_hashes=1, num_bits=8, num_cohorts=2),
    Rappor(4, 1.1, 2.5, report_probabilities=(0.4, 0.6)),
    LInfMean(5, 4.0, preset="thesis"),
)


def concrete() -> set[str]:
    kinds = {name: registry.find(name) for name in registry.OWN_MODULES}
    return {name for name, kind in kinds.items() if kind and not inspect.isabstract(kind)}


def specified() -> set[str]:
    rooms = make_wire_vectors.ROOMS
    functions = [f for room in rooms for f in vars(room).values() if inspect.isfunction(f)]
    own = [f.__name__ for f in functions if f.__module__.startswith("spec.")]
    return {name for name in own if name[0].isupper()}


def test_every_mechanism_of_the_registry_is_specified_or_said_to_be_missing():
    assert concrete() - specified() == {*MISSING}
    assert specified() <= concrete()


def test_what_is_missing_is_written_down_beyond_and_named_by_the_page():
    written = {**vars(beyond), **vars(beyond_directions), **vars(beyond_seeds)}
    section = PAGE.read_text("utf-8").split("## An executable specification")[1].split("\n## ")[0]
    for name in MISSING:
        assert inspect.isfunction(written[name]) and f"`{name}`" in section, name


@pytest.mark.parametrize("mechanism", UNKNOWN, ids=repr)
def test_settings_that_the_specification_does_not_know_are_refused(mechanism):
    with pytest.raises(ValueError, match="alone"):
        compare.specified(mechanism)


def test_what_is_missing_is_refused_by_name():
    with pytest.raises(KeyError, match="PrivUnitInf"):
        compare.specified(PrivUnitInf(3, 1.0))
