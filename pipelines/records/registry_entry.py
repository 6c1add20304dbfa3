"""A privacy record as a draft entry of the OpenDP Deployments Registry.

The form is that of https://github.com/opendp/deployments-registry-data of July 2026: tier 3, with
what a record does not know left to its publisher.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_ldp.wording import number

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
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", called.lower()).strip("-") or "release",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": called,
                "data_curators": list(curators) or [TO_FILL_IN],
                "intended_use": intended_use or TO_FILL_IN,
                "data_product_type": _PRODUCTS.get(record.get("statistic"), _PRODUCTS[None]),
                "data_product_region": region or TO_FILL_IN,
                "description": _description(record),
                "publication_date": str(record["created"])[:10],
            },
            **_protection(record),
            "deployment_model": {
                "model_name": _model(record),
                "model_name_details": _MODELS[_model(record)],
                "actors": _actors(record),
                "release_type": "One release",
                "release_type_details": _charged(record),
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": _postprocessing(record),
                "composition": f"Method: {record['method']} ({record['proof_status']}). "
                + _charged(record),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": TO_FILL_IN,
                "mechanisms": _mechanism(record),
                "justification": TO_FILL_IN,
            },
            "administrative": {"registry_authors": list(authors) or [TO_FILL_IN]},
        },
    }


def _protection(record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What is protected, and how much."""
    unit = _unit(record)
    return {
        "dp_variant": {
            "variant_name": "Pure DP" if _is_pure(record) else "Approximate DP",
            "data_domain": _DOMAINS.get(record.get("statistic"), _DOMAINS[None]).format(
                unit.lower()
            ),
            "unprotected_quantities": _unprotected(record),
        },
        "privacy_loss": {
            "privacy_unit": unit,
            "privacy_unit_details": "Replace-one: two data sets are adjacent if one "
            f"{unit.lower()} holds another value. That somebody took part is not protected.",
            "privacy_parameters": _parameters(record),
            "privacy_parameters_details": _details(record),
        },
    }


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


_PRODUCTS = {"model": "Machine learning model", None: "Summary statistics"}

_WHAT = {
    "mean": "Means",
    "user_mean": "Means of people's own means",
    "heavy_hitters": "Frequent words that nobody listed, with their frequencies",
    "experiment": "The verdict of an experiment, with the rate of each arm",
    "bandit batch": "What a bandit decided after a batch, with the mean reward of each play",
    "model": "A model",
}
_DOMAINS = {
    "user_mean": "All rows of a {} together, of public bounds.",
    "experiment": "One outcome per {}, 0 or 1.",
    "bandit batch": "One reward per {}, from -1 to 1.",
    "heavy_hitters": "One text per {}, of no list: any that the public code of words can spell.",
    None: "One value per {}, of public bounds or a public list.",
}
_BY_TRUST = {"local": "Local", "central": "Central"}
_MODELS = {
    "Central": "A server is told values as they are, and adds noise to what it releases.",
    "Local": "Each person's value is randomized before it leaves the device; nobody else is "
    "trusted.",
    "Shuffle": "Each person's value is randomized before it leaves the device; a shuffler cuts the "
    "link between reports and people.",
    "Federated": "Clients train on their own data; what they send is randomized by them or by the "
    "server that adds it up.",
}
_ACTORS = {
    "Central": "Server: sees each value and whose it is, and is trusted. Readers: see sums with "
    "noise, protected by epsilon at delta 0.",
    "Local": "Device: sees the value. Collector and readers: see randomized reports, protected by "
    "the local epsilon.",
    "Shuffle": "Device: sees the value. Shuffler (the workers of the runner): sees randomized "
    "reports and whose they are, is trusted not to collude, and is held off by the local epsilon. "
    "Collector and readers: see what left the shuffler, protected by epsilon at delta.",
    "Federated": "Clients: see their own data. Server and readers of the model: see privacy.md of "
    "the release.",
}


_ACTORS_OF_SHARES = (
    "Device: sees the value. Shuffler (the workers of the runner): sees additive shares and whose "
    "they are, and could add them up to the value: it is trusted not to. Collector and readers: "
    "see what left the shuffler, protected by epsilon at delta."
)


def _actors(record: Mapping[str, Any]) -> str:
    if record["local_epsilon"] is None and _model(record) == "Shuffle":
        return _ACTORS_OF_SHARES
    return _ACTORS[_model(record)]


def _model(record: Mapping[str, Any]) -> str:
    if record.get("statistic") == "model":
        return "Federated"
    return _BY_TRUST.get(str(record.get("model")), "Shuffle")


def _is_pure(record: Mapping[str, Any]) -> bool:
    return _model(record) in ("Local", "Central")


def _unit(record: Mapping[str, Any]) -> str:
    if "unit" in record:
        return str(record["unit"]).capitalize()
    return "User" if record["user_id"] or record["one_row_per_person"] else "Row"


def _parameters(record: Mapping[str, Any]) -> dict[str, float]:
    """Rounded up, as in the statement; none for what is unbounded."""
    if _is_pure(record):
        promised = "epsilon" if _model(record) == "Central" else "local_epsilon"
        return {"epsilon": float(number(record[promised]))}
    if record["epsilon"] is None:
        return {}
    return {"epsilon": float(number(record["epsilon"])), "delta": record["delta"]}


def _details(record: Mapping[str, Any]) -> str:
    if record["local_epsilon"] is None and _model(record) == "Shuffle":
        return (
            "There is no local epsilon: nobody is protected unless the shuffler is trusted with "
            "the shares that people send."
        )
    if record["local_epsilon"] is None:
        return "There is no local epsilon: the server is trusted with what clients send."
    local = f"The local epsilon is {number(record['local_epsilon'])}"
    if _is_pure(record):
        return f"{local}, against everybody who sees a report."
    crowd = f"{record['honest_reports']:,} honest reports of {record['num_reports']:,}"
    return f"{local}, against whoever sees a report and whose it is; epsilon counts {crowd}."


def _description(record: Mapping[str, Any]) -> str:
    what = _WHAT.get(str(record.get("statistic")), "Frequencies")
    return (
        f"{what}: {record['question']} of {record['dataset']}, {record['num_reports']:,} reports."
    )


def _unprotected(record: Mapping[str, Any]) -> str:
    """What is public beside the result, as the statement lists it."""
    bad = record["num_bad_rows"]
    rows = "" if bad is None else f", and of rows that could not be used ({bad:,})"
    took_part = "took part, and in which group" if record.get("group_by") else "took part"
    return f"The number of reports ({record['num_reports']:,}){rows}; that a person {took_part}."


def _postprocessing(record: Mapping[str, Any]) -> str:
    if record.get("statistic") == "heavy_hitters":
        return "Only words with enough reports are listed; their frequencies are not adjusted."
    done = record.get("postprocess", "none")
    return "None: estimates are unbiased." if done == "none" else f"{done} (the raw ones are kept)."


def _charged(record: Mapping[str, Any]) -> str:
    if record["run_id"] is None:
        return "This release alone; it was charged to no budget."
    return (
        f"Charged to the budget of {record['dataset']}, which bounds the cost of all releases "
        "about the same people."
    )


def _mechanism(record: Mapping[str, Any]) -> str:
    kind = record["mechanism"].get("mechanism", "?")
    for part in ("levels", "rounds"):
        named = sorted(
            {str(one["mechanism"]) for one in record.get(part, ()) if one.get("mechanism")}
        )
        if named:
            kind = f"{kind} in {len(record[part])} {part}, by {', '.join(named)}"
    return (
        f"{kind}, of beam-ldp {record['version']}; exactness: {record['exactness']}. See "
        "docs/mechanisms.md there."
    )
