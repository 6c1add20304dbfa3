"""The clients of a training, as TensorFlow Federated takes them, and what is public of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from beam_ldp.release.job_monitor import JobError
from beam_ldp.settings import SettingError
from beam_ldp.training.facts import DataFacts, known_facts
from beam_ldp.training.settings import TrainSettings
from tff_adapters.data import Clients, DataMissingError, load, load_idx
from tff_adapters.files import BadRowsError, load_files


def load_clients(settings: TrainSettings) -> tuple[Clients, DataFacts]:
    """The clients' data, and what is public of it.

    Raises:
        SettingError: if it cannot be had, or is not as described.
    """
    try:
        if settings.dealt:
            clients = _dealt(settings)
        else:
            clients = _from_files(settings, settings.question.data)
    except (ValueError, DataMissingError) as error:
        bad = isinstance(error, BadRowsError)
        hint = str(error).replace('bad_rows="drop"', "--bad-rows drop") if bad else str(error)
        raise SettingError(f"--data: {hint}") from None
    num_test = 0 if clients.test_labels is None else len(clients.test_labels)
    facts = DataFacts(
        clients.num_clients,
        settings.question.points_per_client,
        clients.shape,
        clients.num_classes,
        num_test,
    )
    if settings.dealt:
        expected = known_facts(settings)
        if facts != expected:
            raise JobError(
                f"{settings.question.data} is not what was expected: {facts} instead of {expected}"
            )
    return clients, facts


def _dealt(settings: TrainSettings) -> Clients:
    """Images of a name or of a folder of IDX files."""
    question = settings.question
    if settings.bundled:
        clients = load(question.data, question.points_per_client)
    else:
        clients = load_idx(question.data, question.points_per_client, settings.num_classes)
    if question.shards_per_client is None:
        return clients
    return in_shards(clients, question.shards_per_client)


def _from_files(settings: TrainSettings, path: str) -> Clients:
    assert settings.question.label is not None
    how: dict[str, Any] = dict(
        features=settings.question.features,
        label=settings.question.label,
        num_classes=settings.num_classes,
        shape=settings.shape,
        scale=settings.question.scale,
        bad_rows=settings.question.bad_rows,
    )
    clients = load_files(
        path,
        client_id=settings.question.client_id,
        points_per_client=settings.question.points_per_client,
        **how,
    )
    if settings.question.test_data is None:
        return clients
    # Public examples: whose they are does not matter.
    test = load_files(settings.question.test_data, client_id=settings.question.client_id, **how)
    if test.shape != clients.shape:
        raise ValueError("--test-data has examples of another shape")
    return replace(
        clients,
        test_features=np.concatenate(test.features),
        test_labels=np.concatenate(test.labels),
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
