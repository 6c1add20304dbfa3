"""Every release that a test makes is confirmed by the verifier, or says why it cannot be.

Wherever a program runs: in the process of the tests, or in one of its own (`tests.warm`). A release
of several parts is a sum of seconds, which its certificate takes to make, to try, and to confirm
here: what was summed once is remembered. Tests of the verifier sum as it does.
"""

from __future__ import annotations

import decimal
import functools
import hashlib
import json
import pickle
from collections.abc import Callable
from typing import Any

from beam_ldp.verifier import verify as verifier
from beam_ldp.verifier.verify import CONFIRMED, NOTHING, read, verify

CHECKABLE = "ShuffledDpEvent"  # of one report per person, whose mechanism has a table of its own
EXCUSES = (  # for everything else: as the page of certificates lists them
    "it states no finite epsilon",
    "its bound is conjectured",
    "its bound rests on how long a person's vector is",
    "it names no event",
    "it rests on shares that only a shuffler hides",
    "there is no step for events such as its ",
    "there is no step to compose its ",
    "it samples several points of a person",
    "it samples people of whom each sends several messages",
    "it is composed of more than",
    "its event alone does not prove its epsilon",
)

SUMS = "positive_part", "bit_delta"  # of the verifier, which take seconds


def remembered(sum_: Callable[..., Any]) -> Callable[..., Any]:
    """One of the verifier's, once for the same numbers at the same precision."""
    found: dict[bytes, Any] = {}

    @functools.wraps(sum_)
    def once(*laws: Any) -> Any:
        key = hashlib.sha256(pickle.dumps((decimal.getcontext().prec, laws))).digest()
        if key not in found:
            found[key] = sum_(*laws)
        return found[key]

    return once


def install() -> None:
    """Look at all that is written from here on: records of programs, and prices of streams."""
    for name in SUMS:
        if not hasattr(getattr(verifier, name), "__wrapped__"):
            setattr(verifier, name, remembered(getattr(verifier, name)))
    from beam_ldp.release.record import PrivacyRecord
    from beam_ldp.release.streams import results

    for holder, name in ((PrivacyRecord, "to_json"), (results, "told_of")):
        written = getattr(holder, name)
        if not hasattr(written, "__wrapped__"):
            setattr(holder, name, _confirmed(written))


def _confirmed(written: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    @functools.wraps(written)
    def confirmed(*args: Any, **kwargs: Any) -> dict[str, Any]:
        told = written(*args, **kwargs)
        check(told)
        return told

    return confirmed


def check(told: dict[str, Any]) -> None:
    """Whether what a release says of its cost holds, as somebody else reads it."""
    said, why = _verdict(json.dumps(told))
    event = (told["event"] or {}).get("event", {})
    whole = event.get("kind") == CHECKABLE and event["local_event"]["pair"]
    checkable = whole and told["epsilon"] is not None and told["proof_status"] == "proved"
    excused = said == NOTHING and why.partition(": ")[2].startswith(EXCUSES) and not checkable
    assert said == CONFIRMED or excused, why


@functools.lru_cache(maxsize=64)
def _verdict(statement: str) -> tuple[int, str]:
    return verify(read(statement))
