"""A mechanism from its name and the size of what it reports about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beam_ldp.pipelines.nearest import nearest
from beam_ldp.randomizers import frequency, mean
from beam_ldp.randomizers.base import LocalRandomizer


def _classes(module: Any) -> list[str]:
    """Names that are mechanisms and not tools."""
    named = ((name, getattr(module, name)) for name in module.__all__)
    return [n for n, c in named if isinstance(c, type) and issubclass(c, LocalRandomizer)]


FREQUENCY_NAMES = _classes(frequency)
MEAN_NAMES = _classes(mean)


def mechanism_builder(
    name: str, domain_size: int | None, dimension: int | None
) -> Callable[[float], LocalRandomizer]:
    """What makes the mechanism of a local epsilon.

    Args:
        name: Class name of a frequency oracle or of a mean mechanism.
        domain_size: Values, for a frequency oracle.
        dimension: Coordinates, for a mean mechanism.

    Raises:
        ValueError: If there is none of that name, or its size is missing.

    >>> mechanism_builder("SubsetSelection", 1000, None)(2.0).domain_size
    1000
    >>> mechanism_builder("SubsetSelction", 1000, None)
    Traceback (most recent call last):
    ValueError: --mechanism SubsetSelction is unknown (did you mean SubsetSelection?)
    """
    if name in FREQUENCY_NAMES:
        size, flag = domain_size, "--domain-size"
    elif name in MEAN_NAMES:
        size, flag = dimension, "--dimension"
    else:
        hint = nearest(name, FREQUENCY_NAMES + MEAN_NAMES)
        listed = "" if hint else f"; choose one of {', '.join(FREQUENCY_NAMES + MEAN_NAMES)}"
        raise ValueError(f"--mechanism {name} is unknown{hint}{listed}")
    if size is None:
        raise ValueError(f"--mechanism {name} needs {flag}")
    if (domain_size if flag == "--dimension" else dimension) is not None:
        raise ValueError(f"--mechanism {name} takes {flag} only")
    kind = getattr(frequency if name in FREQUENCY_NAMES else mean, name)

    def build(local_epsilon: float) -> LocalRandomizer:
        try:
            made: LocalRandomizer = kind(size, local_epsilon)
        except TypeError as error:
            raise ValueError(f"--mechanism {name}: {error}") from None
        return made

    return build
