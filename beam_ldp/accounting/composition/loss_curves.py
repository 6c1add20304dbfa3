"""The privacy curve, losses and Rényi divergences of one shuffled release.

Nothing about the mechanism enters but its pair. `report_curves` and `sampled_curves` say what its
hockey sticks are computed by, `curve_losses` what losses follow from them.
"""

from __future__ import annotations

from functools import lru_cache

import attr
import numpy as np

from beam_ldp.accounting.composition.curve_losses import (
    deviation_of,
    divergences_of,
    fine_sticks,
    grid_of,
    sticks,
)
from beam_ldp.accounting.composition.report_curves import Curve, OwnEvent, one_report
from beam_ldp.accounting.composition.sampled_curves import (
    HOPELESS,
    SampledCurve,
    columns_curve,
    in_columns,
    message_columns,
    points_curve,
)
from beam_ldp.accounting.divergences.loss_grid import LossGrid
from beam_ldp.accounting.reports import (
    LocalReports,
    SampledReports,
    ShuffledMessages,
    ShuffledReports,
)
from beam_ldp.accounting.shuffle.mean_price import bounded_messages, l2_messages_rdp

_MOST_TOGETHER = 600.0  # of several messages: whose products fit a double


def alone(event: LocalReports) -> list[tuple[int, ShuffledReports]]:
    """The reports of one person as batches of nobody else."""
    if event.columns:
        return message_columns(ShuffledMessages(event.columns, 1))
    return [(1, ShuffledReports(attr.evolve(event, messages=1), 1))]


def hopeless(event: OwnEvent) -> bool:
    """Whether no crowd hides a report, or it tells more than is computed."""
    return event.local_epsilon > (_MOST_TOGETHER if in_columns(event) else HOPELESS)


def loss_deviation(event: OwnEvent) -> float:
    """Standard deviation of one release's privacy loss, for large crowds. Sets the grid."""
    return deviation_of(_curve(event))


def loss_grid(event: OwnEvent) -> LossGrid:
    """The losses of one release, for compositions."""
    return grid_of(_curve(event), lambda step: _sticks(event, step))


@lru_cache(maxsize=256)
def _sticks(event: OwnEvent, step: float) -> tuple[np.ndarray, np.ndarray]:
    return sticks(_curve(event), step)


def messages_divergences(event: ShuffledMessages, orders: np.ndarray) -> np.ndarray:
    """Upper bounds of the Rényi divergence of all columns together, at each real order above one.

    Where the length of vectors is known, it bounds how far a person's messages can change at once.
    """
    total = np.zeros(len(orders))
    for count, column in message_columns(event):
        total += count * renyi_divergences(column, orders)
    if event.squared_change is None:
        return total
    messages = bounded_messages(event)
    known = orders >= 2
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is no bound
        bounded = [
            l2_messages_rdp(messages, event.num_reports, float(order)) for order in orders[known]
        ]
    total[known] = np.fmin(total[known], bounded)
    return total


def renyi_divergences(event: OwnEvent, orders: np.ndarray) -> np.ndarray:
    """Upper bounds of the Rényi divergence at each real order above one.

    Taken from a distribution that is no better than the release, on its own fine grid.
    """
    return divergences_of(_curve(event), _fine_sticks(event), orders)


@lru_cache(maxsize=256)
def _fine_sticks(event: OwnEvent) -> tuple[np.ndarray, np.ndarray]:
    return fine_sticks(_curve(event))


def _curve(event: OwnEvent) -> Curve | SampledCurve:
    """What the hockey sticks of a release are computed by."""
    if isinstance(event, SampledReports):
        if in_columns(event):
            return columns_curve(event)
        if event.points_sampled > 1:
            return points_curve(event)
    return one_report(event)
