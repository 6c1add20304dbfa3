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
PRICE = "the privacy cost (give one of the two epsilons)"
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
            "help": "default: chosen by the file extension",
        },
        "--csv-delimiter": {"metavar": "CHAR", "help": "default: a comma, or a tab for .tsv"},
        "--user-id": {
            "metavar": "NAME",
            "help": "column with the user id: one row per person is drawn at random; without it "
            "every row counts as a person",
        },
        "--one-row-per-person": {
            "action": "store_true", "default": False,
            "help": "instead of --user-id, where a budget of people is charged: declares that "
            "nobody has more than one row. This is not checked, and every record says so",
        },
        "--max-bad-rows": {
            "type": whole_number, "metavar": "N",
            "help": "release nothing if more rows than this cannot be used (default: no limit)",
        },
        "--bad-rows-file": {
            "metavar": "FILE",
            "help": "where rows that cannot be used are listed; keep this file private, since even "
            "a null is an answer (default: OUTPUT.private/bad_rows.jsonl)",
        },
    },
    PRICE: {
        "--epsilon": {
            "type": positive_number, "metavar": "EPS",
            "help": "central epsilon to aim at, after shuffling; needs --expected-users",
        },
        "--local-epsilon": {
            "type": positive_number, "metavar": "EPS0",
            "help": "local epsilon: what each person is promised against everybody",
        },
        "--max-local-epsilon": {
            "type": positive_number, "metavar": "EPS0",
            "help": "largest local epsilon to use, even where --epsilon would allow a larger one",
        },
        "--delta": {
            "type": float, "metavar": "D",
            "help": "delta of the central epsilon, in (0, 1); choose it far below 1/users",
        },
        "--expected-users": {
            "type": whole_number, "metavar": "N",
            "help": "number of people expected to report, for example 1e6",
        },
        "--min-reports": {
            "type": whole_number, "metavar": "N",
            "help": "smallest number of reports to release; with fewer, nothing is released "
            "(default: 0.9 of --expected-users)",
        },
        "--strict": {
            "action": "store_true", "default": False,
            "help": "release nothing if the reports received cost more than --epsilon",
        },
        "--honest-fraction": {
            "type": float, "default": 1.0, "metavar": "F",
            "help": "honest fraction: share of the reports in every batch that are not fake, in "
            "(0, 1]; only those hide a person (default 1)",
        },
    },
    MECHANISM: {
        "--mechanism": {
            "default": "auto", "metavar": "NAME",
            "help": "name of a mechanism, or auto for the most accurate one (see `beam-ldp plan`)",
        },
        "--max-bits": {
            "type": whole_number, "metavar": "BITS", "help": "longest report, in bits, that auto "
            "may choose",
        },
        "--shuffle-output": {
            "choices": ["statistic", "reports"], "default": "statistic",
            "help": "what leaves the shuffler: sums only (statistic), or the permuted reports",
        },
        "--scope": {
            "choices": ["batch", "global"], "default": "batch",
            "help": "permute reports in large batches, or all of them together",
        },
        "--memoize-key-file": {
            "metavar": "FILE",
            "help": "secret key of memoized noise, read by the workers: a retry then sends the "
            "same report (needs --user-id and --release-id)",
        },
        "--release-id": {
            "metavar": "NAME", "help": "name of this release, for memoized noise; never reuse a "
            "name",
        },
        "--seed": {
            "type": whole_number, "metavar": "N",
            "help": "for simulations only: repeatable noise protects nobody, and every output says "
            "so",
        },
    },
    BUDGET: {
        "--ledger": {
            "metavar": "URL",
            "help": "ledger that holds the budget of --dataset: the worst-case privacy cost is "
            "reserved there before anything is read, and a run over budget is refused (default: "
            "the environment variable BEAM_LDP_LEDGER; see `beam-ldp budget`)",
        },
        "--no-ledger": {
            "action": "store_true", "default": False,
            "help": "charge no budget, even if BEAM_LDP_LEDGER is set; every output says so",
        },
        "--privacy-unit": {
            "default": "user", "metavar": "NAME",
            "help": "privacy unit: what this run protects; it must match the unit of the budget "
            "(default: user)",
        },
        "--frozen-values": {
            "action": "store_true", "default": False,
            "help": "declares that nobody's value has changed since this memoized release was "
            "first published: allows a second publication about other people where the ledger "
            "cannot tell (docs/retries.md)",
        },
        "--run-id": {
            "metavar": "NAME", "help": "name of the charge in the ledger; each name is used once "
            "(default: a random one)",
        },
        "--quota": {
            "default": "", "metavar": "NAME",
            "help": "quota of the budget to charge (set with `budget quota`; default: the part of "
            "the budget outside all quotas)",
        },
        "--budget-windows": {
            "type": whole_number, "metavar": "N",
            "help": "number of windows to reserve budget for, where data is unbounded: `frequency "
            "--stream`, or a pipeline of your own (docs/ledger.md), stops when they are used up",
        },
        "--people-store": {
            "metavar": "DIR",
            "help": "folder for keyed hashes of the people in this release: the ledger then keeps "
            "count of each person's local epsilon (needs --user-id and --people-key-file; see "
            "docs/ledger.md)",
        },
        "--people-key-file": {
            "metavar": "FILE",
            "help": "secret key of those hashes, the same for all runs about these people; only "
            "workers read it",
        },
    },
    OUTPUT: {
        "--output": {"metavar": "DIR", "help": "folder to write; it appears complete or not at "
        "all"},
        "--overwrite": {
            "action": "store_true", "default": False, "help": "replace an existing output",
        },
        "--dataset": {
            "default": "", "metavar": "NAME",
            "help": "declared name of the data set: its budget is charged, and it is part of the "
            "release's identity (required with a ledger or --memoize-key-file)",
        },
        "--format": {
            "choices": ["table", "json"], "default": "table", "help": "format of what is printed",
        },
        "--dry-run": {
            "dest": "only_plan", "action": "store_true", "default": False,
            "help": "print the plan and its privacy cost; read no data, write nothing",
        },
        "--config": {
            "metavar": "FILE",
            "help": "JSON file of flags, without leading dashes; flags on the command line take "
            "precedence",
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
