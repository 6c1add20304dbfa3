"""One page about a message: how likely it is that somebody rebuilds what it was made from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from beam_ldp.accounting.reconstruction.attack import Attack, feature_attack
from beam_ldp.accounting.reconstruction.bounds import DiffuseTarget, Target, breach_probability
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.separated_mean import SeparatedMean

_COLUMNS = ("rebuilt if", "blind guess", "at most", "paper's bound", "attack, worst", "typical")


@dataclass(frozen=True)
class AuditRow:
    """One target: chances of a successful guess.

    Attributes:
        target: what counts as rebuilt, in words.
        prior: of the best guess without any message.
        bound: given any messages of this person: proved, for every attack.
        paper_bound: the same by Lemma 2.2 of the paper.
        attack: what guessing the message itself achieves, where that is known: PrivUnit, one
            message, a uniform direction.
    """

    target: str
    prior: float
    bound: float
    paper_bound: float
    attack: Attack | None = None


@dataclass(frozen=True)
class ReconstructionAudit:
    """What protects one person's messages from being rebuilt, against whoever sees them all.

    Attributes:
        local_epsilon: of all messages of one person together.
        participations: how many there are.
        rows: one per target.
    """

    local_epsilon: float
    participations: int
    rows: tuple[AuditRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        cells = [_COLUMNS, *map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in cells]
        plural = "" if self.participations == 1 else "s"
        head = (
            f"Reconstruction: {self.participations} message{plural} of one person, local epsilon "
            f"{self.local_epsilon:g} in all, seen with the sender's name"
        )
        return "\n".join([head, *lines])


def audit_messages(
    mechanism: MeanRandomizer, targets: Iterable[Target], participations: int = 1
) -> ReconstructionAudit:
    """Chances of rebuilding each target from `participations` messages of one person.

    Budgets of messages add. Where a target concerns the direction only, the budget of the length
    is counted all the same: length and direction may be related.

    Args:
        mechanism: what every message was made with.
        targets: `DiffuseTarget` and `SparseTarget`.
        participations: most messages of any one person, >= 1.

    Raises:
        ValueError: if `participations` is below 1.

    >>> print(audit_messages(PrivUnit(784, 60.0, inputs="sphere"), [DiffuseTarget(784, 0.5)]))
    Reconstruction: 1 message of one person, local epsilon 60 in all, seen with the sender's name
    rebuilt if                                blind guess  at most  paper's bound  attack, worst  typical
    direction of 784 features, cosine >= 0.5  3.5e-51      4e-25    4e-25          3.5e-27        3.5e-27
    """  # noqa: E501
    if participations < 1:
        raise ValueError(f"participations must be >= 1, got {participations}")
    total = participations * mechanism.local_epsilon
    rows = []
    for target in targets:
        rows.append(
            AuditRow(
                target=str(target),
                prior=math.exp(target.log_prior),
                bound=breach_probability(target, total),
                paper_bound=breach_probability(target, total, "paper"),
                attack=_attack(mechanism, target) if participations == 1 else None,
            )
        )
    return ReconstructionAudit(total, participations, tuple(rows))


def _attack(mechanism: MeanRandomizer, target: Target) -> Attack | None:
    direction = mechanism
    if isinstance(mechanism, SeparatedMean) and mechanism.strategy == "product":
        direction = mechanism.direction
    if not (isinstance(direction, PrivUnit) and direction.inputs == "sphere"):
        return None
    known = isinstance(target, DiffuseTarget) and target.excess == 0
    if not known or target.dimension > direction.dimension:  # type: ignore[attr-defined]
        return None
    return feature_attack(direction, target.dimension, target.cosine)  # type: ignore[attr-defined]


def _cells(row: AuditRow) -> tuple[str, ...]:
    attack = ["-", "-"]
    if row.attack is not None:
        attack = [f"{row.attack.worst:.2g}", f"{row.attack.typical:.2g}"]
    return row.target, f"{row.prior:.2g}", _up(row.bound), _up(row.paper_bound), *attack


def _up(bound: float) -> str:
    """Two digits, rounded up: a bound stays one."""
    if not 0 < bound < 1:
        return f"{bound:g}"
    unit = 10.0 ** (math.floor(math.log10(bound)) - 1)
    return f"{min(1.0, math.ceil(bound / unit * (1 - 1e-12)) * unit):.2g}"
