"""What a plan decided, as it stands beside it: once, whoever comes, and after whatever happened."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from beam_ldp.decisions import ArmCounts, decide
from beam_ldp.decisions.ab_test_run import (
    Counts,
    check_undecided,
    earlier_looks,
    place,
    write_down,
)
from beam_ldp.decisions.outcomes import decision_id
from beam_ldp.pipelines import programs
from beam_ldp.release import publishing, runner
from beam_ldp.release.gates import NothingReleasedError
from beam_ldp.settings import SettingError
from tests.decisions.commands.test_ab_test_run import Desk, two_arms

PLAN = two_arms(effect=0.1, looks=2)
FEW = {"control": ArmCounts(100, 40), "red": ArmCounts(100, 41)}
MORE = {"control": ArmCounts(100, 40), "red": ArmCounts(100, 42)}


def decided(design: str, *looks: Counts) -> None:
    write_down(design, PLAN, decide(PLAN, *looks), looks[-1], "out")


@pytest.mark.exact
def test_the_same_counts_again_and_no_others(tmp_path: Path) -> None:
    design = str(tmp_path / "test.json")
    check_undecided(design, 1)
    decided(design, FEW)
    before = place(design, 1).read_bytes()
    decided(design, FEW)
    with pytest.raises(NothingReleasedError, match="decided before, on other reports: see .* out"):
        decided(design, MORE)
    assert place(design, 1).read_bytes() == before
    with pytest.raises(SettingError, match="decided before"):
        check_undecided(design, 1)
    decided(design, FEW, MORE)  # the second look has a place of its own
    assert earlier_looks(design, PLAN, 2) == (FEW,) and earlier_looks(design, PLAN, 1) == ()


@pytest.mark.exact
def test_an_anytime_plan_goes_on_as_long_as_nothing_shows(tmp_path: Path) -> None:
    plan = two_arms(effect=0.1, spending="anytime")
    design = str(tmp_path / "test.json")
    write_down(design, plan, decide(plan, FEW), FEW, "out")
    assert decide(plan, FEW).decision == "no effect shown"  # the one look that was planned
    assert earlier_looks(design, plan, 2) == (FEW,)
    assert decision_id(plan, 2) != decision_id(plan, 1)
    lost = {"control": ArmCounts(900, 200), "red": ArmCounts(900, 700)}
    shown = decide(plan, FEW, lost)
    assert shown.decision == "effect"
    write_down(design, plan, shown, lost, "out")
    with pytest.raises(SettingError, match="ended at look 2: effect"):
        earlier_looks(design, plan, 3)


@pytest.mark.exact
def test_of_two_at_once_one_decides(tmp_path: Path) -> None:
    design = str(tmp_path / "test.json")

    def tried(counts: Counts) -> bool:
        try:
            decided(design, counts)
        except NothingReleasedError:
            return False
        return True

    for _ in range(30):
        with ThreadPoolExecutor(2) as pool:
            won = list(pool.map(tried, (FEW, MORE)))
        assert sorted(won) == [False, True]
        told = json.loads(place(design, 1).read_text())["counts"]["red"]
        assert told == [100, 41 if won[0] else 42]
        place(design, 1).unlink()


@pytest.mark.exact
@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"digest": "x"}', '{"digest": "x", "counts": {}, "decision": 1}']
)
def test_a_file_that_was_cut_or_changed_decides_nothing(tmp_path: Path, text: str) -> None:
    design = str(tmp_path / "test.json")
    place(design, 1).write_text(text)
    with pytest.raises(SettingError, match="--look 2 goes on from look 1"):
        earlier_looks(design, PLAN, 2)
    with pytest.raises(NothingReleasedError, match="on other reports"):
        decided(design, FEW)
    assert place(design, 1).read_text() == text


@pytest.mark.exact
def test_looks_of_another_plan_and_places_that_cannot_be_written(tmp_path: Path) -> None:
    design = str(tmp_path / "test.json")
    decided(design, FEW)
    with pytest.raises(SettingError, match="is of another plan"):
        earlier_looks(design, two_arms(effect=0.2, looks=2), 2)
    with pytest.raises(NothingReleasedError, match="could not be written down"):
        decided(str(tmp_path / "nowhere" / "test.json"), FEW)


@pytest.mark.e2e
def test_killed_between_deciding_and_publishing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a key the run goes on to the same verdict; with fresh noise it does not draw again."""
    desk = Desk(tmp_path, two_arms())
    key = f"--memoize-key-file={tmp_path}/key"
    release = publishing.release

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner.publishing, "release", killed)
    assert desk.run("out", key)[0] == programs.INTERRUPTED
    assert place(str(desk.design), 1).exists() and not (tmp_path / "out").exists()
    told = json.loads(place(str(desk.design), 1).read_text())["counts"]
    monkeypatch.setattr(runner.publishing, "release", release)
    code, _, said = desk.run("out")
    assert code == programs.MISUSED and "decided before" in said
    code, _, said = desk.run("out", key)
    assert code == programs.DONE, said
    found = desk.told("out", "verdict.json")["counts"][0]
    assert {arm: [one["people"], one["ones"]] for arm, one in found.items()} == told
