"""What people see of policies over contexts: how many there are, and what they cost in regret."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from beam_ldp.decisions.bandits.designs import g_optimal
from beam_ldp.decisions.bandits.elimination import LinearBandit
from beam_ldp.decisions.commands.bandit.contexts import Policies


def policies_json(policies: Policies | None, bandit: LinearBandit) -> dict[str, Any]:
    """What is printed of them for programs, beside a plan or a simulation; nothing of none."""
    if policies is None:
        return {}
    found = policies.found
    contexts, choices, _ = found.law.features.shape
    told = {
        "law": found.law.kind, "contexts": contexts, "choices": choices,
        "features": list(policies.features), "policies": len(policies.rows),
        "net_gap": found.net_gap, "row_error": found.row_error,
        "net_price": bandit.horizon * found.net_gap,
        "row_price": _row_price(policies, bandit),
    }  # fmt: skip
    return {"contexts": told}


def show_policies(policies: Policies | None, bandit: LinearBandit) -> None:
    """The lines below a table; none of none."""
    if policies is None:
        return
    told = policies_json(policies, bandit)["contexts"]
    known = "all" if told["law"] == "finite" else "draws"
    console = Console()
    console.print(
        f"{told['policies']:,} policies over {told['contexts']:,} contexts ({known}); regret is "
        f"against the best of them, which loses {told['net_price']:,.0f} at most against the best "
        "of all"
    )
    if told["row_error"]:
        console.print(
            f"rows are known by draws, to {told['row_error']:.2g}: widths count it, and it costs "
            f"{told['row_price']:,.0f} at most; more draws make it less"
        )


def _row_price(policies: Policies, bandit: LinearBandit) -> float:
    """Regret at most by rows that are off, where no policy is dropped; 2 a person is the most.

    Survivors are within four widths of the best, of which the misfit is a part, and the best policy
    of all is measured with the same error as these.
    """
    design = g_optimal(bandit.actions)
    counts = design.counts(bandit.schedule.size(bandit.schedule.batches))
    lost = 2 * policies.found.row_error + 4 * bandit.misfit(design, counts)
    return bandit.horizon * min(2.0, lost)
