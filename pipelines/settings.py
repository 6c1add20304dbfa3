"""The flags of a program after every check: what it really does."""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from beam_ldp.accounting.divergences.hockey_stick import MAX_REPORTS
from beam_ldp.pipelines.inputs.id_types import check_id_types
from beam_ldp.pipelines.inputs.sources import InputFileError, find_all_files, format_of
from beam_ldp.pipelines.options import UsageError

MIN_FRACTION = 0.9  # of the expected number of reports
LEDGER_VARIABLE = "BEAM_LDP_LEDGER"
UNNAMED = "unnamed"  # a data set of which nothing is charged or memoized needs no name
SHOWN = "dead-letter"  # bad rows are listed; every other choice leaves no trace of them


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to do, checked: every field is usable as it stands. Programs add fields of their own.

    Attributes: as the flags of the same names. `min_reports` and `dataset` have their defaults
    filled in; `input_bytes` and `num_files` say what was found in the launcher.
    """

    input: tuple[str, ...]
    input_format: str
    csv_delimiter: str
    user_id: str | None
    bad_rows: str
    max_bad_rows: int | None
    epsilon: float | None
    local_epsilon: float | None
    max_local_epsilon: float | None
    delta: float
    expected_users: int | None
    min_reports: int
    strict: bool
    honest_fraction: float
    mechanism: str
    max_bits: int | None
    shuffle_output: str
    scope: str
    memoize_key_file: str | None
    release_id: str | None
    seed: int | None
    ledger: str | None
    no_ledger: bool
    privacy_unit: str
    run_id: str | None
    output: str
    overwrite: bool
    dataset: str
    format: str
    only_plan: bool
    mlflow_uri: str | None
    mlflow_experiment: str
    no_mlflow: bool
    one_row_per_person: bool = False
    bad_rows_file: str | None = None
    people_store: str | None = None
    people_key_file: str | None = None
    frozen_values: bool = False
    quota: str = ""
    num_files: int = 0
    input_bytes: int = 0

    @property
    def bad_rows_leave_a_trace(self) -> bool:
        """Whether unusable rows are listed, rather than reported as something else."""
        return self.bad_rows == SHOWN

    @property
    def one_report_per(self) -> str:
        """Whose report is charged as one, as the ledger's rows say it."""
        if self.user_id is not None:
            return f"person, by column {self.user_id}"
        return "row, declared to be a person's" if self.one_row_per_person else "row"

    @property
    def rows_declared(self) -> Literal["row"] | None:
        """What composites are told where it is declared that nobody has two rows."""
        return "row" if self.one_row_per_person else None

    @property
    def trusts_the_shuffler(self) -> bool:
        """Whether a central price is stated at all."""
        return True

    @property
    def doing(self) -> str:
        """What is said while the job runs."""
        return "reading, randomizing and counting"

    @property
    def persons_unknown(self) -> str:
        """What is warned of where nothing says whose row it is."""
        if self.one_row_per_person:
            return "--one-row-per-person was declared, not checked: every row was counted as a "
            "person"
        return "no --user-id: every row was counted as a person"

    @property
    def declared_dataset(self) -> str:
        """The name of the people's data, as identities hold it; "" where none was declared."""
        return "" if self.dataset == UNNAMED else self.dataset

    @property
    def planned_reports(self) -> int:
        """Reports that plans and expected prices are about."""
        return self.expected_users or self.min_reports


S = TypeVar("S", bound=Settings)


def check_common(
    values: argparse.Namespace, kind: type[S], *, shuffled: bool = True, **own: Any
) -> S:
    """The flags, with the rules that hold for every program checked and every default filled in.

    Args:
        values: as parsed.
        kind: the program's settings.
        shuffled: whether there is a central price; without one `--epsilon` is the local promise.
        own: fields that the program has worked out itself; they win.

    Raises:
        UsageError: naming the flag and what is allowed.
    """
    need(values, "input", "output")
    if shuffled:
        need(values, "delta")
        _check_price(values)
    else:
        own = {**own, **_local_price(values)}
    _check_reports(values)
    _check_randomness(values)
    _check_people(values)
    _check_budget(values)
    try:
        files = find_all_files(values.input)
    except InputFileError as error:
        if not getattr(values, "stream", False):  # whose files are still to come
            raise UsageError(f"--input {error}") from None
        files = []
    if values.max_bad_rows is not None and values.max_bad_rows < 0:
        raise UsageError("--max-bad-rows must be >= 0")
    input_format = _input_format(values, files)
    if input_format == "parquet" and values.user_id is not None:
        check_id_types([path for path, _ in files], values.user_id)
    taken = {f.name: getattr(values, f.name) for f in fields(kind) if hasattr(values, f.name)}
    taken.update(
        input=tuple(values.input),
        input_format=input_format,
        csv_delimiter=_delimiter(values, files),
        min_reports=_min_reports(values),
        dataset=values.dataset or UNNAMED,
        num_files=len(files),
        input_bytes=sum(size for _, size in files),
    )
    return kind(**{**taken, **own})


def need(values: argparse.Namespace, *names: str) -> None:
    """A UsageError for the first of these flags that is not given."""
    for name in names:
        if getattr(values, name) in (None, "", []):
            raise UsageError(f"--{name.replace('_', '-')} is missing")


def _check_price(values: argparse.Namespace) -> None:
    if not 0 < values.delta < 1:
        raise UsageError(f"--delta must lie in (0, 1), got {values.delta}")
    if (values.epsilon is None) == (values.local_epsilon is None):
        raise UsageError("give one of --epsilon (central target) and --local-epsilon")
    grouped = getattr(values, "group_by", None) is not None  # then --min-reports says it
    if values.epsilon is not None and values.expected_users is None and not grouped:
        raise UsageError(
            "--epsilon needs --expected-users: the local noise that meets a central epsilon "
            "depends on the number of people"
        )
    if values.strict and values.epsilon is None:
        raise UsageError("--strict needs --epsilon, the target to enforce")
    if values.max_local_epsilon is not None and values.epsilon is None:
        raise UsageError(
            "--max-local-epsilon needs --epsilon: with --local-epsilon the local "
            "epsilon is already fixed"
        )
    if not 0 < values.honest_fraction <= 1:
        raise UsageError(f"--honest-fraction must lie in (0, 1], got {values.honest_fraction}")


def _local_price(values: argparse.Namespace) -> dict[str, Any]:
    """The price where only the device is trusted: one promise, which needs no delta."""
    if (values.epsilon is None) == (values.local_epsilon is None):
        raise UsageError(
            "give either --epsilon or --local-epsilon: with --model local they mean the same"
        )
    if values.strict or values.max_local_epsilon is not None:
        flag = "--strict" if values.strict else "--max-local-epsilon"
        raise UsageError(f"{flag} needs a central target, which --model local does not have")
    promised = values.local_epsilon if values.epsilon is None else values.epsilon
    return {"epsilon": None, "local_epsilon": promised, "delta": 0.0}


def _check_reports(values: argparse.Namespace) -> None:
    if values.expected_users is None and values.min_reports is None:
        raise UsageError(
            "give --expected-users or --min-reports: a release needs a smallest number of reports"
        )
    for flag, number in (
        ("--expected-users", values.expected_users),
        ("--min-reports", values.min_reports),
    ):
        if number is not None and not 1 <= number <= MAX_REPORTS:
            raise UsageError(f"{flag} must lie in [1, {MAX_REPORTS:.0e}]")


def _check_budget(values: argparse.Namespace) -> None:
    if values.budget_windows not in (None, 1) and not getattr(values, "stream", False):
        raise UsageError(
            "--budget-windows must be 1 here: this program reads its input to the end and releases "
            "once. It is for `frequency --stream` and for pipelines of your own (docs/ledger.md)"
        )
    if values.no_ledger and values.ledger:
        raise UsageError("--ledger and --no-ledger exclude each other")
    named = values.ledger or os.environ.get(LEDGER_VARIABLE)
    if named and not values.no_ledger and not values.dataset and values.seed is None:
        where = "--ledger" if values.ledger else LEDGER_VARIABLE
        raise UsageError(
            f"{where} names a ledger: --dataset must name the data set whose budget is charged (or "
            "give --no-ledger)"
        )
    if values.one_row_per_person and values.user_id is not None:
        raise UsageError(
            "--one-row-per-person and --user-id exclude each other: with --user-id, one row of "
            "each person is drawn anyway"
        )
    charged = named and not values.no_ledger and values.seed is None
    if charged and values.privacy_unit == "user" and not _rows_are_people(values):
        raise UsageError(
            "the budget protects people, and a person with ten rows would report ten times and be "
            "charged once: name the column of user ids with --user-id, or declare with "
            "--one-row-per-person that nobody has two rows"
        )


def _rows_are_people(values: argparse.Namespace) -> bool:
    return values.user_id is not None or values.one_row_per_person


def _check_people(values: argparse.Namespace) -> None:
    if (values.people_store is None) != (values.people_key_file is None):
        raise UsageError("--people-store and --people-key-file belong together")
    if values.people_store is None:
        return
    if values.user_id is None:
        raise UsageError("--people-store needs --user-id: it holds hashes of user ids")
    if values.people_key_file == values.memoize_key_file:
        raise UsageError(
            "--people-key-file must differ from --memoize-key-file, whose key is destroyed after "
            "its release"
        )
    if values.no_ledger or not (values.ledger or os.environ.get(LEDGER_VARIABLE)):
        raise UsageError(
            "--people-store needs --ledger, where each person's local epsilon is counted"
        )


def _check_randomness(values: argparse.Namespace) -> None:
    if values.memoize_key_file is not None:
        if values.user_id is None or values.release_id is None:
            raise UsageError("--memoize-key-file needs --user-id and --release-id")
        if not values.dataset:
            raise UsageError(
                "--memoize-key-file needs --dataset, the declared name of the data set: dataset, "
                "release id and question together identify the reports that repeat"
            )
        if values.seed is not None:
            raise UsageError("--memoize-key-file and --seed exclude each other")
    if getattr(values, "frozen_values", False) and values.memoize_key_file is None:
        raise UsageError(
            "--frozen-values needs --memoize-key-file: only memoized reports can be published a "
            "second time"
        )
    if values.seed is not None and values.seed < 0:
        raise UsageError("--seed must be >= 0")
    if values.max_bits is not None and values.max_bits < 1:
        raise UsageError("--max-bits must be >= 1")


def _input_format(values: argparse.Namespace, files: list[tuple[str, int]]) -> str:
    chosen = values.input_format
    if chosen == "auto":
        found = {format_of(path) for path, _ in files}
        if len(found) != 1 or None in found:
            raise UsageError(
                "--input-format must be given: the format (parquet, csv, jsonl, text) cannot be "
                "told from the file extensions"
            )
        chosen = found.pop()
    return str(chosen)


def _delimiter(values: argparse.Namespace, files: list[tuple[str, int]]) -> str:
    default = "\t" if files and files[0][0].lower().split(".gz")[0].endswith(".tsv") else ","
    delimiter = str(values.csv_delimiter or default)
    if len(delimiter) != 1 or delimiter in '"\r\n' or ord(delimiter) > 127:
        raise UsageError("--csv-delimiter must be one ASCII character other than a quote")
    return delimiter


def _min_reports(values: argparse.Namespace) -> int:
    if values.min_reports is not None:
        return int(values.min_reports)
    return max(1, math.ceil(MIN_FRACTION * values.expected_users))
