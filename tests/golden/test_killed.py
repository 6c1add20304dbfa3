"""What runs of an old version left that were killed is ended by this version: finalised, started
again, audited, and charged as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden import frozen, killed
from tests.golden.frozen import NUMBERS, TEXT, Plain
from tests.golden.killed import CASES, COMMANDS, LEDGER, TOKENS, name_of
from tests.golden.stores import KEEPING, Sharing

pytestmark = pytest.mark.e2e

GOLDEN = Sharing("killed")
ACTIONS = ("as it is", "finalized", "again")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where everything happens: a frozen world."""
    place = tmp_path / "world"
    with frozen.world(place) as patch:
        patch.setenv("COLUMNS", "1000")  # else lines break by how long the folder's name is
        yield place


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where goldens are recorded, folders that are missing are made first."""
    for case in CASES if KEEPING else ():
        if not (killed.KEPT / f"{name_of(case)}.tar.xz").exists():
            place = tmp_path_factory.mktemp("left")
            with frozen.world(place):
                killed.make(place, case)
                killed.keep(place, case)


def audited() -> dict[str, Any]:
    ran = frozen.command("audit", LEDGER, "--format=json", "--workers=1")
    told = json.loads(ran.out)
    return {"code": ran.code, "checks": {one["name"]: one["outcome"] for one in told["checks"]}}


def balance() -> Any:
    ran = frozen.command("budget", "show", LEDGER, "--format=json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def there(folder: Path, plain: Plain, drawn_anew: bool) -> dict[str, Any]:
    """The files that are left, and what is in those that people read, but for new ones of noise
    that is drawn anew; of hashes of people only how many there are."""
    found: dict[str, Any] = {}
    for name in map(str, frozen.tree(folder)):
        if name.split("/")[0] in killed.MINE or name.startswith("privacy.db"):
            continue
        if name.startswith("store/"):
            kind = f"store/*.{name.rpartition('.')[2]}"
            found[kind] = found.get(kind, 0) + 1
        elif name.endswith(".jsonl") or (
            name.endswith("estimates.csv") and not (drawn_anew and "second" in name)
        ):
            found[name] = frozen.digest(plain((folder / name).read_text("utf-8")))
        else:
            found[name] = ""
    return found


def after(folder: Path, plain: Plain, before: int, drawn_anew: bool) -> dict[str, Any]:
    rows = frozen.ledger_rows(folder / "privacy.db")
    return {"rows": rows[before:], "files": there(folder, plain, drawn_anew), "audit": audited()}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_was_left_is_ended(
    case: tuple[str, str], action: str, folder: Path, recorded: None
) -> None:
    killed.put(folder, case)
    plain, name = Plain(folder, TOKENS), f"{name_of(case)}, {action}"
    before = frozen.ledger_rows(folder / "privacy.db")
    drawn_anew = case[0] in ("fresh", "uncharged")
    said: list[str] = []
    numbers: dict[str, Any]
    if action == "as it is":
        numbers = {"rows": before, "files": there(folder, plain, drawn_anew),
                   "audit": audited(), "budget": balance()}  # fmt: skip
    else:
        finalize = ("finalize", "out", LEDGER)
        start = (*COMMANDS[case[0]], "--output=out" if action == "finalized" else "--output=second")
        both = (finalize, start) if action == "finalized" else (start, finalize)
        numbers = {"codes": []}
        for command in both:
            ran = frozen.command(*command)
            numbers["codes"].append(ran.code)
            said.append(ran.out + ran.err)
            numbers[command[0]] = after(folder, plain, len(before), drawn_anew)
        assert frozen.ledger_rows(folder / "privacy.db")[: len(before)] == before
    GOLDEN.check(NUMBERS, name, plain(numbers))
    if said and case[0] != "uncharged":  # which shows what it draws anew
        GOLDEN.check(TEXT, name, plain(said))


def test_every_case_is_made() -> None:
    made = {f"{name_of(case)}, {action}" for case in CASES for action in ACTIONS}
    GOLDEN.check_cases(made, NUMBERS)
    GOLDEN.check_cases(
        {name for name in made if not name.endswith("as it is") and name[:9] != "uncharged"}, TEXT
    )
