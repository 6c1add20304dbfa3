"""People, their ledger, and what is published about them: what every pair of releases is judged by.

One rule holds after anything that happens, and `World.check` knows nothing of how it is kept:

* What is published was settled before, under the identity that it names.
* Two outputs of one charge are byte for byte the same, or the charge covers both: nobody's value
  differs between them, and the price is at least that of the smallest cell of people.
* Two outputs of one release id ask one question, with one key.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from rich.console import Console

from beam_ldp.accounting import event_epsilon, shuffled_event
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.ledger import BudgetLedger, LedgerUnavailableError
from beam_ldp.pipelines import frequency, heavy_hitters, mean, programs, user_mean
from beam_ldp.pipelines.cli import group
from beam_ldp.randomizers.base import LocalRandomizer

DELTA = 1e-6
PEOPLE = 400
_QUIET = Console(quiet=True)


@dataclass(frozen=True)
class Program:
    """A program with the flags of its first release.

    Attributes:
        name: for people.
        program: what the command line runs.
        asks: the flags that say what is asked; `{0}` is the folder.
        columns: what of a person is asked.
        rows_each: rows of each person.
        groups: the column of public groups, if any.
    """

    name: str
    program: programs.Program
    asks: tuple[str, ...]
    columns: tuple[str, ...]
    rows_each: int = 1
    groups: str | None = None


FREQUENCY = Program(
    "frequency",
    frequency.PROGRAM,
    ("--column=hair", "--domain={0}/hair.txt", "--local-epsilon=2"),
    ("hair",),
)
QUESTIONS = Program(
    "several questions",
    frequency.PROGRAM,
    ("--column=hair", "--domain={0}/hair.txt", "--column=eyes", "--domain={0}/eyes.txt",
     "--local-epsilon=2"),
    ("hair", "eyes"),
)  # fmt: skip
MEAN = Program(
    "mean", mean.PROGRAM, ("--column=age", "--range", "0", "100", "--local-epsilon=2"), ("age",)
)
USER_MEAN = Program(
    "user-mean",
    user_mean.PROGRAM,
    ("--column=age", "--range", "0", "100", "--local-epsilon=2", "--rows-per-user=2",
     "--sigma=1"),
    ("age",),
    rows_each=2,
)  # fmt: skip
WORDS = Program(
    "heavy-hitters",
    heavy_hitters.PROGRAM,
    ("--column=hair", "--max-bytes=4", "--code-bits=22", "--local-epsilon=6"),
    ("hair",),
)
EVERY_QUESTION = Program(
    "all questions", frequency.PROGRAM, (*QUESTIONS.asks, "--design=all"), ("hair", "eyes")
)
GROUPS = Program(
    "groups", frequency.PROGRAM, (*FREQUENCY.asks, "--group-by=town", "--groups={0}/towns.txt"),
    ("hair",), groups="town",
)  # fmt: skip
GROUPED_QUESTIONS = Program(
    "questions in groups", frequency.PROGRAM, (*EVERY_QUESTION.asks, *GROUPS.asks[-2:]),
    ("hair", "eyes"), groups="town",
)  # fmt: skip
PROGRAMS = (FREQUENCY, QUESTIONS, MEAN, USER_MEAN, WORDS)

Person = dict[str, str]


class Killed(BaseException):
    """The end of a process."""


def die(*_: Any, **__: Any) -> Any:
    """In place of a step."""
    raise Killed


def away(*_: Any, **__: Any) -> Any:
    """In place of what a ledger does."""
    raise LedgerUnavailableError("away")


def people(count: int = PEOPLE) -> dict[int, Person]:
    """People by their ids."""
    return {
        i: {
            "hair": ("red", "fair", "dark")[i % 3],
            "eyes": "ab"[i % 2],
            "age": str(i % 90),
            "town": "north" if i % 8 < 5 else "south",
        }
        for i in range(count)
    }


@dataclass
class World:
    """A folder with everything; a copy of it is another world with the same past.

    Attributes:
        folder: where.
        people: as they are now.
        published: of each output, the people as they were.
    """

    folder: Path
    people: dict[int, Person] = field(default_factory=people)
    published: dict[str, dict[int, Person]] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path) -> World:
        """One in which nothing happened."""
        folder.mkdir(parents=True)
        (folder / "hair.txt").write_text("red\nfair\n")
        (folder / "eyes.txt").write_text("a\nb\n")
        (folder / "towns.txt").write_text("north\nsouth\nnowhere\n")
        (folder / "key").write_bytes(bytes(range(32)))
        (folder / "key").chmod(0o600)
        (folder / "people_key").write_bytes(bytes(range(32, 64)))
        (folder / "people_key").chmod(0o600)
        made = BudgetLedger.create(f"sqlite:///{folder}/privacy.db")
        for name in ("them", "copy of them"):
            made.set_budget(
                name, epsilon=30.0, delta=1e-6, local_epsilon=20.0, population="everybody"
            )
        return cls(folder)

    def copy(self, folder: Path) -> World:
        """The same past, and another future."""
        shutil.copytree(self.folder, folder)
        return World(folder, {i: dict(p) for i, p in self.people.items()}, dict(self.published))

    @property
    def ledger(self) -> BudgetLedger:
        return BudgetLedger(f"sqlite:///{self.folder}/privacy.db")

    # Releasing ------------------------------------------------------------------------------

    def flags(self, program: Program, *, memoized: bool = True, tags: bool = True) -> list[str]:
        """Flags of the first release of a program."""
        asks = [flag.format(self.folder) for flag in program.asks]
        noise = [f"--memoize-key-file={self.folder}/key"] if memoized else []
        store = [
            f"--people-store={self.folder}/store",
            f"--people-key-file={self.folder}/people_key",
        ]
        return [
            f"--input={self.folder}/people.csv", "--user-id=uid", *asks, *noise,
            *(store if tags else []), f"--delta={DELTA}", "--min-reports=100", "--no-mlflow",
            "--dataset=them", f"--ledger=sqlite:///{self.folder}/privacy.db",
            "--release-id=week", "--run-id=nightly",
        ]  # fmt: skip

    def write_people(self, program: Program, name: str = "people.csv") -> None:
        """Their rows, as they are now."""
        lines = ["uid,person,hair,eyes,age,town"]
        for i, person in self.people.items():
            row = f"{i},{i},{person['hair']},{person['eyes']},{person['age']},{person['town']}"
            lines += [row] * program.rows_each
        (self.folder / name).write_text("\n".join(lines) + "\n")

    def publish(self, program: Program, output: str, flags: list[str]) -> int:
        """Run a program in this process; its exit code."""
        self.write_people(program)
        out = self.folder / output
        before = out.exists()
        try:
            code, _ = programs.run_flags(
                program.program, [*flags, f"--output={out}"], _QUIET, shown=False
            )
        finally:
            if out.exists() and not before:
                self.published[output] = {i: dict(p) for i, p in self.people.items()}
        assert (code == programs.DONE) == (out.exists() and not before), (code, output)
        return code

    def finalize(self, output: str, *more: str) -> tuple[int, str]:
        """Settle what a run left; its exit code, and what it says."""
        url = f"sqlite:///{self.folder}/privacy.db"
        order = ["finalize", f"{self.folder}/{output}", "--ledger", url, *more]
        done = CliRunner().invoke(group, order)
        if (self.folder / output / "privacy.json").exists():
            self.published.setdefault(output, {i: dict(p) for i, p in self.people.items()})
        return done.exit_code, " ".join(done.output.split())

    def estimates(self, output: str) -> bytes:
        return (self.folder / output / "estimates.csv").read_bytes()

    def record(self, output: str) -> dict[str, Any]:
        return dict(json.loads((self.folder / output / "privacy.json").read_bytes()))

    # Judging --------------------------------------------------------------------------------

    def check(self, program: Program) -> None:
        """The rule. What stands in `published` is all that can be seen from outside."""
        seen = {
            p.parent.name for p in self.folder.glob("*/privacy.json") if p.parent.name[0] != "."
        }
        assert seen == set(self.published), "something appeared by itself"
        by_charge: dict[str, list[str]] = {}
        for output in sorted(self.published):
            record = self.record(output)
            charge = self.ledger.charge(record["run_id"])
            assert charge.status == "settled", f"{output} was published and is not settled"
            assert charge.identity.to_json() == record["identity"]
            assert charge.identity.digest.hex() == record["identity_digest"]
            by_charge.setdefault(record["run_id"], []).append(output)
        for outputs in by_charge.values():
            self._check_one_charge(program, outputs)
        by_release: dict[tuple[str, str], set[str]] = {}
        for output in self.published:
            told = self.record(output)["identity"]
            name = (told["dataset"], told["release_id"])
            by_release.setdefault(name, set()).add(self.record(output)["identity_digest"])
        assert all(len(found) == 1 for found in by_release.values()), "two questions of one name"

    def _check_one_charge(self, program: Program, outputs: list[str]) -> None:
        """Several outputs of one charge: the same, or the charge covers all of them."""
        if len({self.estimates(output) for output in outputs}) == 1:
            return
        versions = [self.published[output] for output in outputs]
        for i in set().union(*versions):
            held = {tuple(v[i][c] for c in program.columns) for v in versions if i in v}
            assert len(held) == 1, "a changed value was published beside unchanged reports"
        cells = Counter(
            (next(v[i].get(program.groups or "") for v in versions if i in v),
             tuple(i in v for v in versions))
            for i in set().union(*versions)
        )  # fmt: skip
        record = self.record(outputs[-1])
        mechanism = LocalRandomizer.from_config(record["mechanism"])
        least = float(event_epsilon(shuffled_event(mechanism, min(cells.values())), DELTA))
        charge = self.ledger.charge(record["run_id"])
        assert charge.settled is not None
        paid = float(event_epsilon(event_from_json(charge.settled), DELTA))
        assert paid >= least * (1 - 1e-9), f"{paid} was charged for what costs {least}"


def instead(flags: list[str], **others: str | None) -> list[str]:
    """Flags with other values; None leaves one out."""
    names = {f"--{name.replace('_', '-')}": value for name, value in others.items()}
    kept = [flag for flag in flags if flag.split("=")[0] not in names]
    return kept + [f"{name}={value}" for name, value in names.items() if value is not None]
