"""`beam-ldp budget succeed`: a ledger that goes on where a damaged one cannot."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape

from beam_ldp.pipelines.views.terminal import printable


@click.command("succeed")
@click.option("--from", "old", required=True, metavar="URL",
              help="the damaged ledger; only read, and not to be used any more")  # fmt: skip
@click.option("--ledger", "new", envvar="BEAM_LDP_LEDGER", required=True, metavar="URL",
              help="where to make the new one: a place without a ledger")  # fmt: skip
@click.option("--anchors", metavar="FILE|URL", multiple=True,
              help="anchors of the damaged ledger: they show how many rows are gone")  # fmt: skip
@click.option("--lost-local-epsilon", type=click.FloatRange(min=0, min_open=True),
              help="what the lost rows cost each person at most, as a sum of local epsilons; a "
              "fault of audits until the auditor accepts row 0 (default: charge the whole "
              "budget)")  # fmt: skip
@click.option("--why", required=True, help="for the record, which audits show for ever")
@click.option("--by", help="who decides it (default: the login name)")
def succeed(
    old: str,
    new: str,
    anchors: tuple[str, ...],
    lost_local_epsilon: float | None,
    why: str,
    by: str | None,
) -> None:
    """Make a ledger that goes on where a damaged one cannot.

    Every row up to the first fault is carried over as it stands: names, budgets, charges, releases.
    Behind it, what raises the spend is, and what lowers it is not: settle such runs again. For rows
    that are lost or changed the whole budget of every population is charged, unless you state what
    they cost at most. Audits of the new ledger tell all of it, for ever.

    \b
    examples:
      beam-ldp budget succeed --from sqlite:///damaged.db --ledger sqlite:///privacy.db \\
        --anchors /auditor/anchors.jsonl --why "the disk of the old one failed"
    """
    from beam_ldp.pipelines.budget import ledger_errors

    with ledger_errors():
        from beam_ldp.ledger.sinks import open_anchors, open_sink
        from beam_ldp.ledger.store import RowStore
        from beam_ldp.ledger.succession import succeed as make

        try:
            known = [a for place in anchors for a in open_sink(place.partition("?")[0]).all()]
        except OSError as error:
            raise click.UsageError(f"--anchors cannot be read ({error})") from None
        store, anchoring = RowStore(new), open_anchors()
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
        if anchoring is not None:
            anchoring.after_append(ledger_id, head)
    console = Console()
    console.print(
        f"ledger {ledger_id} in {escape(store.shown_url)} succeeds {found.ledger_id}",
        soft_wrap=True,
    )
    for said in (*found.told(), *found.leniencies()):
        console.print(f"  {escape(printable(said))}", soft_wrap=True)
