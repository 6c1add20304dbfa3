"""docs/stability.md, held to: what is public is written down, and old files are still read."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.wire import FORMAT_VERSION, ReleaseTerms, decode_envelope
from tests.packaging import stable

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "stability.md").read_text()
VECTORS = ROOT / "tests" / "randomizers" / "wire_vectors"
LEDGERS = ROOT / "tests" / "ledger" / "old_ledgers"
COMMAND = "python -m tests.packaging.stable"

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(stable.everything()))
    return found


PARTS = ("names", "flags", "exit_codes", "record_fields", "events", "metrics", "versions",
         "refusals")  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_nothing_public_is_gone(now: dict[str, Any], part: str) -> None:
    """A name that goes breaks somebody's program: see the deprecation policy. What is meant is
    written down by the command in the message, and read in review. What comes is promised from the
    release on that writes it down."""
    before = json.loads(stable.FILE.read_text())
    assert set(before) == set(PARTS) == set(now)
    gone = sorted(set(flat(before[part])) - set(flat(now[part])))
    assert not gone, f"gone: {gone}; if that is meant: {COMMAND}"


def flat(found: Any, place: str = "") -> list[str]:
    """Every leaf with its place."""
    if isinstance(found, dict):
        return [leaf for key, value in found.items() for leaf in flat(value, f"{place}/{key}")]
    if isinstance(found, list):
        return [f"{place}/{value}" for value in found] or [f"{place}/"]
    return [f"{place}={found}"]


def test_the_gatherer_sees_what_it_should(now: dict[str, Any]) -> None:
    names = now["names"]
    assert "min_reports" in names["beam_ldp.transforms"]["Shuffle"]
    assert "ReleaseTerms" in names["beam_ldp.randomizers.wire"]
    assert names["beam_ldp.randomizers.frequency"]["KRandomizedResponse"][:2] == [
        "domain_size", "local_epsilon",
    ]  # fmt: skip
    assert {"frequency", "budget set", "plan mean"} <= set(now["flags"])
    assert "--local-epsilon" in now["flags"]["frequency"]
    assert "shuffled_ldp_aggregator" in names["tff_adapters"]
    assert flat({"a": ["x"], "b": {"c": 1}}) == ["/a/x", "/b/c=1"]


def test_old_configurations_are_still_read() -> None:
    """Ledgers, records and release.json of every earlier version hold them."""
    listed = json.loads(stable.CONFIGURATIONS.read_text())
    assert {config["version"] for config in listed.values()} == {1}
    kinds = {config["mechanism"] for config in listed.values()}
    assert len(kinds) >= 22
    for name, config in listed.items():
        randomizer = LocalRandomizer.from_config(config)
        again = json.loads(json.dumps(randomizer.to_config()))
        assert {key: again[key] for key in config} == config, name
        assert hash(randomizer) is not None, name


def test_old_envelopes_are_still_read() -> None:
    """One vector at least for every format up to today's."""
    seen = set()
    for path in sorted(VECTORS.glob("*.json")):
        vector = json.loads(path.read_text())
        terms = ReleaseTerms.from_json(vector["terms"])
        data = bytes.fromhex(vector["envelope"])
        seen.add(data[4])
        assert len(decode_envelope(terms, data).reports) == 9
    assert seen == set(range(2, FORMAT_VERSION + 1))  # the first one was never published


def test_old_ledgers_are_still_read(tmp_path: Path) -> None:
    """One database for every schema up to today's: it opens, says the same, and its audit is
    clean."""
    from beam_ldp.ledger import BudgetLedger, LedgerError, ReleasedBeforeError
    from beam_ldp.ledger.auditing import audit
    from beam_ldp.ledger.store import SCHEMA

    files = sorted(LEDGERS.glob("*.sql"))
    assert [path.stem for path in files] == [f"{i:04}" for i in range(2, int(SCHEMA) + 1)]
    for path in files:
        database = tmp_path / f"{path.stem}.db"
        with sqlite3.connect(database) as connection:
            connection.executescript(path.read_text())
        connection.close()
        ledger = BudgetLedger(f"sqlite:///{database}")
        status = ledger.status("visits")
        assert status.budget.epsilon == 2.0 and status.budget.delta == 1e-6
        assert ledger.state.charge("monday").status == "settled"
        assert ledger.state.charge("tuesday").status == "reserved"
        # Its settlement has no tokens: nobody can say that a release is that one.
        old = ledger.charge("monday")
        with pytest.raises(ReleasedBeforeError):
            ledger.settle("monday", old.settled, identity=old.identity, attempt=old.attempt,
                          tokens={"": "token"})  # fmt: skip
        with pytest.raises(LedgerError, match="is settled, and its charge covers one run"):
            ledger.begin("monday", attempt=old.attempt, start="token")
        assert audit(ledger.rows()).clean


def test_the_page_names_its_witnesses() -> None:
    for path in re.findall(r"`(tests/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path
    for module in stable.MODULES:
        assert f"`{module}`" in PAGE, module
    assert all(f"`{name}`" in PAGE for name in stable.WITHOUT_IMPORT)
