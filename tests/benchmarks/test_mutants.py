"""Mutants change one place each, the same ones every time; what survives stands first."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from benchmarks import mutants
from benchmarks.mutants import MODULES, Mutant, drawn, files_for, mutated, page

pytestmark = pytest.mark.exact


def test_a_mutant_differs_in_one_line_from_what_it_is_of() -> None:
    source = ast.unparse(ast.parse(mutants.source_of("divergences.moments"))).splitlines()
    for place in (0, 7, 20):
        found = mutated("divergences.moments", place)
        assert found is not None
        after = ast.unparse(found[0]).splitlines()
        assert sum(one != two for one, two in zip(source, after, strict=True)) == 1
    assert mutated("divergences.moments", 10**6) is None


def test_changes_of_every_kind() -> None:
    text = "a < b\nc + d\nmin(e, f)\n7\nnp.maximum(g, h)\n"
    became = []
    for place in range(5):
        change = mutants._Change(place)
        became.append(ast.unparse(change.visit(ast.parse(text))))
    lines = [next(x for x in one.split("\n") if x not in text) for one in became]
    assert lines == ["a <= b", "c - d", "max(e, f)", "8", "np.minimum(g, h)"]


def test_the_same_ones_are_drawn_again() -> None:
    first = list(drawn(12, seed=4))
    assert first == list(drawn(12, seed=4)) != list(drawn(12, seed=5))
    assert len({one.module for one in first}) > 3 and all(one.was != one.became for one in first)


def test_tests_of_the_module_come_first() -> None:
    for module in MODULES:
        assert mutants.source_of(module)
    assert files_for("divergences.loss_grid")[0].endswith("/accounting/test_loss_grid.py")


def test_survivors_stand_first() -> None:
    seen = Mutant("events", 1, 10, "a | b", "b", "tests/accounting/test_events.py::test_x", 1.0)
    told = page([seen, replace(seen, place=2, line=90, killer="")])
    assert "1 of 2 were seen" in told and told.index("**nothing**") < told.index("test_x")
    assert "`a \\| b`" in told
