"""What a transform of a YAML pipeline refuses, and with which words; without Beam's extra."""

from __future__ import annotations

import inspect
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.typehints import typehints
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_ldp.randomizers.frequency import SubsetSelection
from beam_ldp.settings import People, SettingError
from beam_ldp.transforms import yaml as transforms
from beam_ldp.transforms.elements.blocks import BadRowBlock
from beam_ldp.transforms.yaml.config import (
    _plain,
    check_columns,
    frequency_query,
    how,
    survey_query,
)
from beam_ldp.transforms.yaml.rows import bad_rows_of, text_of

pytestmark = pytest.mark.exact

FREQ = "PrivateFrequencies"
LOCAL = {"local_epsilon": 2, "expected_users": "1e3"}
FREQUENCY: dict[str, Any] = {"column": "url", "domain": ["a", "b"], "privacy": LOCAL}
MEAN: dict[str, Any] = {"column": ["age"], "ranges": [0, 100], "privacy": LOCAL}
SURVEY: dict[str, Any] = {"questions": [{"column": "u", "domain": ["a"]}], "privacy": LOCAL}
NAMED = {"dataset": "d", "id": "r"}
SENT = {**FREQUENCY, "release": NAMED}


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (FREQ, {**FREQUENCY, "doman": 1}, "doman (did you mean domain?)"),
        (FREQ, {"domain": ["a"], "privacy": LOCAL}, "column is missing"),
        (FREQ, {**FREQUENCY, "column": 3}, "column must be the name of a column"),
        (FREQ, {**FREQUENCY, "domain": None}, "one of domain"),
        (FREQ, {**FREQUENCY, "bins": [0, 1]}, "one of domain"),
        (FREQ, {**FREQUENCY, "domain": [True]}, "in quotes"),
        (FREQ, {**FREQUENCY, "domain": [1.5]}, "in quotes"),
        (FREQ, {**FREQUENCY, "domain": []}, "domain must be a list"),
        (FREQ, {**FREQUENCY, "domain": ["a", "a"]}, "distinct"),
        (FREQ, {**FREQUENCY, "domain": None, "bins": "x"}, "bins must be edges"),
        (FREQ, {**FREQUENCY, "privacy": 1}, "privacy must hold settings"),
        (
            FREQ, {**FREQUENCY, "privacy": {**LOCAL, "epsilom": 1}},
            "unknown setting privacy.epsilom (did you mean epsilon?)",
        ),
        (FREQ, {**FREQUENCY, "privacy": {**LOCAL, "delta": "x"}}, "privacy.delta must"),
        (FREQ, {**FREQUENCY, "privacy": {**LOCAL, "epsilon": 1}}, "give one of"),
        (FREQ, {**FREQUENCY, "privacy": {"epsilon": 1}}, "expected_users is missing"),
        (FREQ, {**FREQUENCY, "privacy": {**LOCAL, "strict": True}}, "unknown setting"),
        (FREQ, {**FREQUENCY, "mechanism": {"max_bits": 8}}, "not for Beam YAML"),
        (FREQ, {**FREQUENCY, "mechanism": "SubsetSelction"}, "SubsetSelection"),
        (
            FREQ,
            {**FREQUENCY, "mechanism": "SubsetSelection", "privacy": {"epsilon": 1, "delta": 1e-6}},
            "needs privacy.local_epsilon",
        ),
        (FREQ, {**FREQUENCY, "people": {"uid": "x"}}, "unknown setting people.uid"),
        (FREQ, {**FREQUENCY, "people": {"group_by": "x"}}, "belong together"),
        (FREQ, {**FREQUENCY, "shuffle": {"min_reports": 0}}, "shuffle.min_reports"),
        (FREQ, {**FREQUENCY, "windows": {"late": "x"}}, "release, dead-letter"),
        (FREQ, {**FREQUENCY, "windows": {"delays": 1}}, "did you mean delay"),
        (FREQ, {**FREQUENCY, "windows": {"delay": -1}}, "windows.delay"),
        (FREQ, {**FREQUENCY, "release": {"frozen_values": True}}, "not for Beam YAML"),
        (FREQ, {**FREQUENCY, "release": {"ledger": "x"}}, "release.dataset must name"),
        (
            FREQ,
            {**FREQUENCY, "release": {"ledger": "x", "dataset": "d"}}, "people.one_row",
        ),
        (FREQ, {**FREQUENCY, "bad_rows": "zero"}, "dead-letter, other"),
        (FREQ, {**FREQUENCY, "level": 1}, "level must lie in (0, 1)"),
        (FREQ, {**FREQUENCY, "times": "iso"}, "text or microseconds"),
        (FREQ, {**FREQUENCY, "error_handling": "bad"}, "must name an output"),
        (
            FREQ, {**FREQUENCY, "error_handling": {"output": "x", "treshold": 1}},
            "unknown setting error_handling.treshold",
        ),
        (
            FREQ,
            {**FREQUENCY, "error_handling": {"output": "x"}, "withheld": {"output": "x"}},
            "different names",
        ),
        ("PrivateMean", {**MEAN, "ranges": None}, "ranges is missing"),
        ("PrivateMean", {**MEAN, "ranges": [1, 0]}, "low must be below high"),
        ("PrivateMean", {**MEAN, "ranges": {"agee": [0, 1]}}, "did you mean age"),
        ("PrivateMean", {**MEAN, "ranges": {}}, "ranges lack age"),
        ("PrivateMean", {**MEAN, "ranges": [0]}, "[LOW, HIGH]"),
        ("PrivateMean", {**MEAN, "column": ["a", "a"]}, "each column once"),
        ("PrivateMean", {**MEAN, "bad_rows": "other"}, "dead-letter, zero"),
        ("PrivateQuestions", {**SURVEY, "questions": ["u"]}, "questions must be a list such as"),
        ("PrivateQuestions", {**SURVEY, "questions": [{"colum": "u"}]}, "did you mean column"),
        ("PrivateQuestions", {**SURVEY, "mechanism": "auto"}, "unknown setting mechanism"),
        ("Randomize", {**FREQUENCY, "release": {}}, "release.dataset and release.id are missing"),
        ("Randomize", {**SENT, "encoding": "hex"}, "bytes or base64"),
        (
            "Randomize", {**SENT, "release": {**NAMED, "ledger": "sqlite:///x"}},
            "release.ledger is for CollectReports",
        ),
        ("Randomize", {**SENT, "ranges": [0, 1]}, "ranges are for means"),
        ("Randomize", {**SENT, "questions": []}, "questions say their own column"),
        ("Randomize", {"privacy": LOCAL, "release": NAMED}, "column is missing"),
        ("CollectReports", {**SENT, "bad_rows": "other"}, "unknown setting bad_rows"),
        (
            "CollectReports", {**SENT, "release": {**NAMED, "key_file": "k"}},
            "release.key_file is not for Beam YAML",
        ),
        ("CollectReports", {**SENT, "terms": "nowhere.json"}, "nowhere.json cannot be read"),
    ],
)  # fmt: skip
def test_what_is_refused(name: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as refused:
        getattr(transforms, name)(**given)
    assert said in str(refused.value)


def test_the_signature_says_names_types_and_defaults() -> None:
    """Beam YAML makes its schema of it, and the docstring describes every setting."""
    for name in transforms.__all__:
        made = getattr(transforms, name)
        parameters = inspect.signature(made).parameters
        assert not any(isinstance(one.annotation, str) for one in parameters.values())
        for key in parameters:
            assert f"\n        {key}: " in made.__doc__, (name, key)


def test_numbers_may_be_written_as_people_write_them() -> None:
    told = how(
        {"epsilon": "1", "delta": "1e-8", "expected_users": "1e6"}, None, None, None, None, None
    )
    assert (told.privacy.delta, told.privacy.expected_users) == (1e-8, 1_000_000)


def test_a_named_mechanism_is_made_for_the_list() -> None:
    told = how({"local_epsilon": 2}, None, {"name": "SubsetSelection"}, None, None, None)
    query = frequency_query("url", ["a", "b"], None, "other", "dead-letter")
    assert told.release(query)["randomizer"] == SubsetSelection(3, 2.0)


def test_a_budget_is_named_as_in_job_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def budget(release: dict[str, Any]) -> Any:
        return how(LOCAL, {"id": "uid"}, None, None, {"dataset": "d", **release}, None).budget()

    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    assert budget({}) is None
    unused: list[dict[str, Any]] = [
        {"quota": "q"}, {"windows": 3}, {"people_store": "p", "people_key_file": "k"},
    ]  # fmt: skip
    for given in unused:
        assert budget({"ledger": "none", **given}) is None
        with pytest.raises(SettingError, match="needs release.ledger"):
            budget(given)
    monkeypatch.setenv("BEAM_LDP_LEDGER", "sqlite:///b.db")
    assert budget({}).url is None and budget({"ledger": "env"}).url is None
    assert budget({"ledger": "none"}) is None and budget({"no_ledger": True}) is None
    assert budget({"ledger": "sqlite:///c.db", "quota": "q"}).url == "sqlite:///c.db"
    assert budget({"seed": 1}) is None  # nobody is protected, and nothing is charged
    assert budget({"windows": 3}).windows == 3


def test_settings_that_came_as_rows_are_read_as_mappings() -> None:
    """An expansion service makes rows of mappings."""
    row = beam.Row(a=[beam.Row(b=1)])
    assert _plain(row) == {"a": [{"b": 1}]}


def test_a_column_that_the_schema_lacks_is_named() -> None:
    query = frequency_query("url", ["a"], None, "other", "dead-letter")
    people = how(LOCAL, None, None, None, None, None).people
    pipeline = beam.Pipeline()
    rows = pipeline | beam.Impulse()
    rows.element_type = RowTypeConstraint.from_fields([("uid", int), ("urls", str)])
    with pytest.raises(SettingError, match=r"url is missing .* mean urls\?\); they have uid, urls"):
        check_columns(rows, query, people)
    rows.element_type = Any
    check_columns(rows, query, people)  # nothing is known of them


CODES = {
    "a list": frequency_query("x", ["01", "2"], None, "other", "dead-letter"),
    "a question": survey_query([{"column": "x", "domain": ["01", "2"]}], "dead-letter"),
    "without zeros": frequency_query("x", ["1", "2"], None, "other", "dead-letter"),
    "bins": frequency_query("x", None, [0, 1, 2], "other", "dead-letter"),
}


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        (str, {}),
        (int, {"a list": "leading zeros", "a question": "leading zeros"}),
        (int | None, {"a list": "leading zeros", "a question": "leading zeros"}),
        (bool, {}),
        *((one, dict.fromkeys(("a list", "a question", "without zeros"), "holds floats"))
          for one in (float, float | None, typehints.Optional[np.float64])),
    ],
)  # fmt: skip
def test_codes_that_a_reader_made_numbers_of_are_refused(
    kind: Any, refused: dict[str, str]
) -> None:
    """ReadFromCsv reads 01 as 1, and beside an empty field as 1.0: neither matches its list."""
    rows = beam.Pipeline() | beam.Impulse()
    rows.element_type = RowTypeConstraint.from_fields([("x", kind)])
    for name, query in CODES.items():
        if name not in refused:
            check_columns(rows, query, People())
            continue
        with pytest.raises(SettingError, match=r"column x holds .*dtype: {x: str}") as said:
            check_columns(rows, query, People())
        assert refused[name] in str(said.value)


def test_bad_rows_say_why_and_how_many_and_nothing_else() -> None:
    placed = BadRowBlock.of("f.csv", [(3, "null"), (9, "NaN")])
    assert [row.as_dict() for row in bad_rows_of(placed)] == [
        {"msg": "null", "rows": 1, "source": "f.csv", "position": 3},
        {"msg": "NaN", "rows": 1, "source": "f.csv", "position": 9},
    ]
    loose = BadRowBlock("", None, placed.codes, placed.reasons)
    assert [(row.msg, row.rows, row.position) for row in bad_rows_of(loose)] == [
        ("null", 1, -1), ("NaN", 1, -1),
    ]  # fmt: skip


def test_times_are_utc() -> None:
    assert text_of(0) == "1970-01-01T00:00:00Z"
    assert text_of(-1) == "1969-12-31T23:59:59.999999Z"
