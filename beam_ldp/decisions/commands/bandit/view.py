"""A bandit that serves people, as its folder says: what is known, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.questions.pictures import shortened
from beam_ldp.wording import number

if TYPE_CHECKING:
    from pathlib import Path

    from beam_ldp.decisions.bandits.terms import BatchTerms
    from beam_ldp.decisions.commands.bandit.service import ServiceFolder


def say_service(service: ServiceFolder, form: str, first: str = "") -> None:
    """What is known and what comes next, on stdout.

    Args:
        service: as it stands.
        form: "table" or "json".
        first: what is said before it.
    """
    if form == "json":
        from beam_ldp.release.terminal import printed_json

        print(printed_json({**service.state(), **({"said": first} if first else {})}))
        return
    console = Console()
    if first:
        console.print(first, highlight=False)
    if service.progress.decided:
        console.print(_decided(service))
        shown = service.released(service.progress.decided[-1].batch.number)
        console.print(
            f"  {escape(str(shown))}  [dim]what was released of the last one[/dim]", soft_wrap=True
        )
    for line in _next(service):
        console.print(line, soft_wrap=True, highlight=False)


def _decided(service: ServiceFolder) -> Table:
    terms = service.terms
    table = Table(title=f"Bandit {escape(terms.name)}", title_justify="left", header_style="bold")
    for heading in ("batch", "people", "local epsilon", "within", "may be best"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("best")
    for one in service.progress.decided:
        best = terms.names[one.batch.active[one.estimates.argmax()]]
        table.add_row(
            str(one.batch.number),
            f"{one.batch.people:,}",
            "none" if terms.trusts_the_server else number(one.batch.noise.epsilon),
            f"± {one.batch.width:.4f}",
            f"{len(one.survivors):,} of {len(terms.names):,}",
            escape(shortened(best)),
        )
    return table


def _next(service: ServiceFolder) -> list[str]:
    asked, horizon = service.asked, service.terms.bandit.horizon
    left = max(0, horizon - service.progress.asked)
    if asked is None:
        return [
            f"[bold]{escape(service.best)}[/bold] is shown to the other {left:,} people: no batch "
            "is open, and they are asked for nothing"
        ]
    actions = ", ".join(escape(shortened(name)) for name in asked.actions[:6])
    more = f" and {len(asked.actions) - 6} more" if len(asked.actions) > 6 else ""
    slots = service.slots_file(asked)
    return [
        f"[bold]Batch {asked.number}[/bold] asks {asked.batch.people:,} people about "
        f"{actions}{more}; {_promise(asked)}",
        f"  {escape(str(slots))}  [dim]which visitor in turn gets which play"
        f"{_secret(service, slots)}[/dim]",
        f"[dim]then: beam-ldp bandit advance --state {escape(str(service.path))} --rewards "
        "FILE (columns play, reward, and whose it is)[/dim]",
    ]


def _promise(asked: BatchTerms) -> str:
    if asked.terms.trusts_the_server:
        return (
            f"sums of their rewards have an epsilon of {number(asked.terms.bandit.epsilon)}, and "
            "the server is trusted with the rewards"
        )
    return f"each report has a local epsilon of {number(asked.local_epsilon)}"


def _secret(service: ServiceFolder, slots: Path) -> str:
    if slots.parent == service.path:
        return ""
    return ": secret, for whoever assigns; keep no log of who had which"
