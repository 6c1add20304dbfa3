"""Releases from Python: `beam_ldp.frequencies` and the like, the commands on a table or a file.

Nothing is done twice here: a table becomes an input, keyword arguments become settings, and the
release runs in this process. So it has the same identity, privacy cost, charge and statement
as one of the command line, and what would be refused there is refused here.
"""

from __future__ import annotations

import inspect
import io
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

import pyarrow as pa
from rich.console import Console

from beam_ldp.fast_start import remember_signatures
from beam_ldp.questions.base import View
from beam_ldp.randomizers.domain import Domain, written
from beam_ldp.release import runner
from beam_ldp.release.binding import bound
from beam_ldp.release.commands import usage_of
from beam_ldp.release.gates import NothingReleasedError, NotPublishedError
from beam_ldp.release.inputs.tables import PATH, arrow_table, held
from beam_ldp.release.job import kind_of
from beam_ldp.release.job_monitor import JobError
from beam_ldp.release.outputs import FINISHED, OutputError
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.release.statement import statement
from beam_ldp.release.tables import price_table
from beam_ldp.settings import SettingError
from beam_ldp.settings.fields import Setting, nearest, read_setting
from beam_ldp.settings.job import LEDGER_VARIABLE
from beam_ldp.settings.usage import Arguments, Usage

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Unpack

    from mlflow_ldp import LoggedRun

_NEEDED = (  # beside what the question itself needs: one of each line that its command knows
    ("question.domain", "question.bins"),
    ("question.radius", "question.range", "question.ranges", "question.norm"),
    ("privacy.epsilon", "privacy.local_epsilon"),
    ("privacy.expected_users", "shuffle.min_reports"),
)
# Flags without an argument here.
_REFUSED = ("publish", "dry-run", "print-job")
_WIDTH = 100  # characters


@dataclass(frozen=True, repr=False)
class Released:
    """What was released: estimates with error bars, and what they cost.

    Attributes:
        view: the estimates, as the command shows them.
        privacy: the privacy record: mechanism, epsilons, counts, identity, charge.
        plan: one line about what ran, and the error that was expected.
        output: folder with the same as files; None if none was asked for.
        logged: the run in MLflow, if there is one.
    """

    view: View
    privacy: PrivacyRecord
    plan: str
    output: str | None
    logged: LoggedRun | None

    @property
    def statement(self) -> str:
        """Who is protected against whom, in plain words (Markdown)."""
        return statement(self.privacy.told())

    def to_arrow(self) -> pa.Table:
        """All estimates with 95 % intervals, a row for each: the table of `estimates.parquet`."""
        return self.view.table()

    def to_pandas(self) -> Any:
        """The same as a data frame of pandas, which must be installed."""
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The same for whatever takes Arrow: `polars.DataFrame(released)`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def plot(self) -> Figure:
        """The picture of the release, as a figure of Matplotlib."""
        return self.view.figure(runner.price_line(self.privacy))

    def __repr__(self) -> str:
        console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, force_jupyter=False)
        return self._shown(console).file.getvalue().rstrip()  # type: ignore[attr-defined]

    def _repr_html_(self) -> str:
        console = Console(file=io.StringIO(), width=_WIDTH, record=True, force_jupyter=False)
        form = '<pre style="line-height: normal">{code}</pre>'
        return self._shown(console).export_html(inline_styles=True, code_format=form)

    def _shown(self, console: Console) -> Console:
        self.view.show(console)
        console.print(price_table(self.privacy))
        return console


# Keyword arguments: every setting of the command, by the name of its flag -----------------------

Path_ = str | os.PathLike[str]


class Everywhere(TypedDict, total=False):
    """What every release may be told (`beam-ldp frequency --help-all` says what each means)."""

    user_id: str | None
    local_epsilon: float | None
    max_local_epsilon: float | None
    trust_shuffler: bool
    delta: float | None
    expected_users: float | None
    honest_fraction: float
    min_reports: float | None
    dataset: str | None
    release_id: str | None
    memoize_key_file: Path_ | None
    frozen_values: bool
    seed: int | None
    interaction_log: Path_ | None
    interaction_key_file: Path_ | None
    ledger: str | None
    no_ledger: bool
    privacy_unit: str
    run_id: str | None
    quota: str | None
    budget_windows: int | None
    people_store: Path_ | None
    people_key_file: Path_ | None
    input_format: Literal["auto", "parquet", "csv", "jsonl", "text"]
    csv_delimiter: str | None
    max_bad_rows: float | None
    bad_rows: str
    bad_rows_file: Path_ | None
    overwrite: bool
    top: int
    mlflow_uri: str | None
    mlflow_experiment: str
    no_mlflow: bool
    job_timeout: float | str | None


class _ForTargets(Everywhere, total=False):
    epsilon: float | None
    allow_over_target: bool
    shuffle_output: Literal["statistic", "reports"]
    scope: Literal["batch", "global"]


class _Grouped(TypedDict, total=False):
    group_by: str | None
    groups: Any


class _InGroups(_ForTargets, _Grouped, total=False):
    one_row_per_person: bool
    mechanism: str
    max_bits: int | None


class OfFrequencies(_InGroups, total=False):
    """What `frequencies` may be told."""

    other_label: str
    bins: str | Sequence[float] | None
    quantiles: str | Sequence[float] | None
    between: Any
    fan_out: int | None
    design: Literal["auto", "one", "all"]
    postprocess: Literal["none", "clip", "norm-sub"]
    random_bits: float | None
    staged: Path_ | None


class _OfNumbers(TypedDict, total=False):
    radius: float | None
    dimension: int | None
    shape: str | None
    model: Literal["shuffle", "local"]


class OfMeans(_InGroups, _OfNumbers, total=False):
    """What `means` may be told."""

    norm: str | float
    one_row_each: bool
    outside: Literal["clip", "raise"]
    messages: int | None


class OfUserMeans(_ForTargets, _Grouped, _OfNumbers, total=False):
    """What `user_means` may be told."""

    rows_per_user: int | None
    sigma: Any
    user_sigma: Any
    outliers: float
    failure_probability: float
    split: str


class OfHeavyHitters(Everywhere, _Grouped, total=False):
    """What `heavy_hitters` may be told."""

    one_row_per_person: bool
    max_bytes: int
    code_bits: int | None
    false_words: float
    failure_probability: float
    assignment: str


_Door = TypeVar("_Door", bound=Callable[..., Released])


def _spelled(settings: type) -> Callable[[_Door], _Door]:
    """The function with its keyword arguments one by one, for those who ask what it takes."""

    def spelled(door: _Door) -> _Door:
        own = inspect.signature(door)
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in settings.__annotations__.items()
        ]
        named = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
        door.__signature__ = own.replace(parameters=[*named, *more])  # type: ignore[attr-defined]
        return door

    return spelled


@_spelled(OfFrequencies)
def frequencies(
    data: Any,
    column: str | Sequence[str] = (),
    domain: Any = (),
    *,
    output: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    **settings: Unpack[OfFrequencies],
) -> Released:
    """How often each value of a public list occurs among people, under local privacy.

    The command `beam-ldp frequency` in this process: each person's value is randomized before it is
    counted, by the most accurate mechanism at this privacy cost. Every person's value is protected
    with the local epsilon against everybody who sees reports, and with the central epsilon against
    whoever sees the result; that somebody took part is not hidden. Whoever runs this sees the data.

    Args:
        data: a table (pandas, Polars, Arrow, a mapping of columns), or a path, a glob or several
            of them, on any file system that Beam knows. Tables stay in memory.
        column: with the value; several ask several questions.
        domain: the public list: values, a `Domain`, or the path of a file. With several columns
            a mapping of column to list, or one list for all.
        output: folder to write, as the command does. With a ledger it lets `beam-ldp finalize` go
            on where this process is lost; without it nothing stays on disk.
        quiet: print neither plan, progress nor warnings.
        settings: every flag of the command as a keyword, with underscores: see `OfFrequencies`,
            and `beam-ldp frequency --help-all`. None is not given.

    Raises:
        ValueError: naming the argument and what is allowed; nothing was read or charged.
        TypeError: for a keyword that is none, or data that is no table.
        NothingReleasedError: if a gate or the budget refuses the release
            (`beam_ldp.release.gates`).
        JobError: if the job fails (`beam_ldp.release.job_monitor`).

    >>> people = {"uid": list(range(3000)), "answer": ["yes", "no", "no"] * 1000}
    >>> released = frequencies(
    ...     people, "answer", ["yes", "no"], user_id="uid", local_epsilon=4.0, delta=1e-6,
    ...     expected_users=3000, no_ledger=True, quiet=True,
    ... )
    >>> released.privacy.num_reports, released.to_arrow().column("value").to_pylist()
    (3000, ['yes', 'no', 'other'])
    """
    told = of_python({"column": column, **settings})
    if isinstance(domain, Domain):
        told.setdefault("other_label", domain.other)
    lists_told = {"domain": of_python(domain), "groups": told.get("groups")}
    with _lists(lists_told, told) as lists:
        return _release(usage_of("frequency"), data, told | lists, output, quiet)


@_spelled(OfMeans)
def means(
    data: Any,
    columns: str | Sequence[str] = (),
    *,
    ranges: Any = None,
    output: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    **settings: Unpack[OfMeans],
) -> Released:
    """The mean of people's numbers, or of their vectors, under local privacy.

    The command `beam-ldp mean` in this process. Whom it protects, `data`, `output`, `quiet` and
    errors: as in `frequencies`. Numbers outside the bounds are clipped on the device.

    Args:
        data: as in `frequencies`.
        columns: of numbers, one for each coordinate; or a single column of lists.
        ranges: public ranges: `(low, high)` for all columns, or a mapping of column to
            `(low, high)`. Instead of it, `norm` and `radius` bound whole vectors.
        output, quiet: as in `frequencies`.
        settings: every flag of the command as a keyword, with underscores: see `OfMeans`, and
            `beam-ldp mean --help-all`.

    >>> people = {"uid": list(range(3000)), "age": [30, 40, 50] * 1000}
    >>> released = means(
    ...     people, "age", ranges=(18, 98), user_id="uid", local_epsilon=4.0, delta=1e-6,
    ...     expected_users=3000, no_ledger=True, quiet=True,
    ... )
    >>> bool(30 < released.to_arrow().column("mean")[0].as_py() < 50)
    True
    """
    told = _in_ranges({"column": columns, **settings}, ranges)
    with _lists({"groups": told.get("groups")}, told) as lists:
        return _release(usage_of("mean"), data, told | lists, output, quiet)


@_spelled(OfUserMeans)
def user_means(
    data: Any,
    columns: str | Sequence[str] = (),
    *,
    ranges: Any = None,
    output: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    **settings: Unpack[OfUserMeans],
) -> Released:
    """The mean of people's numbers where each person has many rows, all of which are protected.

    The command `beam-ldp user-mean` in this process. Whom it protects, `data`, `output`, `quiet`
    and errors: as in `frequencies`.

    Args:
        data, columns, ranges: as in `means`.
        output, quiet: as in `frequencies`.
        settings: every flag of the command as a keyword, with underscores: see `OfUserMeans`, and
            `beam-ldp user-mean --help-all`. `user_id` is needed.
    """
    told = _in_ranges({"column": columns, **settings}, ranges)
    with _lists({"groups": told.get("groups")}, told) as lists:
        return _release(usage_of("user_mean"), data, told | lists, output, quiet)


@_spelled(OfHeavyHitters)
def heavy_hitters(
    data: Any,
    column: str = "",
    *,
    output: str | os.PathLike[str] | None = None,
    quiet: bool = False,
    **settings: Unpack[OfHeavyHitters],
) -> Released:
    """Which words many people hold, where nobody listed them, under local privacy.

    The command `beam-ldp heavy-hitters` in this process. Whom it protects, `data`, `output`,
    `quiet` and errors: as in `frequencies`.

    Args:
        data: as in `frequencies`.
        column: with the word.
        output, quiet: as in `frequencies`.
        settings: every flag of the command as a keyword, with underscores: see `OfHeavyHitters`,
            and `beam-ldp heavy-hitters --help-all`.
    """
    told = of_python({"column": column, **settings})
    with _lists({"groups": told.get("groups")}, told) as lists:
        return _release(usage_of("heavy_hitters"), data, told | lists, output, quiet)


def _in_ranges(told: Mapping[str, Any], ranges: Any) -> dict[str, Any]:
    """The arguments, with public ranges as the flag that says them: one for all, or by column."""
    told, ranges = dict(of_python(told)), of_python(ranges)
    if ranges is None:
        return told
    one = not isinstance(ranges, str | os.PathLike | Mapping)
    return {**told, "range" if one else "ranges": ranges}


def _release(
    usage: Usage,
    data: Any,
    told: dict[str, Any],
    output: str | os.PathLike[str] | None,
    quiet: bool,
) -> Released:
    remember_signatures()  # a third of the time of a small job
    console = Console(file=io.StringIO()) if quiet else Console(stderr=True)
    with _in_words_of_python(usage), _input(data, told) as paths, _folder(output) as folder:
        given = arguments(usage, {**told, "input": paths, "output": folder})
        _check_missing(usage, given)
        run = bound(usage, _logged_somewhere(given, output is not None))
        result = runner.execute(run, [], console)
    assert result is not None  # which only a dry run has not
    kept = result.output if output is not None else None
    return Released(result.view, result.record, runner.plan_line(run), kept, result.logged)


def _check_missing(usage: Usage, given: Arguments) -> None:
    """A SettingError that tells all that is missing; of a single setting the rules say it."""
    needed = dict.fromkeys([*((name,) for name in kind_of(usage).needed(given)), *_NEEDED])
    missing = []
    for names in needed:
        places = [name.split(".") for name in names if usage.known_flag_of(name)]
        if places and all(given[home].get(name) in (None, "", ()) for home, name in places):
            missing.append(" or ".join(usage.flag_of(".".join(place)) for place in places))
    if given["privacy"].get("model") == "local":  # nobody hides in a crowd
        missing = [flags for flags in missing if "--expected-users" not in flags]
    if len(missing) > 1:
        raise SettingError(f"missing: {', '.join(missing)}")


def arguments(usage: Usage, told: Mapping[str, Any]) -> Arguments:
    """Keyword arguments as what a program is told.

    Args:
        usage: of the program.
        told: by the names of flags, with underscores; None is not given.

    Raises:
        TypeError: for a name that is none.
        SettingError: for a value that does not fit.
    """
    known = {
        about.flag.replace("-", "_"): (part.home, name, about)
        for part, name, about in usage
        if part.home != "stream" and about.flag not in _REFUSED
    }
    found: dict[str, dict[str, Any]] = {}
    for argument, value in told.items():
        if argument not in known:
            raise TypeError(f"unknown argument {argument}{nearest(argument, _arguments(usage))}")
        home, name, about = known[argument]
        if value is None or value is False or value in ((), []):
            continue
        try:
            read = read_setting(f"{home}.{name}", about, _plain(about, value))
        except SettingError as error:
            raise SettingError(error.said(usage.flag_of)) from None
        found.setdefault(home, {})[name] = read
    return Arguments(found, [])


def of_python(value: Any) -> Any:
    """Numbers, arrays, columns and indexes of NumPy and pandas as Python's own, also inside."""
    if isinstance(value, Mapping):
        return {name: of_python(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(of_python, value)) if type(value) in (list, tuple) else value
    return value.tolist() if hasattr(value, "tolist") else value


def _arguments(usage: Usage) -> list[str]:
    """Those that are offered."""
    others = (*_REFUSED, "input", "format")
    offered = (about.flag for part, _, about in usage if part.home != "stream")
    return [flag.replace("-", "_") for flag in offered if flag not in others]


def _plain(about: Setting, value: Any) -> Any:
    """A value as flags spell it: paths as text, edges and quantiles with commas, ranges `a:b`."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, str | Mapping | bool) or not isinstance(value, Sequence):
        return value
    if about.flag == "between":
        one = len(value) == 2 and not isinstance(value[0], str | Sequence)
        return [_joined(pair, ":") for pair in ([value] if one else value)]
    if about.flag in ("bins", "quantiles"):
        return _joined(value, ",")
    return [_plain(about, one) for one in value] if about.many else tuple(value)


def _joined(value: Any, mark: str) -> str:
    return value if isinstance(value, str) else mark.join(f"{float(one):.17g}" for one in value)


@contextmanager
def _input(data: Any, told: Mapping[str, Any]) -> Iterator[list[str]]:
    """Where the data are: paths as they are given, or that of the table."""
    paths = [data] if isinstance(data, str | os.PathLike) else data
    if isinstance(paths, list | tuple) and all(isinstance(p, str | os.PathLike) for p in paths):
        yield [os.fspath(path) for path in paths]
        return
    named = [told.get("column"), told.get("user_id"), told.get("group_by")]
    wanted = [one for name in named if name for one in ([name] if isinstance(name, str) else name)]
    with held(arrow_table(data), wanted) as path:
        yield [path]


@contextmanager
def _folder(output: str | os.PathLike[str] | None) -> Iterator[str]:
    """Where files are written: the caller's folder, or one that is gone afterwards."""
    if output is not None:
        yield os.fspath(output)
        return
    scratch = tempfile.mkdtemp(prefix="beam-ldp-")
    kept = False
    try:
        yield f"{scratch}/released"
    except NotPublishedError:  # what is finished may be settled and published later
        kept = any(FINISHED in path.name for path in Path(scratch).iterdir())
        raise
    finally:
        if not kept:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _lists(lists: Mapping[str, Any], told: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Public lists as files, which the programs read; those that are files stay as they are."""
    with tempfile.TemporaryDirectory(prefix="beam-ldp-lists-") as folder:
        found: dict[str, Any] = {}
        for argument, given in lists.items():
            if isinstance(given, Mapping):
                columns = told["column"]
                columns = [columns] if isinstance(columns, str) else list(columns)
                if set(given) != set(columns):
                    raise ValueError(f"{argument} must have a list for each column, and no other")
                found[argument] = [
                    _list(argument, given[name], Path(folder) / f"{argument}-{i}.txt")
                    for i, name in enumerate(columns)
                ]
            elif given is not None and given != ():
                found[argument] = _list(argument, given, Path(folder) / f"{argument}.txt")
        yield found


def _list(argument: str, given: Any, path: Path) -> str:
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    values = given.values if isinstance(given, Domain) else written(given, argument)
    lines = "\n".join(values).encode()
    if not all(values) or any(sign in value for value in values for sign in "\r\n\ufeff"):
        raise ValueError(f"{argument} must hold values that are not empty, without line breaks")
    if len(set(values)) < len(values):
        raise ValueError(f"{argument} must hold distinct values")
    path.write_bytes(lines)
    return str(path)


def _logged_somewhere(given: Arguments, kept: bool) -> Arguments:
    """Without a folder that stays, a run is logged to MLflow only where somebody named a store."""
    output = given["output"]
    if kept or output.get("mlflow_uri") or os.environ.get("MLFLOW_TRACKING_URI"):
        return given
    ledger = None
    with suppress(Exception):  # which the run will say
        from beam_ldp.ledger import BudgetLedger

        url = given["release"].get("ledger") or os.environ.get(LEDGER_VARIABLE)
        ledger = None if given["release"].get("no_ledger") else BudgetLedger(url)
    if ledger is not None and ledger.mlflow_uri is not None:
        return given
    more = {"output": {**output, "no_mlflow": True}}
    return Arguments({**given.settings, **more}, given.beam_flags)


@contextmanager
def _in_words_of_python(usage: Usage) -> Iterator[None]:
    """What the program refuses, with arguments in place of flags."""
    names = {about.flag: about.flag.replace("-", "_") for _, _, about in usage}
    names["input"] = "data"
    try:
        yield
    except (SettingError, OutputError, NothingReleasedError, JobError) as error:
        said = error.said(usage.flag_of) if isinstance(error, SettingError) else str(error)
        said = re.sub(r"--([a-z][a-z-]*[a-z])", lambda f: names.get(f[1], f[0]), said)
        said = said.replace(f"data {PATH}", "data")
        if isinstance(error, SettingError):
            raise SettingError(said) from None
        error.args = (said,)
        raise
