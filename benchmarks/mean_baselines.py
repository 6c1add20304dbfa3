"""Other people's mechanisms for means, as formulas: what the figures compare ours with.

One report per user on [-radius, radius] (or its cube), worst value unless said otherwise.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy import optimize

from beam_ldp.accounting import local_epsilon_for
from beam_ldp.accounting.divergences.moments import rdp_to_epsilon
from beam_ldp.accounting.divergences.shuffle_rdp import thesis_upper_1
from beam_ldp.accounting.shuffle.multi_message import gaussian_mu, witness_epsilon
from beam_ldp.randomizers.mean import PrivUnit
from beam_ldp.randomizers.mean.allocation import level_weights
from beam_ldp.randomizers.mean.scalar_mean import laplace_variance, piecewise_variance
from beam_ldp.research.published.renyi import two_response_lower

ORDERS = np.unique(np.concatenate([np.arange(2, 65), np.geomspace(65, 2000, 40).astype(int)]))


def laplace(epsilon: float, radius: float = 1.0) -> float:
    """Laplace noise (Dwork, McSherry, Nissim and Smith 2006)."""
    return laplace_variance(epsilon, 2 * radius)


def staircase(epsilon: float, radius: float = 1.0) -> float:
    """The additive noise of least variance (Geng and Viswanath 2014)."""
    b = math.exp(-epsilon)
    return (2 * radius) ** 2 * ((b * (1 + b) / 2) ** (2 / 3) + b) / (1 - b) ** 2


def duchi(epsilon: float, radius: float = 1.0) -> float:
    """One bit, +-coth(epsilon/2) (Duchi, Jordan and Wainwright 2018); worst at the centre."""
    return (radius / math.tanh(epsilon / 2)) ** 2


def piecewise(epsilon: float, radius: float = 1.0) -> float:
    """The piecewise mechanism (Wang et al. 2019); worst at the ends."""
    return radius**2 * piecewise_variance(epsilon, 1.0)


def piecewise_vector(dimension: int, epsilon: float, radius: float = 1.0) -> float:
    """The multidimensional one: k = max(1, floor(eps/2.5)) coordinates of epsilon/k each."""
    k = max(1, min(dimension, math.floor(epsilon / 2.5)))
    second = piecewise_variance(epsilon / k, 1.0) + 1
    return dimension * radius**2 * (dimension / k * second - 1)


@cache
def single_message_epsilon(epsilon: float, delta: float, num_users: int) -> float:
    """Local epsilon of one report whose shuffle costs (epsilon, delta): numerical clones."""
    return float(local_epsilon_for(epsilon, delta, num_users))


def shuffled_laplace(epsilon: float, delta: float, num_users: int, radius: float) -> float:
    """SMS of the text: one Laplace report per user, amplified by clones."""
    return laplace(single_message_epsilon(epsilon, delta, num_users), radius) / num_users


def shuffled_priv_unit(dimension: int, epsilon: float, delta: float, num_users: int) -> float:
    """The same with PrivUnit on the unit sphere."""
    local = single_message_epsilon(epsilon, delta, num_users)
    return PrivUnit(dimension, local, inputs="sphere").mean_squared_error(num_users)


# Budgets of two-response messages, by other accountants than ours ----------------------------


def printed_shape(num_levels: int) -> np.ndarray:
    """f_k of the text: proportional to the cube root of the squared weights, with sum one."""
    shape: np.ndarray = level_weights(num_levels) ** (2 / 3)
    return shape / shape.sum()


def printed_budgets(num_levels: int, epsilon: float, delta: float, num_users: int) -> np.ndarray:
    """Theorem 3.5.2 as printed, with its constant 144, for one message per level."""
    v = math.sqrt(num_users * min(epsilon, epsilon**2) / (144 * math.log(1 / delta)))
    return budgets_of(v * printed_shape(num_levels))


def text_budgets(
    shape: np.ndarray, epsilon: float, delta: float, num_users: int, columns: int = 1
) -> np.ndarray:
    """Calibrated by Theorem 5.3.1 and the conversion of Renyi divergence, as the figures are."""

    def price(budgets: np.ndarray) -> float:
        rdp = [
            columns * sum(thesis_upper_1(int(a), float(e), num_users) for e in budgets)
            for a in ORDERS
        ]
        return rdp_to_epsilon(ORDERS, rdp, delta)[0]

    return _calibrated(shape, epsilon, price)


def exact_pair_budgets(
    shape: np.ndarray, epsilon: float, delta: float, num_users: int, columns: int = 1
) -> np.ndarray:
    """Calibrated to one concrete pair of data sets (all others alike): what no proof can beat."""

    def price(budgets: np.ndarray) -> float:
        flip = 1 / (1 + np.exp(budgets))
        return witness_epsilon(
            tuple((columns, float(1 - p), float(p)) for p in flip), num_users, delta
        )

    return _calibrated(shape, epsilon, price)


def exact_rdp_budgets(
    shape: np.ndarray, epsilon: float, delta: float, num_users: int, columns: int = 1
) -> np.ndarray:
    """The same pair by its Renyi divergence."""

    def price(budgets: np.ndarray) -> float:
        rdp = [
            columns * sum(two_response_lower(float(a), float(e), num_users) for e in budgets)
            for a in ORDERS
        ]
        return rdp_to_epsilon(ORDERS, rdp, delta)[0]

    return _calibrated(shape, epsilon, price)


def budgets_of(noise: np.ndarray) -> np.ndarray:
    """Message epsilons of the noise parameters x = 2 sinh(e/2)."""
    return np.asarray(2 * np.arcsinh(noise / 2))


def _calibrated(shape: np.ndarray, epsilon: float, price: object) -> np.ndarray:
    def excess(log_scale: float) -> float:
        return price(budgets_of(math.exp(log_scale) * shape)) - epsilon  # type: ignore[operator]

    root = optimize.brentq(excess, math.log(1e-3), math.log(60.0), xtol=1e-3)
    return budgets_of(math.exp(root) * shape)


def central_gaussian(
    dimension: int, epsilon: float, delta: float, num_users: int, sensitivity: float
) -> float:
    """Gaussian noise of a trusted curator on a mean; `sensitivity` is that of the sum."""
    return dimension * (sensitivity / (num_users * gaussian_mu(epsilon, delta))) ** 2
