"""`beam-ldp budget`: grant budgets, and see what is left of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.pipelines.flags import format_option
from beam_ldp.pipelines.views.terminal import console_beside, printable, printed_json
from beam_ldp.wording import number, rounded_down

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger, BudgetStatus, Charge, PeopleCount
    from beam_ldp.ledger.people import AskedElsewhere, Files


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


@contextmanager
def ledger_errors() -> Iterator[None]:
    """What a ledger refuses becomes a usage error that says what to do."""
    try:
        from beam_ldp.ledger import (
            LedgerCorruptedError,
            LedgerMissingError,
            LedgerUnavailableError,
        )
    except ImportError:
        raise click.UsageError(
            "the ledger's packages are not installed: pip install 'beam-ldp[ledger]'"
        ) from None
    try:
        yield
    except LedgerCorruptedError as error:
        raise click.UsageError(f"the ledger is damaged: {error}. See `beam-ldp audit`") from None
    except (ValueError, LedgerMissingError, LedgerUnavailableError) as error:
        raise click.UsageError(str(error)) from None


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
    told = {
        "ledger_id": made.state.ledger_id,
        "url": made.url,
        "mlflow_uri": made.mlflow_uri,
        "anchored_in": made.anchored_in,
    }
    if not _printed(form, told):
        console = Console()
        console.print(f"ledger {told['ledger_id']} in {escape(made.url)}", soft_wrap=True)
        if made.mlflow_uri is not None:
            said = escape(printable(made.mlflow_uri))
            console.print(f"its runs are logged to {said}", soft_wrap=True)
        console.print(_anchored(made.anchored_in), soft_wrap=True)


def _anchored(place: str | None) -> str:
    """Whether a backup that is put back over the ledger is refused."""
    if place is None:
        return (
            "it is anchored nowhere: a backup that is put back over it would grant spent epsilon "
            "again. Set BEAM_LDP_ANCHORS to a place that a restore does not reach, such as "
            "file:///mnt/other/heads.jsonl or mlflow+https://host (docs/ledger.md, Backups)"
        )
    return (
        f"its heads are kept in {escape(printable(place))}: a backup that is put back over it is "
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
              help="share of delta, fixed with the first charge, for events that hold but for a "
              "chance, committed schedules among them (default: 0.05)")  # fmt: skip
@click.option("--by", help="who grants it (default: the login name)")
@click.option("--why", default="", help="reason, for the record, which audits show")
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
def set_budget(
    ledger: str | None, dataset: str, new: bool, privacy_unit: str, form: str,
    people_ids: Path | None, people_store: str | None, people_key_file: str | None, **how: Any,
) -> None:  # fmt: skip
    """Grant a budget, or change one. Every change is a row that audits show."""
    looked_up = (people_ids, people_store, people_key_file)
    if any(looked_up) and not (all(looked_up) and new):
        raise click.UsageError(
            "--people-ids, --people-store and --people-key-file must be given together, with --new"
        )
    book = open_ledger(ledger)
    with ledger_errors():
        known = book.state.datasets
        if dataset not in known and not new:
            near = get_close_matches(dataset, known, 1, 0.6)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no dataset {dataset!r}{hint} (--new creates it)")
        if dataset in known:
            privacy_unit = book.books.population_of(dataset).privacy_unit
        elsewhere = charged_elsewhere(book, dataset, how["population"])
        found = None
        if people_ids and people_store and people_key_file:
            found = look_up(book, elsewhere, people_ids, people_store, people_key_file)
        status = book.set_budget(dataset, privacy_unit=privacy_unit, **how)
    if elsewhere:
        warn_of_people_elsewhere(console_beside(form), dataset, elsewhere, found)
    _show(form, [status])


def charged_elsewhere(book: BudgetLedger, dataset: str, population: str | None) -> list[str]:
    """Populations that are charged, where a new dataset would make another one."""
    books = book.books
    if dataset in books.datasets or (population or dataset) in books.populations:
        return []
    return [name for name, held in books.populations.items() if held.charged]


def look_up(
    book: BudgetLedger, populations: list[str], ids: Path, store: str, key_file: str
) -> list[AskedElsewhere]:
    """Which of the people of a file left hashed ids in runs about these populations."""
    from beam_ldp.ledger.people import asked_elsewhere
    from beam_ldp.transforms.device.keyed import read_key

    try:
        people = [line for line in ids.read_text("utf-8").split("\n") if line]
    except (OSError, UnicodeError):
        raise click.UsageError("--people-ids must be a file with one id per line") from None
    if not people:
        raise click.UsageError("--people-ids holds no id")
    key = read_key(key_file, "--people-key-file")
    store = store.removeprefix("file://")
    held = [book.state.populations[name] for name in populations]
    return asked_elsewhere(people, key, store, files_at(store), held)


def warn_of_people_elsewhere(
    console: Console, dataset: str, elsewhere: list[str], found: list[AskedElsewhere] | None
) -> None:
    """Say that a new population's people may be charged already, and what that is known by."""
    if found is None:
        compared = (
            "Whether they are the same people was not checked: give --people-ids, --people-store "
            "and --people-key-file to check, where runs left hashed ids"
        )
    else:
        compared = "By hashed ids, " + "; ".join(map(str, found))
    certain = found is not None and all(not f.found and f.known == f.runs for f in found)
    names = ", ".join(elsewhere[:3]) + (" and others" if len(elsewhere) > 3 else "")
    console.print(
        f"{'' if certain else '[yellow]warning:[/yellow] '}{escape(printable(dataset))} is a "
        f"population of its own, with a budget beside that of {escape(printable(names))}, which "
        "has been charged: for somebody who is in both, the costs add up. "
        f"{escape(printable(compared))}. The same people share a budget with --population",
        soft_wrap=True,
    )


@budget.command("quota")
@ledger_option
@click.option("--dataset", required=True, help="any dataset about these people")
@click.option(
    "--quota", required=True, metavar="NAME", help="name of the quota: a team, an analyst"
)
@click.option("--share", type=float, required=True, help="share of the budget, from 0 to 1")
@click.option("--by", help="who grants it (default: the login name)")
@click.option("--why", default="", help="reason, for the record, which audits show")
@format_option
def quota(
    ledger: str | None, dataset: str, quota: str, share: float, by: str | None, why: str, form: str
) -> None:
    """Reserve a share of a budget for a team, which nobody else can use up.

    Runs name it with --quota NAME, composites with ChargeTo(..., quota=NAME). A run that names none
    draws on the part of the budget outside all quotas.
    """
    book = open_ledger(ledger)
    with ledger_errors():
        status = book.set_quota(dataset, quota, share=share, by=by, why=why)
    _show(form, [status])


@budget.command("rename")
@ledger_option
@click.argument("dataset")
@click.argument("to")
@click.option("--by", help="who renames it (default: the login name)")
@click.option("--why", default="", help="reason, for the record, which audits show")
@format_option
def rename(ledger: str | None, dataset: str, to: str, by: str | None, why: str, form: str) -> None:
    """Rename DATASET to TO. Its people, its budget and its charges stay."""
    book = open_ledger(ledger)
    with ledger_errors():
        book.rename(dataset, to, by=by, why=why)
    if not _printed(form, {"dataset": to, "formerly": dataset}):
        said = f"{escape(printable(dataset))} is {escape(printable(to))} now"
        Console().print(said, soft_wrap=True)


@budget.command("accept-time")
@ledger_option
@click.option("--why", required=True, help="reason, for the record, which audits show")
@click.option("--by", help="who accepts it (default: the login name)")
@format_option
def accept_time(ledger: str | None, why: str, by: str | None, form: str) -> None:
    """Confirm that this machine's clock is right, although the last row is more than 32 days old.

    Only ledgers in SQLite need it: PostgreSQL has a clock of its own.
    """
    book = open_ledger(ledger)
    with ledger_errors():
        now = book.accept_time(why=why, by=by)
    if not _printed(form, {"time": now}):
        Console().print(f"the ledger continues at {now}", soft_wrap=True)


@budget.command("show")
@ledger_option
@click.option("--dataset", help="whose budget (default: all)")
@format_option
def show(ledger: str | None, dataset: str | None, form: str) -> None:
    """Show what is spent, reserved and left, and what the next run of each kind would cost."""
    book = open_ledger(ledger)
    with ledger_errors():
        names = [dataset] if dataset else _one_per_population(book)
        found = [book.status(name) for name in names]
    if not found:
        said = "no budget has been granted yet: see `beam-ldp budget set`"
        console_beside(form).print(said)
    _show(form, found)


@budget.command("people")
@ledger_option
@click.option("--dataset", required=True, help="any dataset about these people")
@click.option("--people-store", required=True, metavar="DIR",
              help="folder of keyed hashes, the same as in the runs")  # fmt: skip
@format_option
def people(ledger: str | None, dataset: str, people_store: str, form: str) -> None:
    """Count what each person was charged locally, from the keyed hashes that runs left.

    Runs with --people-store do so themselves when they end; this command is for programs that use
    the library, and for runs whose ledger could not be reached. It needs no key and is safe to
    repeat.
    """
    book = open_ledger(ledger)
    with ledger_errors():
        counted = book.count_people(
            dataset, people_store.removeprefix("file://"), files=files_at(people_store)
        )
        status = book.status(dataset)
    console = console_beside(form)
    for run_id, why in counted.left_out.items():
        said = escape(printable(run_id))
        console.print(f"run {said} counts as if everybody had taken part: {why}", soft_wrap=True)
    _show(form, [status])


def files_at(store: str) -> Files:
    """Access to a folder of hashes; Beam is loaded only where it is needed."""
    from beam_ldp.ledger.people import LocalFiles

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
@click.option("--why", required=True, help="reason, for the record, which audits show")
@click.option("--by", help="who accepts it (default: the login name)")
@format_option
def accept(
    ledger: str | None, row: int, sign_with: Path, why: str, by: str | None, form: str
) -> None:
    """Accept, as the auditor, a change of a budget; audits name it by its ROW.

    A budget that was raised after something was charged is a fault in every audit, until the
    auditor signs an acceptance; audits with the auditor's public key then pass.
    """
    from beam_ldp.ledger.rows import load_private

    book = open_ledger(ledger)
    with ledger_errors():
        try:
            key = load_private(sign_with.read_bytes())
        except OSError as error:
            raise click.UsageError(str(error)) from None
        book.accept(row, key, why=why, by=by)
    if not _printed(form, {"row": row, "accepted": True}):
        Console().print(f"row {row} is accepted", soft_wrap=True)


@budget.command("abandon")
@ledger_option
@click.argument("run_id")
@click.option("--why", required=True, help="for the record")
@click.option("--never-began", is_flag=True,
              help="declares that no device randomized anything: returns the local epsilon "
              "too")  # fmt: skip
@format_option
def abandon(ledger: str | None, run_id: str, why: str, never_began: bool, form: str) -> None:
    """Return what a run reserved, but only if provably nothing of it was released."""
    book = open_ledger(ledger)
    with ledger_errors():
        charge = book.abandon(run_id, randomized=not never_began, why=why)
    if not _printed(form, {"run_id": run_id, "status": charge.status}):
        Console().print(f"run {escape(run_id)} is {charge.status}", soft_wrap=True)


def _one_per_population(book: BudgetLedger) -> list[str]:
    state = book.books
    return [min(p.datasets) for p in state.populations.values() if p.budget is not None]


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
    names = escape(printable(", ".join(status.datasets)))
    unit = escape(printable(status.privacy_unit))
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
        f"local epsilons per {unit}: {local} {limit}, for somebody who took part in everything"
    )
    for held in status.quotas:
        console.print(f"{held.share:g} of it is reserved for {escape(printable(held.name))}")
    if status.people is not None:
        show_people(console, status, status.people, unit)
    kinds = next_runs(status)
    if kinds:
        table = Table(title="the next run of each kind", title_justify="left")
        for heading in ("like run", "what it asks", "epsilon then", "more of them that fit"):
            table.add_column(heading, overflow="fold")
        for charge, epsilon, left in kinds:
            named = [charge.run_id, charge.about.get("question", "")]
            cells = [escape(printable(text)) for text in named]
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
    from beam_ldp.ledger.charges import finite

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
@click.option("--why", required=True, help="reason, for the record, which audits show permanently")
@click.option("--by", help="who decides this (default: the login name)")
@format_option
def succeed(
    old: str,
    new: str,
    anchors: tuple[str, ...],
    lost_local_epsilon: float | None,
    why: str,
    by: str | None,
    form: str,
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
    from beam_ldp.pipelines.budget import ledger_errors

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
            RowStore(old),
            store,
            why=why,
            by=by,
            lost_local_epsilon=lost_local_epsilon,
            anchors=known,
        )
        rows = store.rows()
        ledger_id, head = str(rows[0].body["ledger_id"]), rows[-1].head
        anchoring = anchoring or usual_anchors(ledger_id)
        if anchoring is not None:
            anchoring.after_append(ledger_id, head, store.row)
    said = [*found.told(), *found.leniencies()]
    told = {"ledger_id": ledger_id, "url": store.shown_url, "succeeds": found.to_json()}
    if _printed(form, {**told, "said": said}):
        return
    console = Console()
    console.print(
        f"ledger {ledger_id} in {escape(store.shown_url)} succeeds {found.ledger_id}",
        soft_wrap=True,
    )
    for line in said:
        console.print(f"  {escape(printable(line))}", soft_wrap=True)
