"""What leaves clients in a round of training, as whoever reads the computation tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

OURS, COUNT, PUBLIC, UNPRICED = "ours", "count", "public", "unpriced"


class UnpricedFlowError(ValueError):
    """Something leaves clients that nothing prices and nobody declared public."""


@dataclass(frozen=True)
class Flow:
    """One thing that leaves clients.

    Attributes:
        name: aggregation and what of a client it depends on; what `public_flows` declares.
        aggregation: how it comes to the server, in the framework's words.
        type: of what one client sends.
        verdict: "ours", "count", "public" or "unpriced".
        protection: what was done to it on the client, or the reason why it is public.
    """

    name: str
    aggregation: str
    type: str
    verdict: str
    protection: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def refuse_unpriced(flows: Sequence[Flow]) -> None:
    """Refuse flows that nothing prices.

    Raises:
        UnpricedFlowError: naming each of them.
    """
    unpriced = [flow for flow in flows if flow.verdict == UNPRICED]
    if unpriced:
        told = "; ".join(f"{flow.name}, of type {flow.type}" for flow in unpriced)
        raise UnpricedFlowError(
            "what leaves clients must be accounted for or declared public, and this is neither: "
            f"{told}. Leave it out (metrics_aggregator=tff_adapters.no_client_metrics, an "
            f"aggregator of tff_adapters), or give public_flows={{name: reason}}"
        )
