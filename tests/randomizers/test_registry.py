"""Configurations and classes: the same in every process, and never another's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

import pytest

from beam_ldp.randomizers import FrequencyOracle, LocalRandomizer, registry
from beam_ldp.randomizers.frequency import KRandomizedResponse, UnaryEncoding
from beam_ldp.randomizers.mean import PrivUnit
from beam_ldp.randomizers.questions import EveryQuestion
from tests.randomizers.test_possible import MECHANISMS

pytestmark = pytest.mark.exact


def test_every_class_of_the_package_is_known_by_its_name():
    found, waiting = set(), [LocalRandomizer]
    while waiting:
        kinds = waiting.pop().__subclasses__()
        waiting += kinds
        found |= {kind for kind in kinds if kind.__module__.startswith("beam_ldp.")}
    places = {kind.__name__: kind.__module__ for kind in found}
    assert len(places) == len(found)
    own = {name: f"beam_ldp.randomizers.{module}" for name, module in registry.OWN_MODULES.items()}
    assert places == own


def test_a_fresh_process_reads_every_configuration():
    """A process of its own, because this one has imported everything."""
    configs = [mechanism.to_config() for mechanism in MECHANISMS.values()]
    program = """
import json, sys
from beam_ldp.randomizers.base import LocalRandomizer
for config in json.load(sys.stdin):
    print(LocalRandomizer.from_config(config).config_digest().hex())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(configs), capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    digests = [mechanism.config_digest().hex() for mechanism in MECHANISMS.values()]
    assert done.stdout.split() == digests


def test_no_other_class_takes_the_place_of_a_mechanism():
    for bases in ((KRandomizedResponse,), (UnaryEncoding,)):
        with pytest.raises(TypeError, match="KRandomizedResponse is the name of a mechanism of"):
            type("KRandomizedResponse", bases, {"__module__": "elsewhere"})
    config = KRandomizedResponse(5, 1.0).to_config()
    assert type(LocalRandomizer.from_config(config)) is KRandomizedResponse


def test_a_name_is_taken_before_its_module_is_imported(monkeypatch):
    """Whichever is defined first."""
    monkeypatch.setattr(registry, "_classes", {})
    with pytest.raises(TypeError, match=r"of beam_ldp\.randomizers\.mean\.priv_unit"):
        registry.register(type("PrivUnit", (), {"__module__": "elsewhere"}))
    registry.register(PrivUnit)
    assert registry.find("PrivUnit") is PrivUnit


def test_classes_of_one_name_are_told_apart_and_one_that_is_defined_again_is_not(monkeypatch):
    monkeypatch.setattr(registry, "_classes", {})
    first = type("Mine", (), {"__module__": "cell"})
    again = type("Mine", (), {"__module__": "cell"})
    other = type("Mine", (), {"__module__": "another"})
    for kind in (first, again, other):
        registry.register(kind)
    assert registry.find("cell:Mine") is again and registry.find("another:Mine") is other
    assert registry.find("Mine") is None and registry.find(["Mine"]) is None


def mine(module: str, **own: object) -> type[KRandomizedResponse]:
    """Somebody else's oracle."""
    return type("Mine", (KRandomizedResponse,), {"__module__": module, "__doc__": "Mine.", **own})


@pytest.fixture
def empty(monkeypatch):
    """What this test registers and offers goes with it."""
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    monkeypatch.setattr(registry, "_offered", {})
    registry._installed.cache_clear()
    yield monkeypatch
    registry._installed.cache_clear()


def test_two_packages_oracles_of_one_name_are_two_mechanisms(empty):
    """Or else their releases would share noise and identity."""
    one, two = mine("one")(5, 1.0), mine("two")(5, 1.0)
    assert one.to_config()["mechanism"] == "one:Mine"
    assert one.config_digest() != two.config_digest() != KRandomizedResponse(5, 1.0).config_digest()
    assert type(LocalRandomizer.from_config(two.to_config())) is type(two)


def test_what_is_offered_is_planned_and_a_subclass_alone_is_not(empty):
    ours = registry.offered("frequency")
    kind = mine("one")
    assert registry.offered("frequency") == ours
    assert registry.offer(kind) is kind
    assert registry.offered("frequency") == (*ours, kind) and kind not in registry.offered("mean")
    assert registry.offer(PrivUnit) is PrivUnit and registry.loaded_modules() == ["one"]
    with pytest.raises(ValueError, match="one:Mine and two:Mine have one name"):
        registry.offer(mine("two"))
    with pytest.raises(ValueError, match="leaves out .*accumulate"):
        registry.offer(type("Half", (FrequencyOracle,), {"__module__": "one"}))
    for other in (dict, None, "one:Mine"):
        with pytest.raises(ValueError, match="no class of a mechanism"):
            registry.offer(other)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("PrivUnit", "package.module:Class"),
        ("os.path:join; x", "package.module:Class"),
        ("one two:Three", "package.module:Class"),
        ("nowhere.at_all:Mine", "cannot be imported"),
        ("math:Mine", "cannot be imported"),
        ("math:pi", "no class of a mechanism"),
        ("collections:Counter", "no class of a mechanism"),
    ],
)
def test_what_is_no_mechanism_is_not_loaded(place, said):
    with pytest.raises(ValueError, match=said):
        registry.load(place)


def test_data_never_make_a_process_import(empty, tmp_path):
    """A configuration from anywhere names a module that is there: it stays alone."""
    (tmp_path / "sly_module.py").write_text("raise SystemExit('imported')\n")
    empty.syspath_prepend(tmp_path)
    config = {"mechanism": "sly_module:Mine", "version": 1, "domain_size": 3, "local_epsilon": 1.0}
    with pytest.raises(ValueError, match="known here.*--mechanism package:Class"):
        LocalRandomizer.from_config(config)
    assert registry.find("sly_module:Mine") is None and "sly_module" not in sys.modules


class Installed:
    """An entry point."""

    def __init__(self, value: str, load: Callable[[], object]) -> None:
        self.value, self.load = value, load


def test_installed_mechanisms_are_found_and_broken_ones_are_named(empty):
    def broken() -> object:
        raise ImportError("no such thing")

    kind = mine("one")
    points = [Installed("one:Mine", lambda: kind), Installed("two:Mine", broken)]
    empty.setattr(metadata, "entry_points", lambda group: points)
    empty.delitem(registry._classes, "one:Mine")

    def load() -> object:
        registry.register(kind)
        return kind

    points[0].load = load
    with pytest.warns(
        RuntimeWarning, match=r"two:Mine of beam_ldp\.mechanisms is left out: no such"
    ):
        assert registry.find("one:Mine") is kind
    assert kind in registry.offered("frequency")


def test_a_mechanism_says_what_it_is_in_its_first_line():
    for task in ("frequency", "mean"):
        for kind in registry.offered(task):
            assert registry.summary_of(kind)
    silent = dataclass(frozen=True)(type("Silent", (KRandomizedResponse,), {"__module__": "one"}))
    assert registry.summary_of(silent) == ""


def test_a_mechanism_says_what_the_literature_calls_it():
    named = {
        kind.__name__: registry.synonyms_of(kind)
        for task in ("frequency", "mean") for kind in registry.offered(task)
    }  # fmt: skip
    assert named["KRandomizedResponse"].startswith("GRR, k-RR")
    assert "OUE" in named["UnaryEncoding"] and "SUE" in named["UnaryEncoding"]
    assert "OLH" in named["LocalHashing"] and named["KashinMean"] == "SQKR"
    names = [name for text in named.values() if text for name in re.split("[,;] ", text)]
    assert len(names) > 15 and len(set(names)) == len(names)  # no two of one name
    child = dataclass(frozen=True)(type("Child", (KRandomizedResponse,), {"__module__": "one"}))
    assert registry.synonyms_of(child) == ""  # a variant is not what its parent is


def test_what_does_not_say_what_it_sends_is_no_mechanism_for_others_reports():
    @dataclass(frozen=True)
    class Silent(EveryQuestion):
        def _possible(self, reports):
            return LocalRandomizer._possible(self, reports)

    silent = Silent((KRandomizedResponse(3, 1.0),))
    with pytest.raises(NotImplementedError, match="Silent does not say what it can send"):
        silent.possible(silent.randomize([[0]]))
