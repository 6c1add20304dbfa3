"""What no mechanism can beat: lower bounds on the error of mean estimation.

Most bounds of the literature hide a constant. Each result says so: `constant_known=False` means
that `value` is the order of the bound with the constant one, fit for scaling plots and for "within
a factor that does not grow", not for a percentage. `unbiased_local_bound` has its constant, and is
attained by `PrivUnit` on the sphere and, up to eps = log 3, by one message of `L1Mean` and
`LInfMean`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from beam_ldp.randomizers.checks import check_fraction, check_positive
from beam_ldp.randomizers.mean.base import Norm
from beam_ldp.randomizers.spherical_caps import SphericalCap, expit, optimal_threshold


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


def unbiased_local_bound(
    dimension: int, local_epsilon: float, num_users: int, norm: Norm = "l2", radius: float = 1.0
) -> LowerBound:
    """What no unbiased, non-interactive protocol of `local_epsilon`-private reports goes below.

    Take x at random from the ball, symmetric about zero, with E|x|^2 = s; let M be the largest
    E[w(x) <x, v>] over unit vectors v and densities w of mean one with max w <= e^eps min w. Given
    a report y of one user, the law of x has such a density against its prior. So a decoder z(y)
    with E[z | x] = x has s = E<z, x> <= M E|z|, and error E|z|^2 - s >= s^2/M^2 - s. For n users
    with independent x_i the first-order terms E[z | y_i] of an unbiased estimate are orthogonal
    and each has mean x_i/n: the mean over all data, hence the worst case, is at least
    (s^2/M^2 - s)/n. Public randomness changes nothing (Jensen).

    * "l2", x uniform on the sphere: M is PrivUnit's marginal, its error is attained (Asi, Feldman
      and Talwar 2022 prove this case).
    * "linf" and "binary", x a uniform corner: <x, v> is a sum of random signs. M is at most what
      the second moment allows (tanh(eps/2) up to eps = log 3, where one message of `LInfMean`
      attains it, then sqrt((e^eps - 1)/8)) and what the sub-Gaussian tail allows,
      sqrt(2 (a - 1 - log a)) with a = eps/(1 - e^-eps), the largest divergence of w.
    * "l1", x a uniform vertex: M is the largest (e^eps - 1) sqrt(k)/(2d + (e^eps - 1) k), attained
      by `L1Mean` up to eps = log 3.

    Source: our own derivation.

    >>> unbiased_local_bound(1000, 1.0, 1, "linf").value / 1000**2 * math.tanh(0.5) ** 2 > 0.999
    True
    """
    _check(dimension, num_users, local_epsilon, radius)
    d = dimension
    square = float(d) if norm in ("linf", "binary") else 1.0
    marginal = {"l2": _sphere, "l1": _vertices, "linf": _corners, "binary": _corners}[norm]
    error = square**2 / marginal(d, local_epsilon) ** 2 - square
    scale = 0.5 if norm == "binary" else radius
    source = f"optimum of unbiased local mechanisms, {norm} ball"
    return LowerBound(scale**2 * max(0.0, error) / num_users, True, source)


def _sphere(dimension: int, epsilon: float) -> float:
    return optimal_threshold(dimension, epsilon) if dimension > 1 else math.tanh(epsilon / 2)


def _vertices(dimension: int, epsilon: float) -> float:
    gain = math.expm1(epsilon)
    best = min(float(dimension), 2 * dimension / gain)
    counts = {max(1, math.floor(best)), min(dimension, math.ceil(best))}
    return max(gain * math.sqrt(k) / (2 * dimension + gain * k) for k in counts)


def _corners(dimension: int, epsilon: float) -> float:
    contrast = math.tanh(epsilon / 2)
    second_moment = contrast if epsilon <= math.log(3) else math.sqrt(math.expm1(epsilon) / 8)
    a = epsilon / -math.expm1(-epsilon)
    divergence = a - 1 - math.log(a) if epsilon > 1e-4 else epsilon**2 / 8
    return min(second_moment, math.sqrt(2 * divergence), math.sqrt(dimension) * contrast)


def distribution_lower_bound(dimension: int, local_epsilon: float, num_users: int) -> LowerBound:
    """Local model, l1 ball of radius one through distributions on d symbols; known constant.

    Whatever the reports and their estimator, biased or not, some distribution over the d unit
    vectors, from which every user's is drawn, is missed by at least this squared error. The root
    of the error about the mean of the *users* themselves is at most 1/sqrt(n) lower. Users report
    once; what is asked may depend on earlier reports. Holds for every n and epsilon.

    For d = 2m let p_j = 1/d + t_j, p_(j+m) = 1/d - t_j with independent t_j of the density
    d cos^2(pi d t/2) on [-1/d, 1/d], whose information is pi^2 d^2. That of one report about t_j
    is the sum of (Q_j - Q_(j+m))^2/Q over reports, at most 4 E tanh^2(eps/2): the difference is at
    most tanh(eps/2) times the sum of both, which is at most 2 E Q and adds up to 2. By van Trees'
    inequality t_j is missed by 1/(4 n E tanh^2(eps/2) + pi^2 d^2) at least, twice in every pair, so

        error >= d / (4 n E tanh^2(eps/2) + pi^2 d^2).

    Odd d leave a symbol out. Many users: four times the bound d (E+1)^2/(16 n E (E-1)^2) of the
    thesis (Theorem 7.3.1), which is none for few users (107.7 for one, d = 1000, epsilon 1).

    Source: our own derivation.

    >>> round(distribution_lower_bound(1000, 1.0, 1).value, 6)
    0.000101
    """
    _check(dimension, num_users, local_epsilon, 1.0)
    symbols = dimension - dimension % 2
    contrast = math.tanh(local_epsilon / 2)
    if not symbols:
        return LowerBound(0.0, True, "one symbol")
    log_report = local_epsilon + 2 * math.log(contrast) + math.log(4 * num_users)
    with_prior = math.exp(min(log_report, 700.0)) + (math.pi * symbols) ** 2
    return LowerBound(symbols / with_prior, True, "van Trees, cosine prior")


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
    check_fraction("delta", delta)
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

    A trusted curator adds noise of standard deviation 2 r/(n mu) per coordinate, r the Euclidean
    radius of the l_p ball: `radius` for p <= 2, radius d^(1/2 - 1/p) beyond. `gaussian_mu` comes
    from `accounting.shuffle.multi_message.gaussian_mu`.
    """
    _check(dimension, num_users, gaussian_mu, radius)
    if not p >= 1:
        raise ValueError(f"p must be a number >= 1, got {p}")
    stretch = dimension ** (0.5 - 1 / p) if p > 2 else 1.0
    return dimension * (2 * radius * stretch / (num_users * gaussian_mu)) ** 2


def laplace_reference(
    dimension: int, epsilon: float, num_users: int, p: float = 2.0, radius: float = 1.0
) -> float:
    """Error of the better central Laplace mechanism: not a bound, the reference for few dimensions.

    Noise of density exp(-epsilon |z|/diameter), |z| the Euclidean norm (mean squared length
    d (d + 1) diameter^2/epsilon^2) or, for the l1 ball, the l1 norm (2 d diameter^2/epsilon^2).
    """
    _check(dimension, num_users, epsilon, radius)
    stretch = dimension ** (0.5 - 1 / p) if p > 2 else 1.0
    square = dimension * (dimension + 1) * (2 * radius * stretch / (num_users * epsilon)) ** 2
    by_l1 = dimension ** (1 - 1 / p)  # the l1 radius of the ball
    return min(square, 2 * dimension * (2 * radius * by_l1 / (num_users * epsilon)) ** 2)


def _check(dimension: int, num_users: int, epsilon: float, radius: float) -> None:
    if dimension < 1 or num_users < 1:
        raise ValueError("dimension and num_users must be integers >= 1")
    check_positive("epsilon", epsilon)
    check_positive("radius", radius)


# Errors of older mechanisms on a unit vector, one report: for comparison and planning -----


def hemisphere_error(dimension: int, epsilon: float, copies: int = 1) -> float:
    """PrivHS on a unit vector (Duchi, Jordan and Wainwright); the mean of copies at eps/copies."""
    cap = SphericalCap(dimension, 0.0)
    marginal = cap.expected_marginal(expit(epsilon / copies))
    return (1 / marginal**2 - 1) / copies


def repeated_hemisphere_error(dimension: int, epsilon: float) -> float:
    """RePrivHS with the best number of copies (Feldman and Talwar 2021)."""
    return min(hemisphere_error(dimension, epsilon, k) for k in range(1, 2 + math.ceil(epsilon)))
