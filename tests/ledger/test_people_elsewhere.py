"""People who are charged elsewhere: looked up by their ids, and said no surer than it is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetLedger, DamagedTagsError, PeopleKey, record_people
from beam_ldp.ledger.participants import AskedElsewhere, LocalFiles, asked_elsewhere
from beam_ldp.pipelines.budget import budget
from tests.ledger.asked import asked

pytestmark = pytest.mark.exact

KEY, OTHER = bytes(range(32)), bytes(32)
EVENT = LocalRandomizerDpEvent(0.5)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "people")


def run(ledger: BudgetLedger, store: str, name: str, ids: list[int], key: bytes | None = KEY,
        reports: int | None = None) -> None:  # fmt: skip
    """A run about `visits` that asked these people."""
    identity = asked("visits", name)
    ledger.reserve("visits", name, EVENT, identity=identity)
    if key is not None:
        record_people(store, PeopleKey(key, "visits"), name, ids)
    told = {"num_reports": len(ids) if reports is None else reports}
    ledger.settle(name, EVENT, identity=identity, about=told)


@pytest.fixture
def charged(url: str, store: str) -> BudgetLedger:
    """Persons 0 to 99 were asked, those from 50 on twice."""
    ledger = BudgetLedger.create(url)
    ledger.set_budget("visits", epsilon=10.0, delta=1e-6)
    run(ledger, store, "one", list(range(100)))
    run(ledger, store, "two", list(range(50, 100)))
    return ledger


def found(ledger: BudgetLedger, store: str, ids: Any, key: bytes = KEY) -> AskedElsewhere:
    charges = ledger.state.populations["visits"].charges.values()
    return asked_elsewhere(ids, key, store, LocalFiles(), "visits", charges)


def test_everybody_who_was_asked_is_found_once(charged: BudgetLedger, store: str) -> None:
    assert found(charged, store, range(90, 130)) == AskedElsewhere("visits", 40, 10, 2, 2)
    assert found(charged, store, ["95", "95", "a"]) == AskedElsewhere("visits", 2, 1, 2, 2)
    assert found(charged, store, range(100, 130)).found == 0


def test_what_left_no_tags_or_too_few_is_said(charged: BudgetLedger, store: str) -> None:
    run(charged, store, "no tags", [1], key=None)
    run(charged, store, "other key", [1], key=OTHER)
    run(charged, store, "fewer", [1, 200], reports=3)
    charged.reserve("visits", "open", EVENT, identity=asked("visits", "open"))
    told = found(charged, store, [1, 200, 300])
    assert told == AskedElsewhere("visits", 3, 2, 6, 2)
    assert str(told).startswith("2 of 3 people were asked") and "2 of its 6 runs" in str(told)


def test_another_key_finds_nobody_and_says_so(charged: BudgetLedger, store: str) -> None:
    told = found(charged, store, range(100), key=OTHER)
    assert (told.found, told.known, told.runs) == (0, 0, 2)
    assert "under this key" in str(told)


def test_damaged_tags_are_no_answer(charged: BudgetLedger, store: str) -> None:
    file = next(Path(store).rglob("*.tags"))
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(DamagedTagsError):
        found(charged, store, range(100))


def said(url: str, folder: Path, ids: str, *more: str) -> str:
    (folder / "ids.txt").write_text(ids)
    key = folder / "key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_bytes(KEY)
    given = ["set", "--ledger", url, "--dataset", "late", "--epsilon", "1", "--delta", "1e-6",
             "--people-ids", str(folder / "ids.txt"), "--people-store", str(folder / "people"),
             "--people-key-file", str(key), *more]  # fmt: skip
    done = CliRunner().invoke(budget, given)
    return " ".join(done.output.split())


def test_on_the_command_line(charged: BudgetLedger, url: str, tmp_path: Path) -> None:
    told = said(url, tmp_path, "98\n99\n100\n", "--new")
    assert "warning" in told and "2 of 3 people were asked by runs about 'visits'" in told
    assert "late" in charged.balances.datasets  # it warns, and does not forbid


def test_that_nobody_was_found_everywhere_is_no_warning(
    charged: BudgetLedger, url: str, tmp_path: Path
) -> None:
    told = said(url, tmp_path, "100\n101\n", "--new")
    assert "warning" not in told and "0 of 2 people" in told


def test_flags_that_belong_together(charged: BudgetLedger, url: str, tmp_path: Path) -> None:
    assert "with --new" in said(url, tmp_path, "1\n")
    assert "holds no id" in said(url, tmp_path, "\n", "--new")
    assert "late" not in charged.balances.datasets
