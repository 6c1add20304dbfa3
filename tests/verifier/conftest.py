"""Statements that the accountant makes, with their certificates; made once: tests change copies."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from beam_ldp.verifier import verify as verifier
from tests import confirmed
from tests.made_once import MadeOnce
from tests.verifier.mutants import Kind
from tests.verifier.mutants import kinds as every_kind
from tests.verifier.statements import compositions, events, samples, statement


@pytest.fixture(autouse=True)
def sums_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier as it is; what these fixtures make may be remembered (`tests.confirmed`)."""
    for name in confirmed.SUMS:
        monkeypatch.setattr(verifier, name, inspect.unwrap(getattr(verifier, name)))


@pytest.fixture(scope="session")
def statements(made_once: MadeOnce) -> list[dict[str, Any]]:
    return made_once.made("statements", lambda: [statement(*release) for release in events(30)])


@pytest.fixture(scope="session")
def kinds(made_once: MadeOnce) -> list[Kind]:
    return made_once.made("kinds of statements", every_kind)


@pytest.fixture(scope="session")
def composed(kinds: list[Kind]) -> dict[str, dict[str, Any]]:
    names = {name for name, _, _ in compositions()}
    return {kind.name: kind.told for kind in kinds if kind.name in names}


@pytest.fixture(scope="session")
def sampled(kinds: list[Kind]) -> dict[str, dict[str, Any]]:
    names = {name for name, _, _ in samples()}
    return {kind.name: kind.told for kind in kinds if kind.name in names}
