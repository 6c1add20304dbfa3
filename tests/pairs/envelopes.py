"""Envelopes of a second collection: the same ones otherwise arranged, or others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from beam_ldp.randomizers.wire import ReleaseTerms, encode_envelopes, open_envelope
from beam_ldp.release import worker_results as results
from beam_ldp.release.devices.release_file import load_release
from beam_ldp.transforms.elements import set_digests
from tests.randomizers.forged import forged_id, old_sum

Change = Callable[[ReleaseTerms, list[bytes]], list[bytes]]


def rearranged(terms: ReleaseTerms, sent: list[bytes]) -> list[bytes]:
    """In another order, and one of them twice: a transport that repeats itself."""
    return [*reversed(sent), sent[3]]


def omitted(terms: ReleaseTerms, sent: list[bytes]) -> list[bytes]:
    """The report of one person is the difference of both collections."""
    return sent[:7] + sent[8:]


def swapped(terms: ReleaseTerms, sent: list[bytes]) -> list[bytes]:
    """One person's report is drawn anew, or another person takes her place."""
    report = open_envelope(terms, sent[0]).reports
    fresh = encode_envelopes(terms, report, np.full((1, 16), 7, np.uint8))[0].tobytes()
    return [*omitted(terms, sent), fresh]


def forged(terms: ReleaseTerms, sent: list[bytes]) -> list[bytes]:
    """As `swapped`, by an envelope that keeps the sum of CBC-MACs of earlier versions."""
    pack = terms.randomizer.pack_each
    victim = open_envelope(terms, sent[7])
    target = old_sum(terms.identity, _id(victim.envelope_id)[None], pack(victim.reports))
    report = np.full_like(victim.reports, not victim.reports.any())  # another than the victim's
    chosen = forged_id(terms.identity, target, pack(report)[0])
    assert old_sum(terms.identity, chosen[None], pack(report)) == target
    return [*omitted(terms, sent), encode_envelopes(terms, report, chosen[None])[0].tobytes()]


def _id(told: bytes | None) -> np.ndarray:
    assert told is not None
    return np.frombuffer(told, np.uint8)


def write_changed(change: Change, release: Path, reports: Path, folder: Path) -> Path:
    """Three files of what became of the envelopes of a folder, in a folder of their own."""
    terms = load_release(str(release)).terms
    size = terms.envelope_bytes(1)
    data = b"".join(path.read_bytes() for path in sorted(reports.glob("*.ldp")))
    sent = change(terms, [data[i : i + size] for i in range(0, len(data), size)])
    folder.mkdir()
    for i in range(3):
        (folder / f"part {i}.ldp").write_bytes(b"".join(sent[i::3]))
    return folder


def digests_of_an_earlier_version(patch: pytest.MonkeyPatch) -> None:
    """From here on releases are settled with 32 hexadecimal digits, as they were."""
    patch.setattr(set_digests, "root_digest", lambda *_: "5a" * 16)
    patch.setattr(results, "PREFIX", "")
