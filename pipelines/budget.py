"""`beam-ldp budget`: grant budgets, and see what is left of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.pipelines.flags import format_option, ledger_errors
from beam_ldp.release.terminal import console_beside, printable, printed_json
from beam_ldp.wording import number, rounded_down

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger, BudgetStatus, Charge, PeopleCount
    from beam_ldp.ledger.participants import AskedElsewhere, Files


SCHEMA_VERSION = 1
BAR = 40  # characters
_COMMAND = TypeVar("_COMMAND", bound=Callable[..., Any])


def ledger_option(command: _COMMAND) -> _COMMAND:
    """The option that names the ledger, for every command that needs it."""
    return click.option(
        "--ledger", metavar="URL",
        help="database of the ledger, such as sqlite:///privacy.db or "
        "postgresql+psycopg://host/database (default: the environment variable BEAM_LDP_LEDGER)",
    )(command)  # fmt: skip


def open_ledger(url: str | None) -> BudgetLedger:
    """The ledger of a command, or a usage error that says what to do."""
    with ledger_errors():
        from beam_ldp.ledger import BudgetLedger

        return BudgetLedger(url)


@click.group(short_help="Grant privacy budgets, and see what is left of them.")
def budget() -> None:
    """Grant privacy budgets, and see what is left of them.

    A budget protects the people of one population against the sum of all releases about them,
    whichever program makes them. A run that names the ledger and its dataset reserves its
    worst-case cost before it reads anything, and is refused if that does not fit.

    \b
    examples:
      export BEAM_LDP_LEDGER=sqlite:///privacy.db
      beam-ldp budget init
      beam-ldp budget set --dataset telemetry --epsilon 4 --delta 1e-8 --local-epsilon 16 --new
      beam-ldp budget show --dataset telemetry
    """


def _on_ledger(command: Callable[..., Any]) -> Callable[..., None]:
    """Gives a command the ledger that `--ledger` names, and prints what it returns.

    That is budgets, or what was done, as JSON holds it; and what to tell people besides: of
    budgets before them, also where a program reads them.
    """

    @wraps(command)
    def run(ledger: str | None, form: str, **how: Any) -> None:
        book = open_ledger(ledger)
        with ledger_errors():
            found, lines = command(book, **how)
        if isinstance(found, list):
            _print(console_beside(form), lines)
            _show(form, found)
        elif not _printed(form, found):
            _print(Console(), lines)

    return run


def _recorded(acts: str, *, required: bool = False) -> Callable[[_COMMAND], _COMMAND]:
    """The options that say who does something and why, for the record."""

    def add(command: _COMMAND) -> _COMMAND:
        told = {"required": True} if required else {"default": ""}
        why = click.option("--why", help="reason, for the record, which audits show", **told)
        return click.option("--by", help=f"who {acts} (default: the login name)")(why(command))

    return add


def _print(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)


def _shown(text: str) -> str:
    """Text of somebody's as a terminal may show it."""
    return escape(printable(text))


@budget.command("init")
@click.option("--ledger", envvar="BEAM_LDP_LEDGER", required=True, metavar="URL",
              help="database to create the ledger in, as for every command")  # fmt: skip
@click.option("--mlflow-uri", metavar="URI",
              help="MLflow's store, or its server, to which all runs charged to this ledger are "
              "logged; named with the ledger, for good")  # fmt: skip
@format_option
def init(ledger: str, mlflow_uri: str | None, form: str) -> None:
    """Create a ledger, or report the one that exists."""
    with ledger_errors():
        from beam_ldp.ledger import BudgetLedger

        made = BudgetLedger.create(ledger, mlflow_uri=mlflow_uri)
    uri, place = made.mlflow_uri, made.anchored_in
    told = {"ledger_id": made.state.ledger_id, "url": made.url, "mlflow_uri": uri,
            "anchored_in": place}  # fmt: skip
    lines = [f"ledger {told['ledger_id']} in {escape(made.url)}"]
    lines += [] if uri is None else [f"its runs are logged to {_shown(uri)}"]
    if not _printed(form, told):
        _print(Console(), [*lines, _anchored(place)])


def _anchored(place: str | None) -> str:
    """Whether a backup that is put back over the ledger is refused."""
    if place is None:
        return (
            "it is anchored nowhere: a backup that is put back over it would grant spent epsilon "
            "again. Set BEAM_LDP_ANCHORS to a place that a restore does not reach, such as "
            "file:///mnt/other/heads.jsonl or mlflow+https://host (docs/ledger.md, Backups)"
        )
    return (
        f"its heads are kept in {_shown(place)}: a backup that is put back over it is "
        "refused here. For other machines, set BEAM_LDP_ANCHORS to a place that all of them reach"
    )


@budget.command("set")
@ledger_option
@click.option("--dataset", required=True, help="name of the dataset, as in the runs")
@click.option("--epsilon", type=float, required=True, help="central budget")
@click.option("--delta", type=float, required=True, help="delta of the central budget")
@click.option("--local-epsilon", type=float,
              help="largest sum of one person's local epsilons (default: no limit)")  # fmt: skip
@click.option("--privacy-unit", default="user", show_default=True, help="what is protected")
@click.option("--population", help="the people; datasets about the same people share one budget")
@click.option("--period-days", type=int, help="renew the budget after this number of days")
@click.option("--chances", type=float, metavar="SHARE",
              help="share of delta, fixed with the first charge, for guarantees that fail with "
              "small probability, committed schedules among them (default: 0.05)")  # fmt: skip
@_recorded("grants it")
@click.option("--new", is_flag=True, help="declares that the dataset is not in the ledger yet")
@click.option(
    "--people-ids",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="ids of the new people, one per line, to check whether this ledger has charged them under "
    "another dataset",
)
@click.option("--people-store", metavar="DIR", help="folder of keyed hashes that runs left")
@click.option("--people-key-file", metavar="FILE", help="secret key of those hashes")
@format_option
@_on_ledger
def set_budget(
    book: BudgetLedger, dataset: str, new: bool, privacy_unit: str, people_ids: Path | None,
    people_store: str | None, people_key_file: str | None, **how: Any,
) -> tuple[list[BudgetStatus], list[str]]:  # fmt: skip
    """Grant a budget, or change one. Every change is a row that audits show."""
    looked_up = (people_ids, people_store, people_key_file)
    if any(looked_up) and not (all(looked_up) and new):
        raise click.UsageError(
            "--people-ids, --people-store and --people-key-file must be given together, with --new"
        )
    known = book.state.datasets
    if dataset not in known and not new:
        near = get_close_matches(dataset, known, 1, 0.6)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise click.UsageError(f"there is no dataset {dataset!r}{hint} (--new creates it)")
    if dataset in known:
        privacy_unit = book.balances.population_of(dataset).privacy_unit
    elsewhere = charged_elsewhere(book, dataset, how["population"])
    found = None
    if people_ids and people_store and people_key_file:
        found = look_up(book, elsewhere, people_ids, people_store, people_key_file)
    status = book.set_budget(dataset, privacy_unit=privacy_unit, **how)
    return [status], [people_elsewhere(dataset, elsewhere, found)] if elsewhere else []


def charged_elsewhere(book: BudgetLedger, dataset: str, population: str | None) -> list[str]:
    """Populations that are charged, where a new dataset would make another one."""
    held = book.balances
    if dataset in held.datasets or (population or dataset) in held.populations:
        return []
    return [name for name, people in held.populations.items() if people.charged]


def look_up(
    book: BudgetLedger, populations: list[str], ids: Path, store: str, key_file: str
) -> list[AskedElsewhere]:
    """Which of the people of a file left hashed ids in runs about these populations."""
    from beam_ldp.ledger.participants import asked_elsewhere
    from beam_ldp.transforms.device.keyed import read_key

    try:
        people = [line for line in ids.read_text("utf-8").split("\n") if line]
    except (OSError, UnicodeError):
        raise click.UsageError("--people-ids must be a file with one id per line") from None
    if not people:
        raise click.UsageError("--people-ids holds no id")
    key = read_key(key_file, "--people-key-file")
    store = store.removeprefix("file://")
    files, held = files_at(store), book.state.populations
    return [
        asked_elsewhere(people, key, store, files, name, held[name].charges.values())
        for name in populations
    ]


def people_elsewhere(dataset: str, elsewhere: list[str], found: list[AskedElsewhere] | None) -> str:
    """Says that a new population's people may be charged already, and what that is known by."""
    if found is None:
        compared = (
            "Whether they are the same people was not checked: give --people-ids, --people-store "
            "and --people-key-file to check, where runs left hashed ids"
        )
    else:
        compared = "By hashed ids, " + "; ".join(map(str, found))
    certain = found is not None and all(not f.found and f.known == f.runs for f in found)
    names = ", ".join(elsewhere[:3]) + (" and others" if len(elsewhere) > 3 else "")
    return (
        f"{'' if certain else '[yellow]warning:[/yellow] '}{_shown(dataset)} is a population of "
        f"its own, with a budget beside that of {_shown(names)}, which has been charged: for "
        f"a person who is in both, the costs add up. {_shown(compared)}. The same people share a "
        "budget with --population"
    )


@budget.command("quota")
@ledger_option
@click.option("--dataset", required=True, help="any dataset about these people")
@click.option(
    "--quota", required=True, metavar="NAME", help="name of the quota: a team, an analyst"
)
@click.option("--share", type=float, required=True, help="share of the budget, from 0 to 1")
@_recorded("grants it")
@format_option
@_on_ledger
def quota(
    book: BudgetLedger, dataset: str, quota: str, **how: Any
) -> tuple[list[BudgetStatus], list[str]]:
    """Reserve a share of a budget for a team, which nobody else can use up.

    Runs name it with --quota NAME, composites with ChargeTo(..., quota=NAME). A run that names none
    draws on the part of the budget outside all quotas.
    """
    return [book.set_quota(dataset, quota, **how)], []


@budget.command("rename")
@ledger_option
@click.argument("dataset")
@click.argument("to")
@_recorded("renames it")
@format_option
@_on_ledger
def rename(
    book: BudgetLedger, dataset: str, to: str, **how: Any
) -> tuple[dict[str, Any], list[str]]:
    """Rename DATASET to TO. Its people, its budget and its charges stay."""
    book.rename(dataset, to, **how)
    return {"dataset": to, "formerly": dataset}, [f"{_shown(dataset)} is {_shown(to)} now"]


@budget.command("accept-time")
@ledger_option
@_recorded("accepts it", required=True)
@format_option
@_on_ledger
def accept_time(book: BudgetLedger, **how: Any) -> tuple[dict[str, Any], list[str]]:
    """Confirm that this machine's clock is right, although the last row is more than 32 days old.

    Only ledgers in SQLite need it: PostgreSQL has a clock of its own.
    """
    now = book.accept_time(**how)
    return {"time": now}, [f"the ledger continues at {now}"]


@budget.command("show")
@ledger_option
@click.option("--dataset", help="whose budget (default: all)")
@format_option
@_on_ledger
def show(book: BudgetLedger, dataset: str | None) -> tuple[list[BudgetStatus], list[str]]:
    """Show what is spent, reserved and left, and what the next run of each kind would cost."""
    granted = [p for p in book.balances.populations.values() if p.budget is not None]
    names = [dataset] if dataset else [min(population.datasets) for population in granted]
    said = [] if names else ["no budget has been granted yet: see `beam-ldp budget set`"]
    return [book.status(name) for name in names], said


@budget.command("people")
@ledger_option
@click.option("--dataset", required=True, help="any dataset about these people")
@click.option("--people-store", required=True, metavar="DIR",
              help="folder of keyed hashes, the same as in the runs")  # fmt: skip
@format_option
@_on_ledger
def people(
    book: BudgetLedger, dataset: str, people_store: str
) -> tuple[list[BudgetStatus], list[str]]:
    """Count what each person was charged locally, from the keyed hashes that runs left.

    Runs with --people-store do so themselves when they end; this command is for programs that use
    the library, and for runs whose ledger could not be reached. It needs no key and is safe to
    repeat.
    """
    store = people_store.removeprefix("file://")
    counted = book.count_people(dataset, store, files=files_at(people_store))
    said = [
        f"run {_shown(run_id)} counts as if everybody had taken part: {why}"
        for run_id, why in counted.left_out.items()
    ]
    return [book.status(dataset)], said


def files_at(store: str) -> Files:
    """Access to a folder of hashes; Beam is loaded only where it is needed."""
    from beam_ldp.ledger.participants import LocalFiles

    if "://" not in store.removeprefix("file://"):
        return LocalFiles()
    from beam_ldp.transforms.device.keyed import BeamFiles
    from beam_ldp.transforms.files import check_store

    try:
        check_store(store)
    except ValueError as error:
        raise click.UsageError(f"--people-store {error}") from None
    return BeamFiles()


@budget.command("accept")
@ledger_option
@click.argument("row", type=int)
@click.option("--sign-with", type=click.Path(path_type=Path), required=True,
              help="the auditor's private key (PEM)")  # fmt: skip
@_recorded("accepts it", required=True)
@format_option
@_on_ledger
def accept(
    book: BudgetLedger, row: int, sign_with: Path, **how: Any
) -> tuple[dict[str, Any], list[str]]:
    """Accept, as the auditor, a change of a budget; audits name it by its ROW.

    A budget that was raised after something was charged is a fault in every audit, until the
    auditor signs an acceptance; audits with the auditor's public key then pass.
    """
    from beam_ldp.ledger.rows import load_private

    try:
        key = load_private(sign_with.read_bytes())
    except OSError as error:
        raise click.UsageError(str(error)) from None
    book.accept(row, key, **how)
    return {"row": row, "accepted": True}, [f"row {row} is accepted"]


@budget.command("abandon")
@ledger_option
@click.argument("run_id")
@click.option("--why", required=True, help="for the record")
@click.option("--never-began", is_flag=True,
              help="declares that no device randomized anything: returns the local epsilon "
              "too")  # fmt: skip
@format_option
@_on_ledger
def abandon(
    book: BudgetLedger, run_id: str, why: str, never_began: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return what a run reserved, but only if provably nothing of it was released."""
    charge = book.abandon(run_id, randomized=not never_began, why=why)
    done = {"run_id": run_id, "status": charge.status}
    return done, [f"run {escape(run_id)} is {charge.status}"]


def _printed(form: str, told: dict[str, Any]) -> bool:
    """Whether a program reads what was done; then it is printed."""
    if form == "json":
        print(printed_json({"schema_version": SCHEMA_VERSION, **told}))
    return form == "json"


def _show(form: str, found: list[BudgetStatus]) -> None:
    """Budgets, for people or for programs."""
    if not _printed(form, {"budgets": list(map(_json, found))}):
        for status in found:
            show_status(Console(), status)
    sys.stdout.flush()


def show_status(console: Console, status: BudgetStatus) -> None:
    """A budget for people: a bar, what it holds, and what comes next."""
    granted = status.budget
    names, unit = _shown(", ".join(status.datasets)), _shown(status.privacy_unit)
    console.print(f"\n[bold]{names}[/bold]  protects one {unit}")
    console.print(_bar(status.spent, status.reserved, granted.epsilon))
    period = "" if granted.period_days is None else (
        f", period {status.period} of {granted.period_days} days"
    )  # fmt: skip
    console.print(
        f"epsilon {number(status.spent)} spent, {number(status.reserved)} reserved, "
        f"{rounded_down(status.left)} left of {granted.epsilon:g} at delta = {granted.delta:g}"
        f"{period}"
    )
    limit = "no limit" if granted.local_epsilon is None else f"of {granted.local_epsilon:g}"
    local = number(status.local_committed)
    console.print(
        f"local epsilons per {unit}: {local} {limit}, for a person who took part in everything"
    )
    for held in status.quotas:
        console.print(f"{held.share:g} of it is reserved for {_shown(held.name)}")
    if status.people is not None:
        show_people(console, status, status.people, unit)
    kinds = next_runs(status)
    if kinds:
        table = Table(title="the next run of each kind", title_justify="left")
        for heading in ("like run", "what it asks", "epsilon then", "more of them that fit"):
            table.add_column(heading, overflow="fold")
        for charge, epsilon, left in kinds:
            cells = map(_shown, (charge.run_id, charge.about.get("question", "")))
            table.add_row(*cells, number(epsilon), f"{left:,}")
        console.print(table)


def show_people(
    console: Console, status: BudgetStatus, people: PeopleCount, unit: str, most: int = 8
) -> None:
    """What each person was charged locally: the most, and how many were charged how much."""
    left_out = len(status.uncounted)
    known = f"{len(people.covered)} of {len(people.covered) + left_out} runs counted"
    if left_out:
        known += "; in the others, everybody is assumed to have taken part"
    console.print(
        f"by hashed ids, no {unit} more than {number(status.local_maximum)} ({known})",
        soft_wrap=True,
    )
    rows = people.distribution
    largest = max((n for _, n in rows), default=1)
    for total, n in rows if len(rows) <= most else rows[-most:]:
        bar = "█" * max(1, round(BAR // 2 * n / largest))
        console.print(f"  {number(total):>8}  {n:>12,}  {bar}", highlight=False)
    if len(rows) > most:
        less = sum(n for _, n in rows[:-most])
        console.print(f"  {'less':>8}  {less:>12,}", highlight=False)


def _bar(spent: float, reserved: float, granted: float) -> str:
    full = min(BAR, round(BAR * min(1.0, spent / granted)))
    held = min(BAR - full, round(BAR * min(1.0, reserved / granted)))
    rest = BAR - full - held
    return f"[red]{'█' * full}[/red][yellow]{'▒' * held}[/yellow][dim]{'░' * rest}[/dim]"


def next_runs(status: BudgetStatus, most: int = 5) -> list[tuple[Charge, float, int]]:
    """The latest run of each kind, epsilon after one more of it, and how many more fit."""
    from beam_ldp.ledger.losses import is_nothing

    kinds: dict[tuple[str, str], Charge] = {}
    for charge in status.charges:
        if charge.event is not None and not is_nothing(charge.reserved):
            key = (charge.dataset, str(charge.about.get("question", "")))
            kinds[key] = charge
    latest = sorted(kinds.values(), key=lambda charge: -charge.number)[:most]
    return [
        (
            c,
            status.epsilon_with(c.reserved),
            status.times_left(c.reserved, c.local_epsilon, 10_000, c.quota),
        )
        for c in latest
    ]


def _json(status: BudgetStatus) -> dict[str, Any]:
    """For programs; null where a local epsilon is infinite, since only a shuffler or a server was
    trusted."""
    from beam_ldp.ledger.losses import finite

    granted = status.budget
    return {
        "population": status.population,
        "datasets": list(status.datasets),
        "privacy_unit": status.privacy_unit,
        "epsilon": granted.epsilon,
        "delta": granted.delta,
        "local_epsilon": granted.local_epsilon,
        "chances": granted.chances,
        "period": status.period,
        "period_days": granted.period_days,
        "quotas": {held.name: held.share for held in status.quotas},
        "spent": status.spent,
        "reserved": status.reserved,
        "left": status.left,
        "local_spent": finite(status.local_spent),
        "local_committed": finite(status.local_committed),
        "local_maximum": finite(status.local_maximum),
        "people": None if status.people is None else {
            **status.people.to_json(), "uncounted": [c.run_id for c in status.uncounted],
        },
        "charges": [
            {
                "run_id": c.run_id, "dataset": c.dataset, "status": c.status,
                "local_epsilon": finite(c.local_epsilon), "time": c.time, "overspent": c.overspent,
            }
            for c in status.charges
        ],
        "next": [
            {"like": c.run_id, "epsilon": epsilon, "fits": left}
            for c, epsilon, left in next_runs(status)
        ],
    }  # fmt: skip


@budget.command("succeed")
@click.option("--from", "old", required=True, metavar="URL",
              help="the damaged ledger, which is only read and must not be used any "
              "more")  # fmt: skip
@click.option("--ledger", "new", envvar="BEAM_LDP_LEDGER", required=True, metavar="URL",
              help="where to create the new ledger: a place that holds none")  # fmt: skip
@click.option("--anchors", metavar="FILE|URL", multiple=True,
              help="anchors of the damaged ledger, which show how many rows are lost")  # fmt: skip
@click.option("--lost-local-epsilon", type=click.FloatRange(min=0, min_open=True),
              help="upper bound on what the lost rows cost each person, as a sum of local "
              "epsilons; a fault in audits until the auditor accepts row 0 (default: charge the "
              "whole budget)")  # fmt: skip
@_recorded("decides this", required=True)
@format_option
def succeed(
    old: str,
    new: str,
    anchors: tuple[str, ...],
    lost_local_epsilon: float | None,
    form: str,
    **how: Any,
) -> None:
    """Create a ledger that continues a damaged one.

    Every row before the first fault is carried over unchanged: names, budgets, charges, releases.
    After it, rows that raise the spend are carried over and rows that lower it are not: settle such
    runs again. For rows that are lost or changed, the whole budget of every population is charged,
    unless you state the most they can have cost. Audits of the new ledger report all of this
    permanently.

    \b
    examples:
      beam-ldp budget succeed --from sqlite:///damaged.db --ledger sqlite:///privacy.db \\
        --anchors /auditor/anchors.jsonl --why "the disk of the old one failed"
    """
    with ledger_errors():
        from beam_ldp.ledger.sinks import open_anchors, open_sink, usual_anchors
        from beam_ldp.ledger.store import RowStore
        from beam_ldp.ledger.succession import succeed as make

        try:
            known = [a for place in anchors for a in open_sink(place.partition("?")[0]).all()]
        except OSError as error:
            raise click.UsageError(f"--anchors cannot be read ({error})") from None
        store, anchoring = RowStore(new), open_anchors()  # which may refuse to be opened
        found = make(
            RowStore(old), store, anchors=known, lost_local_epsilon=lost_local_epsilon, **how
        )
        rows = store.rows()
        ledger_id, head = str(rows[0].body["ledger_id"]), rows[-1].head
        anchoring = anchoring or usual_anchors(ledger_id)
        if anchoring is not None:
            anchoring.after_append(ledger_id, head, store.row)
    said = [*found.told(), *found.leniencies()]
    told = {"ledger_id": ledger_id, "url": store.shown_url, "succeeds": found.to_json()}
    if not _printed(form, {**told, "said": said}):
        made = f"ledger {ledger_id} in {escape(store.shown_url)} succeeds {found.ledger_id}"
        _print(Console(), [made, *(f"  {_shown(line)}" for line in said)])
