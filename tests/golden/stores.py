"""Databases that are kept as text, who wrote them, and goldens whose cases have much in common."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from beam_ldp.accounting import LocalRandomizerDpEvent, shuffled_event
from beam_ldp.launcher import Launcher
from beam_ldp.ledger import BudgetLedger
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import ReleaseIdentity
from tests.golden import frozen
from tests.golden.frozen import NUMBERS, Golden

RECORDING = os.environ.get(frozen.RECORD) in (NUMBERS, "all", frozen.OLD)
KEEPING = os.environ.get(frozen.RECORD) == frozen.OLD
SHARED, LARGE = "shared", 120  # a case of its own; characters of a value that goes there


def lose_launchers(patch: pytest.MonkeyPatch) -> None:
    """What is written is signed by a process of a life of this machine that is over."""
    gone = Launcher(frozen.HOST, "a life that is over", "", 4242, "1")
    patch.setattr(Launcher, "of", classmethod(lambda *_: gone))


def spend_ids() -> None:
    """Go on counting where no file that was kept has an id."""
    for _ in range(1000):
        uuid.uuid4()


def dump(database: Path, kept: Path) -> None:
    """A database in SQLite as text."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(database) as connection:
        kept.write_text("\n".join(connection.iterdump()) + "\n", "utf-8")


def restore(kept: Path, database: Path) -> None:
    """Inverse of `dump`."""
    with sqlite3.connect(database) as connection:
        connection.executescript(kept.read_text("utf-8"))


@dataclass(frozen=True)
class Sharing(Golden):
    """A golden whose numbers hold the same events, rows and identities many times: each is kept
    once, in a case of its own, and stands elsewhere as `#` and its digest."""

    def check(self, part: str, case: str, given: Any) -> None:
        if part != NUMBERS:
            super().check(part, case, given)
        elif RECORDING:
            shared = dict(_read(self.path(part)).get(SHARED, {}))
            short = _short(given, shared)
            super().check(part, SHARED, shared)
            super().check(part, case, short)
        else:
            kept = _kept(self.path(part))
            assert case in kept, f"{self.path(part).name} knows no case {case!r}"
            old = _whole(kept[case], kept[SHARED])
            found = list(frozen.differences(old, json.loads(json.dumps(given))))
            if found:
                told = "\n".join(
                    f"  {w}\n    frozen: {a}\n    now:    {b}" for w, a, b in found[:5]
                )
                raise frozen.Differs(
                    f"{self.path(part).name}, case {case!r}, {len(found)} differences:\n{told}"
                )

    def check_cases(self, cases: Iterable[str], part: str) -> None:
        if part != NUMBERS:
            return super().check_cases(cases, part)
        super().check_cases({*cases, SHARED}, part)
        kept = _read(self.path(part))
        shared = kept.pop(SHARED)
        named: set[str] = set()
        while (more := set(_names([kept, *(shared[n] for n in named)]))) != named:
            named = more
        if RECORDING:
            return super().check(part, SHARED, {name: shared[name] for name in named})
        assert named == set(shared), "there are shared values that no case has"


def _short(value: Any, shared: dict[str, Any]) -> Any:
    """With large parts put into `shared`, the smallest ones first."""
    if isinstance(value, dict):
        short: Any = {str(key): _short(one, shared) for key, one in value.items()}
    elif isinstance(value, (list, tuple)):
        short = [_short(one, shared) for one in value]
    else:
        return value
    text = json.dumps(short, sort_keys=True)
    if len(text) < LARGE:
        return short
    name = "#" + hashlib.sha256(text.encode()).hexdigest()[:12]
    shared[name] = short
    return name


def _whole(value: Any, shared: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return _whole(shared[value], shared) if value in shared else value
    if isinstance(value, dict):
        return {key: _whole(one, shared) for key, one in value.items()}
    return [_whole(one, shared) for one in value] if isinstance(value, list) else value


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith("#"):
        yield value
    elif isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _names(one)


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


@cache
def _kept(path: Path) -> dict[str, Any]:
    return _read(path)


# A ledger that has lived ---------------------------------------------------------------------

KEPT = Path(__file__).parent / "stores"
URL = "sqlite:///privacy.db"
AUDITOR = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
ORACLE = KRandomizedResponse(3, 0.5)
THEIRS, OTHERS = "set1:" + "5a" * 32, "set1:" + "6b" * 32  # digests of two publications


def asked(release: str, **more: Any) -> ReleaseIdentity:
    """What is released, with a key."""
    mechanism = ORACLE.config_digest().hex()
    return ReleaseIdentity("visits", release, mechanism, ("hair",), key="ab" * 16, **more)


def live() -> BudgetLedger:
    """Rows of every verb, some refused, by direct calls; a day between two of them."""
    ledger = BudgetLedger.create(URL, mlflow_uri="http://tracking:5000")

    def tomorrow() -> None:
        frozen.Clock.time_now += timedelta(days=1)

    ledger.set_budget("visits", epsilon=1.0, delta=1e-6, local_epsilon=6.0, why="2026")
    ledger.set_budget("orders", epsilon=2.0, delta=1e-6, population="visits", by="Ada")
    ledger.set_budget("others", epsilon=1.0, delta=1e-7, period_days=30, chances=0.1)
    ledger.set_quota("visits", "team", share=0.25, why="asks too")
    tomorrow()
    many, pure = shuffled_event(ORACLE, 1000), LocalRandomizerDpEvent(0.25)
    ledger.reserve("visits", "monday", many, identity=asked("monday"), memoized=True, quota="team")
    again = ledger.reserve(
        "visits", "monday", many, identity=asked("monday"), memoized=True, quota="team"
    )
    tomorrow()
    ledger.settle("monday", many, identity=asked("monday"), attempt=again.attempt,
                  report_digest=THEIRS, about={"num_reports": 1000})  # fmt: skip
    both = shuffled_event(ORACLE, 600)
    ledger.republish("monday", both, identity=asked("monday"),
                     report_digest=OTHERS, cells=[600, 400, 400], published=1)  # fmt: skip
    fresh = replace(asked("tuesday"), key="")
    ledger.reserve("visits", "tuesday", pure, identity=fresh)
    ledger.abandon("tuesday", randomized=True, why="too few")
    ledger.rename("orders", "purchases", by="Ada", why="a better name")
    ledger.checkpoint()
    tomorrow()
    rounds = dp_accounting.SelfComposedDpEvent(pure, 3)
    training = ledger.reserve("visits", "training", rounds, identity=replace(fresh, release_id="m"))
    for begun in (1, 2):
        ledger.begin("training", rounds=begun, attempt=training.attempt)
    ledger.settle("training", dp_accounting.SelfComposedDpEvent(pure, 2),
                  identity=replace(fresh, release_id="m"), proof="two rounds began")  # fmt: skip
    stream = ledger.reserve("others", "stream", many, identity=of_others("stream"), count=3,
                            memoized=True)  # fmt: skip
    ledger.begin("stream", attempt=stream.attempt, start="a run of it")
    for start in (0, 60):
        window = of_others("stream").of_window(start, start + 60)
        ledger.settle("stream", many, identity=window, attempt="a run of it", tokens={"": "a"})
    tomorrow()
    ledger.reserve("others", "level 1", pure, identity=of_others("search", part="level 1"))
    ledger.settle("level 1", pure, identity=of_others("search", part="level 1"))
    ledger.reserve("others", "level 2", dp_accounting.NoOpDpEvent(), memoized=True,
                   identity=of_others("search", part="level 2"))  # fmt: skip
    ledger.reserve("others", "open", pure, identity=replace(fresh, dataset="others"))
    frozen.Clock.time_now += timedelta(days=40)
    ledger.accept_time(why="it was winter")
    ledger.set_budget("visits", epsilon=1.5, delta=1e-6, local_epsilon=6.0, why="raised")
    raised = max(row.number for row in ledger.rows() if row.kind == "budget")
    ledger.accept(raised, AUDITOR, why="agreed", by="auditor")
    return ledger


def of_others(release: str, **more: Any) -> ReleaseIdentity:
    """The same of the other people."""
    return replace(asked(release, **more), dataset="others", key="" if more else "ab" * 16)


def damage(database: Path) -> None:
    """Somebody made a settlement cheaper."""
    with sqlite3.connect(database) as connection:
        connection.execute(
            "UPDATE beam_ldp_ledger SET body = replace(body, '0.25', '0.01') "
            "WHERE kind = 'settle' AND run_id = 'training'"
        )
