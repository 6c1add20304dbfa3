"""Every block about coming from another library runs, in order, and says what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "federated.md"
SECTION = PAGE.read_text().split("\n## Coming from another library\n")[1].split("\n## ")[0]
BLOCKS = re.findall(r"^```python\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)


@pytest.mark.e2e
def test_blocks_run():
    assert len(BLOCKS) == 9
    out = []  # not captured output: TFF's worker wants a real file
    space = {"print": lambda *parts: out.append(" ".join(map(str, parts)))}
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), space)
    training, event = space["training"], space["event"]
    assert (training.rounds, training.stopped_by) == (3, "rounds")
    assert training.spent.local_epsilon == pytest.approx(24.0)
    assert event.num_reports == 100  # the last block's
    assert space["accountant"].local_epsilon == pytest.approx(1.0)
    assert "SubsampledShuffledDpEvent" in out[1] and "num_drawn=20" in out[1]
    assert out[2].split()[0] == "0.56"  # by PrivUnit's own blanket
    assert [round(float(x), 1) for x in out[3].split()] == [0.8, 7.9, 44.8]
    assert round(float(out[4]), 1) == 10.4
