"""What clients may tell about themselves besides their updates: nothing."""

from __future__ import annotations

from typing import Any

from tff_adapters.compat import language


def no_client_metrics(metric_finalizers: Any, local_metrics_type: Any = None) -> Any:
    """A `metrics_aggregator` for `tff.learning.algorithms` that lets no metric leave a client.

    By default learning processes of TensorFlow Federated sum the exact loss, accuracy and number
    of examples of every client, which no privacy budget covers. Evaluate the model on public data
    instead, or price what you release.
    """
    del metric_finalizers, local_metrics_type

    @language.federated_computation
    def nothing(client_metrics: Any) -> Any:
        del client_metrics
        return language.federated_value((), language.SERVER)

    return nothing
