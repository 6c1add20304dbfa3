"""What is frozen of programs that run once: a table of commands, and the people whom they ask.

Noise is memoized, so each case gives the same numbers each time. Of what cannot be memoized, which
draws from a seed, prices and counts are frozen, and no estimates; of `demo` its help. A case that
says `job` is given once more as the job file that `--print-job` writes of it, and one that says
`python` as a call of `beam_ldp.frequencies` or `means`; both must give the numbers of the flags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_ldp.ledger import BudgetLedger

PEOPLE = 600
JOB, PYTHON = "job", "python"

MEMOIZED = "--user-id=uid --memoize-key-file=key --dataset=them --release-id=week --no-mlflow"
CHARGED = f"{MEMOIZED} --ledger=sqlite:///privacy.db --run-id=nightly"
ALONE = CHARGED.replace(" --release-id=week", "").replace(
    " --run-id=nightly", ""
)  # of what may be decided once
# A seed's noise depends on the place of the file, too: what it makes of estimates is not frozen.
SEEDED = "--seed=7 --no-mlflow"
LOCALLY = "--local-epsilon=2 --delta=1e-6 --min-reports=100"
CENTRAL = f"--epsilon=1 --delta=1e-6 --expected-users={PEOPLE}"

HAIR = "frequency --input=people.csv --column=hair --domain=hair.txt"
BOTH = f"{HAIR} --column=eyes --domain=eyes.txt"
AGES = "frequency --input=people.csv --column=age --bins=0:100:10"
TOWNS = f"{HAIR} --group-by=town --groups=towns.txt"
AGE = "mean --input=people.csv --column=age --range 0 100"
VECTOR = "mean --input=people.csv --column=x,y,z"
SHARES = f"{VECTOR} --norm=l2 --radius=1 --trust-shuffler --epsilon=1 --delta=1e-6"
DAYS = "user-mean --input=days.csv --column=minutes --range 0 100 --rows-per-user=3 --sigma=5"
WORDS = "heavy-hitters --input=people.csv --column=hair --max-bytes=4 --code-bits=22"
WORDS += " --local-epsilon=6 --delta=1e-6 --expected-users=600 --min-reports=100"
TEST = "ab-test run --input=visits.csv --outcome=bought --arm=arm --design=test.json"
LOOKED = f"{TEST} {SEEDED} --output=out --format=json"
DESIGN = "ab-test design --null=0.3 --effect=0.4 --local-epsilon=2 --arms=control,red"
DESIGN += " --power=0.9 --output=test.json"
START = "bandit start --actions=actions.csv --horizon=3000 --epsilon=2 --dataset=them"
START += " --state=service"
ADVANCE = "bandit advance --state=service --rewards=rewards.parquet --no-mlflow"
ADVANCE += " --memoize-key-file=key"
TRAIN = "--data=mnist5k --local-epsilon=2 --clients-per-round=200 --epochs=30 --delta=1e-5"
SIZES = "--expected-users=1e6 --domain-size=1000 --delta=1e-8"


@dataclass(frozen=True)
class Case:
    """Commands, one after another in a folder with `people`.

    Attributes:
        name: of the case; its door stands behind it where that is not the command line.
        commands: as a shell takes them, without `beam-ldp`; `visitors` writes the rewards of
            those who were served in the first batch of `bandit`.
        doors: other doors that must give the same.
        slow: left to `make test-slow`.
        read: whether its words are kept, or said by others already.
    """

    name: str
    commands: tuple[str, ...]
    doors: tuple[str, ...] = ()
    slow: bool = False
    read: bool = True

    @property
    def drawn(self) -> bool:
        """Whether its estimates are of one run alone. Those of a bandit have no fixed identity."""
        return self.name == "bandit" or any(SEEDED in command for command in self.commands)


def released(name: str, command: str, *doors: str, slow: bool = False, read: bool = True) -> Case:
    """A release into the folder `out`."""
    return Case(name, (f"{command} --output=out",), doors, slow, read)


def told(name: str, *commands: str) -> Case:
    """What says something, and writes no release."""
    return Case(name, commands)


MEANS_OF = (("L1Mean", "l1", True), ("LInfMean", "linf", True), ("L2Mean", "l2", True),
            ("PrivUnit", "l2", False), ("PrivUnitGaussian", "l2", True),
            ("SeparatedMean", "l2", False), ("ProjectedPrivUnit", "l2", True),
            ("RandomCodebookMean", "l2", True), ("MinimalRandomCoding", "l2", True),
            ("RotatedSimplexMean", "l2", True))  # fmt: skip
ORACLES = ("KRandomizedResponse", "UnaryEncoding", "LocalHashing", "HadamardResponse",
           "BinaryHadamard", "RecursiveHadamardResponse", "SubsetSelection",
           "PairwiseIndependentRappor", "ProjectiveGeometryResponse", "Rappor")  # fmt: skip

FREQUENCIES = (
    released("one list", f"{HAIR} {LOCALLY} {CHARGED}", JOB, PYTHON),
    released("one list, in JSON", f"{HAIR} {LOCALLY} {MEMOIZED} --format=json", JOB),
    released("one list, for a target", f"{HAIR} {CENTRAL} {MEMOIZED} --format=json", JOB, PYTHON),
    released("parquet", f"{HAIR} {LOCALLY} {MEMOIZED}".replace(".csv", ".parquet"), read=False),
    released("lines of JSON", f"{HAIR} {LOCALLY} {MEMOIZED}".replace(".csv", ".jsonl"), read=False),
    released("text", f"frequency --input=hairs.txt --domain=hair.txt {LOCALLY} {SEEDED}",
             read=False),
    released("reports, permuted", f"{HAIR} {LOCALLY} {MEMOIZED} --shuffle-output=reports "
             "--scope=global", read=False),
    released("clipped", f"{HAIR} {LOCALLY} {MEMOIZED} --postprocess=clip --other-label=rest"),
    released("summing to one", f"{HAIR} {LOCALLY} {MEMOIZED} --postprocess=norm-sub --top=2"),
    released("bad rows", f"{HAIR} {LOCALLY} {MEMOIZED} --max-bad-rows=0.5".replace(
        "people.csv", "bad.csv")),
    released("bad rows as other", f"{HAIR} {LOCALLY} {MEMOIZED} --bad-rows=other "
             "--max-bad-rows=0.5".replace("people.csv", "bad.csv"), read=False),
    released("honest people", f"{HAIR} {CENTRAL} {CHARGED} --honest-fraction=0.8", JOB),
    released("only the shuffler", f"{HAIR} {CENTRAL} {MEMOIZED} --trust-shuffler".replace(
        "--epsilon=1", "--epsilon=4")),
    released("counted people", f"{HAIR} {LOCALLY} {CHARGED} --people-store=store "
             "--people-key-file=people_key"),
    released("one row each, declared", f"{HAIR} {LOCALLY} {SEEDED} --one-row-per-person",
             read=False),
    released("survey, one answered", f"{BOTH} {LOCALLY} {CHARGED} --design=one", JOB, PYTHON),
    released("survey, all answered", f"{BOTH} {LOCALLY} {CHARGED} --design=all", JOB),
    released("survey, for a target", f"{BOTH} {CENTRAL} {MEMOIZED}"),
    released("bins", f"{AGES} {LOCALLY} {CHARGED}", JOB, PYTHON),
    released("bins of uneven width", f"{AGES} {LOCALLY} {MEMOIZED}".replace(
        "0:100:10", "0,18,65,100"), read=False),
    released("tree", f"{AGES} {LOCALLY} {CHARGED} --quantiles=0.1,0.5,0.9 --between=20:60 "
             "--between=40:inf", JOB, PYTHON),
    released("tree of a fan-out", f"{AGES} {LOCALLY} {MEMOIZED} --quantiles=0.5 --fan-out=3"),
    released("groups", f"{TOWNS} {LOCALLY} {CHARGED}", JOB, PYTHON),
    released("a starved group", f"{TOWNS} {LOCALLY} {MEMOIZED} --min-reports=300"),
    released("survey in groups", f"{BOTH} {LOCALLY} {CHARGED} --design=all --group-by=town "
             "--groups=towns.txt"),
    *(released(f"by {name}", f"{HAIR} {LOCALLY} {MEMOIZED} --mechanism={name}", slow=i > 2,
               read=False)
      for i, name in enumerate(ORACLES)),
)  # fmt: skip

OTHERS = (
    released("mean", f"{AGE} {LOCALLY} {CHARGED}", JOB, PYTHON),
    released("mean, in JSON", f"{AGE} {LOCALLY} {MEMOIZED} --format=json"),
    released("mean for a target", f"{AGE} {CENTRAL} {CHARGED}", JOB),
    released("mean, local", f"{AGE} --model=local --epsilon=2 --min-reports=100 {MEMOIZED}", JOB),
    released("mean with bad rows", f"{AGE} {LOCALLY} {MEMOIZED} --max-bad-rows=0.5".replace(
        "people.csv", "bad.csv"), read=False),  # reasons as frequent come in any order
    released("mean with bad rows as zero", f"{AGE} {LOCALLY} {MEMOIZED} --bad-rows=zero "
             "--max-bad-rows=0.5 --one-row-each".replace("people.csv", "bad.csv"), read=False),
    released("vector", f"{VECTOR} --norm=l2 --radius=1 {LOCALLY} {CHARGED}", JOB, PYTHON),
    released("vector, l1", f"{VECTOR} --norm=l1 --radius=2 {LOCALLY} {MEMOIZED}", read=False),
    released("vector, linf", f"{VECTOR} --norm=linf --radius=1 {LOCALLY} {MEMOIZED}", read=False),
    released("vector, l3", f"{VECTOR} --norm=3 --radius=1 {LOCALLY} {MEMOIZED}", read=False),
    released("vector of ranges", f"{VECTOR} --ranges=ranges.csv {LOCALLY} {CHARGED}", JOB, PYTHON),
    released("vector, several messages", f"{VECTOR} --norm=linf --radius=1 {LOCALLY} {MEMOIZED} "
             "--messages=2 --shuffle-output=reports"),
    released("binary vector", "mean --input=people.csv --column=p,q --norm=binary "
             f"{LOCALLY} {MEMOIZED}"),
    released("lists", "mean --input=people.parquet --column=pixels --norm=l2 --radius=2 "
             f"--dimension=4 --shape=2x2 {LOCALLY} {MEMOIZED}"),
    released("shares", f"{SHARES} --expected-users=600 --honest-fraction=0.9 "
             f"--dataset=them --release-id=week {SEEDED}", read=False),
    *(released(f"by {name}", f"{VECTOR} --norm={norm} --radius=1 {LOCALLY} {MEMOIZED} "
               f"--mechanism={name}", slow=slow, read=False)
      for name, norm, slow in MEANS_OF),
    released("user mean", f"{DAYS} {LOCALLY} {CHARGED}", JOB),
    released("user mean, each once", f"{DAYS} {LOCALLY} {MEMOIZED} --split=users --user-sigma=3 "
             "--outliers=0.01"),
    released("user mean, local", f"{DAYS} --model=local --epsilon=3 --min-reports=50 {MEMOIZED}"),
    released("user mean for a target", f"{DAYS} --epsilon=2 --delta=1e-6 --expected-users=200 "
             f"{MEMOIZED}", read=False, slow=True),
    released("words, secret levels", f"{WORDS} {CHARGED}", JOB),
    released("words, visible levels", f"{WORDS} {CHARGED} --assignment=visible", JOB),
    released("words, in JSON", f"{WORDS} {MEMOIZED} --format=json --false-words=2"),
    Case("experiment", (DESIGN, f"{TEST} {ALONE} --output=out"), (JOB,)),
    Case("experiment, too few", (DESIGN, f"{LOOKED} --min-reports=500"), read=False),
    Case("experiment in looks", (
        f"{DESIGN} --looks=2", f"{TEST} {ALONE} --look=1 --output=out",
        f"{TEST} {ALONE} --look=1 --output=again --format=json")),
    Case("several kinds", ("run kinds.yaml --dry-run", "run kinds.yaml")),
    Case("one of several kinds", ("run kinds.yaml --only=mean --format=json",)),
    Case("bandit", (START, "visitors", f"{ADVANCE} --user-id=uid --ledger=sqlite:///privacy.db "
                    "--dry-run",
                    f"{ADVANCE} --user-id=uid --ledger=sqlite:///privacy.db"), read=False),
    Case("template", ("template " + f"{HAIR} {LOCALLY} {MEMOIZED}".removeprefix("frequency ")
                      + " --output=out --runner=FnApiRunner",
                      f"{HAIR} {LOCALLY} {MEMOIZED} --output=out --staged=out.staged")),
)  # fmt: skip

NOBODY = tuple(
    released(f"nobody: {kind}", re.sub("--input=[a-z]*", "--input=empty", command))
    for kind, command in (
        ("frequency", f"{HAIR} {LOCALLY} {CHARGED}"),
        ("groups", f"{TOWNS} {LOCALLY} {MEMOIZED}"),
        ("mean", f"{AGE} {LOCALLY} {CHARGED}"),
        ("user-mean", f"{DAYS} {LOCALLY} {CHARGED}".replace("minutes", "age")),
        ("heavy-hitters", f"{WORDS} {CHARGED}"),
    )
)
# Where too few, too bad or too dear rows were read: what is released and charged is told.
WITHHELD = (
    released("too few", f"{HAIR} {LOCALLY} {CHARGED} --min-reports=601"),
    released("too bad", f"{HAIR} {LOCALLY} {CHARGED} --max-bad-rows=0".replace(
        "people.csv", "bad.csv")),
    released("too dear", f"{HAIR} {CENTRAL} {CHARGED} --min-reports=100".replace(
        "people.csv", "bad.csv").replace("=600", "=4000") + " --max-bad-rows=0.5"),
    released("allowed though dear", f"{HAIR} {CENTRAL} {CHARGED} --min-reports=100".replace(
        "people.csv", "bad.csv").replace("=600", "=4000") + " --max-bad-rows=0.5 "
        "--allow-over-target"),
    released("too few values", f"{AGE} {LOCALLY} {CHARGED} --min-reports=601"),
    released("too few of many days", f"{DAYS} {LOCALLY} {CHARGED} --min-reports=201"),
    released("too few words", f"{WORDS} {CHARGED}".replace("=100", "=601")),
)  # fmt: skip

TOLD = (
    told("plan frequency", f"plan frequency {SIZES} --epsilon=0.2"),
    told("plan frequency, JSON", f"plan frequency {SIZES} --epsilon=0.2 --format=json",
         f"plan frequency {SIZES} --local-epsilon=4 --format=json --max-bits=64"),
    told("plan a short list", f"plan frequency {SIZES} --domain-size=8 --local-epsilon=2 "
         "--format=json"),
    told("plan bins", "plan frequency --expected-users=1e5 --delta=1e-6 --local-epsilon=2 "
         "--bins=0:100:50 --quantiles=0.5 --format=json"),
    told("plan mean", "plan mean --expected-users=1e5 --dimension=16 --epsilon=1 --delta=1e-8",
         "plan mean --expected-users=1e5 --dimension=16 --epsilon=1 --delta=1e-8 --format=json"),
    told("plan mean, local", "plan mean --expected-users=1e5 --dimension=16 --epsilon=4 "
         "--model=local --format=json"),
    told("plan user mean", "plan user-mean --expected-users=1e5 --range 0 1440 --sigma=60 "
         "--rows-per-user=30 --epsilon=1 --delta=1e-8",
         "plan user-mean --expected-users=1e5 --range 0 1440 --sigma=60 --rows-per-user=30 "
         "--local-epsilon=2 --delta=1e-8 --format=json"),
    told("plan words", "plan heavy-hitters --expected-users=1e7 --local-epsilon=6 --delta=1e-8",
         "plan heavy-hitters --expected-users=1e6 --local-epsilon=6 --delta=1e-8 --format=json "
         "--max-bytes=64 --code-bits=192"),
    told("plan train", f"plan train {TRAIN}", f"plan train {TRAIN} --format=json"),
    told("plan convergence", "plan convergence --help-all"),
    told("plan mechanisms", "plan mechanisms", "plan mechanisms --format=json"),
    told("plan a job", "plan kinds.yaml", "plan kinds.yaml --format=json"),
    told("train, not run", f"train {TRAIN} --output=out --dry-run",
         f"train {TRAIN} --output=out --dry-run --format=json"),
    told("check", f"check {HAIR} {LOCALLY} {CHARGED} --output=out",
         f"check {AGE} {LOCALLY} {MEMOIZED} --output=out --format=json",
         f"check {BOTH} {LOCALLY} {MEMOIZED} --output=out --format=json",
         f"check {DAYS} {LOCALLY} {MEMOIZED} --output=out --format=json",
         f"check {WORDS} {MEMOIZED} --output=out --format=json",
         "check kinds.yaml --format=json",
         f"check {HAIR} --local-epsilon=20 --delta=1e-6 --output=out --format=json"),
    told("not run", f"{HAIR} {CENTRAL} {MEMOIZED} --output=out --dry-run",
         f"{AGE} {CENTRAL} {MEMOIZED} --output=out --dry-run --format=json",
         f"{DAYS} {LOCALLY} {MEMOIZED} --output=out --dry-run",
         f"{WORDS} {MEMOIZED} --output=out --dry-run"),
    told("privacy", "privacy --local-epsilon=2 --expected-users=60000 --delta=1e-5",
         "privacy --local-epsilon=4 --expected-users=1e5 --delta=1e-6 --mechanism=SubsetSelection "
         "--domain-size=1000 --format=json",
         "privacy --local-epsilon=2 --expected-users=6e4 --sampled=2000 --rounds=6000 --delta=1e-5 "
         "--format=json",
         "privacy --local-epsilon=2 --expected-users=6e4 --sampled=2000 --rounds=600 --delta=1e-5 "
         "--sampling=poisson --conjectured --format=json"),
    told("privacy, solved", "privacy --expected-users=1e6 --rounds=30 --delta=1e-8 --epsilon=1 "
         "--solve=local-epsilon --format=json",
         "privacy --local-epsilon=2 --rounds=1 --delta=1e-6 --epsilon=0.5 --solve=users"),
    told("a design", "ab-test design --null=0.1 --effect=0.01 --local-epsilon=2",
         "ab-test design --null=0.1 --effect=0.02 --local-epsilon=2 --arms=now,red,green --looks=4 "
         "--format=json",
         "ab-test design --null=10 --effect=2 --value-range=0,50 --local-epsilon=2 --sided=two "
         "--shares=0.7,0.3 --spending=pocock --looks=3 --format=json",
         "ab-test design --null=0.1 --effect=0.01 --local-epsilon=2 --arms=1 --format=json"),
    told("a plan of a bandit", "bandit plan --actions=actions.csv --horizon=2e4 --epsilon=1 "
         "--repeat=2", "bandit plan --actions=circle:5 --horizon=2e4 --epsilon=4 --model=local "
         "--repeat=2 --format=json"),
    told("statements", f"{HAIR} {LOCALLY} {MEMOIZED} --output=out", "statement out",
         "statement out --format=json", "statement out --registry --curator=Us --author=Me"),
)  # fmt: skip

# Commands whose help is frozen.
HELPED = ("", "frequency", "mean", "user-mean", "heavy-hitters", "train", "randomize", "collect",
          "run", "check", "plan", "plan frequency", "plan mean", "plan user-mean",
          "plan heavy-hitters", "plan train", "plan convergence", "plan mechanisms", "ab-test",
          "ab-test design", "ab-test run", "ab-test decide", "bandit", "bandit plan",
          "bandit simulate", "bandit start", "bandit advance", "bandit collect", "audit",
          "audit-interactivity", "budget", "demo", "demo mean", "doctor", "finalize", "keys",
          "statement", "recover", "reconstruct", "privacy")  # fmt: skip


def furnish(folder: Path) -> None:
    """The people, their lists, keys and budget. Files are the same on every platform."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        f"{i},{('red', 'fair', 'dark', 'fair')[i % 4]},{'ab'[i % 2]},"
        f"{'north' if i % 8 < 5 else 'south'},{i % 90},{(i % 7) / 10},{(i % 5) / -10},0.25,"
        f"{i % 2},{int(i % 3 == 0)}"
        for i in range(PEOPLE)
    ]
    names = "uid,hair,eyes,town,age,x,y,z,p,q"
    _write(folder / "people.csv", names, *rows)
    _write(folder / "empty.csv", names)
    bad = ["700,,,,,,,,,", "701,red", "702,red,a,north,old,x,y,z,2,2", ",fair,a,south,5,0,0,0,0,0"]
    _write(folder / "bad.csv", names, *rows[:400], *bad)
    cells = [row.split(",") for row in rows]
    _write(folder / "people.jsonl", *(f'{{"uid": {c[0]}, "hair": "{c[1]}"}}' for c in cells))
    _write(folder / "hairs.txt", *(c[1] for c in cells))
    pixels = [[(i % 3) / 2, (i % 2) / 2, 0.5, -0.5] for i in range(PEOPLE)]
    table = {"uid": np.arange(PEOPLE), "hair": [c[1] for c in cells], "pixels": pixels}
    pq.write_table(pa.table(table), folder / "people.parquet", row_group_size=250)
    days = [f"{i},{40 + i % 20 + 2 * day}" for i in range(200) for day in range(4)]
    _write(folder / "days.csv", "uid,minutes", *days)
    arms = [("control", 0.3), ("red", 0.7)]
    seen = [f"{i}-{arm},{arm},{int(i % 100 < 100 * p)}" for arm, p in arms for i in range(400)]
    _write(folder / "visits.csv", "uid,arm,bought", *seen, "901,control,maybe", "902,teal,1")
    _write(folder / "actions.csv", "name,x,y", "blue,1,0", "red,0,1", "green,-0.6,-0.6")
    _write(folder / "hair.txt", "red", "fair")
    _write(folder / "eyes.txt", "a", "b")
    _write(folder / "towns.txt", "north", "south", "nowhere")
    _write(folder / "ranges.csv", "column,low,high", "x,0,1", "y,-1,0", "z,0,0.5")
    (folder / "kinds.yaml").write_text(KINDS, "utf-8")
    for i, name in enumerate(("key", "people_key")):
        (folder / name).write_bytes(bytes(range(32 * i, 32 * i + 32)))
        (folder / name).chmod(0o600)
    made = BudgetLedger.create(f"sqlite:///{folder}/privacy.db")
    made.set_budget("them", epsilon=30.0, delta=1e-6, local_epsilon=20.0, population="everybody")


def visitors() -> None:
    """Rewards of the slots of the first batch, better for red: in the working folder."""
    slots = pq.read_table("service/batch-1.slots.parquet")
    actions = slots.column("action").to_pylist()
    good = [(3 if action == "red" else 1) > i % 4 for i, action in enumerate(actions)]
    slots = slots.append_column("reward", pa.array([1.0 if one else -1.0 for one in good]))
    pq.write_table(slots.append_column("uid", pa.array(range(len(good)))), "rewards.parquet")


KINDS = """
source:  {files: people.csv}
people:  {id: uid}
release: {dataset: them, id: week, run_id: nightly, ledger: "sqlite:///privacy.db", key_file: key}
questions:
  - {frequency: hair, domain: hair.txt}
  - {mean: [age], range: [0, 100]}
privacy: {epsilon: 2, delta: 1e-6, expected_users: 600}
output:  {folder: out, no_mlflow: true}
"""


def _write(path: Path, *lines: str) -> None:
    path.write_bytes(("\n".join(lines) + "\n").encode())
