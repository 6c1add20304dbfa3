"""The flags that every program has, as data: name, how it is read, help.

A program puts its own beside them with `with_own`. A flag that several programs have is described
once, here.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from typing import Any

Flags = dict[str, dict[str, Any]]  # by name, with the arguments of argparse's `add_argument`
Groups = dict[str, Flags]  # by title, in the order in which help shows them

DATA = "the data"
PRICE = "the price (one of the two epsilons)"
MECHANISM = "the mechanism"
BUDGET = "the budget"
OUTPUT = "the output"


def whole_number(text: str) -> int:
    """`1000000`, `1e6` or `1_000_000`."""
    value = float(text)
    if not math.isfinite(value) or value != int(value):
        raise ValueError
    return int(value)


def positive_number(text: str) -> float:
    """A finite number above zero."""
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError
    return value


whole_number.__name__ = "whole number"  # what argparse says was expected
positive_number.__name__ = "number > 0"


COMMON: Groups = {
    DATA: {
        "--input": {
            "action": "append", "metavar": "PATH",
            "help": "file, folder or glob, on any file system that Beam knows; may be repeated",
        },
        "--input-format": {
            "choices": ["auto", "parquet", "csv", "jsonl", "text"], "default": "auto",
            "help": "default: by the ending of the file names",
        },
        "--csv-delimiter": {"metavar": "CHAR", "help": "default: a comma, or a tab for .tsv"},
        "--user-id": {
            "metavar": "NAME",
            "help": "column that says whose row it is: one row per person is drawn; without it "
            "each row is taken for a person",
        },
        "--one-row-per-person": {
            "action": "store_true", "default": False,
            "help": "instead of --user-id: declares that no person has two rows, where a budget of "
            "people is charged; nothing checks it, every record says it",
        },
        "--max-bad-rows": {
            "type": whole_number, "metavar": "N",
            "help": "release nothing if there are more (default: no limit)",
        },
        "--bad-rows-file": {
            "metavar": "FILE",
            "help": "where rows that cannot be used are listed, for you alone: a null is an answer "
            "(default: OUTPUT.private/bad_rows.jsonl)",
        },
    },
    PRICE: {
        "--epsilon": {
            "type": positive_number, "metavar": "EPS",
            "help": "central price after shuffling; needs --expected-users",
        },
        "--local-epsilon": {
            "type": positive_number, "metavar": "EPS0",
            "help": "what each person is promised against everybody",
        },
        "--max-local-epsilon": {
            "type": positive_number, "metavar": "EPS0",
            "help": "never promise less to a person than this, even where --epsilon would allow it",
        },
        "--delta": {
            "type": float, "metavar": "D",
            "help": "of the central price, in (0, 1); take it far below 1/users",
        },
        "--expected-users": {
            "type": whole_number, "metavar": "N",
            "help": "people expected to report; 1e6 is understood",
        },
        "--min-reports": {
            "type": whole_number, "metavar": "N",
            "help": "release nothing below this (default: 0.9 of --expected-users)",
        },
        "--strict": {
            "action": "store_true", "default": False,
            "help": "release nothing if what was received costs more than --epsilon",
        },
        "--honest-fraction": {
            "type": float, "default": 1.0, "metavar": "F",
            "help": "share of the reports, in every batch, that are not fake, in (0, 1]: only "
            "those hide a person (default 1)",
        },
    },
    MECHANISM: {
        "--mechanism": {
            "default": "auto", "metavar": "NAME",
            "help": "name of a mechanism, or auto: the most accurate one (see `beam-ldp plan`)",
        },
        "--max-bits": {
            "type": whole_number, "metavar": "BITS", "help": "longest report that auto may choose",
        },
        "--shuffle-output": {
            "choices": ["statistic", "reports"], "default": "statistic",
            "help": "what leaves the shuffler: only sums, or permuted reports",
        },
        "--scope": {
            "choices": ["batch", "global"], "default": "batch",
            "help": "reports are permuted in large batches, or all together",
        },
        "--memoize-key-file": {
            "metavar": "FILE",
            "help": "secret key, read on the workers: a retry then sends the same report "
            "(needs --user-id and --release-id)",
        },
        "--release-id": {
            "metavar": "NAME", "help": "names this release for memoized noise; never reuse one",
        },
        "--seed": {
            "type": whole_number, "metavar": "N",
            "help": "simulation only: repeatable noise protects nobody, every output says so",
        },
    },
    BUDGET: {
        "--ledger": {
            "metavar": "URL",
            "help": "ledger that grants the budget of --dataset: the worst case is reserved before "
            "anything is read, or refused (default: the environment variable BEAM_LDP_LEDGER; see "
            "`beam-ldp budget`)",
        },
        "--no-ledger": {
            "action": "store_true", "default": False,
            "help": "charge nothing, even where BEAM_LDP_LEDGER is set; every output says so",
        },
        "--privacy-unit": {
            "default": "user", "metavar": "NAME",
            "help": "what this run protects; must be what the budget protects (default: user)",
        },
        "--frozen-values": {
            "action": "store_true", "default": False,
            "help": "nobody's value has changed since this memoized release was published first: "
            "allows a second publication about other people where nothing tells it "
            "(docs/retries.md)",
        },
        "--run-id": {
            "metavar": "NAME", "help": "name of the charge, used once (default: a random one)",
        },
        "--quota": {
            "default": "", "metavar": "NAME",
            "help": "whose share of the budget is charged (`budget quota` keeps one; default: what "
            "no quota keeps)",
        },
        "--budget-windows": {
            "type": whole_number, "metavar": "N",
            "help": "releases over time to reserve, for unbounded data: `frequency --stream`, or a "
            "pipeline of your own (docs/ledger.md), stops when those are used",
        },
        "--people-store": {
            "metavar": "DIR",
            "help": "leave keyed hashes of the people asked here: the ledger then counts what each "
            "was charged locally (needs --user-id and --people-key-file; see docs/ledger.md)",
        },
        "--people-key-file": {
            "metavar": "FILE",
            "help": "secret key of those hashes, one for all runs about these people; only workers "
            "read it",
        },
    },
    OUTPUT: {
        "--output": {"metavar": "DIR", "help": "folder to write; whole or not at all"},
        "--overwrite": {
            "action": "store_true", "default": False, "help": "replace an existing output",
        },
        "--dataset": {
            "default": "", "metavar": "NAME",
            "help": "declared name of the people's data: whose budget is charged, and part of the "
            "release's identity (needed where there is a ledger or --memoize-key-file)",
        },
        "--format": {
            "choices": ["table", "json"], "default": "table", "help": "what is printed here",
        },
        "--dry-run": {
            "dest": "only_plan", "action": "store_true", "default": False,
            "help": "print plan and price; read no data, write nothing",
        },
        "--config": {
            "metavar": "FILE",
            "help": "JSON object of flags, without dashes in front; the command line wins",
        },
        "--mlflow-uri": {
            "metavar": "URI",
            "help": "MLflow tracking server (default: mlflow.db beside the output)",
        },
        "--mlflow-experiment": {
            "default": "beam-ldp", "metavar": "NAME", "help": "MLflow experiment",
        },
        "--no-mlflow": {
            "action": "store_true", "default": False, "help": "do not log to MLflow",
        },
    },
}  # fmt: skip


def with_own(own: Mapping[str, Flags]) -> Groups:
    """The common flags with a program's own, which follow the first one of their group.

    A common flag that the program describes anew keeps its place.
    """
    return {title: _merged(flags, own.get(title, {})) for title, flags in COMMON.items()}


def _merged(common: Flags, own: Flags) -> Flags:
    first, *rest = common
    names = [first, *(name for name in own if name not in common), *rest]
    return {name: own.get(name) or common[name] for name in names}


def add_flags(parser: argparse.ArgumentParser, groups: Groups, both_spellings: bool) -> None:
    """Our flags; Beam users write underscores, so those are understood too."""
    for title, flags in groups.items():
        group = parser.add_argument_group(title)
        for name, how in flags.items():
            beams = "--" + name[2:].replace("-", "_")
            # Beam has a --dry_run of its own: that of Dataflow.
            two = both_spellings and beams != name and name != "--dry-run"
            group.add_argument(*([name, beams] if two else [name]), **how)
