"""What can be known to be wrong before a budget moves or a worker starts.

A check is a name and a function that yields what it found, and raises what the run itself would
raise. Every run does all of them first, `--dry-run` and `beam-ldp check` show them.

Of the input they read what `inputs.heads` reads, so they take as long for 10 GB as for 10 kB. The
rows at the head go through the very stage that workers run: what is a number, an id or a value of
the list is decided in one place. A check writes nothing, and asks a ledger without reserving. What
it found is for whoever starts the run: it quotes no value, and nothing of it enters a record.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.questions.base import Rows
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release import outputs, reserving
from beam_ldp.release.beam_job import workers_elsewhere
from beam_ldp.release.gates import BadRows, NothingReleasedError, weak_warnings
from beam_ldp.release.inputs.previews import Head, check_id_types, no_column, read_heads
from beam_ldp.release.inputs.sources import InputFileError, RowReader
from beam_ldp.release.run import Run
from beam_ldp.release.terminal import printable, printed_json
from beam_ldp.release.worker_results import bad_row_lines
from beam_ldp.settings import SettingError
from beam_ldp.transforms.elements.blocks import BadRowBlock, ValueBlock
from beam_ldp.transforms.servers import NoServerError, check_servers
from beam_ldp.wording import many, number, promise

Status = Literal["ok", "warning", "refused"]
REFUSALS = (SettingError, outputs.OutputError, NothingReleasedError)

_ANSWER_SECONDS = 2.0


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        check: its name.
        status: whether a run goes on as it is asked for.
        said: what was found, and what to do.
        refusal: what a run would raise.
    """

    check: str
    status: Status
    said: str
    refusal: Exception | None = None


@dataclass(frozen=True)
class Preflight:
    """What would run, as its program tells it.

    Attributes:
        settings: the checked flags.
        wanted: the columns that are read, each with the flag that names it.
        reader: of the input, as in the workers; None where no columns are read.
        stage: what workers make of its rows first; its `in_hand` does the same here. None where
            that is not looked at.
        unlisted: of values as the stage gives them, the columns none of whose values is listed.
        needed: groups without each of which nothing is released, in the order of the list.
        lists: what a plan says of the public lists.
        local_epsilon, epsilon: the expected privacy cost; None: there is none, or not yet.
        weak: what is said of a mechanism that by itself hides hardly anything.
        ask: the ledger, whether it would grant the worst case.
        beam_flags: all flags, for Beam.
        is_new: whether the output must not be there yet, or be one that is replaced.
        is_logged: whether such a run is one of MLflow's, too.
    """

    settings: Any
    wanted: dict[str, str] = field(default_factory=dict)
    reader: RowReader | None = None
    stage: Any = None
    unlisted: Callable[[Any], tuple[str, ...]] = lambda values: ()
    needed: Sequence[str] = ()
    lists: Rows = field(default_factory=list)
    local_epsilon: float | None = None
    epsilon: float | None = None
    weak: tuple[str, ...] = ()
    ask: Callable[[], str] | None = None
    beam_flags: Sequence[str] = ()
    is_new: bool = True
    is_logged: bool = True

    @classmethod
    def of(cls, run: Run, beam_flags: Sequence[str]) -> Preflight:
        """What a run tells. Raises SettingError."""
        job, choice, wanted = run.job, run.choice, run.wanted
        groups = job.people.groups

        def ask() -> str:
            uncharged = run.uncharged()
            if uncharged is not None:
                return str(uncharged.facts["charged"])
            return reserving.would_grant(
                job,
                run.worst_price,
                identity=run.identity if run.memoized else None,
                count=job.charge.windows,
                one_round=isinstance(choice.mechanism, LocalRandomizer) and not job.told_once,
            )

        return cls(
            job,
            wanted,
            run.table.reader if wanted else None,
            run.encoder() if wanted else None,
            run.asked.unlisted,
            groups.values if run.asked.only_listed and isinstance(groups, Domain) else (),
            run.inputs(),
            None if choice.price is None else choice.mechanism.local_epsilon,
            None if choice.price is None else float(choice.price.bound),  # type: ignore[arg-type]
            weak_warnings(choice.mechanism, job),
            ask,
            beam_flags,
        )

    @cached_property
    def heads(self) -> list[Head]:
        """Of the input; none where no columns are read, or no file is there yet."""
        if self.reader is None or not self.settings.files:
            return []
        try:
            return read_heads(self.settings.files, self.reader)
        except InputFileError as error:
            raise SettingError(f"--input {error}") from None


Found = Iterator[tuple[Status, str]]


def _input(job: Preflight) -> Found:
    settings, heads = job.settings, job.heads
    if job.reader is None and not settings.files:
        return
    if not heads:
        yield "ok", f"{many(settings.num_files, 'file')}, {settings.source.format}"
        return
    if len(heads) == settings.num_files and not any(head.num_rows for head in heads):
        raise SettingError(f"--input {heads[0].path}: there are no rows in it" + _others(heads))
    looked = "" if len(heads) == settings.num_files else f"; {len(heads)} of them were looked at"
    yield (
        "ok",
        (
            f"{many(settings.num_files, 'file')}, {settings.input_bytes:,} bytes, "
            f"{settings.source.format}{looked}"
        ),
    )


def _others(heads: Sequence[Head]) -> str:
    return "" if len(heads) == 1 else f", nor in the other {many(len(heads) - 1, 'file')}"


def _columns(job: Preflight) -> Found:
    assert job.reader is not None or not job.heads
    delimiter = job.reader.delimiter if job.reader and job.reader.input_format == "csv" else ""
    for i, head in enumerate(job.heads):
        names = head.names
        if not names and not head.num_rows:
            continue  # an empty file says nothing
        where = head.path if i else "the first input"
        for name, flag in job.wanted.items():
            if name not in names:
                raise no_column(flag, name, names, where, delimiter)
            if names.count(name) > 1:
                raise SettingError(
                    f"{flag} {name}: {where} has {names.count(name)} columns of that name, and "
                    "nothing says which is meant: rename all but that one"
                )
    if job.heads:
        yield "ok", f"{many(len(job.wanted), 'column')} in {many(len(job.heads), 'file')}"


_CLEAR = 0.1  # of the rows of a head that is not all: so many are no accident of where it ends


def _rows(job: Preflight) -> Found:
    check_id_types(job.heads, job.settings.people.id)
    if job.stage is None or not job.heads:
        return
    kinds: dict[bool, str] = {}
    unlisted: list[tuple[str, ...]] = []
    values: list[np.ndarray] = []
    there = set[int]()
    lines, num_good, faulty = b"", 0, list[str]()
    for head in job.heads:
        good, bad = _through(job.stage, head)
        lines += bad
        faulty += [head.path] * bool(BadRows.of(bad).unreadable)
        num_good += sum(map(len, good))
        unlisted += [job.unlisted(block.values) for block in good]
        values += [block.values for block in good]
        there.update(i for one in good if one.groups is not None for i in one.groups.tolist())
        _note_kind(job, head, good, kinds)
    bad_rows, most = BadRows.of(lines), job.settings.source.max_bad_rows
    looked = num_good + bad_rows.reasons.total()
    whole = len(job.heads) == job.settings.num_files and all(h.whole for h in job.heads)
    whole = whole and looked == sum(head.num_rows for head in job.heads)
    said = bad_rows.too_many(looked, most)
    if said and not bad_rows.undecodable:
        said = f"of the first rows of {faulty[0]} {said}"
    if said and not job.settings.bad_rows_leave_a_trace and num_good:
        said = said if bad_rows.undecodable else ""  # what else is hidden is wanted
    if said and (whole or not num_good or bad_rows.too_many(looked, most, _CLEAR)):
        first = bad_rows.unreadable.most_common(1)[0][0]
        raise SettingError(f"{_flags_of(job, first)}: {said}")
    missing = [group for i, group in enumerate(job.needed) if i not in there]
    if missing and whole:
        raise SettingError(
            f"{_flags_of(job, 'no group')}: of {many(looked, 'row')} none can be used for "
            f"{', '.join(missing[:5])}{', …' * (len(missing) > 5)}, without which nothing is "
            f"released{bad_rows.most_often}"
        )
    if said:
        yield "warning", f"{said}; where as many are among all rows, nothing is released"
    elif bad_rows.reasons.total() > num_good:
        said = f"of the first {many(looked, 'row')} most hold no value{bad_rows.most_often}"
        yield "warning", said
    for column in set(unlisted[0]).intersection(*unlisted[1:]) if unlisted else ():
        yield (
            "warning",
            f"none of the first values of column {column} is in its list or bins: every row would "
            "count as `other`",
        )
    for doubt in job.stage.encoder.doubts(values):
        yield "warning", doubt
    if not said:
        yield "ok", "the first rows can be read as what they are taken for"


def _through(stage: Any, head: Head) -> tuple[list[ValueBlock], bytes]:
    """What workers would make of the rows of a head: those that can be used, and of the others
    lines of bad_rows.jsonl."""
    good, bad = list[ValueBlock](), [*head.bad]
    for found in stage.in_hand(head.blocks):
        (bad if isinstance(found, BadRowBlock) else good).append(found)
    return good, "".join(f"{line}\n" for one in bad for line in bad_row_lines(one)).encode()


def _flags_of(job: Preflight, reason: str) -> str:
    """The flag that named the column, for a reason."""
    people = job.settings.people
    if "user id" in reason:
        return f"--user-id {people.id}"
    if reason in ("no group", "group that is not listed"):
        return f"{job.wanted[str(people.group_by)]} {people.group_by}"
    columns = [name for name in job.wanted if name not in (people.id, people.group_by)]
    if not columns or job.settings.source.format == "text":
        return "--input"
    shown = ", ".join(columns[:3]) + (", …" if len(columns) > 3 else "")
    return f"{job.wanted[columns[0]]} {shown}"


def _note_kind(
    job: Preflight, head: Head, good: Sequence[ValueBlock], kinds: dict[bool, str]
) -> None:
    """A SettingError where one file has integers as ids, and another one none."""
    if job.settings.people.id is None or not good:
        return
    whole = {part.user_ids.dtype.kind != "O" for b in good for part in b.by_kind()}  # type: ignore
    if len(whole) != 1:
        return
    (kind,) = whole
    other = kinds.get(not kind)
    if other is not None:
        one, two = (head.path, other) if kind else (other, head.path)
        raise SettingError(
            f"--user-id {job.settings.people.id}: the ids of {one} are integers, those of {two} "
            "are text that spells none: whoever is in both would count as two people. Write ids "
            "in one way in all files"
        )
    kinds.setdefault(kind, head.path)


def _lists(job: Preflight) -> Found:
    for heading, said in job.lists:
        yield "ok", f"{heading}: {said}"


def _privacy(job: Preflight) -> Found:
    settings, local = job.settings, job.local_epsilon
    if settings.noise.seed is not None:
        yield "warning", "a simulation with a seed: no privacy guarantee"
        return
    if local is None:
        return
    said = f"local epsilon {promise(local)}"
    central = settings.trusts_the_shuffler or math.isinf(local)
    if job.epsilon is not None and central:
        said += f", epsilon {number(job.epsilon)} at delta = {settings.privacy.delta:g}"
    yield "ok", said
    for warning in job.weak:
        yield "warning", warning


def _output(job: Preflight) -> Found:
    told = job.settings.output
    if not told.folder:  # as a dry run of a training may have it
        return
    folder = outputs.OutputFolder(told.folder, told.overwrite, checked=job.is_new)
    outputs.bad_rows_path(folder.path, told.bad_rows_file)
    noise = job.settings.noise
    fresh = not (noise.simulated or noise.memoized) and job.is_new
    if fresh and folder.replaces and reserving.ledger_url(job.settings) is None:
        yield (
            "warning",
            f"--overwrite replaces {folder.path}, and without a ledger nobody adds up: whoever saw "
            "the earlier release sees both, at the sum of their privacy costs",
        )
    if not outputs.is_local(folder.path):
        yield "ok", folder.path
        return
    place = os.path.realpath(folder.path)
    for path in job.settings.files:
        if path == place or path.startswith(place + os.sep):
            raise outputs.OutputError(f"--output {folder.path} holds the --input {path}")
    above = Path(folder.path).parent
    while not above.exists():
        above = above.parent
    why = "must not write into" if above.is_dir() else "finds no folder at"
    if not (above.is_dir() and os.access(above, os.W_OK | os.X_OK)):
        raise outputs.OutputError(
            f"--output {folder.path} cannot be written: this user {why} {above}"
        )
    yield "ok", folder.path


def _budget(job: Preflight) -> Found:
    if job.ask is not None:
        yield "ok", job.ask()


def _workers(job: Preflight) -> Found:
    try:
        check_servers(PipelineOptions([*job.beam_flags]))
    except NoServerError as error:
        raise SettingError(str(error)) from None
    where = workers_elsewhere(job.beam_flags)
    if where is None:
        yield "ok", "on this machine"
        return
    settings = job.settings
    flags = {
        "--input": settings.source.paths,
        "--domain": getattr(settings.question, "domains", ()),
        "--groups": (settings.people.groups,),
        "--memoize-key-file": (settings.noise.key_file,),
        "--output": (settings.output.folder,),
    }
    local = [
        flag for flag, paths in flags.items()
        if any(path is not None and outputs.is_local(str(path)) for path in paths)
    ]  # fmt: skip
    if local and where == "DataflowRunner":
        raise SettingError(
            f"{local[0]} names a path of this machine, which the workers of {where} cannot reach: "
            "use an object store (gs://...)"
        )
    if local:
        yield (
            "warning",
            (
                f"the workers of {where} may be other machines: what {', '.join(local)} name must "
                "be under the same path on each of them (a shared folder), or in an object store"
            ),
        )
    else:
        yield "ok", f"the workers of {where} read from object stores"


def _mlflow(job: Preflight) -> Found:
    told = job.settings.output
    if not job.is_logged:
        yield "ok", "the run is not logged: what is collected of it is"
        return
    if told.no_mlflow or importlib.util.find_spec("mlflow") is None:
        why = "--no-mlflow" if told.no_mlflow else "MLflow is not installed"
        yield "ok", f"the run is not logged: {why}"
        return
    stores = {  # in the order in which a run looks for one
        "the store of --mlflow-uri": lambda: told.mlflow_uri,
        "the store that the ledger names": lambda: reserving.store_of_ledger(job.settings),
        "the store of MLFLOW_TRACKING_URI": lambda: os.environ.get("MLFLOW_TRACKING_URI"),
    }
    found = ((name, uri) for name, look_up in stores.items() if (uri := look_up()))
    name, uri = next(found, ("a store in the output", ""))
    away = _why_away(uri)
    if away:
        yield "warning", f"{name} {away}: the run would not be logged"
    else:
        yield "ok", name


def _why_away(uri: str) -> str:
    """Why MLflow's store cannot be reached; "" where nothing says so. Opens no store."""
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            with socket.create_connection((parts.hostname or "", port), timeout=_ANSWER_SECONDS):
                return ""
        except OSError as error:
            return f"does not answer ({type(error).__name__})"
    if parts.scheme == "sqlite":
        folder = Path(uri.removeprefix("sqlite:///")).absolute().parent
        return "" if folder.is_dir() else "lies in a folder that does not exist"
    return ""


Check = Callable[[Preflight], Found]
CHECKS: dict[str, Check] = {  # what the ledger refuses is told before the input is opened
    "budget": _budget,
    "input": _input,
    "columns": _columns,
    "rows": _rows,
    "lists": _lists,
    "privacy": _privacy,
    "output": _output,
    "workers": _workers,
    "mlflow": _mlflow,
}


def findings(job: Preflight) -> Iterator[Finding]:
    """All checks, one after the other; where one is refused the others still look."""
    told = set()
    for name, check in CHECKS.items():
        try:
            for status, said in check(job):
                yield Finding(name, status, said)
        except REFUSALS as error:
            if str(error) not in told:  # the input that cannot be read is refused once
                yield Finding(name, "refused", str(error), error)
            told.add(str(error))


def check_first(job: Preflight, console: Console) -> None:
    """What every run does first.

    Raises:
        SettingError, OutputError, NothingReleasedError: for the first check that is not passed.
    """
    for name, check in CHECKS.items():
        for status, said in check(job):
            if status == "warning" and name != "privacy":  # which the release says
                console.print(f"[yellow]warning:[/yellow] {escape(said)}", soft_wrap=True)


_COLOURS = {"ok": "green", "warning": "yellow", "refused": "bold red"}


def findings_table(found: Sequence[Finding], title: str = "Checks") -> Table:
    """One line per finding."""
    table = Table("check", "", "found, or what to do", title=title, title_justify="left")
    last = ""
    for finding in found:
        colour, name = _COLOURS[finding.status], "" if finding.check == last else finding.check
        status = f"[{colour}]{finding.status}[/{colour}]"
        table.add_row(name, status, escape(printable(finding.said)))
        last = finding.check
    return table


def say_checks(job: Preflight, form: str, plan: dict[str, Any] | None = None) -> None:
    """What `--dry-run` prints of the checks, on stdout. Raises what a run would.

    Args:
        job: what would run.
        form: "table" or "json".
        plan: what the object holds besides, where it is one.
    """
    found = list(findings(job))
    if form == "json":
        first = plan or {"schema_version": outputs.SCHEMA_VERSION, "dry_run": True}
        print(printed_json({**first, "checks": findings_as_json(found)}))
    else:
        Console().print(findings_table(found))
    refused = next((one.refusal for one in found if one.refusal is not None), None)
    if refused is not None:
        raise refused


def findings_as_json(found: Sequence[Finding]) -> list[dict[str, str]]:
    """The same for programs."""
    return [{"check": f.check, "status": f.status, "said": f.said} for f in found]
