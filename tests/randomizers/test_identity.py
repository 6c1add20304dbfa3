"""The identity of a release: its canonical text, its digest, and what is drawn under it."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from beam_ldp.randomizers import UserRandomness
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import (
    ROW,
    ReleaseIdentity,
    digest_of,
    key_commitment,
    length_prefixed,
    one_row_of,
)
from beam_ldp.randomizers.randomness import contribution_ranks, drawn_under, envelope_ids
from tests.identities import identity

pytestmark = pytest.mark.exact

KEY = bytes(range(32))
USERS = np.arange(64)
PLAIN = ReleaseIdentity("telemetry", "week-47")
FULL = ReleaseIdentity(
    "telemetry",
    "week-47",
    mechanism="00ff" * 8,
    columns=("url", "größe"),
    values="ab" * 16,
    groups="cd" * 16,
    bounding=one_row_of("uid"),
    part="window 0 60000000",
    group='north "west"',
    key=key_commitment(KEY),
    privacy_unit="household",
    reports_per_envelope=16,
)
OTHER: dict[str, Any] = {  # another value of every field
    "dataset": "survey",
    "release_id": "week-48",
    "mechanism": "00",
    "columns": ("hiv",),
    "values": "00",
    "groups": "00",
    "bounding": one_row_of("person"),
    "part": "round 1",
    "group": "south",
    "key": "",
    "privacy_unit": "device",
    "reports_per_envelope": 2,
}


# As text and bytes --------------------------------------------------------------------------------


def test_the_text_is_canonical_json():
    """Sorted names, no blanks, text as it is: what RFC 8785 asks of an object without fractions."""
    assert PLAIN.text == (
        '{"bounding":"row","columns":[],"dataset":"telemetry","group":"","groups":"",'
        '"identity_version":2,"key":"","mechanism":"","part":"","privacy_unit":"user",'
        '"release_id":"week-47","reports_per_envelope":1,"values":""}'
    )
    assert '"columns":["url","größe"]' in FULL.text
    assert r'"group":"north \"west\""' in FULL.text
    assert json.loads(FULL.text) == FULL.to_json()


@pytest.mark.parametrize(
    ("release", "digest"),
    [
        (PLAIN, "75c25724304da0bdf2ee42ccbe361a0db93edb1b694e45e7880d929be66e8b8b"),
        (FULL, "e3d8c3aa5d2a35191034fb3ad0e8fe1bcf0a479206a7a79f5b7f4a1d821887fb"),
    ],
)
def test_digests_are_what_every_client_computes(release, digest):
    """Golden vectors: a change of them is another wire."""
    assert release.digest.hex() == digest


def test_every_field_is_in_the_digest():
    assert set(OTHER) == {field.name for field in fields(ReleaseIdentity)}
    digests = {FULL.digest} | {replace(FULL, **{n: v}).digest for n, v in OTHER.items()}
    assert len(digests) == len(OTHER) + 1


def test_lists_of_names_do_not_run_into_one_another():
    pairs = [("a", "b"), ("ab",), ('a","b',), ("a,b",), ("",) * 0]
    assert len({identity(columns=columns).digest for columns in pairs}) == len(pairs)
    assert length_prefixed(b"a", b"b") != length_prefixed(b"ab")
    assert digest_of(b"a", b"b") != digest_of(b"ab", b"")


def test_what_is_read_back_is_what_was_written():
    for release in (PLAIN, FULL):
        assert ReleaseIdentity.from_json(json.loads(json.dumps(release.to_json()))) == release


@pytest.mark.parametrize(
    "change",
    [
        {"identity_version": 1},
        {"identity_version": None},
        {"more": 1},
        {"columns": "url"},
        {"columns": None},
        {"dataset": ""},
        {"reports_per_envelope": True},
    ],
)
def test_what_is_no_identity_is_refused(change):
    with pytest.raises(ValueError, match=r"identity|columns|dataset|reports_per_envelope"):
        ReleaseIdentity.from_json({**PLAIN.to_json(), **change})


def test_nothing_may_be_left_out():
    for name in PLAIN.to_json():
        told = PLAIN.to_json()
        del told[name]
        with pytest.raises(ValueError, match=name):
            ReleaseIdentity.from_json(told)


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00", "x" * 201, "\ud800", 7, None])
@pytest.mark.parametrize("argument", ["dataset", "release_id", "bounding", "privacy_unit"])
def test_names_are_printable_and_short(argument, name):
    with pytest.raises(ValueError, match=argument):
        replace(PLAIN, **{argument: name})


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("columns", ("",)),
        ("columns", ("a\n",)),
        ("part", "a\tb"),
        ("group", "\u2028"),
        ("mechanism", "0"),
        ("values", "AB"),
        ("groups", "zz"),
        ("key", "00" * 33),
        ("mechanism", b"00"),
        ("reports_per_envelope", 0),
        ("reports_per_envelope", 1.0),
        ("reports_per_envelope", 1 << 32),
    ],
)
def test_what_makes_no_identity_is_refused_by_name(argument, value):
    with pytest.raises(ValueError, match=argument):
        replace(PLAIN, **{argument: value})


# Parts of a release, and the question it asks -----------------------------------------------------


def test_parts_and_groups_are_releases_of_their_own():
    parts = [
        PLAIN,
        PLAIN.of_window(0, 60),
        PLAIN.of_window(60, 120),
        PLAIN.of_round(0),
        PLAIN.of_round(1),
        PLAIN.of_group("north"),
        PLAIN.of_group("south"),
    ]
    assert len({part.digest for part in parts}) == len(parts)
    assert PLAIN.of_window(0, 60).part == "window 0 60"
    assert PLAIN.of_round(1).part == "round 1"
    assert {part.question for part in parts} == {PLAIN}


def test_a_part_of_a_part_keeps_both():
    """Each of two rounds in each of two windows draws noise of its own, whichever comes first."""
    windows = [PLAIN.of_window(0, 60), PLAIN.of_window(60, 120)]
    parts = [window.of_round(number) for window in windows for number in (0, 1)]
    parts += [PLAIN.of_round(number).of_window(0, 60) for number in (0, 1)]
    assert len({part.digest for part in [*parts, *windows]}) == len(parts) + 2
    assert PLAIN.of_round(1).of_window(0, 60).part == "round 1 window 0 60"
    assert {part.question for part in parts} == {PLAIN}


def test_the_question_leaves_out_what_may_differ_under_one_name():
    assert FULL.question == replace(FULL, part="", group="", key="")
    assert FULL.question != PLAIN.question


def test_permanent_responses_are_drawn_under_the_question_alone():
    weeks = [replace(FULL, release_id=name) for name in ("week-47", "week-48")]
    assert weeks[0].permanent == weeks[1].permanent
    assert weeks[0].of_window(0, 60).permanent == weeks[1].of_window(60, 120).permanent
    for name in ("dataset", "mechanism", "columns", "values", "groups", "bounding", "key"):
        assert replace(FULL, **{name: OTHER[name]}).permanent != FULL.permanent


def test_differences_are_said_in_words():
    assert PLAIN.differences(PLAIN) == []
    assert PLAIN.differences(replace(PLAIN, columns=("a",))) == ["columns"]
    assert set(FULL.differences(replace(FULL, **OTHER))) >= {"release id", "privacy unit", "key"}
    assert len(FULL.differences(replace(FULL, **OTHER))) == len(OTHER)


def test_the_plain_rule_takes_each_row_for_a_person():
    assert PLAIN.bounding == ROW
    assert one_row_of("uid") != one_row_of("household") != ROW


# Keys ---------------------------------------------------------------------------------------------


def test_a_commitment_tells_keys_apart_and_holds_nothing_of_them():
    other = bytes(31) + b"\x01"
    assert key_commitment(KEY) == key_commitment(bytes(KEY)) == "a3cc745756e49b8e1cce3784ccee9138"
    assert key_commitment(KEY) != key_commitment(other)
    assert KEY.hex() not in key_commitment(KEY)


def test_a_release_keeps_the_key_that_it_was_begun_with():
    committed = PLAIN.committed(KEY)
    assert committed.key == key_commitment(KEY)
    assert committed.committed(KEY) == committed
    with pytest.raises(ValueError, match="two reports of each person") as error:
        committed.committed(bytes(32))
    assert key_commitment(bytes(32)) not in str(error.value)


# What is drawn ------------------------------------------------------------------------------------


def words(release: ReleaseIdentity, values: np.ndarray | None = None) -> bytes:
    values = np.zeros(len(USERS), dtype=np.int64) if values is None else values
    drawn = UserRandomness(KEY, USERS, release).words_for(b"m", values).words(0, len(USERS), 3)
    return drawn.tobytes()


def ids(release: ReleaseIdentity) -> bytes:
    return b"".join(envelope_ids(KEY, USERS, release))


def ranks(release: ReleaseIdentity) -> bytes:
    return contribution_ranks(KEY, USERS, (b"p" for _ in USERS), release).tobytes()


@pytest.mark.parametrize("draw", [words, ids, ranks])
def test_every_field_but_the_group_draws_anew(draw):
    """The key is one and the same here: a change of the identity alone changes what is drawn."""
    known = replace(FULL, key="")
    drawn = {name: draw(replace(known, **{name: v})) for name, v in OTHER.items() if name != "key"}
    assert drawn.pop("group") == draw(known)  # a person reports in one group, whichever it is
    assert len({draw(known), *drawn.values()}) == len(drawn) + 1


@pytest.mark.parametrize("draw", [words, ids, ranks])
def test_the_commitment_is_filled_in_before_anything_is_drawn(draw):
    assert draw(PLAIN) == draw(PLAIN.committed(KEY))
    with pytest.raises(ValueError, match="commitment"):
        draw(PLAIN.committed(bytes(32)))


def test_what_a_person_randomizes_changes_words_but_neither_ids_nor_ranks():
    assert words(PLAIN) != words(PLAIN, np.ones(len(USERS), dtype=np.int64))
    assert drawn_under(FULL) == drawn_under(replace(FULL, group="south"))


def test_zero_and_minus_zero_are_one_value():
    zero = np.zeros((len(USERS), 2))
    assert words(PLAIN, zero) == words(PLAIN, -zero)
    assert words(PLAIN, zero) != words(PLAIN, zero + 1e-300)


def test_two_columns_under_one_name_have_unrelated_reports():
    """Reports that differ prove nothing about values: these are of equal ones."""
    oracle = KRandomizedResponse(8, 1.0)
    users, values = np.arange(4000), np.zeros(4000, dtype=np.int64)
    reports = [
        oracle.randomize(values, UserRandomness(KEY, users, identity(columns=(column,))))
        for column in ("hiv", "hepc")
    ]
    assert 0 < np.sum(reports[0] == reports[1]) < len(users)  # equal ones by chance alone
