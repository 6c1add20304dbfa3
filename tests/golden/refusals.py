"""Rules that every door must keep: what is refused, before anything is read or charged.

A rule is a command with one change that it forbids. It is tried as flags, as the job file that the
command prints, as `check`, and of `frequency` and `mean` as a call from Python.
"""

from __future__ import annotations

import shlex

from tests.golden.cases import (
    ADVANCE,
    AGE,
    AGES,
    CENTRAL,
    CHARGED,
    DAYS,
    HAIR,
    LOCALLY,
    MEMOIZED,
    START,
    TEST,
    TRAIN,
    WORDS,
)

_HAIR = f"{HAIR} {LOCALLY} {CHARGED}"
_BINS = f"{AGES} {LOCALLY} {MEMOIZED}"
_AGE = f"{AGE} {LOCALLY} {CHARGED}"
_DAYS = f"{DAYS} {LOCALLY} {CHARGED}"
_WORDS = f"{WORDS} {CHARGED}"
_TRAIN = f"train {TRAIN} --dry-run --output=out"
_ADVANCE = f"{ADVANCE} --user-id=uid"

# What is changed: `--flag=x` replaces, `+--flag=x` is one more, `!flag` is left out.
_CHANGES: dict[str, tuple[str, ...]] = {
    _HAIR: (
        "--epsilon=1", "!local-epsilon", "!local-epsilon --epsilon=1", "!delta", "--delta=2",
        "--delta=-1", "--local-epsilon=0", "--local-epsilon=nan", "--local-epsilon=8.5",
        "--local-epsilon=31 --trust-shuffler", "--max-local-epsilon=1", "--honest-fraction=0",
        "--honest-fraction=1.5", "--expected-users=0", "--expected-users=1.5",
        "!local-epsilon --epsilon=40 --expected-users=600", "--allow-over-target", "--model=local",
        "!user-id", "!release-id", "!dataset", "!ledger !dataset", "--seed=1", "!memoize-key-file "
        "--seed=-1", "--memoize-key-file=none", "--people-store=s", "--people-key-file=people_key",
        "!user-id !memoize-key-file --people-store=s --people-key-file=people_key",
        "!user-id !memoize-key-file", "--no-ledger",
        "--ledger=sqlite:///none.db", "--ledger=nonsense", "--dataset=strangers",
        "--privacy-unit=household", "--quota=none", "!ledger --quota=none", "--run-id=",
        "!memoize-key-file --frozen-values",
        "--interaction-log=log", "--interaction-log=log --interaction-key-file=key "
        "!memoize-key-file --seed=1", "!column", "!domain", "!input", "--input=none.csv",
        "--column=none", "--domain=none.txt",
        "+--column=hair", "+--domain=eyes.txt", "--bins=0:10:5", "--quantiles=0.5",
        "--between=0:5", "--fan-out=2", "--groups=towns.txt", "--group-by=none",
        "--group-by=town --groups=none.txt", "--design=all", "--design=some", "--postprocess=best",
        "--bad-rows=zero", "--max-bad-rows=-1", "--min-reports=0", "--min-reports=x",
        "--mechanism=None", "--mechanism=LInfMean", "--max-bits=0", "--random-bits=0",
        "--shuffle-output=all", "--scope=none", "--top=0", "--format=xml", "--input-format=xml",
        "--csv-delimiter=ab", "--epsilom=1", "--range=1", "--norm=l2", "--window=60s",
        "--stream --time-column=t --window=60s --group-by=town", "--staged=none",
        "--output=towns.txt", "--job-timeout=soon", "--other-label=red",
    ),
    _BINS: (
        "--domain=hair.txt", "+--column=uid", "--bins=10:0:5", "--bins=0:100:0", "--bins=a",
        "--quantiles=1.5", "--quantiles=x", "--between=1:2", "--between=60:20", "--fan-out=2",
        "--quantiles=0.5 --fan-out=1", "--column=hair",
    ),
    _AGE: (
        "--epsilon=1", "!local-epsilon", "!delta", "--norm=l2", "--radius=1",
        "!column", "--column=none", "--column=hair", "--column=age,age",
        "--model=nobody",  "--messages=0",
        "--mechanism=KRandomizedResponse", "--mechanism=PrivUnit", "--shape=2x2", "--shape=2",
        "--dimension=2", "--outside=ignore", "--bad-rows=other", "--group-by=town", "--stream",
        "--domain=hair.txt", "!user-id", "!user-id !memoize-key-file", "--seed=1", "!dataset",
        "--dataset=strangers", "--local-epsilon=8.5",
        "--postprocess=clip",
    ),
    _DAYS: (
        "--epsilon=1", "!user-id", "!column", "--column=none", "--rows-per-user=0", "--sigma=-1",
        "--sigma=1,2", "--user-sigma=-1", "--outliers=0.5", "--failure-probability=2",
        "--split=none", "--radius=1", "--mechanism=LInfMean", "--group-by=town",
        "--messages=2", "--dataset=strangers", "--seed=1", "!delta", "--shuffle-output=all",
    ),
    _WORDS: (
        "--epsilon=1", "!local-epsilon",  "!column", "--max-bytes=0",
         "--false-words=0", "--failure-probability=0",
        "--assignment=open", "--local-epsilon=8.5", "--mechanism=KRandomizedResponse",
        "--group-by=town", "--allow-over-target", "--dataset=strangers", "--seed=1", "!user-id",
        "--scope=global", "--min-reports=0",
    ),
    f"{TEST} --no-mlflow": (
        "--design=none.json", "--design=hair.txt", "!outcome", "!arm", "!design", "--release-id=x",
        "--epsilon=1", "--local-epsilon=1", "--look=0", "--group-by=town",
    ),
    _ADVANCE: ("--state=none", "!state", "!rewards", "--epsilon=1", "--ledger=sqlite:///none.db"),
    _TRAIN: (
        "--delta=1.5", "--epsilom=1", "--learning-rate=0", "--points-sampled=2", "--sampling=full",
        "--data=none", "!local-epsilon", "!data", "!epochs", "--ledger=sqlite:///none.db",
        "--mechanism=None", "--local-epsilon=50 --trust-shuffler", "--ledger=a --no-ledger",
    ),
    START: ("!actions", "!horizon", "!dataset", "!state", "--epsilon=-1", "--horizon=1",
                 "--actions=hair.txt", "--actions=none.csv", "--delta=2", "--model=nobody"),
    "plan frequency --expected-users=1e6 --domain-size=1000 --delta=1e-8 --epsilon=1": (
        "!expected-users", "!domain-size", "--domain-size=0", "--epsilon=-1", "--delta=2",
        "--local-epsilon=1", "--max-bits=0", "--epsilom=1",
        "--input=people.csv", "--workers=0", "--mechanism=None",
    ),
    "plan mean --expected-users=1e5 --dimension=16 --epsilon=1 --delta=1e-8": (
        "!dimension", "!expected-users", "--dimension=0", "--model=nobody", "--norm=l9",
    ),
    "privacy --local-epsilon=2 --expected-users=60000 --delta=1e-5": (
        "!local-epsilon", "!delta", "--delta=2", "--rounds=0", "--sampled=70000",
        "--solve=rounds", "--mechanism=None", "--mechanism=SubsetSelection",
        "--sampling=twice", "--local-epsilon=0",
    ),
    "ab-test design --null=0.1 --effect=0.01 --local-epsilon=2": (
        "!null", "--null=2", "--effect=0", "--effect=0.95", "--power=2", "--alpha=0", "--arms=0",
        "--arms=a,a", "--shares=0.5", "--looks=0", "--spending=all", "--value-range=1,0",
        "--local-epsilon=0",
    ),
    "statement none": ("--format=xml",),
    "run none.yaml": ("",),
    "run kinds.yaml": ("--only=none", "--epsilom=1", "--range=1"),
    f"{HAIR} {CENTRAL} {CHARGED}": ("--epsilon=100", "--local-epsilon=2",
    ),
}  # fmt: skip

ONLY_FLAGS = ("bandit start", "train", "plan", "privacy", "ab-test design", "statement", "run")


# Programs by the names under which `check` knows them.
CHECKED = {"ab-test run": "ab-test", "bandit advance": "bandit-advance"}


def as_check(command: str) -> str:
    """The command that checks what a command would do."""
    for name, checked in CHECKED.items():
        command = f"{checked} {command[len(name) + 1 :]}" if command.startswith(name) else command
    program, _, flags = command.partition(" ")
    return f"check {program} --format=json {flags}"


def changed(command: str, change: str) -> str:
    """The command with the change."""
    words = shlex.split(command)
    for one in shlex.split(change):
        flag = one.lstrip("+!").partition("=")[0]
        flag = flag if flag.startswith("--") else f"--{flag}"
        if not one.startswith("+"):
            words = _without(words, flag)
        if not one.startswith("!"):
            words.append(one.lstrip("+"))
    return shlex.join(words)


def _without(words: list[str], flag: str) -> list[str]:
    kept, skip = [], 0
    for word in words:
        if skip:
            skip -= 1
        elif word == "--range" == flag:
            skip = 2
        elif word.partition("=")[0] != flag:
            kept.append(word)
    return kept


def rules() -> dict[str, tuple[str, bool]]:
    """`(command, whether it has doors beside flags)` of each rule, by its name."""
    found = {}
    for command, changes in _CHANGES.items():
        doors = not command.startswith(ONLY_FLAGS)
        out = command if "--state" in command or not doors else f"{command} --output=out"
        for change in changes:
            name = f"{shlex.split(command)[0]}: {change}"
            if name in found:
                name = f"{name} for a target"
            found[name] = changed(out, change), doors
    return found
