"""Envelopes as records: copies, two under one id, none, several in one, damage, and parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.frequency.refinable_response import RefinableResponse
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.wire import NO_ID, ReleaseTerms, encode_envelope
from beam_ldp.research.interactivity import log_files
from beam_ldp.research.interactivity.auditing import InteractivityReport, audit_logs
from beam_ldp.research.interactivity.log_files import most_epsilon

pytestmark = pytest.mark.exact

ORACLE = KRandomizedResponse(5, 1.5)


def terms(release: str = "week", reports: int = 1) -> ReleaseTerms:
    digest = ORACLE.config_digest().hex()
    identity = ReleaseIdentity("them", release, digest, ("answer",), reports_per_envelope=reports)
    return ReleaseTerms(ORACLE, identity)


def envelope(number: int, *reports: int, of: ReleaseTerms | None = None) -> bytes:
    """With an id that says the number; 0: none."""
    told = np.array(reports, dtype=ORACLE.report_dtype)
    name = number.to_bytes(16, "little") if number else NO_ID
    return encode_envelope(of or terms(), told, name)


def audit(path: Path, content: bytes, of: ReleaseTerms | None = None) -> InteractivityReport:
    path.write_bytes(content)
    return audit_logs([path], 1.5, releases={path: of or terms()})


def test_every_id_is_somebody_and_nobody_is_known(tmp_path: Path) -> None:
    sent = b"".join(envelope(i, i % 5) for i in range(1, 41))
    report = audit(tmp_path / "reports", sent)
    assert report.clean and report.people.by_queries == {1: 40} and not report.findings
    assert report.max_epsilon == 1.5 and report.k_hat == 1.0
    assert report.interactivity == "unknown (envelopes name nobody)"
    assert report.unknown == "unknown (no provenance)" and report.noninteractive is None
    assert report.price_of_asking_once is None and report.mergeable is None
    assert report.to_json()["anonymous"] and report.contracted is None


def test_a_copy_counts_once_and_another_report_under_its_id_is_a_fault(tmp_path: Path) -> None:
    sent = envelope(1, 3) + envelope(2, 3)
    copied = audit(tmp_path / "copied", sent + sent)
    assert copied.clean and copied.people.retries == 2 and copied.people.queries == 2
    drawn = audit(tmp_path / "drawn", sent + envelope(1, 4))
    assert {one.name: one.count for one in drawn.findings} == {
        "over budget": 1, "re-randomized on retry": 1,
    }  # fmt: skip
    assert not drawn.clean and "ids of envelopes above" in drawn.findings[0].text


def test_without_ids_equal_reports_are_two_and_of_several_in_one_each_is_its_own(
    tmp_path: Path,
) -> None:
    without = audit(tmp_path / "without", envelope(0, 3) * 3)
    assert without.people.by_queries == {1: 3} and without.clean
    granted = terms(reports=4)
    several = envelope(7, 1, 1, 2, of=granted) + envelope(8, 1, of=granted)
    found = audit(tmp_path / "several", several + envelope(8, 1, of=granted), granted)
    assert found.people.by_queries == {1: 4} and found.people.retries == 1


def test_what_is_cut_damaged_or_of_another_release_is_counted_in_bytes(tmp_path: Path) -> None:
    one = envelope(1, 3)
    other = envelope(2, 3, of=terms("another week"))
    broken = envelope(3, 3)[:-1] + b"\x00"
    report = audit(tmp_path / "reports", one + other + broken + envelope(4, 2) + one[:20])
    assert report.people.people == 2 and report.clean
    (found,) = report.findings
    assert (found.name, found.count) == ("refused", 2 * len(one) + 20) and not found.fault


def test_parts_of_a_file_give_what_the_file_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = b"".join(envelope(i % 30, i % 5) for i in range(50)) + b"rubbish" + envelope(99, 1)
    whole = audit(tmp_path / "whole", sent).to_json()
    assert whole["num_retries"] and whole["findings"]
    monkeypatch.setattr(log_files, "CHUNK_BYTES", 111)
    assert audit(tmp_path / "whole", sent).to_json() == whole


def test_releases_together(tmp_path: Path) -> None:
    """Ids are drawn anew for each envelope: one in two releases would be one sender's."""
    paths = {tmp_path / name: terms(name) for name in ("monday", "tuesday")}
    for place, (path, of) in enumerate(paths.items()):
        path.write_bytes(envelope(1, 2, of=of) + envelope(place + 2, 2, of=of))
    report = audit_logs(list(paths), 1.5, releases=paths)
    assert report.people.by_queries == {1: 2, 2: 1} and report.people.over == 1
    assert report.unknown == "unknown (several runs)"


def test_reports_of_several_levels_cost_what_the_closest_reader_reads() -> None:
    levels = RefinableResponse(4, 1.0, levels=(2.0, 1.0))
    identity = ReleaseIdentity("them", "week", levels.config_digest().hex(), ("answer",))
    assert most_epsilon(ReleaseTerms(levels, identity)) == 2.0
    assert most_epsilon(terms()) == 1.5


def test_logs_and_plans_beside_envelopes_are_refused(tmp_path: Path) -> None:
    reports, log = tmp_path / "reports", tmp_path / "log"
    reports.write_bytes(envelope(1, 2))
    log.write_text('{"seq": 0, "user": 1, "randomizer": "a", "round": 0, "epsilon": 1}\n')
    for paths, plan in (([reports, log], []), ([reports], [log])):
        with pytest.raises(ValueError, match="envelopes name nobody"):
            audit_logs(paths, 2.0, plan=plan, releases={reports: terms()})
