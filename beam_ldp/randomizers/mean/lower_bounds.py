"""What no mechanism can beat: lower bounds on the error of mean estimation.

Most bounds of the literature hide a constant. Each result says so: `constant_known=False` means
that `value` is the order of the bound with the constant one, fit for scaling plots and for "within
a factor that does not grow", not for a percentage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LowerBound:
    """A lower bound on the worst-case mean squared error.

    Attributes:
        value: in squared units of the data.
        constant_known: whether `value` is the bound itself or its order only.
        source: theorem.
        valid: whether the theorem's conditions on the parameters hold.
    """

    value: float
    constant_known: bool
    source: str
    valid: bool = True


def local_lower_bound(
    dimension: int, local_epsilon: float, num_users: int, p: float = 2.0, radius: float = 1.0
) -> LowerBound:
    """Local model, vectors of the l_p ball.

    Args:
        dimension: coordinates d.
        local_epsilon: local budget of a user.
        num_users: users n.
        p: norm, at least 1; `math.inf` for coordinates in an interval.
        radius: of the ball.

    Source: thesis, Theorems 3.4.3 (p < 2) and 3.6.3 (p >= 2), after Duchi and Rogers 2019.
    """
    _check(dimension, num_users, local_epsilon, radius)
    d, n, eps = dimension, num_users, local_epsilon
    if not p >= 1:
        raise ValueError(f"p must be a number >= 1, got {p}")
    if p < 2:
        value = radius**2 * min(1.0, d / (n * eps**2))
        return LowerBound(value, False, "thesis, Theorem 3.4.3", eps <= 1)
    rate = min(eps, eps**2)
    power = 2 - 2 / p if p < math.inf else 2.0
    return LowerBound(radius**2 * d**power / (n * rate), False, "thesis, Theorem 3.6.3", rate <= d)


def distribution_lower_bound(dimension: int, local_epsilon: float, num_users: int) -> LowerBound:
    """Local model, l1 ball of radius one through distributions on d symbols; known constant.

    Valid for many users. Source: thesis, Theorem 7.3.1: d (E+1)^2/(16 n E (E-1)^2).
    """
    _check(dimension, num_users, local_epsilon, 1.0)
    ratio = math.exp(local_epsilon)
    value = dimension * (ratio + 1) ** 2 / (16 * num_users * ratio * (ratio - 1) ** 2)
    return LowerBound(value, True, "thesis, Theorem 7.3.1", local_epsilon <= 1)


def central_lower_bound(
    dimension: int,
    epsilon: float,
    delta: float,
    num_users: int,
    bits_per_user: float = math.inf,
    radius: float = 1.0,
) -> LowerBound:
    """Central model with `bits_per_user` of communication, Euclidean ball; order only.

    Source: thesis, Theorem 3.6.4, after Chen, Kairouz and Ozgur 2022 and Bun, Ullman and Vadhan
    2014. Conditions: epsilon of order one, n epsilon >= 1, delta below 1/n.
    """
    _check(dimension, num_users, epsilon, radius)
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1), got {delta}")
    if not bits_per_user > 0:
        raise ValueError(f"bits_per_user must be > 0, got {bits_per_user}")
    d, n = dimension, num_users
    privacy = math.log(1 / delta) / epsilon**2
    if bits_per_user >= d:
        rounding = n / d * 4.0 ** -min(bits_per_user / d, 500.0)
    else:
        rounding = n / bits_per_user
    value = radius**2 * d / n**2 * max(privacy, rounding)
    valid = epsilon <= 1 and n * epsilon >= 1 and delta < 1 / n
    return LowerBound(value, False, "thesis, Theorem 3.6.4", valid)


def gaussian_reference(
    dimension: int, gaussian_mu: float, num_users: int, p: float = 2.0, radius: float = 1.0
) -> float:
    """Error of the central Gaussian mechanism of that privacy: not a bound, the honest reference.

    A trusted curator adds noise of standard deviation 2 r/(n mu) (l2) or 2 r sqrt(d)/(n mu)
    (l_inf) per coordinate; `gaussian_mu` comes from `accounting.multi_message.gaussian_mu`.
    """
    _check(dimension, num_users, gaussian_mu, radius)
    if p not in (2.0, math.inf):
        raise ValueError(f"p must be 2 or inf, got {p}")
    sensitivity = 2 * radius * (math.sqrt(dimension) if p == math.inf else 1.0)
    return dimension * (sensitivity / (num_users * gaussian_mu)) ** 2


def _check(dimension: int, num_users: int, epsilon: float, radius: float) -> None:
    if dimension < 1 or num_users < 1:
        raise ValueError("dimension and num_users must be integers >= 1")
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(f"epsilon must be a finite number > 0, got {epsilon}")
    if not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"radius must be a finite number > 0, got {radius}")
