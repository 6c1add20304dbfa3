"""The page about how it is built names files and floors that exist, and all of the rooms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import beam_ldp.accounting

pytestmark = pytest.mark.exact

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_every_file_and_folder_exists() -> None:
    named = re.findall(
        r"`((?:beam_ldp|pipelines|mlflow|tff_adapters|flower_adapters|tests|docs)/[\w./-]*)`", PAGE
    )
    assert len(named) > 30
    assert not [name for name in named if not (ROOT / name).exists()]


def test_every_room_and_every_floor_is_there() -> None:
    rooms = [p.parent.name for p in (ROOT / "beam_ldp").glob("*/__init__.py")]
    assert len(rooms) >= 7
    assert not [room for room in rooms if f"beam_ldp/{room}/" not in PAGE]
    floors = Path(beam_ldp.accounting.__file__).parent.glob("*/__init__.py")
    assert not [p.parent.name for p in floors if f"| `{p.parent.name}` |" not in PAGE]
