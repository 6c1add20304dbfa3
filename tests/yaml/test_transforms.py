"""Transforms of Beam YAML beside the composites, their outputs, and what is charged."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_ldp.accounting import event_epsilon, shuffled_event
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import SubsetSelection
from beam_ldp.randomizers.wire import ReleaseTerms, decode_envelope
from beam_ldp.settings import Noise, People, Privacy
from beam_ldp.transforms import PrivateFrequencies
from tests.yaml.conftest import Run, lines

pytestmark = [pytest.mark.pipeline, pytest.mark.yaml]

VALUES = ("a", "b", "c")
ROWS = [{"uid": i, "url": VALUES[i % 3], "hair": "ab"[i % 2]} for i in range(300)]
SECRET = "raw-value-zq7"
NAMES = ("PrivateFrequencies", "PrivateMean", "PrivateQuestions", "Randomize", "CollectReports")
ASKED = {"column": "url", "domain": list(VALUES), "people": {"id": "uid"}}
PRIVACY = {"local_epsilon": 2, "expected_users": 300, "delta": "1e-6"}
NAMED = {"dataset": "d", "id": "r"}


def chain(*transforms: dict[str, Any]) -> str:
    provided = {name: f"beam_ldp.transforms.yaml.{name}" for name in NAMES}
    return json.dumps(
        {
            "providers": [{"type": "python", "config": {}, "transforms": provided}],
            "pipeline": {"type": "composite", "transforms": list(transforms)},
        }
    )


def step(kind: str, name: str = "", source: str | None = None, **config: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"type": kind, "name": name or kind, "config": config}
    return found if source is None else {**found, "input": source}


def made(rows: list[dict[str, Any]] = ROWS) -> dict[str, Any]:
    return step("Create", elements=rows)


def written(source: str, name: str) -> dict[str, Any]:
    return step("WriteToJson", name, source, path=f"{name}.json")


def test_halves_give_the_numbers_of_the_library(run: Run, tmp_path: Path) -> None:
    """What one pipeline sends is of the library's own release, and what the other one makes of it
    are the library's numbers for these reports.
    """
    told = {**ASKED, "privacy": PRIVACY, "mechanism": "SubsetSelection", "release": NAMED}
    sending = step("Randomize", source="Create", **told, terms="release.json", encoding="base64")
    run(chain(made(), sending, written("Randomize", "sent")))
    collecting = step("CollectReports", source="ReadFromJson", **told, terms="release.json")
    reading = step("ReadFromJson", path=f"{tmp_path}/sent.json*")
    run(chain(reading, collecting, written("CollectReports", "rows")))

    library = PrivateFrequencies(
        SubsetSelection(4, 2.0),
        domain=Domain(VALUES),
        column="url",
        people=People(id="uid"),
        noise=Noise(dataset="d", id="r"),
        privacy=Privacy(expected_users=300),
    )
    assert library.identity is not None
    terms = ReleaseTerms(library.randomizer, library.identity)
    assert json.loads((tmp_path / "release.json").read_text()) == terms.to_json()
    envelopes = [base64.b64decode(row["envelope"]) for row in lines(tmp_path, "sent.json")]
    reports = np.concatenate([decode_envelope(terms, one).reports for one in envelopes])
    total = library.randomizer.accumulate(reports)
    expected = library.randomizer.estimate(total, 300, sampling=library.sampling)
    low, high = expected.confidence_interval(0.95)
    rows = lines(tmp_path, "rows.json")
    # Beam's sink of JSON writes ten digits.
    assert [row["frequency"] for row in rows] == pytest.approx(expected.value.tolist(), abs=1e-9)
    assert [row["frequency_low"] for row in rows] == pytest.approx(low.tolist(), abs=1e-9)
    assert [row["frequency_high"] for row in rows] == pytest.approx(high.tolist(), abs=1e-9)
    price = event_epsilon(shuffled_event(library.randomizer, 300), 1e-6)
    assert [row["epsilon"] for row in rows] == pytest.approx([float(price)] * 4, abs=1e-9)


def test_envelopes_are_checked_and_taken_once(run: Run, tmp_path: Path) -> None:
    told = {**ASKED, "privacy": PRIVACY, "release": NAMED}
    run(
        chain(
            made(), step("Randomize", source="Create", **told, encoding="base64"),
            written("Randomize", "sent"),
        )
    )  # fmt: skip
    sent = lines(tmp_path, "sent.json")
    assert len(sent) == 300 and {*sent[0]} == {"envelope"}
    given = [*sent, sent[0], {"envelope": "!"}, {"envelope": "AAAA"}]

    def collected(**more: Any) -> dict[str, Any]:
        return step("CollectReports", source="Create", **{**told, **more})

    run(
        chain(
            made(given), collected(error_handling={"output": "bad"}),
            written("CollectReports", "rows"), written("CollectReports.bad", "bad"),
        )
    )  # fmt: skip
    assert {row["reports"] for row in lines(tmp_path, "rows.json")} == {300}
    assert sorted(row["msg"] for row in lines(tmp_path, "bad.json")) == [
        "not an envelope", "not base64", "sent before: another envelope has its id",
    ]  # fmt: skip
    run(  # another question under the same names: nothing of it is taken
        chain(
            made(given), collected(column="hair", withheld={"output": "why"}),
            written("CollectReports.good", "other"), written("CollectReports.why", "why"),
        )
    )  # fmt: skip
    assert lines(tmp_path, "other.json") == []


def test_bad_rows_are_listed_without_what_they_hold(run: Run, tmp_path: Path) -> None:
    rows = [
        *ROWS,
        {"uid": 301, "url": None, "hair": SECRET},
        {"uid": None, "url": SECRET, "hair": ""},
    ]
    told = {**ASKED, "privacy": PRIVACY}
    run(
        chain(
            made(rows),
            step("PrivateFrequencies", source="Create", **told, error_handling={"output": "bad"}),
            written("PrivateFrequencies", "rows"),
            written("PrivateFrequencies.bad", "bad"),
        )
    )
    bad = lines(tmp_path, "bad.json")
    assert {(row["msg"], row["rows"]) for row in bad} == {("null", 1), ("no user id", 1)}
    assert SECRET not in json.dumps(bad)
    assert {row["reports"] for row in lines(tmp_path, "rows.json")} == {300}


def test_an_error_output_that_nothing_takes_is_refused(run: Run) -> None:
    told = {**ASKED, "privacy": PRIVACY, "error_handling": {"output": "bad"}}
    with pytest.raises(ValueError, match="bad"):
        run(chain(made(), step("PrivateFrequencies", source="Create", **told)))


def test_what_is_wrong_is_said_before_anything_runs(run: Run) -> None:
    told = {**ASKED, "column": "ur", "privacy": PRIVACY}
    with pytest.raises(ValueError, match=r"column ur is missing in the rows \(did you mean url"):
        run(chain(made(), step("PrivateFrequencies", source="Create", **told)))
    with pytest.raises(ValueError, match=r"unknown setting people\.ids \(did you mean id"):
        told = {**ASKED, "people": {"ids": "uid"}, "privacy": PRIVACY}
        run(chain(made(), step("PrivateFrequencies", source="Create", **told)))


def test_too_few_reports_and_several_questions(run: Run, tmp_path: Path) -> None:
    """A release that is withheld says so."""
    questions = [
        {"column": "url", "domain": list(VALUES)},
        {"column": "hair", "domain": ["a", "b"], "name": "hair colour"},
    ]
    few = {"shuffle": {"min_reports": 301}, "withheld": {"output": "why"}, "times": "microseconds"}
    run(
        chain(
            made(),
            step(
                "PrivateQuestions", source="Create", questions=questions,
                people={"id": "uid"}, privacy=PRIVACY,
            ),
            written("PrivateQuestions", "survey"),
            step("PrivateFrequencies", source="Create", **ASKED, privacy=PRIVACY, **few),
            written("PrivateFrequencies.good", "few"),
            written("PrivateFrequencies.why", "why"),
        )
    )  # fmt: skip
    rows = lines(tmp_path, "survey.json")
    assert [
        (row["question"], row["value"]) for row in sorted(rows, key=lambda row: row["question"])
    ] == [
        *(("hair colour", one) for one in ("a", "b", "other")),
        *(("url", one) for one in (*VALUES, "other")),
    ]
    assert lines(tmp_path, "few.json") == []
    (why,) = lines(tmp_path, "why.json")
    assert (why["reports"], why["min_reports"], why["question"]) == (300, 301, "url")


def test_beam_finds_settings_with_types_and_descriptions() -> None:
    """What tools such as a job builder show."""
    from apache_beam.yaml.yaml_provider import InlineProvider

    from beam_ldp.transforms import yaml as transforms

    for name in NAMES:
        provider = InlineProvider({name: getattr(transforms, name)})
        fields = {field.name: field for field in provider.config_schema(name).fields}
        assert {"privacy", "release", "error_handling"} <= set(fields)
        assert all(field.description for field in fields.values()), name
        assert provider.requires_inputs(name, {}) and provider.description(name)


def test_a_budget_is_charged_once_and_refuses_the_second_run(run: Run, tmp_path: Path) -> None:
    from beam_ldp.ledger import BudgetLedger

    url = f"sqlite:///{tmp_path / 'budget.db'}"
    BudgetLedger.create(url).set_budget("d", epsilon=1.0, delta=1e-6)
    told = {**ASKED, "privacy": PRIVACY, "release": {"dataset": "d", "ledger": url}}
    text = chain(
        made(), step("PrivateFrequencies", source="Create", **told),
        written("PrivateFrequencies", "rows"),
    )  # fmt: skip
    run(text)
    rows = lines(tmp_path, "rows.json")
    assert rows[0]["epsilon"] < 1
    with pytest.raises(ValueError, match="budget"):
        for _ in range(20):
            run(text)
