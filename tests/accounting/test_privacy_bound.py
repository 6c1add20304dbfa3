"""A bound is a float that cannot lose what stands beside it."""

from __future__ import annotations

import copy
import math
import pickle

import pytest

from beam_ldp.accounting import PrivacyBound

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
