"""`beam-ldp budget succeed`: a ledger that goes on where a damaged one cannot."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape

from beam_ldp.pipelines.views.terminal import printable


@click.command("succeed")
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
def succeed(
    old: str,
    new: str,
    anchors: tuple[str, ...],
    lost_local_epsilon: float | None,
    why: str,
    by: str | None,
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
