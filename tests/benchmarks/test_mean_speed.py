"""The speed targets (`make bench`), and the page that shows them."""

from __future__ import annotations

import pytest

from beam_ldp.randomizers.mean import LInfMean, PrivUnit
from benchmarks import mean_speed as speed


@pytest.mark.bench
@pytest.mark.parametrize("case", [c for c in speed.CASES if c.target_us], ids=lambda c: c.name)
def test_vectors_take_no_longer_than_their_targets(case):
    assert speed.measure(case, 5)["randomize_us"] <= case.target_us


@pytest.mark.bench
@pytest.mark.parametrize("case", speed.MESSAGE_CASES, ids=lambda c: c[0])
def test_messages_take_no_longer_than_their_target(case):
    assert speed.measure_messages(*case, 5)["bits_ns"] <= speed.MESSAGE_TARGET_NS


@pytest.mark.e2e
def test_the_program_writes_its_files(tmp_path, monkeypatch, capsys):
    case = speed.Case("PrivUnit", lambda: PrivUnit(20, 2.0), 10, 12, 59)
    monkeypatch.setattr(speed, "CASES", (case,))
    monkeypatch.setattr(speed, "MESSAGE_CASES", (("LInfMean", lambda: LInfMean(20, 2.0), 10),))
    speed.main(["--repeat", "1", "--output", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "(12) | 59 |" in shown
    assert shown.count("LInfMean") == 2
    assert {p.name for p in tmp_path.iterdir()} == {"mean_speed.json", "mean_speed.md"}
