"""Streams: windows, late panes, windows without people, and one that goes on in an old folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden import devices, frozen, stores, streams
from tests.golden.frozen import NUMBERS, TEXT, Plain
from tests.golden.stores import KEEPING, Sharing
from tests.golden.streams import KEPT, rows

pytestmark = pytest.mark.e2e

GOLDEN = Sharing("streams")
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    # Few people in the second window, none in the third, and the last is open at the end.
    "windows": ((0, rows(0, 100, 10), 61, rows(0, 10, 70), 121, 181, rows(0, 70, 190)), {}),
    "late rows": (
        (0, rows(0, 60, 10), 61, rows(60, 120, 20), rows(120, 125, 70), 130, rows(0, 60, 80), 999),
        {"lateness": 600},
    ),
    "late rows that are not released": (
        (0, rows(0, 60, 10), 61, rows(60, 120, 20), 999),
        {"lateness": 600, "late": "dead_letter"},
    ),
    "too late rows": ((0, rows(0, 60, 10), 200, rows(60, 120, 20), 999), {}),
    "late rows of few people": ((0, rows(0, 60, 10), 61, rows(60, 70, 20), 999), {"lateness": 600}),
    "sums of two windows": (
        (0, rows(0, 60, 10), 61, rows(0, 60, 70), 121, rows(0, 60, 130), 999),
        {"sums": True},
    ),
    "more windows than were reserved": (
        tuple(step for i in range(8) for step in (rows(0, 51, 60 * i), 60 * i + 61)),
        {},
    ),
    "nobody": ((0, 61), {}),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where everything happens: a frozen world."""
    place = tmp_path / "world"
    with frozen.world(place):
        yield place


def check(case: str, folder: Path) -> None:
    plain, (numbers, text) = Plain(folder), streams.left(folder)
    GOLDEN.check(NUMBERS, case, plain(numbers))
    GOLDEN.check(TEXT, case, plain(text))


@pytest.mark.parametrize("case", CASES)
def test_a_stream_releases_what_it_released(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores.lose_launchers(monkeypatch)
    steps, how = CASES[case]
    streams.prepare(folder)
    streams.start(*steps, **how)
    check(case, folder)
    if KEEPING and case == "windows":
        shutil.rmtree(KEPT, ignore_errors=True)
        streams.keep(folder)


@pytest.fixture
def old(folder: Path) -> Path:
    """The folder and the ledger that an old version left."""
    shutil.copytree(KEPT / "out", folder / "out")
    stores.restore(KEPT / "privacy.sql", folder / "privacy.db")
    devices.write_secret(folder / "key")
    stores.spend_ids()
    return folder


def test_an_old_stream_goes_on(old: Path) -> None:
    """All rows come again, with more in the first window; one window more."""
    steps = (
        0,
        rows(0, 160, 10),
        61,
        rows(0, 10, 70),
        181,
        rows(0, 70, 190),
        241,
        rows(0, 55, 250),
        301,
    )
    streams.start(*steps)
    check("goes on", old)


@pytest.mark.parametrize("ended", [(), ("--ended",)], ids=["as it is", "ended"])
def test_an_old_stream_is_finalized(ended: tuple[str, ...], old: Path) -> None:
    ran = frozen.command("finalize", "out", "--ledger", streams.LEDGER, *ended)
    case, plain = " ".join(("finalize", *ended)), Plain(old)
    rows_of = plain(frozen.ledger_rows(old / "privacy.db"))
    GOLDEN.check(NUMBERS, case, {"code": ran.code, "rows": rows_of, "files": frozen.tree(old)})
    GOLDEN.check(TEXT, case, plain(ran.out + ran.err))


def test_every_case_is_made() -> None:
    made = {*CASES, "goes on", "finalize", "finalize --ended"}
    GOLDEN.check_cases(made, NUMBERS)
    GOLDEN.check_cases(made, TEXT)
