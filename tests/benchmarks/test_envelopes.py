"""The benchmark of files of envelopes: its input is what it says, and what an envelope costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from beam_ldp.randomizers.wire_stream import read_part
from benchmarks import envelopes


@pytest.mark.exact
def test_input_is_envelopes_of_one_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelopes, "FILE_ENVELOPES", 1000)
    monkeypatch.setattr(envelopes, "_BLOCK", 500)
    envelopes.write_envelopes(tmp_path, 2300)
    files = sorted(tmp_path.glob("*.ldp"))
    found = [read_part(envelopes.terms(), path.read_bytes()) for path in files]
    assert [len(part) for part in found] == [1000, 1000, 300]
    assert all(len(part.refused) == 0 and (part.counts == 1).all() for part in found)
    assert len({row.tobytes() for part in found for row in part.ids}) == 2300
    assert files[0].stat().st_size == 49_000


@pytest.mark.e2e
@pytest.mark.bench
def test_a_million_envelopes_a_second_on_two_cores(tmp_path: Path) -> None:
    """Two microseconds of processor time each, from the files to the estimates: the difference
    between two sizes. A new process, for that is what is measured."""
    sizes = (500_000, 3_500_000)
    taken = []
    for size in sizes:
        folder = tmp_path / str(size)
        envelopes.write_envelopes(folder, size)
        taken.append(envelopes.collect(folder, tmp_path / f"out-{size}", size, workers=2))
    cost = (taken[1].cpu_seconds - taken[0].cpu_seconds) / (sizes[1] - sizes[0])
    assert cost <= 2e-6
    assert taken[1].worker_mib <= taken[0].worker_mib + 200
