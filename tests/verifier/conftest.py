"""Statements that the accountant makes, with their certificates; made once: tests change copies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.verifier.mutants import Kind
from tests.verifier.mutants import kinds as every_kind
from tests.verifier.statements import compositions, events, samples, statement


@pytest.fixture(scope="session")
def statements() -> list[dict[str, Any]]:
    return [statement(event, delta) for event, delta in events(30)]


@pytest.fixture(scope="session")
def kinds() -> list[Kind]:
    return every_kind()


@pytest.fixture(scope="session")
def composed(kinds: list[Kind]) -> dict[str, dict[str, Any]]:
    names = {name for name, _, _ in compositions()}
    return {kind.name: kind.told for kind in kinds if kind.name in names}


@pytest.fixture(scope="session")
def sampled(kinds: list[Kind]) -> dict[str, dict[str, Any]]:
    names = {name for name, _, _ in samples()}
    return {kind.name: kind.told for kind in kinds if kind.name in names}
