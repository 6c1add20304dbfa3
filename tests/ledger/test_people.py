"""What each person was charged locally, counted from keyed hashes: exact, and never too little."""

from __future__ import annotations

import os
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import (
    BudgetLedger,
    DamagedTagsError,
    LedgerCorruptedError,
    LedgerState,
    PeopleKey,
    audit,
    record_people,
)
from beam_ldp.ledger.accounts import MOST_SUMS, count_people
from beam_ldp.ledger.participants import LocalFiles, folder_of, shards_of
from beam_ldp.ledger.rows import Row, next_row
from tests.ledger.asked import asked

pytestmark = pytest.mark.exact

KEY = PeopleKey(bytes(range(32)), "visits")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "people")


@pytest.fixture
def ledger(tmp_path: Path) -> BudgetLedger:
    made = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    made.set_budget("visits", epsilon=1e6, delta=1e-6, local_epsilon=1e6)
    return made


def run(
    ledger: BudgetLedger, store: str, name: str, epsilon: float, people: list[int] | list[str],
    *, key: PeopleKey = KEY, reports: int | None = None,
) -> None:  # fmt: skip
    """A run that asks these people and settles."""
    event = LocalRandomizerDpEvent(epsilon)
    ledger.reserve("visits", name, event, identity=asked("visits", name))
    record_people(store, key, name, people)
    ledger.settle(
        name,
        event,
        identity=asked("visits", name),
        about={"num_reports": len(people) if reports is None else reports},
    )


# The count ----------------------------------------------------------------------------------------


def test_two_runs_with_overlapping_people(ledger: BudgetLedger, store: str) -> None:
    run(ledger, store, "first", 1.0, list(range(1000)))
    run(ledger, store, "second", 2.5, [str(i) for i in range(600, 1300)])  # text, the same people
    counted = ledger.count_people("visits", store)
    assert counted.maximum == 3.5
    assert counted.distribution == ((1.0, 600), (2.5, 300), (3.5, 400))
    assert counted.num_people == 1300
    assert counted.left_out == {} and counted.exact
    status = ledger.status("visits")
    assert (status.local_maximum, status.local_committed) == (3.5, 3.5)
    assert status.people == counted and status.uncounted == ()
    assert [counted.quantile(q) for q in (0.0, 0.46, 0.5, 0.99, 1.0)] == [1.0, 1.0, 2.5, 3.5, 3.5]


def test_disjoint_people_lose_less_than_the_sum(ledger: BudgetLedger, store: str) -> None:
    run(ledger, store, "first", 1.0, list(range(50)))
    run(ledger, store, "second", 1.0, list(range(50, 100)))
    ledger.count_people("visits", store)
    status = ledger.status("visits")
    assert (status.local_maximum, status.local_committed) == (1.0, 2.0)


@settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    runs=st.lists(
        st.tuples(
            st.sampled_from([0.1, 0.2, 0.3, 1.0, 2.5]),
            st.sets(st.integers(-5, 40), min_size=1, max_size=30),
        ),
        min_size=1,
        max_size=6,
    ),
    lose=st.integers(0, 63),
)
def test_against_a_plain_count(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[tuple[float, set[int]]],
    lose: int,
) -> None:
    """Any runs, of which any may have left no hashes: exact where counted, never too little."""
    folder = tmp_path_factory.mktemp("runs")
    ledger = BudgetLedger.create(f"sqlite:///{folder / 'privacy.db'}")
    ledger.set_budget("visits", epsilon=1e6, delta=1e-6)
    sums: Counter[int] = Counter()
    everybody: Counter[int] = Counter()
    lost = 0.0
    for i, (epsilon, people) in enumerate(runs):
        known = not lose >> i & 1
        place = str(folder / "people") if known else str(folder / "elsewhere")
        run(ledger, place, f"run {i}", epsilon, sorted(people))
        for person in people:
            everybody[person] += round(1000 * epsilon)
            sums[person] += round(1000 * epsilon) if known else 0
        lost += 0 if known else epsilon
    counted = ledger.count_people("visits", str(folder / "people"))
    expected = Counter(total / 1000 for total in sums.values() if total)
    assert dict(counted.distribution) == pytest.approx(dict(expected))
    assert counted.maximum == pytest.approx(max(sums.values()) / 1000)
    bound = ledger.status("visits").local_maximum
    assert bound >= max(everybody.values()) / 1000 * (1 - 1e-12)
    assert bound == pytest.approx(counted.maximum + lost)
    assert audit(ledger.rows()).clean


def test_more_sums_than_a_row_holds_are_rounded_up(ledger: BudgetLedger, store: str) -> None:
    for i in range(7):  # 127 different sums
        run(ledger, store, f"run {i}", 0.01 * 2**i, [p for p in range(1, 128) if p >> i & 1])
    counted = ledger.count_people("visits", store)
    assert not counted.exact and len(counted.distribution) <= MOST_SUMS
    assert counted.maximum == pytest.approx(1.27)
    assert counted.num_people == 127
    for total, _ in counted.distribution:  # at least as many people at or below any sum, really
        told = sum(n for t, n in counted.distribution if t <= total)
        assert told <= sum(0.01 * p <= total * (1 + 1e-9) for p in range(1, 128))
    step = 1.27 / MOST_SUMS
    assert sum(t * n for t, n in counted.distribution) <= 0.01 * 127 * 64 + 127 * step


def test_a_run_that_was_abandoned_counts_too(ledger: BudgetLedger, store: str) -> None:
    """Nothing was released, but people have randomized."""
    ledger.reserve(
        "visits", "short", LocalRandomizerDpEvent(2.0), identity=asked("visits", "short")
    )
    record_people(store, KEY, "short", range(10))
    ledger.abandon("short", randomized=True, why="too few", about={"num_reports": 10})
    assert ledger.count_people("visits", store).distribution == ((2.0, 10),)


def test_the_same_people_are_counted_once(ledger: BudgetLedger, store: str) -> None:
    """Retries, and parts that overlap."""
    event = LocalRandomizerDpEvent(1.0)
    ledger.reserve("visits", "run", event, identity=asked("visits", "run"))
    for part in (range(0, 60), range(40, 100), range(0, 60)):
        record_people(store, KEY, "run", part)
    ledger.settle("run", event, identity=asked("visits", "run"), about={"num_reports": 100})
    assert ledger.count_people("visits", store).distribution == ((1.0, 100),)


def test_counting_again_writes_nothing_new(ledger: BudgetLedger, store: str) -> None:
    ledger.count_people("visits", store)
    assert ledger.rows()[-1].kind == "budget"  # nobody to count
    run(ledger, store, "first", 1.0, [1, 2])
    ledger.count_people("visits", store)
    length = len(ledger.rows())
    assert ledger.count_people("visits", store).num_people == 2
    assert len(ledger.rows()) == length


def test_periods_are_counted_apart(tmp_path: Path, store: str) -> None:
    now = [datetime(2026, 1, 1, tzinfo=timezone.utc)]
    url = f"sqlite:///{tmp_path / 'privacy.db'}"
    ledger = BudgetLedger.create(url, clock=lambda: now[0])
    ledger.set_budget("visits", epsilon=10.0, delta=1e-6, period_days=7)
    run(ledger, store, "first", 1.0, [1, 2])
    ledger.count_people("visits", store)
    now[0] += timedelta(days=7)
    assert ledger.status("visits").people is None
    run(ledger, store, "second", 1.0, [2, 3])
    assert ledger.count_people("visits", store).distribution == ((1.0, 2),)


# Never too little ---------------------------------------------------------------------------------


def test_runs_without_hashes_count_for_everybody(ledger: BudgetLedger, store: str) -> None:
    run(ledger, store, "first", 1.0, [1, 2])
    ledger.count_people("visits", store)
    ledger.reserve("visits", "open", LocalRandomizerDpEvent(0.5), identity=asked("visits", "open"))
    run(ledger, store + "-elsewhere", "elsewhere", 2.0, [3])
    for _ in range(2):  # before and after a count
        status = ledger.status("visits")
        assert status.local_maximum == 3.5
        assert [c.run_id for c in status.uncounted] == ["open", "elsewhere"]
        counted = ledger.count_people("visits", store)
    assert counted.left_out == {"elsewhere": "it left no hashed ids"}


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"key": PeopleKey(bytes(32), "visits")}, "another key"),
        ({"reports": 4}, "fewer hashed ids"),
    ],
)
def test_hashes_that_prove_too_little(
    ledger: BudgetLedger, store: str, how: dict[str, object], why: str
) -> None:
    run(ledger, store, "wrong", 1.0, [1, 2, 3], **how)  # type: ignore[arg-type]
    run(ledger, store, "right", 1.0, [1, 2, 3])
    counted = ledger.count_people("visits", store)
    assert why in counted.left_out["wrong"]
    assert (counted.maximum, ledger.status("visits").local_maximum) == (1.0, 2.0)


def test_a_run_that_does_not_say_how_many_came(ledger: BudgetLedger, store: str) -> None:
    event = LocalRandomizerDpEvent(1.0)
    ledger.reserve("visits", "groups", event, identity=asked("visits", "groups"))
    record_people(store, KEY, "groups", range(10))
    ledger.settle("groups", event, identity=asked("visits", "groups"))
    assert "how many reports" in ledger.count_people("visits", store).left_out["groups"]
    assert ledger.status("visits").local_maximum == 1.0


def test_a_file_that_is_gone(ledger: BudgetLedger, store: str) -> None:
    run(ledger, store, "first", 1.0, list(range(200)))
    folder = Path(folder_of(store, "visits", "first", None))
    min(folder.iterdir()).unlink()
    assert "fewer hashed ids" in ledger.count_people("visits", store).left_out["first"]


@pytest.mark.parametrize("damage", ["cut", "changed", "renamed", "no file of ours"])
def test_a_file_that_is_damaged(ledger: BudgetLedger, store: str, damage: str) -> None:
    run(ledger, store, "first", 1.0, list(range(200)))
    path = min(Path(folder_of(store, "visits", "first", None)).iterdir())
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-8])
    elif damage == "changed":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "renamed":
        path.rename(path.with_name("00-" + "0" * 32 + ".tags"))
    else:
        path.write_bytes(b"")
    with pytest.raises(DamagedTagsError, match="damaged"):
        ledger.count_people("visits", store)


# Who can learn what -------------------------------------------------------------------------------


def test_what_lies_in_the_store(ledger: BudgetLedger, store: str) -> None:
    people = [f"ada-{i}@example.org" for i in range(300)]
    run(ledger, store, "first", 1.0, people)
    files = [p for p in Path(store).rglob("*") if p.is_file()]
    content = b"".join(path.read_bytes() for path in files)
    assert b"ada-" not in content and KEY.key not in content
    assert not any("ada-" in str(p.relative_to(store)) for p in files)
    assert not any("first" in str(p.relative_to(store)) for p in files)
    for path in files:
        assert path.stat().st_mode & 0o077 == 0
        tags = np.frombuffer(path.read_bytes()[24:], dtype="<u8")
        assert np.all(tags[1:] > tags[:-1])  # sorted: nothing of the order of rows is left
        assert set((tags >> np.uint64(58)).tolist()) == {int(path.name[:2])}
    ledger.count_people("visits", store)
    told = repr([row.body for row in ledger.rows()])
    assert KEY.key.hex() not in told and "ada-" not in told


def test_tags_of_other_populations_and_keys_cannot_be_linked() -> None:
    people = list(range(2000))
    other = [PeopleKey(KEY.key, "other people"), PeopleKey(os.urandom(32), "visits")]
    ours = set(KEY.tags(people).tolist())
    assert len(ours) == 2000
    for key in other:
        assert not ours & set(key.tags(people).tolist())
        assert key.key_id != KEY.key_id


def test_one_person_one_tag() -> None:
    """An integer and its decimal text are one person; so are text and its UTF-8 bytes."""
    assert KEY.tags([17, -3]).tolist() == KEY.tags(["17", "-3"]).tolist()
    assert KEY.tags(["ä"]).tolist() == KEY.tags(["ä".encode()]).tolist()
    assert KEY.tags(np.array([17])).tolist() == KEY.tags(["17"]).tolist()
    assert len(set(KEY.tags(["17", "017", "17 "]).tolist())) == 3


def test_shards_cover_all_tags() -> None:
    tags = np.array([0, 1, 2**58, 2**58 - 1, 2**64 - 1, 2**63, 1], dtype=np.uint64)
    parts = dict(shards_of(tags))
    assert sorted(parts) == [0, 1, 32, 63]
    assert sorted(np.concatenate(list(parts.values())).tolist()) == sorted(set(tags.tolist()))
    assert list(shards_of(np.empty(0, dtype=np.uint64))) == []


def test_keys_are_never_shown_and_never_short() -> None:
    assert "1" not in repr(KEY).replace("visits", "") or KEY.key.hex() not in repr(KEY)
    assert repr(KEY) == "PeopleKey(population='visits')"
    with pytest.raises(ValueError, match="at least 32 secret bytes"):
        PeopleKey(b"short and secret", "visits")


def test_hostile_names_stay_inside_the_store(tmp_path: Path) -> None:
    name = "../../../etc/\x00'; DROP TABLE"
    key = PeopleKey(KEY.key, name)
    record_people(str(tmp_path / "people"), key, name, [1])
    (path,) = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert path.relative_to(tmp_path / "people").as_posix().count("/") == 2


# The row ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "forged",
    [
        {"maximum": 1.0},
        {"distribution": [[1.0, 2], [2.0, 2]], "num_people": 4},
        {"distribution": [[1.0, 1]], "maximum": 1.0, "num_people": 1},
        {"distribution": [[2.0, 1], [1.0, 2]]},
        {"num_people": 2},
        {"covered": [[2, 2], [4, 3]]},
        {"covered": [[2, 2], [4, 2], [4, 2]]},
        {"covered": [[2, 2], [99, 2]]},
        {"maximum": float(2**60), "distribution": [[1.0, 2], [2.0**60, 1]]},
        {"period": 1},
        {"population": "nobody"},
        {"exact": "yes", "distribution": None},
    ],
)
def test_a_row_that_cannot_be_true_is_refused(
    ledger: BudgetLedger, store: str, forged: dict[str, object]
) -> None:
    """The sums of all people and those of all charges are the same money."""
    run(ledger, store, "first", 1.0, [1, 2])
    run(ledger, store, "second", 1.0, [2, 3])
    ledger.count_people("visits", store)
    *rows, last = ledger.rows()
    assert last.kind == "people" and last.body["distribution"] == [[1.0, 2], [2.0, 1]]
    LedgerState().apply([*rows, last])
    wrong = next_row(rows[-1].head, "people", {**last.body, **forged})
    with pytest.raises(LedgerCorruptedError, match="does not follow"):
        LedgerState().apply([*rows, wrong])
    assert not audit([*rows, wrong]).clean


def _recounted(ledger: BudgetLedger, store: str) -> dict[str, object]:
    population = ledger.state.populations["visits"]
    return {"visits": count_people(store, LocalFiles(), "visits", population.ended(0))}


def _outcome(rows: list[Row], people: object) -> str:
    report = audit(rows, people=people)  # type: ignore[arg-type]
    (check,) = [c for c in report.checks if "charged locally" in c.name]
    return check.outcome


def test_an_auditor_counts_anew(ledger: BudgetLedger, store: str) -> None:
    run(ledger, store, "first", 1.0, [1, 2])
    run(ledger, store, "second", 2.0, [2, 3])
    assert _outcome(ledger.rows(), {}) == "no evidence"
    ledger.count_people("visits", store)
    rows = ledger.rows()
    anew = _recounted(ledger, store)
    assert _outcome(rows, None) == "no evidence"
    assert _outcome(rows, anew) == "passed"
    assert _outcome(rows, {}) == "failed"
    # The same money, parted otherwise: only the hashes tell.
    told = {"distribution": [[1.0, 2], [2.0, 2]], "maximum": 2.0, "num_people": 4}
    forged = [*rows[:-1], next_row(rows[-2].head, "people", {**rows[-1].body, **told})]
    assert _outcome(forged, anew) == "failed"
    # Hashes that were changed after the count.
    record_people(store, KEY, "first", [4])
    assert _outcome(rows, _recounted(ledger, store)) == "failed"


@pytest.mark.bench
def test_millions_of_people(ledger: BudgetLedger, store: str) -> None:
    """Figures with -s: 10 runs of a million people each."""
    import time

    for i in range(10):
        event = LocalRandomizerDpEvent(1.0)
        ledger.reserve("visits", f"run {i}", event, identity=asked("visits", f"run {i}"))
        record_people(store, KEY, f"run {i}", np.arange(100_000 * i, 100_000 * i + 1_000_000))
        ledger.settle(
            f"run {i}",
            event,
            identity=asked("visits", f"run {i}"),
            about={"num_reports": 1_000_000},
        )
    began = time.perf_counter()
    counted = ledger.count_people("visits", store)
    print(f"\n10 runs, {counted.num_people:,} people: {time.perf_counter() - began:.1f} s")
    assert counted.maximum == 10.0 and counted.num_people == 1_900_000
