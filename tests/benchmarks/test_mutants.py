"""Mutants change one place each, the same ones every time; what survives stands first."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from benchmarks import mutants
from benchmarks.mutants import (
    MODULES,
    Called,
    Mutant,
    drawn,
    function_around,
    mutated,
    order_for,
    page,
)

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


def test_tests_that_call_the_function_come_first_quickest_first() -> None:
    source = mutants.source_of("divergences.moments")
    tree = ast.parse(source)
    one, two = [node for node in tree.body if isinstance(node, ast.FunctionDef)][:2]
    file = str(mutants.ROOT / "beam_ldp/accounting/divergences/moments.py")
    here, there = ((file, function_around(source, node.body[-1].lineno)) for node in (one, two))
    assert here[1] <= one.lineno < there[1] <= two.lineno and function_around(source, 1) == 0
    calls = {
        "elsewhere": Called(frozenset({("other.py", here[1])}), 0.1),
        "module": Called(frozenset({there}), 0.2),
        "slow": Called(frozenset({here, there}), 9.0),
        "quick": Called(frozenset({here}), 1.0),
    }
    mutant = Mutant("divergences.moments", 0, one.body[-1].lineno, "a", "b")
    assert order_for(mutant, calls) == ["quick", "slow", "module"]
    outside = replace(mutant, line=1)
    assert order_for(outside, calls)[-1] == "elsewhere"
    for module in MODULES:
        assert mutants.source_of(module)


def test_one_run_tells_what_each_test_calls_and_then_who_sees_a_fault(monkeypatch) -> None:
    """Two processes: the fault must not stay in this one."""
    files = [str(mutants.ROOT / "tests/accounting/test_loss_grid.py")]
    monkeypatch.setattr(mutants, "_files", lambda: files)
    calls = mutants.recorded()
    assert len(calls) > 3 and any(len(one.functions) > 1 for one in calls.values())
    faults = [mutated("divergences.loss_grid", place) for place in range(100)]
    place = next(at for at, one in enumerate(faults) if one and "expm1(gaps) *" in one[1][1])
    fault = faults[place]
    assert fault is not None
    seen = mutants.judged(Mutant("divergences.loss_grid", place, *fault[1]), calls)
    assert "test_loss_grid.py::" in seen.killer


def test_what_was_judged_is_kept_until_its_place_changes(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(mutants, "RECORD", tmp_path / "mutants.json")
    assert mutants.kept() == []
    first, second = [replace(one, killer="x.py::test", seconds=1.0) for one in drawn(2, seed=1)]
    mutants.keep([first, replace(second, was="something else")])
    assert mutants.kept() == [first]
    assert "2 of 2 were seen" in (tmp_path / "mutants.md").read_text("utf-8")
    monkeypatch.setattr(mutants, "recorded", lambda: {})
    monkeypatch.setattr(mutants, "judged", lambda mutant, calls: replace(mutant, killer="t"))
    assert mutants.main(["--number", "3"]) == 0
    again = mutants.kept()
    assert again[0] == first and len(again) == 3
    assert {one.place for one in again} == {one.place for one in drawn(3, seed=1)}


def test_a_test_without_end_is_ended(monkeypatch) -> None:
    """One process, which must burn its time: a second of it."""
    monkeypatch.setattr(mutants, "SECONDS", 1)

    def endless(told) -> None:
        while True:
            pass

    with pytest.raises(TimeoutError):
        mutants._in_a_process(endless)
    with pytest.raises(EOFError):
        mutants._in_a_process(lambda told: None)


def test_survivors_stand_first() -> None:
    seen = Mutant("events", 1, 10, "a | b", "b", "tests/accounting/test_events.py::test_x", 1.0)
    told = page([seen, replace(seen, place=2, line=90, killer="")])
    assert "1 of 2 were seen" in told and told.index("**nothing**") < told.index("test_x")
    assert "`a \\| b`" in told and "not judged" not in told
    some = page([seen], [replace(seen, place=3, line=95)])
    assert "1 of 1 were seen. 1 more" in some and some.splitlines()[-1].endswith("not judged yet |")
