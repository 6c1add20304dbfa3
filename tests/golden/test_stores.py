"""Ledgers, records and a tracking server of an old version, read and continued by this one."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_ldp.ledger import BudgetLedger
from beam_ldp.verifier.verify import verify
from tests.golden import devices, frozen, stores
from tests.golden.frozen import NUMBERS, TEXT, Plain
from tests.golden.killed import COMMANDS
from tests.golden.stores import KEEPING, KEPT, URL, Sharing

pytestmark = pytest.mark.e2e

GOLDEN = Sharing("stores")
LEDGER = f"--ledger={URL}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where everything happens: a frozen world."""
    place = tmp_path / "world"
    with frozen.world(place):
        yield place


def told(*arguments: str) -> dict[str, Any]:
    """How a command ended, and the JSON that it printed."""
    ran = frozen.command(*arguments, "--format=json")
    return {"code": ran.code, **(json.loads(ran.out) if ran.out else {"said": ran.err})}


def audited(*more: str) -> dict[str, Any]:
    found = told("audit", "--workers=1", *more)
    found.pop("head", None)  # follows from ids and processes
    words = {one["name"]: one.pop("findings") for one in found.get("checks", ())}
    return {"numbers": found, "findings": words}


def check(case: str, numbers: Any, text: Any = None) -> None:
    plain = Plain(Path.cwd())
    GOLDEN.check(NUMBERS, case, plain(numbers))
    if text is not None:
        GOLDEN.check(TEXT, case, plain(text))


# Ledgers -------------------------------------------------------------------------------------


def test_every_verb_writes_the_row_that_it_wrote(folder: Path) -> None:
    stores.live()
    if KEEPING:
        stores.dump(folder / "privacy.db", KEPT / "lived.sql")
    check("verbs", frozen.ledger_rows(folder / "privacy.db"))


@pytest.fixture
def lived(folder: Path) -> Path:
    """The ledger as an old version left it; it is the day of its last row."""
    stores.restore(KEPT / "lived.sql", folder / "privacy.db")
    stores.spend_ids()
    rows = frozen.ledger_rows(folder / "privacy.db")
    frozen.Clock.time_now = frozen.Clock.fromisoformat(max(row.get("time", "") for row in rows))
    return folder


def test_an_old_ledger_is_audited_as_it_was(lived: Path) -> None:
    found = audited(LEDGER)
    check("audit", found["numbers"], found["findings"])


def test_an_old_ledger_has_the_balances_that_it_had(lived: Path) -> None:
    """Replayed row by row, from its checkpoint, and as commands show them."""
    ledger = BudgetLedger(URL)
    state = {name: one.charges_of(0) for name, one in ledger.state.populations.items()}
    charges = {
        name: {one.run_id: [one.status, one.attempts, one.local_epsilon] for one in each}
        for name, each in state.items()
    }
    spent = {
        name: {key: getattr(ledger.status(name), key) for key in STATUS}
        for name in ("visits", "purchases", "others")
    }
    shown = {name: told("budget", "show", LEDGER, f"--dataset={name}") for name in ("visits",)}
    check("balances", {"charges": charges, "status": spent, "shown": shown})


STATUS = (
    "spent", "committed", "local_spent", "local_committed", "period", "num_open",
)  # fmt: skip


def test_an_old_ledger_goes_on(lived: Path) -> None:
    """What is equal is free, what is another question is refused, and what is new is charged."""
    ledger, before = BudgetLedger(URL), len(frozen.ledger_rows(lived / "privacy.db"))
    pure = stores.LocalRandomizerDpEvent(0.25)
    named = stores.replace(stores.asked("tuesday"), key="")
    said = []
    for run, identity in (
        ("tuesday", named),  # a run that has its charge
        ("wednesday", stores.replace(named, columns=("hiv",))),  # another question of the name
        ("thursday", stores.replace(named, release_id="thursday")),
    ):
        try:
            charge = ledger.reserve("visits", run, pure, identity=identity)
            ledger.settle(run, pure, identity=identity, attempt=charge.attempt)
            said.append("settled")
        except ValueError as error:
            said.append(f"{type(error).__name__}: {error}")
    again = ledger.republish("monday", identity=stores.asked("monday"),
                             report_digest=stores.OTHERS)  # fmt: skip
    ledger.settle("open", pure, identity=ledger.charge("open").identity)
    check("goes on", {"rows": frozen.ledger_rows(lived / "privacy.db")[before:],
                      "monday": again.status}, said)  # fmt: skip


def test_a_damaged_ledger_has_the_successor_that_it_had(lived: Path) -> None:
    stores.damage(lived / "privacy.db")
    wrong = audited(LEDGER)
    told_of = told("budget", "succeed", f"--from={URL}", "--ledger=sqlite:///new.db",
                   "--why=the disk")  # fmt: skip
    assert told_of["code"] == 0, told_of
    rows = frozen.ledger_rows(lived / "new.db")
    found = audited("--ledger=sqlite:///new.db")
    check("successor", {"damaged": wrong["numbers"], "told": told_of, "rows": rows,
                        "audit": found["numbers"]},
          [wrong["findings"], found["findings"]])  # fmt: skip


# Records -------------------------------------------------------------------------------------

_UNCHARGED = ("--no-ledger", "--output=out")
_DESIGN = ("--arms=control,red", "--null=0.3", "--effect=0.5", "--power=0.8", "--local-epsilon=2")
MADE: dict[str, tuple[str, ...]] = {  # how records of programs were made; the rest: test_devices.py
    "frequency": COMMANDS["memoized"],
    "parts": (*COMMANDS["memoized"], "--group-by=town", "--groups=towns.txt", "--min-reports=10"),
    "mean": COMMANDS["mean"],
    "user_mean": COMMANDS["user mean"],
    "words": COMMANDS["search"],
    "experiment": ("ab-test", "run", "--input=visits.csv", "--user-id=uid", "--outcome=bought",
                   "--arm=arm", "--design=test.json", "--no-mlflow", "--dataset=them"),
}  # fmt: skip
RECORDS = sorted(
    {*MADE, "collected_batch", "collected_experiment", "collected_level_1", "collected_level_2",
     "collected_levels", "collected_list", "collected_list_in_groups", "collected_mean_in_a_range",
     "collected_shares", "collected_tree", "collected_two_lists"}
)  # fmt: skip


def _make(folder: Path, name: str) -> None:
    """One of `MADE`, where goldens are recorded."""
    devices.write_inputs(folder)
    rows = [f"{i},{arm},{int(i % 10 < of_ten)}" for arm, of_ten in (("control", 3), ("red", 8))
            for i in range(100 * (arm == "red"), 100 * (arm == "red") + 100)]  # fmt: skip
    (folder / "visits.csv").write_text("\n".join(["uid,arm,bought", *rows]) + "\n")
    assert frozen.command("ab-test", "design", *_DESIGN, "--output=test.json").code == 0
    flags = [flag for flag in MADE[name] if not flag.startswith("--ledger")]
    ran = frozen.command(*flags, *_UNCHARGED)
    assert ran.code == 0, ran.err
    devices.keep_record(name, folder / "out")
    shutil.rmtree(folder / "out")


@pytest.mark.parametrize("name", RECORDS)
def test_an_old_record_is_read(name: str, folder: Path) -> None:
    """By the statement, the registry, the verifier of its certificate, and `finalize`."""
    kept = KEPT / "records" / f"{name}.json"
    if KEEPING and name in MADE:
        _make(folder, name)
    (folder / "out").mkdir()
    shutil.copy(kept, folder / "out/privacy.json")
    verdict = verify(json.loads(kept.read_text("utf-8")))
    ran = {
        one[0] + one[-1].removeprefix("out"): frozen.command(*one)
        for one in (("statement", "out"), ("statement", "out", "--registry"), ("finalize", "out"))
    }
    check(
        f"record: {name}",
        {"verified": verdict.code, **{key: one.code for key, one in ran.items()}},
        {"verified": verdict.text, **{key: one.out + one.err for key, one in ran.items()}},
    )


# A tracking server ---------------------------------------------------------------------------


def test_an_old_tracking_server_is_audited_and_goes_on(folder: Path) -> None:
    """One release that was logged, with its artifacts; then another one beside it."""
    pytest.importorskip("mlflow")
    packed = KEPT / "mlflow.sql.xz"
    server = ("--mlflow-uri=sqlite:///mlflow.db",)
    command = [flag for flag in COMMANDS["memoized"] if flag != "--no-mlflow"]
    devices.write_inputs(folder)
    if KEEPING and not packed.exists():
        BudgetLedger.create(URL).set_budget("them", epsilon=30.0, delta=1e-5, local_epsilon=20.0)
        ran = frozen.command(*command, *server, "--output=first")
        assert ran.code == 0, ran.err
        stores.dump(folder / "mlflow.db", folder / "mlflow.sql")
        stores.dump(folder / "privacy.db", KEPT / "tracked.sql")
        said = (folder / "mlflow.sql").read_text("utf-8").replace(str(folder), "<folder>")
        packed.write_bytes(lzma.compress(said.encode()))
        shutil.rmtree(KEPT / "mlartifacts", ignore_errors=True)
        shutil.copytree(folder / "mlartifacts", KEPT / "mlartifacts")
        for name in ("mlflow.db", "privacy.db"):
            (folder / name).unlink()
        shutil.rmtree(folder / "mlartifacts")
    said = lzma.decompress(packed.read_bytes()).decode().replace("<folder>", str(folder))
    (folder / "mlflow.sql").write_text(said, "utf-8")
    stores.restore(folder / "mlflow.sql", folder / "mlflow.db")
    stores.restore(KEPT / "tracked.sql", folder / "privacy.db")
    shutil.copytree(KEPT / "mlartifacts", folder / "mlartifacts")
    stores.spend_ids()
    alone, both = audited(*server, "--from-mlflow"), audited(*server, LEDGER)
    more = [flag for flag in command if not flag.startswith(("--run-id", "--release-id"))]
    ran = frozen.command(*more, "--run-id=b", "--release-id=other", *server, "--output=second")
    after = audited(*server, LEDGER)
    numbers = [one["numbers"] for one in (alone, both, after)]
    words = [one["findings"] for one in (alone, both, after)]
    check("mlflow", {"audits": numbers, "code": ran.code}, words)


def test_every_case_is_made() -> None:
    records = {f"record: {name}" for name in RECORDS}
    made = {"audit", "goes on", "successor", "mlflow", *records}
    GOLDEN.check_cases(made | {"verbs", "balances"}, NUMBERS)
    GOLDEN.check_cases(made, TEXT)
