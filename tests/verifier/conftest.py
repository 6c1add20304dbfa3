"""Statements that the accountant makes, with their certificates; made once: tests change copies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.verifier.statements import compositions, events, samples, statement


@pytest.fixture(scope="session")
def statements() -> list[dict[str, Any]]:
    return [statement(event, delta) for event, delta in events(30)]


@pytest.fixture(scope="session")
def composed() -> dict[str, dict[str, Any]]:
    return {name: statement(event, delta) for name, event, delta in compositions()}


@pytest.fixture(scope="session")
def sampled() -> dict[str, dict[str, Any]]:
    return {name: statement(event, delta) for name, event, delta in samples()}
