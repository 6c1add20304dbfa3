"""Figure 7.3: its numbers, and that the page that is shown holds them."""

from __future__ import annotations

import json

import pytest

from benchmarks import recovery
from tests.randomizers.frequency.test_recoverability import FIGURE_7_3

pytestmark = pytest.mark.exact


def test_the_page_holds_the_figure(tmp_path):
    found = recovery.main(["--output", str(tmp_path), "--people", "2000"])
    for i, k in enumerate(("10", "100", "1000")):
        expected = [bits[i] for bits in FIGURE_7_3.values()]
        assert found["least_bits"][k] == pytest.approx(expected, abs=6e-5)
    assert (tmp_path / "recovery.png").read_bytes().startswith(b"\x89PNG")
    written = recovery.Path(recovery.__file__).parent / "results" / "recovery.json"
    committed = json.loads(written.read_text())
    assert committed["gains"] == pytest.approx(found["gains"])
    assert [row["design"] for row in committed["stored"]] == [
        row["design"] for row in found["stored"]
    ]
    for row in committed["stored"]:
        assert row["least_bits"] <= row["key_bits"] + 1e-9
        assert row["stored_bits"] == pytest.approx(row["key_bits"], abs=0.06)
    assert "94.2 % for 2, 91.4 % for 4, 85.0 % for 10" in (tmp_path / "recovery.md").read_text()
