"""What somebody learns of a vector who sees all that its owner sent: a table below a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from beam_ldp.accounting.reconstruction import (
    DiffuseTarget,
    breach_probability,
    largest_epsilon,
)
from beam_ldp.accounting.reconstruction_audit import (
    CHANCES,
    at_least,
    at_most,
    attacked_epsilon,
    direction_attack,
)
from beam_ldp.planning import Plan
from beam_ldp.randomizers.mean import PrivUnit
from beam_ldp.wording import number

COSINES = (0.3, 0.5, 0.7)  # of the angles within which a guess counts
_MIDDLE = 0.5  # for which the local epsilons are told


def attack_row(plan: Plan, dimension: int) -> dict[str, Any]:
    """How often somebody who knew nothing of a vector finds its direction, for programs.

    Before any report the direction is uniform for the attacker, and the vector is as long as the
    radius. PrivUnit's figures are those of the best attack, exactly; of other mechanisms no attack
    does better.

    Args:
        plan: of one mechanism.
        dimension: of the vectors, at least 2.
    """
    mechanism = plan.randomizer
    exact = isinstance(mechanism, PrivUnit)
    chances, reached = [], []
    for cosine in COSINES:
        target = DiffuseTarget(dimension, cosine)
        if isinstance(mechanism, PrivUnit):
            chances.append(direction_attack(mechanism, cosine))
        else:
            chances.append(breach_probability(target, plan.local_epsilon))
    for chance in CHANCES:
        if exact:
            reached.append(attacked_epsilon(dimension, _MIDDLE, chance))
        else:
            reached.append(max(0.0, largest_epsilon(DiffuseTarget(dimension, _MIDDLE), chance)))
    return {
        "exact": exact,
        "chances": [{"cosine": a, "chance": c} for a, c in zip(COSINES, chances)],
        "reached": [
            {"cosine": _MIDDLE, "chance": c, "local_epsilon": e} for c, e in zip(CHANCES, reached)
        ],
    }


def show_attacks(plans: Sequence[Plan], dimension: int) -> None:
    """The table, for people."""
    table = Table(
        title="\nWhat somebody guesses who knew nothing of a vector and sees all that one person "
        "sent:\nchance of its direction within an angle, at most (PrivUnit: exactly, by the best "
        "attack)",
        title_justify="left",
        caption=f"from: local epsilon at which the chance for cosine {_MIDDLE:g} may exceed this",
        caption_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column("\nmechanism", no_wrap=True)
    cosines = (f"cosine\n{cosine:g}" for cosine in COSINES)
    for heading in ("local\nepsilon", *cosines, *(f"{c:.0%}\nfrom" for c in CHANCES)):
        table.add_column(heading, justify="right", no_wrap=True)
    for plan in plans:
        told = attack_row(plan, dimension)
        chances = [one["chance"] for one in told["chances"]]
        table.add_row(
            plan.mechanism,
            number(plan.local_epsilon),
            *(f"{c:.2g}" if told["exact"] else at_most(c) for c in chances),
            *(at_least(one["local_epsilon"]) for one in told["reached"]),
        )
    Console().print(table)
