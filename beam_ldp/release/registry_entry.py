"""A privacy record as a draft entry of the OpenDP Deployments Registry, by its template."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml  # type: ignore[import-untyped]

from beam_ldp.release.statement import render

TO_FILL_IN = "TO FILL IN"


def entry(
    record: Mapping[str, Any],
    *,
    name: str | None = None,
    curators: Sequence[str] = (),
    intended_use: str | None = None,
    region: str | None = None,
    authors: Sequence[str] = (),
) -> dict[str, Any]:
    """The entry.

    Args:
        record: what privacy.json holds, not of a simulation.
        name, curators, intended_use, region, authors: what only the publisher knows; by default the
            name of the data set, and `TO_FILL_IN`.
    """
    called = name or f"{record['question']} of {record['dataset']}"
    text = render(
        "registry_entry.yaml.j2",
        record,
        to_fill_in=TO_FILL_IN,
        name=called,
        slug=re.sub(r"[^a-z0-9]+", "-", called.lower()).strip("-") or "release",
        curators=list(curators) or [TO_FILL_IN],
        intended_use=intended_use or TO_FILL_IN,
        region=region or TO_FILL_IN,
        authors=list(authors) or [TO_FILL_IN],
    )
    made: dict[str, Any] = yaml.safe_load(text)
    return made


def missing(made: Any, path: str = "") -> Iterator[str]:
    """Where an entry is to be filled in: the fields, from the outside in."""
    if made == TO_FILL_IN:
        yield path
    elif isinstance(made, Mapping):
        for name, value in made.items():
            yield from missing(value, f"{path}.{name}" if path else name)
    elif isinstance(made, list):
        for value in made:
            yield from missing(value, path)
