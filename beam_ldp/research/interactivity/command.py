"""`beam-ldp audit-interactivity`: who was asked what, from a log of records."""

from __future__ import annotations

import glob
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from beam_ldp.pipelines.flags import format_option
from beam_ldp.settings import SettingError

if TYPE_CHECKING:
    from rich.table import Table

    from beam_ldp.randomizers.wire import ReleaseTerms
    from beam_ldp.release.inputs.copies import Copies
    from beam_ldp.research.interactivity.auditing import InteractivityReport
    from beam_ldp.research.interactivity.sequential import SequentialPrice

RELEASE_FILE = "release.json"
SCHEMA_VERSION = 1
CLEAN, FLAGGED, MALFORMED = 0, 1, 2
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _bytes(text: str) -> int:
    """A size in bytes, for example 1G: a type for click's options."""
    number, unit = text.strip().upper().removesuffix("B").removesuffix("I"), 1
    if number[-1:] in _UNITS:
        number, unit = number[:-1], _UNITS[number[-1]]
    try:
        return int(float(number) * unit)
    except (ValueError, OverflowError):
        raise ValueError("must be a size such as 512M or 4G") from None


_bytes.__name__ = "size"


@click.command(short_help="Who was asked what, from a log: costs, retries, adaptivity.")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option(
    "--epsilon", type=float, required=True, help="local epsilon that every person was promised"
)
@click.option("--delta", type=float, default=0.0, help="its delta  [default: 0]")
@click.option("--plan", metavar="PATH", multiple=True,
              help="log of the questions that were committed to before anybody was asked: its k is "
              "exact, and answers to other questions are a fault; may be repeated")  # fmt: skip
@click.option("--kernels", type=click.Path(dir_okay=False, path_type=Path),
              help="JSON of probabilities by name of the randomizer, one row per input: epsilons "
              "that the log declares too low are a fault")  # fmt: skip
@click.option("--memory", type=_bytes, default="1G", show_default=True,
              help="memory for records; what exceeds it goes to temporary files")  # fmt: skip
@click.option("--output", metavar="DIR", help="new folder for audit.json and audit.png")
@format_option
def audit_interactivity(
    logs: tuple[str, ...],
    epsilon: float,
    delta: float,
    plan: tuple[str, ...],
    kernels: Path | None,
    memory: int,
    output: str | None,
    form: str,
) -> None:
    """Reads logs of who was asked what, and says whether everybody was asked within the promise.

    A log is a file of Parquet or JSON lines, a folder or a glob of them, in any store that Beam
    knows, with one record for each answer (docs/interactivity.md). Equal answers of a person to one
    question of one round are a retry and count once; different answers are two queries, and a
    fault. Envelopes of devices are read too, by the release.json beside them; they name nobody, so
    ids take the place of people.

    \b
    example:
      beam-ldp audit-interactivity log --epsilon 2
    \b
    exit codes: 0 clean; 1 somebody is over budget, or another fault was found;
                2 a log is malformed, or a flag is wrong
    """
    from beam_ldp.release.inputs.copies import Copies
    from beam_ldp.release.outputs import OutputError, OutputFolder
    from beam_ldp.research.interactivity.auditing import audit_logs

    with Copies() as copies:
        try:
            folder = OutputFolder(output) if output is not None else None
            files = _files("LOG", logs, copies)
            report = audit_logs(
                files,
                epsilon,
                delta=delta,
                plan=_files("--plan", plan, copies),
                kernels=None if kernels is None else _kernels(kernels),
                memory=memory,
                releases=_releases(files),
            )
        except (ValueError, OverflowError, OutputError, OSError) as error:
            raise click.UsageError(copies.named(str(error))) from None
    if folder is not None:
        _write(folder, report)
    _say(report, form)
    sys.exit(CLEAN if report.clean else FLAGGED)


def _files(name: str, patterns: tuple[str, ...], copies: Copies) -> list[Path]:
    """The files that paths, folders and globs name, each once; of other stores copies."""
    from beam_ldp.release.inputs.copies import is_remote

    found: dict[Path, None] = {}
    for pattern in patterns:
        listed = copies.of(pattern, RELEASE_FILE) if is_remote(pattern) else _local(pattern)
        inside = [p for p in listed if not p.name.startswith(".") and p.name != RELEASE_FILE]
        if not inside:
            raise click.UsageError(f"{name} {pattern}: there is no such file")
        found.update((p.resolve(), None) for p in inside)
    return list(found)


def _local(pattern: str) -> list[Path]:
    path = Path(pattern.removeprefix("file://"))
    paths = [path] if path.exists() else [Path(p) for p in sorted(glob.glob(str(path)))]
    found = [q for p in paths for q in (sorted(p.iterdir()) if p.is_dir() else [p])]
    return [path for path in found if path.is_file()]


def _releases(files: list[Path]) -> dict[Path, ReleaseTerms]:
    """Of files that hold envelopes, what these are of: by the `release.json` beside each."""
    from beam_ldp.randomizers.wire import MAGIC

    beside: dict[Path, ReleaseTerms] = {}
    found: dict[Path, ReleaseTerms] = {}
    for path in files:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                continue
        if path.parent not in beside:
            beside[path.parent] = _terms(str(path.with_name(RELEASE_FILE)))
        found[path] = beside[path.parent]
    return found


def _terms(path: str) -> ReleaseTerms:
    from beam_ldp.release.devices.release_file import load_release

    agreed = load_release(path)
    if agreed.group_by is not None:
        raise SettingError(f"{path}: reports by group cannot be audited: each names its group")
    if agreed.terms.simulated:
        raise SettingError(f"{path}: these reports are simulated, and protect nobody")
    return agreed.terms


def _kernels(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"--kernels {path}: cannot be read ({type(error).__name__})") from None
    if not isinstance(told, dict):
        raise ValueError(f"--kernels {path}: must be an object, one kernel for each randomizer")
    return told


# What is shown ------------------------------------------------------------------------------------


def _write(folder: Any, report: InteractivityReport) -> None:
    from beam_ldp.questions.pictures import png
    from beam_ldp.release.outputs import as_json

    with folder.writing() as writer:
        writer.put("audit.json", as_json(_json(report)))
        writer.put("audit.png", png(plot(report)))


def _json(report: InteractivityReport) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, **report.to_json()}


def _say(report: InteractivityReport, form: str) -> None:
    if form == "json":
        from beam_ldp.release.terminal import printed_json

        print(printed_json(_json(report)))
        return
    from rich.console import Console

    Console().print(table(report))


def table(report: InteractivityReport) -> Table:
    """The report for people."""
    from rich.markup import escape
    from rich.table import Table

    from beam_ldp.wording import number

    rows = Table(title="Who was asked what", title_justify="left", show_header=False)
    rows.add_column(style="bold")
    rows.add_column()
    people = report.people
    rows.add_row(report.who, f"{people.people:,}")
    rows.add_row("records", f"{people.records:,}, of which {people.retries:,} retries")
    rows.add_row(
        "queries per person", f"most {report.max_queries:,}, mean {report.mean_queries:.4g}"
    )
    quantiles = ", ".join(f"{q:.0%}: {number(e)}" for q, e in report.quantiles().items())
    rows.add_row("epsilon per person", f"most {number(report.max_epsilon)} ({quantiles})")
    if report.replay is not None:
        rows.add_row("by likelihoods", f"most {number(report.replay.most)} of epsilon was told")
    if report.plan_epsilon is not None:
        told = f"{number(report.plan_epsilon)}, exact: most that answers to it tell of one person"
        rows.add_row("epsilon of the plan", told)
    k = f"at least {number(report.k_hat)} (this log), mean {number(report.k_mean)}"
    if report.k_plan is not None:
        k = f"{number(report.k_plan)} by the plan; {k}"
    rows.add_row("compositionality k", k)
    rows.add_row("class", report.interactivity)
    rows.add_row("noninteractive", _noninteractive(report))
    if people.repeated and not report.log.anonymous:
        free = report.mergeable
        said = "unknown" if free is None else f"{free:,} of {people.repeated:,}"
        rows.add_row("people asked again", f"{said} could have been asked once, at no cost")
    if report.price_of_asking_once is not None:
        rows.add_row("everybody asked once", _asked_once(report.price_of_asking_once))
    if report.contracted is not None:
        cycles = report.contracted.in_cycles
        graph = "no cycle: everybody could be asked once, if it is the same for all answers"
        rows.add_row("graph of people", f"{cycles:,} people in cycles" if cycles else graph)
    for found in report.findings:
        style = "bold red" if found.fault else "yellow"
        rows.add_row(f"[{style}]{found.name}[/{style}]", f"{found.count:,} {escape(found.text)}")
    if report.clean:
        nobody = "none" if report.log.anonymous else "nobody"
        rows.add_row("[green]clean[/green]", f"{nobody} above epsilon {number(report.epsilon)}")
    return rows


def _asked_once(price: SequentialPrice) -> str:
    """People that it takes, by each way of asking fresh ones."""
    from beam_ldp.wording import number

    plain, tight, paper = (price.expected(mode) for mode in ("plain", "tight", "paper"))
    most = price.at_most("plain", 0.05)
    least = f"{plain:,.0f} people expected, at most {most:,} in 19 of 20 cases"
    larger = number(price.declared_epsilon("tight"))
    return f"{least}; at epsilon {larger} {tight:,.0f}, and {paper:,.0f} as the paper does it"


def _noninteractive(report: InteractivityReport) -> str:
    if report.unknown is not None:
        return report.unknown
    if report.noninteractive:
        return "yes" if not report.planned else "yes, by the plan"
    least = "at least " if report.people.provenance.cut else ""
    return f"no: {least}{report.depth:,} waves"


def plot(report: InteractivityReport) -> Any:
    """How many people were asked how often, and what that sums to."""
    from beam_ldp.protocols.interaction import NANO
    from beam_ldp.questions.pictures import ESTIMATE, GREY, TRUTH, bare, figure_with
    from beam_ldp.wording import number

    people = report.people
    said = f"{people.people:,} people, {people.queries:,} queries; {report.interactivity}"
    figure = figure_with("Who was asked what", said, 4.2)
    often, spent = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.09, right=0.97, top=0.76, bottom=0.16, wspace=0.28)
    counts = sorted(people.by_queries.items())
    often.bar([str(c) for c, _ in counts[:30]], [n for _, n in counts[:30]], color=ESTIMATE)
    often.set_xlabel("queries of a person")
    often.set_ylabel("people")
    totals = [(0, 0), *sorted(people.by_total.items())]
    reached, above = [], people.people
    for _, num in totals:
        reached.append(above)
        above -= num
    spent.step([e / NANO for e, _ in totals], reached, where="pre", color=ESTIMATE)
    spent.axvline(report.epsilon, color=TRUTH, linestyle="--", linewidth=1)
    spent.annotate(
        f" promised: {number(report.epsilon)}",
        (report.epsilon, 1),
        xycoords=("data", "axes fraction"),
        fontsize=8,
        color=GREY,
        va="top",
    )
    spent.set_xlabel("epsilon, summed over a person's queries")
    spent.set_ylabel("people at this or more")
    spent.set_ylim(bottom=0)
    for axes in (often, spent):
        bare(axes, "top", "right")
        axes.yaxis.set_major_formatter("{x:,.0f}")
    return figure
