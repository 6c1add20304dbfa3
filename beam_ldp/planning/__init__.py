"""Which mechanism, at which local budget, with what error: decided before any data is read."""

from typing import TYPE_CHECKING, Any

from beam_ldp.planning.frequencies import plan_frequencies, recommend
from beam_ldp.planning.plan import Plan

if TYPE_CHECKING:
    from beam_ldp.planning.means import plan_means, recommend_mean

__all__ = [
    "Plan",
    "plan_frequencies",
    "plan_means",
    "recommend",
    "recommend_mean",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from beam_ldp.planning import means  # its mechanisms take a while; frequencies do without

    return getattr(means, name)


def __dir__() -> list[str]:
    return sorted(__all__)
