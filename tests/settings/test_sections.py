"""Value objects: what each refuses, how it is read, and that every field says what it is."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import pytest

from beam_ldp.accounting.divergences import hockey_stick
from beam_ldp.settings import (
    Charge,
    Mechanism,
    Noise,
    Output,
    People,
    Privacy,
    SettingError,
    Shuffling,
    Source,
    fields,
    sections,
)
from beam_ldp.settings.fields import METADATA, Setting, read_setting, settings_of

pytestmark = pytest.mark.exact

SECTIONS = (Charge, Mechanism, Noise, Output, People, Privacy, Shuffling, Source)


@pytest.mark.parametrize(
    ("section", "given", "said"),
    [
        *(
            (Source, {"max_bad_rows": most}, "source.max_bad_rows must be a share in [0, 1) or a")
            for most in (-1, 1.5, math.inf, math.nan)
        ),
        (Source, {"delimiter": ";;"}, "source.delimiter must be one ASCII character"),
        (Source, {"delimiter": '"'}, "source.delimiter must be one ASCII character"),
        (People, {"id": "uid", "one_row": True}, "people.one_row and people.id exclude each other"),
        (Noise, {"key_file": "k", "seed": 1}, "release.key_file and release.seed exclude"),
        (Noise, {"seed": -1}, "release.seed must be >= 0"),
        (Charge, {"ledger": "x", "no_ledger": True}, "release.ledger and release.no_ledger"),
        (Charge, {"people_store": "x"}, "release.people_store and release.people_key_file"),
        (Privacy, {"delta": 1.0}, "privacy.delta must lie in"),
        (Privacy, {"delta": -1e-9}, "privacy.delta must lie in"),
        (Privacy, {"honest_fraction": 0.0}, "privacy.honest_fraction must lie in"),
        (Privacy, {"expected_users": 0}, "privacy.expected_users must lie in"),
        (Shuffling, {"min_reports": 10**12 + 1}, "shuffle.min_reports must lie in"),
        (Mechanism, {"max_bits": 0}, "mechanism.max_bits must be >= 1"),
        (Mechanism, {"messages": 0}, "mechanism.messages must be >= 1"),
        (Mechanism, {"random_bits": 0.0}, "mechanism.random_bits must be > 0"),
        (Output, {"top": 0}, "output.top must be >= 1"),
    ],
)
def test_what_does_not_fit_is_refused(section: type, given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=re.escape(said)):
        section(**given)


def test_errors_name_settings_as_their_reader_knows_them() -> None:
    error = SettingError("{release.key_file} needs {people.id}")
    assert str(error) == "release.key_file needs people.id"
    flags = {"release.key_file": "--memoize-key-file", "people.id": "--user-id"}
    assert error.said(flags.__getitem__) == "--memoize-key-file needs --user-id"


@pytest.mark.parametrize("value", ["{", "}", "{a", "a{b}c", "{people.id}"])
def test_a_value_with_braces_stays_what_it_is(value: str) -> None:
    """What somebody wrote is no name of a setting, and does not break the message about it."""
    with pytest.raises(SettingError) as refused:
        read_setting("privacy.epsilon", settings_of(Privacy)["epsilon"], value)
    said = refused.value.said({"privacy.epsilon": "--epsilon"}.__getitem__)
    assert said == f"--epsilon must be a number > 0, got {value}"


def test_an_empty_text_is_not_a_name() -> None:
    """As of a variable of the shell that is not set: no key, no release without a name."""
    for section, name in ((Noise, "key_file"), (Noise, "id"), (People, "id")):
        with pytest.raises(SettingError, match="must not be empty"):
            read_setting(f"release.{name}", settings_of(section)[name], "")


@pytest.mark.parametrize("section", SECTIONS)
def test_every_field_is_a_setting_with_help_and_a_flag(section: type) -> None:
    assert list(settings_of(section)) == [field.name for field in dataclasses.fields(section)]
    for name, about in settings_of(section).items():
        assert len(about.help) > 10 and not about.help.endswith("."), name
        assert re.fullmatch(r"[a-z][a-z-]*", about.flag), name


def test_no_two_settings_share_a_flag() -> None:
    flags = [about.flag for section in SECTIONS for about in settings_of(section).values()]
    assert len(set(flags)) == len(flags)


def test_help_and_messages_name_only_settings_that_exist() -> None:
    """A renamed field would leave its old name in somebody else's help."""
    homes = {
        "source": (Source,), "people": (People,), "release": (Noise, Charge),
        "privacy": (Privacy,), "shuffle": (Shuffling,), "mechanism": (Mechanism,),
        "output": (Output,),
    }  # fmt: skip
    known = {
        f"{home}.{name}" for home, kinds in homes.items() for kind in kinds
        for name in settings_of(kind)
    }  # fmt: skip
    source = Path(sections.__file__).read_text("utf-8")
    named = set(re.findall(r"\{((?!self)[a-z]+\.[a-z_]+)\}", source))
    assert len(named) > 10 and named <= known


@pytest.mark.parametrize("text", ["1e6", "1000000", "1_000_000", 1e6, 10**6])
def test_numbers_are_numbers_however_they_are_written(text: Any) -> None:
    found = read_setting("privacy.expected_users", settings_of(Privacy)["expected_users"], text)
    assert found == 10**6 and type(found) is int


def test_large_whole_numbers_are_exact() -> None:
    about = settings_of(Noise)["seed"]
    assert read_setting("release.seed", about, 2**53 + 1) == 2**53 + 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (fields.WHOLE, "1.5"), (fields.WHOLE, True), (fields.WHOLE, "inf"), (fields.WHOLE, []),
        (fields.POSITIVE, 0), (fields.POSITIVE, "nan"), (fields.POSITIVE, "-1"),
        (fields.NUMBER, "one"), (fields.SWITCH, "yes"), (fields.TEXT, 3),
    ],
)  # fmt: skip
def test_values_of_another_kind_are_refused_by_name(kind: fields.Kind, value: Any) -> None:
    with pytest.raises(SettingError, match=f"^a.b must be {kind.name}, got "):
        read_setting("a.b", Setting("a test", kind), value)


def test_lists_pairs_and_choices() -> None:
    many = Setting("a test", many=True)
    assert read_setting("a.b", many, "x") == ("x",) == read_setting("a.b", many, ["x"])
    pair = Setting("a test", fields.NUMBER, arity=2)
    assert read_setting("a.b", pair, ["0", 10]) == (0.0, 10.0)
    with pytest.raises(SettingError, match="a.b must be 2 values"):
        read_setting("a.b", pair, [1])
    with pytest.raises(SettingError, match="a.b must be one of x, y, got z"):
        read_setting("a.b", Setting("a test", choices=("x", "y")), "z")
    assert read_setting("a.b", many, None) is None


def test_the_least_number_of_reports() -> None:
    assert Shuffling(min_reports=7).least(1e6) == 7
    assert Shuffling().least(11) == 10  # 9.9, rounded up
    with pytest.raises(SettingError, match="privacy.expected_users or shuffle.min_reports"):
        Shuffling().least(None)


def test_counts_go_as_far_as_the_accountant_is_proved() -> None:
    assert sections.MAX_REPORTS == hockey_stick.MAX_REPORTS


def test_defaults_are_in_the_metadata_alone() -> None:
    for section in SECTIONS:
        for field in dataclasses.fields(section):
            assert METADATA in field.metadata and field.default is not dataclasses.MISSING
