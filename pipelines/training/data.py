"""The clients of a training, from named data or from files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from beam_ldp.pipelines.jobs.watch import JobError
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.training.facts import DataFacts, bundled_facts
from beam_ldp.pipelines.training.settings import TrainSettings
from tff_adapters.data import BadRowsError, Clients, DataMissingError, load, load_files


def load_clients(settings: TrainSettings) -> tuple[Clients, DataFacts]:
    """The clients' data, and what is public of it.

    Raises:
        UsageError: if it cannot be had, or is not as described.
    """
    try:
        if settings.bundled:
            clients = load(settings.data, settings.points_per_client)
            if settings.shards_per_client is not None:
                clients = in_shards(clients, settings.shards_per_client)
        else:
            clients = _from_files(settings, settings.data)
    except (ValueError, DataMissingError) as error:
        bad = isinstance(error, BadRowsError)
        hint = str(error).replace('bad_rows="drop"', "--bad-rows drop") if bad else str(error)
        raise UsageError(f"--data: {hint}") from None
    num_test = 0 if clients.test_labels is None else len(clients.test_labels)
    facts = DataFacts(
        clients.num_clients,
        settings.points_per_client,
        clients.shape,
        clients.num_classes,
        num_test,
    )
    if settings.bundled:
        expected = bundled_facts(settings.data, settings.points_per_client)
        if facts != expected:
            raise JobError(f"{settings.data} is not as expected: {facts} instead of {expected}")
    return clients, facts


def _from_files(settings: TrainSettings, path: str) -> Clients:
    assert settings.label is not None and settings.classes is not None
    how: dict[str, Any] = dict(
        features=settings.features,
        label=settings.label,
        num_classes=settings.classes,
        shape=settings.shape,
        scale=settings.scale,
        bad_rows=settings.bad_rows,
    )
    clients = load_files(
        path, client_id=settings.client_id, points_per_client=settings.points_per_client, **how
    )
    if settings.test_data is None:
        return clients
    # Public examples: whose they are does not matter.
    test = load_files(settings.test_data, client_id=settings.client_id, **how)
    if test.shape != clients.shape:
        raise ValueError("--test-data has examples of another shape")
    return Clients(
        clients.name,
        clients.features,
        clients.labels,
        clients.num_classes,
        np.concatenate(test.features),
        np.concatenate(test.labels),
        clients.left_out,
    )


def in_shards(clients: Clients, shards: int) -> Clients:
    """The same examples dealt out anew: sorted by label, cut, `shards` pieces for every client.

    A client then holds about so many labels. The deal is the same in every run.
    """
    count, points = clients.num_clients, clients.points_per_client
    features, labels = np.concatenate(clients.features), np.concatenate(clients.labels)
    order = np.argsort(labels, kind="stable")[: count * points]
    pieces = order.reshape(count * shards, points // shards)
    generator = np.random.default_rng(0)
    dealt = generator.permutation(pieces).reshape(count, points)
    dealt = generator.permuted(dealt, axis=1)  # so that every batch has all of them
    return replace(clients, features=list(features[dealt]), labels=list(labels[dealt]))
