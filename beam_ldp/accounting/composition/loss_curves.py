"""The privacy curve, losses and Rényi divergences of one shuffled release.

Nothing about the mechanism enters but its pair. `report_curves` and `sampled_curves` say what its
hockey sticks are computed by, `curve_losses` what losses follow from them.
"""

from __future__ import annotations

from functools import lru_cache

import attr
import numpy as np

from beam_ldp.accounting.composition.sampled_curves import (
    HOPELESS,
    SampledCurve,
    columns_curve,
    columns_divergences,
    in_columns,
    message_columns,
    points_curve,
)
from beam_ldp.accounting.divergences.curve_losses import (
    deviation_of,
    divergences_of,
    fine_sticks,
    grid_of,
    sticks,
)
from beam_ldp.accounting.divergences.loss_grid import LossGrid
from beam_ldp.accounting.reports import (
    LocalReports,
    SampledReports,
    ShuffledReports,
)
from beam_ldp.accounting.shuffle.report_curves import (
    BitCurve,
    OwnEvent,
    ReportCurve,
    event_curve,
)

_MOST_TOGETHER = 600.0  # of several messages: whose products fit a double


def alone(event: LocalReports) -> list[tuple[int, ShuffledReports]]:
    """The reports of one person as batches of nobody else."""
    if event.columns:
        return message_columns(event.in_columns(1))
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


def renyi_divergences(event: OwnEvent, orders: np.ndarray) -> np.ndarray:
    """Upper bounds of the Rényi divergence at each real order above one.

    Taken from a distribution that is no better than the release, on its own fine grid.
    """
    found = divergences_of(_curve(event), _fine_sticks(event), orders)
    if isinstance(event, SampledReports) and in_columns(event):
        found = np.minimum(found, columns_divergences(event, orders))
    return found


@lru_cache(maxsize=256)
def _fine_sticks(event: OwnEvent) -> tuple[np.ndarray, np.ndarray]:
    return fine_sticks(_curve(event))


def _curve(event: OwnEvent) -> ReportCurve | BitCurve | SampledCurve:
    """What the hockey sticks of a release are computed by."""
    if isinstance(event, SampledReports):
        if in_columns(event):
            return columns_curve(event)
        if event.points_sampled > 1:
            return points_curve(event)
    return event_curve(event)
