"""`beam-ldp statement`: what a finished release says, and its entry in the Deployments Registry."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from beam_ldp.pipelines.cli import group
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.release.registry_entry import TO_FILL_IN, entry, missing
from beam_ldp.release.statement import statement as said_of

pytestmark = pytest.mark.e2e

# What the form of the registry allows: required fields, and values of those that are enumerated.
SECTIONS: dict[str, set[str]] = {
    "basic": {"name", "data_curators", "description", "intended_use", "data_product_type",
              "data_product_region", "publication_date"},
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {"privacy_unit", "privacy_unit_details", "privacy_parameters",
                     "privacy_parameters_details"},
    "deployment_model": {"model_name", "model_name_details", "actors", "release_type",
                         "release_type_details", "data_source_type", "access_type"},
    "accounting": {"post_processing", "composition"},
    "implementation": {"preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"},
    "administrative": {"registry_authors"},
}  # fmt: skip
ENUMERATED = {
    ("basic", "data_product_type"): {"Summary statistics", "Machine learning model"},
    ("dp_variant", "variant_name"): {"Pure DP", "Approximate DP"},
    ("deployment_model", "model_name"): {"Local", "Shuffle", "Federated", "Central"},
    ("deployment_model", "release_type"): {"One release", "Many releases"},
    ("deployment_model", "data_source_type"): {"Static", "Dynamic"},
    ("deployment_model", "access_type"): {"Interactive", "Non-interactive"},
}


def record(**told: Any) -> PrivacyRecord:
    known: dict[str, Any] = dict(
        question="word", dataset="typing", mechanism={"mechanism": "KRandomizedResponse"},
        local_epsilon=4.00001, epsilon=0.31236, epsilon_lower=None, epsilon_class_lower=None,
        delta=1e-8, method="own blanket", proof_status="proved", num_reports=1_000_000,
        num_bad_rows=17, min_reports=900_000, honest_fraction=0.9, honest_reports=900_000,
        smallest_batch=1_000_000, output="statistic", scope="batch", user_id="uid",
        bad_rows="dead-letter", created="2026-11-23T08:00:00+00:00", version="0.1.0",
    )  # fmt: skip
    return PrivacyRecord(**known | told)


def wrote(folder: Path, one: PrivacyRecord) -> str:
    (folder / "privacy.json").write_text(json.dumps(one.to_json()))
    (folder / "privacy.md").write_text(said_of(one.told()))
    return str(folder)


def statement(*told: str) -> Result:
    return CliRunner().invoke(group, ["statement", *told])


def test_it_prints_the_statement(tmp_path: Path) -> None:
    place = wrote(tmp_path, record())
    shown = statement(place)
    assert shown.exit_code == 0 and shown.stdout == (tmp_path / "privacy.md").read_text()
    told = json.loads(statement(place, "--format=json").stdout)
    assert told == json.loads((tmp_path / "privacy.json").read_text())


@pytest.mark.parametrize(
    ("one", "variant", "model", "unit", "parameters"),
    [
        (record(), "Approximate DP", "Shuffle", "User", {"epsilon": 0.3124, "delta": 1e-8}),
        (record(user_id=None), "Approximate DP", "Shuffle", "Row",
         {"epsilon": 0.3124, "delta": 1e-8}),
        (record(kind="mean", details={"statistic": "mean", "model": "local"}), "Pure DP", "Local",
         "User", {"epsilon": 4.001}),
    ],
)  # fmt: skip
def test_an_entry_has_the_form_and_never_less_than_the_real_cost(
    one: PrivacyRecord, variant: str, model: str, unit: str, parameters: dict[str, float]
) -> None:
    made = entry(one.to_json())
    told = made["deployment"]
    assert {name: set(section) for name, section in told.items()} == SECTIONS
    assert (made["status"], made["tier"]) == ("Draft", 3)
    assert re.fullmatch(r"[a-z0-9-]+", made["url_slug"])
    assert all(told[part][name] in allowed for (part, name), allowed in ENUMERATED.items())
    assert told["basic"]["publication_date"] == "2026-11-23"
    assert told["dp_variant"]["variant_name"] == variant
    assert told["deployment_model"]["model_name"] == model
    assert told["privacy_loss"]["privacy_unit"] == unit
    assert told["privacy_loss"]["privacy_parameters"] == parameters
    assert "1,000,000" in told["dp_variant"]["unprotected_quantities"]


def test_a_training_whose_server_is_trusted_has_no_local_epsilon() -> None:
    trained = {"statistic": "model", "unit": "user", "rounds": 40}
    told = record(local_epsilon=None).to_json() | trained
    made = entry(told)["deployment"]
    assert made["basic"]["data_product_type"] == "Machine learning model"
    assert made["deployment_model"]["model_name"] == "Federated"
    assert "trusted" in made["privacy_loss"]["privacy_parameters_details"]


def test_entries_of_rounds_and_levels_name_what_was_asked_and_how() -> None:
    """Nothing of a public list is said where there was none; every mechanism is named."""
    levels = tuple({"mechanism": name} for name in ("LocalHashing", "HadamardResponse"))
    details = {"statistic": "heavy_hitters", "levels": levels}
    one = record(details=details, mechanism={"mechanism": "HeavyHitters"})
    made = entry(one.to_json())["deployment"]
    assert made["dp_variant"]["data_domain"].startswith("One text per user, of no list")
    assert made["basic"]["description"].startswith("Frequent words that nobody listed")
    mechanisms = made["implementation"]["mechanisms"]
    assert "HeavyHitters in 2 levels, by HadamardResponse, LocalHashing" in mechanisms
    assert made["accounting"]["post_processing"].startswith("Only words with enough reports")
    rounds = ({"mechanism": "UserMean"}, {"mechanism": "UserMean"})
    details = {"statistic": "user_mean", "rounds": rounds}
    two = record(details=details, mechanism={"mechanism": "UserLevelMean"})
    made = entry(two.to_json())["deployment"]
    assert made["dp_variant"]["data_domain"].startswith("All rows of a user together")
    assert "UserLevelMean in 2 rounds, by UserMean" in made["implementation"]["mechanisms"]


def test_what_only_the_publisher_knows_is_told_or_named(tmp_path: Path) -> None:
    place = wrote(tmp_path, record(run_id="week 47", charged="yes"))
    draft = statement(place, "--registry")
    made = yaml.safe_load(draft.stdout)
    named = [line.removeprefix("to fill in: ") for line in draft.stderr.splitlines()]
    assert named == list(missing(made)) and len(named) == draft.stdout.count(TO_FILL_IN)
    assert "budget of typing" in made["deployment"]["accounting"]["composition"]

    whole = statement(place, "--registry", "--name=Words, 2026", "--curator=A", "--curator=B",
                      "--intended-use=A keyboard", "--region=EU", "--author=C")  # fmt: skip
    made = yaml.safe_load(whole.stdout)
    assert made["url_slug"] == "words-2026"
    assert made["deployment"]["basic"]["data_curators"] == ["A", "B"]
    assert made["deployment"]["administrative"]["registry_authors"] == ["C"]
    assert list(missing(made)) == [
        "deployment.implementation.preprocessing_and_hyperparameter_tuning",
        "deployment.implementation.justification",
    ]
    assert json.loads(statement(place, "--registry", "--format=json").stdout)["entry"]


def test_what_is_no_release_has_no_entry(tmp_path: Path) -> None:
    none = statement(str(tmp_path), "--registry")
    assert none.exit_code == 2 and "privacy.json" in none.stderr
    simulated = record(simulated=True, epsilon=None, local_epsilon=None)
    refused = statement(wrote(tmp_path, simulated), "--registry")
    assert refused.exit_code == 2 and "simulation" in refused.stderr
    assert statement(str(tmp_path), "--region=EU").exit_code == 2
