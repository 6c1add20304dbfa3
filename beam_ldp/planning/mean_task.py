"""What a plan of means is asked for: the ball, the target, the limits, and what to compare with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from beam_ldp.accounting.shuffle.multi_message import gaussian_mu
from beam_ldp.randomizers.mean import lower_bounds
from beam_ldp.randomizers.mean.balls import Norm

_POWERS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}


@dataclass(frozen=True)
class MeanTask:
    """Exactly one of `epsilon` (central, with `delta`) and `local_epsilon` is not None.

    Attributes:
        num_users: Users whose mean is estimated.
        hidden: Users who hide each other; 1 in the local model.
        dimension: Coordinates per vector.
        norm: Of the ball that vectors lie in, by name or as the p of an l_p norm.
        radius: Of that ball.
        epsilon: Central target.
        local_epsilon: Local budget.
        delta: Of the central target, or of the price of a local budget.
        max_bits: Most bits per user; infinite if there is no limit.
        max_local_epsilon: Largest local budget; infinite if there is no limit.
    """

    num_users: int
    hidden: int
    dimension: int
    norm: Norm | float
    radius: float
    epsilon: float | None
    local_epsilon: float | None
    delta: float | None
    max_bits: float
    max_local_epsilon: float

    def __post_init__(self) -> None:
        if isinstance(self.norm, str):
            if self.norm not in (*_POWERS, "binary"):
                raise ValueError(
                    f'norm must be "l2", "l1", "linf", "binary" or a number >= 1, got {self.norm!r}'
                )
        elif not self.norm >= 1:
            raise ValueError(f"norm must be a name or a number >= 1, got {self.norm!r}")
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise ValueError(f"radius must be a finite number > 0, got {self.radius!r}")
        if self.norm == "binary" and self.radius != 1.0:
            raise ValueError(f"radius must be 1 for binary vectors, got {self.radius!r}")

    @property
    def power(self) -> float:
        """The p of the norm; binary vectors are corners of a cube."""
        return _POWERS.get(self.norm, math.inf) if isinstance(self.norm, str) else float(self.norm)

    def enclosing(self) -> list[tuple[Norm, float]]:
        """Balls, with their radius, that hold the ball and have mechanisms of their own."""
        p, d, r = self.power, self.dimension, self.radius
        if self.norm == "binary":
            return [("binary", 1.0)]
        if p == 2:
            return [("l2", r)]
        if p < 2:
            return [("l1", r * d ** (1 - 1 / p)), ("l2", r)]
        return [("linf", r), ("l2", r * d ** (0.5 - 1 / p))]

    def enclosed(self) -> list[tuple[Norm, float]]:
        """Balls inside the ball whose best possible error is known."""
        p, d, r = self.power, self.dimension, self.radius
        if self.norm == "binary":
            return [("binary", 1.0)]
        return [("l1", r), ("l2", r * d ** min(0.0, 0.5 - 1 / p)), ("linf", r * d ** (-1 / p))]

    def reference(self) -> tuple[float, str]:
        """The mean squared error to compare with, and what it is.

        With a local budget a proved lower bound; with a central target the error of a trusted
        curator who adds Gaussian noise, or Laplace noise in few dimensions. That is no bound.
        """
        d, n = self.dimension, self.num_users
        if self.local_epsilon is not None:
            bounds = [
                lower_bounds.unbiased_local_bound(d, self.local_epsilon, n, norm, radius)
                for norm, radius in self.enclosed()
            ]
            value = max(bound.value for bound in bounds)
            return value, "the proved bound of unbiased local mechanisms"
        assert self.epsilon is not None and self.delta is not None
        mu = gaussian_mu(self.epsilon, self.delta)
        radius = 0.5 if self.norm == "binary" else self.radius
        value = min(
            lower_bounds.gaussian_reference(d, mu, n, self.power, radius),
            lower_bounds.laplace_reference(d, self.epsilon, n, self.power, radius),
        )
        return value, "a trusted curator's Gaussian or Laplace noise (a reference, not a bound)"
