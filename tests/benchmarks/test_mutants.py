"""Mutants change one place each, the same ones every time; what survives stands first."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from benchmarks import mutants
from benchmarks.mutants import ROOMS, Mutant, drawn, files_for, mutated, page

pytestmark = pytest.mark.exact

MODULE = "beam_ldp.accounting.divergences.moments"


def test_a_mutant_differs_in_one_line_from_what_it_is_of() -> None:
    source = ast.unparse(ast.parse(mutants.source_of(MODULE))).splitlines()
    for place in (0, 7, 20):
        found = mutated(MODULE, place)
        assert found is not None
        after = ast.unparse(found[0]).splitlines()
        assert sum(one != two for one, two in zip(source, after, strict=True)) == 1
    assert mutated(MODULE, 10**6) is None


def test_changes_of_every_kind() -> None:
    text = "a < b\nc + d\nmin(e, f)\n7\nnp.maximum(g, h)\nif i:\n    pass\n"
    became = []
    for place in range(6):
        change = mutants._Change(place)
        became.append(ast.unparse(change.visit(ast.parse(text))))
    lines = [next(x for x in one.split("\n") if x not in text) for one in became]
    assert lines == ["a <= b", "c - d", "max(e, f)", "8", "np.minimum(g, h)", "if not i:"]


def test_the_same_ones_are_drawn_again_of_every_room() -> None:
    first = list(drawn(1, seed=4))
    assert first == list(drawn(1, seed=4)) != list(drawn(1, seed=5))
    assert len(first) == len(ROOMS) and all(one.was != one.became for one in first)
    for one, package in zip(first, ROOMS.values(), strict=True):
        assert one.module.startswith(package + ".")
    assert mutants.path_of("beam_ldp.pipelines.views.plans") == "pipelines/views/plans.py"


def test_the_nearest_tests_see_a_fault(monkeypatch) -> None:
    """Two processes: the fault must not stay in this one."""
    module = "beam_ldp.accounting.divergences.loss_grid"
    assert files_for(module)[0].startswith("tests/accounting/")
    monkeypatch.setattr(mutants, "files_for", lambda _: ["tests/accounting/test_loss_grid.py"])
    faults = [mutated(module, place) for place in range(100)]
    place = next(at for at, one in enumerate(faults) if one and "expm1(gaps) *" in one[1][1])
    fault = faults[place]
    assert fault is not None
    seen = mutants.judged(Mutant(module, place, *fault[1]))
    assert "test_loss_grid.py::" in seen.killer


def test_what_was_judged_is_kept_until_its_place_changes(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(mutants, "RECORD", tmp_path / "mutants.json")
    assert mutants.kept() == []
    first, second = [
        replace(one, killer="x.py::test", seconds=1.0) for one in list(drawn(1, seed=1))[:2]
    ]
    mutants.keep([first, replace(second, was="something else")])
    assert mutants.kept() == [first]
    assert "2 of 2 were seen" in (tmp_path / "mutants.md").read_text("utf-8")
    monkeypatch.setattr(mutants, "judged", lambda mutant: replace(mutant, killer="t"))
    assert mutants.main(["--each", "1"]) == 0
    again = mutants.kept()
    assert again[0] == first and len(again) == len(ROOMS)
    assert {one.place for one in again} == {one.place for one in drawn(1, seed=1)}


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
    seen = Mutant(
        "beam_ldp.accounting.events",
        1,
        10,
        "a | b",
        "b",
        "tests/accounting/test_events.py::test_x",
        1.0,
    )
    told = page([seen, replace(seen, place=2, line=90, killer="")])
    assert "1 of 2 were seen" in told and told.index("**nothing**") < told.index("test_x")
    assert "`a \\| b`" in told and "not judged" not in told
    some = page([seen], [replace(seen, place=3, line=95)])
    assert "1 of 1 were seen. 1 more" in some and some.splitlines()[-1].endswith("not judged yet |")
