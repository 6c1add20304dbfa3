"""The flags of `beam-ldp frequency`: one `PipelineOptions` subclass, read strictly.

Beam drops a flag that it does not know with a warning, so a mistyped `--epsilon` would run with
the default. Here an unknown flag is an error that names the nearest match, and every value is
checked before a file is opened.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from apache_beam.options.pipeline_options import PipelineOptions

from beam_ldp.pipelines.nearest import nearest

IN_PROCESS_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


class UsageError(ValueError):
    """A flag is missing, unknown, or does not fit; the message names it and what is allowed."""


def _number(text: str) -> int:
    """`1000000`, `1e6` or `1_000_000`."""
    value = float(text)
    if not math.isfinite(value) or value != int(value):
        raise ValueError
    return int(value)


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise ValueError
    return value


_number.__name__ = "whole number"
_positive.__name__ = "number > 0"


# What every flag is called, how it is read, and its help: one group after the other.
_GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "the data": {
        "--input": {
            "action": "append", "metavar": "PATH",
            "help": "file, folder or glob, on any file system that Beam knows; may be repeated",
        },
        "--input-format": {
            "choices": ["auto", "parquet", "csv", "jsonl", "text"], "default": "auto",
            "help": "default: by the ending of the file names",
        },
        "--csv-delimiter": {"metavar": "CHAR", "help": "default: a comma, or a tab for .tsv"},
        "--column": {"metavar": "NAME", "help": "column that holds the value (not for text)"},
        "--user-id": {
            "metavar": "NAME",
            "help": "column that says whose row it is: one row per person is drawn; without it "
            "each row is taken for a person",
        },
        "--domain": {
            "metavar": "FILE",
            "help": "public list of values, one per line; the rest is counted as `other`",
        },
        "--other-label": {
            "default": "other", "metavar": "NAME",
            "help": "what the rest is called, where the list holds the value `other` itself",
        },
        "--bad-rows": {
            "choices": ["dead-letter", "other"], "default": "dead-letter",
            "help": "rows that cannot be used: listed in bad_rows.jsonl, or reported as `other` "
            "without a trace",
        },
        "--max-bad-rows": {
            "type": _number, "metavar": "N",
            "help": "release nothing if there are more (default: no limit)",
        },
    },
    "the price (one of the two epsilons)": {
        "--epsilon": {
            "type": _positive, "metavar": "EPS",
            "help": "central price after shuffling; needs --expected-users",
        },
        "--local-epsilon": {
            "type": _positive, "metavar": "EPS0",
            "help": "what each person is promised against everybody",
        },
        "--max-local-epsilon": {
            "type": _positive, "metavar": "EPS0",
            "help": "never promise less to a person than this, even where --epsilon would allow it",
        },
        "--delta": {
            "type": float, "metavar": "D",
            "help": "of the central price, in (0, 1); take it far below 1/users",
        },
        "--expected-users": {
            "type": _number, "metavar": "N",
            "help": "people expected to report; 1e6 is understood",
        },
        "--min-reports": {
            "type": _number, "metavar": "N",
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
    "the mechanism": {
        "--mechanism": {
            "default": "auto", "metavar": "NAME",
            "help": "a frequency oracle, or auto: the most accurate one (see `beam-ldp plan`)",
        },
        "--max-bits": {
            "type": _number, "metavar": "BITS", "help": "longest report that auto may choose",
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
            "type": _number, "metavar": "N",
            "help": "simulation only: repeatable noise protects nobody, every output says so",
        },
    },
    "the output": {
        "--output": {"metavar": "DIR", "help": "folder to write; whole or not at all"},
        "--overwrite": {
            "action": "store_true", "default": False, "help": "replace an existing output",
        },
        "--dataset": {
            "default": "", "metavar": "NAME",
            "help": "name of the data in the records (default: the input)",
        },
        "--format": {
            "choices": ["table", "json"], "default": "table", "help": "what is printed here",
        },
        "--top": {
            "type": _number, "default": 20, "metavar": "N",
            "help": "values in the printed table and in the plot (default 20)",
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


class FrequencyOptions(PipelineOptions):
    """How often does each value of a public list occur? What the program needs to know."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        _add_flags(parser, both_spellings=True)


def _add_flags(parser: argparse.ArgumentParser, both_spellings: bool) -> None:
    """Our flags; Beam users write underscores, so those are understood too."""
    for title, flags in _GROUPS.items():
        group = parser.add_argument_group(title)
        for name, how in flags.items():
            beams = "--" + name[2:].replace("-", "_")
            # Beam has a --dry_run of its own: that of Dataflow.
            two = both_spellings and beams != name and name != "--dry-run"
            group.add_argument(*([name, beams] if two else [name]), **how)


EPILOG = """examples:
  what would it cost, and how accurate would it be? (reads no data)
    beam-ldp frequency --input 'events/*.parquet' --column url --domain urls.txt \\
        --epsilon 1 --delta 1e-8 --expected-users 1e6 --output out --dry-run
  the same for real, one report per person
    beam-ldp frequency --input 'events/*.parquet' --column url --user-id uid --domain urls.txt \\
        --epsilon 1 --delta 1e-8 --expected-users 1e6 --output out
  on a cluster (all of Beam's flags are understood)
    beam-ldp frequency ... --runner=SparkRunner --job_endpoint=host:8099 --environment_type=LOOPBACK
  from a file of flags
    beam-ldp frequency --config job.json --overwrite

exit codes: 0 done; 1 the run failed; 2 a flag or an input is wrong, nothing was read;
            3 nothing was released (too few reports, too many bad rows, --strict)
"""


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that callers choose the exit code."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def add_value_provider_argument(self, *names: str, **how: Any) -> None:
        how.pop("type", None)
        self.add_argument(*names, **how)


def _subclasses(cls: type) -> list[type]:
    below: list[type] = cls.__subclasses__()
    return [c for sub in below for c in (sub, *_subclasses(sub))]


def _beam_parser() -> argparse.ArgumentParser:
    """All flags that Beam knows, runners' own included, and ours."""
    parser = _Parser(allow_abbrev=False, add_help=False, conflict_handler="resolve")
    seen: set[str] = set()
    for cls in _subclasses(PipelineOptions):
        if "_add_argparse_args" in cls.__dict__ and cls.__qualname__ not in seen:
            seen.add(cls.__qualname__)
            cls._add_argparse_args(parser)  # type: ignore[attr-defined]
    return parser


def help_text(program: str = "beam-ldp frequency") -> str:
    """What `--help` prints: our flags, examples and exit codes."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="How often does each value of a public list occur? Every person's value is "
        "randomized before it is counted; the result has honest error bars and a stated price.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=f"{program} --input PATH --column NAME --domain FILE --delta D "
        "(--epsilon EPS --expected-users N | --local-epsilon EPS0) --output DIR [...]",
    )
    _add_flags(parser, both_spellings=False)
    return parser.format_help()


def parse_flags(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The values of our flags and Beam's, and the arguments with those of `--config` in front.

    Raises:
        UsageError: on an unknown flag, a value of the wrong kind, or an unreadable config.
    """
    arguments = [*_config_arguments(list(argv)), *argv]
    parser = _beam_parser()
    known = [name for action in parser._actions for name in action.option_strings]
    for argument in arguments:
        if argument.startswith("--") and argument.split("=", 1)[0] not in known:
            name = argument.split("=", 1)[0]
            raise UsageError(f"unknown flag {name}{nearest(name, known)}")
    values, left_over = parser.parse_known_args(arguments)
    if left_over:
        raise UsageError(f"unexpected argument {left_over[0]!r}; every value belongs to a flag")
    return values, arguments


def _config_arguments(argv: list[str]) -> list[str]:
    """The flags of `--config FILE`, as arguments; flags given on the command line are left out."""
    path = None
    for i, argument in enumerate(argv):
        if argument == "--config" and i + 1 < len(argv):
            path = argv[i + 1]
        elif argument.startswith("--config="):
            path = argument.split("=", 1)[1]
    if path is None:
        return []
    try:
        config = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--config {path} cannot be read as JSON ({error})") from None
    if not isinstance(config, dict):
        raise UsageError(f"--config {path} must hold a JSON object of flags")
    given = {a.split("=", 1)[0].replace("-", "_") for a in argv if a.startswith("--")}
    arguments: list[str] = []
    for key, value in config.items():
        name = "--" + str(key)
        if name.replace("-", "_") in given or value is None or value is False:
            continue
        if value is True:
            arguments.append(name)
        else:
            listed = value if isinstance(value, list) else [value]
            arguments += [f"{name}={item}" for item in listed]
    return arguments
