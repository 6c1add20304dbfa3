"""Ranges and quantiles of a number: how the tree branches, and who answers which level.

A range of r cells is put together from at most 2 (B - 1) nodes on each of log_B(cells) levels. A
large fan-out B means few levels, hence many answers (or much budget) for each, and many nodes per
range. After consistency no closed form says where the balance lies, so every fan-out is computed:
what counts is the expected squared error of a range whose two ends are drawn evenly among the
edges, after weighted least squares. A flat histogram (one level) is one of the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_ldp.accounting import local_epsilon_for
from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.accounting.reports import hidden_users
from beam_ldp.planning.plan import Plan, check_target, local_limit
from beam_ldp.planning.questions import (
    DESIGNS,
    Design,
    design_for,
    priced,
    question_oracles,
)
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.frequency import SubsetSelection
from beam_ldp.randomizers.hierarchy import Hierarchy, rare_variance
from beam_ldp.randomizers.questions import Questions

FAN_OUTS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64)
_TUNED = 2
_PLANNED_CELLS = 258  # finer trees are planned with as many cells: the balance hardly moves


def plan_ranges(
    num_users: int,
    bins: Bins,
    epsilon: float | None = None,
    local_epsilon: float | None = None,
    delta: float | None = None,
    honest_fraction: float = 1.0,
    fan_outs: Sequence[int] | None = None,
    designs: Sequence[Design] = DESIGNS,
    max_local_epsilon: float | None = None,
) -> list[Plan]:
    """Trees over these bins, best first: the best oracle of every fan-out and design.

    Under a central target the two best are tuned to it and returned.

    Args:
        num_users: people expected.
        bins: the public bins.
        fan_outs: to choose from; default: from 2 to 64, and the flat histogram.
        others: as in `plan_questions`.

    Raises:
        ValueError: for a target that is none, or that no oracle meets.

    >>> plans = plan_ranges(100_000, Bins.parse("0:100:62"), local_epsilon=1.0)
    >>> plans[0].mechanism, plans[0].tree.fan_out
    ('OneQuestion', 4)
    """
    hidden = hidden_users(check_reports(num_users), honest_fraction)
    check_target(epsilon, local_epsilon, delta, None)
    limit = local_limit(max_local_epsilon)
    # Under a central target the local budget hardly depends on the tree: trees are ranked at the
    # budget that one level of all cells would have, and the first ones tuned exactly.
    budget = local_epsilon
    if budget is None:
        assert epsilon is not None and delta is not None
        cells = bins.count + 2
        budget = local_epsilon_for(epsilon, delta, hidden, lambda e: SubsetSelection(cells, e))
        budget = min(budget, limit)
    rows = _ranked(num_users, hidden, bins, budget, fan_outs or _candidates(bins), designs)
    if epsilon is not None:
        rows = [
            _plan(row.tree, _design(row), type(row.randomizer.oracles[0]), num_users, hidden,
                  (epsilon, None, delta), budget if _design(row) == "all" else limit)
            for row in rows[:_TUNED]
        ]  # fmt: skip
        rows.sort(key=lambda row: row.rms_error)
    if delta is not None:
        rows[0] = priced(rows[0], hidden, delta)
    return rows


def _ranked(
    num_users: int,
    hidden: int,
    bins: Bins,
    local_epsilon: float,
    fan_outs: Sequence[int],
    designs: Sequence[Design],
) -> list[Plan]:
    """The best oracle of every fan-out and design at one local budget, best first."""
    rows: list[Plan] = []
    why = ""
    for fan_out in fan_outs:
        tree = Hierarchy(bins, fan_out)
        levels = len(tree.sizes)
        for design in sorted(designs, key=DESIGNS.index)[: 1 if levels == 1 else None]:
            found = []
            for oracle in question_oracles():
                try:
                    target = (None, local_epsilon, None)
                    found.append(_plan(tree, design, oracle, num_users, hidden, target, math.inf))
                except ValueError as error:
                    why = str(error)
            if found:
                rows.append(min(found, key=lambda row: row.rms_error))
    if not rows:
        raise ValueError(f"no oracle meets this target: {why}")
    return sorted(rows, key=lambda row: row.rms_error)


def _design(row: Plan) -> Design:
    return "one" if row.mechanism == "OneQuestion" else "all"


def _candidates(bins: Bins) -> list[int]:
    """Fan-outs that give different trees, and the flat one."""
    cells = bins.count + 2
    found: dict[tuple[int, ...], int] = {}
    for fan_out in (*FAN_OUTS, cells):
        if fan_out <= cells:
            found.setdefault(Hierarchy(bins, fan_out).sizes, fan_out)
    return list(found.values())


def _plan(
    tree: Hierarchy,
    design: Design,
    oracle: type[Any],
    num_users: int,
    hidden: int,
    target: tuple[float | None, float | None, float | None],
    limit: float,
) -> Plan:
    randomizer = design_for(design, oracle, tree.sizes, hidden, *target, limit)
    rms, worst = range_errors(tree, randomizer, num_users)
    return Plan(
        mechanism=type(randomizer).__name__,
        randomizer=randomizer,
        rms_error=rms,
        worst_error=worst,
        oracle=oracle.__name__,
        tree=tree,
    )


def range_errors(tree: Hierarchy, randomizer: Questions, num_users: int) -> tuple[float, float]:
    """`(root mean square over ranges, largest at an edge)` of the errors after consistency.

    Nodes are taken for independent with the variance of a value that nobody holds, which is what a
    plan without data can know; where each person answers one level, so is the draw of the people,
    for a number spread evenly over the cells.
    """
    shares = [max(1, round(float(share))) for share in randomizer.shares(num_users)]
    noise = [rare_variance(o, n) for o, n in zip(randomizer.oracles, shares)]
    small = _smaller(tree)
    if len(small.sizes) != len(tree.sizes):
        small = tree
    variances = []
    for variance, size, share in zip(noise, small.sizes, shares):
        drawn = 0.0 if share >= num_users else (1 / size) * (1 - 1 / size) / share
        variances.append(variance + drawn)
    matrix, _ = small.least_squares(tuple(variances))
    below = np.cumsum(matrix, axis=0)[:-1]
    scale = np.repeat(np.sqrt(variances), small.sizes)
    factors = below * scale
    own = (factors**2).sum(axis=1)
    # Mean over pairs of ends of |f_i - f_j|^2 = 2 * (mean of |f|^2 - |mean of f|^2).
    count = len(own)
    centre = factors.mean(axis=0)
    spread = 2 * (own.mean() - float(centre @ centre)) * count / max(1, count - 1)
    return math.sqrt(max(spread, 0.0)), math.sqrt(float(own.max()))


def _smaller(tree: Hierarchy) -> Hierarchy:
    """A tree of as many levels over fewer cells, where the tree is large."""
    if tree.num_cells <= _PLANNED_CELLS or len(tree.sizes) == 1:
        return tree
    depth = len(tree.sizes)
    cells = max(_PLANNED_CELLS, tree.fan_out ** (depth - 1) + 1)
    if cells >= tree.num_cells:
        return tree
    return Hierarchy(Bins(tuple(range(cells - 1))), tree.fan_out)
