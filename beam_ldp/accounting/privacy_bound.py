"""A privacy figure that says how it was obtained and how far from the truth it can be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


class PrivacyBound(float):
    """A proved upper value of epsilon (or of delta), which is a float, with what stands beside it.

    Attributes:
        lower: What a concrete pair of data sets costs with *this* mechanism: the true value lies
            between `lower` and the float itself. 0.0 where the mechanism offers no such pair.
            May be given as a function that returns it with its `lower_method`, and is called
            when either is first read: it takes longer than the value.
        class_lower: What no analysis can go below that knows the local epsilon alone (shuffled
            binary and ternary randomized response). A mechanism's own value may lie below it.
            May be given as a function, which is called when it is first read: it takes longest.
        method: The method whose value this is.
        proof_status: "proved" or "conjectured".
        lower_method: The pair of data sets behind `lower`, or why there is none.

    >>> bound = PrivacyBound(0.5, lower=0.4, class_lower=0.45, method="clones")
    >>> bound <= 0.5, bound.lower, bound.proof_status
    (True, 0.4, 'proved')
    >>> bound
    PrivacyBound(0.5, lower=0.4, class_lower=0.45, method='clones', proof_status='proved')
    """

    __slots__ = ("_class_lower", "_lower", "method", "proof_status")

    _lower: tuple[float, str] | Callable[[], tuple[float, str]]
    _class_lower: float | Callable[[], float]
    method: str
    proof_status: str

    def __new__(
        cls,
        value: float,
        *,
        lower: float | Callable[[], tuple[float, str]] = 0.0,
        class_lower: float | Callable[[], float] = 0.0,
        method: str = "",
        proof_status: str = "proved",
        lower_method: str = "",
    ) -> PrivacyBound:
        self = super().__new__(cls, value)
        if math.isnan(self) or self < 0.0:
            raise ValueError(f"value must be >= 0, got {float(value)!r}")
        if not callable(class_lower):
            class_lower = _checked(class_lower)
        if proof_status not in ("proved", "conjectured"):
            raise ValueError(
                f"proof_status must be 'proved' or 'conjectured', got {proof_status!r}"
            )
        for name, given in (
            ("_lower", lower if callable(lower) else self._within(lower, lower_method)),
            ("_class_lower", class_lower),
            ("method", method),
            ("proof_status", proof_status),
        ):
            object.__setattr__(self, name, given)
        return self

    @property
    def lower(self) -> float:
        return self._known_lower()[0]

    @property
    def lower_method(self) -> str:
        return self._known_lower()[1]

    def _known_lower(self) -> tuple[float, str]:
        known = self._lower
        if callable(known):
            known = self._within(*known())
            object.__setattr__(self, "_lower", known)
        return known

    def _within(self, lower: float, method: str) -> tuple[float, str]:
        if not 0.0 <= lower <= self:
            raise ValueError(f"lower must be in [0, {float(self)!r}], got {lower!r}")
        return float(lower), method

    @property
    def class_lower(self) -> float:
        known = self._class_lower
        if callable(known):
            known = _checked(known())
            object.__setattr__(self, "_class_lower", known)
        return known

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a PrivacyBound is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a PrivacyBound is immutable: cannot delete {name}")

    def __reduce__(self) -> tuple[Callable[..., PrivacyBound], tuple[float, dict[str, Any]]]:
        return _restore, (float(self), {name: getattr(self, name) for name in _BESIDE})

    def __copy__(self) -> PrivacyBound:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyBound:
        return self

    def __repr__(self) -> str:
        return (
            f"PrivacyBound({float(self)!r}, lower={self.lower!r}, "
            f"class_lower={self.class_lower!r}, method={self.method!r}, "
            f"proof_status={self.proof_status!r})"
        )

    def __str__(self) -> str:
        return float.__repr__(self)


_BESIDE = ("lower", "class_lower", "method", "proof_status", "lower_method")


def _checked(class_lower: float) -> float:
    if not class_lower >= 0.0:
        raise ValueError(f"class_lower must be >= 0, got {class_lower!r}")
    return float(class_lower)


def _restore(value: float, beside: dict[str, Any]) -> PrivacyBound:
    return PrivacyBound(value, **beside)
