"""Configurations and classes: the same in every process, and never another's."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from beam_ldp.randomizers import LocalRandomizer, registry
from beam_ldp.randomizers.every_question import EveryQuestion
from beam_ldp.randomizers.frequency import KRandomizedResponse, UnaryEncoding
from beam_ldp.randomizers.mean import PrivUnit
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


def test_two_classes_of_users_with_one_name_are_told_apart_and_one_redefined_is_not(monkeypatch):
    monkeypatch.setattr(registry, "_classes", {})
    first = type("Mine", (), {"__module__": "cell"})
    again = type("Mine", (), {"__module__": "cell"})
    other = type("Mine", (), {"__module__": "another"})
    registry.register(first)
    registry.register(again)
    assert registry.find("Mine") is again
    with pytest.raises(TypeError, match="of cell; configurations know mechanisms by their names"):
        registry.register(other)
    assert registry.find("Mine") is again
    assert registry.find("Nobody's") is None and registry.find(["Mine"]) is None


def test_what_does_not_say_what_it_sends_is_no_mechanism_for_others_reports():
    @dataclass(frozen=True)
    class Silent(EveryQuestion):
        def _possible(self, reports):
            return LocalRandomizer._possible(self, reports)

    silent = Silent((KRandomizedResponse(3, 1.0),))
    with pytest.raises(NotImplementedError, match="Silent does not say what it can send"):
        silent.possible(silent.randomize([[0]]))
