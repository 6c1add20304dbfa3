"""Folders that runs left which ended at one of their steps, as the version that froze them did.

`killed/CASE.tar.xz` holds what lay there: staging folders with notes and results, private folders,
outputs that are whole and not shown, hashes of people, and the ledger as `privacy.sql`. A version
that knows other steps cannot leave such folders any more, but has to end what they began. Only
`make` knows the product's steps, and is for recording alone.
"""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.golden import devices, frozen, stores

KEPT = Path(__file__).parent / "killed"
LEDGER = "--ledger=sqlite:///privacy.db"
TOKENS = {
    r"\.(staging|finished|partial)-[0-9a-f]{8}": r".\1-<token>",
    r"(?m)^reading, [^\n]*\n": "",  # said by jobs that take seconds
}
MINE = {"people.csv", "hair.txt", "eyes.txt", "towns.txt", "key", "people.key", "sent", ".state"}
STEPS = (
    "reserved", "counted", "rows listed", "half written", "finished", "settled", "published",
    "not logged",
)  # fmt: skip

_PEOPLE = ("--input=people.csv", "--user-id=uid", "--dataset=them", "--release-id=week")
_RUN = ("--run-id=nightly", "--no-mlflow", "--delta=1e-6", "--min-reports=40", LEDGER)
_HAIR = ("--column=hair", "--domain=hair.txt", "--local-epsilon=2")
_KEY = ("--memoize-key-file=key",)
_STORE = ("--people-store=store", "--people-key-file=people.key")

# Commands, without their output, by the name of what is killed.
COMMANDS: dict[str, tuple[str, ...]] = {
    "memoized": ("frequency", *_PEOPLE, *_RUN, *_HAIR, *_KEY),
    "fresh": ("frequency", *_PEOPLE, *_RUN, *_HAIR, "--bad-rows=dead-letter"),
    "of people": ("frequency", *_PEOPLE, *_RUN, *_HAIR, *_KEY, *_STORE),
    "uncharged": ("frequency", *_PEOPLE, *_RUN[1:-1], *_HAIR, "--no-ledger"),
    "mean": ("mean", *_PEOPLE, *_RUN, *_KEY, "--column=age", "--range", "0", "90",
             "--local-epsilon=2"),
    "user mean": ("user-mean", *_PEOPLE, *_RUN, *_KEY, "--column=age", "--range", "0", "90",
                  "--local-epsilon=2", "--rows-per-user=1", "--sigma=1"),
    "search": ("heavy-hitters", *_PEOPLE, *_RUN, *_KEY, "--column=eyes", "--max-bytes=1",
               "--code-bits=12", "--local-epsilon=6"),
    "collect": ("collect", "--reports=sent", "--release=sent/release.json", "--domain=hair.txt",
                *_RUN),
    "second": ("frequency", *_PEOPLE, *_RUN, *_HAIR, *_KEY, *_STORE),
}  # fmt: skip
CASES = (
    *((name, step) for name in ("memoized", "fresh") for step in STEPS),
    *((name, step) for name in ("of people", "second") for step in ("finished", "settled")),
    ("of people", "published"),
    *((name, step) for name in ("uncharged", "collect") for step in ("finished", "settled")),
    *((name, step) for name in ("mean", "user mean", "search") for step in ("counted", "settled")),
)


def name_of(case: tuple[str, str]) -> str:
    """The name of its file."""
    return " ".join(case).replace(" ", "_")


def prepare(folder: Path, name: str) -> None:
    """People, lists, the key; reports of devices; none of it is kept."""
    devices.write_inputs(folder)
    devices.write_secret(folder / "people.key", bytes(range(32, 64)))
    with (folder / "people.csv").open("a") as file:
        file.write("600,,a,,,north\n")
    if name == "collect":
        devices.put_kept("list", folder / "sent")
    if name == "second":
        change_people(folder)


def change_people(folder: Path) -> None:
    """Others came in place of the first twenty."""
    head, *lines = (folder / "people.csv").read_text().splitlines()
    changed = [f"9{line}" if i < 20 else line for i, line in enumerate(lines)]
    (folder / "people.csv").write_text("\n".join([head, *changed]) + "\n")


def keep(folder: Path, case: tuple[str, str]) -> None:
    """What a run left in its folder, less what `prepare` makes."""
    stores.dump(folder / "privacy.db", folder / "privacy.sql")
    KEPT.mkdir(exist_ok=True)
    with tarfile.open(KEPT / f"{name_of(case)}.tar.xz", "w:xz", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            place = path.relative_to(folder)
            if place.parts[0] in MINE or path.name.startswith("privacy.db"):
                continue
            member = tarfile.TarInfo(place.as_posix())
            member.type = tarfile.DIRTYPE if path.is_dir() else tarfile.REGTYPE
            member.mode = 0o700 if path.is_dir() else 0o600
            content = b"" if path.is_dir() else path.read_bytes()
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    (folder / "privacy.sql").unlink()


def put(folder: Path, case: tuple[str, str]) -> None:
    """A folder as it was left."""
    prepare(folder, case[0])
    with tarfile.open(KEPT / f"{name_of(case)}.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    stores.restore(folder / "privacy.sql", folder / "privacy.db")
    (folder / "privacy.sql").unlink()
    stores.spend_ids()


# Recording -----------------------------------------------------------------------------------


class Killed(BaseException):
    """The end of a process."""


def make(folder: Path, case: tuple[str, str]) -> None:
    """Leave what a run leaves that ends as a step begins. Knows the product of the recording."""
    from beam_ldp.ledger import BudgetLedger
    from beam_ldp.release import beam_job as job
    from beam_ldp.release import outputs, publishing, runner

    name, step = case
    prepare(folder, "")
    made = BudgetLedger.create(LEDGER.removeprefix("--ledger="))
    made.set_budget("them", epsilon=30.0, delta=1e-5, local_epsilon=20.0)
    if name == "second":
        ran = frozen.command(*COMMANDS[name], "--output=first")
        assert ran.code == 0, ran.err
    prepare(folder, name)
    dies: Mapping[str, tuple[Any, str]] = {
        "reserved": (job, "run_pipeline"),
        "counted": (runner, "gate_bad_rows"),
        "rows listed": (runner, "finish"),
        "half written": (runner, "privacy_statement"),
        "finished": (publishing, "settle"),
        "settled": (outputs.OutputFolder, "publish"),
        "published": (runner, "count_people"),
        "not logged": (runner, "log_run"),
    }
    with pytest.MonkeyPatch.context() as patch:
        stores.lose_launchers(patch)
        patch.setattr(*dies[step], _die)
        patch.setattr(outputs, "remove", lambda *_: None)  # nobody tidies up
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            ran = frozen.command(*COMMANDS[name], "--output=out")
            pytest.fail(f"{case} ended by itself: {ran.err}")


def _die(*_: Any, **__: Any) -> Any:
    raise Killed
