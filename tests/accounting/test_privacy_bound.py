"""A bound is a float that cannot lose what stands beside it."""

from __future__ import annotations

import copy
import math
import pickle

import pytest

from beam_ldp.accounting import (
    PrivacyBound,
    ShuffleAccountant,
    shuffle_delta,
    shuffle_epsilon,
    shuffled_event,
)
from beam_ldp.randomizers.frequency import KRandomizedResponse

pytestmark = pytest.mark.exact

FIELDS = {
    "lower": 0.3,
    "class_lower": 0.6,
    "method": "clones",
    "proof_status": "conjectured",
    "lower_method": "others hold a third value",
}


def test_it_is_a_float():
    bound = PrivacyBound(0.5, **FIELDS)
    assert isinstance(bound, float) and bound == 0.5 and hash(bound) == hash(0.5)
    assert f"{bound:.2f}" == "0.50" and str(bound) == "0.5" and math.sqrt(bound) == 0.5**0.5
    assert type(bound + 1) is float, "arithmetic makes no claims"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_whole(protocol):
    again = pickle.loads(pickle.dumps(PrivacyBound(0.5, **FIELDS), protocol))
    assert again == 0.5 and {name: getattr(again, name) for name in FIELDS} == FIELDS


def test_a_class_lower_that_is_a_function_is_called_once_and_when_it_is_read():
    calls = []

    def slow():
        calls.append(1)
        return 0.6

    bound = PrivacyBound(0.5, **{**FIELDS, "class_lower": slow})
    assert bound + 1 == 1.5 and not calls
    assert bound.class_lower == bound.class_lower == 0.6 and len(calls) == 1


def test_a_class_lower_that_is_a_function_pickles_as_its_value():
    bound = PrivacyBound(0.5, **{**FIELDS, "class_lower": lambda: 0.6})
    again = pickle.loads(pickle.dumps(bound))
    assert {name: getattr(again, name) for name in FIELDS} == FIELDS


def test_what_a_function_says_is_checked_too():
    bound = PrivacyBound(0.5, **{**FIELDS, "class_lower": lambda: math.nan})
    with pytest.raises(ValueError, match="class_lower"):
        _ = bound.class_lower


@pytest.mark.parametrize("given", [shuffle_epsilon, shuffle_delta])
def test_a_price_asks_nothing_about_the_class_until_it_is_read(given, monkeypatch):
    def refuse(*args):
        raise AssertionError("asked")

    expected = given(1.0, 10_000, 1e-6).class_lower
    with monkeypatch.context() as patched:
        for name in ("class_lower_epsilon", "two_response_witnesses"):
            patched.setattr(f"{shuffle_epsilon.__module__}.{name}", refuse)
        bound = given(1.0, 10_000, 1e-6)
        with pytest.raises(AssertionError, match="asked"):
            _ = bound.class_lower
    assert bound.class_lower == expected > 0


def test_an_accountants_bound_is_of_what_was_composed_when_it_was_asked_for():
    local = shuffled_event(KRandomizedResponse(4, 1.0), 10_000)
    accountant = ShuffleAccountant().compose(local, 2)
    expected = accountant.get_epsilon(1e-6).class_lower
    bound = accountant.get_epsilon(1e-6)
    accountant.compose(local, 6)
    assert bound.class_lower == expected < accountant.get_epsilon(1e-6).class_lower


def test_copies_whole():
    for make in (copy.copy, copy.deepcopy):
        again = make(PrivacyBound(0.5, **FIELDS))
        assert again.class_lower == 0.6 and again.method == "clones"


def test_is_frozen():
    bound = PrivacyBound(0.5, **FIELDS)
    for name in (*FIELDS, "anything"):
        with pytest.raises(AttributeError):
            setattr(bound, name, 0.0)
    with pytest.raises(AttributeError):
        del bound.lower


def test_repr_names_everything_that_matters():
    text = repr(PrivacyBound(0.5, **FIELDS))
    for part in ("0.5", "lower=0.3", "class_lower=0.6", "'clones'", "'conjectured'"):
        assert part in text


@pytest.mark.parametrize(
    ("value", "change", "named"),
    [
        (-0.1, {"lower": 0.0}, "value"),
        (math.nan, {"lower": 0.0}, "value"),
        (0.5, {"lower": 0.51}, "lower"),
        (0.5, {"lower": -0.1}, "lower"),
        (0.5, {"lower": math.nan}, "lower"),
        (0.5, {"class_lower": math.nan}, "class_lower"),
        (0.5, {"proof_status": "sure"}, "proof_status"),
    ],
)
def test_contradictions_are_refused(value, change, named):
    with pytest.raises(ValueError, match=named):
        PrivacyBound(value, **{**FIELDS, **change})


def test_a_lower_that_is_a_function_is_called_once_and_when_it_is_read():
    calls = []

    def slow():
        calls.append(1)
        return 0.3, "others hold a third value"

    bound = PrivacyBound(0.5, **{**FIELDS, "lower": slow, "lower_method": ""})
    assert bound + 1 == 1.5 and bound.method == "clones" and not calls
    assert bound.lower_method == "others hold a third value" and bound.lower == 0.3
    assert len(calls) == 1
    again = pickle.loads(pickle.dumps(bound))
    assert {name: getattr(again, name) for name in FIELDS} == FIELDS
    with pytest.raises(ValueError, match="lower must be in"):
        _ = PrivacyBound(0.5, lower=lambda: (0.6, "")).lower
